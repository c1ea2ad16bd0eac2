"""Commands whose agents call models: every call is seen, paced, charged to its task, and paid for.

The commands know nothing of headway; the simulated provider's own record is what is compared with.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from headway.agents.metering import PriceLookup
from headway.base.values import Amounts, Budget, Limit
from headway.engine.record import Header, TaskRow
from headway.gateway.settings import GatewayOptions, read_settings
from headway.gateway.tasks import TaskGateway
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.pacing.estimate import Price
from headway.plans.load import plan_from
from headway.run.driver import Driver
from headway.run.launch import launch
from headway.run.plan_run import PlanSource, plan_run, with_meter
from headway.run.run_context import Crew
from headway.sim.account import Terms, UsageWindow
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import account_of, serving, truth_of
from headway.testing import FakeAdmission
from tests.integration.strangers_shell import Said, Stranger

CALLER = f"{sys.executable} {Path(__file__).with_name('metered_caller.py')}"
PRICE = Price(3_000_000, 15_000_000)
SPEC = ProviderSpec("t", Terms(), Latency(0.02, 0.0001))


class Performed(Struct, frozen=True):
    """A run that is over."""

    driver: Driver
    rows: dict[str, TaskRow]
    meter: TaskGateway

    @property
    def cause(self) -> tuple[int, str]:
        return self.driver.outcome.exit_code, self.driver.outcome.cause


def perform(
    folder: Path,
    url: str,
    tasks: str,
    budget: Budget | None = None,
    price: Price | None = PRICE,
) -> Performed:
    """A plan of commands, on a journal that may have begun."""
    environment = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "PATH": "/nowhere"}
    text = f"headway: 1\ntasks:\n{tasks}"
    loaded = plan_from(text, folder, "plan.yaml", False)
    place = str(folder / "run")
    header = Header("r", "p", "plan", "", str(folder), loaded.expanded.count, 0.0)
    journal = Journal.open(place) if Path(place).exists() else Journal.create(place, header)
    meter = TaskGateway(
        "r",
        str(folder),
        place,
        environment,
        read_settings(GatewayOptions(), environment),
        prices=PriceLookup(lambda *_: price),
        admission=FakeAdmission(),
    )

    async def main() -> Driver:
        source = PlanSource("", text, budget=budget)
        run = plan_run(loaded.expanded, source, Crew(str(folder), place, "r", environment))
        return await launch(with_meter(run, meter).launch, journal)

    try:
        launched = asyncio.run(main())
        return Performed(launched, {row.name: row for row in journal.reader.rows()}, meter)
    finally:
        journal.close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HEADWAY_GATEWAY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")


def arrivals(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = truth_of(url, "?arrivals=all")["arrivals"]
    return found


def cost_of(one: Mapping[str, Any]) -> int:
    return PRICE.cost_microusd(Amounts(one["input_tokens"], one["output_tokens"]))


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
def test_every_call_is_charged_to_the_task_whose_command_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    if wire == "openai":
        monkeypatch.setenv("OPENAI_API_KEY", "k")
    tasks = f"""\
  one: {{run: '{CALLER} tokens-30 100'}}
  three: {{run: '{CALLER} tokens-50 100 3'}}
  none: {{run: 'echo nothing'}}
"""
    with serving(SPEC) as url:
        done = perform(tmp_path, url, tasks)
        told = arrivals(url)
    assert done.cause == (0, "")
    one, three, none = (done.rows[name].ending for name in ("one", "three", "none"))
    assert (one.calls, three.calls, none.calls) == (1, 3, 0)
    by_length = {length: [x for x in told if x["output_tokens"] == length] for length in (30, 50)}
    for ending, length in ((one, 30), (three, 50)):
        mine = by_length[length]
        assert ending.output_tokens == length * ending.calls
        assert ending.input_tokens == sum(x["input_tokens"] for x in mine)
        assert ending.spend_microusd == sum(map(cost_of, mine)) > 0
    assert none.spend_microusd == none.input_tokens == 0


def test_a_run_whose_commands_make_no_calls_starts_no_server(tmp_path: Path) -> None:
    with serving(SPEC) as url:
        done = perform(tmp_path, url, "  none: {run: 'echo $ANTHROPIC_BASE_URL'}\n")
    assert done.cause == (0, "")
    assert done.meter._gateway is None
    assert not (tmp_path / "run" / "homes").exists()


def test_a_command_that_fails_has_cost_what_its_calls_cost(tmp_path: Path) -> None:
    with serving(SPEC) as url:
        done = perform(tmp_path, url, f"  bad: {{run: '{CALLER} tokens-30 100 2 9', retries: 1}}\n")
        told = arrivals(url)
    assert done.cause == (1, "")
    row = done.rows["bad"]
    assert (row.state, row.attempt, row.ending.exit_code, row.ending.calls) == ("failed", 2, 9, 2)
    assert row.spent_microusd == sum(map(cost_of, told))
    assert len(told) == 4


def test_a_budget_in_tokens_ends_the_command_and_a_larger_one_finishes_the_run(
    tmp_path: Path,
) -> None:
    tasks = f"  ask: {{run: '{CALLER} tokens-200 300 10'}}\n"
    with serving(SPEC) as url:
        done = perform(tmp_path, url, tasks, Budget(tokens=2000))
        told = arrivals(url)
        assert done.cause == (4, "budget")
        row = done.rows["ask"]
        assert row.state == "delayed"
        spent = sum(x["input_tokens"] + x["output_tokens"] for x in told)
        assert 1000 < row.ending.input_tokens + row.ending.output_tokens <= 2000 + 300
        assert spent <= 2000 + 300
        again = perform(tmp_path, url, tasks, Budget(tokens=100_000))
    assert again.cause == (0, "")
    assert again.rows["ask"].ending.calls == 10


def test_a_stream_that_outgrows_the_budget_is_cut(tmp_path: Path) -> None:
    tasks = f"  ask: {{run: '{CALLER} tokens-4000 5000'}}\n"
    spec = ProviderSpec("t", Terms(), Latency(0.02, 0.002))
    with serving(spec) as url:
        done = perform(tmp_path, url, tasks, Budget(microusd=15_000))
        told = truth_of(url)["accounts"][account_of("k")]
    assert done.cause == (4, "budget")
    assert (told["calls"], told["whole"], told["cancelled"]) == (1, 0, 1)
    # 15 micro-dollars for each token of output; it is looked at five times a second.
    row = done.rows["ask"]
    assert 5_000 < row.spent_microusd < 15_000 + 15 * 256
    assert done.driver.outcome.finished.left == 1


def test_what_verifies_an_answer_may_ask_a_model_itself(tmp_path: Path) -> None:
    tasks = f"""\
  ask:
    run: echo fine
    verify: {CALLER} tokens-30 100
"""
    with serving(SPEC) as url:
        done = perform(tmp_path, url, tasks)
    assert done.cause == (0, "")
    assert (done.rows["ask"].ending.calls, done.rows["ask"].ending.output_tokens) == (1, 30)


class Shell:
    """A stranger whose providers are the simulated one, with a broker of their own."""

    def __init__(self, stranger: Stranger, url: str) -> None:
        self.stranger = stranger
        self.more = {
            "OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k",
            "HEADWAY_IDLE_S": "0.5",
        }  # fmt: skip

    def __call__(self, *words: str, **more: str) -> Said:
        return self.stranger(*words, **(self.more | more))

    def totals(self) -> dict[str, tuple[int, float]]:
        """Calls and output of each task, as the journal has them."""
        (folder,) = self.stranger.runs()[-1:]
        return {row.name: (row.ending.calls, row.ending.output_tokens) for row in _rows(folder)}


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path)


def test_commands_of_each_are_paced_together_and_charged_apart(stranger: Stranger) -> None:
    limit = Limit("concurrency", 2, kind="gauge")
    spec = ProviderSpec("t", Terms((limit,)), Latency(0.2, 0.0001))
    asked = (1, 1, 2, 2, 3, 3)
    command = ("-j", "6", f"{CALLER} tokens-20 100 {{}}", ":::", *map(str, asked))
    with serving(spec) as url:
        shell = Shell(stranger, url)
        assert shell("limits", "set", "concurrent=2").code == 0
        alone = shell("each", "--no-gateway", *command)
        assert (alone.code, "refused 429" in alone.err) == (1, True)
        before = truth_of(url)["accounts"][account_of("k")]
        said = shell("each", *command)
        told = truth_of(url)["accounts"][account_of("k")]
    assert (said.code, said.err) == (0, "")
    assert (told["calls"] - before["calls"], told["in_flight_max"]) == (12, 2)
    assert told["refused"] == before["refused"]
    took = {f"each[{n + 1}: {calls}]": (calls, 20.0 * calls) for n, calls in enumerate(asked)}
    assert shell.totals() == took


@pytest.mark.parametrize("off", ["option", "variable"])
def test_a_run_without_a_gateway_leaves_commands_alone(stranger: Stranger, off: str) -> None:
    option = ("--no-gateway",) if off == "option" else ()
    more = {"HEADWAY_GATEWAY": "0"} if off == "variable" else {}
    with serving(SPEC) as url:
        shell = Shell(stranger, url)
        said = shell("each", *option, "echo $ANTHROPIC_BASE_URL {}", ":::", "a", **more)
    assert (said.code, said.out) == (0, f"{url} a\n")


def test_a_run_inside_a_command_uses_the_gateway_that_is_there(stranger: Stranger) -> None:
    inner = f"{sys.executable} -m headway each '{CALLER} tokens-2{{}} 100' ::: 1 2"
    stranger.write("plan.yaml", f"headway: 1\ntasks:\n  outer:\n    run: |\n      {inner}\n")
    with serving(SPEC) as url:
        shell = Shell(stranger, url)
        said = shell("run", "plan.yaml", "-q")
        told = truth_of(url)["accounts"][account_of("k")]
    assert (said.code, told["calls"], told["whole"]) == (0, 2, 2)
    (outer,) = [row for folder in stranger.runs() for row in _rows(folder) if row.name == "outer"]
    assert (outer.ending.calls, outer.ending.output_tokens) == (2, 43)


def _rows(folder: Path) -> list[TaskRow]:
    with JournalReader(str(folder)) as reader:
        return list(reader.rows())


def test_a_run_that_does_not_wait_for_a_usage_window_ends_its_commands(stranger: Stranger) -> None:
    spec = ProviderSpec(
        "t", Terms(windows=(UsageWindow(600.0),)), Latency(0.05, 0.0001), dialect="anthropic"
    )
    stranger.write(
        "plan.yaml", f"headway: 1\ntasks:\n  ask: {{run: '{CALLER} tokens-400 500 9'}}\n"
    )
    with serving(spec) as url:
        shell = Shell(stranger, url)
        said = shell("run", "plan.yaml", "-q", "--no-wait")
        told = truth_of(url)["accounts"][account_of("k")]
    assert said.code == 75, said
    assert "usage window" in said.err
    (row,) = _rows(stranger.runs()[-1])
    assert (row.state, row.ending.calls) == ("delayed", told["whole"])
    assert row.ending.output_tokens == 400 * told["whole"]
