"""`headway.Plan`: functions that need each other, run again, resumed, watched."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import headway
from headway.engine.events import RunFinished, TaskFinished, TaskStarted
from headway.errors import BadValueError, DuplicateTaskError, TasksFailedError, UsageError
from headway.testing import run_virtual
from tests.unit.driven import passes


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path / "state"))


def three_stages(names: list[str]) -> headway.Plan:
    plan = headway.Plan("records")
    parsed = plan.task("parse", str.upper, each=names)
    checked = plan.task("check", lambda name: name + "!", each=parsed)
    plan.task("report", " ".join, needs=checked)
    return plan


def test_stages_have_no_barrier_between_them() -> None:
    plan = headway.Plan("pipeline")

    async def slow(n: int) -> int:
        await passes(n)
        return n

    first = plan.task("first", slow, each=[1, 100])
    plan.task("second", slow, each=first)
    run = run_virtual(plan.run_async(strategy="all-at-once"))
    times = {
        (type(event), event.task): event.at_s
        for event in run.events()
        if isinstance(event, TaskStarted | TaskFinished)
    }
    began_s = times[TaskStarted, 0]
    assert times[TaskStarted, 2] - began_s < times[TaskFinished, 1] - began_s


def test_a_task_spreads_over_the_list_that_another_gives() -> None:
    plan = headway.Plan("spread")
    listed = plan.task("list", lambda: ["x", "y", "z"])
    upper = plan.task("upper", str.upper, each=listed)
    twice = plan.task("twice", lambda text: text * 2, each=upper)
    plan.task("all", list, needs=twice)
    run = plan.run()
    assert run.results == {
        "list": ["x", "y", "z"], "upper": ["X", "Y", "Z"], "twice": ["XX", "YY", "ZZ"],
        "all": ["XX", "YY", "ZZ"],
    }  # fmt: skip


def test_a_task_that_gives_no_list_cannot_be_spread_over() -> None:
    plan = headway.Plan("spread")
    plan.task("upper", str.upper, each=plan.task("list", lambda: 7))
    with pytest.raises(BadValueError, match="which gave no list"):
        plan.run()


def fails_at(bad: str, name: str) -> str:
    if name == bad:
        raise ValueError(f"{name} is bad")
    return name


def test_a_failure_is_told_with_the_results_of_the_others() -> None:
    plan = headway.Plan("records")
    first = plan.task("first", lambda name: fails_at("b", name), each=["a", "b", "c"])
    plan.task("second", str.upper, each=first)
    with pytest.raises(TasksFailedError) as failed:
        plan.run()
    assert failed.value.results == {"first": ["a", None, "c"], "second": ["A", None, "C"]}
    run = plan.run(return_exceptions=True)
    assert list(run.errors) == ["first[1]"]


def test_a_run_in_the_background_tells_its_events_to_several_listeners() -> None:
    goes = threading.Event()
    plan = headway.Plan("watched")
    plan.task("wait", lambda _: goes.wait(20), each=[1, 2])
    run = plan.start()
    seen: list[list[str]] = [[], []]

    def listen(whom: int) -> None:
        seen[whom] += [type(event).__name__ for event in run.events()]

    listeners = [threading.Thread(target=listen, args=(whom,)) for whom in range(2)]
    for listener in listeners:
        listener.start()
    goes.set()
    for listener in listeners:
        listener.join(20)
    assert seen[0] == seen[1] != []
    assert seen[0][-1] == RunFinished.__name__
    assert run.wait().results == {"wait": [True, True]}


def test_what_is_wrong_in_the_background_is_raised_by_wait() -> None:
    plan = headway.Plan("wrong")
    plan.task("one", str, each=[1])
    run = plan.start(strategy="sideways")
    with pytest.raises(BadValueError, match="not a strategy"):
        run.wait()
    assert list(run.events()) == []


def test_a_durable_plan_calls_nothing_again() -> None:
    calls: list[str] = []

    def note(name: str) -> str:
        calls.append(name)
        return name

    def plan(names: list[str]) -> headway.Plan:
        plan = headway.Plan("kept")
        plan.task("all", "".join, needs=plan.task("note", note, each=names))
        return plan

    assert plan(["a", "b"]).run(durable="kept").results["all"] == "ab"
    assert plan(["a", "b"]).run(durable="kept").results == {"note": ["a", "b"], "all": "ab"}
    assert sorted(calls) == ["a", "b"]
    assert plan(["a", "c"]).run(durable="kept").results["all"] == "ac"
    assert sorted(calls) == ["a", "b", "c"]


def test_names_are_given_once_and_handles_belong_to_their_plan() -> None:
    plan = headway.Plan("one")
    handle = plan.task("a", str, each=[1])
    with pytest.raises(DuplicateTaskError):
        plan.task("a", str)
    with pytest.raises(BadValueError, match="not a task of this plan"):
        headway.Plan("other").task("b", str, each=handle)


def test_the_synchronous_door_of_a_plan_is_closed_inside_a_loop() -> None:
    async def main() -> None:
        with pytest.raises(UsageError) as refused:
            three_stages(["a"]).run()
        assert refused.value.hint == "write `await plan.run_async(...)`"

    asyncio.run(main())
