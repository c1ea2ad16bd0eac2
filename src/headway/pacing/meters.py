"""How a limit counts: buckets refill, windows forget, gauges are given back.

Laws:
- All meters have the same methods. `when(amount)` is the earliest instant at which `amount` is
  available if nothing else is charged.
- A call larger than the whole limit waits for the limit to be full and then goes into debt.
- Time never runs backwards: a `now` before the last one counts as the last one.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

from headway.base.values import Limit

GRAINS_PER_PERIOD: Final = 2000
"""Charges within a 2,000th of the period are kept as one, stamped with the later time."""

SLACK: Final = 1e-9
"""Relative rounding slack: a level that misses a need by less has reached it."""


class Bucket:
    """A level that refills at `rate_per_s` up to `capacity`."""

    def __init__(self, rate_per_s: float, capacity: float, now: float) -> None:
        self.rate_per_s = rate_per_s
        self.capacity = capacity
        self.clipped_s = now
        """When refill was last lost because the bucket was full."""
        self._level = capacity
        self._at_s = now

    def available(self, now: float) -> float:
        level = self._level
        if now > self._at_s:
            level += self.rate_per_s * (now - self._at_s)
            if level >= self.capacity:
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

    def __init__(self, limit: float, period_s: float) -> None:
        self.limit = limit
        self.period_s = period_s
        self._charges: deque[tuple[float, float]] = deque()
        self._releases: deque[tuple[float, float]] = deque()
        self._opened_s = -inf
        """When the newest entry was begun; no entry is renewed for longer than a grain."""
        self._used = 0.0

    def available(self, now: float) -> float:
        charges = self._charges
        # Rounded as in `when`, so that what was told to be free by then is free then.
        while charges and charges[0][0] + self.period_s <= now:
            self._used -= charges.popleft()[1]
        while self._releases and self._releases[0][0] <= now:
            _, charged_s = self._releases.popleft()
            while charges and charges[0][0] <= charged_s:
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

    def release(self, charged_s: float, at_s: float) -> None:
        """What was charged until a time will be over then at the latest."""
        self._releases.append((at_s, charged_s))

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
            for release_s, charged_s in self._releases:
                if at <= charged_s:
                    now = min(now, release_s)
        return now


class FixedWindow:
    """At most `limit` between one aligned boundary and the next, `period_s` later."""

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

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.period_s = inf
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
