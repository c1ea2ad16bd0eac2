"""Tasks that have not ended and may write something, by what that is, and who waits for them.

Laws:
- A waiter goes on when no task before it is left that may write what it looks at: same key, a key
  within, or a folder around it.
- Joining, waiting and ending cost a logarithm each; nobody is looked at who does not move.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from headway.core.plan.paths import above
from headway.core.plan.touches import Prefixes

EVERYTHING: Final = ""
"""The folder that every key lies in."""
STANDS_MAX: Final = 4096
"""Sets of things written whose fronts are remembered."""


@dataclass(frozen=True, slots=True)
class FrontierStatistics:
    """Fronts, and those who wait at them."""

    fronts: int
    waiting: int


@dataclass(slots=True)
class _Front:
    """Those who may write one thing, and those who wait until all before them have ended."""

    _heap: list[int] = field(default_factory=list)
    _writers: set[int] = field(default_factory=set)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Position and ticket, lowest first."""

    def add(self, position: int) -> None:
        """It may write this; whoever may do so for several reasons is there once."""
        if position not in self._writers:
            self._writers.add(position)
            heapq.heappush(self._heap, position)

    def discard(self, position: int) -> None:
        self._writers.discard(position)

    def first(self) -> int | None:
        """The lowest position that has not ended."""
        while self._heap and self._heap[0] not in self._writers:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None


class Frontier:
    """Fronts by key. A task waits at one front at a time; tickets are numbers of tasks."""

    __slots__ = ("_around", "_at", "_stands", "_wanted")

    def __init__(self) -> None:
        self._at: dict[str, _Front] = {}
        """Who may write this, or something in it."""
        self._around: dict[str, _Front] = {}
        """Who may write something within this folder."""
        self._stands: dict[Prefixes, list[_Front]] = {}
        """Where writers stand: tasks of a group mostly write the same."""
        self._wanted: dict[int, tuple[int, Prefixes]] = {}
        """Of every ticket that waits: its position and what it looks at."""

    def __repr__(self) -> str:
        return f"<Frontier {self.statistics()}>"

    def join(self, position: int, writes: Prefixes) -> None:
        """A task that may write this has not ended."""
        for front in self._fronts(writes):
            front.add(position)

    def end(self, position: int, writes: Prefixes) -> list[int]:
        """It has ended: the tickets that go on."""
        free: list[int] = []
        for front in self._fronts(writes):
            is_first = front.first() == position
            front.discard(position)
            if not is_first:
                continue
            first = front.first()
            while front.waiting and (first is None or front.waiting[0][0] <= first):
                _, ticket = heapq.heappop(front.waiting)
                if self._goes_on(ticket):
                    free.append(ticket)
        return free

    def blocker(self, position: int, reads: Prefixes) -> int | None:
        """The lowest position before this one that may write what it looks at."""
        return min(self._blockers(position, reads), default=None)

    def awaited(self, ticket: int) -> tuple[int, Prefixes] | None:
        """The lowest position that a ticket waits for, and what it looks at; None if it does not
        wait."""
        wanted = self._wanted.get(ticket)
        return None if wanted is None else (min(self._blockers(*wanted)), wanted[1])

    def wait(self, ticket: int, position: int, reads: Prefixes) -> bool:
        """Whether it may go on; if not, `end` gives its ticket later."""
        self._wanted[ticket] = (position, reads)
        return self._goes_on(ticket)

    def forget(self, ticket: int) -> None:
        """It does not wait any more, whatever happens."""
        self._wanted.pop(ticket, None)

    def statistics(self) -> FrontierStatistics:
        return FrontierStatistics(len(self._at) + len(self._around), len(self._wanted))

    def _blockers(self, position: int, reads: Prefixes) -> Iterator[int]:
        firsts = (front.first() for front in self._watched(reads))
        return (one for one in firsts if one is not None and one < position)

    def _goes_on(self, ticket: int) -> bool:
        wanted = self._wanted.get(ticket)
        if wanted is None:
            return False  # It was forgotten.
        position, reads = wanted
        for front in self._watched(reads):
            first = front.first()
            if first is not None and first < position:
                heapq.heappush(front.waiting, (position, ticket))
                return False
        del self._wanted[ticket]
        return True

    def _fronts(self, writes: Prefixes) -> list[_Front]:
        """Where a writer stands: at what it writes, and in every folder around that."""
        stands = self._stands.get(writes)
        if stands is None:
            names = (EVERYTHING,) if writes is None else writes
            found = {("at", name): self._front(self._at, name) for name in names}
            for name in names:
                for folder in above(name):
                    found["around", folder] = self._front(self._around, folder)
            if len(self._stands) >= STANDS_MAX:
                self._stands.clear()
            stands = self._stands[writes] = list(found.values())
        return stands

    def _watched(self, reads: Prefixes) -> list[_Front]:
        """The fronts that a reader looks at: of what it reads, around it, and within."""
        names: Iterable[str] = (EVERYTHING,) if reads is None else reads
        found: dict[int, _Front] = {}
        for name in names:
            for front in (
                self._at.get(name),
                self._around.get(name),
                *map(self._at.get, above(name)),
            ):
                if front is not None:
                    found[id(front)] = front
        return list(found.values())

    @staticmethod
    def _front(fronts: dict[str, _Front], name: str) -> _Front:
        front = fronts.get(name)
        if front is None:
            front = fronts[name] = _Front()
        return front
