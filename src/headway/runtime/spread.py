"""Groups whose members are found at run time: one for each line or element of another's result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from headway.core.engine.engine import State
from headway.core.engine.events import Expanded
from headway.core.plan.graph import Graph
from headway.core.plan.ready import DONE, FAILED, LOST
from headway.runtime.active import Supplies
from headway.runtime.work import Work


@dataclass(frozen=True, slots=True)
class SpreadStatistics:
    """How many groups are not known yet when a run begins."""

    groups: int


class Spread:
    """Finds out which groups have become known."""

    __slots__ = ("_after", "_graph", "_works", "lenient")

    def __init__(self, graph: Graph, works: Sequence[Work]) -> None:
        self._graph = graph
        self._works = works
        self._after: dict[int, list[int]] = {}
        self.lenient: list[int] = []
        """Those that the end of others may make known, and not their results alone."""
        for index in reversed(graph.order):
            if graph.groups[index].count is None:
                # Whoever is made known with another group may be empty like it, and ends with it.
                behind = self._after.get(index, [])
                is_with = {need.group for need in graph.blocks[index]}
                for source in graph.needs[index]:
                    found = [index, *(behind if source in is_with else ())]
                    self._after.setdefault(source, []).extend(found)
                if graph.lenient[index] - is_with:
                    self.lenient.append(index)

    def __repr__(self) -> str:
        return f"<Spread over {len(self._after)} groups>"

    def statistics(self) -> SpreadStatistics:
        return SpreadStatistics(len({index for some in self._after.values() for index in some}))

    def after(self, group: int) -> Sequence[int]:
        """Those that a result of this group may make known."""
        return self._after.get(group, ())

    def found(self, groups: Sequence[int], state: State, supplies: Supplies) -> Iterator[Expanded]:
        """The sizes of those that have become known."""
        if not self._after:
            return
        for index in groups:
            if not state.ready_set.numbers.is_known(index):
                count = self._count(index, state, supplies)
                if count is not None:
                    yield Expanded(index, count)

    def _count(self, index: int, state: State, supplies: Supplies) -> int | None:
        """How many members a group has; None while that cannot be known."""
        numbers, states = state.ready_set.numbers, state.ready_set.states
        for need in self._graph.groups[index].needs:
            # Whoever needs blocks of a group is made known with it, by the engine.
            if need.block or not numbers.is_known(need.group):
                return None
            members = numbers.members(need.group)
            ends = (DONE, FAILED, LOST) if need.is_lenient else (DONE,)
            ended = sum(states.count(end, members.start, members.stop) for end in ends)
            if ended < len(members):
                return None
        return self._works[index].count(partial(supplies.needed, state, index, 0))
