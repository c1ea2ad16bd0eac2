"""The time that is left of a run that goes on.

Laws:
- No time to the end without the quota's bound for the rest beside it, and never a smaller one.
  Where a limit that may bind is not known, the bound is not known, and that is said instead.
- Where no work is left, there is neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from headway.base.values import Limit, Resource
from headway.report.history import RunHistory

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

ENDS_MIN: Final = 3
"""Fewer ends say nothing of a speed."""


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


def time_left(
    history: RunHistory, left: int, limits: Sequence[LimitView], now_s: float, *,
    is_whole: bool = True, foreseen_s: float | None = None,
) -> TimeLeft:  # fmt: skip
    """How long so many tasks that have not ended take; `now_s` is time of the run.

    The last one begins when the slowest limit has room for it, or when its turn comes at the
    speed of now, whichever is later. Then all that are in service still take their time. `limits`
    are of the accounts in use; without `is_whole` more tasks may become known.
    """
    per_s = _speed(history, now_s)
    if not left or per_s is None or not is_whole:
        return TimeLeft(left, per_s=per_s)
    # What is left is taken to be like what has ended. Calls that are in service have taken
    # their requests and inputs already.
    calls = history.taken.calls
    active = [history.tasks[key] for key in history.active]
    served = [
        now_s - (one.started_s if one.begun_s is None else one.begun_s)
        for one in active
        if one.is_sent or not calls
    ]
    unsent = max(0, left - len(served))
    until_s, hard, fair = _bounds(history, left, unsent, limits)
    taken = sorted(history.took_s) or [0.0]
    mean_s = sum(taken) / len(taken)
    # Where calls hold more than they use, no more begin at once than there is room.
    turn_s = left / per_s - mean_s
    for one in limits:
        if one.holds > 0.0:
            room = one.limit.capacity - one.used - one.spare
            turn_s = max(turn_s, unsent * mean_s * one.holds / max(room, one.holds))
    seen_s = last_s(taken, served, unsent, max(0.0, turn_s, until_s))
    if foreseen_s is not None:
        # Early in a run its forecast says more than what has been seen.
        done = history.performed / (history.performed + left)
        passed_s = max(0.0, foreseen_s - now_s)
        seen_s = done * seen_s + (1.0 - done) * passed_s
    return TimeLeft(left, max(seen_s, hard[0] or 0.0), per_s, *hard, *fair)


def _speed(history: RunHistory, now_s: float) -> float | None:
    """Tasks that ended per second, lately; the wait for the first of all is no part of it."""
    recent = [sample for sample in history.samples if sample[0] >= now_s - RECENT_S]
    begun = [sample for sample in recent if sample[1] > 0] or recent
    if not begun or history.performed < ENDS_MIN:
        return None
    from_s, before = begun[0]
    done, passed_s = history.performed - before, now_s - from_s
    return done / passed_s if done >= ENDS_MIN - 1 and passed_s > 0.0 else None


def bound_of(
    history: RunHistory, accounts: Sequence[Sequence[LimitView]]
) -> tuple[float | None, str]:
    """The least time in which the limits of all accounts in use let through what was taken, from
    unused accounts on, and the limit that binds; None where no limit is known.

    Of several accounts it is not known which took how much: together they give the most.
    """
    demand = _demand(history, 1.0, 1.0)
    found: list[tuple[float, str]] = []
    for resource, need in demand.items():
        limits = [[one for one in every if one.limit.resource == resource] for every in accounts]
        if not all(limits) or not limits:
            continue
        if len(limits) == 1:
            choices: list[tuple[Limit, ...]] = [(one.limit,) for one in limits[0]]
        else:
            choices = [tuple(max((one.limit for one in every), key=_supply) for every in limits)]
        for chosen in choices:
            rate_per_s = sum(_supply(one) for one in chosen)
            free = sum(one.capacity for one in chosen if one.kind != "gauge")
            found.append((max(0.0, need - free) / rate_per_s, chosen[0].name))
    return max(found, default=(None, ""))


def _supply(limit: Limit) -> float:
    return limit.amount if limit.kind == "gauge" else limit.rate_per_s


def _demand(history: RunHistory, sent: float, ended: float) -> dict[Resource, float]:
    """What so many times as much as was performed takes: of what is sent, and of what is ended."""
    taken = history.taken
    return {
        "requests": taken.calls * sent,
        "input": taken.input_tokens * sent,
        "output": taken.output_tokens * ended,
        "tokens": taken.input_tokens * sent + taken.output_tokens * ended,
        "concurrency": history.busy_s * ended,
    }


def _bounds(
    history: RunHistory, left: int, unsent: int, limits: Sequence[LimitView]
) -> tuple[float, tuple[float | None, str], tuple[float | None, str]]:
    """When headway lets the last of what is left go; the least time in which the limits let it
    through, and the limit that binds; the same if neighbours keep their share, without debt."""
    unknown = (0.0, (None, ""), (None, ""))
    if not history.taken.calls:
        return unknown
    demand = _demand(history, unsent / history.performed, left / history.performed)
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
