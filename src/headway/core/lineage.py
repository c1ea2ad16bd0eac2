"""Who waited for whom in a run as it really was: when tasks became ready, and the longest chain.

Laws:
- A task is ready when the last of those that it needs has ended; without needs, from the start.
- The critical path is the longest chain of needs, by the time that each task was worked on to some
  end: no width makes a run shorter than that.
- Where the graph is not known, every task is taken to have needed nobody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from headway.core.passage import Passage
from headway.core.plan.graph import Graph, Need


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the needs of tasks came to."""

    ready_s: Mapping[bytes, float]
    """When each task was ready; infinity if something that it needs has no end."""
    critical_path_s: float
    chain: tuple[bytes, ...]
    """The tasks of the critical path, the first first."""
    is_known: bool
    """Whether anybody knows who needed whom."""


def lineage(
    passages: Iterable[Passage], graph: Graph | None, group_of: Callable[[bytes], str]
) -> Lineage:
    """Follow the needs of every task, group by group."""
    every = list(passages)
    if graph is None:
        ready_s = {one.key: 0.0 for one in every}
        longest = max(every, key=lambda one: one.served_s, default=None)
        if longest is None:
            return Lineage(ready_s, 0.0, (), is_known=False)
        return Lineage(ready_s, longest.served_s, (longest.key,), is_known=False)
    members: list[list[Passage]] = [[] for _ in graph.groups]
    for one in every:
        group = graph.index.get(group_of(one.key))
        if group is not None:
            members[group].append(one)
    walk = _Walk([sorted(group, key=lambda one: one.number) for group in members])
    for group in graph.order:
        walk.enter(group, _all_needs(graph, group))
    for one in every:  # Of a group that an edit has removed.
        walk.ready_s.setdefault(one.key, 0.0)
    return walk.found()


def _all_needs(graph: Graph, group: int) -> list[Need]:
    """What a group needs, of every other one in one way."""
    in_blocks = {need.group: need for need in graph.blocks[group]}
    return [in_blocks.get(other) or Need(other) for other in graph.needs[group]]


@dataclass(frozen=True, slots=True)
class _Whole:
    """A group as those see it that need all of it."""

    ended_s: float
    path_s: float
    last: bytes
    """Whose chain is the longest."""


class _Walk:
    """Group by group, each after those that it needs."""

    def __init__(self, members: Sequence[list[Passage]]) -> None:
        self._members = members
        self._numbers = [[one.number for one in group] for group in members]
        self._wholes: list[_Whole] = [_Whole(0.0, 0.0, b"")] * len(members)
        self._paths: dict[bytes, float] = {}
        self._before: dict[bytes, bytes] = {}
        self.ready_s: dict[bytes, float] = {}

    def __repr__(self) -> str:
        return f"<_Walk, {len(self._paths)} tasks>"

    def statistics(self) -> int:
        """How many tasks it has come to."""
        return len(self._paths)

    def enter(self, group: int, needs: Sequence[Need]) -> None:
        """The tasks of one group, after what they need."""
        members = self._members[group]
        first = members[0].number if members else 0
        for one in members:
            ready_s, path_s, last = 0.0, 0.0, b""
            for need in needs:
                whole = self._needed(need, one.number - first)
                ready_s = max(ready_s, whole.ended_s)
                if whole.path_s > path_s:
                    path_s, last = whole.path_s, whole.last
            self.ready_s[one.key] = ready_s
            self._paths[one.key] = path_s + one.served_s
            self._before[one.key] = last
        # A group without a task passes on what it needs itself.
        passed = [self._wholes[need.group] for need in needs] if not members else []
        self._wholes[group] = self._whole(members, passed)

    def found(self) -> Lineage:
        """The longest chain, from its end to its beginning."""
        last = max(self._paths, key=self._paths.__getitem__, default=b"")
        path_s = self._paths.get(last, 0.0)
        chain = []
        while last:
            chain.append(last)
            last = self._before[last]
        return Lineage(self.ready_s, path_s, tuple(reversed(chain)), is_known=True)

    def _needed(self, need: Need, member: int) -> _Whole:
        """What of a group a member needs: all of it, or its own block."""
        others = self._members[need.group]
        if not need.block or not others:
            return self._wholes[need.group]
        numbers = self._numbers[need.group]
        low = bisect_left(numbers, numbers[0] + need.block * member)
        high = bisect_left(numbers, numbers[0] + need.block * (member + 1))
        block = others[low:high]
        return self._whole(block, []) if block else self._wholes[need.group]

    def _whole(self, members: Sequence[Passage], passed: Sequence[_Whole]) -> _Whole:
        ended_s = max((one.ended_s for one in passed), default=0.0)
        path_s, last = max(((one.path_s, one.last) for one in passed), default=(0.0, b""))
        for one in members:
            ended_s = max(ended_s, inf if one.ended_s is None else one.ended_s)
            if self._paths[one.key] >= path_s:
                path_s, last = self._paths[one.key], one.key
        return _Whole(ended_s, path_s, last)
