"""Headway runs many agents on one account as fast as its limits allow.

A provider gives an account so many requests and tokens per minute. Sending everything at once
is refused, sending in waves wastes time; headway admits each call the moment that it fits:

    import asyncio, headway, openai

    client = headway.pace(openai.AsyncOpenAI())  # the same client, now paced

    async def ask(question):
        answer = await client.responses.create(model="gpt-5-mini", input=question)
        return answer.output_text

    async def main():
        questions = [f"What is {n} times {n}?" for n in range(1000)]
        print(await asyncio.gather(*map(ask, questions)))

    asyncio.run(main())

Layers, each importing only those below it (`make lint` holds this):

    cli                                 one short function per verb
    planner, simulator, watch, mcp      what stands around a run
    api                                 the Python front door
    gateway                             a local endpoint that paces any client
    runtime                             performs effects: clock, files, network
    planfile, wire                      bytes <-> values
    core                                decides; pure: `now` is an argument
    errors                              every error, by whose fault it is

Public names are imported when first used, so that `import headway` stays instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.api.clients import pace
    from headway.api.maps import as_completed, map, map_async, run_in_waves, run_in_waves_async
    from headway.api.plans import Plan, Run
    from headway.api.summaries import summarize, summarize_async
    from headway.errors import (
        BrokerUnavailableError,
        BudgetReachedError,
        HeadwayError,
        QueueDeadlineError,
        TasksFailedError,
    )
    from headway.planner import plan, plan_async
    from headway.runtime.context import Context

__version__ = "0.1.0"

__all__ = [
    "BrokerUnavailableError",
    "BudgetReachedError",
    "Context",
    "HeadwayError",
    "Plan",
    "QueueDeadlineError",
    "Run",
    "TasksFailedError",
    "__version__",
    "as_completed",
    "map",
    "map_async",
    "pace",
    "plan",
    "plan_async",
    "run_in_waves",
    "run_in_waves_async",
    "summarize",
    "summarize_async",
]

_HOMES = {
    "BrokerUnavailableError": "headway.errors",
    "BudgetReachedError": "headway.errors",
    "Context": "headway.runtime.context",
    "HeadwayError": "headway.errors",
    "Plan": "headway.api.plans",
    "QueueDeadlineError": "headway.errors",
    "Run": "headway.api.plans",
    "TasksFailedError": "headway.errors",
    "as_completed": "headway.api.maps",
    "map": "headway.api.maps",
    "map_async": "headway.api.maps",
    "pace": "headway.api.clients",
    "plan": "headway.planner",
    "plan_async": "headway.planner",
    "run_in_waves": "headway.api.maps",
    "run_in_waves_async": "headway.api.maps",
    "summarize": "headway.api.summaries",
    "summarize_async": "headway.api.summaries",
}
"""Where each public name lives; at most 20 of them."""


def __getattr__(name: str) -> object:
    """Import a public name from its home on first use (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names and the module's own, imported or not."""
    return sorted({*globals(), *__all__})
