"""What comes before what: levels of a set of edges, or the circle that keeps it from having any."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

CYCLE_SHOWN_MAX: Final = 12
"""Tasks of a cycle that are named: a longer one is read in the plan, not in a message."""

Edges = tuple[tuple[int, ...], ...]
"""For everyone, by index, the indices of others in rising order."""

Levels = tuple[tuple[int, ...], ...]
"""Those with nothing before them, those with only these before them, and so on."""


def reversed_edges(edges: Edges) -> Edges:
    """The same edges from the other end."""
    back: list[list[int]] = [[] for _ in edges]
    for one, others in enumerate(edges):
        for other in others:
            back[other].append(one)
    return tuple(map(tuple, back))


def levels(before: Edges, after: Edges) -> Levels:
    """Everyone by the longest chain before it. Those on or behind a cycle are on no level."""
    missing = [len(needs) for needs in before]
    found: list[tuple[int, ...]] = []
    level = tuple(one for one, count in enumerate(missing) if count == 0)
    while level:
        found.append(level)
        freed: list[int] = []
        for one in level:
            for other in after[one]:
                missing[other] -= 1
                if missing[other] == 0:
                    freed.append(other)
        level = tuple(sorted(freed))
    return tuple(found)


def serial(before: Edges, after: Edges) -> tuple[int, ...]:
    """Everyone as one who works alone would take them: as declared, but never before its needs."""
    missing = [len(needs) for needs in before]
    ready = [one for one, count in enumerate(missing) if count == 0]
    found: list[int] = []
    while ready:
        one = heappop(ready)
        found.append(one)
        for other in after[one]:
            missing[other] -= 1
            if missing[other] == 0:
                heappush(ready, other)
    return tuple(found)


def circle(before: Edges, order: Sequence[int]) -> list[int]:
    """One cycle among those that could not be ordered, from its first one back to it."""
    ordered = set(order)
    one = min(set(range(len(before))) - ordered)
    seen: dict[int, int] = {}
    while one not in seen:
        seen[one] = len(seen)
        one = next(need for need in before[one] if need not in ordered)
    cycle = list(seen)[seen[one] :]
    first = cycle.index(min(cycle))
    return [*cycle[first:], *cycle[: first + 1]]


def shown(names: list[str]) -> list[str]:
    """The names of a cycle, the middle left out where there are too many."""
    if len(names) <= CYCLE_SHOWN_MAX:
        return names
    hidden = len(names) - CYCLE_SHOWN_MAX
    return [*names[: CYCLE_SHOWN_MAX - 1], f"({hidden} more)", names[-1]]
