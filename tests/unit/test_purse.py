"""All budgets: claims in two ledgers, a former process's calls, months."""

from __future__ import annotations

from math import inf

from headway.pacing.budget import CLAIM_S, MonthlyBudgets
from headway.pacing.memory import (
    EVERY_ACCOUNT,
    AccountTerms,
    Claim,
    MonthlyBudget,
    PacingMemory,
    Spend,
)

A, B = ("client", 1), ("client", 2)
NOTHING = PacingMemory()
CLAIMS = PacingMemory(
    month="2026-11",
    terms=(("one", AccountTerms(budget=MonthlyBudget(tokens=100.0))),),
    spent=(("one", Spend(10.0)), (EVERY_ACCOUNT, Spend(10.0))),
    claims=(Claim(A, "one", Spend(30.0)), Claim(B, "one", Spend(20.0))),
)


def _taken(purse: MonthlyBudgets, key: str) -> tuple[float, float]:
    ledger = dict(purse.ledgers())[key]
    return ledger.spent.tokens, ledger.claimed.tokens


def test_a_call_counts_towards_its_account_and_towards_all_accounts() -> None:
    purse = MonthlyBudgets(NOTHING, 0.0)
    purse.claim(Claim(A, "one", Spend(30.0)))
    purse.claim(Claim(B, "two", Spend(5.0)))
    purse.settle(A, Spend(20.0))
    assert [_taken(purse, key) for key in ("one", "two", "")] == [(20, 0), (0, 5), (20, 5)]
    purse.settle(B, None)
    purse.settle(B, Spend(99.0))
    assert purse.spent() == (("one", Spend(20.0)), ("", Spend(20.0)), ("two", Spend()))
    assert purse.claims() == ()


def test_the_scarcer_budget_decides() -> None:
    purse = MonthlyBudgets(NOTHING, 0.0)
    assert purse.budget("one", MonthlyBudget(tokens=100.0))
    assert purse.budget(EVERY_ACCOUNT, MonthlyBudget(tokens=50.0))
    assert not purse.budget(EVERY_ACCOUNT, MonthlyBudget(tokens=50.0))
    assert purse.budgets("one") == (MonthlyBudget(tokens=100.0), MonthlyBudget(tokens=50.0))
    assert purse.budgets("two") == (MonthlyBudget(), MonthlyBudget(tokens=50.0))
    purse.claim(Claim(A, "two", Spend(30.0)))
    assert purse.room("one", Spend(20.0)) == "yes"
    assert purse.room("one", Spend(21.0)) == "later"
    assert purse.room("one", Spend(51.0)) == "never"


def test_calls_nobody_comes_back_for_were_paid() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    assert _taken(purse, "one") == (10.0, 50.0)
    assert purse.claims() == CLAIMS.claims
    assert purse.expire(CLAIM_S - 1) == CLAIM_S
    assert purse.expire(CLAIM_S) == inf
    assert _taken(purse, "one") == (60.0, 0.0)
    assert purse.expire(CLAIM_S + 1) == inf
    assert purse.claims() == ()


def test_an_adopted_call_keeps_the_claim_that_was_made_for_it() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    assert purse.adopt(Claim(A, "one", Spend(99.0))) == Spend(30.0)
    assert purse.adopt(Claim(("new", 1), "one", Spend(7.0))) == Spend(7.0)
    assert _taken(purse, "one") == (10.0, 57.0)
    purse.expire(CLAIM_S)
    assert _taken(purse, "one") == (30.0, 37.0)
    purse.settle(A, Spend(4.0))
    assert _taken(purse, "one") == (34.0, 7.0)


def test_whoever_comes_back_late_does_not_pay_twice() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    purse.expire(CLAIM_S)
    assert purse.adopt(Claim(A, "one", Spend(99.0))) == Spend(30.0)
    assert _taken(purse, "one") == (30.0, 30.0)
    assert _taken(purse, EVERY_ACCOUNT) == (30.0, 30.0)
    purse.settle(A, Spend(4.0))
    assert _taken(purse, "one") == (34.0, 0.0)


def test_a_month_begins_with_nothing_spent_and_everything_in_flight() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    purse.turn("2026-11")
    assert _taken(purse, "one") == (10.0, 50.0)
    purse.turn("2026-12")
    assert (purse.month, _taken(purse, "one")) == ("2026-12", (0.0, 50.0))
    purse.expire(CLAIM_S)
    purse.turn("2027-01")
    purse.adopt(Claim(A, "one", Spend(9.0)))
    assert _taken(purse, "one") == (0.0, 9.0)
