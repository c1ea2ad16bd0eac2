"""One budget: what was spent, what is claimed, and whether there is room."""

from __future__ import annotations

import pytest

from headway.pacing.budget import BudgetLedger
from headway.pacing.memory import MonthlyBudget, Spend

A, B = ("client", 1), ("client", 2)


@pytest.mark.parametrize(
    ("budget", "need", "room"),
    [
        (MonthlyBudget(), Spend(1e12, 10**12), "yes"),
        (MonthlyBudget(tokens=100.0), Spend(50.0), "yes"),
        (MonthlyBudget(tokens=100.0), Spend(51.0), "later"),
        (MonthlyBudget(tokens=100.0), Spend(91.0), "never"),
        (MonthlyBudget(microusd=100), Spend(0.0, 50), "yes"),
        (MonthlyBudget(microusd=100), Spend(0.0, 51), "later"),
        (MonthlyBudget(microusd=100), Spend(0.0, 91), "never"),
        (MonthlyBudget(100.0, 1000), Spend(51.0, 1), "later"),
    ],
)
def test_room_is_what_spending_and_claims_leave(
    budget: MonthlyBudget, need: Spend, room: str
) -> None:
    ledger = BudgetLedger(budget, Spend(10.0, 10))
    ledger.claim(A, Spend(40.0, 40))
    assert ledger.room(need) == room


def test_a_claim_becomes_what_the_call_cost() -> None:
    ledger = BudgetLedger()
    ledger.claim(A, Spend(40.0, 40))
    ledger.claim(B, Spend(1.0, 2))
    ledger.settle(A, Spend(7.0, 8))
    assert (ledger.spent, ledger.claimed) == (Spend(7.0, 8), Spend(1.0, 2))
    ledger.settle(B, Spend(1.0, 1))
    assert (ledger.spent, ledger.claimed) == (Spend(8.0, 9), Spend())


def test_a_call_claims_once_and_a_dropped_claim_costs_nothing() -> None:
    ledger = BudgetLedger()
    ledger.claim(A, Spend(40.0, 40))
    ledger.claim(A, Spend(3.0, 4))
    assert ledger.claimed == Spend(3.0, 4)
    ledger.drop(A)
    ledger.drop(A)
    assert (ledger.claimed, ledger.spent) == (Spend(), Spend())


def test_rounding_leaves_no_claim_behind() -> None:
    ledger = BudgetLedger(MonthlyBudget(tokens=1.0))
    for number in range(10):
        ledger.claim(("client", number), Spend(0.1 * number + 0.3))
    for number in range(10):
        ledger.drop(("client", number))
    assert ledger.room(Spend(1.0)) == "yes"


def test_a_new_month_forgets_what_was_spent_and_keeps_what_is_in_flight() -> None:
    ledger = BudgetLedger(spent=Spend(5.0, 5))
    ledger.claim(A, Spend(40.0, 40))
    ledger.reset()
    assert (ledger.spent, ledger.claimed) == (Spend(), Spend(40.0, 40))
