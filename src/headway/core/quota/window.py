"""One limit over time: what is left of it now, and when there will be enough.

Laws:
- Buckets refill, windows forget, gauges are given back: three ways to count, three types, one
  set of verbs (`available`, `charge`, `refund`, `when`).
- `when(amount)` is the earliest instant at which `amount` is available if nobody else charges.
- A call larger than the whole limit waits for the limit to be full and then goes into debt:
  it cannot be served sooner, and it must not wait for ever.
- Time never runs backwards: a `now` before the last one counts as the last one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from headway.core.values import Limit

GRAINS_PER_PERIOD: Final = 2000
"""Charges closer together than a 2,000th of the period are kept as one, stamped with the later
time: a sliding window then holds at most 2,000 entries and errs on the safe side."""

SLACK: Final = 1e-9
"""Relative rounding slack: a level that misses a need by less has reached it."""


@dataclass(frozen=True, slots=True)
class MeterStatistics:
    """What one limit looks like at an instant."""

    limit: float
    available: float
    used: float


class Meter(Protocol):
    """What every kind of limit can be asked."""

    def available(self, now: float) -> float:
        """How much can be taken at `now`; negative while in debt."""

    def charge(self, amount: float, now: float) -> None:
        """Take `amount`, whether or not there is enough."""

    def refund(self, amount: float, now: float) -> None:
        """Give back part of an earlier charge."""

    def when(self, amount: float, now: float) -> float:
        """The earliest time at which `amount` is available; `inf` if never."""

    def statistics(self) -> MeterStatistics:
        """The state as of the last charge."""


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

    def __repr__(self) -> str:
        return f"<Bucket {self._level:.0f}/{self.capacity:.0f} +{self.rate_per_s:.2f}/s>"

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
        """Adopt a level that somebody who knows better has reported."""
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

    def statistics(self) -> MeterStatistics:
        return MeterStatistics(self.capacity, self._level, self.capacity - self._level)


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

    def __repr__(self) -> str:
        return f"<SlidingWindow {self._used:.0f}/{self.limit:.0f} per {self.period_s:g}s>"

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

    def statistics(self) -> MeterStatistics:
        return MeterStatistics(self.limit, self.limit - self._used, self._used)


class FixedWindow:
    """At most `limit` between one aligned boundary and the next, `period_s` later."""

    __slots__ = ("_used", "boundary_s", "limit", "period_s")

    def __init__(self, limit: float, period_s: float, boundary_s: float) -> None:
        self.limit = limit
        self.period_s = period_s
        self.boundary_s = boundary_s
        """When the current window ends."""
        self._used = 0.0

    def __repr__(self) -> str:
        return f"<FixedWindow {self._used:.0f}/{self.limit:.0f} until {self.boundary_s:.1f}>"

    def available(self, now: float) -> float:
        if now >= self.boundary_s:
            periods = int((now - self.boundary_s) // self.period_s) + 1
            self.boundary_s += periods * self.period_s
            self._used = 0.0
        return self.limit - self._used

    def charge(self, amount: float, now: float) -> None:
        self.available(now)
        self._used += amount

    def refund(self, amount: float, now: float) -> None:
        self.available(now)
        self._used = max(0.0, self._used - amount)

    def set_level(self, level: float, now: float) -> None:
        """Adopt the remainder that somebody who knows better has reported."""
        self.available(now)
        self._used = self.limit - level

    def when(self, amount: float, now: float) -> float:
        missing = min(amount, self.limit) - self.available(now)
        return now if missing <= SLACK * max(1.0, amount) else self.boundary_s

    def statistics(self) -> MeterStatistics:
        return MeterStatistics(self.limit, self.limit - self._used, self._used)


class Gauge:
    """At most `limit` held at once. Time does nothing: only a refund makes room."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.held = 0.0

    def __repr__(self) -> str:
        return f"<Gauge {self.held:g}/{self.limit:g}>"

    def available(self, now: float) -> float:  # noqa: ARG002 - the verb is the meters' own
        return self.limit - self.held

    def charge(self, amount: float, now: float) -> None:  # noqa: ARG002
        self.held += amount

    def refund(self, amount: float, now: float) -> None:  # noqa: ARG002
        self.held -= amount

    def when(self, amount: float, now: float) -> float:
        return now if self.available(now) >= amount else inf

    def statistics(self) -> MeterStatistics:
        return MeterStatistics(self.limit, self.limit - self.held, self.held)


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
