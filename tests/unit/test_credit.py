"""The credit of tasks: what is left without one and what it gives alone, beside its exact value."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from math import factorial

import pytest

from headway.report.credit import Coalition, credits_of

TASKS = 8
GAMES = 200
Worth = Callable[[Coalition], float]


def shapley(count: int, value: Worth) -> list[float]:
    """The exact value of each, over all coalitions."""
    found = [0.0] * count
    for one in range(count):
        others = [other for other in range(count) if other != one]
        for size in range(count):
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            for some in combinations(others, size):
                there = frozenset(some)
                found[one] += weight * (value(there | {one}) - value(there))
    return found


def drawn(seed: int, group_max: int = 4) -> Worth:
    """A game: what each gives by itself, and what groups of two and more add or take together."""
    rng = random.Random(seed)
    own = [rng.gauss(1.0, 1.0) for _ in range(TASKS)]
    together = [
        (frozenset(rng.sample(range(TASKS), rng.randint(2, group_max))), rng.gauss(0.0, 1.0))
        for _ in range(rng.randint(0, 2 * TASKS))
    ]
    return lambda some: (
        sum(own[one] for one in some) + sum(much for group, much in together if group <= some)
    )


def correlation(one: list[float], other: list[float]) -> float:
    """Of the ranks (Spearman)."""

    def ranks(values: list[float]) -> list[float]:
        order = sorted(range(len(values)), key=values.__getitem__)
        return [float(order.index(n)) for n in range(len(values))]

    pairs = zip(ranks(one), ranks(other), strict=True)
    count = len(one)
    return 1 - 6 * sum((a - b) ** 2 for a, b in pairs) / (count * (count**2 - 1))


def credit(value: Worth, permutations: int = 0) -> list[float]:
    names = [str(n) for n in range(TASKS)]
    found = credits_of(names, [0] * TASKS, value, permutations)
    return [one.credit for one in found]


def test_credit_ranks_tasks_as_their_exact_values_do() -> None:
    games = [drawn(seed) for seed in range(GAMES)]
    found = sorted(correlation(credit(game), shapley(TASKS, game)) for game in games)
    assert sum(found) / GAMES >= 0.9
    assert sum(found[: GAMES // 20]) / (GAMES // 20) >= 0.6, "the worst 5 %"


def test_credit_is_exact_where_tasks_act_in_pairs_at_most() -> None:
    for seed in range(20):
        game = drawn(seed, group_max=2)
        assert credit(game) == pytest.approx(shapley(TASKS, game))


def test_drawn_orders_come_to_the_exact_values() -> None:
    game = drawn(7)
    assert credit(game, 4000) == pytest.approx(shapley(TASKS, game), abs=0.1)


def test_harmful_and_redundant_tasks_are_named_and_what_has_no_score_gains_nothing() -> None:
    def value(some: Coalition) -> float | None:
        if some == {3}:
            return None
        return 4.0 * bool(some & {0, 1}) - 2.0 * (2 in some) + 1.0

    found = credits_of(["a", "b", "c", "d"], [1000, 500, 0, 2000], value)
    assert [one.word for one in found] == ["redundant", "redundant", "harmful", "no effect"]
    assert found[0].per_1000 == 2.0
    assert found[2].per_1000 is None
