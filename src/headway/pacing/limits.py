"""One limit over time: buckets, windows, gauges; what is left and when there is enough.

Laws:
- Buckets refill, windows forget, gauges are given back: three ways to count, three types, one
  set of verbs (`available`, `charge`, `refund`, `when`).
- `when(amount)` is the earliest instant at which `amount` is available if nothing else is charged.
- A call larger than the whole limit waits for the limit to be full and then goes into debt:
  it cannot be served sooner, and it must not wait for ever.
- Time never runs backwards: a `now` before the last one counts as the last one.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

from msgspec import Struct

from headway.base.values import Amounts, Charging, Demand, Limit, Resource

# Expected output of the streams in flight, by time: what a bucket will lose before it is asked.

BIN_S: Final = 0.5
BINS: Final = 256
"""Two minutes ahead: longer answers are planned as if they ended there and extended later."""

HORIZON_S: Final = BIN_S * (BINS - 2)


class PlannedStream(Struct, frozen=True):
    """An answer as planned: so many tokens, evenly, between two times."""

    from_s: float
    to_s: float
    tokens: float

    def produced(self, now: float) -> float:
        """How much of the plan lies before `now`."""
        if now <= self.from_s:
            return 0.0
        if now >= self.to_s:
            return self.tokens
        return self.tokens * (now - self.from_s) / (self.to_s - self.from_s)


class Outflow:
    """A ring of half-second bins, kept as changes: a stream costs the same however long it is.

    Bin i loses `flow(i) + part[i]`, where flow(i) is the sum of all steps up to i: a stream is one
    step up, one step down, and two parts where it begins and ends inside a bin. Of the present bin
    only what is still to come is kept.
    """

    __slots__ = ("_at_s", "_bin", "_flow", "_parts", "_rest", "_steps", "planned", "until_s")

    def __init__(self, now: float) -> None:
        self._steps = [0.0] * BINS
        self._parts = [0.0] * BINS
        self._bin = int(now / BIN_S)
        self._flow = 0.0
        self._rest = 0.0
        self._at_s = now
        self.planned = 0.0
        self.until_s = now

    def add(self, stream: PlannedStream, now: float, sign: float = 1.0) -> None:
        """Plan what is left of a stream at `now`, or take it off the plan with sign -1."""
        start = max(now, stream.from_s)
        tokens = stream.tokens - stream.produced(now)
        end = max(stream.to_s, start + 1e-6)
        if tokens <= 0:
            return
        index = max(self._bin, int(start / BIN_S))
        last = max(index, int(end / BIN_S))
        if index == last:
            self._put(index, sign * tokens)
        else:
            rate = sign * tokens / (end - start)
            self._put(index, rate * ((index + 1) * BIN_S - start))
            self._put(last, rate * (end - last * BIN_S))
            self._steps[(index + 1) % BINS] += rate * BIN_S
            self._steps[last % BINS] -= rate * BIN_S
        self.planned += sign * tokens
        self.until_s = max(self.until_s, end)

    def drain(self, now: float) -> float:
        """What the plans say was produced since the last time; it leaves the bins."""
        if now <= self._at_s:
            return 0.0
        total = 0.0
        target = int(now / BIN_S)
        steps, parts = self._steps, self._parts
        for i in range(self._bin, min(target, self._bin + BINS)):
            total += self._rest
            place = (i + 1) % BINS
            self._flow += steps[place]
            self._rest = self._flow + parts[place]
            steps[place] = parts[place] = 0.0
        self._bin = target
        begin = max(self._at_s, target * BIN_S)
        part = self._rest * (now - begin) / ((target + 1) * BIN_S - begin)
        self._rest -= part
        self._at_s = now
        self.planned -= total + part
        return total + part

    def bin_end_s(self) -> float:
        return (self._bin + 1) * BIN_S

    def lowest(
        self,
        level: float,
        rate_per_s: float,
        capacity: float,
        stream: PlannedStream,
        since_s: float,
    ) -> float:
        """The lowest level from `since_s` on if `stream` is added: refill and outflow, bin by bin.

        Only the ends of bins are looked at, and only as far as any plan reaches: after that the
        level can but rise. Called with the outflow drained to the present.
        """
        now, steps, parts = self._at_s, self._steps, self._parts
        last = int(max(self.until_s, stream.to_s) / BIN_S) + 1
        flow, lost, planned_to = self._flow, self._rest, self._bin + BINS
        from_s, to_s = stream.from_s, max(stream.to_s, stream.from_s + 1e-6)
        pace = stream.tokens / (to_s - from_s)
        lowest = level if since_s <= now else inf
        at = now
        refill = rate_per_s * BIN_S
        for i in range(self._bin, last):
            end = (i + 1) * BIN_S
            gain = refill if at == end - BIN_S else rate_per_s * (end - at)
            begin = at if at > from_s else from_s
            stop = end if end < to_s else to_s
            if stop > begin:
                lost += pace * (stop - begin)
            level += gain - lost
            level = min(level, capacity)
            if level < lowest and end > since_s:
                lowest = level
            at = end
            lost = 0.0
            if i + 1 < planned_to:
                flow += steps[(i + 1) % BINS]
                lost = flow + parts[(i + 1) % BINS]
        return lowest

    def _put(self, index: int, amount: float) -> None:
        """So much within one bin; of the present one it is still to come."""
        if index == self._bin:
            self._rest += amount
        else:
            self._parts[index % BINS] += amount


GRAINS_PER_PERIOD: Final = 2000
"""Charges closer together than a 2,000th of the period are kept as one, stamped with the later
time: a sliding window then holds at most 2,000 entries and errs on the safe side."""

SLACK: Final = 1e-9
"""Relative rounding slack: a level that misses a need by less has reached it."""


class Bucket:
    """A level that refills at `rate_per_s` up to `capacity`."""

    __slots__ = ("_at_s", "_level", "capacity", "clipped_s", "full_s", "rate_per_s")

    def __init__(self, rate_per_s: float, capacity: float, now: float) -> None:
        self.rate_per_s = rate_per_s
        self.capacity = capacity
        self.clipped_s = now
        """When refill was last lost because the bucket was full."""
        self.full_s = now
        """Since when it is full, if it is."""
        self._level = capacity
        self._at_s = now

    def available(self, now: float) -> float:
        level = self._level
        if now > self._at_s:
            level += self.rate_per_s * (now - self._at_s)
            if level >= self.capacity:
                if self._level < self.capacity:
                    self.full_s = now - (level - self.capacity) / self.rate_per_s
                level = self.capacity
                self.clipped_s = now
            self._level = level
            self._at_s = now
        return level

    def charge(self, amount: float, now: float) -> None:
        self._level = self.available(now) - amount

    def refund(self, amount: float, now: float) -> None:
        self._level = min(self.capacity, self.available(now) + amount)

    def drain(self, amount: float, now: float) -> None:
        """Charge what flowed out evenly since the last time: refill and outflow meet halfway."""
        elapsed = max(0.0, now - self._at_s)
        level = self._level + self.rate_per_s * elapsed - amount
        self._at_s = max(now, self._at_s)
        if level >= self.capacity:
            self.clipped_s = self._at_s
        self._level = min(self.capacity, level)

    def set_level(self, level: float, now: float) -> None:
        """Adopt a level that the provider has reported."""
        self.available(now)
        self._level = min(self.capacity, level)

    def resize(self, rate_per_s: float, capacity: float, now: float) -> None:
        """The limit changed: debts stay, what exceeds the new capacity is gone."""
        level = self.available(now)
        self.rate_per_s = rate_per_s
        self.capacity = capacity
        self._level = min(level, capacity)

    def when(self, amount: float, now: float) -> float:
        missing = min(amount, self.capacity) - self.available(now)
        if missing <= SLACK * max(1.0, amount):
            return now
        return max(now, self._at_s) + missing / self.rate_per_s if self.rate_per_s > 0 else inf


class SlidingWindow:
    """At most `limit` in any `period_s` seconds."""

    __slots__ = ("_charges", "_opened_s", "_used", "limit", "period_s")

    def __init__(self, limit: float, period_s: float) -> None:
        self.limit = limit
        self.period_s = period_s
        self._charges: deque[tuple[float, float]] = deque()
        self._opened_s = -inf
        """When the newest entry was begun: without it, entries that follow each other closely
        would become one that is renewed for ever."""
        self._used = 0.0

    def available(self, now: float) -> float:
        charges = self._charges
        # Rounded as in `when`, so that what was told to be free by then is free then.
        while charges and charges[0][0] + self.period_s <= now:
            self._used -= charges.popleft()[1]
        if not charges:
            self._used = 0.0
        return self.limit - self._used

    def charge(self, amount: float, now: float) -> None:
        self.available(now)
        charges = self._charges
        grain = self.period_s / GRAINS_PER_PERIOD
        if charges and now - self._opened_s < grain:
            at, held = charges.pop()
            charges.append((max(at, now), held + amount))
        else:
            charges.append((now, amount))
            self._opened_s = now
        self._used += amount

    def charge_spread(self, amount: float, from_s: float, now: float) -> None:
        """Charge what was produced evenly since `from_s`, in quarters stamped at their ends."""
        self.available(now)
        charges = self._charges
        for quarter in (1, 2, 3, 4):
            at = from_s + (now - from_s) * quarter / 4
            if at <= now - self.period_s:
                continue
            index = len(charges)
            while index > 0 and charges[index - 1][0] > at:
                index -= 1
            charges.insert(index, (at, amount / 4))
            self._used += amount / 4

    def amend(self, extra: float, charged_s: float, now: float) -> None:
        """Correct a charge made at `charged_s`; what is forgotten already stays so."""
        self.available(now)
        charges = self._charges
        index = len(charges)
        while index > 0 and charges[index - 1][0] >= charged_s:
            index -= 1
        # Charges of one grain share an entry, and several entries may share a time.
        while charged_s > now - self.period_s and index < len(charges) and extra != 0:
            at, held = charges[index]
            kept = max(0.0, held + extra)
            charges[index] = (at, kept)
            self._used += kept - held
            extra -= kept - held
            index += 1

    def refund(self, amount: float, now: float) -> None:
        """The newest charges are the ones given back: the oldest may be forgotten already."""
        self.available(now)
        charges = self._charges
        while amount > 0 and charges:
            at, held = charges.pop()
            kept = held - amount
            self._used -= min(held, amount)
            if kept > 0:
                charges.append((at, kept))
            else:
                self._opened_s = -inf
            amount -= held

    def when(self, amount: float, now: float) -> float:
        missing = min(amount, self.limit) - self.available(now)
        for at, held in self._charges:
            if missing <= SLACK * max(1.0, amount):
                break
            missing -= held
            now = at + self.period_s
        return now


class FixedWindow:
    """At most `limit` between one aligned boundary and the next, `period_s` later."""

    __slots__ = ("boundary_s", "limit", "period_s", "used")

    def __init__(self, limit: float, period_s: float, boundary_s: float) -> None:
        self.limit = limit
        self.period_s = period_s
        self.boundary_s = boundary_s
        """When the current window ends."""
        self.used = 0.0

    def available(self, now: float) -> float:
        if now >= self.boundary_s:
            periods = int((now - self.boundary_s) // self.period_s) + 1
            self.boundary_s += periods * self.period_s
            self.used = 0.0
        return self.limit - self.used

    def charge(self, amount: float, now: float) -> None:
        self.available(now)
        self.used += amount

    def refund(self, amount: float, now: float) -> None:
        self.available(now)
        self.used = max(0.0, self.used - amount)

    def set_level(self, level: float, now: float) -> None:
        """Adopt the remainder that the provider has reported."""
        self.available(now)
        self.used = self.limit - level

    def when(self, amount: float, now: float) -> float:
        missing = min(amount, self.limit) - self.available(now)
        return now if missing <= SLACK * max(1.0, amount) else self.boundary_s


class Gauge:
    """At most `limit` held at once. Time does nothing: only a refund makes room."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.held = 0.0

    def available(self, now: float) -> float:  # noqa: ARG002 - the verb is the meters' own
        return self.limit - self.held

    def charge(self, amount: float, now: float) -> None:  # noqa: ARG002
        self.held += amount

    def refund(self, amount: float, now: float) -> None:  # noqa: ARG002
        self.held -= amount

    def when(self, amount: float, now: float) -> float:
        return now if self.available(now) >= amount else inf


AnyMeter = Bucket | SlidingWindow | FixedWindow | Gauge


def meter_of(limit: Limit, now: float) -> AnyMeter:
    """The meter that counts as `limit` counts; buckets and windows start full."""
    if limit.kind == "bucket":
        return Bucket(limit.rate_per_s, limit.capacity, now)
    if limit.kind == "sliding":
        return SlidingWindow(limit.amount, limit.period_s)
    if limit.kind == "fixed":
        return FixedWindow(limit.amount, limit.period_s, now + limit.period_s)
    return Gauge(limit.amount)


# A limit, and what calls in flight hold back of it until they end.


class ReserveMeter:
    """One meter, counted as if everything in flight had ended."""

    __slots__ = ("_flows", "_held", "_in_flight", "_rounding", "meter")

    def __init__(self, meter: AnyMeter, flows: bool, rounding: float) -> None:
        self.meter = meter
        self._rounding = rounding
        """By how much what is known of the level may be off."""
        self._flows = flows
        """Whether what is held back is produced along a stream."""
        self._held = 0.0
        self._in_flight = 0

    @property
    def size(self) -> float:
        return self.meter.capacity if isinstance(self.meter, Bucket) else self.meter.limit

    @property
    def planned(self) -> float:
        """What calls in flight will still take."""
        return self._held

    def level(self, now: float) -> float:
        """What has not been taken yet."""
        return self.meter.available(now)

    def left(self, now: float) -> float:
        """What has not been taken and is not held back."""
        return self.meter.available(now) - self._held

    def when(
        self,
        need: float,
        due: float,
        stream: PlannedStream,
        floor: float,
        now: float,
    ) -> float:
        """When a call fits beside what is held back, and the floor.

        A call larger than the whole limit goes alone, when the limit is full. Where calls in
        flight leave too little of the whole, only their end makes room.
        """
        amount, size = need + due, self.size
        if isinstance(self.meter, Bucket) and amount + floor > size:
            return _when_full(self.meter, floor + self._rounding, now)
        whole = min(amount + floor, size) + self._held
        return self.meter.when(whole, now) if whole <= size else inf

    def charge(self, amount: float, now: float) -> None:
        self.meter.charge(amount, now)

    def correct(self, extra: float, charged_s: float, now: float) -> None:
        """Correct an earlier charge: as of then in a sliding window, elsewhere as of now."""
        if isinstance(self.meter, SlidingWindow):
            self.meter.amend(extra, charged_s, now)
        elif extra > 0:
            self.meter.charge(extra, now)
        else:
            self.meter.refund(-extra, now)

    def begin(self, stream: PlannedStream, later: float, now: float) -> None:  # noqa: ARG002
        """A call is in flight and will take so much at its end."""
        self._in_flight += 1
        self._held += later

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:  # noqa: ARG002
        """A stream turned out to be shorter or longer than planned."""
        self._held += after.tokens - before.tokens

    def end(self, stream: PlannedStream, later: float, used: float, now: float) -> None:
        """The call has ended and took so much."""
        self._in_flight -= 1
        # Sums of floats drift: with nothing in flight, nothing is held back.
        self._held = self._held - later if self._in_flight else 0.0
        if self._flows and isinstance(self.meter, FixedWindow):
            used *= _share_inside(self.meter, stream.from_s, now)
        if self._flows and isinstance(self.meter, SlidingWindow):
            self.meter.charge_spread(used, min(stream.from_s, now), now)
        else:
            self.meter.charge(used, now)

    def rescale(self, factor: float) -> None:
        """The limit behind this window has changed."""
        if not isinstance(self.meter, Bucket):
            self.meter.limit *= factor


def _share_inside(window: FixedWindow, from_s: float, now: float) -> float:
    """How much of what was produced evenly since a time falls into the present window."""
    window.available(now)
    begins_s = window.boundary_s - window.period_s
    return 1.0 if from_s >= begins_s else (now - begins_s) / (now - from_s)


def _when_full(bucket: Bucket, margin: float, now: float) -> float:
    """A call as large as the limit waits until it is full, and full beyond our errors."""
    full_s = bucket.when(bucket.capacity, now)
    if full_s <= now:
        full_s = bucket.full_s
    return max(now, full_s + margin / bucket.rate_per_s)


# What one call takes of one limit: at its admission, and later on.


class Toll:
    """The charging rule of one limit, as weights: this is asked several times for every call."""

    __slots__ = (
        "_input", "_produced", "_requests", "_reserved", "_spend", "flows", "is_certain", "keeps",
    )  # fmt: skip

    def __init__(self, resource: Resource, charging: Charging) -> None:
        output = 1.0 if resource in ("output", "tokens") else 0.0
        self.flows = charging == "produced" and output > 0
        """Whether output leaves this limit as it is produced."""
        self.keeps = charging == "kept" and output > 0
        """Whether what was reserved and not used does not come back."""
        self.is_certain = resource == "requests"
        """Whether what a call takes is known beforehand, so that its end changes nothing."""
        self._requests = 1.0 if resource == "requests" else 0.0
        self._input = 1.0 if resource in ("input", "tokens") else 0.0
        self._reserved = 0.0 if self.flows else output
        self._produced = output if self.flows else 0.0
        self._spend = 1.0 if resource == "spend" else 0.0

    @property
    def counts_input(self) -> bool:
        """Whether a wrong estimate of the input is an error here."""
        return self._input > 0

    def need(self, demand: Demand) -> float:
        """What admission itself takes."""
        return (
            self._requests
            + self._input * demand.expected.input_tokens
            + self._reserved * demand.ceiling.output_tokens
        )

    def later(self, demand: Demand, stream: PlannedStream) -> float:
        """What is expected to be taken after that."""
        return self._produced * stream.tokens + self._spend * demand.ceiling.spend_microusd

    def unused(self, demand: Demand, used: Amounts) -> float:
        """What was reserved for a call and not used by it."""
        return self._reserved * (demand.ceiling.output_tokens - used.output_tokens)

    def extra(self, demand: Demand, used: Amounts) -> float:
        """What a call that used so much took beyond what its admission did; negative comes back."""
        extra = self._input * (used.input_tokens - demand.expected.input_tokens)
        return extra if self.keeps else extra - self.unused(demand, used)

    def used_later(self, amounts: Amounts) -> float:
        """What such a call took after that."""
        return self._produced * amounts.output_tokens + self._spend * amounts.spend_microusd

    def cost_s(self, amounts: Amounts, rate_per_s: float) -> float:
        """Seconds for which such a call takes all of the limit; 0 where nothing refills it."""
        if rate_per_s <= 0:
            return 0.0
        whole = (
            self._requests
            + self._input * amounts.input_tokens
            + self._reserved * amounts.output_tokens
        )
        return (whole + self.used_later(amounts)) / rate_per_s

    def error(self, demand: Demand, used: Amounts, refills: bool) -> float:
        """By how much a call took more than was expected of it; a reservation is no estimate.

        In a window every answer is held in full from its admission on, so that what is left
        untouched would be lost in every period: there, only the input counts.
        """
        expected = demand.expected
        error = self._input * (used.input_tokens - expected.input_tokens)
        if refills:
            error += self._produced * (used.output_tokens - expected.output_tokens)
        return error
