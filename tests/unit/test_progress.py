"""A run while it goes on: counts, what is running, and never a time without its bound."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headway.base.values import Fault, Limit
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    Event,
    GroupExpanded,
    RunBegan,
    RunHeld,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskSkipped,
    TaskStale,
    TaskStarted,
    WaveBegan,
)
from headway.pacing.view import LimitView
from headway.report.progress import RunProgress, TaskNames

ENDING = Ending(b"", b"", 1000.0, 200.0, 5000, 1)


def progress(*counts: int | None) -> RunProgress:
    """Groups of these sizes; the tasks of the first come first, the others have ten each."""
    names = tuple(f"group {index}" for index in range(len(counts)))
    first = counts[0] or 0

    def group_of(task: int) -> int:
        return 0 if task < first else 1 + (task - first) // 10

    return RunProgress(TaskNames("a run", names, counts, group_of, "task {}".format))


def perform(run: RunProgress, task: int, from_s: float, to_s: float) -> None:
    run.hear([TaskStarted(task, 1, from_s, "room"), CallAdmitted(task, from_s)])
    run.hear([TaskFinished(task, 1, to_s, ENDING)])


def test_every_task_is_counted_in_its_group() -> None:
    run = progress(2, 3)
    perform(run, 0, 0.0, 1.0)
    run.hear([TaskStarted(1, 1, 1.0, "room"), TaskFailed(1, 1, 2.0, Fault("request"), ENDING)])
    run.hear([TaskSkipped(2, 2.0, 1), TaskStarted(3, 1, 2.0, "room")])
    first, second = run.groups
    assert (first.finished, first.failed, first.active, first.ended) == (1, 1, 0, 2)
    assert (second.skipped, second.active, second.ended) == (1, 1, 1)
    now = run.statistics()
    assert (now.total, now.finished, now.failed, now.skipped, now.running) == (5, 1, 1, 1, 1)
    assert (now.input_tokens, now.output_tokens, now.spent_microusd) == (2000.0, 400.0, 10_000)
    assert now.paid_twice_microusd == 5000


def test_a_task_waits_until_it_has_its_permit() -> None:
    run = progress(2)
    run.hear([TaskStarted(0, 1, 0.0, "room")])
    assert run.statistics().waiting == 1
    run.hear([CallAdmitted(0, 1.0), CallAdmitted(0, 1.5)])
    assert run.statistics().waiting == 0
    run.hear([CallWaited(0, 2.0), CallWaited(0, 2.5)])
    assert run.statistics().waiting == 1
    run.hear([TaskFinished(0, 1, 3.0), CallAdmitted(0, 4.0)])
    assert run.statistics().waiting == 0
    assert run.running == {}


def test_a_delayed_task_is_neither_running_nor_over() -> None:
    run = progress(1)
    run.hear([TaskStarted(0, 1, 0.0, "room")])
    run.hear([TaskDelayed(0, 1, 1.0, 2.0, Fault("rate"), ENDING)])
    now = run.statistics()
    assert (now.delayed, now.retries, now.refused, now.running) == (1, 1, 1, 0)
    run.hear([TaskStarted(0, 2, 2.0, "again"), TaskDelayed(0, 2, 3.0, 4.0, Fault("server"))])
    now = run.statistics()
    assert (now.delayed, now.retries, now.refused) == (1, 2, 1)
    run.hear([TaskStarted(0, 3, 4.0, "again")])
    assert run.statistics().delayed == 0


def test_what_was_finished_before_is_not_performed_again() -> None:
    run = progress(3)
    run.restored([2])
    run.hear([TaskStarted(2, 1, 0.0, "room"), TaskReused(2, 0.0)])
    now = run.statistics()
    assert (now.finished, now.reused, now.spent_microusd) == (3, 3, 0)


def test_a_group_becomes_known_while_the_run_goes_on() -> None:
    run = progress(1, None)
    assert not run.statistics().is_total_known
    run.hear([RunBegan(0.0, "waves:4"), GroupExpanded(1, 7, 1.0), WaveBegan(1, 2, 1.0)])
    now = run.statistics()
    assert (now.total, now.is_total_known) == (8, True)
    assert (run.standing.wave, run.standing.waves, run.first_s) == (1, 2, 0.0)
    run.hear([RunHeld(2.0, inf, "paused by the user")])
    assert run.standing.held_until_s == inf


def test_no_time_to_the_end_without_the_bound_beside_it() -> None:
    run = progress(10)
    for task in range(4):
        perform(run, task, float(task), task + 1.0)
    unknown = run.rest((), 4.0)
    assert unknown.eta_s == pytest.approx(6.0)
    assert unknown.bound_s is None
    minute = Limit("input", 3000.0, 60.0)
    slots = Limit("concurrency", 2.0, 0.0, "gauge")
    spend = Limit("spend", 1.0, 60.0)
    known = run.rest([LimitView(minute, 1000.0), LimitView(slots, 1.0), LimitView(spend, 0.0)], 4.0)
    # Six more tasks of 1,000 tokens: 2,000 are free, the others come with 50 a second.
    assert known.bound_s == pytest.approx(80.0)
    assert known.binding == "input/60s"
    calm = run.rest([LimitView(Limit("requests", 6000.0), 0.0), LimitView(slots, 0.0)], 4.0)
    assert calm.bound_s == pytest.approx(3.0)
    assert calm.binding == "concurrency"


def test_tasks_that_make_no_calls_are_not_bound_by_a_quota() -> None:
    run = progress(10)
    for task in range(4):
        run.hear([TaskStarted(task, 1, float(task), "room")])
        run.hear([TaskFinished(task, 1, task + 1.0)])
    rest = run.rest([LimitView(Limit("requests", 10.0), 0.0)], 4.0)
    assert (rest.bound_s, rest.binding) == (None, "")
    assert rest.eta_s is not None


def burst(run: RunProgress, count: int, foreseen_s: float | None = None) -> RunProgress:
    """So many calls that were let go at once and took a second each, a hundred a second."""
    run.cast = replace(run.cast, foreseen_s=foreseen_s)
    for task in range(count):
        perform(run, task, task / 100.0, 1.0 + task / 100.0)
    return run


def test_a_burst_says_nothing_of_what_comes_after_it() -> None:
    """60 of 240 went at once and 60 a minute follow: by the speed of the burst it were 2 s."""
    run = burst(progress(240), 60)
    now_s = 1.6
    limit = Limit("requests", 60.0)
    rest = run.rest([LimitView(limit, 60.0)], now_s)
    assert rest.per_s is not None
    assert 180 / rest.per_s < 5.0
    # 180 calls at one a second; the last of them takes a second more.
    assert rest.bound_s == pytest.approx(180.0)
    assert rest.eta_s == pytest.approx(181.0)
    assert rest.binding == "requests/60s"


def test_calls_in_service_have_taken_their_requests_and_inputs() -> None:
    limit, inputs = Limit("requests", 60.0), Limit("input", 60_000.0)
    outputs, both = Limit("output", 12_000.0), Limit("tokens", 72_000.0)
    run = burst(progress(70), 60)
    every = [LimitView(one, one.amount) for one in (limit, inputs, outputs, both)]
    assert [run.rest([one], 1.6).fair_s for one in every] == pytest.approx([10.0] * 4)
    for task in range(60, 64):
        run.hear([TaskStarted(task, 1, 1.6, "room"), CallAdmitted(task, 1.6)])
    run.hear([TaskStarted(64, 1, 1.6, "room")])
    # Four of ten are in service: their answers are still to come.
    found = [run.rest([one], 1.6).fair_s for one in every]
    assert found == pytest.approx([6.0, 6.0, 10.0, 8000.0 / 1200.0])
    # All of it may be owed, where output counts as it is produced; not where it is reserved.
    found = [run.rest([one], 1.6).bound_s for one in every]
    assert found == pytest.approx([6.0, 6.0, 0.0, 6000.0 / 1200.0])
    assert run.rest([replace(every[2], holds=300.0)], 1.6).bound_s == pytest.approx(10.0)
    # A neighbour keeps what it takes, up to a half.
    shared = [replace(every[0], neighbours_per_s=rate) for rate in (0.25, 0.9)]
    assert [run.rest([one], 1.6).fair_s for one in shared] == pytest.approx([8.0, 12.0])
    assert [run.rest([one], 1.6).bound_s for one in shared] == pytest.approx([6.0, 6.0])


def test_early_on_what_was_foreseen_counts_and_late_what_was_seen() -> None:
    limit = [LimitView(Limit("requests", 60.0), 60.0)]
    # 60 of 240 have ended: what is seen weighs as much.
    rest = burst(progress(240), 60, foreseen_s=401.6).rest(limit, 1.6)
    assert rest.eta_s == pytest.approx(0.25 * 181.0 + 0.75 * 400.0)
    late = burst(progress(75), 60, foreseen_s=101.6).rest(limit, 1.6)
    assert late.eta_s == pytest.approx(0.8 * 16.0 + 0.2 * 100.0)
    # A run that takes longer than foreseen is not over before now.
    over = burst(progress(240), 60, foreseen_s=1.0).rest(limit, 1.6)
    assert over.eta_s == pytest.approx(0.25 * 181.0)


def test_those_that_go_on_still_take_their_time() -> None:
    """Five took 1, 2, 3, 4 and 10 s; the last two began 3 s ago: one of them may take 10."""
    run = progress(7)
    for task, took_s in enumerate((1.0, 2.0, 3.0, 4.0, 10.0)):
        perform(run, task, 10.0 - took_s, 10.0)
    run.hear([TaskStarted(5, 1, 12.0, "room"), CallAdmitted(5, 12.0), CallWaited(5, 13.0)])
    run.hear([CallAdmitted(5, 14.0), TaskStarted(6, 1, 12.0, "room"), CallAdmitted(6, 12.0)])
    assert run.rest((), 15.0).eta_s == pytest.approx(7.0)


def test_a_result_that_waits_is_no_end_and_is_paid_for_once() -> None:
    run = progress(3)
    run.hear([TaskStarted(0, 1, 0.0, "room"), TaskProposed(0, 1, 2.0, ENDING)])
    now = run.statistics()
    assert (now.proposed, now.finished, now.running, now.spent_microusd) == (1, 0, 0, 5000)
    assert run.groups[0].active == 0
    run.hear([TaskFinished(0, 1, 9.0, ENDING)])
    now = run.statistics()
    assert (now.proposed, now.finished, now.spent_microusd) == (0, 1, 5000)
    assert (now.stale, now.paid_twice_microusd) == (0, 0)


def test_what_was_for_nothing_is_counted_with_its_time_and_money() -> None:
    run = progress(3)
    run.hear([TaskStarted(0, 1, 0.0, "room"), TaskProposed(0, 1, 2.0, ENDING)])
    run.hear([TaskStale(0, 1, 7.0, "total", 1, ENDING)])
    run.hear([TaskStarted(1, 1, 7.0, "room"), TaskStale(1, 1, 10.0, "total", 1, ENDING)])
    now = run.statistics()
    assert (now.stale, now.stale_s, now.stale_microusd) == (2, 5.0, 10_000)
    assert (now.proposed, now.running, now.failed) == (0, 0, 0)
    assert (now.spent_microusd, now.paid_twice_microusd) == (10_000, 10_000)
    run.hear([TaskStarted(2, 1, 7.0, "room"), TaskProposed(2, 1, 8.0, ENDING, Fault("command"))])
    run.hear([TaskFailed(2, 1, 9.0, Fault("command"), ENDING)])
    assert run.statistics().failed == 1
    assert run.statistics().spent_microusd == 15_000


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.floats(0.0, 9.0)), max_size=30))
def test_counts_never_go_below_nothing(drawn: list[tuple[int, int, float]]) -> None:
    run = progress(5)
    for task, kind, at_s in drawn:
        events: tuple[Event, ...] = (
            TaskStarted(task, 1, at_s, "room"),
            CallAdmitted(task, at_s),
            CallWaited(task, at_s),
            TaskFinished(task, 1, at_s, ENDING),
            TaskDelayed(task, 1, at_s, at_s, Fault("rate")),
            TaskFailed(task, 1, at_s, Fault("request")),
        )
        is_active = task in run.running
        if (kind == 0) != is_active:
            run.hear([events[kind]] if kind in (0, 1, 2) or is_active else [])
        now = run.statistics()
        assert 0 <= now.waiting <= now.running == run.groups[0].active
