"""One limit as we believe it stands at the provider, corrected by what each response reports.

Laws:
- The mirror charges what the provider will charge, when it will charge it.
- A reading is compared with what the mirror held at the moment the call was admitted, not with
  what it holds now: the difference is somebody else's doing, or our own wrong estimate, and is
  carried to the present as a shift. Nothing is replayed.
- Neighbours' draw lowers the refill we count on, never below `DRAW_FLOOR` of it.
- A user's ceiling is a second limit of ours: at most that share of the limit in any period.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf, sqrt
from typing import Final

from headway.core.quota.outflow import BIN_S, Outflow, Stream
from headway.core.quota.window import AnyMeter, Bucket, FixedWindow, SlidingWindow, meter_of
from headway.core.values import Amounts, Charging, Demand, Limit, LimitReading, Usage

DRAW_FLOOR: Final = 0.5
"""We never yield below this share of a limit: beyond it, refusals are the neighbour's."""

DRAW_MEMORY_S: Final = 10.0
"""Neighbours come and go within tens of seconds."""

FLOOR_SHARE: Final = 0.15
FLOOR_CALLS: Final = 3.0
"""Left in a learned limit for others and for our own errors: small, and it costs no rate."""

EXACT_FLOOR: Final = 1e-6
"""Left in a limit that is known exactly: rounding only..."""

ERROR_SPREADS: Final = 3.0
"""...and so many times the error that our estimates of the calls in flight may add up to."""

CEILING_SPREADS: Final = 4.0
"""A demand's ceiling lies about this many spreads above what is expected."""

SHARED_DRAW: Final = 0.03
"""A draw above this share of a limit is a neighbour's, not an error of ours."""

SIZES_MIN: Final = 6
SIZES_MEMORY: Final = 100
"""Readings of a bucket's size before their mean is believed, and how many it remembers."""

ROOM: Final = 1.1
"""A refusal although this many times the need is left means that a smaller limit hides behind."""

RESET_MARGIN_S: Final = 0.02
"""A window that is said to reset at an instant is tried this much later."""


@dataclass(frozen=True, slots=True)
class MirrorStatistics:
    """One limit as it is believed to stand."""

    limit: Limit
    level: float
    capacity: float
    draw_per_s: float
    planned: float
    read_s: float


class Mirror:
    """A provider's limit, followed from this side."""

    __slots__ = (
        "_error", "_exact", "_flows", "_held", "_in_flight", "_mean_need", "_read_s", "_rounding",
        "_shared", "_shift", "_size", "_sizes", "ceiling", "draw_per_s", "limit", "meter", "outflow",
    )  # fmt: skip

    def __init__(
        self, limit: Limit, charging: Charging, share: float, rounding: float, now: float
    ) -> None:
        self.limit = limit
        self.meter: AnyMeter = meter_of(limit, now)
        self.ceiling = SlidingWindow(limit.amount * share, limit.period_s) if share < 1 else None
        self._flows = charging == "produced" and limit.resource in ("output", "tokens")
        flows_from_bucket = self._flows and limit.kind == "bucket"
        self.outflow = Outflow(now) if flows_from_bucket else None
        self._exact = limit.source == "configured"
        self._held = 0.0
        self._shift = 0.0
        self._read_s = -inf
        self._mean_need = 0.0
        self._rounding = rounding
        self._error = 0.0
        self._in_flight = 0
        self._shared = False
        self._sizes = 0
        self._size = 0.0
        self.draw_per_s = 0.0

    def __repr__(self) -> str:
        return f"<Mirror {self.limit.name} {self.meter!r} draw {self.draw_per_s:.1f}/s>"

    def need(self, demand: Demand) -> float:
        """What admission itself takes of this limit."""
        resource = self.limit.resource
        if resource == "requests":
            return 1.0
        if resource == "input":
            return demand.expected.input_tokens
        if resource == "spend":
            return float(demand.ceiling.spend_microusd)
        reserved = 0.0 if self._flows else demand.ceiling.output_tokens
        return reserved if resource == "output" else demand.expected.input_tokens + reserved

    def level(self, now: float) -> float:
        """What is left now, after what the streams in flight are believed to have produced."""
        if self.outflow is not None and isinstance(self.meter, Bucket):
            self.meter.drain(self.outflow.drain(now), now)
        return self.meter.available(now)

    def floor(self) -> float:
        """What is left untouched."""
        capacity = self._capacity()
        if not self._shared and (self._exact or not isinstance(self.meter, Bucket)):
            error = ERROR_SPREADS * self._error * sqrt(self._in_flight)
            return min(FLOOR_SHARE * capacity, EXACT_FLOOR * capacity + error + self._rounding)
        return min(FLOOR_SHARE * capacity, FLOOR_CALLS * self._mean_need)

    def when(self, demand: Demand, stream: Stream, now: float) -> float:
        """The earliest time at which this limit lets the call pass."""
        need = self.need(demand)
        later = stream.tokens if self._flows else 0.0
        until = now
        if self.ceiling is not None:
            until = self.ceiling.when(need + later + self._held, now)
        level = self.level(now)
        if self.outflow is not None and isinstance(self.meter, Bucket):
            return max(until, self._when_flowing(self.meter, need, stream, level, now))
        if self._flows:
            need += later + self._held
        floor = self.floor()
        if isinstance(self.meter, Bucket) and need + floor > self.meter.capacity:
            return max(until, self._when_full(self.meter, floor, now))
        return max(until, self.meter.when(need + floor, now))

    def charge(self, demand: Demand, stream: Stream, now: float) -> float:
        """Take the call's share; returns what the level was right after, free of shifts."""
        need = self.need(demand)
        self.meter.charge(need, now)
        self._in_flight += 1
        if self._error == 0 and self.limit.resource in ("input", "tokens"):
            doubt = demand.ceiling.input_tokens - demand.expected.input_tokens
            self._error = max(0.0, doubt) / CEILING_SPREADS
        if self._flows:
            self._held += stream.tokens
            if self.outflow is not None:
                self.outflow.add(stream, now)
        if self.ceiling is not None:
            self.ceiling.charge(need, now)
        counted = need if need > 0 else stream.tokens
        self._mean_need += 0.1 * (counted - self._mean_need) if self._mean_need else counted
        return self.meter.available(now) + self._shift

    def plan(self, before: Stream, after: Stream, now: float) -> None:
        """A stream turned out to be earlier, later, shorter or longer than planned."""
        self._held += after.tokens - before.tokens
        if self.outflow is not None and isinstance(self.meter, Bucket):
            self.level(now)
            self.outflow.add(before, now, -1.0)
            self._correct(after.produced(now) - before.produced(now), now)
            self.outflow.add(after, now)

    def give_back(self, demand: Demand, stream: Stream, now: float) -> None:
        """The call never ran: everything it took comes back."""
        need = self.need(demand)
        self.level(now)
        self._in_flight -= 1
        self.meter.refund(need, now)
        if self.ceiling is not None:
            self.ceiling.refund(need, now)
        self._end_stream(stream, 0.0, now)

    def settle(self, demand: Demand, stream: Stream, usage: Usage, now: float) -> None:
        """The call ran: correct what was taken to what was used."""
        need = self.need(demand)
        actual = self._used(usage.amounts)
        self.level(now)
        self._in_flight -= 1
        if self.limit.resource in ("input", "tokens"):
            error = abs(usage.amounts.input_tokens - demand.expected.input_tokens)
            self._error += 0.1 * (error - self._error)
        self._correct(actual - need, now)
        if self.ceiling is not None and actual != need:
            self._adjust(self.ceiling, actual - need, now)
        self._end_stream(stream, usage.amounts.output_tokens, now)

    def adopt(self, reading: LimitReading, at_s: float, now: float) -> None:
        """Start from the first reading: level, window edge, rounding."""
        remaining = reading.remaining or 0.0
        if isinstance(self.meter, FixedWindow):
            self.meter.boundary_s = at_s + (reading.reset_s or self.meter.period_s) + RESET_MARGIN_S
            self.meter.set_level(remaining, now)
        elif isinstance(self.meter, Bucket):
            self.meter.set_level(remaining + self.meter.rate_per_s * (now - at_s), now)
        else:
            self.meter.charge(self.meter.limit - remaining, at_s)
        self._read_s = at_s

    def join(self, demand: Demand, stream: Stream, charged: bool, now: float) -> None:
        """A call that was in flight before this limit was known."""
        self._in_flight += 1
        if charged:
            self.meter.charge(self.need(demand), now)
        if self._flows:
            self._held += stream.tokens
            if self.outflow is not None:
                self.outflow.add(stream, now)

    def observe(self, reading: LimitReading, snapshot: float | None, at_s: float, now: float) -> None:
        """Learn from one response; `snapshot` is what `charge` returned for its call."""
        if reading.remaining is None or at_s < self._read_s:
            return
        if reading.limit is not None and abs(reading.limit - self.limit.amount) > (
            0.005 * self.limit.amount
        ):
            self._resize(reading, now)
        level = self.level(now)
        if isinstance(self.meter, FixedWindow):
            self._observe_window(self.meter, reading, snapshot, at_s)
        elif isinstance(self.meter, Bucket) and snapshot is not None:
            self._observe_bucket(self.meter, reading, snapshot - self._shift, at_s)
        elif isinstance(self.meter, Bucket):
            since = reading.remaining + self.meter.rate_per_s * (now - at_s)
            self._shift_by(max(0.0, level - since), now)
        self._read_s = at_s

    def refused(
        self, need: float, told: LimitReading | None, wait_s: float | None, now: float
    ) -> bool:
        """The provider says that this limit was short. True if by its own account it was not."""
        if wait_s is None:
            wait_s = 1.0
        level = self.level(now)
        if isinstance(self.meter, Bucket):
            if told is not None and told.remaining is not None and (
                told.remaining - 2 * self._rounding > ROOM * need
            ):
                return True
            target = min(level, min(need, self.meter.capacity) - self.meter.rate_per_s * wait_s)
            self._shift_by(level - target, now)
        elif isinstance(self.meter, FixedWindow):
            self.meter.set_level(min(level, 0.0), now)
            self.meter.boundary_s = now + wait_s + RESET_MARGIN_S
        else:
            self.meter.charge(max(0.0, level), now)
        return False

    def statistics(self) -> MirrorStatistics:
        return MirrorStatistics(
            self.limit, self.meter.statistics().available, self._capacity(), self.draw_per_s,
            self.outflow.planned if self.outflow else self._held, self._read_s,
        )  # fmt: skip

    def as_profile(self) -> Limit:
        """This limit as the next run should start with it."""
        burst = self.meter.capacity if isinstance(self.meter, Bucket) else None
        return replace(self.limit, burst=burst, source="profile")

    def _used(self, used: Amounts) -> float:
        """What of real consumption this limit charges outside the stream."""
        resource = self.limit.resource
        if resource == "requests":
            return 1.0
        if resource == "spend":
            return float(used.spend_microusd)
        output = 0.0 if self._flows else used.output_tokens
        inputs = 0.0 if resource == "output" else used.input_tokens
        return inputs if resource == "input" else inputs + output

    def _capacity(self) -> float:
        return self.meter.capacity if isinstance(self.meter, Bucket) else self.meter.limit

    def _when_full(self, bucket: Bucket, floor: float, now: float) -> float:
        """A call as large as the limit waits until it is full, and full beyond our errors."""
        full_s = bucket.when(bucket.capacity, now)
        if full_s <= now:
            full_s = bucket.full_s
        return max(now, full_s + (floor + self._rounding) / bucket.rate_per_s)

    def _when_flowing(
        self, bucket: Bucket, need: float, stream: Stream, level: float, now: float
    ) -> float:
        """Bucket and outflow together: the first half second in which the level stays above."""
        outflow = self.outflow
        if outflow is None:
            return now
        floor = self.floor()
        if level - need - outflow.planned - stream.tokens >= floor:
            return now
        idle = outflow.planned <= EXACT_FLOOR * stream.tokens
        if idle and level >= bucket.capacity * (1 - EXACT_FLOOR):
            return now
        rate = bucket.rate_per_s

        def lowest(delay_s: float) -> float:
            # The candidate pays its admission at once and its stream from `delay_s` later on.
            later = Stream(stream.from_s + delay_s, stream.to_s + delay_s, stream.tokens)
            ahead = min(bucket.capacity, level + rate * delay_s) - level if need else 0.0
            return outflow.lowest(level - max(0.0, need - ahead), rate, bucket.capacity, later)

        if lowest(0.0) >= floor:
            return now
        low, high = 0, 2
        while high < 256 and lowest(high * BIN_S) < floor:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            if lowest(middle * BIN_S) >= floor:
                high = middle
            else:
                low = middle
        return now + high * BIN_S

    def _correct(self, extra: float, now: float) -> None:
        self._adjust(self.meter, extra, now)

    @staticmethod
    def _adjust(meter: AnyMeter, extra: float, now: float) -> None:
        if extra > 0:
            meter.charge(extra, now)
        elif extra < 0:
            meter.refund(-extra, now)

    def _end_stream(self, stream: Stream, used: float, now: float) -> None:
        if not self._flows:
            return
        self._held = max(0.0, self._held - stream.tokens)
        if self.outflow is not None:
            self.outflow.add(stream, now, -1.0)
            self._correct(used - stream.produced(now), now)
        elif isinstance(self.meter, SlidingWindow):
            self.meter.charge_spread(used, min(stream.from_s, now), now)
        else:
            self.meter.charge(used, now)
        if self.ceiling is not None:
            self.ceiling.charge_spread(used, min(stream.from_s, now), now)

    def _shift_by(self, delta: float, now: float) -> None:
        """Carry a difference found in the past to the present level."""
        if isinstance(self.meter, Bucket):
            before = self.meter.available(now)
            self.meter.set_level(before - delta, now)
            self._shift += before - self.meter.available(now)

    def _observe_bucket(
        self, bucket: Bucket, reading: LimitReading, predicted: float, at_s: float
    ) -> None:
        now = max(at_s, self._read_s) if self._read_s > -inf else at_s
        remaining = reading.remaining or 0.0
        if reading.reset_s and not self._exact:
            self._size_up(bucket, remaining + self.limit.rate_per_s * reading.reset_s)
        delta = predicted - remaining
        if abs(delta) <= self._rounding:
            delta = 0.0
        in_debt = remaining <= self._rounding
        if delta < 0 and (in_debt or bucket.clipped_s >= at_s):
            # An empty limit may be in debt, which is reported as nothing left; and a level that
            # was full since has lost what the correction would add.
            delta = 0.0
        elapsed = now - self._read_s if self._read_s > -inf else 0.0
        if elapsed > 0:
            weight = 1.0 - exp(-elapsed / DRAW_MEMORY_S)
            drawn = self.draw_per_s + weight * delta / elapsed
            self.draw_per_s = min(max(0.0, drawn), (1 - DRAW_FLOOR) * self.limit.rate_per_s)
            bucket.rate_per_s = self.limit.rate_per_s - self.draw_per_s
            self._shared = self._shared or self.draw_per_s > SHARED_DRAW * self.limit.rate_per_s
        if delta:
            self._shift_by(delta, at_s)

    def _size_up(self, bucket: Bucket, seen: float) -> None:
        """Resets are rounded to seconds, so one reading says little of a small bucket: take the mean."""
        self._sizes += 1
        self._size += (seen - self._size) / min(self._sizes, SIZES_MEMORY)
        if self._sizes >= SIZES_MIN:
            bucket.capacity = min(self.limit.amount, self._size)

    def _observe_window(
        self, window: FixedWindow, reading: LimitReading, snapshot: float | None, at_s: float
    ) -> None:
        if reading.reset_s:
            ends = at_s + reading.reset_s + RESET_MARGIN_S
            if abs(ends - window.boundary_s) > 1.5 and at_s > window.boundary_s - window.period_s:
                window.boundary_s = ends
        if snapshot is not None and at_s > window.boundary_s - window.period_s:
            delta = snapshot - self._shift - (reading.remaining or 0.0)
            if delta > self._rounding:
                window.charge(delta, at_s)
                self._shift += delta

    def _resize(self, reading: LimitReading, now: float) -> None:
        """The provider changed the limit: same kind, new size, the burst in proportion."""
        amount = reading.limit or self.limit.amount
        factor = amount / self.limit.amount
        burst = None if self.limit.burst is None else self.limit.burst * factor
        self.limit = replace(self.limit, amount=amount, burst=burst)
        if isinstance(self.meter, Bucket):
            self.meter.resize(self.limit.rate_per_s, self.meter.capacity * factor, now)
        else:
            self.meter.limit = amount
        if self.ceiling is not None:
            self.ceiling.limit *= factor
