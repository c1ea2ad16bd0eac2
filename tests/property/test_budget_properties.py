"""Whatever calls cost, in whatever order they end: what a budget can be exceeded by."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import NOTHING, Budget, Spend
from headway.pacing.budget import ALL, STEP_TOKENS, Budgets

IN_FLIGHT = 64


def check(purse: Budgets[int], budget: int) -> None:
    pot = purse.pots[ALL]
    assert pot.spent.microusd + pot.claimed.microusd <= budget


@given(
    st.integers(0, 20_000),
    st.lists(st.tuples(st.integers(0, 1000), st.floats(0.0, 1.0)), min_size=1, max_size=200),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=50),
)
@settings(max_examples=100)
def test_64_in_flight_at_their_maximum_never_exceed_the_budget(
    budget: int, calls: list[tuple[int, float]], order: list[int]
) -> None:
    """Half of the attempts make a second call; each gets an answer in the end."""
    purse: Budgets[int] = Budgets({ALL: Budget(microusd=budget)})
    todo = list(range(len(calls)))
    flying: dict[int, int] = {}
    waiting: set[int] = set()
    ended: set[int] = set()

    def ask(id: int) -> None:
        room = purse.claim(id, Spend(0, (flying.get(id, 0) + 1) * calls[id][0]))
        check(purse, budget)
        waiting.discard(id)
        if room == "yes":
            flying[id] = flying.get(id, 0) + 1
        elif room == "later":
            waiting.add(id)
        else:
            end(id)

    def end(id: int) -> None:
        made = flying.pop(id, None)
        if made is not None:
            assert purse.settle(id, Spend(0, int(made * calls[id][0] * calls[id][1])))
            check(purse, budget)
        assert not purse.settle(id, Spend(0, budget))
        ended.add(id)
        for other in sorted(waiting):
            if other in waiting:
                ask(other)

    while todo or flying or waiting:
        while todo and len(flying) + len(waiting) < IN_FLIGHT:
            ask(todo.pop(0))
        ready = [id for id in flying if id not in waiting]
        assert ready or not (flying or waiting), "all wait for nothing"
        if ready:
            order.append(order.pop(0))
            id = ready[order[0] % len(ready)]
            if flying[id] == 1 and id % 2:
                ask(id)
            else:
                end(id)
    assert ended == set(range(len(calls)))
    assert purse.pots[ALL].claimed == NOTHING


@given(st.lists(st.integers(1, 100), min_size=2, max_size=30))
def test_those_that_wait_are_served_in_the_order_of_asking(needs: list[int]) -> None:
    purse: Budgets[int] = Budgets({ALL: Budget(microusd=100)})
    assert purse.claim(-1, Spend(0, 100)) == "yes"
    for id, need in enumerate(needs):
        assert purse.claim(id, Spend(0, need)) == "later"
    purse.settle(-1, None)
    served: set[int] = set()
    while len(served) < len(needs):
        # The last one asks first.
        for id in reversed([id for id in range(len(needs)) if id not in served]):
            if purse.claim(id, Spend(0, needs[id])) == "yes":
                served.add(id)
        assert served == set(range(len(served)))
        purse.settle(min(id for id in served if purse.held(id).microusd), None)


@given(
    st.integers(1000, 8000),
    st.lists(
        st.tuples(st.integers(0, 7), st.integers(1, STEP_TOKENS), st.integers(0, 20)),
        min_size=50,
        max_size=300,
    ),
    st.sampled_from([600.0, inf]),
)
@settings(max_examples=40)
def test_answers_exceed_a_budget_by_at_most_a_step_for_each_call_in_flight(
    budget: int, reports: list[tuple[int, int, int]], longest: float
) -> None:
    """Eight streams at once, which report their growth at least every step; a cut one ends."""
    purse: Budgets[int] = Budgets({ALL: Budget(tokens=budget)})
    length: dict[int, float] = {}
    at_once = 0

    def cost_of(output_tokens: float) -> Spend:
        return Spend(100 + output_tokens)

    for id, more, ends in reports:
        if id not in length:
            purse.leave(id)
            if purse.claim(id, cost_of(more)) == "yes":
                length[id], at_once = 0.0, max(at_once, len(length) + 1)
            continue
        length[id] = min(length[id] + more, longest)
        room = purse.grow(id, length[id], cost_of, longest)
        assert purse.held(id).tokens >= cost_of(length[id]).tokens
        pot = purse.pots[ALL]
        assert pot.spent.tokens + pot.claimed.tokens <= budget + STEP_TOKENS * at_once
        if room == "never" or not ends:
            purse.settle(id, cost_of(length.pop(id)))
    for id, tokens in length.items():
        purse.settle(id, cost_of(tokens))
    assert purse.pots[ALL].spent.tokens <= budget + STEP_TOKENS * at_once
