"""The tasks of a plan in declared order: groups of alike tasks, who needs whom, what takes longest.

Laws:
- A group is one declared task; with a list to work on it has many members, otherwise one. A need
  is between groups: of every member (the default), or of a block of so many members in a row, of
  which each follows the one before: the first member needs the first block, and so on.
- A group that needs blocks has one member for each block, the last of which may be smaller.
- A group's index is its place in the declaration; every tie is broken by it, so that one plan
  gives one order.
- Tasks are numbered group by group in declared order. A group whose size is found at run time
  gets the next numbers that are free when it is known.
- A graph never changes after it was made, and one that was made has no cycle, no need that is
  missing, no name twice and no queue whose order contradicts a need.
- Nothing here counts members one by one: a group of a million costs as much as a group of one.

Nothing here recurses: a chain of 100,000 groups is a plan like any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from headway.base.values import Demand
from headway.errors import (
    CycleError,
    DuplicateTaskError,
    InternalError,
    QueueOrderError,
    UnknownNeedError,
    nearest,
)
from headway.plans.links import Edges, Levels, circle, levels, path_words, reversed_edges, serial
from headway.plans.resources import Touches

ARRIVALS_MAX: Final = 255
"""Members that one task may need in blocks: what has arrived is counted in a byte."""


class Task(Struct, frozen=True):
    """One unit of work: what it needs, the calls it makes one after another, how long it takes."""

    name: str
    needs: tuple[str, ...] = ()
    calls: tuple[Demand, ...] = ()
    weight_s: float = 0.0
    """The duration that is predicted for it."""
    priority: float = 0.0
    kind: str = ""


class Need(Struct, frozen=True):
    """A group that must be done first."""

    group: int
    block: int = 0
    """Member i needs so many members, from `block * i` on: with 1 the member of its own number.
    With 0 it needs every member."""
    is_lenient: bool = False
    """Whether it is enough that they have ended, finished or not."""


Follower = tuple[int, int, bool]
"""A group that needs blocks of another one: its index, the block, and whether it is lenient."""


class TaskGroup(Struct, frozen=True):
    """Tasks that were declared as one."""

    name: str
    count: int | None = 1
    """How many members; `None` until something that it needs has told, at run time."""
    needs: tuple[Need, ...] = ()
    weight_s: float = 0.0
    """The duration that is predicted for each member."""
    priority: float = 0.0
    """Higher goes first."""
    queue: str = ""
    """Tasks of one queue are started one at a time, in declared order."""
    retries: int | None = None
    """Attempts after the first; `None` is the run's own rule."""
    is_local: bool = False
    """Whether it uses this machine's processors rather than an account's quota."""
    touches: Touches | None = None
    """What its members may touch of the shared state; None if they have nothing to do with it."""
    reruns: int | None = None
    """Of tasks in workspaces: how often one runs again because what it has read has changed. They
    are judged when all before them have ended. `None` of all others."""


class Graph:
    """Groups by index, with their edges in both directions, checked once and never changed."""

    def __init__(self, groups: Iterable[TaskGroup], tasks: Sequence[Task] = ()) -> None:
        self.groups: Final = tuple(groups)
        self.tasks: Final = tuple(tasks)
        """What the groups were made of, where they are single tasks with calls that are known."""
        self.index: Final = _index([group.name for group in self.groups])
        self.needs: Final = _needs(self.groups)
        self.dependents: Final = reversed_edges(self.needs)
        self.levels: Final[Levels] = levels(self.needs, self.dependents)
        self.order: Final = tuple(group for level in self.levels for group in level)
        """Every group after those that it needs: by level, then as declared."""
        if len(self.order) < len(self.groups):
            raise _cycle_error(self.groups, circle(self.needs, self.order))
        _check_sizes(self.groups, self.order)
        self.lenient: Final = tuple(
            [frozenset([n.group for n in group.needs if n.is_lenient]) for group in self.groups]
        )
        """Of every group, the needed groups that need only have ended."""
        self.blocks: Final = tuple(map(_blocks, self.groups))
        """Of every group, its needs of blocks, each of another group."""
        self.arrivals: Final = tuple([sum([n.block for n in needs]) for needs in self.blocks])
        """Of every group, how many tasks in blocks each of its members needs."""
        self.memberwise: Final = tuple(
            [tuple([n.group for n in needs if n.block == 1]) for needs in self.blocks]
        )
        """Of every group, the needed groups whose members are needed one by one."""
        self.followers: Final = _followers(self.blocks)
        """Of every group, the groups that need blocks of it."""
        self.waiters: Final = _waiters(self.dependents, self.followers)
        """Of every group, the groups that need all of it."""
        self.queues: Final = _queues(self.groups)
        """Of every queue, its groups in declared order."""
        _check_queues(self)

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Graph:
        """The graph of single tasks that name what they need; task i is group i."""
        every = tuple(tasks)
        index = _index([task.name for task in every])
        return cls((_single(task, index) for task in every), every)

    def __len__(self) -> int:
        return len(self.groups)

    def upward_rank(self, weights: Sequence[float]) -> list[float]:
        """For every group, the longest way from a member's start to the end of the run."""
        if len(weights) != len(self.groups):
            raise InternalError(f"{len(weights)} weights for {len(self.groups)} groups")
        rank = list(weights)
        for group in reversed(self.order):
            if after := self.dependents[group]:
                rank[group] += max([rank[dependent] for dependent in after])
        return rank

    def critical_path(self, weights: Sequence[float]) -> tuple[float, tuple[int, ...]]:
        """The longest chain of groups: its length in seconds, and its groups in order."""
        rank = self.upward_rank(weights)
        path: list[int] = []
        choices: Sequence[int] = self.levels[0] if self.levels else ()
        while choices:
            path.append(max(choices, key=rank.__getitem__))
            choices = self.dependents[path[-1]]
        return (rank[path[0]] if path else 0.0), tuple(path)

    def width(self) -> int:
        """The most tasks on one level; a group of unknown size counts as one task."""
        sizes = [1 if group.count is None else group.count for group in self.groups]
        return max((sum(sizes[group] for group in level) for level in self.levels), default=0)


class Numbering:
    """Which number each task has: a group's members in a row, from the first number on."""

    __slots__ = ("_owners", "_starts", "firsts", "lasts", "total", "unknown")

    def __init__(self, groups: Sequence[TaskGroup]) -> None:
        self.firsts = [-1] * len(groups)
        """Of every group, the number of its first member; -1 while its size is unknown."""
        self.lasts = [-1] * len(groups)
        """Of every group, the number after its last member's."""
        self._starts: list[int] = []
        self._owners: list[int] = []
        self.total = 0
        """All tasks that have a number."""
        self.unknown = len(groups)
        """Groups whose size is not known yet."""
        for index, group in enumerate(groups):
            if group.count is not None:
                self.expand(index, group.count)

    def expand(self, group: int, count: int) -> range:
        """The size of a group is known: its members get the next free numbers."""
        if self.is_known(group):
            raise InternalError(f"group {group} has got its members before")
        first = self.total
        self.firsts[group] = first
        self.total = self.lasts[group] = first + count
        self.unknown -= 1
        if count:
            self._starts.append(first)
            self._owners.append(group)
        return range(first, self.total)

    def is_known(self, group: int) -> bool:
        return self.firsts[group] >= 0

    def members(self, group: int) -> range:
        """The numbers of a group's members; none while its size is unknown."""
        return range(self.firsts[group], self.lasts[group])

    def needed(self, need: Need, member: int) -> range:
        """The numbers of those that a member needs; none while they are unknown."""
        members = range(self.firsts[need.group], self.lasts[need.group])
        return members[need.block * member : need.block * (member + 1)] if need.block else members

    def group_of(self, task: int) -> int:
        return self._owners[bisect_right(self._starts, task) - 1]

    def place(self, task: int) -> tuple[int, int]:
        """The group of a task, and which member of it the task is."""
        group = self._owners[bisect_right(self._starts, task) - 1]
        return group, task - self.firsts[group]

    def task_of(self, group: int, member: int) -> int:
        return self.firsts[group] + member


def _index(names: Sequence[str]) -> Mapping[str, int]:
    index: dict[str, int] = {}
    for place, name in enumerate(names):
        first = index.setdefault(name, place)
        if first != place:
            raise DuplicateTaskError(
                f"two tasks have the name `{name}`",
                where=f"tasks {first + 1} and {place + 1}",
                hint="rename one of them",
            )
    return MappingProxyType(index)


def _single(task: Task, index: Mapping[str, int]) -> TaskGroup:
    for name in task.needs:
        if name not in index:
            near = nearest(name, index)
            hint = f"did you mean `{near}`?" if near else f"add a task `{name}` or remove the need"
            message = f"`{task.name}` needs `{name}`, which the plan does not have"
            raise UnknownNeedError(message, where=f"tasks.{task.name}.needs", hint=hint)
    needs = tuple(Need(index[name]) for name in task.needs)
    return TaskGroup(task.name, 1, needs, task.weight_s, task.priority)


def _needs(groups: Sequence[TaskGroup]) -> Edges:
    needs: list[tuple[int, ...]] = []
    for group in groups:
        before = {need.group for need in group.needs}
        if unknown := [need for need in before if not 0 <= need < len(groups)]:
            raise InternalError(f"`{group.name}` needs group {unknown[0]} of {len(groups)}")
        if len(before) < len(group.needs):
            _check_twice(groups, group)
        needs.append(tuple(sorted(before)))
    return tuple(needs)


def _check_twice(groups: Sequence[TaskGroup], group: TaskGroup) -> None:
    """All of a group and its own member of it may be needed at once; nothing else goes together."""
    every = set(group.needs)
    odd = {need.group for need in every if need.is_lenient or need.block > 1}
    for other in odd:
        if sum(need.group == other for need in every) > 1:
            raise InternalError(f"`{group.name}` needs `{groups[other].name}` in two ways")


def blocks_in(count: int, block: int) -> int:
    """How many blocks so many members are; the last of them may be smaller."""
    return -(-count // block)


def _blocks(group: TaskGroup) -> tuple[Need, ...]:
    """Needs of blocks that remain: one block, or all of a group as well, is the whole group."""
    if group.count in {0, 1}:
        return ()
    entirely = {need.group for need in group.needs if not need.block}
    found = {need for need in group.needs if need.block and need.group not in entirely}
    return tuple(sorted(found, key=lambda need: need.group))


def _followers(blocks: Sequence[tuple[Need, ...]]) -> tuple[tuple[Follower, ...], ...]:
    found: list[list[Follower]] = [[] for _ in blocks]
    for group, needs in enumerate(blocks):
        for need in needs:
            found[need.group].append((group, need.block, need.is_lenient))
    return tuple(map(tuple, found))


def _waiters(dependents: Edges, followers: Sequence[tuple[Follower, ...]]) -> Edges:
    return tuple(
        tuple(sorted(set(after) - {group for group, _, _ in some})) if some else after
        for after, some in zip(dependents, followers, strict=True)
    )


def _check_sizes(groups: Sequence[TaskGroup], order: Sequence[int]) -> None:
    """Who needs blocks has one member for each of them; unknown sizes are found out together."""
    # Of every group, the one whose size tells its own, and how many of that each member stands for.
    roots = [(index, 1) for index in range(len(groups))]
    for index in order:
        group = groups[index]
        needs = {need for need in group.needs if need.block}
        if not needs:
            continue
        for need in needs:
            count = groups[need.group].count
            if group.count != (None if count is None else blocks_in(count, need.block)):
                raise InternalError(f"`{group.name}` needs members of a group of another size")
        if (arrivals := sum(need.block for need in needs)) > ARRIVALS_MAX:
            raise InternalError(f"each of `{group.name}` needs {arrivals} members of others")
        if group.count is None:
            found = {(roots[n.group][0], roots[n.group][1] * n.block) for n in needs}
            if len(found) > 1:
                raise InternalError(f"`{group.name}` needs members of two groups of unknown size")
            roots[index] = found.pop()


def _cycle_error(groups: Sequence[TaskGroup], cycle: Sequence[int]) -> CycleError:
    names = [groups[group].name for group in cycle]
    return CycleError(
        f"tasks need each other in a circle: {path_words(names)}",
        where=f"tasks.{names[0]}.needs",
        detail="each needs the next, so none of them can start",
        hint=f"remove `{names[1]}` from the needs of `{names[0]}`, or cut the circle elsewhere",
    )


def _queues(groups: Sequence[TaskGroup]) -> Mapping[str, tuple[int, ...]]:
    queues: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        if group.queue:
            queues.setdefault(group.queue, []).append(index)
    return MappingProxyType({name: tuple(members) for name, members in queues.items()})


def _check_queues(graph: Graph) -> None:
    """A task that waits for its turn must not be needed by one whose turn is before it."""
    if not graph.queues:
        return
    before = [set(needs) for needs in graph.needs]
    for members in graph.queues.values():
        for earlier, later in pairwise(members):
            before[later].add(earlier)
    edges: Edges = tuple(tuple(sorted(groups)) for groups in before)
    order = serial(edges, reversed_edges(edges))
    if len(order) < len(graph.groups):
        names = [graph.groups[group].name for group in circle(edges, order)]
        raise QueueOrderError(
            f"the order of a queue contradicts a need: {path_words(names)}",
            where=f"tasks.{names[0]}",
            detail="each waits for the next, so none of them can start",
            hint="declare what others of its queue need before them, or take it out of the queue",
        )
