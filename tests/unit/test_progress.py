"""The time that is left of a run: never without its bound, and never below it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import pytest
from msgspec.structs import replace

from headway.base.values import Limit
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    Event,
    RunBegan,
    TaskFinished,
    TaskStarted,
)
from headway.pacing.view import LimitView
from headway.report.history import RunHistory
from headway.report.progress import TimeLeft, bound_of, time_left

ENDING = Ending(b"", b"", 1000.0, 200.0, 5000, 1)


class Seen:
    """A run of so many tasks, as far as facts tell of it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.foreseen_s: float | None = None
        self.works_alone = False
        self.events: list[Event] = [RunBegan(0.0, "adaptive")]

    def hear(self, events: Sequence[Event]) -> None:
        self.events += events

    @property
    def history(self) -> RunHistory:
        """Of all facts, in the order of their times."""
        history = RunHistory(works_alone=lambda _: self.works_alone)
        for event in sorted(self.events, key=lambda event: event.at_s):
            number = getattr(event, "task", None)
            history.apply(b"" if number is None else b"%d" % number, event)
        return history

    def rest(self, limits: Sequence[LimitView], now_s: float) -> TimeLeft:
        history = self.history
        left = self.total - sum(
            group.states[state]
            for group in history.groups.values()
            for state in ("finished", "failed", "skipped")
        )
        return time_left(history, left, [limits], now_s, foreseen_s=self.foreseen_s)


def perform(run: Seen, task: int, from_s: float, to_s: float) -> None:
    run.hear([TaskStarted(task, 1, from_s, "room"), CallAdmitted(task, from_s)])
    run.hear([TaskFinished(task, 1, to_s, ENDING)])


def test_where_nothing_is_left_there_is_neither_a_time_nor_a_bound() -> None:
    run = Seen(4)
    for task in range(4):
        perform(run, task, float(task), task + 1.0)
    rest = run.rest([LimitView(Limit("input", 3000.0, 60.0), 1000.0)], 4.0)
    assert (rest.left, rest.eta_s, rest.bound_s, rest.binding) == (0, None, None, "")


def test_before_more_tasks_are_known_there_is_no_time_to_the_end() -> None:
    run = Seen(10)
    for task in range(4):
        perform(run, task, float(task), task + 1.0)
    rest = time_left(run.history, 6, (), 4.0, is_whole=False)
    assert (rest.left, rest.eta_s, rest.per_s) == (6, None, 1.0)


def test_the_bound_of_a_whole_run_begins_with_an_unused_account() -> None:
    run = Seen(10)
    for task in range(10):
        perform(run, task, float(task), task + 1.0)
    inputs = LimitView(Limit("input", 3000.0, 60.0), 3000.0)
    slots = LimitView(Limit("concurrency", 2.0, 0.0, "gauge"), 0.0)
    # 10,000 tokens: 3,000 are free, the others come with 50 a second.
    bound_s, name = bound_of(run.history, [[inputs, slots]])
    assert (bound_s, name) == (140.0, "input/60s")
    # A second account of the same kind may have taken half of it.
    assert bound_of(run.history, [[inputs], [inputs]]) == (40.0, "input/60s")
    assert bound_of(run.history, [[inputs], []]) == (None, "")
    assert bound_of(run.history, []) == (None, "")


def test_no_time_to_the_end_without_the_bound_beside_it() -> None:
    run = Seen(10)
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


def test_calls_of_several_accounts_pass_the_limits_of_all_of_them_together() -> None:
    run = Seen(10)
    for task in range(4):
        perform(run, task, float(task), task + 1.0)
    one = LimitView(Limit("input", 3000.0, 60.0), 1000.0)
    other = replace(one, limit=Limit("input", 1500.0, 60.0), used=1500.0)
    # Six more tasks of 1,000 tokens: 2,000 are free on one, the others come with 50 and 25.
    both = time_left(run.history, 6, [[one], [other]], 4.0)
    assert (both.bound_s, both.fair_s) == pytest.approx((4000.0 / 75.0, 4000.0 / 75.0))
    # How much of it passes an account whose limits are not known is not known either.
    unknown = time_left(run.history, 6, [[one], []], 4.0)
    assert (unknown.bound_s, unknown.binding) == (None, "")


def test_tasks_that_make_no_calls_are_not_bound_by_a_quota() -> None:
    run = Seen(10)
    for task in range(4):
        run.hear([TaskStarted(task, 1, float(task), "room")])
        run.hear([TaskFinished(task, 1, task + 1.0)])
    rest = run.rest([LimitView(Limit("requests", 10.0), 0.0)], 4.0)
    assert (rest.bound_s, rest.binding) == (None, "")
    assert rest.eta_s is not None


def burst(run: Seen, count: int, foreseen_s: float | None = None) -> Seen:
    """So many calls that were let go at once and took a second each, a hundred a second."""
    run.foreseen_s = foreseen_s
    for task in range(count):
        perform(run, task, task / 100.0, 1.0 + task / 100.0)
    return run


def test_a_burst_says_nothing_of_what_comes_after_it() -> None:
    """60 of 240 went at once and 60 a minute follow: by the speed of the burst it were 2 s."""
    run = burst(Seen(240), 60)
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
    run = burst(Seen(70), 60)
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
    rest = burst(Seen(240), 60, foreseen_s=401.6).rest(limit, 1.6)
    assert rest.eta_s == pytest.approx(0.25 * 181.0 + 0.75 * 400.0)
    late = burst(Seen(75), 60, foreseen_s=101.6).rest(limit, 1.6)
    assert late.eta_s == pytest.approx(0.8 * 16.0 + 0.2 * 100.0)
    # A run that takes longer than foreseen is not over before now.
    over = burst(Seen(240), 60, foreseen_s=1.0).rest((), 1.6)
    alone = burst(Seen(240), 60).rest((), 1.6)
    assert over.eta_s == pytest.approx(0.25 * (alone.eta_s or 0.0))
    # Nor before the limits let the rest through, whatever was foreseen.
    bound = burst(Seen(240), 60, foreseen_s=1.0).rest(limit, 1.6)
    assert bound.eta_s == bound.bound_s == pytest.approx(180.0)


def test_those_that_go_on_still_take_their_time() -> None:
    """Five took 1, 2, 3, 4 and 10 s; the last two began 3 s ago: one of them may take 10."""
    run = Seen(7)
    for task, took_s in enumerate((1.0, 2.0, 3.0, 4.0, 10.0)):
        perform(run, task, 10.0 - took_s, 10.0)
    run.hear([TaskStarted(5, 1, 12.0, "room"), CallAdmitted(5, 12.0), CallWaited(5, 13.0)])
    run.hear([CallAdmitted(5, 14.0), TaskStarted(6, 1, 12.0, "room"), CallAdmitted(6, 12.0)])
    assert run.rest((), 15.0).eta_s == pytest.approx(7.0)


def test_a_command_that_goes_on_beside_calls_is_not_taken_for_one_more_of_them() -> None:
    run = burst(Seen(61), 60)
    run.works_alone = True
    run.hear([TaskStarted(60, 1, 0.0, "room")])
    # It has run for 20 s, where calls take one: it is expected to take a while, and no call.
    rest = run.rest([LimitView(Limit("requests", 60.0), 60.0)], 20.0)
    assert rest.bound_s == 0.0
    assert rest.eta_s == pytest.approx(20.0 * (log(2.0) ** -0.5 - 1.0), rel=0.01)
