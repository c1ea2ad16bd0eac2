"""A hard budget with 64 calls in flight, each at its maximum output: not one micro-dollar over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headway.agents.prompt import PromptAgent, PromptSettings
from headway.base.values import Amounts
from headway.engine.record import Header, TaskRow
from headway.journal.journal import Journal
from headway.pacing.estimate import Price
from headway.plans.load import plan_from
from headway.plans.spec import PlanBudget
from headway.run.launch import Launched, launch
from headway.run.plan_run import PlanSource, plan_run
from headway.run.run_context import Crew
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import account_of, serving, truth_of
from headway.testing import FakeAdmission

PRICE = Price(3_000_000, 15_000_000)
MAX_TOKENS = 200
TASKS = 300
WIDTH = 64
PLAN = f"""\
headway: 1
strategy: fixed({WIDTH})
tasks:
  ask:
    each: {{lines: items.txt}}
    prompt: 'say something about {{{{ item }}}}'
    model: openai/tokens-{MAX_TOKENS - 1}
    max_tokens: {MAX_TOKENS}
"""
SPEC = ProviderSpec("t", Terms(), Latency(0.3, 0.0005))


def perform(folder: Path, url: str, budget_microusd: int) -> tuple[Launched, list[TaskRow]]:
    (folder / "items.txt").write_text("".join(f"thing {n}\n" for n in range(TASKS)))
    environment = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k"}
    place = str(folder / "run")
    if Path(place).exists():
        journal = Journal.open(place)
    else:
        journal = Journal.create(place, Header("r", "p", "plan", "", str(folder), TASKS, 0.0))
    loaded = plan_from(PLAN, folder, "plan.yaml", False)

    async def main() -> Launched:
        crew = Crew(str(folder), place, "r", environment)
        how = PromptSettings("r", environment, FakeAdmission(), prices=lambda *_: PRICE)
        async with PromptAgent(how) as crew._prompts:
            source = PlanSource("", PLAN, budget=PlanBudget(microusd=budget_microusd))
            return await launch(plan_run(loaded.expanded, source, crew).launch, journal)

    launched = asyncio.run(main())
    rows = list(journal.reader.rows())
    journal.close()
    return launched, rows


def test_a_budget_is_never_exceeded_and_a_larger_one_finishes_the_run(tmp_path: Path) -> None:
    budget = 700_007
    with serving(SPEC) as url:
        launched, rows = perform(tmp_path, url, budget)
        told = truth_of(url, "?arrivals=all")
        account = told["accounts"][account_of("k")]
        spent = _spent(told)
        assert (launched.exit_code, launched.outcome.cause) == (4, "budget")
        assert account["in_flight_max"] == WIDTH
        assert sum(row.spent_microusd for row in rows) == spent <= budget
        assert launched.outcome.finished.failed == 0
        # What is left would not pay for one more call at its ceiling.
        assert budget - spent < 2 * max(row.spent_microusd for row in rows)
        again, rows = perform(tmp_path, url, 10 * budget)
        told = truth_of(url, "?arrivals=all")
    assert (again.exit_code, again.outcome.finished.finished) == (0, TASKS)
    account = told["accounts"][account_of("k")]
    assert (account["calls"], account["whole"]) == (TASKS, TASKS)
    assert sum(row.spent_microusd for row in rows) == _spent(told)


def _spent(told: dict[str, object]) -> int:
    """What the provider's own record comes to, call by call."""
    arrivals = told["arrivals"]
    assert isinstance(arrivals, list)
    return sum(
        PRICE.cost_microusd(Amounts(one["input_tokens"], one["output_tokens"])) for one in arrivals
    )
