"""What calls in flight will still take of a limit: held back as a whole, or along their streams.

Laws:
- A call is admitted when no period, or no later instant, holds more than the limit with it.
- What a bucket loses to streams is followed in half-second bins. What a sliding window holds is
  kept in bins, too: those that a period touches sum up to at least what it holds.
- In a fixed window, of which we do not know when exactly the provider counts, a call holds what of
  its answer can fall into one window.
"""

from __future__ import annotations

from itertools import accumulate
from math import floor, inf
from typing import Final

from headway.base.values import Limit
from headway.pacing.meters import SLACK, Bucket, FixedWindow, Meter, PlannedStream, meter_of

BIN_S: Final = 0.5
BINS: Final = 256
"""Two minutes ahead: longer answers are planned as if they ended there and extended later."""

HORIZON_S: Final = BIN_S * (BINS - 2)


class Outflow:
    """A ring of half-second bins, kept as changes: a stream costs the same however long it is.

    Bin i loses `flow(i) + part[i]`, where flow(i) is the sum of all steps up to i: a stream is one
    step up, one step down, and two parts where it begins and ends inside a bin. Of the present bin
    only what is still to come is kept.
    """

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
        tokens = stream.tokens
        if now > stream.from_s:
            tokens -= stream.produced(now)
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
        self, level: float, rate_per_s: float, capacity: float, stream: PlannedStream,
        since_s: float,
    ) -> float:  # fmt: skip
        """The lowest level from `since_s` on if `stream` is added: refill and outflow, bin by bin.

        Called with the outflow drained to the present; after the last plan the level can only rise.
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


AHEAD_BINS: Final = 64
"""Half a minute: a call that must wait longer is looked at again then."""

NOTHING: Final = 1e-6
"""Tokens that are a rounding error of larger sums."""

IDLE: Final = 1e-6
"""Less than this share of a stream still to come is nothing."""


class FlowingBucket(Bucket):
    """A bucket that answers empty as they are produced, followed along their plans."""

    def __init__(self, rate_per_s: float, size: float, now: float) -> None:
        super().__init__(rate_per_s, size, now)
        self.outflow = Outflow(now)

    def level(self, now: float) -> float:
        """What is left after what the streams are believed to have produced.

        Bin by bin, the refill first: refill lost by a full bucket is not there for later outflow.
        """
        outflow = self.outflow
        while outflow.planned > NOTHING and (end_s := outflow.bin_end_s()) < now:
            self.charge(outflow.drain(end_s), end_s)
        self._level = self.available(now) - outflow.drain(now)
        return self._level

    @property
    def planned(self) -> float:
        return self.outflow.planned

    def begin(self, need: float, later: float, stream: PlannedStream, now: float) -> float:
        self.outflow.add(stream, now)
        if now > self._at_s:
            self.available(now)
        self._level -= need
        return self._level

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:
        self.level(now)
        self.outflow.add(before, now, -1.0)
        self.correct(after.produced(now) - before.produced(now), now, now)
        self.outflow.add(after, now)

    def end(
        self, extra: float, later: float, used: float, stream: PlannedStream,
        sent_s: float, now: float,
    ) -> None:  # fmt: skip
        self.level(now)
        if extra:
            self.correct(extra, sent_s, now)
        self.outflow.add(stream, now, -1.0)
        self.correct(used - stream.produced(now), now, now)

    def fits_s(
        self, need: float, later: float, stream: PlannedStream, floor: float, now: float
    ) -> float:
        """The first half second from which on the level stays above the floor with one more; or
        when nothing flows and the bucket is full."""
        level = self.level(now)
        if level - need - self.outflow.planned - stream.tokens >= floor:
            return now
        alone_s = self._alone_s(stream, level, now)
        if alone_s <= now or self._lowest(need, stream, (level, now), 0.0) >= floor:
            return now
        low, high = 0, 2
        while high < AHEAD_BINS and self._lowest(need, stream, (level, now), high * BIN_S) < floor:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            if self._lowest(need, stream, (level, now), middle * BIN_S) >= floor:
                high = middle
            else:
                low = middle
        return min(now + high * BIN_S, alone_s)

    def _alone_s(self, stream: PlannedStream, level: float, now: float) -> float:
        """When all that flows now has ended and the bucket is full."""
        outflow = self.outflow
        missing = self.size * (1 - IDLE) - level
        is_idle = outflow.planned <= IDLE * stream.tokens
        if not is_idle:
            missing += outflow.planned
        full_s = now + max(0.0, missing) / self.rate_per_s
        return full_s if is_idle else max(full_s, outflow.until_s, now + BIN_S)

    def _lowest(
        self, need: float, stream: PlannedStream, present: tuple[float, float], delay_s: float
    ) -> float:
        """The lowest level from then on if the call is sent, and pays, `delay_s` later."""
        level, now = present
        later = PlannedStream(stream.from_s + delay_s, stream.to_s + delay_s, stream.tokens)
        # Without the need from the start: that the bucket is full by then does not pay for it.
        rate, size = self.rate_per_s, self.size - need
        return self.outflow.lowest(level - need, rate, size, later, now + delay_s)


GRAINS: Final = 240
"""Bins of one period: what was taken comes free up to two bins late, less than one per cent."""

GRAIN_S_MIN: Final = 0.05
"""Finer bins than this cost more to walk through than they give."""

SWEEP: Final = GRAINS
"""So many bins that no period reaches any more are swept out together."""

EDGE: Final = 1e-6
"""A bin is entered by this share of it: its beginning may round into the one before."""


class FlowingWindow(Meter):
    """At most its size in any `period_s` seconds, with what is planned, in bins of time."""

    def __init__(self, size: float, period_s: float, now: float) -> None:
        super().__init__(size)
        self._grain_s = max(period_s / GRAINS, GRAIN_S_MIN)
        # A period touches one bin more than it is long, and its ends may be rounded.
        self._span = floor(period_s / self._grain_s + SLACK) + 2
        self._bins: list[float] = []
        self._base = self._now = self._place(now)
        """The bin that the first entry stands for, and the latest that was the present one."""

    def available(self, now: float) -> float:
        """What the period that ends now has left."""
        return self.size - self._sums(self._place(now), 1)[0]

    left = available

    def fits_s(
        self, need: float, later: float, stream: PlannedStream, floor: float, now: float
    ) -> float:
        """The earliest bin in which a call can be admitted so that the floor is always left."""
        first, grain_s = self._place(now), self._grain_s
        self._now = max(self._now, first)
        planned = max(0, self._base + len(self._bins) - 1 - first) + 1
        length = max(planned, self._place(stream.to_s) - first + 1)
        held = self._sums(first, planned + length + self._span)
        room = self.size - floor
        if max(held[:length]) + need + stream.tokens <= room:
            return now
        own = self._own(need, stream, first * grain_s, length)
        if self._fits(own, held, 0, room):
            return now
        # When all that is planned has been forgotten, there is room for anything.
        low, high = 0, planned + self._span
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(own, held, middle, room):
                high = middle
            else:
                low = middle
        return (first + high + EDGE) * grain_s

    def charge(self, amount: float, now: float) -> None:
        self._add(self._place(now), amount)

    def when(self, amount: float, now: float) -> float:
        return self.fits_s(amount, 0.0, PlannedStream(now, now, 0.0), 0.0, now)

    def correct(self, extra: float, charged_s: float, now: float) -> None:
        """A charge that no period reaches any more does not matter."""
        self._add(self._place(charged_s), extra)

    def begin(self, need: float, later: float, stream: PlannedStream, now: float) -> float:
        self.charge(need, now)
        self._held += stream.tokens
        self._flow(stream, 1.0)
        return self.left(now)

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:
        self._held += after.tokens - before.tokens
        self._flow(before, -1.0)
        self._flow(after, 1.0)

    def end(
        self, extra: float, later: float, used: float, stream: PlannedStream,
        sent_s: float, now: float,
    ) -> None:  # fmt: skip
        """What was used has flowed evenly."""
        self.correct(extra, sent_s, now)
        self._held -= stream.tokens
        self._flow(stream, -1.0)
        self._flow(PlannedStream(min(stream.from_s, now), now, used), 1.0)

    def _place(self, at_s: float) -> int:
        return floor(at_s / self._grain_s)

    def _add(self, place: int, amount: float) -> None:
        """Add to one bin. Bins that no period reaches any more are swept out when they are many."""
        if place - self._base >= len(self._bins):
            old = self._now - self._span - self._base
            if old > SWEEP:
                del self._bins[:old]
                self._base += old
            self._bins += [0.0] * (place - self._base - len(self._bins) + 1)
        if place >= self._base:
            self._bins[place - self._base] += amount

    def _flow(self, stream: PlannedStream, sign: float) -> None:
        """Add all of a stream, past or future, or take it off with sign -1."""
        first, last = self._place(stream.from_s), self._place(stream.to_s)
        if first == last:
            self._add(first, sign * stream.tokens)
            return
        rate = sign * stream.tokens / (stream.to_s - stream.from_s)
        self._add(last, rate * (stream.to_s - last * self._grain_s))
        self._add(first, rate * ((first + 1) * self._grain_s - stream.from_s))
        for place in range(first + 1, last):
            self._add(place, rate * self._grain_s)

    def _sums(self, first: int, places: int) -> list[float]:
        """What each of the spans holds that end with these bins."""
        begin, end = first - self._span + 1 - self._base, first + places - self._base
        held = [0.0] * -begin + self._bins[max(0, begin) : max(0, end)]
        held += [0.0] * (end - begin - len(held))
        totals = list(accumulate(held, initial=0.0))
        return [
            later - earlier for earlier, later in zip(totals, totals[self._span :], strict=False)
        ]

    def _own(self, need: float, stream: PlannedStream, begins_s: float, length: int) -> list[float]:
        """What the spans that end with the coming bins hold of a call that is admitted now."""
        grain_s, span = self._grain_s, self._span
        lasts = max(SLACK, (stream.to_s - stream.from_s) / grain_s)
        before = (stream.from_s - begins_s) / grain_s
        flowed = [
            stream.tokens * min(1.0, max(0.0, (end - before) / lasts))
            for end in range(1, length + 1)
        ]
        return [
            taken + need if place < span else taken - flowed[place - span]
            for place, taken in enumerate(flowed)
        ]

    def _fits(self, own: list[float], held: list[float], delay: int, room: float) -> bool:
        """Whether no period holds too much; a call that is alone in a period may fill it."""
        nothing = self.size * SLACK
        others = held[delay : delay + len(own)]
        return not any(
            other > nothing and other + mine > room for other, mine in zip(others, own, strict=True)
        )


def flowing_meter(limit: Limit, now: float) -> Meter:
    """The meter of a limit that answers take from as they are produced."""
    if limit.kind == "bucket":
        return FlowingBucket(limit.rate_per_s, limit.capacity, now)
    if limit.kind == "sliding":
        return FlowingWindow(limit.amount, limit.period_s, now)
    if limit.kind == "fixed":
        return FixedWindow(limit.amount, limit.period_s, now + limit.period_s, flows=True)
    return meter_of(limit, now)
