"""How many tasks of a plan can be active at once: the largest set of which none waits for another.

By Dilworth's theorem that is the least number of chains that hold all tasks. A chain cover is the
sum of all sizes less a flow from those before to those after; every flow gives a number that is
never exceeded, and the largest flow gives the exact one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

EXACT_GROUPS_MAX: Final = 200
"""Groups up to which the largest flow is looked for."""

ROUNDS_MAX: Final = 2_000
"""Ways by which a flow is made larger before one is content with it."""


@dataclass(frozen=True, slots=True)
class Breadth:
    """The most tasks at once."""

    tasks: int
    is_exact: bool
    """If not, it may be less."""


def breadth(
    sizes: Sequence[int], before: Sequence[int], direct: Sequence[Sequence[int]]
) -> Breadth:
    """The breadth of groups of these sizes.

    `before` has for each group all that come before it, as bits; `direct` those that it waits for
    itself.
    """
    spare, room = list(sizes), list(sizes)
    flow: list[dict[int, int]] = [{} for _ in sizes]
    for after, needs in enumerate(direct):
        for one in needs:
            _send(flow, spare, room, (one, after), min(spare[one], room[after]))
    is_exact = len(sizes) <= EXACT_GROUPS_MAX
    if is_exact:
        is_exact = _enlarge(flow, spare, room, before)
    return Breadth(sum(room), is_exact)


def _send(
    flow: list[dict[int, int]],
    spare: list[int],
    room: list[int],
    way: tuple[int, int],
    amount: int,
) -> None:
    one, after = way
    if amount:
        flow[after][one] = flow[after].get(one, 0) + amount
        spare[one] -= amount
        room[after] -= amount


def _enlarge(
    flow: list[dict[int, int]], spare: list[int], room: list[int], before: Sequence[int]
) -> bool:
    """Send more, along ways that take back what was sent elsewhere; whether no way is left."""
    for _ in range(ROUNDS_MAX):
        way = _way(flow, spare, room, before)
        if not way:
            return True
        # The way leads from one with room over pairs (sender, receiver) to a sender with something
        # to spare: every sender on it gives to the receiver before it, and takes from the next.
        amount = min(room[way[0][1]], spare[way[-1][0]])
        for (one, _), (_, after) in pairwise(way):
            amount = min(amount, flow[after][one])
        for one, after in way:
            flow[after][one] = flow[after].get(one, 0) + amount
        for (one, _), (_, after) in pairwise(way):
            flow[after][one] -= amount
        room[way[0][1]] -= amount
        spare[way[-1][0]] -= amount
    return False


def _way(
    flow: list[dict[int, int]], spare: list[int], room: list[int], before: Sequence[int]
) -> list[tuple[int, int]]:
    """The shortest way from a group with room to one with something to spare; empty if none is."""
    to: dict[int, list[int]] = {}
    for after, sent in enumerate(flow):
        for one, amount in sent.items():
            if amount:
                to.setdefault(one, []).append(after)
    reached: dict[int, tuple[int, int]] = {}
    """By sender: the receiver that it was reached from, and the sender before that."""
    fresh = [(after, -1) for after, left in enumerate(room) if left]
    seen = {after for after, _ in fresh}
    for after, previous in fresh:
        rest = before[after]
        while rest:
            one = (rest & -rest).bit_length() - 1
            rest &= rest - 1
            if one in reached:
                continue
            reached[one] = (after, previous)
            if spare[one]:
                return _traced(reached, one)
            for other in to.get(one, ()):
                if other not in seen:
                    seen.add(other)
                    fresh.append((other, one))
    return []


def _traced(reached: dict[int, tuple[int, int]], one: int) -> list[tuple[int, int]]:
    way: list[tuple[int, int]] = []
    while one >= 0:
        after, previous = reached[one]
        way.append((one, after))
        one = previous
    return way[::-1]
