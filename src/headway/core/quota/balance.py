"""What is left of one limit, and what our own calls in flight still take of it.

Laws:
- A balance charges what the provider will charge, when it will charge it.
- What a call took comes back or becomes what it used, once: `charge` or `join` begins it,
  `settle` or `give_back` ends it.
- What calls in flight will still take is foreseen: along their streams where the limit refills,
  as a whole in a window of the provider's, of which we do not know exactly how it counts.
- Money is firm: spent and the ceilings of calls in flight together never exceed the limit, and
  a call that may cost more than all of it is never admitted.
- A difference found in the past is carried to the present as a shift. Nothing is replayed.
- A user's ceiling is a second limit of ours: at most that share of the limit in any period.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

from headway.core.quota.outflow import BIN_S, Stream
from headway.core.quota.projection import Projection
from headway.core.quota.reserve import Reserve
from headway.core.quota.rolling import Rolling
from headway.core.quota.toll import Toll
from headway.core.quota.window import AnyMeter, Bucket, Gauge, SlidingWindow, meter_of
from headway.core.values import Charging, Demand, Limit, Usage, Wait

FLOOR_SHARE: Final = 0.15
FLOOR_CALLS: Final = 3.0
"""Left in a learned limit for others and for our own errors: small, and it costs no rate. Of a
limit that counts calls and that nobody shares, one is enough: there is no error in counting."""

EXACT_FLOOR: Final = 1e-6
"""Left in a limit that is known exactly: rounding only..."""

ERROR_SPREADS: Final = 4.0
"""...and so many times the error that our estimates of the calls in flight may add up to."""

BIN_SHARE: Final = 0.5
"""At most this share of a bucket is left for what a projection does not see."""

WINDOW_SPREADS: Final = 1.0
"""In a learned window less is left: what is not used by its end is lost, and a refusal near the
end costs nothing but itself."""

CEILING_SPREADS: Final = 4.0
"""A demand's ceiling lies about this many spreads above what is expected."""

SLIDE_MARGIN: Final = 1e-3
"""A provider's sliding window is taken to be longer by this share: it may count in grains, and
calls do not arrive exactly as far apart as they left."""

CEILING_MARGIN: Final = 1e-6
"""Our own is exact but for rounding: a period that is over to the last digit is, to somebody who
rounds differently, not quite over."""

MEMORY: Final = 0.1
"""How much the newest call moves the mean need and the variance of our errors."""

AnyCount = Reserve | Projection | Rolling
"""Three ways to foresee what calls in flight will take, one set of verbs."""


@dataclass(frozen=True, slots=True)
class BalanceStatistics:
    """One limit at an instant. `planned` is what streams in flight will still take."""

    limit: Limit
    level: float
    capacity: float
    planned: float
    in_flight: int


class Balance:
    """A limit, counted from this side."""

    __slots__ = (
        "_counts", "_has_plenty", "_in_flight", "_variance", "ceiling", "count", "exact", "limit",
        "mean_need", "mean_unused", "meter", "rounding", "shared", "shift", "toll", "unused",
    )  # fmt: skip

    def __init__(
        self, limit: Limit, charging: Charging, share: float, rounding: float, now: float
    ) -> None:
        self.limit = limit
        self.toll = Toll(limit.resource, charging)
        self.meter = _meter_of(limit, now)
        """What the provider counts with; readings correct it."""
        self.count = _count_of(self.meter, self.toll.flows, rounding, now)
        self.ceiling = _ceiling_of(limit, self.toll.flows, share, now) if share < 1 else None
        self._counts = (self.count,) if self.ceiling is None else (self.count, self.ceiling)
        self._has_plenty = isinstance(self.meter, Bucket) and self.ceiling is None
        """Whether a look at the level may be enough: no floor is above its share."""
        self.rounding = rounding
        """By how much a reading of this limit may be off."""
        self.exact = limit.source == "configured"
        self.shared = False
        """Whether somebody else is known to draw on it."""
        self.shift = 0.0
        """All corrections of the level so far."""
        self.unused = 0.0
        """All that was reserved so far and not used."""
        self._in_flight = 0
        self.mean_need = self.mean_unused = 0.0
        self._variance = 0.0

    def __repr__(self) -> str:
        return f"<Balance {self.limit.name} {self.count!r}>"

    def level(self, now: float) -> float:
        """What is left now, after what the streams in flight are believed to have produced."""
        return self.count.level(now)

    def floor(self) -> float:
        """What is left untouched: room for errors. Windows of whole numbers have none."""
        size, is_window = self.count.size, not isinstance(self.meter, Bucket)
        if self.shared or not (self.exact or is_window):
            calls = 1.0 if self.toll.is_certain and not self.shared else FLOOR_CALLS
            return min(FLOOR_SHARE * size, calls * self.mean_need)
        if self.limit.resource == "spend" or (self.limit.resource == "requests" and is_window):
            return 0.0
        spreads = ERROR_SPREADS if self.exact else WINDOW_SPREADS
        error = spreads * sqrt(self._variance * self._in_flight)
        floor = min(FLOOR_SHARE * size, EXACT_FLOOR * size + error + self.rounding)
        if isinstance(self.count, Projection):
            # What happens within a bin is not looked at.
            floor += min(BIN_SHARE * size, self.limit.rate_per_s * BIN_S)
        return floor

    def spare(self) -> float:
        """What is never used of it, less what comes back of calls in flight."""
        return self.floor() - (0.0 if self.toll.keeps else self.mean_unused * self._in_flight)

    def holds(self) -> float:
        """What a usual call holds until its end, if some of it comes back then."""
        return self.mean_need if self.mean_unused > 0.0 and not self.toll.keeps else 0.0

    def can_ever(self, demand: Demand) -> bool:
        """Whether the call passes once all others have ended and time has mended the rest."""
        whole = self.count.size
        if self.ceiling is not None:
            whole = min(whole, self.ceiling.size)
        is_firm = self.limit.resource == "spend"
        return whole > 0 and not (is_firm and demand.ceiling.spend_microusd > whole)

    def when(self, demand: Demand, stream: Stream, now: float) -> float:
        """The earliest time at which this limit lets the call pass; inf if time alone does not."""
        if not self.can_ever(demand):
            return inf
        need, later, count = self.toll.need(demand), self.toll.later(demand, stream), self.count
        if self._has_plenty:
            left = count.level(now) - need - later - count.planned
            if left >= FLOOR_SHARE * count.size:
                return now
        floor = self.floor()
        until_s = now
        for one in self._counts:
            if isinstance(one, Reserve):
                until_s = max(until_s, one.when(need + later, floor, now))
            else:
                until_s = max(until_s, one.when(need, stream, floor, now))
            # A ceiling is our own: nobody else takes of it, and no reading corrects it.
            floor = 0.0
        return until_s

    def wait(self, demand: Demand, stream: Stream, now: float) -> Wait | None:
        """What holds the call back at this limit, or None if it may pass now."""
        until_s = self.when(demand, stream, now)
        if until_s <= now:
            return None
        reason = "refilling"
        if until_s == inf:
            reason = "calls in flight may use up the rest"
            if not self.can_ever(demand):
                reason = "one call exceeds all that there ever is"
        return Wait(self.limit.name, until_s, reason)

    def charge(self, demand: Demand, stream: Stream, now: float) -> float:
        """Take the call's share; returns what is left right after, free of shifts.

        What is held back is not left: calls have taken some of it already, and how much of that a
        reading will contain is not known.
        """
        need, later = self.toll.need(demand), self.toll.later(demand, stream)
        self._in_flight += 1
        if self._variance == 0 and self.toll.counts_input:
            doubt = demand.ceiling.input_tokens - demand.expected.input_tokens
            self._variance = (max(0.0, doubt) / CEILING_SPREADS) ** 2
        counted = need or later
        self.mean_need += MEMORY * (counted - self.mean_need) if self.mean_need else counted
        for count in self._counts:
            count.charge(need, now)
            count.begin(stream, later, now)
        return self.count.left(now) + self.shift

    def join(self, demand: Demand, stream: Stream, charged: bool, now: float) -> None:
        """A call that was in flight before this limit was known."""
        self._in_flight += 1
        for count in self._counts:
            if charged:
                count.charge(self.toll.need(demand), now)
            count.begin(stream, self.toll.later(demand, stream), now)

    def plan(self, before: Stream, after: Stream, now: float) -> None:
        """A stream turned out to be earlier, later, shorter or longer than planned."""
        if self.toll.flows:
            for count in self._counts:
                count.plan(before, after, now)

    def give_back(
        self, demand: Demand, stream: Stream, sent_s: float, is_counted: bool, now: float
    ) -> None:
        """The call never ran: what it took comes back, unless the provider counts it anyway."""
        need, later = self.toll.need(demand), self.toll.later(demand, stream)
        self._in_flight -= 1
        for count in self._counts:
            count.level(now)
            count.correct(0.0 if is_counted else -need, sent_s, now)
            count.end(stream, later, 0.0, now)

    def settle(
        self, demand: Demand, stream: Stream, sent_s: float, usage: Usage, now: float
    ) -> None:
        """The call ran: correct what was taken to what was used."""
        self._in_flight -= 1
        if self.toll.is_certain:
            return
        used = usage.amounts
        error = self.toll.error(demand, used, refills=isinstance(self.count, Projection))
        self._variance += MEMORY * (error * error - self._variance)
        extra = self.toll.extra(demand, used)
        unused = self.toll.unused(demand, used)
        self.unused += unused
        self.mean_unused += MEMORY * (unused - self.mean_unused) if self.mean_unused else unused
        later, took = self.toll.later(demand, stream), self.toll.used_later(used)
        for count in self._counts:
            count.level(now)
            count.correct(extra, sent_s, now)
            count.end(stream, later, took, now)

    def statistics(self) -> BalanceStatistics:
        count = self.count
        level = count.statistics().level
        return BalanceStatistics(self.limit, level, count.size, count.planned, self._in_flight)


def _meter_of(limit: Limit, now: float) -> AnyMeter:
    if limit.kind == "sliding":
        return SlidingWindow(limit.amount, limit.period_s * (1 + SLIDE_MARGIN))
    return meter_of(limit, now)


def _count_of(meter: AnyMeter, flows: bool, rounding: float, now: float) -> Reserve | Projection:
    if flows and isinstance(meter, Bucket):
        return Projection(meter, now)
    return Reserve(meter, flows, rounding)


def _ceiling_of(limit: Limit, flows: bool, share: float, now: float) -> Reserve | Rolling:
    """At most this share in any period, however the provider counts; of a total, in all."""
    amount, period_s = limit.amount * share, limit.period_s * (1 + CEILING_MARGIN)
    if limit.kind == "gauge":
        return Reserve(Gauge(amount), flows, 0.0)
    if flows:
        return Rolling(amount, period_s, now)
    return Reserve(SlidingWindow(amount, period_s), flows, 0.0)
