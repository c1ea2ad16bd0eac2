"""What calls in flight will still take of a limit: held back as a whole, or along their streams.

Laws:
- A call is admitted when no period, or no later instant, holds more than the limit with it.
- What a bucket loses to streams is followed in half-second bins. What a sliding window holds is
  kept in bins, too: those that a period touches sum up to at least what it holds.
- In a fixed window, of which we do not know when exactly the provider counts, a call holds what of
  its answer can fall into one window.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import accumulate
from math import floor
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
        self.rest = 0.0
        """What the present bin still brings."""
        self._at_s = now
        self.planned = 0.0
        self.ends_s = now
        """No stream was planned to end later."""

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
        self.ends_s = max(self.ends_s, end)

    def drain(self, now: float) -> float:
        """What the plans say was produced since the last time; it leaves the bins."""
        if now <= self._at_s:
            return 0.0
        total = 0.0
        target = int(now / BIN_S)
        steps, parts = self._steps, self._parts
        for i in range(self._bin, min(target, self._bin + BINS)):
            total += self.rest
            place = (i + 1) % BINS
            self._flow += steps[place]
            self.rest = self._flow + parts[place]
            steps[place] = parts[place] = 0.0
        self._bin = target
        begin = max(self._at_s, target * BIN_S)
        part = self.rest * (now - begin) / ((target + 1) * BIN_S - begin)
        self.rest -= part
        self._at_s = now
        self.planned -= total + part
        return total + part

    def bin_end_s(self) -> float:
        return (self._bin + 1) * BIN_S

    def _put(self, index: int, amount: float) -> None:
        """So much within one bin; of the present one it is still to come."""
        if index == self._bin:
            self.rest += amount
        else:
            self._parts[index % BINS] += amount


NOTHING: Final = 1e-6
"""Less than this share of a limit, or so many tokens, is a rounding error."""
FIRM_SHARE: Final = 0.5
"""Of what comes back while an answer is written, so much is counted on where there is to be no
debt: in a steady flow the answers in flight have half of theirs to write. With all of it
conversations lose a tenth more of their caches."""


class FlowingMeter(Meter):
    """A limit that answers take from as they are produced, followed along their plans."""

    def __init__(self, now: float) -> None:
        self.outflow = Outflow(now)

    @abstractmethod
    def regained(self, until_s: float, now: float) -> float:
        """What comes back of it by then."""

    @abstractmethod
    def regains_s(self, missing: float, now: float) -> float:
        """When so much has come back."""

    def flowed(self, amount: float, until_s: float) -> None:
        """Take what was produced until a time."""
        self.charge(amount, until_s)

    @property
    def planned(self) -> float:
        return self.outflow.planned

    def level(self, now: float) -> float:
        """What is left after what the streams are believed to have produced.

        Bin by bin: refill lost by a full bucket is not there for later outflow.
        """
        outflow = self.outflow
        while outflow.planned > NOTHING and (end_s := outflow.bin_end_s()) < now:
            self.flowed(outflow.drain(end_s), end_s)
        drained = outflow.drain(now)
        if drained:
            self.flowed(drained, now)
        return self.available(now)

    def begin(self, need: float, later: float, stream: PlannedStream, now: float) -> float:
        self.outflow.add(stream, now)
        self.charge(need, now)
        return self.available(now)

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
        self, need: float, later: float, stream: PlannedStream, floor: float, now: float,
        debt: float = 0.0,
    ) -> float:  # fmt: skip
        """When the floor is there and what is planned leaves no larger debt, or all is there."""
        level, planned = self.level(now), self.outflow.planned
        missing = min(need + floor, self.size * (1.0 - NOTHING)) - level
        if planned > NOTHING:
            if missing > max(0.0, self.regained(self.outflow.ends_s, now)):
                # By the time that so much has come back, all answers in flight are written.
                missing += planned
            share, kept = (1.0, 0.0) if debt else (FIRM_SHARE, floor)
            owed = need + planned + stream.tokens - share * self.regained(stream.to_s, now)
            short = owed + kept - level - debt
            if short > 0:
                # What comes back is counted on already: the end of an answer makes room.
                missing = max(missing, short, self.regained(now + BIN_S, now))
        return now if missing <= 0 else self.regains_s(missing, now)


class FlowingBucket(FlowingMeter, Bucket):
    """A bucket that answers empty as they are produced."""

    def __init__(self, rate_per_s: float, size: float, now: float) -> None:
        Bucket.__init__(self, rate_per_s, size, now)
        FlowingMeter.__init__(self, now)

    def regained(self, until_s: float, now: float) -> float:
        return self.rate_per_s * (until_s - now)

    def regains_s(self, missing: float, now: float) -> float:
        ends_s, outflow = self.outflow.bin_end_s(), self.outflow
        net = self.rate_per_s - max(0.0, outflow.rest) / (ends_s - now)
        if missing < net * (ends_s - now):
            return now + missing / net
        return max(ends_s, now + missing / self.rate_per_s)


class FlowingFixedWindow(FlowingMeter, FixedWindow):
    """A fixed window that answers use up as they are produced."""

    def __init__(self, size: float, period_s: float, boundary_s: float, now: float) -> None:
        FixedWindow.__init__(self, size, period_s, boundary_s)
        FlowingMeter.__init__(self, now)

    def flowed(self, amount: float, until_s: float) -> None:
        if until_s > self.boundary_s:
            self.available(until_s)
        self.used += amount

    def refund(self, amount: float, now: float) -> None:
        """Below nothing by what the present bin still brings: the two even out."""
        self.available(now)
        self.used = max(-max(0.0, self.outflow.rest), self.used - amount)

    def regained(self, until_s: float, now: float) -> float:
        late_s = until_s - self.boundary_s
        return 0.0 if late_s < 0 else self.size * (late_s // self.period_s + 1.0)

    def regains_s(self, missing: float, now: float) -> float:
        return self.boundary_s


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
        self, need: float, later: float, stream: PlannedStream, floor: float, now: float,
        debt: float = 0.0,
    ) -> float:  # fmt: skip
        """The first bin in which the floor is there and no period holds more than a debt allows."""
        first, grain_s = self._place(now), self._grain_s
        self._now = max(self._now, first)
        planned = max(0, self._base + len(self._bins) - 1 - first) + 1
        length = max(planned, self._place(stream.to_s) - first + 1)
        held = self._sums(first, planned + length + self._span)
        room = self.size - floor
        if held[0] + need <= room and max(held[:length]) + need + stream.tokens <= room + debt:
            return now
        own = self._own(need, stream, first * grain_s, length)

        def fits(delay: int) -> bool:
            others, nothing = held[delay : delay + length], self.size * SLACK
            return (others[0] <= nothing or others[0] + need <= room) and not any(
                other > nothing and other + mine > room + debt
                for other, mine in zip(others, own, strict=True)
            )

        if fits(0):
            return now
        # When all that is planned has been forgotten, there is room for anything.
        low, high = 0, planned + self._span
        while high - low > 1:
            middle = (low + high) // 2
            if fits(middle):
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


def flowing_meter(limit: Limit, now: float) -> Meter:
    """The meter of a limit that answers take from as they are produced."""
    if limit.kind == "bucket":
        return FlowingBucket(limit.rate_per_s, limit.capacity, now)
    if limit.kind == "sliding":
        return FlowingWindow(limit.amount, limit.period_s, now)
    if limit.kind == "fixed":
        return FlowingFixedWindow(limit.amount, limit.period_s, now + limit.period_s, now)
    return meter_of(limit, now)
