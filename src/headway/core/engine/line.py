"""Which ready task is first: by priority, then by the way that is left behind it, then as declared.

Laws:
- Members of a group are alike, so the line orders groups, and within one the lowest number is
  first. A ready task is a byte in the ready set: a group of a million costs one entry here.
- Looking changes nothing; taking one out costs the logarithm of the number of groups.
- Tasks that use this machine stand in a line of their own, so that a full machine does not keep
  others from starting.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.core.plan.graph import Graph
from headway.core.plan.ready import READY, TAKEN, ReadySet


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """How many may start, elsewhere and here."""

    ready: int
    local: int


class Line:
    """Ready tasks in the order in which they start."""

    __slots__ = (
        "_at", "_cursors", "_group_at", "_has_turns", "_heaps", "_is_local", "_is_queued", "_lasts",
        "_states", "local", "ready", "sizes",
    )  # fmt: skip

    def __init__(self, graph: Graph, ready_set: ReadySet, ranks: Sequence[float]) -> None:
        groups = graph.groups
        order = sorted(range(len(groups)), key=lambda g: (-groups[g].priority, -ranks[g], g))
        self._group_at = order
        self._at = [0] * len(order)
        for place, group in enumerate(order):
            self._at[group] = place
        self._states = ready_set.states
        self._lasts = ready_set.numbers.lasts
        self._is_local = [group.is_local for group in groups]
        self._has_turns = [bool(group.queue) for group in groups]
        self._is_queued = bytearray(len(groups))
        self._cursors = [0] * len(groups)
        self._heaps: tuple[list[int], list[int]] = ([], [])
        self.sizes = [0] * len(groups)
        """Of every group, how many of its members stand in the line."""
        self.ready = 0
        """Tasks in the line, whether they use this machine or not."""
        self.local = 0
        """Those of them that do."""

    def __repr__(self) -> str:
        return f"<Line {self.ready} ready, {self.local} of them local>"

    def copied(self, ready_set: ReadySet) -> Line:
        """Another one like this, for a copy of its ready set."""
        twin: Line = object.__new__(Line)
        twin._group_at, twin._at = self._group_at, self._at
        twin._is_local, twin._has_turns = self._is_local, self._has_turns
        twin._states, twin._lasts = ready_set.states, ready_set.numbers.lasts
        twin._is_queued, twin._cursors = self._is_queued[:], self._cursors[:]
        twin._heaps = self._heaps[0][:], self._heaps[1][:]
        twin.sizes, twin.ready, twin.local = self.sizes[:], self.ready, self.local
        return twin

    def clear(self) -> None:
        """Nobody stands in the line."""
        for group in range(len(self.sizes)):
            self.sizes[group] = self._is_queued[group] = 0
        for heap in self._heaps:
            heap.clear()
        self.ready = self.local = 0

    def put(self, group: int, tasks: range) -> None:
        """These members of a group are ready and stand in the line from now on."""
        count, first = len(tasks), tasks.start
        if self.sizes[group] == 0 or first < self._cursors[group]:
            self._cursors[group] = first
        self.sizes[group] += count
        self.ready += count
        is_local = self._is_local[group]
        if is_local:
            self.local += count
        if not self._is_queued[group]:
            self._is_queued[group] = True
            heapq.heappush(self._heaps[is_local], self._at[group])

    def has(self, group: int, task: int) -> bool:
        """Whether a task stands in the line. Of a queue, a ready task does when it has its turn."""
        if self._states[task] != READY:
            return False
        has_turn = self.sizes[group] > 0 and self._cursors[group] == task
        return has_turn or not self._has_turns[group]

    def take(self, group: int, task: int) -> None:
        """One that stands in the line leaves it."""
        self._states[task] = TAKEN
        if self._cursors[group] == task:
            self._cursors[group] = task + 1
        self.sizes[group] -= 1
        self.ready -= 1
        is_local = self._is_local[group]
        if is_local:
            self.local -= 1
        heap = self._heaps[is_local]
        while heap and not self.sizes[self._group_at[heap[0]]]:
            self._is_queued[self._group_at[heapq.heappop(heap)]] = False

    def first(self, count: int, elsewhere: int, here: int) -> list[int]:
        """The next tasks, best first; so many at most, and so many of them elsewhere and here."""
        if self.ready and not self.local:
            elsewhere = min(elsewhere, count)
            heap = self._heaps[0]
            if self.sizes[best := self._group_at[heap[0]]] >= elsewhere:
                return self._members(best, elsewhere)
        chosen: list[int] = []
        rooms = [elsewhere, here]
        heads = [(heap[0], 0, which) for which, heap in enumerate(self._heaps) if heap]
        heapq.heapify(heads)
        while heads and len(chosen) < count:
            place, index, which = heads[0]
            if rooms[which] <= 0:
                heapq.heappop(heads)
                continue
            room = min(rooms[which], count - len(chosen))
            found = self._members(self._group_at[place], room)
            chosen += found
            rooms[which] -= len(found)
            self._descend(heads, index, which)
        return chosen

    def ahead(self, group: int, task: int, without: Mapping[int, set[int]]) -> tuple[int, int]:
        """How many stand before the place that a task has or would have, elsewhere and here.

        Some members of some groups, which must end first anyhow, do not count.
        """
        counts = [0, 0]
        for here, heap in enumerate(self._heaps):
            for place in heap:
                other = self._group_at[place]
                if place < self._at[group]:
                    excused = [task for task in without.get(other, ()) if self.has(other, task)]
                    counts[here] += self.sizes[other] - len(excused)
        if self.sizes[group] and not self._has_turns[group]:
            before = self._states.count(READY, self._cursors[group], task)
            counts[self._is_local[group]] += before
        return counts[0], counts[1]

    def statistics(self) -> LineStatistics:
        return LineStatistics(self.ready - self.local, self.local)

    def _members(self, group: int, count: int) -> list[int]:
        """The first members of a group that stand in the line."""
        last, found = self._lasts[group], []
        task = self._cursors[group] - 1
        for _ in range(min(count, self.sizes[group])):
            task = self._states.find(READY, task + 1, last)
            found.append(task)
        return found

    def _descend(self, heads: list[tuple[int, int, int]], index: int, here: int) -> None:
        """Go on from one place of a heap to those behind it, which may be next."""
        heapq.heappop(heads)
        heap = self._heaps[here]
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heapq.heappush(heads, (heap[child], child, here))
