"""Expected output of the streams in flight, by time: what a bucket will lose before it is asked.

Where output is charged as it is produced, a call costs nothing when it is admitted and much
later on. Debiting whole answers up front would leave a small bucket idle; counting only what
has been produced would overdraw it. So each stream is a plan (from, to, tokens), plans add up
in half-second bins, and a call is admitted when the projected level stays above the floor.

Invariant: what was drained for a stream so far plus what its bins still hold is its plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

BIN_S: Final = 0.5
BINS: Final = 256
"""Two minutes ahead: longer answers are planned as if they ended there and extended later."""

HORIZON_S: Final = BIN_S * (BINS - 2)


@dataclass(frozen=True, slots=True)
class Stream:
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


@dataclass(frozen=True, slots=True)
class OutflowStatistics:
    """Tokens that are still to come from streams in flight, and until when."""

    planned: float
    until_s: float


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

    def __repr__(self) -> str:
        return f"<Outflow {self.planned:.0f} tokens until {self.until_s:.1f}s>"

    def add(self, stream: Stream, now: float, sign: float = 1.0) -> None:
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
        """When the bin ends up to which, or into which, everything was drained."""
        return (self._bin + 1) * BIN_S

    def lowest(
        self, level: float, rate_per_s: float, capacity: float, stream: Stream, since_s: float
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

    def statistics(self) -> OutflowStatistics:
        return OutflowStatistics(self.planned, self.until_s)

    def _put(self, index: int, amount: float) -> None:
        """So much within one bin; of the present one it is still to come."""
        if index == self._bin:
            self._rest += amount
        else:
            self._parts[index % BINS] += amount
