"""Which tasks may start as others finish.

Laws:
- A task becomes ready exactly once: when the last of its needs is done. A task with a need that
  failed is lost exactly once, and never ready.
- A group that is needed entirely is done when its last member is; an empty one when its own
  needs are, so that what needs it still comes after what it needs.
- For a lenient need, who failed or is lost counts as done. That forgives members, not an
  unknown group: one whose size will never be known fails all that need it.
- Ready and lost tasks come as ranges of numbers: a group of a million is one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import maxsize
from typing import Final

from headway.errors import InternalError
from headway.plans.graph import Graph, Numbering

PENDING: Final = 0
"""Something that it needs is not done."""
READY: Final = 1
"""It may start."""
TAKEN: Final = 2
"""It has started, or waits for its next attempt."""
DONE: Final = 3
FAILED: Final = 4
LOST: Final = 5
"""Something that it needs has failed."""

WORDS: Final = ("pending", "ready", "taken", "done", "failed", "lost")

_UNOPENED: Final = bytes(PENDING if state == READY else state for state in range(256))
"""What was ready is counted again."""

_IS_DONE: Final = bytes(state == DONE for state in range(256))
_IS_ENDED: Final = bytes(DONE <= state <= LOST for state in range(256))

EVERY: Final = range(maxsize)
"""All members of a group, known or not."""


class ReadySet:
    """Which tasks may start. Tasks may be reported done in any order (a resume)."""

    __slots__ = (
        "_arrived", "_graph", "_is_fresh", "_missing", "_unended", "is_lost", "numbers",
        "states", "unknown",
    )  # fmt: skip

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.numbers = Numbering(graph.groups)
        self.unknown = self.numbers.unknown
        """Groups whose members are still to be found out."""
        self.states = bytearray(self.numbers.total)
        """Of every task, by number, one of the states above."""
        self.is_lost = bytearray(len(graph))
        """Of every group, whether no member will ever start, known or not."""
        self._is_fresh = True
        self._missing: list[int] = []
        self._unended: list[int] = []
        self._arrived: dict[int, bytearray] = {}

    def open(self) -> list[range]:
        """All tasks that may start, counted afresh in one pass over groups and edges."""
        graph, numbers = self._graph, self.numbers
        self._missing = [
            len(needs) - len(in_blocks)
            for needs, in_blocks in zip(graph.needs, graph.blocks, strict=True)
        ]
        self._unended = [0] * len(graph)
        known = [group for group in graph.order if numbers.is_known(group)]
        for group in known:
            if graph.blocks[group]:
                self._arrived[group] = _arrivals(self, graph, group)
        ready = [tasks for group in known for tasks in self._count(group)]
        self._is_fresh = False
        return ready

    def restore(self, done: Iterable[int]) -> int:
        """Before anything started: these are done. How many of them were not; then `open` again."""
        states, new = self.states, 0
        for task in done:
            new += states[task] != DONE
            states[task] = DONE
        states[:] = states.translate(_UNOPENED)
        return new

    def expand(self, group: int, count: int) -> list[range]:
        """The members of a group are known: which of them, or behind them, may start."""
        self.numbers.expand(group, count)
        self.unknown -= 1
        self.states.extend(bytes(count))
        self._unended[group] = count
        if self._graph.blocks[group]:
            self._arrived[group] = _arrivals(self, self._graph, group)
        if self._missing[group]:
            return []
        return self._opened(group) if count else self._freed_by(group)

    def done(self, task: int) -> list[range]:
        """A task is done: which tasks became ready by it."""
        group, member = self.numbers.place(task)
        _end(self.states, task, DONE)
        self._unended[group] -= 1
        freed: list[range] = []
        for follower, block, _ in self._graph.followers[group]:
            if not self.is_lost[follower]:
                freed += self._arrive(follower, member // block, 1)
        if self._unended[group] == 0:
            freed += self._freed_by(group)
        return freed

    def doomed(self, task: int) -> list[range]:
        """Which tasks could never start if this one failed, in the order of their numbers."""
        return _pending(self, _behind(self, self._graph, task))

    def fail(self, task: int) -> tuple[list[range], list[range]]:
        """A task failed for good: which tasks can never start because of it, and which can now."""
        behind = _behind(self, self._graph, task)
        lost = _pending(self, behind)
        _end(self.states, task, FAILED)
        for tasks in lost:
            self.states[tasks.start : tasks.stop] = bytes((LOST,)) * len(tasks)
        empty: list[int] = []
        for group, members in behind.items():
            if EVERY in members:
                if not self.numbers.members(group) and self._missing[group]:
                    empty.append(group)  # It was not done before, and has no member that ends.
                self.is_lost[group] = True
                self.unknown -= not self.numbers.is_known(group)
        freed = self._ended(range(task, task + 1))
        for tasks in lost:
            freed += self._ended(tasks)
        for group in empty:
            freed += self._freed_by(group)
        return lost, freed

    def is_done(self, group: int) -> bool:
        """Whether nothing of a group, which may be empty, is to be waited for any more."""
        if not self.numbers.is_known(group) or self._unended[group]:
            return False
        is_open = not self._missing[group] or self.is_lost[group] > 0
        return is_open or len(self.numbers.members(group)) > 0

    def _count(self, group: int) -> list[range]:
        """What of a known group is ready; everything that it needs was counted before."""
        first, last = self.numbers.firsts[group], self.numbers.lasts[group]
        ended = 0 if self._is_fresh else _flags(self, group, _IS_ENDED).count(1)
        unended = self._unended[group] = last - first - ended
        is_open = self._missing[group] == 0
        if unended:
            return self._opened(group) if is_open else []
        if is_open or ended or self.is_lost[group]:
            for waiter in self._graph.waiters[group]:
                self._missing[waiter] -= 1
        return []

    def _ended(self, tasks: range) -> list[range]:
        """Tasks of one group have ended without a result: what needed no more may start."""
        group, first = self.numbers.place(tasks.start)
        last = first + len(tasks)
        self._unended[group] -= len(tasks)
        freed: list[range] = []
        for follower, block, is_lenient in self._graph.followers[group]:
            if is_lenient and not self.is_lost[follower]:
                some: list[range] = []
                for member in range(first // block, (last - 1) // block + 1):
                    begin, end = max(first, member * block), min(last, (member + 1) * block)
                    some += self._arrive(follower, member, end - begin)
                freed += _merged(some)
        if self._unended[group] == 0:
            freed += self._freed_by(group)
        return freed

    def _freed_by(self, group: int) -> list[range]:
        """All of a group has ended: what needed all of it may start, behind empty groups too."""
        freed: list[range] = []
        complete = [group]
        while complete:
            for waiter in self._graph.waiters[complete.pop()]:
                self._missing[waiter] -= 1
                if self._missing[waiter] or not self.numbers.is_known(waiter):
                    continue
                if self._unended[waiter]:
                    freed += self._opened(waiter)
                elif self.numbers.firsts[waiter] == self.numbers.lasts[waiter]:
                    # One that is lost was complete by that.
                    complete += [] if self.is_lost[waiter] else [waiter]
        return freed

    def _opened(self, group: int) -> list[range]:
        """All that a group needs entirely is done: those of its members that need no more."""
        first, last = self.numbers.firsts[group], self.numbers.lasts[group]
        states, needed = self.states, self._graph.arrivals[group]
        if needed == 0:
            is_whole = self._is_fresh
            ready = [range(first, last)] if is_whole else _pending_runs(states, first, last)
        elif needed in (arrived := self._arrived[group]):
            pairs = zip(arrived, states[first:last], strict=True)
            ready = _runs(first, [n == needed and state == PENDING for n, state in pairs])
        else:
            return []
        for tasks in ready:
            states[tasks.start : tasks.stop] = bytes((READY,)) * len(tasks)
        return ready

    def _arrive(self, follower: int, member: int, count: int) -> list[range]:
        """So many more of what a member needs have ended."""
        arrived = self._arrived[follower]
        now = arrived[member] = arrived[member] + count
        if now < self._graph.arrivals[follower] or self._missing[follower]:
            return []
        task = self.numbers.task_of(follower, member)
        if self.states[task] != PENDING:
            return []
        self.states[task] = READY
        return [range(task, task + 1)]


def _arrivals(ready_set: ReadySet, graph: Graph, group: int) -> bytearray:
    """Of every member of a group, how many of the tasks that it needs in blocks are done."""
    numbers, count = ready_set.numbers, len(ready_set.numbers.members(group))
    arrived = bytearray(count)
    for need in graph.blocks[group] if count else ():
        # What the last block lacks is not waited for.
        arrived[-1] += need.block * count - len(numbers.members(need.group))
        flags = _flags(ready_set, need.group, _IS_ENDED if need.is_lenient else _IS_DONE)
        if 1 in flags:
            for member, has_arrived in enumerate(flags):
                arrived[member // need.block] += has_arrived
    return arrived


def _flags(ready_set: ReadySet, group: int, table: bytes) -> bytearray:
    first, last = ready_set.numbers.firsts[group], ready_set.numbers.lasts[group]
    return ready_set.states[first:last].translate(table)


def _behind(ready_set: ReadySet, graph: Graph, task: int) -> dict[int, list[range]]:
    """The members, by group, that need a task, and those that need them, and so on."""
    is_lost, numbers = ready_set.is_lost, ready_set.numbers
    group, member = numbers.place(task)
    behind: dict[int, list[range]] = {}
    reached = [(group, range(member, member + 1))]
    while reached:
        group, members = reached.pop()
        is_known = numbers.is_known(group)
        edges = [
            (waiter, EVERY)
            for waiter in graph.waiters[group]
            if not is_known or group not in graph.lenient[waiter]
        ]
        edges += [
            (follower, _blocks_of(members, block))
            for follower, block, is_lenient in graph.followers[group]
            if not is_known or not is_lenient
        ]
        for other, found in edges:
            if is_lost[other]:
                continue
            known = behind.setdefault(other, [])
            if found not in known and EVERY not in known:
                known.append(found)
                reached.append((other, found))
    return behind


def _blocks_of(members: range, block: int) -> range:
    if block == 1 or members is EVERY:
        return members
    return range(members.start // block, (members.stop - 1) // block + 1)


def _pending(ready_set: ReadySet, behind: dict[int, list[range]]) -> list[range]:
    """Those of these members that are still pending, in the order of their numbers."""
    numbers = ready_set.numbers
    pending: list[range] = []
    for group in sorted(behind, key=numbers.firsts.__getitem__):
        first, last = numbers.firsts[group], numbers.lasts[group]
        for some in _merged(behind[group]):
            end = min(first + some.stop, last)
            pending += _pending_runs(ready_set.states, first + some.start, end)
    return pending


def _merged(ranges: list[range]) -> list[range]:
    """The same numbers, each once, in as few ranges as they are."""
    merged: list[range] = []
    for one in sorted(ranges, key=lambda one: one.start):
        if merged and one.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, one.stop))
        else:
            merged.append(one)
    return merged


def _end(states: bytearray, task: int, state: int) -> None:
    if (current := states[task]) >= DONE:
        raise InternalError(f"task {task} is {WORDS[current]} and ends a second time")
    states[task] = state


def _pending_runs(states: bytearray, first: int, last: int) -> list[range]:
    """The pending tasks among some. Most often all of them are, which is seen at once."""
    if states.startswith(bytes(last - first), first):
        return [range(first, last)] if last > first else []
    return _runs(first, [state == PENDING for state in states[first:last]])


def _runs(first: int, chosen: list[bool]) -> list[range]:
    """The tasks that are chosen, counted from the first one, as ranges."""
    runs: list[range] = []
    begin = None
    for task, is_chosen in enumerate([*chosen, False], first):
        if is_chosen and begin is None:
            begin = task
        elif not is_chosen and begin is not None:
            runs.append(range(begin, task))
            begin = None
    return runs
