"""What a run takes over from an earlier process, and what it owes: results, replies, money."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headway.base.values import Fault
from headway.engine.budget import RUN, RunBudget
from headway.engine.record import JournalEntry, MoneyReserved, ReplyKept, TaskState
from headway.plans.spec import PlanBudget
from headway.run.driver import Driver
from headway.run.takeover import Saved
from headway.work import Attempt, AttemptError, Result
from tests.unit.driven import (
    Scene,
    ScriptedWork,
    SlowRecord,
    after,
    chain,
    fails,
    flat,
    passes,
    settle,
)  # fmt: skip


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


def test_a_failed_task_is_tried_again_by_a_resume_and_then_what_needs_it() -> None:
    works = ScriptedWork("first", fails(1)), ScriptedWork("second")
    graph = chain(*works, count=3)
    before = Scene(graph, works)
    before.run()
    assert before.record.states()["second[1]"] == "skipped"
    again = ScriptedWork("first"), ScriptedWork("second")
    scene = Scene(graph, again, setup={"saved": before.record.saved()})
    assert scene.run().finished.finished == 6
    assert again[0].performed == again[1].performed == [1]


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
        for body in entry.bodies:
            event: Any = entry.event
            name = event.body if isinstance(event, ReplyKept) else event.ending.body
            self.bodies[name] = body


def _bare(entry: JournalEntry) -> JournalEntry:
    return JournalEntry(entry.event, entry.key, entry.row)


def test_money_is_set_aside_durably_before_it_is_spent_and_comes_back() -> None:
    active = peak = 0

    async def act(attempt: Attempt) -> Result:
        nonlocal active, peak
        await attempt.reserve(400)
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

    graph, work = flat(5, act=act)
    purse = RunBudget(PlanBudget(microusd=1000))
    scene = Scene(graph, (work,), record=SlowRecord(delay_s=0.5), setup={"purse": purse})
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.cause, peak) == (5, "", 2)
    assert purse.pots[RUN].spent.microusd == 500


def test_a_budget_that_is_reached_drains_the_run_and_says_so() -> None:
    async def act(attempt: Attempt) -> Result:
        await attempt.reserve(400)
        await passes(1.0)
        return Result(b"", spend_microusd=400)

    graph, work = flat(5, act=act)
    purse = RunBudget(PlanBudget(microusd=1000))
    scene = Scene(graph, (work,), setup={"purse": purse})
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.finished.left, outcome.cause) == (2, 3, "budget")
    assert purse.pots[RUN].spent.microusd == 800


def test_a_call_that_was_sent_and_timed_out_costs_all_that_was_set_aside() -> None:
    async def act(attempt: Attempt) -> Result:
        await attempt.reserve(400)
        if attempt.member:
            attempt.goes()
        await passes(1000)
        raise AssertionError

    graph, work = flat(2, act=act, timeout_s=5.0)
    purse = RunBudget(PlanBudget(microusd=1000))
    scene = Scene(graph, (work,), setup={"purse": purse})
    scene.run()
    assert purse.pots[RUN].spent.microusd == 400
    spent = {row.name: row.spent_microusd for row in scene.record.rows.values()}
    assert spent == {"one[0]": 0, "one[1]": 400}
