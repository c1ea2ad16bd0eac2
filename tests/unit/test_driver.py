"""The driver's laws: durable before known, isolated failures, resumes, budgets, usage windows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from headway.base.values import DAY_S, Budget, Fault, Spend
from headway.engine.events import (
    Event,
    GroupExpanded,
    RunHeld,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
)
from headway.engine.record import JournalEntry, MoneyReserved, ReplyKept, TaskState
from headway.errors import BadValueError
from headway.pacing.budget import ALL, Budgets
from headway.plans.graph import Graph, Need, TaskGroup
from headway.run.driver import Driver
from headway.run.results import Saved
from headway.testing import run_virtual
from headway.work import Attempt, AttemptError, Needed, Result, WindowEmptyError
from tests.unit.driven import (
    Scene,
    ScriptedWork,
    SlowRecord,
    after,
    alone,
    chain,
    echo,
    fails,
    flat,
    passes,
    settle,
    spread,
    stopped,
)


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

    scene = alone(3, retries=3, act=act)
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

    scene = alone(1, retries=1, act=act, timeout_s=7.0)
    assert scene.run().finished.finished == 1
    assert ended == [7.0]
    (delayed,) = [event for event in scene.told if isinstance(event, TaskDelayed)]
    assert (delayed.fault.kind, delayed.fault.detail) == ("timeout", "it took more than 7.0 s")


def test_a_run_that_is_stopped_now_cancels_and_waits_for_cleanup() -> None:
    cleaned: list[float] = []

    async def act(attempt: Attempt) -> Result:
        try:
            await passes(1000)
        finally:
            await passes(3.0)
            cleaned.append(asyncio.get_running_loop().time())
        return await echo(attempt)

    scene = alone(10, "fixed:3", act=act)

    outcome = scene.run(stopped("now", is_now=True))
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

    scene = alone(3, "fixed:3", act=act, is_idle_until_sent=True)

    outcome = scene.run(stopped("by the user"))
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

    scene = alone(2, record=SlowRecord(delay_s=None), act=act)

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

    scene = alone(1, act=act)

    scene.run(stopped("now", is_now=True))
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

    scene = alone(2, act=act)

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
    scene = alone(5, "fixed:2", act=after(1.0))

    def breaks(events: Sequence[Event]) -> None:
        if any(isinstance(event, TaskFinished) for event in events):
            raise BrokenPipeError("nobody reads")

    scene.setup = {"watch": breaks}
    with pytest.raises(BrokenPipeError):
        scene.run()
    assert list(scene.record.states().values()) == ["finished", "finished"]


def test_a_bug_behind_a_durable_result_ends_the_run_with_an_error() -> None:
    class Clumsy(ScriptedWork):
        def publish(self, member: int, body: bytes | None) -> None:
            raise ZeroDivisionError(f"{member} {body!r}")

    graph, _ = flat(4)
    with pytest.raises(ZeroDivisionError):
        Scene(graph, (Clumsy("one", publishes=True),), "fixed:2").run()


def test_results_that_become_durable_together_are_heard_of_together() -> None:
    scene = alone(4, record=SlowRecord(delay_s=None))
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


def edited(version: str, first_says: bytes) -> tuple[Scene, tuple[ScriptedWork, ...]]:
    """Run a chain of two over three members; then again with the first one edited."""
    works = ScriptedWork("first", after(1.0, b"one")), ScriptedWork("second")
    graph = chain(*works, count=3)
    before = Scene(graph, works)
    before.run()
    again = (
        ScriptedWork("first", after(1.0, first_says), version=version),
        ScriptedWork("second"),
    )
    scene = Scene(graph, again, setup={"saved": before.record.saved()})
    assert scene.run().finished.finished == 6
    return scene, again


def test_an_edit_runs_what_changed_and_what_depends_on_a_changed_result() -> None:
    _, (first, second) = edited("2", b"another")
    assert sorted(first.performed) == sorted(second.performed) == [0, 1, 2]


def test_an_edit_that_changes_no_result_stops_there() -> None:
    scene, (first, second) = edited("2", b"one")
    assert (sorted(first.performed), second.performed) == ([0, 1, 2], [])
    assert sorted(scene.reused()) == [3, 4, 5]


def test_a_result_survives_that_its_task_was_passed_over_in_between() -> None:
    works = ScriptedWork("first"), ScriptedWork("second")
    graph = chain(*works)
    before = Scene(graph, works)
    before.run()
    fails_now = ScriptedWork("first", fails(0), version="2"), ScriptedWork("second")
    between = Scene(graph, fails_now, setup={"saved": before.record.saved()})
    between.record.rows.update(before.record.rows)
    between.record.bodies.update(before.record.bodies)
    between.run()
    assert between.record.states()["second[0]"] == "skipped"
    again = ScriptedWork("first", version="3"), ScriptedWork("second")
    scene = Scene(graph, again, setup={"saved": between.record.saved()})
    assert scene.run().finished.finished == 2
    assert (again[0].performed, again[1].performed) == ([0], [])


def test_a_result_is_shown_once_it_is_durable_and_again_after_a_crash() -> None:
    graph, work = flat(2, publishes=True)
    scene = Scene(graph, (work,), record=SlowRecord(delay_s=None))

    async def meanwhile(driver: Driver) -> None:
        await settle()
        assert not work.published
        scene.record.release()

    scene.run(meanwhile)
    assert work.published == [(0, b"one[0]"), (1, b"one[1]")]
    _, again = flat(2, publishes=True)
    Scene(graph, (again,), setup={"saved": scene.record.saved()}).run()
    assert again.published == work.published
    assert again.performed == []


def test_a_result_that_was_not_kept_is_made_again_if_something_needs_it() -> None:
    works = ScriptedWork("first"), ScriptedWork("second", fails(1))
    graph = chain(*works, count=3)
    before = Scene(graph, works)
    before.run()
    given: list[bytes] = []

    async def act(attempt: Attempt) -> Result:
        given.append(attempt.needed("first")[0].body)
        return Result(b"")

    again = ScriptedWork("first"), ScriptedWork("second", act)
    saved = Saved(dict(before.record.rows), lambda _: None, keeps_bodies=False)
    scene = Scene(graph, again, setup={"saved": saved})
    assert scene.run().finished.finished == 6
    assert (again[1].performed, given) == ([1], [b"first[1]"])


@pytest.mark.parametrize("state", ["finished", "proposed", "started"])
def test_whatever_may_be_taken_again_is_recalled(state: TaskState) -> None:
    """A result that was waiting to be committed when the process died is one, too."""
    graph, work = flat(2)
    scene = Scene(graph, (work,))
    scene.run()
    saved = Saved(
        {key: replace(row, state=state) for key, row in scene.record.rows.items()},
        scene.record.bodies.get,
    )
    assert all(saved.result_of(work.key(member), b"") for member in range(2))
    recalled = {one.member: one.body for one in saved.recall(work, range(2))}
    assert recalled == {0: b"one[0]", 1: b"one[1]"}


def test_a_kept_reply_is_durable_at_once_and_given_to_the_next_attempt() -> None:
    async def act(attempt: Attempt) -> Result:
        if not attempt.kept:
            await attempt.keep(b"a reply")
            assert any(isinstance(entry.event, ReplyKept) for entry in scene.record.durable)
            raise AttemptError(Fault("server"))
        return Result(b"with " + attempt.kept[0])

    graph, work = flat(1, act=act)
    record = KeepingRecord(delay_s=2.0)
    scene = Scene(graph, (work,), retries=1, record=record, setup={"saved": record.live()})
    assert scene.run().finished.finished == 1
    assert b"with a reply" in record.bodies.values()


class KeepingRecord(SlowRecord):
    """Also gives bodies back while the run goes on."""

    def write(self, entries: Any, then: Any = None) -> None:
        for entry in entries:
            self._take(entry)
        SlowRecord.write(self, [_bare(entry) for entry in entries], then)

    def live(self) -> Any:
        return Saved({}, self.bodies.get)

    def _take(self, entry: JournalEntry) -> None:
        self.bodies |= dict(entry.bodies)


def _bare(entry: JournalEntry) -> JournalEntry:
    return JournalEntry(entry.event, entry.key, entry.row)


def test_money_is_set_aside_durably_before_it_is_spent_and_comes_back() -> None:
    active = peak = 0

    async def act(attempt: Attempt) -> Result:
        nonlocal active, peak
        await attempt.reserve(Spend(0, 400))
        assert any(
            isinstance(entry.event, MoneyReserved) and entry.event.task == attempt.task
            for entry in scene.record.durable
        )
        attempt.goes()
        active += 1
        peak = max(peak, active)
        await passes(1.0)
        active -= 1
        return Result(b"", spend_microusd=100)

    purse: Budgets[int] = Budgets({ALL: Budget(microusd=1000)})
    scene = alone(5, record=SlowRecord(delay_s=0.5), setup={"budgets": purse}, act=act)
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.cause, peak) == (5, "", 2)
    assert purse.pots[ALL].spent.microusd == 500


def test_a_budget_that_is_reached_drains_the_run_and_says_so() -> None:
    async def act(attempt: Attempt) -> Result:
        await attempt.reserve(Spend(0, 400))
        await passes(1.0)
        return Result(b"", spend_microusd=400)

    purse: Budgets[int] = Budgets({ALL: Budget(microusd=1000)})
    scene = alone(5, setup={"budgets": purse}, act=act)
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.finished.left, outcome.cause) == (2, 3, "budget")
    assert purse.pots[ALL].spent.microusd == 800


def test_a_call_that_was_sent_and_timed_out_costs_all_that_was_set_aside() -> None:
    async def act(attempt: Attempt) -> Result:
        await attempt.reserve(Spend(0, 400))
        if attempt.member:
            attempt.goes()
        await passes(1000)
        raise AssertionError

    purse: Budgets[int] = Budgets({ALL: Budget(microusd=1000)})
    scene = alone(2, setup={"budgets": purse}, act=act, timeout_s=5.0)
    scene.run()
    assert purse.pots[ALL].spent.microusd == 400
    spent = {row.name: row.spent_microusd for row in scene.record.rows.values()}
    assert spent == {"one[0]": 0, "one[1]": 400}


def test_calls_of_one_attempt_share_what_is_set_aside_for_it() -> None:
    async def act(attempt: Attempt) -> Result:
        if attempt.member:
            await attempt.reserve(Spend(0, 600))
            await passes(1.0)
            return Result(b"", spend_microusd=100)
        first = asyncio.ensure_future(attempt.reserve(Spend(0, 500)))
        second = asyncio.ensure_future(attempt.reserve(Spend(0, 100)))
        await passes(0.5)
        # One that no longer waits leaves room for the other.
        first.cancel()
        await second
        attempt.spare(Spend(0, 60))
        await attempt.reserve(Spend(0, 50))
        return Result(b"", spend_microusd=90)

    purse: Budgets[int] = Budgets({ALL: Budget(microusd=1000)})
    scene = alone(2, setup={"budgets": purse}, act=act)
    assert scene.run().finished.finished == 2
    events = [entry.event for entry in scene.record.durable]
    kept = [one.microusd for one in events if isinstance(one, MoneyReserved) and not one.task]
    assert (kept, purse.pots[ALL].spent) == ([100], Spend(0, 190))


FIVE_HOURS_S = 5 * 3600.0
CALL_S = 30.0


class Account:
    """Answers so many calls in every five hours, and says when there is more."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.used = 0
        self.resets_at_s = FIVE_HOURS_S
        self.known_s = inf
        """Since when a caller knows that it is empty."""
        self.asked_in_vain: list[float] = []

    async def ask(self, attempt: Attempt) -> Result:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self.resets_at_s:
            self.resets_at_s += FIVE_HOURS_S
            self.used, self.known_s = 0, inf
        attempt.waits()
        if self.used >= self.calls:
            self.asked_in_vain.append(now_s)
            await passes(2.0)  # As long as a call stands in line before it is told why.
            self.known_s = min(self.known_s, now_s + 2.0)
            raise WindowEmptyError(self.resets_at_s, "the 5 h window is used up")
        self.used += 1
        attempt.goes()
        await passes(CALL_S)
        return Result(attempt.name.encode())


def must_start_nothing_while_empty(scene: Scene, resets_at_s: float, known_s: float) -> None:
    starts = list(scene.starts_s().values())
    assert not [at_s for at_s in starts if known_s < at_s < resets_at_s]


def test_a_run_waits_five_hours_and_goes_on_within_ten_seconds() -> None:
    account = Account(100)
    scene = alone(150, "adaptive", act=account.ask)

    async def meanwhile(driver: Driver) -> None:
        await passes(FIVE_HOURS_S - 1.0)
        assert account.known_s < FIVE_HOURS_S / 2
        assert not driver.state.active
        must_start_nothing_while_empty(scene, FIVE_HOURS_S, account.known_s)

    outcome = scene.run(meanwhile)
    assert (outcome.finished.finished, outcome.cause) == (150, "")
    woke_s = min(s for s in scene.starts_s().values() if s >= FIVE_HOURS_S)
    assert FIVE_HOURS_S <= woke_s <= FIVE_HOURS_S + 10.0
    assert outcome.finished.failed == 0


def test_a_task_that_was_put_back_loses_no_attempt() -> None:
    account = Account(1)
    scene = alone(4, "all-at-once", retries=0, act=account.ask)
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.finished.failed) == (4, 0)
    assert outcome.finished.at_s < 4 * FIVE_HOURS_S
    assert len([event for event in scene.told if isinstance(event, RunHeld)]) == 3


def test_an_attempt_that_met_a_full_disk_is_no_try() -> None:
    full = ["the disk is full"] * 3

    async def act(attempt: Attempt) -> Result:
        if full:
            raise AttemptError(Fault("command", detail="exit code 1"))
        return Result(attempt.name.encode())

    graph, work = flat(1, act=act)
    setup = {"full_disk": lambda: full.pop() if full else ""}
    scene = Scene(graph, (work,), "fixed:1", retries=0, setup=setup)
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.finished.failed) == (1, 0)
    faults = [event.fault for event in scene.told if isinstance(event, TaskDelayed)]
    assert faults == [Fault("disk", detail="the disk is full; exit code 1")] * 3


@pytest.mark.parametrize(("until_s", "reset_s"), [(-inf, FIVE_HOURS_S), (None, 3 * DAY_S)])
def test_a_run_that_may_not_wait_ends_with_the_time_of_the_reset(
    until_s: float | None, reset_s: float
) -> None:
    account = Account(10)
    account.resets_at_s = reset_s
    outcome = alone(50, "fixed:4", setup={"waits_until_s": until_s}, act=account.ask).run()
    assert (outcome.cause, outcome.until_s) == ("window", reset_s)
    assert outcome.detail == "the 5 h window is used up"
    assert (outcome.finished.finished, outcome.finished.left) == (10, 40)


def test_a_window_that_is_told_before_anybody_meets_it_holds_the_run_at_once() -> None:
    account = Account(10)
    scene = alone(12, "fixed:1", act=account.ask)

    async def meanwhile(driver: Driver) -> None:
        await passes(10 * CALL_S - 1.0)
        driver.window_empty(FIVE_HOURS_S, "the last answer said that it is used up")

    assert scene.run(meanwhile).finished.finished == 12
    assert account.asked_in_vain == []
