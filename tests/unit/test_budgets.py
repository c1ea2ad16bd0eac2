"""Budgets of a month: room, claims of calls in flight and of a former process, days."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.numbers import date_of
from headway.pacing.budget import CLAIM_S, DAYS_KEPT, MonthlyBudgets
from headway.pacing.call import Spend
from headway.pacing.memory import (
    EVERY_ACCOUNT,
    AccountTerms,
    Claim,
    DaySpend,
    MonthlyBudget,
    PacingMemory,
)

A, B = ("client", 1), ("client", 2)
CLAIMS = PacingMemory(
    month="2026-11",
    terms=(("one", AccountTerms(budget=MonthlyBudget(tokens=100.0))),),
    spent=(("one", Spend(10.0)), (EVERY_ACCOUNT, Spend(10.0))),
    claims=(Claim(A, "one", Spend(30.0)), Claim(B, "one", Spend(20.0))),
)


def _taken(purse: MonthlyBudgets, key: str = "one") -> tuple[float, float]:
    ledger = dict(purse.ledgers())[key]
    return ledger.spent.tokens, ledger.claimed.tokens


@pytest.mark.parametrize("key", ["one", EVERY_ACCOUNT])
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
def test_room_is_what_spending_and_claims_leave_of_the_scarcer_budget(
    key: str, budget: MonthlyBudget, need: Spend, room: str
) -> None:
    purse = MonthlyBudgets(PacingMemory(spent=(("one", Spend(10.0, 10)), ("", Spend(10.0, 10)))), 0)
    assert purse.budget(key, budget) is (budget != MonthlyBudget())
    assert not purse.budget(key, budget)
    purse.claim(Claim(A, "one", Spend(40.0, 40)))
    assert purse.room("one", need) == room


def test_a_call_counts_once_towards_its_account_and_towards_all() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    purse.claim(Claim(A, "one", Spend(99.0)))
    purse.claim(Claim(A, "one", Spend(30.0)))
    purse.claim(Claim(B, "two", Spend(5.0)))
    purse.settle(A, Spend(20.0))
    assert [_taken(purse, key) for key in ("one", "two", "")] == [(20, 0), (0, 5), (20, 5)]
    purse.settle(B, None)
    purse.settle(B, Spend(99.0))
    assert purse.spent() == (("one", Spend(20.0)), ("", Spend(20.0)), ("two", Spend()))
    assert [key for key, _ in purse.days()] in (["one", ""], ["", "one"])
    assert purse.claims() == ()


def test_rounding_leaves_no_claim_behind() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    for number in range(10):
        purse.claim(Claim(("client", number), "one", Spend(0.1 * number + 0.3)))
    for number in range(10):
        purse.settle(("client", number), None)
    assert _taken(purse) == (0.0, 0.0)


def test_calls_that_no_client_comes_back_for_were_paid() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    assert (_taken(purse), purse.claims()) == ((10.0, 50.0), CLAIMS.claims)
    assert [purse.expire(now) for now in (CLAIM_S - 1, CLAIM_S)] == [CLAIM_S, inf]
    assert (_taken(purse), purse.claims()) == ((60.0, 0.0), ())
    assert purse.expire(CLAIM_S + 1) == inf


@pytest.mark.parametrize("is_late", [False, True])
def test_an_adopted_call_keeps_its_claim_and_does_not_pay_twice(is_late: bool) -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    if is_late:
        purse.expire(CLAIM_S)
    assert purse.adopt(Claim(A, "one", Spend(99.0))) == Spend(30.0)
    assert purse.adopt(Claim(("new", 1), "one", Spend(7.0))) == Spend(7.0)
    purse.expire(CLAIM_S)
    assert _taken(purse) == _taken(purse, EVERY_ACCOUNT) == (30.0, 37.0)
    purse.settle(A, Spend(4.0))
    assert _taken(purse) == (34.0, 7.0)


def test_a_month_begins_with_nothing_spent_and_everything_in_flight() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    purse.turn("2026-11")
    assert _taken(purse) == (10.0, 50.0)
    purse.turn("2026-12")
    assert (purse.month, _taken(purse)) == ("2026-12", (0.0, 50.0))
    purse.expire(CLAIM_S)
    purse.turn("2027-01")
    purse.adopt(Claim(A, "one", Spend(9.0)))
    assert _taken(purse) == (0.0, 9.0)


def test_a_months_days_sum_to_what_was_spent() -> None:
    memory = PacingMemory(month="2026-11", claims=(Claim(A, "one", Spend(30.0, 9)),))
    purse = MonthlyBudgets(memory, 0.0)
    purse.turn("2026-11-16")
    purse.claim(Claim(B, "one", Spend(7.0, 2)))
    purse.settle(B, Spend(5.0, 1))
    purse.expire(CLAIM_S)
    purse.turn("2026-11-17")
    # A client that is back late gets back what was counted for its call, and pays what it cost.
    purse.adopt(Claim(A, "one", Spend(99.0)))
    purse.settle(A, Spend(20.0, 6))
    days = (DaySpend("2026-11-16", 35.0, 10), DaySpend("2026-11-17", -10.0, -3))
    assert dict(purse.days()) == {"one": days, EVERY_ACCOUNT: days}
    assert dict(purse.spent())["one"] == Spend(25.0, 7)
    assert MonthlyBudgets(PacingMemory(days=purse.days()), 0.0).days() == purse.days()


def test_the_oldest_days_make_room() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    for day in range(100):
        purse.turn(date_of(20_000 + day))
        purse.claim(Claim(A, "one", Spend(1.0)))
        purse.settle(A, Spend(1.0))
    kept = [day.date for day in dict(purse.days())["one"]]
    assert kept == [date_of(20_100 - left) for left in range(DAYS_KEPT, 0, -1)]
