"""Five hundred prompts to a provider with every fault there is: nothing ends without a reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from pathlib import Path

from msgspec import Struct

from headway.agents.prompt import PromptAgent, PromptSettings
from headway.base.values import FaultKind
from headway.client.exchange import Port
from headway.engine.record import Header, TaskRow
from headway.journal.journal import Journal
from headway.plans.load import plan_from
from headway.run.driver import Driver
from headway.run.launch import launch
from headway.run.plan_run import PlanSource, plan_run
from headway.run.run_context import Crew
from headway.sim.account import Terms
from headway.sim.delivery import parse_shares
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, serving, truth_of
from headway.testing import FakeAdmission

LATENCY = Latency(0.01, 0.0005)
FAULTS = (
    "429-bare", "429-misleading", "429-text", "500", "503-html", "529", "billing", "spend-cap",
    "error-event", "cut", "hang", "stall", "malformed", "slow-start", "gzip",
)  # fmt: skip
SHARE = 0.2
PLAN = """\
headway: 1
retries: 3
tasks:
  ask:
    each: {lines: items.txt}
    prompt: 'say something about {{ item }}'
    model: openai/tokens-5-40
    max_tokens: 64
  read:
    each: ask
    prompt: 'and about {{ item }}: {{ tasks.ask.output }}'
    model: anthropic/tokens-5-40
    max_tokens: 64
"""


class Ran(Struct, frozen=True):
    """How a plan ended, and what its journal says."""

    driver: Driver
    rows: list[TaskRow]


def perform(folder: Path, url: str, port: Port, strategy: str, count: int) -> Ran:
    """Run the plan over so many items; each is asked twice."""
    (folder / "items.txt").write_text("".join(f"thing {n}\n" for n in range(count)))
    loaded = plan_from(PLAN, folder, "plan.yaml", False)
    environment = {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": strategy,
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": strategy,
    }  # fmt: skip
    place = str(folder / strategy.replace(":", "-"))
    journal = Journal.create(place, Header("r", "p", "plan", "", str(folder), 2 * count, 0.0))

    async def main() -> Driver:
        crew = Crew(str(folder), place, "r", environment)
        how = PromptSettings("r", environment, port, quiet_s=0.5, prices=lambda *_: None)
        async with aclosing(PromptAgent(how)) as crew._prompts:
            run = plan_run(loaded.expanded, PlanSource("", PLAN, strategy), crew)
            return await launch(run.launch, journal)

    launched = asyncio.run(main())
    rows = list(journal.reader.rows())
    journal.close()
    return Ran(launched, rows)


def test_500_tasks_with_every_fault_end_with_a_result_or_a_reason(tmp_path: Path) -> None:
    """Admission lets everything through, so that nothing but the tasks themselves is looked at."""
    mischief = parse_shares([f"{kind}={SHARE / len(FAULTS):.5f}" for kind in FAULTS])
    admission = FakeAdmission()
    with serving(
        ProviderSpec("t", Terms(), LATENCY), ServeOptions(seed=4, mischief=mischief)
    ) as url:
        ran = perform(tmp_path, url, admission, "fixed:32", 250)
        told = truth_of(url, "?arrivals=all")
    finished = ran.driver.outcome.finished
    assert finished.left == 0
    assert finished.finished + finished.failed + finished.skipped == 500
    assert finished.failed > 0
    assert ran.driver.outcome.exit_code == 1
    states = Counter(row.state for row in ran.rows)
    assert states == {
        "finished": finished.finished, "failed": finished.failed, "skipped": finished.skipped
    }  # fmt: skip
    for row in ran.rows:
        kind = row.fault.partition(":")[0]
        assert (row.state == "failed") == bool(row.fault), row
        assert not row.fault or kind in FaultKind.__args__, row.fault  # type: ignore[attr-defined]
        assert (row.state == "finished") == bool(row.ending.body)
    met = {fault for one in told["arrivals"] for fault in one["faults"]}
    assert met == set(FAULTS)
    assert admission.statistics().unsettled == 0
