"""What is left of one limit, and what our own calls in flight still take of it.

Laws:
- A balance charges what the provider will charge, when it will charge it.
- What a call took comes back or becomes what it used, once: `charge` or `join` begins it,
  `settle` or `give_back` ends it.
- What calls in flight will still take counts as taken in a window: there, debt is not repaid.
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
from headway.core.quota.toll import Toll
from headway.core.quota.window import (
    AnyMeter,
    Bucket,
    FixedWindow,
    Gauge,
    SlidingWindow,
    meter_of,
)
from headway.core.values import Charging, Demand, Limit, Usage, Wait

FLOOR_SHARE: Final = 0.15
FLOOR_CALLS: Final = 3.0
"""Left in a learned limit for others and for our own errors: small, and it costs no rate."""

EXACT_FLOOR: Final = 1e-6
"""Left in a limit that is known exactly: rounding only..."""

ERROR_SPREADS: Final = 4.0
"""...and so many times the error that our estimates of the calls in flight may add up to."""

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
        "_held", "_in_flight", "_mean_need", "_plenty", "_variance", "ceiling", "exact", "limit",
        "meter", "projection", "rounding", "shared", "shift", "toll",
    )  # fmt: skip

    def __init__(
        self, limit: Limit, charging: Charging, share: float, rounding: float, now: float
    ) -> None:
        self.limit = limit
        self.toll = Toll(limit.resource, charging)
        self.meter: AnyMeter = _meter_of(limit, now)
        self.ceiling = _ceiling_of(limit, share) if share < 1 else None
        self.rounding = rounding
        """By how much a reading of this limit may be off."""
        self.exact = limit.source == "configured"
        self.shared = False
        """Whether somebody else is known to draw on it."""
        self.shift = 0.0
        """All corrections of the level so far."""
        self.projection: Projection | None = None
        if self.toll.flows and isinstance(self.meter, Bucket):
            self.projection = Projection(self.meter, now)
        self._plenty = self.meter if isinstance(self.meter, Bucket) and share >= 1 else None
        """The bucket, where a look at its level may be enough: no floor is above its share."""
        self._held = 0.0
        self._in_flight = 0
        self._mean_need = 0.0
        self._variance = 0.0

    def __repr__(self) -> str:
        return f"<Balance {self.limit.name} {self.meter!r}>"

    def level(self, now: float) -> float:
        """What is left now, after what the streams in flight are believed to have produced."""
        return self.projection.level(now) if self.projection else self.meter.available(now)

    def floor(self) -> float:
        """What is left untouched: room for errors. Windows of whole numbers have none."""
        capacity = _size(self.meter)
        is_window = not isinstance(self.meter, Bucket)
        if self.shared or not (self.exact or is_window):
            return min(FLOOR_SHARE * capacity, FLOOR_CALLS * self._mean_need)
        if self.limit.resource == "spend" or (self.limit.resource == "requests" and is_window):
            return 0.0
        spreads = ERROR_SPREADS if self.exact else WINDOW_SPREADS
        error = spreads * sqrt(self._variance * self._in_flight)
        if self.projection is not None:
            # What happens within a bin is not looked at.
            error += self.limit.rate_per_s * BIN_S
        return min(FLOOR_SHARE * capacity, EXACT_FLOOR * capacity + error + self.rounding)

    def can_ever(self, demand: Demand) -> bool:
        """Whether the call passes once all others have ended and time has mended the rest."""
        whole = _size(self.meter)
        if self.ceiling is not None:
            whole = min(whole, _size(self.ceiling))
        is_firm = self.limit.resource == "spend"
        return whole > 0 and not (is_firm and demand.ceiling.spend_microusd > whole)

    def when(self, demand: Demand, stream: Stream, now: float) -> float:
        """The earliest time at which this limit lets the call pass; inf if time alone does not."""
        need, later = self.toll.need(demand), self.toll.later(demand, stream)
        if self._plenty is not None:
            planned = self.projection.outflow.planned if self.projection else 0.0
            if self.level(now) - need - later - planned >= FLOOR_SHARE * self._plenty.capacity:
                return now
        if not self.can_ever(demand):
            return inf
        until_s = now
        if self.ceiling is not None:
            until_s = _when_room(self.ceiling, need + later, self._held, now)
        floor = self.floor()
        if self.projection is not None:
            return max(until_s, self.projection.when(need, stream, floor, now))
        if isinstance(self.meter, Bucket) and need + floor > self.meter.capacity:
            return max(until_s, _when_full(self.meter, floor + self.rounding, now))
        return max(until_s, _when_room(self.meter, need + later + floor, self._held, now))

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

        Of a window, what calls in flight will still take is not left: they have taken some of it
        already, and how much of that a reading will contain is not known.
        """
        need = self.toll.need(demand)
        self.meter.charge(need, now)
        if self._variance == 0 and self.toll.counts_input:
            doubt = demand.ceiling.input_tokens - demand.expected.input_tokens
            self._variance = (max(0.0, doubt) / CEILING_SPREADS) ** 2
        if self.ceiling is not None:
            self.ceiling.charge(need, now)
        self._begin(demand, stream, now)
        counted = need or self.toll.later(demand, stream)
        self._mean_need += MEMORY * (counted - self._mean_need) if self._mean_need else counted
        held = 0.0 if self.projection else self._held
        return self.meter.available(now) + self.shift - held

    def join(self, demand: Demand, stream: Stream, charged: bool, now: float) -> None:
        """A call that was in flight before this limit was known."""
        if charged:
            self.meter.charge(self.toll.need(demand), now)
        self._begin(demand, stream, now)

    def plan(self, before: Stream, after: Stream, now: float) -> None:
        """A stream turned out to be earlier, later, shorter or longer than planned."""
        if self.toll.flows:
            self._held += after.tokens - before.tokens
        if self.projection is not None:
            outflow = self.projection.outflow
            self.level(now)
            outflow.add(before, now, -1.0)
            _correct(self.meter, after.produced(now) - before.produced(now), now, now)
            outflow.add(after, now)

    def give_back(
        self, demand: Demand, stream: Stream, sent_s: float, is_counted: bool, now: float
    ) -> None:
        """The call never ran: what it took comes back, unless the provider counts it anyway."""
        self.level(now)
        need = 0.0 if is_counted else self.toll.need(demand)
        _correct(self.meter, -need, sent_s, now)
        _correct(self.ceiling, -need, sent_s, now)
        self._end(demand, stream, 0.0, now)

    def settle(
        self, demand: Demand, stream: Stream, sent_s: float, usage: Usage, now: float
    ) -> None:
        """The call ran: correct what was taken to what was used."""
        if self.toll.is_certain:
            self._in_flight -= 1
            return
        used = usage.amounts
        self.level(now)
        error = self.toll.error(demand, used, refills=self.projection is not None)
        self._variance += MEMORY * (error * error - self._variance)
        extra = self.toll.used(used) - self.toll.need(demand)
        _correct(self.meter, extra, sent_s, now)
        _correct(self.ceiling, extra, sent_s, now)
        self._end(demand, stream, self.toll.used_later(used), now)

    def statistics(self) -> BalanceStatistics:
        planned = self.projection.outflow.planned if self.projection else self._held
        level = self.meter.statistics().available
        return BalanceStatistics(self.limit, level, _size(self.meter), planned, self._in_flight)

    def _begin(self, demand: Demand, stream: Stream, now: float) -> None:
        self._in_flight += 1
        self._held += self.toll.later(demand, stream)
        if self.projection is not None:
            self.projection.outflow.add(stream, now)

    def _end(self, demand: Demand, stream: Stream, used: float, now: float) -> None:
        self._in_flight -= 1
        # Sums of floats drift: with nothing in flight, nothing is held.
        self._held = self._held - self.toll.later(demand, stream) if self._in_flight else 0.0
        since_s = min(stream.from_s, now) if self.toll.flows else now
        if self.projection is not None:
            self.projection.outflow.add(stream, now, -1.0)
            _correct(self.meter, used - stream.produced(now), now, now)
        elif used > 0:
            _charge_since(self.meter, used, since_s, now)
        if self.ceiling is not None and used > 0:
            _charge_since(self.ceiling, used, since_s, now)


def _size(meter: AnyMeter) -> float:
    """The most that can be taken at one instant."""
    return meter.capacity if isinstance(meter, Bucket) else meter.limit


def _meter_of(limit: Limit, now: float) -> AnyMeter:
    if limit.kind == "sliding":
        return SlidingWindow(limit.amount, limit.period_s * (1 + SLIDE_MARGIN))
    return meter_of(limit, now)


def _ceiling_of(limit: Limit, share: float) -> SlidingWindow | Gauge:
    """At most this share in any period, however the provider counts; of a total, in all."""
    if limit.kind == "gauge":
        return Gauge(limit.amount * share)
    return SlidingWindow(limit.amount * share, limit.period_s * (1 + CEILING_MARGIN))


def _correct(meter: AnyMeter | None, extra: float, charged_s: float, now: float) -> None:
    """Correct an earlier charge: as of then in a sliding window, elsewhere as of now."""
    if isinstance(meter, SlidingWindow):
        meter.amend(extra, charged_s, now)
    elif meter is not None and extra > 0:
        meter.charge(extra, now)
    elif meter is not None:
        meter.refund(-extra, now)


def _charge_since(meter: AnyMeter, used: float, since_s: float, now: float) -> None:
    """What was taken evenly since a time: a window counts only what falls into it."""
    if isinstance(meter, SlidingWindow):
        meter.charge_spread(used, since_s, now)
    elif isinstance(meter, FixedWindow):
        meter.available(now)
        inside_s = now - max(since_s, meter.boundary_s - meter.period_s)
        meter.charge(used * inside_s / (now - since_s) if now > since_s else used, now)
    else:
        meter.charge(used, now)


def _when_room(meter: AnyMeter, amount: float, held: float, now: float) -> float:
    """When `amount` fits beside what calls in flight will still take.

    A call larger than the whole limit goes alone, when the limit is full. Where calls in flight
    leave too little of the whole, only their end makes room: that is no matter of time.
    """
    whole = _size(meter)
    amount = min(amount, whole)
    return meter.when(amount + held, now) if amount + held <= whole else inf


def _when_full(bucket: Bucket, margin: float, now: float) -> float:
    """A call as large as the limit waits until it is full, and full beyond our errors."""
    full_s = bucket.when(bucket.capacity, now)
    if full_s <= now:
        full_s = bucket.full_s
    return max(now, full_s + margin / bucket.rate_per_s)
