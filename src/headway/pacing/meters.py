"""How a limit counts: buckets refill, windows forget, gauges are given back.

Laws:
- All meters have the same methods. `when(amount)` is the earliest instant at which `amount` is
  available if nothing else is charged; `fits_s` also leaves what calls in flight will still take.
- A call larger than the whole limit waits for the limit to be full and then goes into debt.
- `begin` charges a call and holds back what it will take later; `end` corrects both, once.
- Time never runs backwards: a `now` before the last one counts as the last one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from math import inf
from typing import Final

from msgspec import Struct

from headway.base.values import Limit

GRAINS_PER_PERIOD: Final = 2000
"""Charges within a 2,000th of the period are kept as one, stamped with the later time."""
SLACK: Final = 1e-9
"""Relative rounding slack: a level that misses a need by less has reached it."""


NEARLY_FULL: Final = 0.9
"""A call that, with the floor, needs more than this share of a bucket goes when it is so full, or
when its own need is there: a floor must not ask for more than there ever is."""


class PlannedStream(Struct, frozen=True, gc=False):
    """An answer as planned: its tokens come evenly between two times."""

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


class Meter(ABC):
    """What is left of a limit, and what is held back for calls in flight."""

    def __init__(self, size: float) -> None:
        self.size = size
        self.period_s = inf
        self._held = 0.0
        self._in_flight = 0

    @property
    def planned(self) -> float:
        """What calls in flight will still take."""
        return self._held

    @abstractmethod
    def available(self, now: float) -> float:
        """What has not been taken yet."""

    @abstractmethod
    def charge(self, amount: float, now: float) -> None:
        """Take so much."""

    @abstractmethod
    def when(self, amount: float, now: float) -> float:
        """When so much is available."""

    def refund(self, amount: float, now: float) -> None:
        """Give so much back."""
        self.charge(-amount, now)

    def level(self, now: float) -> float:
        """What has not been taken yet, nor produced by the streams in flight."""
        return self.available(now)

    def left(self, now: float) -> float:
        """What has not been taken and is not held back."""
        return self.available(now) - self._held

    def fits_s(
        self, need: float, later: float, stream: PlannedStream, floor: float, now: float,
        debt: float = 0.0,
    ) -> float:  # fmt: skip
        """When a call fits beside what is held back; inf if only the end of calls makes room."""
        whole = min(need + later + floor, self.size) + self._held
        return self.when(whole, now) if whole <= self.size else inf

    def begin(self, need: float, later: float, stream: PlannedStream, now: float) -> float:
        """A call takes so much now and will take so much later. Returns what is left."""
        self.charge(need, now)
        self._in_flight += 1
        self._held += later
        return self.left(now)

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:
        """A stream turned out to be shorter or longer than planned."""
        self._held += after.tokens - before.tokens

    def end(
        self, extra: float, later: float, used: float, stream: PlannedStream, sent_s: float,
        now: float,
    ) -> None:  # fmt: skip
        """A call has ended: it took `extra` more than it was charged, and `used` after that."""
        self.correct(extra, sent_s, now)
        self._in_flight -= 1
        # Sums of floats drift: with nothing in flight, nothing is held back.
        self._held = self._held - later if self._in_flight else 0.0
        self.charge(used, now)

    def correct(self, extra: float, charged_s: float, now: float) -> None:
        """Correct an earlier charge: in a sliding window as of then, elsewhere as of now."""
        if extra > 0:
            self.charge(extra, now)
        else:
            self.refund(-extra, now)


class Bucket(Meter):
    """A level that refills at `rate_per_s` up to its size."""

    def __init__(self, rate_per_s: float, size: float, now: float) -> None:
        Meter.__init__(self, size)
        self.rate_per_s = rate_per_s
        self.clipped_s = now
        """When refill was last lost because the bucket was full."""
        self._level = size
        self._at_s = now

    def available(self, now: float) -> float:
        level = self._level
        if now > self._at_s:
            level += self.rate_per_s * (now - self._at_s)
            if level >= self.size:
                level = self.size
                self.clipped_s = now
            self._level = level
            self._at_s = now
        return level

    level = available

    def charge(self, amount: float, now: float) -> None:
        if now > self._at_s:
            self.available(now)
        self._level -= amount

    def begin(self, need: float, later: float, stream: PlannedStream, now: float) -> float:
        # Most calls are charged at the time at which it was seen that they fit.
        if now > self._at_s:
            self.available(now)
        self._level -= need
        self._in_flight += 1
        self._held += later
        return self._level - self._held

    def end(
        self, extra: float, later: float, used: float, stream: PlannedStream, sent_s: float,
        now: float,
    ) -> None:  # fmt: skip
        level = self.available(now) - extra
        self._level = (self.size if extra < 0.0 and level > self.size else level) - used
        self._in_flight -= 1
        self._held = self._held - later if self._in_flight else 0.0

    def refund(self, amount: float, now: float) -> None:
        self._level = min(self.size, self.available(now) + amount)

    def drain(self, amount: float, now: float) -> None:
        """Charge what flowed out evenly since the last time: refill and outflow meet halfway."""
        elapsed = max(0.0, now - self._at_s)
        level = self._level + self.rate_per_s * elapsed - amount
        self._at_s = max(now, self._at_s)
        if level >= self.size:
            self.clipped_s = self._at_s
        self._level = min(self.size, level)

    def set_level(self, level: float, now: float) -> None:
        """Adopt a level that the provider has reported."""
        self.available(now)
        self._level = min(self.size, level)

    def resize(self, rate_per_s: float, size: float, now: float) -> None:
        """The limit changed: debts stay, what exceeds the new size is gone."""
        level = self.available(now)
        self.rate_per_s = rate_per_s
        self.size = size
        self._level = min(level, size)

    def when(self, amount: float, now: float) -> float:
        missing = min(amount, self.size) - self.available(now)
        if missing <= SLACK * max(1.0, amount):
            return now
        return max(now, self._at_s) + missing / self.rate_per_s if self.rate_per_s > 0 else inf

    def fits_s(
        self, need: float, later: float, stream: PlannedStream, floor: float, now: float,
        debt: float = 0.0,
    ) -> float:  # fmt: skip
        # What is paid later is money, which is firm.
        if not later and need + floor > NEARLY_FULL * self.size:
            return self.when(max(need, NEARLY_FULL * self.size) + self._held, now)
        return super().fits_s(need, later, stream, floor, now)


class SlidingWindow(Meter):
    """At most its size in any `period_s` seconds."""

    def __init__(self, size: float, period_s: float) -> None:
        super().__init__(size)
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
        return self.size - self._used

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

    def correct(self, extra: float, charged_s: float, now: float) -> None:
        """What is forgotten already stays so."""
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
        missing = min(amount, self.size) - self.available(now)
        for at, held in self._charges:
            if missing <= SLACK * max(1.0, amount):
                break
            missing -= held
            now = at + self.period_s
            for release_s, charged_s in self._releases:
                if at <= charged_s:
                    now = min(now, release_s)
        return now


class FixedWindow(Meter):
    """At most its size between one aligned boundary and the next, `period_s` later."""

    def __init__(self, size: float, period_s: float, boundary_s: float) -> None:
        Meter.__init__(self, size)
        self.period_s = period_s
        self.boundary_s = boundary_s
        """When the current window ends."""
        self.used = 0.0

    def available(self, now: float) -> float:
        if now >= self.boundary_s:
            periods = int((now - self.boundary_s) // self.period_s) + 1
            self.boundary_s += periods * self.period_s
            self.used = 0.0
        return self.size - self.used

    def charge(self, amount: float, now: float) -> None:
        self.available(now)
        self.used += amount

    def refund(self, amount: float, now: float) -> None:
        self.available(now)
        self.used = max(0.0, self.used - amount)

    def set_level(self, level: float, now: float) -> None:
        """Adopt the remainder that the provider has reported."""
        self.available(now)
        self.used = self.size - level

    def when(self, amount: float, now: float) -> float:
        missing = min(amount, self.size) - self.available(now)
        return now if missing <= SLACK * max(1.0, amount) else self.boundary_s


class Gauge(Meter):
    """At most its size held at once. Time does nothing: only a refund makes room."""

    def __init__(self, size: float) -> None:
        super().__init__(size)
        self.held = 0.0

    def available(self, now: float) -> float:
        return self.size - self.held

    def charge(self, amount: float, now: float) -> None:
        self.held += amount

    def when(self, amount: float, now: float) -> float:
        return now if self.available(now) >= amount else inf


def meter_of(limit: Limit, now: float) -> Meter:
    """The meter that counts as `limit` counts; buckets and windows start full."""
    if limit.kind == "bucket":
        return Bucket(limit.rate_per_s, limit.capacity, now)
    if limit.kind == "sliding":
        return SlidingWindow(limit.amount, limit.period_s)
    if limit.kind == "fixed":
        return FixedWindow(limit.amount, limit.period_s, now + limit.period_s)
    return Gauge(limit.amount)
