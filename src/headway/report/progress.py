"""The time that is left of a run that goes on.

Laws:
- No time to the end without the quota's bound for the rest beside it, and never a smaller one.
  Where a limit that may bind is not known, the bound is unknown, and views show that.
- Where no work is left, there is neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import log
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Limit, Resource
from headway.report.history import RunHistory

if TYPE_CHECKING:
    from headway.pacing.view import LimitView

# When the last of many will have ended, from how long others took.

STILL: Final = log(2.0)

SAMPLE_MAX: Final = 64
"""Of tasks in service and of tasks to come, at most this many are sampled: views ask often."""

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
    """At most `SAMPLE_MAX` of them, evenly, the last among them."""
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
    history: RunHistory, left: int, accounts: Accounts, now_s: float, *,
    is_whole: bool = True, foreseen_s: float | None = None,
) -> TimeLeft:  # fmt: skip
    """How long `left` tasks that have not ended take; `now_s` is time of the run.

    The last one begins when the slowest limit has room for it, or when its turn comes at the
    speed of now, whichever is later. Then all that are in service still take their time. Without
    `is_whole` more tasks may become known.
    """
    per_s = _speed(history, now_s)
    if not left or per_s is None or not is_whole:
        return TimeLeft(left, per_s=per_s)
    # What is left is taken to be like what has ended. Calls that are in service have taken
    # their requests and inputs already, and commands that have made none take none.
    calls = history.taken.calls
    active = [history.tasks[key] for key in history.active]
    served = [
        now_s - (one.started_s if one.begun_s is None else one.begun_s)
        for one in active
        if one.is_sent or not calls or (one.works_alone and not one.has_asked)
    ]
    unsent = max(0, left - len(served))
    until_s, hard, fair = _bounds(history, left, unsent, accounts)
    taken = sorted(history.took_s) or [0.0]
    mean_s = sum(taken) / len(taken)
    # Where calls hold more than they use, no more begin at once than there is room.
    turn_s = left / per_s - mean_s
    for chosen in _together(accounts):
        if (holds := chosen[0].holds) > 0.0:
            room = sum(one.limit.capacity - one.used - one.spare for one in chosen)
            turn_s = max(turn_s, unsent * mean_s * holds / max(room, holds))
    seen_s = last_s(taken, served, unsent, max(0.0, turn_s, until_s))
    if foreseen_s is not None:
        # Early in a run its forecast is better than what has been measured.
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


Accounts = Sequence[Sequence["LimitView"]]
"""The limits of each account in use."""


def _together(accounts: Accounts) -> Iterator[tuple[LimitView, ...]]:
    """Limits that all of the work must pass: of one account each limit; of several, of which it is
    not known how much each took, those on the same resource, of each account the widest."""
    for resource in dict.fromkeys(one.limit.resource for every in accounts for one in every):
        limits = [[one for one in every if one.limit.resource == resource] for every in accounts]
        if len(limits) == 1:
            yield from ((one,) for one in limits[0])
        elif all(limits):
            yield tuple(max(every, key=lambda one: _supply(one.limit)) for every in limits)


def _supply(limit: Limit) -> float:
    return limit.amount if limit.kind == "gauge" else limit.rate_per_s


def bound_of(history: RunHistory, accounts: Accounts) -> tuple[float | None, str]:
    """The least time in which the accounts in use let through what was taken, if they were unused
    before, and the limit that binds; None where no limit is known."""
    demand = _demand(history, 1.0, 1.0)
    unused = [[replace(one, used=0.0) for one in every] for every in accounts]
    found = (
        (_least_s(chosen, demand[chosen[0].limit.resource]), chosen[0].limit.name)
        for chosen in _together(unused)
        if chosen[0].limit.resource in demand
    )
    return max(found, default=(None, ""))


def _demand(history: RunHistory, sent: float, ended: float) -> dict[Resource, float]:
    """The demand of multiples of what was performed: `sent` of inputs, `ended` of outputs."""
    taken = history.taken
    return {
        "requests": taken.calls * sent,
        "input": taken.input_tokens * sent,
        "output": taken.output_tokens * ended,
        "tokens": taken.input_tokens * sent + taken.output_tokens * ended,
        "concurrency": history.busy_s * ended,
    }


def _bounds(
    history: RunHistory, left: int, unsent: int, accounts: Accounts
) -> tuple[float, tuple[float | None, str], tuple[float | None, str]]:
    """When headway lets the last of what is left go; the least time in which the limits let it
    through, and the limit that binds; the same if neighbours keep their share, without debt."""
    if not history.taken.calls:
        return 0.0, (None, ""), (None, "")
    demand = _demand(history, unsent / history.performed, left / history.performed)
    # Output that counts as it is produced may go into debt: of all calls, if they go at once.
    sent = {**demand, "output": 0.0, "tokens": demand["input"]}
    until_s, hard, fair = 0.0, list[tuple[float, str]](), list[tuple[float, str]]()
    for chosen in _together(accounts):
        one, resource, name = chosen[0], chosen[0].limit.resource, chosen[0].limit.name
        if resource in demand:
            need = demand["requests"] * one.each or demand[resource]
            least = need if one.each or one.holds else min(need, sent[resource])
            hard.append((_least_s(chosen, least), name))
            fair.append((_least_s(chosen, need, is_fair=True), name))
            if demand["requests"]:
                until_s = max(until_s, _least_s(chosen, need + sum(each.spare for each in chosen)))
    return until_s, max(hard, default=(None, "")), max(fair, default=(None, ""))


def _least_s(chosen: Sequence[LimitView], demand: float, *, is_fair: bool = False) -> float:
    """The least time in which limits together let a demand through: what is free, then their
    rates, of which neighbours may have half."""
    if chosen[0].limit.kind == "gauge":
        return demand / sum(one.limit.amount for one in chosen)
    free = sum(max(0.0, one.limit.capacity - one.used) for one in chosen)
    ours_per_s = 0.0
    for one in chosen:
        rate_per_s = one.limit.rate_per_s
        ours_per_s += rate_per_s - min(is_fair * one.neighbours_per_s, rate_per_s / 2.0)
    return max(0.0, demand - free) / ours_per_s
