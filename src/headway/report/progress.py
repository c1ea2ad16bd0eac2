"""The progress of a running run: counts, usage, time left.

Laws:
- It is a fold: facts in, numbers out; one fact costs the same however many tasks there are.
- No time to the end is told without the quota's bound for the rest beside it. Where a limit that
  may bind is not known, the bound is not known, and that is said instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import log
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Resource
from headway.engine.events import (
    NOTHING,
    AttemptStuck,
    CallAdmitted,
    CallWaited,
    Ending,
    Event,
    GroupExpanded,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
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
from headway.report.history import TURNED_AWAY, Standing, stand

if TYPE_CHECKING:
    from headway.pacing.view import LimitView

# When the last of many will have ended, from how long others took.

STILL: Final = log(2.0)

SAMPLE_MAX: Final = 64
"""Of those that go on, and of those to come, so many stand for all: a screen asks often."""

HALVINGS: Final = 24
"""The end is found to a ten-millionth of the longest that it could be."""

PATIENCE: Final = 8.0
"""As a multiple of the longest time so far: by then all but a few have ended."""


def last_s(taken_s: Sequence[float], ages_s: Sequence[float], begins: int, until_s: float) -> float:
    """How long from now until the last has ended.

    `taken_s` are the times that others took, in ascending order and at least one; `ages_s` those
    for which some have been going on; `begins` more begin evenly from now until `until_s`.
    """
    ages = _thinned(sorted(ages_s))
    starts = [until_s * (number + 1) / begins for number in _thinned(range(begins))]
    age_weight = len(ages_s) / max(1, len(ages))
    start_weight = begins / max(1, len(starts))

    def going_on(at_s: float) -> float:
        old = sum(_goes_on(taken_s, age_s, at_s) for age_s in ages)
        new = sum(_beyond(taken_s, at_s - start_s) for start_s in starts)
        return age_weight * old + start_weight * new

    low_s, high_s = 0.0, until_s + PATIENCE * max(taken_s[-1], *ages, 0.0)
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2.0
        if going_on(middle_s) > STILL:
            low_s = middle_s
        else:
            high_s = middle_s
    return high_s


def _thinned(every: Sequence[float]) -> Sequence[float]:
    """At most so many of them, evenly, the last among them."""
    if len(every) <= SAMPLE_MAX:
        return every
    return [every[(number + 1) * len(every) // SAMPLE_MAX - 1] for number in range(SAMPLE_MAX)]


def _beyond(taken_s: Sequence[float], age_s: float) -> float:
    """The share of those that took longer than this."""
    return 1.0 - bisect_right(taken_s, age_s) / len(taken_s)


def _goes_on(taken_s: Sequence[float], age_s: float, for_s: float) -> float:
    """The chance that one of this age goes on for so much longer."""
    if (alive := _beyond(taken_s, age_s)) > 0.0:
        return _beyond(taken_s, age_s + for_s) / alive
    return float((age_s / (age_s + for_s)) ** 2) if for_s > 0.0 else 1.0


RECENT_S: Final = 60.0
"""The speed of now is that of the last minute: limits are counted by it."""

SAMPLES_MAX: Final = 240
"""Of the count of finished tasks; four a second, as often as a screen is drawn."""

SAMPLE_S: Final = RECENT_S / SAMPLES_MAX

ENDS_MIN: Final = 3
"""Fewer ends say nothing of a speed."""

TAKEN_MAX: Final = 256
"""Of the times that tasks took, the last so many: a provider may have become slower."""


class TaskNames(Struct, frozen=True):
    """Who takes part in a run: groups by number, and the names of tasks."""

    title: str
    groups: tuple[str, ...]
    counts: tuple[int | None, ...]
    """Members of each group; None until they are known."""
    group_of: Callable[[int], int]
    label: Callable[[int], str]
    budget_microusd: int | None = None
    budget_tokens: float | None = None
    foreseen_s: float | None = None
    """What the whole run was foreseen to take."""
    run: str = ""
    """Its id."""


class GroupProgress(Struct):
    """How far one group is."""

    name: str
    total: int | None
    finished: int = 0
    failed: int = 0
    skipped: int = 0
    active: int = 0

    @property
    def ended(self) -> int:
        return self.finished + self.failed + self.skipped


class RunningAttempt(Struct):
    """An attempt in flight."""

    task: int
    attempt: int
    started_s: float
    admitted_s: float | None = None
    """None while it waits for a permit."""
    begun_s: float | None = None
    quiet_s: float = 0.0
    """How long it has done nothing, if that is long."""

    @property
    def serving_s(self) -> float:
        """Since when it is served; one that needs no permit is from its start."""
        return self.started_s if self.begun_s is None else self.begun_s


class TimeLeft(Struct, frozen=True):
    """How long what is left takes, by the speed of now and by the quota at best."""

    left: int
    eta_s: float | None = None
    per_s: float | None = None
    bound_s: float | None = None
    binding: str = ""
    fair_s: float | None = None
    """The bound if neighbours keep their share and no debt is left."""
    fair_binding: str = ""


class ProgressStatistics(Struct):
    """The run at an instant."""

    total: int = 0
    is_total_known: bool = False
    finished: int = 0
    reused: int = 0
    failed: int = 0
    skipped: int = 0
    running: int = 0
    waiting: int = 0
    """Of the running ones: those that wait for a permit."""
    delayed: int = 0
    retries: int = 0
    refused: int = 0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    spent_microusd: int = 0
    paid_twice_microusd: int = 0
    """By attempts that gave nothing."""
    proposed: int = 0
    """Ended, and waiting until those before them have, whose writes they may have missed."""
    stale: int = 0
    """Attempts that were for nothing: what they had read has changed."""
    stale_s: float = 0.0
    stale_microusd: int = 0
    unpriced: int = 0
    """Calls whose price is unknown: `spent_microusd` does not contain their cost."""


class RunProgress:
    """Folds the facts of a run that goes on."""

    def __init__(self, cast: TaskNames) -> None:
        self.cast = cast
        self.groups = [
            GroupProgress(name, count) for name, count in zip(cast.groups, cast.counts, strict=True)
        ]
        self.running: dict[int, RunningAttempt] = {}
        self.standing = Standing()
        self.first_s: float | None = None
        self._delayed: set[int] = set()
        self._sums = ProgressStatistics()
        self._calls = self._performed = 0
        self._busy_s = 0.0
        self._proposed: dict[int, float] = {}
        """How long the attempts took whose tasks wait to be committed."""
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)
        self._taken: deque[float] = deque(maxlen=TAKEN_MAX)

    def restored(self, counts: Sequence[int]) -> None:
        """So many members of each group were finished before this process took over."""
        for group, count in zip(self.groups, counts, strict=True):
            group.finished += count
            self._sums.reused += count

    def hear(self, events: Iterable[Event]) -> None:
        """Take facts, in order."""
        for event in events:
            if self.first_s is None:
                self.first_s = event.at_s
            self._one(event)

    def statistics(self) -> ProgressStatistics:
        groups = self.groups
        return replace(
            self._sums, total=sum(group.total or 0 for group in groups),
            is_total_known=all(group.total is not None for group in groups),
            finished=sum(group.finished for group in groups),
            failed=sum(group.failed for group in groups),
            skipped=sum(group.skipped for group in groups),
            running=len(self.running), delayed=len(self._delayed), proposed=len(self._proposed),
        )  # fmt: skip

    def rest(self, limits: Sequence[LimitView], now_s: float) -> TimeLeft:
        """What is left; `limits` are of the accounts in use.

        The last one begins when the slowest limit has room for it, or when its turn comes at the
        speed of now, whichever is later. Then all that are in service still take their time.
        """
        ended = sum(group.ended for group in self.groups)
        total = sum(group.total or 0 for group in self.groups)
        left = total - ended
        per_s = _speed(self._samples, self._performed, now_s)
        if per_s is None or any(group.total is None for group in self.groups):
            return TimeLeft(left, per_s=per_s)
        # What is left is taken to be like what has ended. Calls that are in service have taken
        # their requests and inputs already.
        served = [
            now_s - one.serving_s
            for one in self.running.values()
            if one.admitted_s is not None or not self._calls
        ]
        unsent = max(0, left - len(served))
        until_s, hard, fair = _bounds(self, left, unsent, limits)
        taken = sorted(self._taken) or [0.0]
        mean_s = sum(taken) / len(taken)
        # Where calls hold more than they use, no more begin at once than there is room.
        turn_s = left / per_s - mean_s
        for one in limits:
            if one.holds > 0.0:
                room = one.limit.capacity - one.used - one.spare
                turn_s = max(turn_s, unsent * mean_s * one.holds / max(room, one.holds))
        seen_s = last_s(taken, served, unsent, max(0.0, turn_s, until_s))
        passed_s = now_s - (now_s if self.first_s is None else self.first_s)
        foreseen_s, done = self.cast.foreseen_s, ended / total
        if foreseen_s is not None:
            # Early in a run its forecast says more than what has been seen.
            seen_s = done * seen_s + (1.0 - done) * max(0.0, foreseen_s - passed_s)
        return TimeLeft(left, seen_s, per_s, *hard, *fair)

    def _one(self, event: Event) -> None:
        match event:
            case TaskStarted(task=task):
                self._delayed.discard(task)
                self._group(task).active += 1
                self._sums.waiting += 1
                self._sample(event.at_s)
                self.running[task] = RunningAttempt(task, event.attempt, event.at_s)
            case AttemptStuck(task=task, quiet_s=quiet_s):
                if (running := self.running.get(task)) is not None:
                    running.quiet_s = quiet_s
            case CallWaited() | CallAdmitted():
                self._admission(event)
            case TaskFinished() | TaskReused() | TaskDelayed() | TaskFailed():
                self._ended(event)
            case TaskProposed() | TaskStale():
                self._judged(event)
            case TaskSkipped(task=task):
                self._group(task).skipped += 1
            case GroupExpanded(group=group, count=count):
                self.groups[group].total = count
            case WaveBegan() | RunHeld() | RunContinued() | RunStopping() | RunFinished():
                self.standing = stand(self.standing, event)

    def _admission(self, event: CallWaited | CallAdmitted) -> None:
        running = self.running.get(event.task)
        if running is None:
            return
        if isinstance(event, CallAdmitted):
            self._sums.waiting -= running.admitted_s is None
            running.admitted_s = event.at_s
            if running.begun_s is None:
                running.begun_s = event.at_s
        elif running.admitted_s is not None:
            self._busy_s += event.at_s - running.admitted_s
            running.admitted_s = None
            self._sums.waiting += 1

    def _ended(self, event: TaskFinished | TaskReused | TaskDelayed | TaskFailed) -> None:
        group = self._group(event.task)
        self._stopped(event.task, event.at_s, has_given=isinstance(event, TaskFinished))
        is_paid = self._proposed.pop(event.task, None) is not None
        if isinstance(event, TaskReused):
            group.finished += 1
            self._sums.reused += 1
            return
        self._took(NOTHING if is_paid else event.ending)
        if isinstance(event, TaskFinished):
            group.finished += 1
            self._performed += 1
            self._sample(event.at_s)
            return
        self._sums.paid_twice_microusd += event.ending.spend_microusd
        if event.fault.kind in TURNED_AWAY:
            self._sums.refused += 1
        if isinstance(event, TaskDelayed):
            self._sums.retries += 1
            self._delayed.add(event.task)
        else:
            group.failed += 1

    def _judged(self, event: TaskProposed | TaskStale) -> None:
        """An attempt has ended, and its task has not: it waits for others, or runs again."""
        took_s = self._stopped(event.task, event.at_s, has_given=True)
        held_s = self._proposed.pop(event.task, None)
        if held_s is None:
            self._took(event.ending)
        if isinstance(event, TaskProposed):
            self._proposed[event.task] = took_s
            return
        self._sums.stale += 1
        self._sums.stale_s += took_s if held_s is None else held_s
        self._sums.stale_microusd += event.ending.spend_microusd
        self._sums.paid_twice_microusd += event.ending.spend_microusd

    def _stopped(self, task: int, at_s: float, *, has_given: bool) -> float:
        """An attempt is no longer in flight, if it was: how long it took."""
        running = self.running.pop(task, None)
        if running is None:
            return 0.0
        self._group(task).active -= 1
        if has_given:
            self._taken.append(at_s - running.serving_s)
        if running.admitted_s is None:
            self._sums.waiting -= 1
        else:
            self._busy_s += at_s - running.admitted_s
        return at_s - running.started_s

    def _took(self, ending: Ending) -> None:
        self._sums.input_tokens += ending.input_tokens
        self._sums.output_tokens += ending.output_tokens
        self._sums.spent_microusd += ending.spend_microusd
        self._sums.unpriced += ending.unpriced
        self._calls += ending.calls

    def _sample(self, at_s: float) -> None:
        if not self._samples or at_s - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((at_s, self._performed))

    def _group(self, task: int) -> GroupProgress:
        return self.groups[self.cast.group_of(task)]


def _speed(samples: Iterable[tuple[float, int]], performed: int, now_s: float) -> float | None:
    """Tasks that ended per second, lately; the wait for the first of all is no part of it."""
    recent = [sample for sample in samples if sample[0] >= now_s - RECENT_S]
    begun = [sample for sample in recent if sample[1] > 0] or recent
    if not begun or performed < ENDS_MIN:
        return None
    from_s, before = begun[0]
    done, passed_s = performed - before, now_s - from_s
    return done / passed_s if done >= ENDS_MIN - 1 and passed_s > 0.0 else None


def _bounds(
    run: RunProgress, left: int, unsent: int, limits: Sequence[LimitView]
) -> tuple[float, tuple[float | None, str], tuple[float | None, str]]:
    """When headway lets the last of what is left go; the least time in which the limits let it
    through, and the limit that binds; the same if neighbours keep their share, without debt."""
    unknown = (0.0, (None, ""), (None, ""))
    if not run._calls:
        return unknown
    each = 1.0 / run._performed
    demand: dict[Resource, float] = {
        "requests": run._calls * unsent * each,
        "input": run._sums.input_tokens * unsent * each,
        "output": run._sums.output_tokens * left * each,
        "tokens": (run._sums.input_tokens * unsent + run._sums.output_tokens * left) * each,
        "concurrency": run._busy_s * left * each,
    }
    calls = demand["requests"]
    sent = {**demand, "output": 0.0, "tokens": demand["input"]}
    known = [
        (one, calls * one.each or demand[one.limit.resource])
        for one in limits
        if one.limit.resource in demand
    ]
    if not known:
        return unknown
    # Output that counts as it is produced may go into debt: of all calls, if they go at once.
    hard = max(
        (_least_s(one, need if one.each or one.holds else min(need, sent[one.limit.resource])),
         one.limit.name) for one, need in known
    )  # fmt: skip
    fair = max((_least_s(one, need, one.neighbours_per_s), one.limit.name) for one, need in known)
    until_s = max(_least_s(one, need + one.spare) for one, need in known) if calls else 0.0
    return (until_s, hard, fair)


def _least_s(view: LimitView, demand: float, others_per_s: float = 0.0) -> float:
    """The least time in which a limit lets a demand through: what is free, then its rate, of which
    others may have half."""
    limit = view.limit
    if limit.kind == "gauge":
        return demand / limit.amount
    free = max(0.0, limit.capacity - view.used)
    ours_per_s = limit.rate_per_s - min(others_per_s, limit.rate_per_s / 2.0)
    return max(0.0, demand - free) / ours_per_s
