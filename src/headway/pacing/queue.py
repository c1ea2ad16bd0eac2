"""Start-time fair queueing between flows, on the dominant resource.

Laws:
- Two classes. While a waiter of the first class waits, none of the second is the head.
- Order. A branch serves its backlogged child with the lowest start tag, a leaf its waiter with
  the lowest key; equal tags take turns, equal keys go in order of arrival.
- Charge. A service moves the start tag of every flow on its path by `cost_s`. So two flows
  that stay backlogged never differ by more than one call of each, whatever the costs.
- No credit for idleness. A flow that returns starts at the virtual time of its branch, or where
  its past services end if that is later. A refund never takes it back before its return.
- No debt without contention. A branch without waiters forgets who was served last.
- Memory is bounded by the waiters and by the flows that are ahead of virtual time.

The cost is the dominant share, max_r need_r / rho_r, in seconds (Ghodsi et al., SIGCOMM 2012) over
start-time fair queueing (Goyal et al., SIGCOMM 1996).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, count, islice
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from headway.errors import BadValueError, InternalError
from headway.pacing.call import WaitVersion

T = TypeVar("T")

DEPTH_MAX: Final = 8
"""Levels of a path that are told apart: every service costs one heap operation per level."""

LOOK_MAX: Final = 128
"""Entries of one line that `peek` looks at: many may belong to flows that rest."""

GARBAGE_MIN: Final = 16
"""Dead heap entries that are let be; above this, a heap is rebuilt when most of it is dead."""

LATER: Final = 1 << 62
"""A turn that comes after every turn that was ever given."""


class _Waiter(NamedTuple, Generic[T]):
    """A call in line. Compared as a tuple in C: key first, then place, which is unique."""

    key: tuple[float, ...]
    place: int
    cost_s: float
    leaf: _Flow[T]
    item: T


class _Flow(Struct, Generic[T], eq=False):
    """What fairness is between. It has flows or, if its name is `None`, its parent's own waiters.

    Every child is in line: backlogged, or resting ahead of its time. The first in line is always
    backlogged, the first of the waiters never one that left.
    """

    name: str | None
    parent: _Flow[T] | None
    turns: Iterator[int]
    start: float = 0.0
    entered: float = 0.0
    turn: int = 0
    """Names its one living entry in the parent's line."""
    waiting: int = 0
    waiters: list[_Waiter[T]] = field(default_factory=list)
    virtual: float = 0.0
    children: dict[str | None, _Flow[T]] = field(default_factory=dict)
    line: list[tuple[float, int, _Flow[T]]] = field(default_factory=list)

    def child(self, name: str | None) -> _Flow[T]:
        """The child of this name, made at the virtual time where there is none."""
        child = self.children.get(name)
        if child is None:
            child = _Flow(name, self, self.turns, self.virtual, self.virtual)
            self.children[name] = child
            self.requeue(child)
        return child

    def requeue(self, child: _Flow[T]) -> None:
        """Put a child in line by its start tag; an entry that it had before is dead."""
        child.turn = next(self.turns)
        entry = (child.start, child.turn, child)
        if self.line and self.line[0][2] is child:
            heapreplace(self.line, entry)
            return
        heappush(self.line, entry)
        if len(self.line) > 2 * len(self.children) + GARBAGE_MIN:
            self.line = [entry for entry in self.line if entry[1] == entry[2].turn]
            heapify(self.line)

    def tidy(self) -> None:
        """Forget resting children whose tag time has reached, until a backlogged one is first.

        When none is backlogged the busy period ends, and virtual time moves to the last tag.
        """
        while self.line:
            tag, turn, child = self.line[0]
            alive = turn == child.turn
            if alive and child.waiting:
                return
            heappop(self.line)
            if alive:
                del self.children[child.name]
                self.virtual = max(self.virtual, tag)

    def drop_dead(self, alive: Container[int]) -> None:
        """Drop waiters that left from the front at once, from the middle when they are many."""
        while self.waiters and self.waiters[0].place not in alive:
            heappop(self.waiters)
        if len(self.waiters) > 2 * self.waiting + GARBAGE_MIN:
            self.waiters = [waiter for waiter in self.waiters if waiter.place in alive]
            heapify(self.waiters)


class FairQueue(Generic[T]):
    """Waiters of many flows in fair order. A flow is a path such as `("run-1", "session-2")`, which
    may be the beginning of another one."""

    def __init__(self) -> None:
        self._turns = count(1)
        self._first_class: _Flow[T] = _Flow(None, None, self._turns)
        self._root: _Flow[T] = _Flow(None, None, self._turns)
        self._waiters: dict[int, _Waiter[T]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def push(
        self, path: tuple[str, ...], key: tuple[float, ...], cost_s: float, item: T,
        is_first: bool = False,
    ) -> int:  # fmt: skip
        """Add a waiter to a flow and return its place, by which it can be removed or taken."""
        if not 0.0 <= cost_s < inf:
            raise BadValueError(f"a waiter's cost is {cost_s} s, which no flow can be charged")
        leaf = self._leaf(path, is_first)
        place = next(self._turns)
        waiter = _Waiter(key, place, cost_s, leaf, item)
        self._waiters[place] = waiter
        heappush(leaf.waiters, waiter)
        flow = leaf
        while (branch := flow.parent) is not None:
            flow.waiting += 1
            if flow.waiting == 1:
                flow.entered = branch.virtual
                # Refunds can leave a flow that then rests behind the virtual time.
                if flow.start < branch.virtual:
                    flow.start = branch.virtual
                    branch.requeue(flow)
            flow = branch
        return place

    def items(self) -> list[T]:
        """All waiters, in order of arrival."""
        return [waiter.item for waiter in self._waiters.values()]

    def head(self) -> T | None:
        """The next waiter in fair order; it stays in line."""
        waiter = self._first()
        return None if waiter is None else waiter.item

    def take(self, place: int, cost_s: float | None = None) -> T:
        """Serve a waiter, the head or out of order: remove it and charge its flow what it costs, by
        what is known now or was when it came."""
        waiter = self._waiters.pop(place, None)
        if waiter is None:
            raise InternalError(f"nobody waits at place {place}")
        self._settle(waiter.leaf, 1, waiter.cost_s if cost_s is None else cost_s)
        return waiter.item

    def remove(self, place: int) -> T | None:
        """Let a waiter leave without a service; `None` when it is gone already."""
        waiter = self._waiters.pop(place, None)
        if waiter is None:
            return None
        self._settle(waiter.leaf, 1, None)
        return waiter.item

    def peek(self, n: int) -> list[T]:
        """The next waiters in fair order, if `LOOK_MAX` entries of each line show them."""
        held: list[_Waiter[T]] = []
        classes = (self._first_class, self._root)
        upcoming = chain.from_iterable(_upcoming(each, self._waiters, held) for each in classes)
        items = [waiter.item for waiter in islice(upcoming, n)]
        for waiter in held:
            heappush(waiter.leaf.waiters, waiter)
        return items

    def correct(self, path: tuple[str, ...], delta_cost_s: float, is_first: bool = False) -> None:
        """Charge a flow for what a settled call used beyond its cost, or refund it (negative).

        A refund to a flow that is forgotten by now is lost.
        """
        if not -inf < delta_cost_s < inf:
            raise BadValueError(f"a correction is {delta_cost_s} s, which no flow can be charged")
        self._settle(self._leaf(path, is_first), 0, delta_cost_s)

    def _first(self) -> _Waiter[T] | None:
        if not self._waiters:
            return None
        flow = self._first_class if self._first_class.line else self._root
        while flow.line:
            flow = flow.line[0][2]
        return flow.waiters[0]

    def _leaf(self, path: tuple[str, ...], is_first: bool) -> _Flow[T]:
        flow = self._first_class if is_first else self._root
        for name in path[:DEPTH_MAX]:
            flow = flow.child(name)
        return flow.child(None)

    def _settle(self, leaf: _Flow[T], departures: int, cost_s: float | None) -> None:
        """Take departures off a path, bottom up, and charge or refund every flow on it."""
        flow = leaf
        while (branch := flow.parent) is not None:
            flow.waiting -= departures
            # A service that costs nothing still uses up a turn.
            if cost_s is not None:
                if departures:
                    branch.virtual = max(branch.virtual, branch.line[0][0])
                flow.start = max(flow.entered, flow.start + cost_s)
                branch.requeue(flow)
            branch.tidy()
            flow = branch
        leaf.drop_dead(self._waiters)


def _upcoming(
    flow: _Flow[T], alive: Container[int], held: list[_Waiter[T]]
) -> Iterator[_Waiter[T]]:
    """A flow's waiters in the order of service. What is taken out of heaps goes to `held`."""
    if flow.name is None and flow.parent is not None:
        # Popping and putting back, unlike looking, pays for each dead entry only once.
        while flow.waiters:
            waiter = heappop(flow.waiters)
            if waiter.place in alive:
                held.append(waiter)
                yield waiter
        return
    # Of the line, a heap, n services look at n entries.
    line = flow.line
    ahead = [(tag, turn, 0) for tag, turn, _ in line[:1]]
    streams: dict[int, Iterator[_Waiter[T]]] = {}
    looked = 0
    while ahead and looked <= LOOK_MAX:
        tag, turn, index = heappop(ahead)
        child = line[index][2]
        if index not in streams:
            looked += 1
            for below in range(2 * index + 1, min(2 * index + 3, len(line))):
                heappush(ahead, (line[below][0], line[below][1], below))
            if turn != child.turn:
                continue
            streams[index] = _upcoming(child, alive, held)
        upcoming = next(streams[index], None)
        if upcoming is not None:
            yield upcoming
            # A flow that was served takes the next turn, after all who have the same tag.
            heappush(ahead, (tag + upcoming.cost_s, LATER + len(held), index))


class WaitTimes:
    """What one queue waits for, over time."""

    def __init__(self) -> None:
        self.now = WaitVersion({}, "", -inf)
        """Kept by every call that joins: what came since is what it waited for."""

    def note(self, cause: str, now: float) -> None:
        """From now on the queue waits for this; for nothing, if it is empty."""
        totals, before, since_s = self.now
        if cause != before:
            if before:
                totals = {**totals, before: totals.get(before, 0.0) + now - since_s}
            self.now = WaitVersion(totals, cause, now)

    def longest(self, joined: WaitVersion, joined_s: float, now: float) -> str:
        """What the queue has waited for longest since a call joined; nothing, if it has not."""
        if joined is self.now:
            return joined.cause if now > joined_s else ""
        waited = {
            cause: total_s - joined.totals.get(cause, 0.0)
            for cause, total_s in self.now.totals.items()
        }
        for version, at_s, sign in ((self.now, now, 1.0), (joined, joined_s, -1.0)):
            if version.cause:
                part_s = sign * (at_s - version.since_s)
                waited[version.cause] = waited.get(version.cause, 0.0) + part_s
        cause = max(waited, key=waited.__getitem__, default="")
        return cause if cause and waited[cause] > 0.0 else ""
