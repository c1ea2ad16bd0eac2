"""An objective for the whole: what each landing does to it, and what a ratchet keeps out."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.promises.user import User, until, user

SCORE = """\
total=0
for file in parts/*; do [ -e "$file" ] && total=$((total + $(cat "$file"))); done
for file in debt/*; do [ -e "$file" ] && total=$((total - $(cat "$file"))); done
echo "parts and debts"
echo $total
"""


class ScriptedAgent(Struct, frozen=True):
    """It reaches its own goal at any price; if it is told what it did, by a smaller step."""

    name: str
    gain: int
    debt: int
    modest: int

    @property
    def task(self) -> dict[str, Any]:
        script = (
            f'mkdir -p parts debt; if [ -n "$rejection" ]; then echo {self.modest} > '
            f"parts/{self.name}; else echo {self.gain} > parts/{self.name}; "
        )
        script += f"echo {self.debt} > debt/{self.name}; fi" if self.debt else "fi"
        return {"run": script, "verify": f"test -s parts/{self.name}"}


def drawn(seed: int, count: int = 10) -> list[ScriptedAgent]:
    """Six of ten take more from the others than they gain themselves."""
    rng = random.Random(seed)
    agents = []
    for number in range(count):
        gain = rng.randint(4, 9)
        debt = gain + rng.randint(1, 6) if rng.random() < 0.6 else 0
        agents.append(ScriptedAgent(f"a{number}", gain, debt, rng.randint(1, gain - 1)))
    return agents


def sequential(agents: list[ScriptedAgent]) -> int:
    """One agent that takes one step after another and has the whole in view."""
    return sum(one.modest if one.debt else one.gain for one in agents)


def plan(agents: list[ScriptedAgent], *, ratchet: bool, **more: Any) -> str:
    tasks = {one.name: one.task for one in agents}
    top = {"headway": 1, "objective": "sh score.sh", "workspace": "on", **more}
    return json.dumps({**top, "ratchet": "on" if ratchet else "off", "tasks": tasks})


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as one:
        one.write("score.sh", SCORE)
        yield one


def performed(owner: User, text: str) -> list[dict[str, Any]]:
    owner.write("plan.json", text)
    ran = owner.headway("run", "-q", "plan.json")
    assert ran.returncode == 0, ran.stderr
    (report,) = owner.json("report", "--json")
    scores: list[dict[str, Any]] = report["objective"]
    return scores


def must_not_dilute(owner: User, agents: list[ScriptedAgent]) -> None:
    loose = performed(owner, plan(agents, ratchet=False))
    assert loose[-1]["after"] == sum(one.gain - one.debt for one in agents)
    assert loose[-1]["after"] < sequential(agents)
    assert any(one["after"] < one["before"] for one in loose)
    assert all(one["is_verified"] for one in loose), "each reached its own goal"
    (credit,) = owner.json("report", "--credit", "--yes", "--json")
    words = {one["task"]: one["word"] for one in credit["tasks"]}
    assert {name for name, word in words.items() if word == "harmful"} == {
        one.name for one in agents if one.debt
    }
    kept = performed(owner, plan(agents, ratchet=True))
    assert [one["task"] for one in kept] == [one.name for one in agents]
    assert all(one["after"] >= one["before"] for one in kept), "the score never falls"
    assert kept[-1]["after"] >= sequential(agents)


SMALL = [ScriptedAgent("a", 5, 0, 1), ScriptedAgent("b", 3, 9, 2), ScriptedAgent("c", 4, 0, 1)]


def test_work_that_lowers_the_score_does_not_land_and_is_done_again_with_the_evidence(
    owner: User,
) -> None:
    must_not_dilute(owner, SMALL)
    why = owner.headway("why", "last", "b").stdout
    assert "bounced: the objective of the plan fell from 5 to -1 with it: parts and debts" in why
    shown = owner.headway("report").stdout
    assert "0 -> 11: no landing lowered it; 3 of 3 passed their own verify" in shown


def test_credit_asks_before_it_runs_the_objective_and_needs_one(owner: User) -> None:
    owner.write("plan.json", json.dumps({"headway": 1, "tasks": {"a": {"run": "echo 1"}}}))
    assert owner.headway("run", "-q", "plan.json").returncode == 0
    none = owner.headway("report", "--credit", "--yes")
    assert none.returncode == 2
    assert "nothing of" in none.stderr
    performed(owner, plan(SMALL[:1], ratchet=False))
    asked = owner.headway("report", "--credit")
    assert asked.returncode == 2
    assert "this runs the objective up to 4 times: `sh score.sh`" in asked.stderr


def test_an_objective_that_gives_no_number_is_said_to_have_none(owner: User) -> None:
    owner.write("score.sh", "echo fine")
    scores = performed(owner, plan(SMALL[:1], ratchet=True))
    assert scores == [{"task": "a", "before": None, "after": None, "is_verified": True}]
    assert "no score -> no score" in owner.headway("report").stdout


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2101, 2102, 2103, 2104, 2105])
def test_ten_agents_with_goals_of_their_own_do_not_lower_the_whole(owner: User, seed: int) -> None:
    must_not_dilute(owner, drawn(seed))


@pytest.mark.soak
@pytest.mark.parametrize("kill", [2, 4, 6])
def test_a_killed_ratchet_lands_what_one_that_is_not_killed_lands(owner: User, kill: int) -> None:
    agents = drawn(2106, 6)
    scores = performed(owner, plan(agents, ratchet=True))
    ledger = Path(owner.env["HOME"]) / "ledger"
    tasks = {
        one.name: {**one.task, "run": f"echo {one.name} >> {ledger}; {one.task['run']}"}
        for one in agents
    }
    again = json.loads(plan(agents, ratchet=True))
    owner.write("plan.json", json.dumps({**again, "tasks": tasks}))
    process = owner.start("run", "-q", "plan.json")

    def has_begun() -> bool:
        done = ledger.read_text().splitlines() if ledger.exists() else []
        return len(done) >= kill or process.poll() is not None

    until(has_begun)
    owner.close()
    process.kill()
    process.wait()
    until(lambda: not owner.processes())
    assert owner.headway("resume", "last", "-q").returncode == 0
    (report,) = owner.json("report", "--json")
    assert report["objective"] == scores
