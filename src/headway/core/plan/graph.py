"""The tasks of a plan in declared order: who needs whom, who may start, what takes longest.

Laws:
- A task's index is its place in the declaration; every tie is broken by it, so that one plan
  gives one order.
- A graph never changes after it was made, and one that was made has no cycle, no need that is
  missing and no name twice.
- A task becomes ready exactly once: when the last of its needs is done. A task with a need that
  failed is lost exactly once, and never ready.

Nothing here recurses: a chain of 100,000 tasks is a plan like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from headway.core.values import Demand
from headway.errors import (
    CycleError,
    DuplicateTaskError,
    InternalError,
    UnknownNeedError,
    did_you_mean,
)

CHOICES_MAX: Final = 50
"""Names that a hint may choose from: more are slow to compare and useless to read."""

CYCLE_SHOWN_MAX: Final = 12
"""Tasks of a cycle that are named: a longer one is read in the plan, not in a message."""

Edges = tuple[tuple[int, ...], ...]
"""For every task, by index, the indices of others in rising order."""


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work: what it needs, the calls it makes one after another, how long it takes."""

    name: str
    needs: tuple[str, ...] = ()
    calls: tuple[Demand, ...] = ()
    weight_s: float = 0.0
    """The duration that is predicted for it."""
    priority: float = 0.0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """The shape of a graph."""

    tasks: int
    edges: int
    levels: int
    width: int


class Graph:
    """Tasks by index, with their edges in both directions, checked once and never changed."""

    __slots__ = ("_levels", "dependents", "index", "needs", "order", "tasks")

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.tasks: Final = tuple(tasks)
        self.index: Final = _index(self.tasks)
        self.needs: Final = _needs(self.tasks, self.index)
        self.dependents: Final = _dependents(self.needs)
        self._levels: Final = _levels(self.needs, self.dependents)
        self.order: Final = tuple(task for level in self._levels for task in level)
        """Every task after those that it needs: by level, then as declared."""
        if len(self.order) < len(self.tasks):
            raise _cycle_error(self.tasks, _cycle(self.needs, self.order))

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        shape = self.statistics()
        return f"<Graph {shape.tasks} tasks, {shape.edges} edges, {shape.levels} levels>"

    def weights(self) -> tuple[float, ...]:
        """The predicted duration of every task, in seconds."""
        return tuple(task.weight_s for task in self.tasks)

    def upward_rank(self, weights: Sequence[float]) -> list[float]:
        """For every task, the longest way from its start to the end of the run."""
        if len(weights) != len(self.tasks):
            raise InternalError(f"{len(weights)} weights for {len(self.tasks)} tasks")
        rank = list(weights)
        for task in reversed(self.order):
            if after := self.dependents[task]:
                rank[task] += max([rank[dependent] for dependent in after])
        return rank

    def critical_path(self, weights: Sequence[float]) -> tuple[float, tuple[int, ...]]:
        """The longest chain of tasks: its length in seconds, and its tasks in order."""
        rank = self.upward_rank(weights)
        path: list[int] = []
        choices: Sequence[int] = self._levels[0] if self._levels else ()
        while choices:
            path.append(max(choices, key=rank.__getitem__))
            choices = self.dependents[path[-1]]
        return (rank[path[0]] if path else 0.0), tuple(path)

    def width(self) -> int:
        """The most tasks on one level, where a task's level is the longest chain before it.

        That many can be active at once. The true maximum (the largest antichain) may be larger,
        because tasks of different levels can be independent; finding it needs a matching, and
        nothing here depends on the difference.
        """
        return max(map(len, self._levels), default=0)

    def statistics(self) -> GraphStatistics:
        """Counts that describe the shape."""
        return GraphStatistics(
            tasks=len(self.tasks),
            edges=sum(map(len, self.needs)),
            levels=len(self._levels),
            width=self.width(),
        )


def _index(tasks: Sequence[Task]) -> Mapping[str, int]:
    index: dict[str, int] = {}
    for place, task in enumerate(tasks):
        first = index.setdefault(task.name, place)
        if first != place:
            raise DuplicateTaskError(
                f"two tasks have the name `{task.name}`",
                where=f"tasks {first + 1} and {place + 1}",
                hint="rename one of them",
            )
    return MappingProxyType(index)


def _needs(tasks: Sequence[Task], index: Mapping[str, int]) -> Edges:
    needs: list[tuple[int, ...]] = []
    for task in tasks:
        for name in task.needs:
            if name not in index:
                raise UnknownNeedError(
                    f"`{task.name}` needs `{name}`, which the plan does not have",
                    where=f"tasks.{task.name}.needs",
                    hint=_hint(name, index),
                )
        needs.append(tuple(sorted({index[name] for name in task.needs})))
    return tuple(needs)


def _hint(name: str, names: Iterable[str]) -> str:
    """The nearest name. In a large plan only those that begin alike are compared."""
    choices = list(names)
    if len(choices) > CHOICES_MAX:
        choices = [choice for choice in choices if choice[:2] == name[:2]][:CHOICES_MAX]
    return did_you_mean(name, choices) if choices else f"add a task `{name}` or remove the need"


def _dependents(needs: Edges) -> Edges:
    dependents: list[list[int]] = [[] for _ in needs]
    for task, before in enumerate(needs):
        for need in before:
            dependents[need].append(task)
    return tuple(map(tuple, dependents))


def _levels(needs: Edges, dependents: Edges) -> tuple[tuple[int, ...], ...]:
    """Tasks by the longest chain before them. Those on or behind a cycle are on no level."""
    missing = [len(before) for before in needs]
    levels: list[tuple[int, ...]] = []
    level = tuple(task for task, count in enumerate(missing) if count == 0)
    while level:
        levels.append(level)
        freed: list[int] = []
        for task in level:
            for dependent in dependents[task]:
                missing[dependent] -= 1
                if missing[dependent] == 0:
                    freed.append(dependent)
        level = tuple(sorted(freed))
    return tuple(levels)


def _cycle(needs: Edges, order: Sequence[int]) -> list[int]:
    """One cycle among the tasks that could not be ordered, from its first task back to it."""
    ordered = set(order)
    task = min(set(range(len(needs))) - ordered)
    seen: dict[int, int] = {}
    while task not in seen:
        seen[task] = len(seen)
        task = next(need for need in needs[task] if need not in ordered)
    circle = list(seen)[seen[task] :]
    first = circle.index(min(circle))
    return [*circle[first:], *circle[: first + 1]]


def _cycle_error(tasks: Sequence[Task], cycle: Sequence[int]) -> CycleError:
    names = [tasks[task].name for task in cycle]
    shown = names
    if len(names) > CYCLE_SHOWN_MAX:
        hidden = len(names) - CYCLE_SHOWN_MAX
        shown = [*names[: CYCLE_SHOWN_MAX - 1], f"({hidden} more)", names[-1]]
    return CycleError(
        f"tasks need each other in a circle: {' -> '.join(shown)}",
        where=f"tasks.{names[0]}.needs",
        detail="each needs the next, so none of them can start",
        hint=f"remove `{names[1]}` from the needs of `{names[0]}`, or cut the circle elsewhere",
    )


class _State(IntEnum):
    """Where a task is; from `DONE` on, it is decided."""

    WAITING = 0
    READY = 1
    DONE = 2
    FAILED = 3
    LOST = 4


@dataclass(frozen=True, slots=True)
class ReadySetStatistics:
    """How many tasks are where."""

    waiting: int
    ready: int
    done: int
    failed: int
    lost: int


class ReadySet:
    """Which tasks may start, as others end. Tasks may be reported done in any order (a resume)."""

    __slots__ = ("_counts", "_graph", "_missing", "_state")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._missing = [len(needs) for needs in graph.needs]
        self._state = bytearray(len(graph))
        self._counts = [len(graph), 0, 0, 0, 0]
        for task, missing in enumerate(self._missing):
            if missing == 0:
                self._move(task, _State.READY)

    def __repr__(self) -> str:
        counts = (f"{self._counts[state]} {state.name.lower()}" for state in _State)
        return f"<ReadySet {', '.join(counts)}>"

    def ready(self) -> list[int]:
        """All tasks that may start or have started, and have not ended, in declared order."""
        return [task for task, state in enumerate(self._state) if state == _State.READY]

    def done(self, task: int) -> list[int]:
        """A task is done: which tasks became ready by it, in declared order."""
        self._decide(task, _State.DONE)
        freed: list[int] = []
        for dependent in self._graph.dependents[task]:
            self._missing[dependent] -= 1
            if self._missing[dependent] == 0 and self._state[dependent] == _State.WAITING:
                self._move(dependent, _State.READY)
                freed.append(dependent)
        return freed

    def doomed(self, task: int) -> list[int]:
        """Which tasks could never start if this one failed, in declared order."""
        lost: set[int] = set()
        failed = [task]
        while failed:
            for dependent in self._graph.dependents[failed.pop()]:
                if self._state[dependent] == _State.WAITING and dependent not in lost:
                    lost.add(dependent)
                    failed.append(dependent)
        return sorted(lost)

    def fail(self, task: int) -> list[int]:
        """A task failed for good: which tasks can never start because of it, in declared order."""
        lost = self.doomed(task)
        self._decide(task, _State.FAILED)
        for dependent in lost:
            self._move(dependent, _State.LOST)
        return lost

    def statistics(self) -> ReadySetStatistics:
        """Counts as of now; nothing is left to do when none waits and none is ready."""
        return ReadySetStatistics(*self._counts)

    def _decide(self, task: int, state: _State) -> None:
        current = _State(self._state[task])
        if current >= _State.DONE:
            name = self._graph.tasks[task].name
            raise InternalError(f"`{name}` is {current.name.lower()} and ends a second time")
        self._move(task, state)

    def _move(self, task: int, state: _State) -> None:
        self._counts[self._state[task]] -= 1
        self._counts[state] += 1
        self._state[task] = state
