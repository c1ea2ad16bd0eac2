"""The state of a run, and the changes that events make to it.

Laws:
- A task that has not ended is in exactly one place: pending, ready, active, delayed, proposed, or
  parked. A ready one stands in the line, unless it waits for its turn in a queue; a parked one
  will when those have ended whose writes it is known to read.
- A move changes what it is about and nothing else; none of them decides anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from msgspec import Struct, field

from headway.base.values import Fault
from headway.engine.events import TaskDelayed, TaskProposed, TaskStale, TaskStarted
from headway.engine.strategy import ADAPTIVE, LOOKAHEAD, Strategy
from headway.plans.graph import Graph
from headway.plans.ready import DONE, READY, TAKEN, ReadySet
from headway.state.coherence import Coherence

# Whose turn it is in each queue: its tasks start one at a time, in declared order.


class Sequencer:
    """The turn of every queue."""

    __slots__ = ("_members", "_queues", "_ready_set", "_turns")

    def __init__(self, graph: Graph, ready_set: ReadySet) -> None:
        self._queues = graph.queues
        self._ready_set = ready_set
        self._turns = dict.fromkeys(graph.queues, 0)
        self._members = dict.fromkeys(graph.queues, 0)

    def turn(self, queue: str) -> tuple[int, int] | None:
        """The group and the member whose turn it is, past all that has ended; none at the end."""
        groups, ready_set = self._queues[queue], self._ready_set
        states, numbers = ready_set.states, ready_set.numbers
        while (place := self._turns[queue]) < len(groups):
            group, member = groups[place], self._members[queue]
            members = numbers.members(group)
            while member < len(members) and states[members[member]] >= DONE:
                member += 1
            self._members[queue] = member
            if member < len(members) or not (numbers.is_known(group) or ready_set.is_lost[group]):
                return group, member
            self._turns[queue], self._members[queue] = place + 1, 0
        return None


# Which ready task is first: by priority, then by the way that is left behind it, then as declared.


class ReadyQueue:
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
        self.sizes = [0] * len(groups)  # of every group, its members in the line
        self.ready = 0
        self.local = 0

    def clear(self) -> None:
        for group in range(len(self.sizes)):
            self.sizes[group] = self._is_queued[group] = 0
        for heap in self._heaps:
            heap.clear()
        self.ready = self.local = 0

    def put(self, group: int, tasks: range) -> None:
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

    def _members(self, group: int, count: int) -> list[int]:
        last, found = self._lasts[group], []
        task = self._cursors[group] - 1
        for _ in range(min(count, self.sizes[group])):
            task = self._states.find(READY, task + 1, last)
            found.append(task)
        return found

    def _descend(self, heads: list[tuple[int, int, int]], index: int, here: int) -> None:
        heapq.heappop(heads)
        heap = self._heaps[here]
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heapq.heappush(heads, (heap[child], child, here))


class Halt(NamedTuple):
    """After so many failed tasks nothing more starts; what is started ends by itself, or now."""

    failures: int
    is_now: bool = False


class Rules(Struct, frozen=True):
    """How a run treats its tasks."""

    strategy: Strategy = ADAPTIVE
    retries: int = 3
    """Attempts after the first, for groups that do not say."""
    halt: Halt | None = None
    ceiling: float = inf
    """The user's own: never are more tasks active; with `adaptive`, as many as that."""
    is_patient: bool = False
    """A refusal for want of room uses up no attempt: the task waits, it does not fail."""

    @property
    def is_exact(self) -> bool:
        """Whether the user says how many tasks are active: nothing but that limits them."""
        return self.strategy.kind != "adaptive" or self.ceiling < inf

    def callers(self, waiting: int) -> float:
        """How many more tasks may make calls, given how many wait for a permit."""
        return inf if self.is_exact else LOOKAHEAD - waiting


class State(Struct):
    """Everything the engine knows. Facts are changed by `apply` alone."""

    graph: Graph
    rules: Rules
    ranks: list[float]
    """Of every group, what goes first among equals in priority."""
    ready_set: ReadySet
    line: ReadyQueue
    sequencer: Sequencer
    active: dict[int, int] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    local: int = 0
    tried: dict[int, int] = field(default_factory=dict)
    """Attempts so far, of tasks that are not active and have not ended."""
    earlier: dict[int, int] = field(default_factory=dict)
    """Attempts that do not count as tries: of an earlier process, or put back by a hold."""
    delayed: dict[int, float] = field(default_factory=dict)
    wakes: list[tuple[float, int]] = field(default_factory=list)
    """When delayed tasks may start, by time; what is no longer delayed is passed over."""
    coherence: Coherence | None = None
    """The order in which tasks that touch the shared state are committed, if any does."""
    proposed: dict[int, TaskProposed] = field(default_factory=dict)
    finished: int = 0
    failed: int = 0
    skipped: int = 0
    wave: int = 0
    places: float = inf
    """For tasks that use this machine. A gauge, not a fact: it comes and goes with the process."""
    is_paused: bool = False
    pause_reason: str = ""
    held_until_s: float = -inf
    hold_reason: str = ""
    is_begun: bool = False
    is_stopping: bool = False
    over: bool = False

    @property
    def left(self) -> int:
        """Tasks that have not ended; a group of unknown size counts as one."""
        ended = self.finished + self.failed + self.skipped
        return self.ready_set.numbers.total + self.ready_set.unknown - ended

    def place(self, task: int) -> tuple[int, int]:
        return self.ready_set.numbers.place(task)

    def task_of(self, group: int, member: int) -> int:
        return self.ready_set.numbers.task_of(group, member)

    def is_held(self, now: float) -> bool:
        """Whether the run is paused, or a usage window is empty."""
        return self.is_paused or now < self.held_until_s

    def is_put_back(self, fault: Fault, now: float) -> bool:
        """An attempt that came too late for a hold or a stop, and was refused, was no try at all;
        neither was one that met a full disk, or whose work did not land."""
        is_late = fault.kind == "rate" and (self.is_held(now) or self.is_stopping)
        return fault.kind in ("disk", "bounced") or is_late

    def offer(self, freed: list[range]) -> None:
        """Let ready tasks stand in the line; those of a queue when they have their turn."""
        groups = self.graph.groups
        for tasks in freed:
            group = self.ready_set.numbers.group_of(tasks.start)
            if groups[group].touches is not None:
                self._offer_open(group, tasks)
            elif groups[group].queue:
                self.give_turn(groups[group].queue)
            else:
                self.line.put(group, tasks)

    def _offer_open(self, group: int, tasks: range) -> None:
        assert self.coherence is not None  # Where something touches the state there is one.
        for task in tasks:
            if not self.coherence.is_open(task):
                self.ready_set.states[task] = TAKEN
            elif not self.graph.groups[group].queue:
                self.line.put(group, range(task, task + 1))
        if queue := self.graph.groups[group].queue:
            self.give_turn(queue)

    def grow(self, group: int) -> None:
        """The members of a group are known: some of them may touch the shared state."""
        if self.coherence is not None:
            self.coherence.expand(group, self.ready_set.numbers.members(group))

    def ripen(self, now: float) -> None:
        """What was delayed until now is ready. No fact of its own: time alone says it."""
        wakes = self.wakes
        while wakes and wakes[0][0] <= now:
            at_s, task = heapq.heappop(wakes)
            if self.delayed.get(task) == at_s:
                del self.delayed[task]
                self.give_back(task)

    def start(self, event: TaskStarted) -> None:
        task = event.task
        group = self.ready_set.numbers.group_of(task)
        if self.line.has(group, task):
            self.line.take(group, task)
        else:
            self.ready_set.states[task] = TAKEN
            self.delayed.pop(task, None)
        self.tried.pop(task, None)
        self.active[task] = event.attempt
        if self.graph.groups[group].is_local:
            self.local += 1
        else:
            self.waiting.add(task)

    def end(self, task: int) -> None:
        group = self.ready_set.numbers.group_of(task)
        self._leave(task, group)
        self.finished += 1
        if self.coherence is not None:
            self.coherence.commit(task)
        if freed := self.ready_set.done(task):
            self.offer(freed)
        if queue := self.graph.groups[group].queue:
            self.give_turn(queue)

    def delay(self, event: TaskDelayed) -> None:
        task = event.task
        self._leave(task, self.ready_set.numbers.group_of(task))
        self.tried[task] = event.attempt
        self.delayed[task] = event.again_s
        heapq.heappush(self.wakes, (event.again_s, task))
        if event.again_s == inf or self.is_put_back(event.fault, event.at_s):
            self.earlier[task] = self.earlier.get(task, 0) + 1

    def propose(self, event: TaskProposed) -> None:
        self._leave(event.task, self.ready_set.numbers.group_of(event.task))
        self.proposed[event.task] = event
        assert self.coherence is not None
        self.coherence.propose(event.task)

    def outdate(self, event: TaskStale) -> None:
        """A task runs again because of what it had read; that is no try of its own."""
        task = event.task
        self._leave(task, self.ready_set.numbers.group_of(task))
        self.tried[task] = event.attempt
        self.earlier[task] = self.earlier.get(task, 0) + 1
        assert self.coherence is not None
        self.coherence.stale(task, event.what, event.because)
        self.give_back(task)

    def pass_over(self, task: int) -> None:
        """A task will not start: something that it needs has failed."""
        self.skipped += 1
        if self.coherence is not None:
            self.coherence.end(task)

    def fail(self, task: int) -> None:
        """A task has no result, and neither have those that need one: their queues go on.

        Tasks that only waited for its end, or for theirs, may start.
        """
        self._leave(task, self.ready_set.numbers.group_of(task))
        self.failed += 1
        freed = self.ready_set.fail(task)[1]
        if self.coherence is not None:
            self.coherence.end(task)
            for group, is_lost in enumerate(self.ready_set.is_lost):
                if is_lost and not self.ready_set.numbers.is_known(group):
                    self.coherence.expand(group, range(0))
        if freed:
            self.offer(freed)
        for queue in self.graph.queues:
            self.give_turn(queue)

    def _leave(self, task: int, group: int) -> None:
        """A task is not active any more, nor ready if the run took it back before its end."""
        if self.active.pop(task, None) is None:
            self.proposed.pop(task, None)
            self.tried.pop(task, None)
            self.delayed.pop(task, None)
            if self.line.has(group, task):
                self.line.take(group, task)
        elif self.graph.groups[group].is_local:
            self.local -= 1
        self.waiting.discard(task)

    def take_back(self) -> None:
        """What is active goes back to where it was before it started."""
        for task, attempt in self.active.items():
            self.tried[task] = attempt
            self.give_back(task)
        self.active.clear()
        self.waiting.clear()
        self.local = 0

    def give_back(self, task: int) -> None:
        self.ready_set.states[task] = READY
        self.offer([range(task, task + 1)])

    def give_turn(self, queue: str) -> None:
        """Let the first of a queue stand in the line, if it is ready and does not yet."""
        if (turn := self.sequencer.turn(queue)) is None:
            return
        group, member = turn
        if self.ready_set.numbers.is_known(group) and not self.line.sizes[group]:
            task = self.task_of(group, member)
            if self.ready_set.states[task] == READY:
                self.line.put(group, range(task, task + 1))
