"""How much each landed task contributes to the objective: what its removal and its presence change.

Laws:
- The credit of a task is the mean of what the whole loses without it (leave one out) and of what it
  gives alone: where tasks act on each other in pairs at most, that is its Shapley value.
- On request it is the mean over drawn orders instead, whatever tasks do to each other.
- Merged work without a score has gained nothing over the files as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

Coalition = frozenset[int]
Value = Callable[[Coalition], float | None]
"""The score of the merged work of some tasks; None where it has none."""

TINY: Final = 1e-9
"""Differences below are none: floating-point numbers are added in another order."""


class TaskCredit(Struct, frozen=True):
    task: str
    credit: float
    left_out: float
    """What the whole loses without it."""
    alone: float
    """What it adds to the files as they were."""
    tokens: int

    @property
    def per_1000(self) -> float | None:
        """Credit for 1,000 tokens; None where it took none."""
        return 1000 * self.credit / self.tokens if self.tokens else None

    @property
    def word(self) -> str:
        """`harmful`: without it the whole is better; `redundant`: others do the same."""
        if self.left_out < -TINY and self.credit < -TINY:
            return "harmful"
        if abs(self.left_out) <= TINY:
            return "redundant" if self.alone > TINY else "no effect" if self.alone > -TINY else ""
        return ""


def credits_of(
    names: Sequence[str], tokens: Sequence[int], value: Value, permutations: int = 0, seed: int = 0
) -> list[TaskCredit]:
    """The credit of each task, in the order of their names."""
    every = frozenset(range(len(names)))
    whole = value(every)
    nothing = value(frozenset())
    nothing = next((one for one in (nothing, whole) if one is not None), 0.0)
    whole = nothing if whole is None else whole
    known: dict[Coalition, float] = {frozenset(): nothing, every: whole}

    def worth(some: Coalition) -> float:
        if some not in known:
            found = value(some)
            known[some] = nothing if found is None else found
        return known[some]

    without = [whole - worth(every - {one}) for one in every]
    alone = [worth(frozenset((one,))) - nothing for one in every]
    credit = [(left + own) / 2 for left, own in zip(without, alone, strict=True)]
    if permutations:
        credit = sampled(len(names), worth, permutations, seed)
    return [
        TaskCredit(name, credit[n], without[n], alone[n], tokens[n]) for n, name in enumerate(names)
    ]


def sampled(count: int, value: Callable[[Coalition], float], orders: int, seed: int) -> list[float]:
    """What each adds on average to those before it, over drawn orders and their reverses."""
    chance, sums, every = random.Random(seed), [0.0] * count, list(range(count))
    for number in range(orders):
        if number % 2 == 0:
            chance.shuffle(every)
        else:
            every.reverse()
        before, there = value(frozenset()), frozenset[int]()
        for one in every:
            there |= {one}
            now = value(there)
            sums[one] += now - before
            before = now
    return [total / orders for total in sums]
