"""How many tasks may use this machine at once: a law that looks at its processors and memory.

The law, once for each sample:
- It starts with one place for each core: what only computes needs no more.
- While processors are idle (busy below 80 %) and memory is free (above 15 %), places grow by a
  quarter, at least by one: tasks that mostly wait for others cost little here. They never grow
  beyond twice of what is active, so that a law which nobody tests does not run away.
- While processors are saturated (busy above 97 % with more than two runnable threads a core), or
  memory is nearly gone (below 5 %), places shrink by a quarter, at least by one: what waits for a
  core only takes memory. One place is always left.
- In between they stay. A change needs time to be seen: samples within `SETTLE_S` of the last
  change are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

SETTLE_S: Final = 0.5
IDLE_BELOW: Final = 0.80
SATURATED_ABOVE: Final = 0.97
QUEUE_LONG: Final = 2.0
"""Runnable threads for each core: with one each, a machine is in full use and nobody waits."""
MEMORY_FREE_ABOVE: Final = 0.15
MEMORY_GONE_BELOW: Final = 0.05
SHARE: Final = 0.25
PLACES_PER_CORE_MAX: Final = 256
"""A process is a few megabytes even when it only waits: beyond this nobody can want more."""


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the machine was just now."""

    cpu_busy: float
    """Share of all cores, 0 to 1."""
    memory_available: float
    """Share of all memory, 0 to 1."""
    active: int
    """Tasks of ours that use this machine."""
    runnable_per_core: float = 0.0
    """Threads that run or could run."""


@dataclass(frozen=True, slots=True)
class LocalLawStatistics:
    """Where the law is, and how often it moved."""

    places: int
    grown: int
    shrunk: int


class LocalLaw:
    """The places of one machine."""

    __slots__ = ("_changed_s", "_cores", "_grown", "_shrunk", "places")

    def __init__(self, cores: int) -> None:
        self._cores = max(1, cores)
        self.places = self._cores
        self._changed_s = -inf
        self._grown = 0
        self._shrunk = 0

    def __repr__(self) -> str:
        return f"<LocalLaw {self.places} places on {self._cores} cores>"

    def observe(self, load: Load, now: float) -> int:
        """A sample: how many places there are from now on."""
        if now < self._changed_s + SETTLE_S:
            return self.places
        step = max(1, int(SHARE * self.places))
        is_queued = load.cpu_busy > SATURATED_ABOVE and load.runnable_per_core > QUEUE_LONG
        is_idle = load.cpu_busy < IDLE_BELOW and load.memory_available > MEMORY_FREE_ABOVE
        if (is_queued or load.memory_available < MEMORY_GONE_BELOW) and self.places > 1:
            self._shrunk += 1
            self._change(self.places - step, now)
        elif is_idle and self.places < (most := self._most(load.active)):
            self._grown += 1
            self._change(min(most, self.places + step), now)
        return self.places

    def statistics(self) -> LocalLawStatistics:
        return LocalLawStatistics(self.places, self._grown, self._shrunk)

    def _most(self, active: int) -> int:
        """After it shrank the law may always grow back to one place for each core."""
        return min(max(self._cores, 2 * active), PLACES_PER_CORE_MAX * self._cores)

    def _change(self, places: int, now: float) -> None:
        self.places, self._changed_s = places, now
