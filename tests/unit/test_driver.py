"""The driver's laws: durable before known, isolated failures, ends that are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from headway.engine.events import (
    Event,
    GroupExpanded,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
)
from headway.errors import BadValueError
from headway.plans.graph import Graph, Need, TaskGroup
from headway.run.driver import Driver
from headway.testing import run_virtual
from headway.work import Attempt, Needed, Result
from tests.unit.driven import (
    Scene,
    ScriptedWork,
    SlowRecord,
    after,
    chain,
    echo,
    flat,
    passes,
    settle,
    spread,
)  # fmt: skip


def test_a_dependent_starts_only_when_what_it_needs_is_durable() -> None:
    first, second = ScriptedWork("first"), ScriptedWork("second")
    scene = Scene(chain(first, second), (first, second), record=SlowRecord(delay_s=None))

    async def meanwhile(driver: Driver) -> None:
        await settle()
        assert (first.performed, second.performed) == ([0], [])
        assert not scene.finished()
        scene.record.release()
        await settle()
        assert second.performed == [0]
        assert scene.finished() == [0]
        scene.record.release()

    assert scene.run(meanwhile).finished.finished == 2


def test_what_a_work_should_not_raise_is_a_failure_with_a_reason() -> None:
    async def act(attempt: Attempt) -> Result:
        if attempt.member == 1:
            raise ZeroDivisionError("one by nothing")
        return await echo(attempt)

    graph, work = flat(3, act=act)
    scene = Scene(graph, (work,), retries=3)
    assert scene.run().finished.failed == 1
    (failed,) = [event for event in scene.told if isinstance(event, TaskFailed)]
    assert failed.fault.kind == "request"
    assert "bug in headway: ZeroDivisionError: one by nothing" in failed.fault.detail


def test_a_work_that_cancels_itself_fails_and_does_not_hang_the_run() -> None:
    async def act(attempt: Attempt) -> Result:
        if attempt.member:
            raise asyncio.CancelledError
        return await echo(attempt)

    graph, work = flat(2, act=act)
    finished = Scene(graph, (work,)).run().finished
    assert (finished.finished, finished.failed) == (1, 1)


def test_an_attempt_that_takes_too_long_is_ended_and_tried_again() -> None:
    ended: list[float] = []

    async def act(attempt: Attempt) -> Result:
        if attempt.number == 2:
            return Result(b"quick")
        try:
            await passes(100)
        finally:
            ended.append(asyncio.get_running_loop().time())
        raise AssertionError

    graph, work = flat(1, act=act, timeout_s=7.0)
    scene = Scene(graph, (work,), retries=1)
    assert scene.run().finished.finished == 1
    assert ended == [7.0]
    (delayed,) = [event for event in scene.told if isinstance(event, TaskDelayed)]
    assert (delayed.fault.kind, delayed.fault.detail) == ("timeout", "it took more than 7.0 s")


def test_a_drained_run_ends_what_is_started_and_starts_nothing() -> None:
    graph, work = flat(10, act=after(5.0))
    scene = Scene(graph, (work,), "fixed:3")

    async def meanwhile(driver: Driver) -> None:
        await passes(1.0)
        driver.stop("interrupted", "enough")
        driver.stop("budget", "a later reason does not count")

    outcome = scene.run(meanwhile)
    assert (outcome.finished.finished, outcome.finished.left) == (3, 7)
    assert (outcome.cause, outcome.detail, outcome.finished.at_s) == ("interrupted", "enough", 5.0)


def test_a_run_that_is_stopped_now_cancels_and_waits_for_cleanup() -> None:
    cleaned: list[float] = []

    async def act(attempt: Attempt) -> Result:
        try:
            await passes(1000)
        finally:
            await passes(3.0)
            cleaned.append(asyncio.get_running_loop().time())
        return await echo(attempt)

    graph, work = flat(10, act=act)
    scene = Scene(graph, (work,), "fixed:3")

    async def meanwhile(driver: Driver) -> None:
        await passes(1.0)
        driver.stop("interrupted", "now", is_now=True)

    outcome = scene.run(meanwhile)
    assert (outcome.finished.finished, outcome.finished.left) == (0, 10)
    assert cleaned == [4.0] * 3
    assert set(scene.record.states().values()) == {"started"}


def test_a_stop_does_not_wait_for_calls_that_only_wait_for_their_permit() -> None:
    async def act(attempt: Attempt) -> Result:
        attempt.waits()
        if attempt.member:
            await passes(5 * 3600.0)
        attempt.goes()
        await passes(2.0)
        return await echo(attempt)

    graph, work = flat(3, act=act, is_idle_until_sent=True)
    scene = Scene(graph, (work,), "fixed:3")

    async def meanwhile(driver: Driver) -> None:
        await passes(1.0)
        driver.stop("interrupted", "by the user")

    outcome = scene.run(meanwhile)
    assert (outcome.finished.finished, outcome.finished.left) == (1, 2)
    assert outcome.finished.at_s - scene.starts_s()[0] < 10.0
    assert scene.record.states() == {
        "one[0]": "finished", "one[1]": "delayed", "one[2]": "delayed",
    }  # fmt: skip


def test_a_result_that_is_being_written_is_not_lost_by_a_stop() -> None:
    async def act(attempt: Attempt) -> Result:
        if attempt.member:
            await passes(1000)
        return Result(b"mine")

    graph, work = flat(2, act=act)
    scene = Scene(graph, (work,), record=SlowRecord(delay_s=None))

    async def meanwhile(driver: Driver) -> None:
        await settle()
        driver.stop("interrupted", "now", is_now=True)
        await settle()
        scene.record.release()

    finished = scene.run(meanwhile).finished
    assert (finished.finished, finished.left) == (1, 1)
    assert scene.record.states() == {"one[0]": "finished", "one[1]": "started"}


def test_a_result_that_comes_in_spite_of_a_stop_is_kept() -> None:
    async def act(attempt: Attempt) -> Result:
        try:
            await passes(1000)
        except asyncio.CancelledError:
            return Result(b"it was almost there")
        raise AssertionError

    graph, work = flat(1, act=act)
    scene = Scene(graph, (work,))

    async def meanwhile(driver: Driver) -> None:
        await passes(1.0)
        driver.stop("interrupted", "now", is_now=True)

    scene.run(meanwhile)
    assert scene.record.states() == {"one[0]": "finished"}
    assert list(scene.record.bodies.values()) == [b"it was almost there"]


def test_cancelling_a_run_from_outside_ends_its_attempts_first() -> None:
    cleaned: list[int] = []

    async def act(attempt: Attempt) -> Result:
        try:
            await passes(1000)
        finally:
            await passes(1)
            cleaned.append(attempt.member)
        return Result(b"")

    graph, work = flat(2, act=act)
    scene = Scene(graph, (work,))

    async def main() -> None:
        async with asyncio.timeout(5):
            await scene.driver().run()

    with pytest.raises(TimeoutError):
        run_virtual(main())
    assert cleaned == [0, 1]


@pytest.mark.parametrize("body", [b"a b c", b""])
def test_members_are_found_at_run_time_even_none(body: bytes) -> None:
    graph, works = spread(body)
    scene = Scene(graph, works)
    found = len(body.split())
    assert scene.run().finished.finished == 2 + 2 * found
    assert sorted(works[1].performed) == sorted(works[2].performed) == list(range(found))
    assert works[3].performed == [0]
    assert [e.count for e in scene.told if isinstance(e, GroupExpanded)] == [found, found]


def test_a_group_that_also_needs_an_empty_one_is_still_found() -> None:
    works = (
        ScriptedWork("quick", after(1.0, b"a b"), is_group=False),
        ScriptedWork("slow", after(5.0, b""), is_group=False),
        ScriptedWork("none", spread_over="slow"),
        ScriptedWork("word", spread_over="quick"),
    )
    graph = Graph(
        (
            TaskGroup("quick", 1),
            TaskGroup("slow", 1),
            TaskGroup("none", None, (Need(1),)),
            TaskGroup("word", None, (Need(0), Need(2))),
        )
    )
    scene = Scene(graph, works)
    assert scene.run().finished.finished == 4
    assert works[3].performed == [0, 1]


def test_a_result_that_nothing_can_be_spread_over_ends_the_run_with_an_error() -> None:
    graph, works = spread(b"a")

    def count(needed: Callable[[str], list[Needed]]) -> int:
        raise BadValueError("that is no list")

    class NoList(ScriptedWork):
        def count(self, needed: Callable[[str], list[Needed]]) -> int:
            return count(needed)

    scene = Scene(graph, (works[0], NoList("word"), *works[2:]))
    with pytest.raises(BadValueError, match="that is no list"):
        scene.run()
    assert scene.record.states() == {"list": "finished"}


def test_a_watcher_that_breaks_ends_the_run_and_loses_no_result() -> None:
    graph, work = flat(5, act=after(1.0))
    scene = Scene(graph, (work,), "fixed:2")

    def breaks(events: Sequence[Event]) -> None:
        if any(isinstance(event, TaskFinished) for event in events):
            raise BrokenPipeError("nobody reads")

    scene.setup = {"watch": breaks}
    with pytest.raises(BrokenPipeError):
        scene.run()
    assert list(scene.record.states().values()) == ["finished", "finished"]


def test_a_key_that_cannot_be_made_ends_the_run_with_an_error() -> None:
    class Nameless(ScriptedWork):
        def key(self, member: int) -> bytes:
            if member == 2:
                raise BadValueError("an item that nothing can name")
            return ScriptedWork.key(self, member)

    graph, _ = flat(4)
    with pytest.raises(BadValueError, match="nothing can name"):
        Scene(graph, (Nameless("one"),), "fixed:1").run()


def test_a_bug_behind_a_durable_result_ends_the_run_with_an_error() -> None:
    class Clumsy(ScriptedWork):
        def publish(self, member: int, body: bytes | None) -> None:
            raise ZeroDivisionError(f"{member} {body!r}")

    graph, _ = flat(4)
    with pytest.raises(ZeroDivisionError):
        Scene(graph, (Clumsy("one", publishes=True),), "fixed:2").run()


def test_results_that_become_durable_together_are_heard_of_together() -> None:
    graph, work = flat(4)
    scene = Scene(graph, (work,), record=SlowRecord(delay_s=None))
    heard: list[int] = []
    scene.setup = {"watch": lambda events: heard.append(
        sum(isinstance(event, TaskFinished) for event in events)
    )}  # fmt: skip

    async def meanwhile(driver: Driver) -> None:
        await settle()
        assert sum(heard) == 0
        scene.record.release()

    scene.run(meanwhile)
    assert [count for count in heard if count] == [4]
