"""Limits that are charged as output is produced: buckets and sliding windows with planned streams.

Laws:
- A call is admitted when no period, or no later instant, holds more than the limit with it.
- The bins that a period touches sum up to at least what was charged and is planned in it.
"""

from __future__ import annotations

from itertools import accumulate
from math import floor
from typing import Final

from headway.pacing.limits import BIN_S, SLACK, Bucket, Outflow, PlannedStream, ReserveMeter

# A bucket and the streams that drain it: its level now, and when it can take one more call.

AHEAD_BINS: Final = 64
"""Half a minute: a call that must wait longer is looked at again then."""

NOTHING: Final = 1e-6
"""Tokens that are a rounding error of larger sums."""

IDLE: Final = 1e-6
"""Less than this share of a stream still to come is nothing."""


class Projection(ReserveMeter):
    """One bucket, followed along the plans of streams in flight."""

    __slots__ = ("bucket", "outflow")

    def __init__(self, bucket: Bucket, now: float) -> None:
        super().__init__(bucket, True, 0.0)
        self.bucket = bucket
        self.outflow = Outflow(now)

    def level(self, now: float) -> float:
        """What is left after what the streams are believed to have produced.

        Bin by bin, and in each the refill first: what is lost of it because the bucket is full
        does not make up for what flows out later.
        """
        bucket, outflow = self.bucket, self.outflow
        while outflow.planned > NOTHING and (end_s := outflow.bin_end_s()) < now:
            bucket.charge(outflow.drain(end_s), end_s)
        bucket.charge(outflow.drain(now), now)
        return bucket.available(now)

    @property
    def planned(self) -> float:
        return self.outflow.planned

    def begin(self, stream: PlannedStream, later: float, now: float) -> None:  # noqa: ARG002
        self.outflow.add(stream, now)

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:
        self.level(now)
        self.outflow.add(before, now, -1.0)
        self.correct(after.produced(now) - before.produced(now), now, now)
        self.outflow.add(after, now)

    def end(self, stream: PlannedStream, later: float, used: float, now: float) -> None:  # noqa: ARG002
        """The call has ended; so much has flowed."""
        self.outflow.add(stream, now, -1.0)
        self.correct(used - stream.produced(now), now, now)

    def when(
        self,
        need: float,
        due: float,
        stream: PlannedStream,
        floor: float,
        now: float,
    ) -> float:
        """The first half second from which on the level stays above the floor with one more.

        A call for which there is none goes alone, when nothing flows and the bucket is full.
        """
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
        bucket, outflow = self.bucket, self.outflow
        missing = bucket.capacity * (1 - IDLE) - level
        is_idle = outflow.planned <= IDLE * stream.tokens
        if not is_idle:
            missing += outflow.planned
        full_s = now + max(0.0, missing) / bucket.rate_per_s
        return full_s if is_idle else max(full_s, outflow.until_s, now + BIN_S)

    def _lowest(
        self, need: float, stream: PlannedStream, present: tuple[float, float], delay_s: float
    ) -> float:
        """The lowest level from then on if the call is sent `delay_s` later.

        It pays its admission then, and its stream from then on. What the level was before does
        not count: a debt is repaid by waiting.
        """
        bucket, (level, now) = self.bucket, present
        later = PlannedStream(stream.from_s + delay_s, stream.to_s + delay_s, stream.tokens)
        # Without the need from the start: that the bucket is full by then does not pay for it.
        rate, capacity = bucket.rate_per_s, bucket.capacity - need
        return self.outflow.lowest(level - need, rate, capacity, later, now + delay_s)


GRAINS: Final = 240
"""Bins of one period: what was taken comes free up to two bins late, less than one per cent."""

GRAIN_S_MIN: Final = 0.05
"""Finer bins than this cost more to walk through than they give."""

SWEEP: Final = GRAINS
"""So many bins that no period reaches any more are swept out together."""

EDGE: Final = 1e-6
"""A bin is entered by this share of it: its beginning may round into the one before."""


class Rolling:
    """At most `size` in any `period_s` seconds, with what is planned, in bins of time."""

    __slots__ = ("_base", "_bins", "_grain_s", "_now", "_span", "planned", "size")

    def __init__(self, size: float, period_s: float, now: float) -> None:
        self.size = size
        self.planned = 0.0
        """What calls in flight were planned to produce."""
        self._grain_s = max(period_s / GRAINS, GRAIN_S_MIN)
        # A period touches one bin more than it is long, and its ends may be rounded.
        self._span = floor(period_s / self._grain_s + SLACK) + 2
        self._bins: list[float] = []
        self._base = self._now = self._place(now)
        """The bin that the first entry stands for, and the latest that was the present one."""

    def level(self, now: float) -> float:
        """What the period that ends now has left."""
        return self.size - self._sums(self._place(now), 1)[0]

    left = level

    def when(
        self,
        need: float,
        due: float,
        stream: PlannedStream,
        floor: float,
        now: float,
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

    def correct(self, extra: float, charged_s: float, now: float) -> None:  # noqa: ARG002
        """Correct an earlier charge; one that no period reaches any more does not matter."""
        self._add(self._place(charged_s), extra)

    def begin(self, stream: PlannedStream, later: float, now: float) -> None:  # noqa: ARG002
        self.planned += stream.tokens
        self._flow(stream, 1.0)

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:  # noqa: ARG002
        self.planned += after.tokens - before.tokens
        self._flow(before, -1.0)
        self._flow(after, 1.0)

    def end(self, stream: PlannedStream, later: float, used: float, now: float) -> None:  # noqa: ARG002
        """The call has ended; so much has flowed, evenly."""
        self.planned -= stream.tokens
        self._flow(stream, -1.0)
        self._flow(PlannedStream(min(stream.from_s, now), now, used), 1.0)

    def rescale(self, factor: float) -> None:
        self.size *= factor

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
