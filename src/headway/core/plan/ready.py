"""Which tasks may start, as others end: one byte for each task, one counter for each group.

Laws:
- A task becomes ready exactly once: when the last of its needs is done. A task with a need that
  failed is lost exactly once, and never ready.
- A group that is needed entirely is done when its last member is; an empty one when its own
  needs are, so that what needs it still comes after what it needs.
- Ready and lost tasks come as ranges of numbers: a group of a million is one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

from headway.core.plan.graph import Graph, Numbering
from headway.errors import InternalError

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


@dataclass(frozen=True, slots=True)
class ReadySetStatistics:
    """How many tasks are where."""

    pending: int
    ready: int
    taken: int
    done: int
    failed: int
    lost: int


class ReadySet:
    """Which tasks may start. Tasks may be reported done in any order (a resume)."""

    __slots__ = (
        "_arrived", "_graph", "_is_fresh", "_missing", "_unfinished", "is_lost", "numbers",
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
        self._unfinished: list[int] = []
        self._arrived: dict[int, bytearray] = {}

    def __repr__(self) -> str:
        counts = zip(WORDS, astuple(self.statistics()), strict=True)
        return f"<ReadySet {', '.join(f'{count} {word}' for word, count in counts)}>"

    def open(self) -> list[range]:
        """All tasks that may start, counted afresh in one pass over groups and edges."""
        graph, numbers = self._graph, self.numbers
        self._missing = [
            len(needs) - len(one_by_one)
            for needs, one_by_one in zip(graph.needs, graph.memberwise, strict=True)
        ]
        self._unfinished = [0] * len(graph)
        known = [group for group in graph.order if numbers.is_known(group)]
        for group in known:
            if graph.memberwise[group]:
                self._arrived[group] = bytearray(len(numbers.members(group)))
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
        self._unfinished[group] = count
        if self._graph.memberwise[group]:
            self._arrived[group] = bytearray(count)
        if self._missing[group]:
            return []
        return self._opened(group) if count else self._freed_by(group)

    def done(self, task: int) -> list[range]:
        """A task is done: which tasks became ready by it."""
        group, member = self.numbers.place(task)
        _end(self.states, task, DONE)
        self._unfinished[group] -= 1
        freed: list[range] = []
        for follower in self._graph.followers[group]:
            if not self.is_lost[follower]:
                freed += self._arrive(follower, member)
        if self._unfinished[group] == 0:
            freed += self._freed_by(group)
        return freed

    def doomed(self, task: int) -> list[range]:
        """Which tasks could never start if this one failed, in the order of their numbers."""
        return _pending(self, self._behind(task), self.numbers.place(task)[1])

    def fail(self, task: int) -> list[range]:
        """A task failed for good: which tasks can never start because of it."""
        behind = self._behind(task)
        lost = _pending(self, behind, self.numbers.place(task)[1])
        _end(self.states, task, FAILED)
        for group, is_whole in behind.items():
            if is_whole:
                self.is_lost[group] = True
                self.unknown -= not self.numbers.is_known(group)
        for tasks in lost:
            self.states[tasks.start : tasks.stop] = bytes((LOST,)) * len(tasks)
        return lost

    def is_done(self, group: int) -> bool:
        """Whether nothing of a group, which may be empty, is to be waited for any more."""
        if not self.numbers.is_known(group) or self._unfinished[group]:
            return False
        return not self._missing[group] or len(self.numbers.members(group)) > 0

    def statistics(self) -> ReadySetStatistics:
        """Counts as of now; nothing is left to do when none is pending, ready or taken."""
        return ReadySetStatistics(*(self.states.count(state) for state in range(len(WORDS))))

    def _count(self, group: int) -> list[range]:
        """What of a known group is done and ready; everything that it needs was counted before."""
        first, last = self.numbers.firsts[group], self.numbers.lasts[group]
        done = 0 if self._is_fresh else self.states.count(DONE, first, last)
        unfinished = self._unfinished[group] = last - first - done
        for follower in self._graph.followers[group] if done else ():
            arrived = self._arrived[follower]
            for member, state in enumerate(self.states[first:last]):
                arrived[member] += state == DONE
        is_open = self._missing[group] == 0
        if unfinished:
            return self._opened(group) if is_open else []
        if is_open or done:
            for waiter in self._graph.waiters[group]:
                self._missing[waiter] -= 1
        return []

    def _freed_by(self, group: int) -> list[range]:
        """All of a group is done: what needed all of it may start, behind empty groups too."""
        freed: list[range] = []
        complete = [group]
        while complete:
            for waiter in self._graph.waiters[complete.pop()]:
                self._missing[waiter] -= 1
                if self._missing[waiter] or not self.numbers.is_known(waiter):
                    continue
                if self._unfinished[waiter]:
                    freed += self._opened(waiter)
                elif self.numbers.firsts[waiter] == self.numbers.lasts[waiter]:
                    complete.append(waiter)
        return freed

    def _opened(self, group: int) -> list[range]:
        """All that a group needs entirely is done: those of its members that need no more."""
        first, last = self.numbers.firsts[group], self.numbers.lasts[group]
        states, needed = self.states, len(self._graph.memberwise[group])
        if needed == 0:
            is_whole = self._is_fresh
            ready = [range(first, last)] if is_whole else _pending_runs(states, first, last)
        elif (arrived := self._arrived[group]) != bytes(last - first):
            pairs = zip(arrived, states[first:last], strict=True)
            ready = _runs(first, [n == needed and state == PENDING for n, state in pairs])
        else:
            return []
        for tasks in ready:
            states[tasks.start : tasks.stop] = bytes((READY,)) * len(tasks)
        return ready

    def _arrive(self, follower: int, member: int) -> list[range]:
        """One more of what a member needs is done."""
        arrived = self._arrived[follower]
        arrived[member] += 1
        if self._missing[follower] or arrived[member] < len(self._graph.memberwise[follower]):
            return []
        task = self.numbers.task_of(follower, member)
        if self.states[task] != PENDING:
            return []
        self.states[task] = READY
        return [range(task, task + 1)]

    def _behind(self, task: int) -> dict[int, bool]:
        """The groups that need a task, and those that need them: entirely, or its member only."""
        behind: dict[int, bool] = {}
        reached = [(self.numbers.group_of(task), False)]
        while reached:
            group, is_whole = reached.pop()
            edges = [(waiter, True) for waiter in self._graph.waiters[group]]
            edges += [(follower, is_whole) for follower in self._graph.followers[group]]
            for other, whole in edges:
                if not self.is_lost[other] and behind.get(other, -1) < whole:
                    behind[other] = whole
                    reached.append((other, whole))
        return behind


def _pending(ready_set: ReadySet, behind: dict[int, bool], member: int) -> list[range]:
    """Those tasks of groups that are still pending: of all their members, or of one."""
    firsts, lasts = ready_set.numbers.firsts, ready_set.numbers.lasts
    pending: list[range] = []
    for group in sorted(behind, key=firsts.__getitem__):
        first, last = firsts[group], lasts[group]
        if not behind[group]:
            first, last = first + member, first + member + 1
        pending += _pending_runs(ready_set.states, first, last)
    return pending


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
