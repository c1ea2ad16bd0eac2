"""A limit, and what calls in flight hold back of it until they end.

What a call takes at its end, money or an answer in a fixed window, counts from its admission on:
otherwise those that are in flight together could take more than there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from headway.core.quota.outflow import Stream
from headway.core.quota.window import AnyMeter, Bucket, FixedWindow, SlidingWindow


@dataclass(frozen=True, slots=True)
class ReserveStatistics:
    """What is left of a limit, and what calls in flight will still take of it."""

    level: float
    planned: float


class Reserve:
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

    def __repr__(self) -> str:
        return f"<Reserve {self._held:.0f} of {self.meter!r}>"

    @property
    def size(self) -> float:
        """The most that can be taken at one instant."""
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

    def when(self, amount: float, floor: float, now: float) -> float:
        """When a call that takes so much in all fits beside what is held back, and the floor.

        A call larger than the whole limit goes alone, when the limit is full. Where calls in
        flight leave too little of the whole, only their end makes room: no matter of time.
        """
        size = self.size
        if isinstance(self.meter, Bucket) and amount + floor > size:
            return _when_full(self.meter, floor + self._rounding, now)
        whole = min(amount + floor, size) + self._held
        return self.meter.when(whole, now) if whole <= size else inf

    def charge(self, amount: float, now: float) -> None:
        """Take at once."""
        self.meter.charge(amount, now)

    def correct(self, extra: float, charged_s: float, now: float) -> None:
        """Correct an earlier charge: as of then in a sliding window, elsewhere as of now."""
        if isinstance(self.meter, SlidingWindow):
            self.meter.amend(extra, charged_s, now)
        elif extra > 0:
            self.meter.charge(extra, now)
        else:
            self.meter.refund(-extra, now)

    def begin(self, stream: Stream, later: float, now: float) -> None:  # noqa: ARG002
        """A call is in flight and will take so much at its end."""
        self._in_flight += 1
        self._held += later

    def plan(self, before: Stream, after: Stream, now: float) -> None:  # noqa: ARG002
        """A stream turned out to be shorter or longer than planned."""
        self._held += after.tokens - before.tokens

    def end(self, stream: Stream, later: float, used: float, now: float) -> None:
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

    def statistics(self) -> ReserveStatistics:
        return ReserveStatistics(self.meter.statistics().available, self._held)


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
