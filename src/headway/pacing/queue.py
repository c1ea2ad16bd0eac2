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

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain, count, islice
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from headway.errors import BadValueError, InternalError

T = TypeVar("T")
Rank = float | tuple[float, ...]
"""Keys of one queue are all of one kind: 100,000 numbers take 5 MB less than tuples of one."""
DEPTH_MAX: Final = 8
"""Levels of a path that are told apart: every service moves one entry in line per level."""
LOOK_MAX: Final = 128
"""Entries of one line that `peek` looks at: many may belong to flows that rest."""


class _Waiter(NamedTuple, Generic[T]):
    """A call in line. Compared as a tuple in C: key first, then place, which is unique."""

    key: Rank
    place: int
    cost_s: float
    leaf: _Flow[T]
    item: T


class _Flow(Struct, Generic[T], eq=False):
    """What fairness is between. It has flows or, if its name is `None`, its parent's own waiters.

    Every child is in line: backlogged, or resting ahead of its time. The first in line is always
    backlogged. Lists that are kept sorted: to move their entries costs less than to look for them.
    """

    name: str | None
    parent: _Flow[T] | None
    turns: Iterator[int]
    start: float = 0.0
    entered: float = 0.0
    turn: int = 0
    """Of flows with the same start tag, the lower one is first."""
    waiting: int = 0
    waiters: list[_Waiter[T]] = field(default_factory=list)
    virtual: float = 0.0
    children: dict[str | None, _Flow[T]] = field(default_factory=dict)
    line: list[tuple[float, int, _Flow[T]]] = field(default_factory=list)

    def child(self, name: str | None) -> _Flow[T]:
        """The child of this name, made at the virtual time where there is none."""
        child = self.children.get(name)
        if child is None:
            child = self.children[name] = _Flow(name, self, self.turns, entered=self.virtual)
            self.requeue(child, self.virtual)
        return child

    def requeue(self, child: _Flow[T], start: float) -> None:
        """Put a child in line by a new start tag, behind those that have the same."""
        if child.turn:
            del self.line[bisect_left(self.line, (child.start, child.turn, child))]
        child.start, child.turn = start, next(self.turns)
        insort(self.line, (start, child.turn, child))

    def tidy(self) -> None:
        """Forget resting children whose tag time has reached, until a backlogged one is first.

        When none is backlogged the busy period ends, and virtual time moves to the last tag.
        """
        while self.line and not self.line[0][2].waiting:
            tag, _, child = self.line.pop(0)
            del self.children[child.name]
            self.virtual = max(self.virtual, tag)

    def upcoming(self) -> Iterator[_Waiter[T]]:
        """The waiters in the order of service, if `LOOK_MAX` entries of each line show them."""
        yield from self.waiters
        ahead = [
            (tag, turn, child.upcoming()) for tag, turn, child in self.line[:LOOK_MAX]
            if child.waiting
        ]  # fmt: skip
        while ahead:
            tag, _, waiters = heappop(ahead)
            for waiter in waiters:
                yield waiter
                # A flow that was served takes the next turn, after all who have the same tag.
                heappush(ahead, (tag + waiter.cost_s, next(self.turns), waiters))
                break


class FairQueue(Generic[T]):
    """Waiters of many flows in fair order. A flow is a path such as `("run-1", "session-2")`."""

    def __init__(self) -> None:
        self._turns = count(1)
        self._first_class: _Flow[T] = _Flow(None, None, self._turns)
        self._root: _Flow[T] = _Flow(None, None, self._turns)
        self.waiters: dict[int, _Waiter[T]] = {}
        """By place, in order of arrival."""

    def push(
        self, path: tuple[str, ...], key: Rank, cost_s: float, item: T,
        is_first: bool = False,
    ) -> int:  # fmt: skip
        """Add a waiter to a flow and return its place, by which it can be removed or taken."""
        if not 0.0 <= cost_s < inf:
            raise BadValueError(f"a waiter's cost is {cost_s} s, which no flow can be charged")
        leaf = self._leaf(path, is_first)
        place = next(self._turns)
        waiter = self.waiters[place] = _Waiter(key, place, cost_s, leaf, item)
        insort(leaf.waiters, waiter)
        flow = leaf
        while (branch := flow.parent) is not None:
            flow.waiting += 1
            if flow.waiting == 1:
                flow.entered = branch.virtual
                # Refunds can leave a flow that then rests behind the virtual time.
                if flow.start < branch.virtual:
                    branch.requeue(flow, branch.virtual)
            flow = branch
        return place

    def items(self) -> list[T]:
        """All waiters, in order of arrival."""
        return [waiter.item for waiter in self.waiters.values()]

    def head(self) -> T | None:
        """The next waiter in fair order; it stays in line."""
        return self._first().item if self.waiters else None

    def take(self, place: int, cost_s: float | None = None) -> T:
        """Serve a waiter: remove it and charge its flow, by the cost now or when it came."""
        waiter = self.waiters.get(place)
        if waiter is None:
            raise InternalError(f"no call waits at place {place}")
        self._leave(waiter, waiter.cost_s if cost_s is None else cost_s)
        return waiter.item

    def remove(self, place: int) -> T | None:
        """Let a waiter leave without a service; `None` when it is gone already."""
        waiter = self.waiters.get(place)
        if waiter is None:
            return None
        self._leave(waiter, None)
        return waiter.item

    def peek(self, n: int) -> list[T]:
        """The next waiters in fair order."""
        upcoming = chain(self._first_class.upcoming(), self._root.upcoming())
        return [waiter.item for waiter in islice(upcoming, n)]

    def correct(self, path: tuple[str, ...], delta_cost_s: float, is_first: bool = False) -> None:
        """Charge a flow for what a settled call used beyond its cost, or refund it (negative).

        A refund to a flow that is forgotten by now is lost.
        """
        if not -inf < delta_cost_s < inf:
            raise BadValueError(f"a correction is {delta_cost_s} s, which no flow can be charged")
        self._settle(self._leaf(path, is_first), 0, delta_cost_s)

    def _first(self) -> _Waiter[T]:
        flow = self._first_class if self._first_class.line else self._root
        while flow.line:
            flow = flow.line[0][2]
        return flow.waiters[0]

    def _leaf(self, path: tuple[str, ...], is_first: bool) -> _Flow[T]:
        flow = self._first_class if is_first else self._root
        for name in path[:DEPTH_MAX]:
            flow = flow.child(name)
        return flow.child(None)

    def _leave(self, waiter: _Waiter[T], cost_s: float | None) -> None:
        leaf = waiter.leaf
        del self.waiters[waiter.place]
        del leaf.waiters[bisect_left(leaf.waiters, waiter)]
        self._settle(leaf, 1, cost_s)

    def _settle(self, leaf: _Flow[T], departures: int, cost_s: float | None) -> None:
        """Take departures off a path, bottom up, and charge or refund every flow on it."""
        flow = leaf
        while (branch := flow.parent) is not None:
            flow.waiting -= departures
            # A service that costs nothing still uses up a turn.
            if cost_s is not None:
                if departures:
                    branch.virtual = max(branch.virtual, branch.line[0][0])
                branch.requeue(flow, max(flow.entered, flow.start + cost_s))
            branch.tidy()
            flow = branch
