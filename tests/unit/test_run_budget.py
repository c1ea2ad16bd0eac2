"""A run's purse: never a micro-dollar over, nobody starves, nobody waits for nothing."""

from __future__ import annotations

import pytest

from headway.engine.budget import RUN, Cost, Later, Never, RunBudget
from headway.errors import BadValueError, UnknownPermitError
from headway.plans.spec import PlanBudget


def purse(microusd: int | None = None, tokens: int | None = None) -> RunBudget:
    return RunBudget(PlanBudget(microusd, tokens))


def spent(of: RunBudget, pot: str = RUN) -> Cost:
    return of.pots[pot].spent


def test_an_attempt_that_holds_something_goes_before_those_that_hold_nothing() -> None:
    tight = purse(100)
    tight.reserve(1, 40)
    tight.reserve(2, 40)
    assert isinstance(tight.reserve(3, 80), Later)
    assert isinstance(tight.reserve(1, 40), Later)
    tight.settle(2, 10)
    assert isinstance(tight.reserve(3, 80), Later)
    assert tight.reserve(1, 40) is None


def test_when_everybody_who_holds_waits_for_more_one_of_them_has_to_go() -> None:
    tight = purse(100)
    tight.reserve(1, 50)
    tight.reserve(2, 40)
    assert isinstance(tight.reserve(1, 30), Later)
    stuck = tight.reserve(2, 30)
    assert isinstance(stuck, Never)
    assert "attempts that wait" in stuck.reason
    tight.settle(2, 0)
    assert tight.reserve(1, 30) is None


def test_the_last_one_that_can_end_may_pass_those_that_wait_for_it() -> None:
    tight = purse(100)
    tight.reserve(1, 50)
    tight.reserve(2, 30)
    assert isinstance(tight.reserve(1, 40), Later)
    assert tight.reserve(2, 10) is None


def test_a_group_has_a_budget_beside_that_of_the_run() -> None:
    both = RunBudget(PlanBudget(100), {"review": PlanBudget(30)})
    assert both.reserve(1, 30, group="review") is None
    late = both.reserve(2, 20, group="review")
    assert isinstance(late, Later)
    assert "the budget of `review`" in late.reason
    # Another group does not wait for a pot that is not its own.
    assert both.reserve(3, 70, group="other") is None
    both.settle(1, 10)
    assert both.reserve(2, 20, group="review") is None
    both.settle(2, 20)
    both.settle(3, 0)
    assert spent(both, "review") == Cost(30)
    assert spent(both) == Cost(30)


def test_an_attempt_is_settled_once() -> None:
    tight = purse(100)
    tight.reserve(1, 10)
    tight.settle(1, 10)
    with pytest.raises(UnknownPermitError, match="attempt 1 holds nothing"):
        tight.settle(1, 10)


def test_an_attempt_that_was_told_never_ends_like_any_other_and_costs_nothing() -> None:
    tight = purse(100)
    assert isinstance(tight.reserve(1, 101), Never)
    tight.settle(1)
    assert spent(tight) == Cost()
    with pytest.raises(UnknownPermitError):
        tight.settle(1)
    # A smaller one may have more luck.
    assert isinstance(tight.reserve(2, 101), Never)
    assert tight.reserve(2, 60) is None
    tight.settle(2, 60)
    with pytest.raises(UnknownPermitError):
        tight.settle(2)


def test_what_an_earlier_process_spent_is_spent() -> None:
    tight = purse(100)
    tight.restore(Cost(60))
    assert isinstance(tight.reserve(2, 41), Never)
    assert tight.reserve(2, 40) is None


def test_a_negative_cost_is_refused() -> None:
    for microusd, tokens in ((-1, 0), (0, -1)):
        with pytest.raises(BadValueError):
            purse(100).reserve(1, microusd, tokens)


def test_a_cost_is_shown_in_dollars_and_tokens() -> None:
    assert str(Cost(0, 1500)) == "1,500 tokens"
    assert str(Cost(2, 3)) == "$0.000002 and 3 tokens"
