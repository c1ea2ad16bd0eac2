"""One limit as it stands at the provider: a balance, corrected by what each response reports.

Laws:
- A reading is compared with what the balance held at the moment the call was admitted, not with
  what it holds now: the difference is somebody else's doing, or our own wrong estimate, and is
  carried to the present as a shift.
- Neighbours' draw lowers the refill we count on, never below `DRAW_FLOOR` of it.
- A reading that is older than the last one teaches nothing, and one from before a change of the
  limit was noticed can only lower the level: what was held then was counted by another measure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf
from typing import Final

from headway.core.quota.balance import Balance
from headway.core.quota.dialect import Dialect
from headway.core.quota.returns import Returns
from headway.core.quota.window import Bucket, FixedWindow
from headway.core.values import MINUTE_S, Demand, Limit, LimitKind, LimitReading, Reading

DRAW_FLOOR: Final = 0.5
"""We never yield below this share of a limit: beyond it, refusals are the neighbour's."""

DRAW_MEMORY_S: Final = 10.0
"""Neighbours come and go within tens of seconds."""

DRAW_STEP_S: Final = 1.0
"""Readings are taken together over this long: calls arrive in another order than they left, and
what one reading has too little the next ones have too much."""

DRAW_LEAST: Final = -0.1
"""Readings that show more than was expected say that nobody draws; by at most this share of a
limit they make up for readings that will show less."""

SHARED_DRAW: Final = 0.03
SHARED_CALLS: Final = 2.0
"""A draw above this share of a limit, and of more than so many calls like ours at once, is a
neighbour's, not an error of ours."""

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
        "_burst_s", "_drawn", "_missing", "_read_s", "_resized_s", "_returns", "_since_s", "_size",
        "_sizes", "balance", "draw_per_s",
    )  # fmt: skip

    def __init__(self, balance: Balance, burst_s: float = inf) -> None:
        self.balance = balance
        self._burst_s = burst_s
        self.draw_per_s = 0.0
        self._drawn = 0.0
        self._missing = 0.0
        self._returns = Returns()
        self._since_s = -inf
        self._read_s = -inf
        self._resized_s = -inf
        self._sizes = 0
        self._size = 0.0

    def __repr__(self) -> str:
        return f"<Mirror {self.balance!r} draw {self.draw_per_s:.1f}/s>"

    def adopt(self, reading: LimitReading, at_s: float, now: float) -> None:
        """Start from the first reading: level and window edge."""
        remaining = reading.remaining or 0.0
        meter = self.balance.meter
        if isinstance(meter, FixedWindow):
            meter.boundary_s = at_s + (reading.reset_s or meter.period_s) + RESET_MARGIN_S
            meter.set_level(remaining, now)
        elif isinstance(meter, Bucket):
            meter.set_level(remaining + meter.rate_per_s * (now - at_s), now)
        else:
            meter.charge(meter.limit - remaining, at_s)
        self._read_s = at_s

    def observe(
        self, reading: LimitReading, snapshot: float | None, at_s: float, now: float
    ) -> None:
        """Learn from one response; `snapshot` is what `charge` returned for its call."""
        if reading.remaining is None or at_s < self._read_s:
            return
        balance = self.balance
        known = balance.limit.amount
        if reading.limit and abs(reading.limit - known) > CHANGED * known:
            self._resize(reading.limit, now)
            self._resized_s = now
        level = balance.level(now)
        meter = balance.meter
        if isinstance(meter, FixedWindow):
            self._observe_window(meter, reading, snapshot, at_s)
        elif isinstance(meter, Bucket) and snapshot is not None and at_s > self._resized_s:
            self._observe_bucket(meter, reading, snapshot - balance.shift, at_s)
        elif isinstance(meter, Bucket):
            since = reading.remaining + meter.rate_per_s * (now - at_s)
            self._shift_by(meter, max(0.0, level - since), now)
        self._read_s = at_s

    def left(self, reading: Reading, now: float) -> float:
        """What is left by a response's account or, where it does not say, by ours."""
        told = self._told(reading)
        if told is None or told.remaining is None:
            return self.balance.level(now)
        return told.remaining

    def refused(self, demand: Demand, reading: Reading, wait_s: float | None, now: float) -> bool:
        """The provider says that this limit was short. True if by its own account it was not."""
        balance = self.balance
        need, level, meter = balance.toll.need(demand), balance.level(now), balance.meter
        told = self._told(reading)
        remaining = None if told is None else told.remaining
        if wait_s is None:
            wait_s = WAIT_UNTOLD_S
        if isinstance(meter, Bucket):
            if remaining is not None and remaining - 2 * balance.rounding > ROOM * need:
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
        meter = self.balance.meter
        burst = meter.capacity if isinstance(meter, Bucket) else None
        return replace(self.balance.limit, burst=burst, source="profile")

    def statistics(self) -> MirrorStatistics:
        now = self.balance.statistics()
        return MirrorStatistics(
            now.limit, now.level, now.capacity, self.draw_per_s, now.planned, self._read_s
        )

    def _observe_bucket(
        self, bucket: Bucket, reading: LimitReading, predicted: float, at_s: float
    ) -> None:
        balance, rate = self.balance, self.balance.limit.rate_per_s
        remaining = reading.remaining or 0.0
        if reading.reset_s and not balance.exact:
            self._size_up(bucket, remaining + rate * reading.reset_s)
        delta = predicted - remaining
        if abs(delta) <= balance.rounding:
            delta = 0.0
        in_debt = remaining <= balance.rounding
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
        drawn = self.draw_per_s * (at_s - self._read_s) if self.draw_per_s else 0.0
        if self._returns.weigh(balance, delta + drawn):
            self._drawn = self.draw_per_s = self._missing = 0.0
            bucket.rate_per_s = rate

    def _draw(self, bucket: Bucket, elapsed: float) -> None:
        """Learn from what was missing over some time: somebody else took it."""
        balance, rate = self.balance, self.balance.limit.rate_per_s
        weight = 1.0 - exp(-elapsed / DRAW_MEMORY_S)
        drawn = self._drawn + weight * self._missing / elapsed
        self._drawn = min(max(DRAW_LEAST * rate, drawn), (1 - DRAW_FLOOR) * rate)
        self.draw_per_s = max(0.0, self._drawn)
        bucket.rate_per_s = rate - self.draw_per_s
        is_much = self._missing > SHARED_CALLS * balance.mean_need
        balance.shared = balance.shared or (is_much and self.draw_per_s > SHARED_DRAW * rate)

    def _told(self, reading: Reading) -> LimitReading | None:
        limit = self.balance.limit
        return next((told for told in reading.limits if is_about(limit, told)), None)

    def _shift_by(self, bucket: Bucket, delta: float, now: float) -> None:
        """Carry a difference found in the past to the present level."""
        before = bucket.available(now)
        bucket.set_level(before - delta, now)
        self.balance.shift += before - bucket.available(now)

    def _size_up(self, bucket: Bucket, seen: float) -> None:
        """Resets are rounded to seconds, so one reading says little of a small bucket: the mean."""
        self._sizes += 1
        self._size += (seen - self._size) / min(self._sizes, SIZES_MEMORY)
        if self._sizes >= SIZES_MIN:
            most = self._burst_s * self.balance.limit.rate_per_s
            bucket.capacity = min(self.balance.limit.amount, self._size, most)

    def _observe_window(
        self, window: FixedWindow, reading: LimitReading, snapshot: float | None, at_s: float
    ) -> None:
        balance = self.balance
        if reading.reset_s:
            ends = at_s + reading.reset_s + RESET_MARGIN_S
            moved = abs(ends - window.boundary_s) > EDGE_MOVED_S
            if moved and at_s > window.boundary_s - window.period_s:
                window.boundary_s = ends
        if snapshot is not None and at_s > window.boundary_s - window.period_s:
            delta = snapshot - balance.shift - (reading.remaining or 0.0)
            if delta > balance.rounding:
                window.charge(delta, at_s)
                balance.shift += delta
            self._returns.weigh(balance, delta)

    def _resize(self, amount: float, now: float) -> None:
        """The provider changed the limit: same kind, new size, the burst in proportion."""
        balance = self.balance
        limit, meter = balance.limit, balance.meter
        factor = amount / limit.amount
        burst = None if limit.burst is None else limit.burst * factor
        balance.limit = replace(limit, amount=amount, burst=burst)
        if isinstance(meter, Bucket):
            meter.resize(balance.limit.rate_per_s, meter.capacity * factor, now)
        else:
            meter.limit = amount
        if balance.ceiling is not None:
            balance.ceiling.rescale(factor)


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
