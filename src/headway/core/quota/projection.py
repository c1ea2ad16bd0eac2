"""A bucket and the streams that drain it: its level now, and when it can take one more call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.core.quota.outflow import BIN_S, Outflow, Stream
from headway.core.quota.window import Bucket

AHEAD_BINS: Final = 64
"""Half a minute: whoever must wait longer is looked at again then."""

NOTHING: Final = 1e-6
"""Tokens that are a rounding error of larger sums."""

IDLE: Final = 1e-6
"""Less than this share of a stream still to come is nothing."""


@dataclass(frozen=True, slots=True)
class ProjectionStatistics:
    """What is left, and what the streams in flight will still take of it."""

    level: float
    planned: float


class Projection:
    """One bucket, followed into the future along the plans of the streams in flight."""

    __slots__ = ("bucket", "outflow")

    def __init__(self, bucket: Bucket, now: float) -> None:
        self.bucket = bucket
        self.outflow = Outflow(now)

    def __repr__(self) -> str:
        return f"<Projection {self.bucket!r} {self.outflow!r}>"

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
    def size(self) -> float:
        """The most that can be taken at one instant."""
        return self.bucket.capacity

    @property
    def planned(self) -> float:
        """What the streams in flight will still take."""
        return self.outflow.planned

    def left(self, now: float) -> float:
        """The same as the level: what flows later is met by what refills until then."""
        return self.bucket.available(now)

    def charge(self, amount: float, now: float) -> None:
        """Take at once."""
        self.bucket.charge(amount, now)

    def correct(self, extra: float, charged_s: float, now: float) -> None:  # noqa: ARG002
        """Correct an earlier charge, or what was believed to have flowed."""
        if extra > 0:
            self.bucket.charge(extra, now)
        else:
            self.bucket.refund(-extra, now)

    def begin(self, stream: Stream, later: float, now: float) -> None:  # noqa: ARG002
        """A call is in flight: its stream will flow."""
        self.outflow.add(stream, now)

    def plan(self, before: Stream, after: Stream, now: float) -> None:
        """A stream turned out to be earlier, later, shorter or longer than planned."""
        self.level(now)
        self.outflow.add(before, now, -1.0)
        self.correct(after.produced(now) - before.produced(now), now, now)
        self.outflow.add(after, now)

    def end(self, stream: Stream, later: float, used: float, now: float) -> None:  # noqa: ARG002
        """The call has ended; so much has flowed."""
        self.outflow.add(stream, now, -1.0)
        self.correct(used - stream.produced(now), now, now)

    def when(self, need: float, stream: Stream, floor: float, now: float) -> float:
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

    def statistics(self) -> ProjectionStatistics:
        return ProjectionStatistics(self.bucket.statistics().available, self.outflow.planned)

    def _alone_s(self, stream: Stream, level: float, now: float) -> float:
        """When all that flows now has ended and the bucket is full."""
        bucket, outflow = self.bucket, self.outflow
        missing = bucket.capacity * (1 - IDLE) - level
        is_idle = outflow.planned <= IDLE * stream.tokens
        if not is_idle:
            missing += outflow.planned
        full_s = now + max(0.0, missing) / bucket.rate_per_s
        return full_s if is_idle else max(full_s, outflow.until_s, now + BIN_S)

    def _lowest(
        self, need: float, stream: Stream, present: tuple[float, float], delay_s: float
    ) -> float:
        """The lowest level from then on if the call is sent `delay_s` later.

        It pays its admission then, and its stream from then on. What the level was before does
        not count: a debt is repaid by waiting.
        """
        bucket, (level, now) = self.bucket, present
        later = Stream(stream.from_s + delay_s, stream.to_s + delay_s, stream.tokens)
        # Without the need from the start: that the bucket is full by then does not pay for it.
        rate, capacity = bucket.rate_per_s, bucket.capacity - need
        return self.outflow.lowest(level - need, rate, capacity, later, now + delay_s)
