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

Where to find what (each folder imports only those listed below it; `make lint` holds this):

    cli                          one short function per verb
    testing                      what users' tests need
    mcp, planner                 plans by agents
    api                          the Python front door
    report.text                  what a person or a program is shown: text, JSON, pictures
    gateway                      a local endpoint that paces unmodified agents
    sim.server, sim.compare      a simulated provider behind HTTP; strategies side by side
    run, config                  how a run is performed and resumed; the configuration
    agents, reducers, files      who performs a task; functions that plans may name
    state, client, broker        how tasks reach what they share; one call is paced; processes
                                 share an account
    journal, work                what is durable; what can be performed as a task
    report, sim                  pure: what happened, what would happen; a provider to try things on
    engine, state.shared         pure: what happens next in a run; what tasks share
    plans, wire, pacing          pure: what is to be done; providers' bytes; when to send a call
    base, interrupts, errors     what every folder uses; what a signal does; what can go wrong

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
    from headway.planner.planning import plan, plan_async
    from headway.state.context import Context

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
    name: f"headway.{home}"
    for home, names in {
        "api.clients": "pace",
        "api.maps": "as_completed map map_async run_in_waves run_in_waves_async",
        "api.plans": "Plan Run",
        "api.summaries": "summarize summarize_async",
        "errors": "BrokerUnavailableError BudgetReachedError HeadwayError QueueDeadlineError "
        "TasksFailedError",
        "planner.planning": "plan plan_async",
        "state.context": "Context",
    }.items()
    for name in names.split()
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
