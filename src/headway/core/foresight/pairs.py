"""Pairs of tasks to be turned around: A is declared before B, and B is to run before A completes.

Of groups one pair of members stands for all that are alike: the last two of one group, the last
ones of two groups, and, where members go together, one pair with the same item and one without.
The last ones, because what the others write may be overwritten before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headway.core.engine.coherence import Places
from headway.core.foresight.stage import Touch
from headway.core.plan.expand import Expanded
from headway.core.plan.graph import Graph
from headway.core.plan.paths import above

ALL: Final = -1
"""Every member of a group."""

SHARING_MAX: Final = 100_000
"""Pairs of groups that are looked at, in a plan in which everything touches everything."""

Node = tuple[int, int]
"""A group and a member of it, or all."""


@dataclass(frozen=True, slots=True)
class PairOf:
    """Two tasks, and how many pairs they stand for."""

    first: Node
    second: Node
    count: int


def pairs_of(
    expanded: Expanded, groups: Iterable[tuple[int, int]], counts: Mapping[int, int],
    original: Mapping[int, int],
) -> Iterator[PairOf]:  # fmt: skip
    """Pairs of tasks for pairs of groups; `original` are the sizes that stand in the plan."""
    leader = [group.leader for group in expanded.groups]
    for one, other in groups:
        size, last = counts.get(one, 0), counts.get(other, 0) - 1
        whole = original.get(one, size)
        pairs = whole * original.get(other, last + 1)
        if one == other:
            if size > 1:
                yield PairOf((one, last - 1), (one, last), whole * (whole - 1) // 2)
        elif leader[one] == leader[other] and size > 1:
            yield PairOf((one, last), (other, last), whole)
            yield PairOf((one, last), (other, 0), pairs - whole)
        elif size and last >= 0:
            yield PairOf((one, size - 1), (other, last), pairs)


def every_pair(order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """All pairs of groups, each with itself too, in serial order."""
    return ((one, other) for at, one in enumerate(order) for other in order[at:])


def sharing_pairs(
    order: Sequence[int], touched: Mapping[int, Iterable[Touch]]
) -> list[tuple[int, int]]:
    """Pairs of groups that may touch something of each other's, in serial order."""
    at: dict[tuple[str, str], dict[int, bool]] = {}
    for group, touches in touched.items():
        for touch in touches:
            groups = at.setdefault((touch.kind, touch.what), {})
            groups[group] = groups.get(group, False) or touch.is_write
    place = {group: number for number, group in enumerate(order)}
    found: set[tuple[int, int]] = set()
    for (kind, what), groups in at.items():
        for around in (what, *above(what)):
            for one, is_write in groups.items():
                for other, is_other in at.get((kind, around), {}).items():
                    if is_write or is_other:
                        found.add((one, other) if place[one] <= place[other] else (other, one))
        if len(found) > SHARING_MAX:
            break
    return sorted(found, key=lambda pair: (place[pair[0]], place[pair[1]]))


def before(graph: Graph, node: Node) -> dict[Node, Node]:
    """All that ends before a task starts, in any case; each with the one because of whom."""
    reached: dict[Node, Node] = {}
    todo = [node]
    for one in todo:
        for other in _needs(graph, one):
            if other not in reached and other != one:
                reached[other] = one
                todo.append(other)
    return reached


def _needs(graph: Graph, node: Node) -> Iterator[Node]:
    group, member = node
    for other in graph.needs[group]:
        is_one = other in graph.memberwise[group]
        yield other, member if is_one else ALL
    queue = graph.queues.get(graph.groups[group].queue, ())
    for other in queue[: queue.index(group)] if queue else ():
        yield other, ALL
    if queue and member != ALL:
        yield from ((group, earlier) for earlier in range(member))


def ancestors(
    graph: Graph, places: Places, place: int, counts: Mapping[int, int]
) -> frozenset[int]:
    """The places of all that ends before a task starts."""
    found: set[int] = set()
    for group, member in before(graph, places.who(place)):
        members = range(counts.get(group, 0)) if member == ALL else (member,)
        found.update(places.task(group, one) for one in members)
    return frozenset(found)


def edge_between(expanded: Expanded, graph: Graph, first: Node, second: Node) -> str:
    """Why the second of two tasks cannot start before the first one has ended; empty if it can."""
    reached = before(graph, second)
    node = first if first in reached else (first[0], ALL)
    if node not in reached:
        return ""
    steps = [node]
    while steps[-1] != second:
        steps.append(reached[steps[-1]])
    words = [_word(expanded, graph, later[0], earlier[0]) for earlier, later in pairwise(steps)]
    return ", ".join(reversed(words))


def _word(expanded: Expanded, graph: Graph, later: int, earlier: int) -> str:
    """One edge in words."""
    names = graph.groups[later].name, graph.groups[earlier].name
    keys = [edge.key for edge in expanded.groups[later].edges if edge.group == earlier]
    if not keys:
        return f"`{names[0]}` is behind `{names[1]}` in queue `{graph.groups[later].queue}`"
    key = next((one for one in keys if one != "reads"), "reads")
    verb = {
        "needs": "needs",
        "each": "has a member for each of",
        "reduce": "reduces",
        "reads": "reads what is written by",
    }[key]
    return f"`{names[0]}` {verb} `{names[1]}`"
