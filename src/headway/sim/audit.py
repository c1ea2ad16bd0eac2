"""Recomputes from an account's log whether a limit was exceeded.

A log adds up to a curve F(t) per resource: steps where a charge is taken or given back at once,
slopes where it is taken evenly. Within an interval F rises by at most

- the limit of a sliding window, if the interval is shorter than the period;
- capacity + rate x length of a bucket;
- the limit of a fixed window, between two of its boundaries, the first of which is 0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from math import floor, inf
from typing import Final

from msgspec import Struct

from headway.base.values import Limit, Resource
from headway.sim.account import Charge, Terms
from headway.sim.supply import Season, season_of

NEIGHBOUR: Final = "neighbour"
"""`Charge.by` of a neighbour's charges."""

GRAIN_S: Final = 1e-9
"""Closer than this, two times are the same."""


class ChargeCurve(Struct, frozen=True):
    """F at its corners: just before and just after each time; straight in between."""

    times: tuple[float, ...]
    lefts: tuple[float, ...]
    rights: tuple[float, ...]

    def left(self, now: float) -> float:
        """F just before `now`."""
        place = bisect_left(self.times, now)
        if place < len(self.times) and self.times[place] == now:
            return self.lefts[place]
        return self._between(place, now)

    def right(self, now: float) -> float:
        """F just after `now`."""
        place = bisect_right(self.times, now)
        if place > 0 and self.times[place - 1] == now:
            return self.rights[place - 1]
        return self._between(place, now)

    def _between(self, place: int, now: float) -> float:
        if place == 0:
            return 0.0
        if place == len(self.times):
            return self.rights[-1]
        before, after = self.times[place - 1], self.times[place]
        part = (now - before) / (after - before)
        return self.rights[place - 1] + part * (self.lefts[place] - self.rights[place - 1])


def worst_window(log: Iterable[Charge], resource: Resource, period_s: float) -> tuple[float, float]:
    """The most within any interval shorter than the period, and when that interval begins."""
    worst = max(_windows(curve_of(log, resource), period_s), default=(0.0, 0.0, 0.0))
    return worst[0], worst[1]


def violations(terms: Terms, log: Sequence[Charge], tolerance: float) -> list[tuple[Limit, float]]:
    """Every limit on a rate that was exceeded by more than `tolerance`, a share of its capacity,
    and by how much at worst. An interval is held to the largest limit in force during it."""
    season = season_of(Terms(changes=terms.changes), 0.0)
    found = []
    for limit in terms.limits + terms.hidden:
        if limit.kind != "gauge":
            excess = max(_excesses(curve_of(log, limit.resource), limit, season), default=0.0)
            if excess > tolerance * limit.capacity:
                found.append((limit, excess))
    return found


def curve_of(log: Iterable[Charge], resource: Resource) -> ChargeCurve:
    """The sum of all charges of a resource over time.

    `tokens` is input and output; what a neighbour takes of a limit on `tokens` is logged as such.
    """
    steps: dict[float, float] = {}
    slopes: dict[float, float] = {}
    for charge in log:
        if charge.resource != resource and not (
            resource == "tokens"
            and charge.resource in ("input", "output")
            and charge.by != NEIGHBOUR
        ):
            continue
        begin, end = charge.from_s, charge.to_s
        steps[begin] = steps.get(begin, 0.0)
        if begin == end:
            steps[begin] += charge.amount
            continue
        steps[end] = steps.get(end, 0.0)
        slope = charge.amount / (end - begin)
        slopes[begin] = slopes.get(begin, 0.0) + slope
        slopes[end] = slopes.get(end, 0.0) - slope
    times = sorted(steps)
    lefts: list[float] = []
    rights: list[float] = []
    total = slope = 0.0
    for place, at in enumerate(times):
        total += slope * (at - times[place - 1]) if place else 0.0
        lefts.append(total)
        total += steps[at]
        rights.append(total)
        slope += slopes.get(at, 0.0)
    return ChargeCurve(tuple(times), tuple(lefts), tuple(rights))


def _excesses(curve: ChargeCurve, limit: Limit, season: Season) -> Iterator[float]:
    """Candidates for the worst excess over a limit on a rate."""
    if limit.kind == "bucket":
        yield from _bucket_excesses(curve, limit, season)
    elif limit.kind == "fixed":
        yield from _fixed_excesses(curve, limit, season)
    else:
        for amount, _, to_s in _windows(curve, limit.period_s):
            begin_s = max(0.0, to_s - limit.period_s)
            yield amount - limit.amount * season.factor_max(begin_s, to_s + GRAIN_S)


def _windows(curve: ChargeCurve, period_s: float) -> Iterator[tuple[float, float, float]]:
    """For each candidate end of the worst interval: its amount, its beginning, its end.

    The most within an interval is reached with a corner of the curve at one of its ends. A step
    at the end of a whole period is not part of it, a step at its beginning is.
    """
    lowest: deque[tuple[float, float]] = deque()
    place = 0
    ends = sorted({*curve.times, *(at + period_s for at in curve.times)})
    for end in ends:
        begin = end - period_s
        for is_after in (False, True):
            while place < len(curve.times) and (
                curve.times[place] < end or (is_after and curve.times[place] == end)
            ):
                for value in (curve.lefts[place], curve.rights[place]):
                    while lowest and lowest[-1][1] >= value:
                        lowest.pop()
                    lowest.append((curve.times[place], value))
                place += 1
            while lowest and (lowest[0][0] < begin or (is_after and lowest[0][0] == begin)):
                lowest.popleft()
            top = curve.right(end) if is_after else curve.left(end)
            base, from_s = (curve.right(begin) if is_after else curve.left(begin)), begin
            if lowest and lowest[0][1] <= base:
                from_s, base = lowest[0]
            yield top - base, from_s, end


def _bucket_excesses(curve: ChargeCurve, limit: Limit, season: Season) -> Iterator[float]:
    """How far the curve, less the refill, has risen above its lowest point so far."""
    lowest = inf
    for at in sorted({*curve.times, *(at for at in season.times if at > 0)}):
        refill = limit.rate_per_s * season.refill_by(at)
        before = season.factor_max(max(0.0, at - GRAIN_S), at)
        after = season.factor_max(at, at)
        left, right = curve.left(at) - refill, curve.right(at) - refill
        for value, factor in ((left, before), (left, after), (right, after)):
            lowest = min(lowest, value + limit.capacity * factor)
            yield value - lowest


def _fixed_excesses(curve: ChargeCurve, limit: Limit, season: Season) -> Iterator[float]:
    """Window by window: how far the curve has risen above its lowest point since the boundary."""
    times, period = curve.times, limit.period_s
    if not times:
        return
    first, last = (floor((at + GRAIN_S) / period) for at in (times[0], times[-1]))
    for window in range(first, last + 1):
        begin, end = window * period, (window + 1) * period
        allowed = limit.amount * season.factor_max(max(0.0, begin), end)
        values = [curve.left(begin)]
        for place in range(bisect_left(times, begin), bisect_left(times, end)):
            values += (curve.lefts[place], curve.rights[place])
        lowest = inf
        for value in (*values, curve.left(end)):
            lowest = min(lowest, value)
            yield value - lowest - allowed
