"""What is left of one limit, with our calls in flight counted.

Laws:
- A balance charges what the provider will charge, when it will charge it.
- `charge` or `join` begins a call, `settle` or `give_back` ends it, once.
- What calls in flight will still take is foreseen: along their streams where the limit refills,
  as a whole in a window, of which we do not know exactly how the provider counts.
- Money is firm: spent and the ceilings of calls in flight together never exceed the limit.
- A difference found in the past is carried to the present as a shift. Nothing is replayed.
- A user's ceiling is a second limit of ours: at most that share of the limit in any period.
"""

from __future__ import annotations

from math import exp, inf, sqrt
from typing import Final

from msgspec.structs import replace

from headway.base.values import (
    MINUTE_S,
    Charging,
    Demand,
    Limit,
    LimitKind,
    LimitReading,
    Reading,
    Usage,
    Wait,
)
from headway.pacing.headers import Dialect
from headway.pacing.limits import (
    BIN_S,
    Bucket,
    FixedWindow,
    Gauge,
    PlannedStream,
    ReserveMeter,
    SlidingWindow,
    Toll,
    meter_of,
)
from headway.pacing.streams import Projection, Rolling

FLOOR_SHARE: Final = 0.15
FLOOR_CALLS: Final = 3.0
"""Left in a learned limit for others and for our own errors; of calls that are not shared, one."""

EXACT_FLOOR: Final = 1e-6
"""Left in a limit that is known exactly: rounding only..."""

ERROR_SPREADS: Final = 4.0
"""...and so many times the error that our estimates of the calls in flight may add up to."""

BIN_SHARE: Final = 0.5
"""At most this share of a bucket is left for what a projection does not see."""

WINDOW_SPREADS: Final = 1.0
"""Less is left in a learned window: what is not used by its end is lost."""

CEILING_SPREADS: Final = 4.0
"""A demand's ceiling lies about this many spreads above what is expected."""

SLIDE_MARGIN: Final = 1e-3
"""A provider's sliding window is taken to be longer by this share: it may count in grains."""

CEILING_MARGIN: Final = 1e-6
"""Our own is exact but for rounding."""

MEMORY: Final = 0.1
"""How much the newest call moves the mean need and the variance of our errors."""


class Balance:
    """A limit, counted from this side."""

    def __init__(
        self, limit: Limit, charging: Charging, share: float, rounding: float, now: float
    ) -> None:
        self.limit = limit
        self.toll = Toll(limit.resource, charging)
        longer, flows = 1 + SLIDE_MARGIN if limit.kind == "sliding" else 1.0, self.toll.flows
        self.meter = meter_of(replace(limit, period_s=limit.period_s * longer), now)
        """What the provider counts with; readings correct it."""
        self.count = ReserveMeter(self.meter, flows, rounding)
        if flows and isinstance(self.meter, Bucket):
            self.count = Projection(self.meter, now)
        self.ceiling = _ceiling_of(limit, flows, share, now) if share < 1 else None
        self._counts = (self.count,) if self.ceiling is None else (self.count, self.ceiling)
        self._has_plenty = isinstance(self.meter, Bucket) and self.ceiling is None
        """Whether a look at the level may be enough: no floor is above its share."""
        self.rounding = rounding
        """By how much a reading of this limit may be off."""
        self.exact = limit.source == "configured"
        self.shared = False
        """Whether others are known to draw on it."""
        self.shift = 0.0
        """All corrections of the level so far."""
        self.unused = 0.0
        """All that was reserved so far and not used."""
        self._in_flight = 0
        self.mean_need = self.mean_unused = 0.0
        self._variance = 0.0

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

    def when(self, demand: Demand, stream: PlannedStream, now: float) -> float:
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
            until_s = max(until_s, one.when(need, later, stream, floor, now))
            # A ceiling is our own: no other takes of it, and no reading corrects it.
            floor = 0.0
        return until_s

    def wait(self, demand: Demand, stream: PlannedStream, now: float) -> Wait | None:
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

    def charge(self, demand: Demand, stream: PlannedStream, now: float) -> float:
        """Take the call's share; returns what is left and not held back, free of shifts."""
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

    def join(self, demand: Demand, stream: PlannedStream, charged: bool, now: float) -> None:
        """A call that was in flight before this limit was known."""
        self._in_flight += 1
        for count in self._counts:
            if charged:
                count.charge(self.toll.need(demand), now)
            count.begin(stream, self.toll.later(demand, stream), now)

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:
        """A stream turned out to be earlier, later, shorter or longer than planned."""
        if self.toll.flows:
            for count in self._counts:
                count.plan(before, after, now)

    def give_back(
        self, demand: Demand, stream: PlannedStream, sent_s: float, is_counted: bool, now: float
    ) -> None:
        """The call never ran: what it took comes back, unless the provider counts it anyway."""
        need, later = self.toll.need(demand), self.toll.later(demand, stream)
        self._in_flight -= 1
        for count in self._counts:
            count.level(now)
            count.correct(0.0 if is_counted else -need, sent_s, now)
            count.end(stream, later, 0.0, now)

    def settle(
        self, demand: Demand, stream: PlannedStream, sent_s: float, usage: Usage, now: float
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


def _ceiling_of(limit: Limit, flows: bool, share: float, now: float) -> ReserveMeter | Rolling:
    """At most this share in any period, however the provider counts; of a total, in all."""
    amount, period_s = limit.amount * share, limit.period_s * (1 + CEILING_MARGIN)
    if limit.kind == "gauge":
        return ReserveMeter(Gauge(amount), flows, 0.0)
    if flows:
        return Rolling(amount, period_s, now)
    return ReserveMeter(SlidingWindow(amount, period_s), flows, 0.0)


PROOF_CALLS: Final = 8.0
"""Reservations of so many calls have to have been left unused before it is said where they are."""

KEPT: Final = (0.6, 1.4)
"""Reservations are kept if this share of what was not used is missing; some is in flight."""

RETURNED: Final = 0.5
"""If so much of it is there that should not be, it comes back after all."""

DRAW_FLOOR: Final = 0.5
"""We never yield below this share of a limit: beyond it, refusals are the neighbour's."""

DRAW_MEMORY_S: Final = 10.0
"""Neighbours come and go within tens of seconds."""

DRAW_STEP_S: Final = 1.0
"""Readings are taken together over this long: answers arrive in another order than calls left."""

DRAW_LEAST: Final = -0.1
"""By at most this share of a limit, readings with too much make up for those with too little."""

SHARED_DRAW: Final = 0.03
SHARED_CALLS: Final = 2.0
"""A larger share, by more than so many calls of ours at once, is a neighbour's draw."""

SIZES_MIN: Final = 6
SIZES_MEMORY: Final = 100
"""Readings of a bucket's size before their mean is believed, and how many it remembers."""

ROOM: Final = 1.1
"""A refusal although this many times the need is left means that a smaller limit hides behind."""

CHANGED: Final = 0.005
"""A limit that is reported to differ by more than this share has been changed."""

WAIT_UNTOLD_S: Final = 1.0
"""After a refusal that names a limit and no wait."""

RESET_MARGIN_S: Final = 0.02
"""A window that is said to reset at an instant is tried this much later."""

EDGE_MOVED_S: Final = 1.5
"""Resets are rounded to seconds: an edge that is off by less has not moved."""

WINDOW_RESETS: Final = 2.0
"""A limit whose reset lies this many times later than refilling would take is a window."""


class Mirror(Balance):
    """A provider's limit, followed from this side: a balance that readings correct."""

    def __init__(
        self, limit: Limit, charging: Charging, share: float, rounding: float, now: float
    ) -> None:
        super().__init__(limit, charging, share, rounding, now)
        self.burst_s = inf
        self.draw_per_s = 0.0
        self._drawn = 0.0
        self._missing = 0.0
        self._gone = 0.0
        """What was missing since the last proof..."""
        self._unused_before = 0.0
        """...before which so much had been left unused."""
        self._since_s = -inf
        self.read_s = -inf
        self._resized_s = -inf
        self._sizes = 0
        self._size = 0.0

    def adopt(self, reading: LimitReading, at_s: float, now: float) -> None:
        """Start from the first reading: level and window edge."""
        remaining = reading.remaining or 0.0
        meter = self.meter
        if isinstance(meter, FixedWindow):
            meter.boundary_s = at_s + (reading.reset_s or meter.period_s) + RESET_MARGIN_S
            meter.set_level(remaining, now)
        elif isinstance(meter, Bucket):
            meter.set_level(remaining + meter.rate_per_s * (now - at_s), now)
        else:
            meter.charge(meter.limit - remaining, at_s)
        self.read_s = at_s

    def observe(
        self, reading: LimitReading, snapshot: float | None, at_s: float, now: float
    ) -> None:
        """Learn from one response; `snapshot` is what `charge` returned for its call."""
        if reading.remaining is None or at_s < self.read_s:
            return
        known = self.limit.amount
        if reading.limit and abs(reading.limit - known) > CHANGED * known:
            self._resize(reading.limit, now)
            self._resized_s = now
        level = self.level(now)
        meter = self.meter
        if isinstance(meter, FixedWindow):
            self._observe_window(meter, reading, snapshot, at_s)
        elif isinstance(meter, Bucket) and snapshot is not None and at_s > self._resized_s:
            self._observe_bucket(meter, reading, snapshot - self.shift, at_s)
        elif isinstance(meter, Bucket):
            since = reading.remaining + meter.rate_per_s * (now - at_s)
            self._shift_by(meter, max(0.0, level - since), now)
        self.read_s = at_s

    def left(self, reading: Reading, now: float) -> float:
        """What is left by a response's account or, where it does not say, by ours."""
        told = self._told(reading)
        if told is None or told.remaining is None:
            return self.level(now)
        return told.remaining

    def refused(self, demand: Demand, reading: Reading, wait_s: float | None, now: float) -> bool:
        """The provider says that this limit was short. True if by its own account it was not."""
        need, level, meter = self.toll.need(demand), self.level(now), self.meter
        told = self._told(reading)
        remaining = None if told is None else told.remaining
        if wait_s is None:
            wait_s = WAIT_UNTOLD_S
        if isinstance(meter, Bucket):
            if remaining is not None and remaining - 2 * self.rounding > ROOM * need:
                return True
            target = min(level, min(need, meter.capacity) - meter.rate_per_s * wait_s)
            self._shift_by(meter, level - target, now)
        elif isinstance(meter, FixedWindow):
            meter.set_level(min(level, 0.0), now)
            meter.boundary_s = now + wait_s + RESET_MARGIN_S
        else:
            meter.charge(max(0.0, level), now)
        return False

    def as_profile(self) -> Limit:
        """This limit as the next run should start with it."""
        meter = self.meter
        burst = meter.capacity if isinstance(meter, Bucket) else None
        return replace(self.limit, burst=burst, source="profile")

    def _observe_bucket(
        self, bucket: Bucket, reading: LimitReading, predicted: float, at_s: float
    ) -> None:
        rate, remaining = self.limit.rate_per_s, reading.remaining or 0.0
        if reading.reset_s and not self.exact:
            self._size_up(bucket, remaining + rate * reading.reset_s)
        delta = predicted - remaining
        if abs(delta) <= self.rounding:
            delta = 0.0
        in_debt = remaining <= self.rounding
        if delta < 0 and (in_debt or bucket.clipped_s >= at_s):
            # An empty limit may be in debt, which is reported as nothing left; and a level that
            # was full since has lost what the correction would add.
            delta = 0.0
        self._missing += delta
        elapsed = at_s - self._since_s
        if elapsed == inf:
            self._since_s = at_s
        elif elapsed >= DRAW_STEP_S:
            self._draw(bucket, elapsed)
            self._since_s, self._missing = at_s, 0.0
        if delta:
            self._shift_by(bucket, delta, at_s)
        # What was taken for a neighbour's draw is missing as well.
        drawn = self.draw_per_s * (at_s - self.read_s) if self.draw_per_s else 0.0
        if self._keeps_changed(delta + drawn):
            self._drawn = self.draw_per_s = self._missing = 0.0
            bucket.rate_per_s = rate

    def _draw(self, bucket: Bucket, elapsed: float) -> None:
        """Learn from what was missing over some time: others took it."""
        rate = self.limit.rate_per_s
        weight = 1.0 - exp(-elapsed / DRAW_MEMORY_S)
        drawn = self._drawn + weight * self._missing / elapsed
        self._drawn = min(max(DRAW_LEAST * rate, drawn), (1 - DRAW_FLOOR) * rate)
        self.draw_per_s = max(0.0, self._drawn)
        bucket.rate_per_s = rate - self.draw_per_s
        is_much = self._missing > SHARED_CALLS * self.mean_need
        self.shared = self.shared or (is_much and self.draw_per_s > SHARED_DRAW * rate)

    def _keeps_changed(self, missing: float) -> bool:
        """Learn from what a reading misses whether reservations come back; True if that changed."""
        toll = self.toll
        self._gone += missing
        unused = self.unused - self._unused_before
        if unused <= 0.0 or unused < PROOF_CALLS * self.mean_need:
            return False
        share = self._gone / unused
        self._gone, self._unused_before = 0.0, self.unused
        if not (share <= -RETURNED if toll.keeps else KEPT[0] <= share <= KEPT[1]):
            return False
        self.toll = Toll(self.limit.resource, "reserved" if toll.keeps else "kept")
        return True

    def _told(self, reading: Reading) -> LimitReading | None:
        return next((told for told in reading.limits if is_about(self.limit, told)), None)

    def _shift_by(self, bucket: Bucket, delta: float, now: float) -> None:
        """Carry a difference found in the past to the present level."""
        before = bucket.available(now)
        bucket.set_level(before - delta, now)
        self.shift += before - bucket.available(now)

    def _size_up(self, bucket: Bucket, seen: float) -> None:
        """Resets are rounded to seconds, so one reading says little of a small bucket: the mean."""
        self._sizes += 1
        self._size += (seen - self._size) / min(self._sizes, SIZES_MEMORY)
        if self._sizes >= SIZES_MIN:
            most = self.burst_s * self.limit.rate_per_s
            bucket.capacity = min(self.limit.amount, self._size, most)

    def _observe_window(
        self, window: FixedWindow, reading: LimitReading, snapshot: float | None, at_s: float
    ) -> None:
        if reading.reset_s:
            ends = at_s + reading.reset_s + RESET_MARGIN_S
            moved = abs(ends - window.boundary_s) > EDGE_MOVED_S
            if moved and at_s > window.boundary_s - window.period_s:
                window.boundary_s = ends
        if snapshot is not None and at_s > window.boundary_s - window.period_s:
            delta = snapshot - self.shift - (reading.remaining or 0.0)
            if delta > self.rounding:
                window.charge(delta, at_s)
                self.shift += delta
            self._keeps_changed(delta)

    def _resize(self, amount: float, now: float) -> None:
        """The provider changed the limit: same kind, new size, the burst in proportion."""
        limit, meter = self.limit, self.meter
        factor = amount / limit.amount
        burst = None if limit.burst is None else limit.burst * factor
        self.limit = replace(limit, amount=amount, burst=burst)
        if isinstance(meter, Bucket):
            meter.resize(self.limit.rate_per_s, meter.capacity * factor, now)
        else:
            meter.limit = amount
        if self.ceiling is not None:
            self.ceiling.rescale(factor)


def is_about(limit: Limit, told: LimitReading) -> bool:
    """Whether a reading speaks of this limit."""
    return limit.resource == told.resource and told.period_s in (None, limit.period_s)


def discover(told: LimitReading, dialect: Dialect) -> Limit | None:
    """The limit that a first reading speaks of, or None if it says too little."""
    if not told.limit or told.remaining is None:
        return None
    period_s = told.period_s or MINUTE_S
    rate = told.limit / period_s
    kind: LimitKind = dialect.limit_kind or "bucket"
    refill_s = max(0.0, told.limit - told.remaining) / rate
    if told.reset_s and told.reset_s > WINDOW_RESETS * refill_s + WINDOW_RESETS:
        kind = "fixed"
    burst = None
    if kind == "bucket" and told.reset_s:
        burst = min(told.limit, told.remaining + rate * told.reset_s)
    return Limit(told.resource, told.limit, period_s, kind, burst, "header")
