"""Whatever attempts cost, in whatever order they end, a hard budget is never exceeded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.budget import RUN, Cost, Later, Never, RunBudget
from headway.plans.spec import PlanBudget

IN_FLIGHT = 64


def check(purse: RunBudget, budget: int) -> None:
    pot = purse.pots[RUN]
    assert pot.spent.microusd + pot.reserved.microusd <= budget


@given(
    st.integers(0, 20_000),
    st.lists(st.tuples(st.integers(0, 1000), st.floats(0.0, 1.0)), min_size=1, max_size=200),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=50),
)
@settings(max_examples=100)
def test_64_in_flight_at_their_maximum_never_exceed_the_budget(
    budget: int, calls: list[tuple[int, float]], order: list[int]
) -> None:
    """Half of the attempts make a second call; everybody gets an answer in the end."""
    purse = RunBudget(PlanBudget(budget))
    todo = list(range(len(calls)))
    flying: dict[int, int] = {}
    waiting: dict[int, int] = {}
    ended: set[int] = set()

    def ask(id: int) -> None:
        answer = purse.reserve(id, calls[id][0])
        check(purse, budget)
        if answer is None:
            waiting.pop(id, None)
            flying[id] = flying.get(id, 0) + 1
        elif isinstance(answer, Later):
            waiting[id] = 1
        else:
            assert isinstance(answer, Never)
            waiting.pop(id, None)
            end(id)

    def end(id: int) -> None:
        made = flying.pop(id, None)
        if made is not None:
            purse.settle(id, int(made * calls[id][0] * calls[id][1]))
            check(purse, budget)
        ended.add(id)
        for other in list(waiting):
            if other in waiting:
                ask(other)

    while todo or flying or waiting:
        while todo and len(flying) + len(waiting) < IN_FLIGHT:
            ask(todo.pop(0))
        ready = [id for id in flying if id not in waiting]
        assert ready or not (flying or waiting), "everybody waits for nothing"
        if ready:
            order.append(order.pop(0))
            id = ready[order[0] % len(ready)]
            if flying[id] == 1 and id % 2:
                ask(id)
            else:
                end(id)
    assert ended == set(range(len(calls)))
    assert purse.pots[RUN].reserved == Cost()


@given(st.lists(st.integers(1, 100), min_size=2, max_size=30))
def test_whoever_waits_is_served_in_the_order_of_asking(needs: list[int]) -> None:
    purse = RunBudget(PlanBudget(100))
    assert purse.reserve(-1, 100) is None
    for id, need in enumerate(needs):
        assert isinstance(purse.reserve(id, need), Later)
    purse.settle(-1, 0)
    served: set[int] = set()
    while len(served) < len(needs):
        # The last one asks first.
        for id in reversed([id for id in range(len(needs)) if id not in served]):
            if purse.reserve(id, needs[id]) is None:
                served.add(id)
        assert served == set(range(len(served)))
        purse.settle(min(id for id in served if purse.holds(id).microusd))
