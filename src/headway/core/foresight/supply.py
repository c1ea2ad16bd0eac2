"""The most that a limit can have let through by a time, whatever the schedule.

Laws:
- A supply is never smaller than what any schedule got: where this file must err, it errs upwards.
- A bucket lets through what it holds and what flows in; a window its amount, once per period.
- What a neighbour wants, up to its fair share, is the neighbour's: it is taken off the supply at
  the pace at which it is wanted. Less than this supply is no fault; more is a neighbour's share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import Final

from headway.core.foresight.account import Terms
from headway.core.foresight.layout import Rule
from headway.core.foresight.neighbour import FAIR_SHARE, Neighbour

TICKS_MAX: Final = 20_000
"""A neighbour is followed for this many ticks; after that the supply counts it as gone."""

WINDOWS_MAX: Final = 20_000
"""A window's supply is followed for this many periods; what needs more is said to need these."""

SLACK: Final = 1e-9
"""Relative rounding slack, always to the side of a larger supply."""


@dataclass(frozen=True, slots=True)
class Season:
    """How much of every limit is ours, piece by piece: piece i lasts from times[i] to the next."""

    times: tuple[float, ...]
    factors: tuple[float, ...]
    """What the limits are multiplied by."""
    fairs: tuple[float, ...]
    """The share that a neighbour wants and is owed."""
    refills: tuple[float, ...]
    """Seconds of refill at the first rate that were ours by each time."""
    owed: tuple[float, ...]
    """The same for the neighbour."""

    def factor_max(self, from_s: float, to_s: float) -> float:
        """The largest factor in force between two times."""
        first = bisect_right(self.times, from_s) - 1
        return max(self.factors[first : max(first + 1, bisect_left(self.times, to_s))])

    def owed_by(self, now: float) -> float:
        place = bisect_right(self.times, now) - 1
        pace = self.factors[place] * self.fairs[place]
        return self.owed[place] + pace * (now - self.times[place])

    def refill_by(self, now: float) -> float:
        place = bisect_right(self.times, now) - 1
        pace = self.factors[place] * (1.0 - self.fairs[place])
        return self.refills[place] + pace * (now - self.times[place])


@dataclass(frozen=True, slots=True)
class Supply:
    """A rising curve: from times[i] on it is totals[i], growing with slopes[i]."""

    times: tuple[float, ...]
    totals: tuple[float, ...]
    slopes: tuple[float, ...]

    def by(self, now: float) -> float:
        """The most that can have been let through by `now`; nothing before the curve begins."""
        place = bisect_right(self.times, now) - 1
        if place < 0:
            return 0.0
        return self.totals[place] + self.slopes[place] * (now - self.times[place])

    def when(self, amount: float) -> float:
        """The least time by which `amount` can have been let through."""
        wanted = amount * (1.0 - SLACK)
        place = max(0, bisect_left(self.totals, wanted) - 1)
        if self.totals[place] >= wanted:
            return self.times[place]
        slope = self.slopes[place]
        reached = self.times[place] + (wanted - self.totals[place]) / slope if slope > 0 else inf
        following = self.times[place + 1] if place + 1 < len(self.times) else inf
        return min(reached, following)


def season_of(terms: Terms, enough_s: float) -> Season:
    """The season of an account, followed for at least `enough_s` where that needs steps."""
    factors = [(0.0, 1.0)]
    for at, factor in sorted(terms.changes):
        factors.append((max(0.0, at), factor))
    fairs = _fairs(terms.neighbour, enough_s) if terms.neighbour else [(0.0, 0.0)]
    times: list[float] = []
    pieces: list[tuple[float, float]] = []
    for at in sorted({at for at, _ in factors + fairs}):
        piece = (_at(factors, at), _at(fairs, at))
        if not pieces or pieces[-1] != piece:
            times.append(at)
            pieces.append(piece)
    refills, owed = [0.0], [0.0]
    for place in range(1, len(times)):
        lasted = times[place] - times[place - 1]
        factor, fair = pieces[place - 1]
        refills.append(refills[-1] + factor * (1.0 - fair) * lasted)
        owed.append(owed[-1] + factor * fair * lasted)
    return Season(tuple(times), tuple(factor for factor, _ in pieces),
                  tuple(fair for _, fair in pieces), tuple(refills), tuple(owed))  # fmt: skip


def supply_of(rule: Rule, season: Season, from_s: float, enough: float) -> Supply:
    """What a limit can let through from a time on, followed until it is `enough`."""
    if rule.kind == "bucket":
        return _bucket_supply(rule, season, from_s)
    return _window_supply(rule, season, from_s, enough)


def _at(steps: Sequence[tuple[float, float]], now: float) -> float:
    """The value in force at a time; of several that begin at once, the last."""
    return steps[bisect_right(steps, (now, inf)) - 1][1]


def _fairs(neighbour: Neighbour, enough_s: float) -> list[tuple[float, float]]:
    """What a neighbour is owed, tick by tick: a tick's wish is spread over the tick."""
    if neighbour.on_s == inf and neighbour.start_s <= 0:
        return [(0.0, min(neighbour.share, FAIR_SHARE))]
    ticks = min(TICKS_MAX, int(enough_s / neighbour.tick_s) + 1)
    fairs = [
        (tick * neighbour.tick_s, min(neighbour.wants(tick * neighbour.tick_s), FAIR_SHARE))
        for tick in range(ticks)
    ]
    return [*fairs, (ticks * neighbour.tick_s, 0.0)]


def _bucket_supply(rule: Rule, season: Season, from_s: float) -> Supply:
    """A bucket holds at most its capacity at `from_s`; from then on only the refill comes."""
    room = rule.capacity * season.factor_max(from_s, from_s) + rule.debt
    begun = season.refill_by(from_s)
    first = bisect_right(season.times, from_s)
    times = (from_s, *season.times[first:])
    refills = (begun, *season.refills[first:])
    paces = [
        rule.rate_per_s * factor * (1.0 - fair)
        for factor, fair in zip(season.factors[first - 1 :], season.fairs[first - 1 :], strict=True)
    ]
    totals = tuple(room + rule.rate_per_s * (refill - begun) for refill in refills)
    return Supply(times, totals, tuple(paces))


def _window_supply(rule: Rule, season: Season, from_s: float, enough: float) -> Supply:
    """One amount per window begun. In the last one the neighbour may not have come yet."""
    period = rule.period_s
    aligned = rule.kind == "fixed"
    begins = floor(from_s / period + SLACK) * period if aligned else from_s
    times: list[float] = []
    totals: list[float] = []
    spent = 0.0
    for place in range(WINDOWS_MAX):
        begin, end = begins + place * period, begins + (place + 1) * period
        amount = rule.amount * season.factor_max(begin, end) + rule.debt
        times.append(max(from_s, begin))
        totals.append(max(spent + amount, totals[-1] if totals else 0.0))
        if totals[-1] >= enough:
            break
        owed_s = 0.0 if rule.is_ceiling else season.owed_by(end) - season.owed_by(begin)
        spent += amount - rule.rate_per_s * owed_s
    totals[-1] = max(totals[-1], enough)
    return Supply(tuple(times), tuple(totals), (0.0,) * len(times))
