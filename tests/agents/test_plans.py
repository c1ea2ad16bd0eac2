"""Plans performed by real agents: killed with -9 halfway, resumed, nothing committed done again."""

from __future__ import annotations

import pytest

from tests.agents.agents import is_installed
from tests.agents.planned import CALLS, Machine, machine

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]

TASKS = 10
AT_ONCE = 4
"""Each of those that run when headway is killed can lose the call that it waits for."""


def edited(where: Machine, members: int) -> bool:
    return all(
        (where.folder / f"{item}.txt").read_text() == "first\nlast\n"
        for item in range(1, members + 1)
    )


def said_of(err: str, words: str) -> list[str]:
    return [line for line in err.splitlines() if words in line]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_plan_of_ten_edits_goes_on_after_a_kill(agent: str) -> None:
    with machine(agent, TASKS) as where:
        where.killed_in_the_plan(TASKS * CALLS // 2 + 3)
        done, before = where.finished(), where.calls
        _, err = where.headway("resume")
        rows = where.results()
        assert {row["state"] for row in rows} == {"done"}
        assert edited(where, TASKS)
        tries = {row["task"]: row["attempts"] for row in rows}
        assert all(tries[task] == 1 for task in done), "a committed task was done again"
        twice = sum(row["agent"]["calls_again"] for row in rows)
        report = f"{agent}: {len(done)} done before, {where.calls} calls, {twice} paid twice\n{err}"
        assert where.calls - TASKS * CALLS <= twice <= before - len(done) * CALLS, report
        assert f"calls paid twice: {twice} of " in err, report
        assert twice <= AT_ONCE, report
        gone_on = [row for row in rows if row["agent"]["how"] == "session"]
        assert gone_on, report
        for row in gone_on:
            assert said_of(err, f"{row['task']} goes on in its own session ({agent}"), report
            assert said_of(err, f"{row['task']} went on in its own session ({agent})"), report
        for row in rows:
            usd, metered = row["usd"], row["agent"]["metered"]["usd"]
            # What was in flight at the kill counts at its ceiling.
            assert usd >= metered > 0 if row["attempts"] > 1 else usd == metered > 0
        print(report)


@pytest.mark.parametrize("agent", ["opencode", "gemini"])
def test_a_task_goes_on_after_a_kill_in_its_own_session(agent: str) -> None:
    with machine(agent, 1) as where:
        where.killed_in_the_plan(3)
        _, err = where.headway("resume")
        assert said_of(err, "edit[1] goes on in its own session")
        assert said_of(err, "edit[1] went on in its own session")
        assert said_of(err, "calls paid twice: ")
        (row,) = where.results()
        assert (row["state"], row["agent"]["how"]) == ("done", "session")
        assert edited(where, 1)
        assert row["agent"]["metered"]["input_tokens"] >= row["agent"]["told"]["input_tokens"]
