"""Loops between tasks, under any schedule and any moments of death: as one after another does them.

Models answer with a hash of their prompt: a stale or missing value anywhere changes what is left.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

from headway.engine.state import Rules
from headway.engine.strategy import parse
from headway.plans.load import plan_from
from headway.run.driver import Driver
from headway.run.plan_run import PlanSource, plan_run
from headway.run.run_context import Crew
from headway.testing import run_virtual
from headway.work import Attempt, Result
from tests.coherence.serial_loops import Left, Plan, SerialRun, answer
from tests.unit.driven import SlowRecord, passes

if TYPE_CHECKING:
    from headway.agents.prompt import PromptAgent, PromptCall

STRATEGIES = ("all-at-once", "fixed:1", "fixed:2", "waves:2", "adaptive")
KEYS = ("a", "b", "c")
ITEMS = ("x", "y", "z")
SCHEMA = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}})


def drawn(rng: random.Random) -> Plan:
    """Tasks with needs and shared keys; one of them judges an earlier one, perhaps two do."""
    tasks: Plan = {}
    count = rng.randint(4, 7)
    each = rng.random() < 0.4
    judges = sorted(rng.sample(range(1, count), 2 if rng.random() < 0.3 else 1))
    free = 0
    for index in range(count):
        name = f"t{index}"
        needs = [f"t{one}" for one in range(index) if rng.random() < 0.35]
        task: dict[str, Any] = {}
        if index in judges and free < index:
            target = rng.randrange(free, index)
            free = index + 1
            task = {"revise": f"t{target}", "at_most": rng.randint(1, 3), "accept": "ok",
                    "schema": "ok.json", "then": rng.choice(("fail", "continue"))}  # fmt: skip
            needs = [*{*needs, f"t{target}"}]
        elif rng.random() < 0.7:
            task["output"] = f"state:{rng.choice(KEYS)}"
        texts = [f"{name}:"]
        if each and rng.random() < 0.6:
            followed = [one for one in needs if "each" in tasks[one]]
            task["each"] = rng.choice(followed) if followed and rng.random() < 0.8 else [*ITEMS]
            texts.append("{{ item }}")
            if isinstance(task["each"], str):
                needs.remove(task["each"])
                texts.append(f"{{{{ tasks.{task['each']}.output }}}}")
            if "output" in task:
                task["output"] += "/{{ item }}"
        if needs:
            task["needs"] = sorted(needs)
        texts += (f"{{{{ tasks.{one}.output }}}}" for one in sorted(needs))
        if rng.random() < 0.6:
            texts.append("{{ state }}")
        tasks[name] = {"prompt": " ".join(texts), "max_tokens": 9, **task}
    for task in list(tasks.values()):
        if "revise" in task and rng.random() < 0.5:
            tasks[task["revise"]]["prompt"] += " again: {{ vars.rejection }}"
    return tasks


class HashModel:
    def __init__(self, rng: random.Random, judges: set[str]) -> None:
        self.rng, self.judges = rng, judges
        self.asked: list[str] = []

    async def perform(self, call: PromptCall, attempt: Attempt) -> Result:
        self.asked.append(attempt.name)
        await passes(self.rng.random() * 3)
        group = attempt.name.partition("[")[0].partition("@")[0]
        return Result(answer(call.prompt, is_judge=group in self.judges).encode())


class HashCrew(Crew):
    model: HashModel | None = None

    async def prompts(self) -> PromptAgent:
        return cast("PromptAgent", self.model)


class Life:
    """One process of a run."""

    def __init__(self, tasks: Plan, folder: Path, record: SlowRecord, rng: random.Random) -> None:
        text = json.dumps({"headway": 1, "model": "m/m", "state": {}, "tasks": tasks})
        loaded = plan_from(text, folder, "plan.json")
        judges = {name for name, task in tasks.items() if "revise" in task}
        self.model = HashModel(rng, judges)
        crew = HashCrew(str(folder), str(folder), "run", {}, model=self.model)
        source = PlanSource("plan.json", text)
        self.run = plan_run(loaded.expanded, source, crew)
        self.record = record

    def live(self, strategy: str, dies_after_s: float | None) -> bool:
        launch = replace(self.run.launch, rules=Rules(parse(strategy), 0))

        async def main() -> bool:
            loop = asyncio.get_running_loop()
            driver = Driver(launch, self.record, loop.time, self.record.saved())
            running = asyncio.ensure_future(driver.run())
            done, _ = await asyncio.wait((running,), timeout=dies_after_s)
            if not done:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                self.record.waiting.clear()
                return False
            running.result()
            return True

        return run_virtual(main())

    def left(self) -> Left:
        sharing = self.run.launch.sharing
        assert sharing is not None
        state = {
            key: json.loads(data)
            for key, data, _ in sharing.coherence.shared.matching("**", 1 << 62)
        }
        done = {
            row.name: self.record.bodies[row.ending.body].decode()
            for row in self.record.rows.values()
            if row.state == "finished" and "@" not in row.name
        }
        return done, state


def must_be_serial(seed: int, folder: Path) -> tuple[int, int]:
    """A plan through up to three deaths; how many deaths, and how many tasks ran again."""
    rng = random.Random(seed)
    tasks, record = drawn(rng), SlowRecord(delay_s=rng.random())
    strategy, deaths, again = rng.choice(STRATEGIES), rng.randint(0, 3), 0
    for death in range(deaths + 1):
        committed = {row.name for row in record.rows.values() if row.state == "finished"}
        life = Life(tasks, folder, record, rng)
        is_over = life.live(strategy, rng.random() * 15 if death < deaths else None)
        stateless = all("state" not in json.dumps(task) for task in tasks.values())
        assert not stateless or not committed & {*life.model.asked}, f"seed {seed}"
        again += sum("@1" not in one and "@" in one for one in life.model.asked)
        if is_over:
            break
    assert life.left() == SerialRun(tasks).left(), f"seed {seed}"
    return death, again


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ok.json").write_text(SCHEMA)
    return tmp_path


def test_loops_leave_what_the_serial_run_leaves_whenever_it_dies(folder: Path) -> None:
    found = [must_be_serial(seed, folder) for seed in range(24)]
    assert sum(deaths for deaths, _ in found) > 8
    assert sum(again for _, again in found) > 12


def test_a_loop_that_is_not_told_why_leaves_something_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""
    monkeypatch.setattr("headway.run.tasks.sent_back", lambda group, _: group)
    with pytest.raises(AssertionError, match="seed"):
        [must_be_serial(seed, folder) for seed in range(24)]


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 3000, 200))
def test_thousands_of_loops_leave_what_the_serial_run_leaves(first: int, folder: Path) -> None:
    found = [must_be_serial(seed, folder) for seed in range(first, first + 200)]
    assert sum(again for _, again in found) > 100
