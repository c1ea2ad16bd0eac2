"""Seeded random draws, the same on every machine, and a neighbour on the account.

A draw is a hash of seed, stream and index: a new draw in one place never shifts those of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, exp, inf, log, pi, sqrt
from typing import Final, Literal

from msgspec import Struct

from headway.base.values import Limit, Resource
from headway.pacing.meters import Bucket, Meter

_MASK: Final = (1 << 64) - 1


def _mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014): every bit in moves every bit out."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, stream: int, index: int) -> float:
    """A number in (0, 1), never the ends, so that its logarithm is finite."""
    bits = _mix(_mix(_mix(seed & _MASK) ^ (stream & _MASK)) ^ (index & _MASK))
    return ((bits >> 11) + 0.5) / (1 << 53)


def normal(seed: int, stream: int, index: int) -> float:
    """A standard normal draw (Box-Muller)."""
    radius = sqrt(-2.0 * log(uniform(seed, stream, 2 * index)))
    return radius * cos(2.0 * pi * uniform(seed, stream, 2 * index + 1))


def lognormal(seed: int, stream: int, index: int, sigma: float) -> float:
    """A factor with median 1 and log-deviation `sigma`."""
    return exp(sigma * normal(seed, stream, index)) if sigma > 0 else 1.0


BACKLOG_S_MAX: Final = 10.0
"""A neighbour gives up calls that it could not place for this long."""

FAIR_SHARE: Final = 0.5
"""A neighbour's fair share is at most half of a limit."""


class Neighbour(Struct, frozen=True):
    """Another user of the account: the share of each rate that it wants, when, and its slots."""

    share: float = 0.0
    slots: int = 0
    shape: Literal["square", "ramp", "burst"] = "square"
    on_s: float = inf
    off_s: float = 0.0
    start_s: float = 0.0
    tick_s: float = 1.0

    def wants(self, now: float) -> float:
        """Share of each rate wanted during the tick that begins at `now`."""
        phase_s = self._phase_s(now)
        if phase_s is None:
            return 0.0
        if self.shape == "square" or self.on_s == inf:
            return self.share
        if self.shape == "ramp":
            return self.share * phase_s / self.on_s
        return self.share * self.on_s / self.tick_s if phase_s < self.tick_s else 0.0

    def holds(self, now: float) -> int:
        """Slots wanted at `now`: all of them while it is on."""
        return 0 if self._phase_s(now) is None else self.slots

    def _phase_s(self, now: float) -> float | None:
        """How long it has been on; None while it is off."""
        if now < self.start_s:
            return None
        phase_s = (now - self.start_s) % (self.on_s + self.off_s)
        return phase_s if phase_s < self.on_s else None


class Presence:
    """A neighbour on one account; `wanted` and `served` are seconds of the whole limit."""

    def __init__(self, neighbour: Neighbour, now: float) -> None:
        self.neighbour = neighbour
        self.next_tick_s = now
        self.wanted = 0.0
        self.served = 0.0
        self._backlog = 0.0
        self.slots = 0

    def tick(
        self,
        meters: Sequence[tuple[Limit, Meter]],
        note: Callable[[Resource, float], None],
        now: float,
    ) -> None:
        """Place as many whole calls as fit; the rest waits in the backlog."""
        neighbour = self.neighbour
        self.next_tick_s = now + neighbour.tick_s
        fresh = neighbour.wants(now) * neighbour.tick_s
        self.wanted += min(fresh, FAIR_SHARE * neighbour.tick_s)
        quantum = neighbour.share * neighbour.tick_s
        patience = max(neighbour.share * BACKLOG_S_MAX, fresh)
        self._backlog = min(self._backlog + fresh, patience)
        while quantum > 0 and self._backlog >= quantum * (1 - 1e-9):
            asks = [
                (limit.resource, meter, quantum * _rate(limit, meter))
                for limit, meter in meters
                if limit.kind != "gauge"
            ]
            if any(meter.when(ask, now) > now for _, meter, ask in asks):
                break
            taken: dict[Resource, float] = {}
            for resource, meter, ask in asks:
                meter.charge(ask, now)
                taken[resource] = max(ask, taken.get(resource, 0.0))
            for resource, amount in taken.items():
                note(resource, amount)
            self._backlog -= quantum
            self.served += quantum
        for limit, meter in meters:
            if limit.resource == "concurrency":
                change = neighbour.holds(now) - self.slots
                if change > 0:
                    change = min(change, max(0, int(meter.available(now))))
                meter.charge(change, now)
                self.slots += change


def _rate(limit: Limit, meter: Meter) -> float:
    """The rate at which a limit refills as it stands now."""
    return meter.rate_per_s if isinstance(meter, Bucket) else meter.size / limit.period_s
