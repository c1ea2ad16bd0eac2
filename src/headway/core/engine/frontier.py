"""Tasks that have not ended and may write something, by what that is, and who waits for them.

Laws:
- A waiter goes on when no task before it is left that may write what it looks at: same key, a key
  within, or a folder around it.
- Joining, waiting and ending cost a logarithm each; nobody is looked at who does not move.
- A copy shares fronts with what it was made of; whoever changes one first makes it its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from headway.core.plan.paths import above
from headway.core.plan.touches import Prefixes

EVERYTHING: Final = ""
"""The folder that every key lies in."""
STANDS_MAX: Final = 4096
"""Sets of things written, or read, whose fronts are remembered."""
NOBODY: Final = 1 << 62
"""Behind the place of every task."""


@dataclass(frozen=True, slots=True)
class FrontierStatistics:
    """Fronts, and those who wait at them."""

    fronts: int
    waiting: int


@dataclass(slots=True)
class _Front:
    """Those who may write one thing, and those who wait until all before them have ended."""

    owner: object
    """Whoever may change it."""
    _heap: list[int] = field(default_factory=list)
    _writers: set[int] = field(default_factory=set)
    first: int = NOBODY
    """The lowest position that has not ended."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Position and ticket, lowest first."""

    def copied(self, owner: object) -> _Front:
        return _Front(owner, self._heap[:], self._writers.copy(), self.first, self.waiting[:])

    def add(self, position: int) -> None:
        """It may write this; whoever may do so for several reasons is there once."""
        if position not in self._writers:
            self._writers.add(position)
            heapq.heappush(self._heap, position)
            self.first = self._heap[0]

    def extend(self, positions: range) -> None:
        """All of these may, none of whom is there: a group is known."""
        self._writers.update(positions)
        self._heap += positions
        heapq.heapify(self._heap)
        self.first = self._heap[0]

    def discard(self, position: int) -> None:
        """It has ended: of those who are left the lowest one is the first."""
        self._writers.discard(position)
        heap = self._heap
        while heap and heap[0] not in self._writers:
            heapq.heappop(heap)
        self.first = heap[0] if heap else NOBODY


class Frontier:
    """Fronts by key. A task waits at one front at a time; tickets are numbers of tasks."""

    __slots__ = ("_fronts", "_owner", "_wanted")

    def __init__(self) -> None:
        self._owner = object()
        self._fronts: dict[str, _Front] = {}
        """Under a key: who may write it, or everything in it. Under a folder's name and a slash:
        who may write something within that folder."""
        self._wanted: dict[int, tuple[int, Prefixes]] = {}
        """Of every ticket that waits: its position and what it looks at."""

    def __repr__(self) -> str:
        return f"<Frontier {self.statistics()}>"

    def copied(self) -> Frontier:
        """Another one like this."""
        twin = Frontier()
        twin._fronts, twin._wanted = self._fronts.copy(), self._wanted.copy()
        self._owner = object()  # What both have now belongs to neither.
        return twin

    def join(self, position: int, writes: Prefixes) -> None:
        """A task that may write this has not ended."""
        for name in stands(writes):
            self._own(name).add(position)

    def join_all(self, positions: range, writes: Prefixes) -> None:
        """Tasks that may write this have not ended; there is at least one, and all are new."""
        for name in stands(writes):
            self._own(name).extend(positions)

    def end(self, position: int, writes: Prefixes) -> list[int]:
        """It has ended: the tickets that go on."""
        free: list[int] = []
        for name in stands(writes):
            front = self._own(name)
            is_first = front.first == position
            front.discard(position)
            if not is_first:
                continue
            waiting = front.waiting
            while waiting and waiting[0][0] <= front.first:
                _, ticket = heapq.heappop(waiting)
                if self._goes_on(ticket):
                    free.append(ticket)
        return free

    def blocker(self, position: int, reads: Prefixes) -> int | None:
        """The lowest position before this one that may write what it looks at."""
        first = position
        fronts = self._fronts
        for name in watches(reads):
            front = fronts.get(name)
            if front is not None and front.first < first:
                first = front.first
        return first if first < position else None

    def awaited(self, ticket: int) -> tuple[int, Prefixes] | None:
        """The lowest position that a ticket waits for, and what it looks at; None if it does not
        wait."""
        wanted = self._wanted.get(ticket)
        first = None if wanted is None else self.blocker(*wanted)
        return None if wanted is None or first is None else (first, wanted[1])

    def wait(self, ticket: int, position: int, reads: Prefixes) -> bool:
        """Whether it may go on; if not, `end` gives its ticket later."""
        self._wanted[ticket] = (position, reads)
        return self._goes_on(ticket)

    def forget(self, ticket: int) -> None:
        """It does not wait any more, whatever happens."""
        self._wanted.pop(ticket, None)

    def statistics(self) -> FrontierStatistics:
        return FrontierStatistics(len(self._fronts), len(self._wanted))

    def _goes_on(self, ticket: int) -> bool:
        wanted = self._wanted.get(ticket)
        if wanted is None:
            return False  # It was forgotten.
        position, reads = wanted
        fronts = self._fronts
        for name in watches(reads):
            front = fronts.get(name)
            if front is not None and front.first < position:
                heapq.heappush(self._own(name).waiting, (position, ticket))
                return False
        del self._wanted[ticket]
        return True

    def _own(self, name: str) -> _Front:
        """A front to be changed."""
        front = self._fronts.get(name)
        if front is None:
            front = self._fronts[name] = _Front(self._owner)
        elif front.owner is not self._owner:
            front = self._fronts[name] = front.copied(self._owner)
        return front


@lru_cache(maxsize=STANDS_MAX)
def stands(writes: Prefixes) -> tuple[str, ...]:
    """Where a writer stands: at what it writes, and in every folder around that."""
    names = (EVERYTHING,) if writes is None else writes
    folders = (f"{folder}/" for name in names for folder in above(name))
    return tuple(dict.fromkeys((*names, *folders)))


@lru_cache(maxsize=STANDS_MAX)
def watches(reads: Prefixes) -> tuple[str, ...]:
    """The fronts that a reader looks at: of what it reads, around it, and within."""
    return tuple(dict.fromkeys(_watched((EVERYTHING,) if reads is None else reads)))


def _watched(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield name
        yield f"{name}/"
        yield from above(name)
