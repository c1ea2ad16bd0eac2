"""The keeper of budgets: room, the line of waiting holders, soft claims, months and days."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.numbers import date_of
from headway.base.values import Budget, Spend
from headway.pacing.budget import ALL, CLAIM_S, DAYS_KEPT, Budgets, Claim, MonthlyBudgets
from headway.pacing.memory import AccountTerms, PacingMemory

A, B = ("client", 1), ("client", 2)
ONE = ("one", ALL)
CLAIMS = PacingMemory(
    month="2026-11",
    terms=(("one", AccountTerms(budget=Budget(tokens=100))),),
    days=(("one", (("2026-11-01", Spend(10.0)),)), (ALL, (("2026-11-02", Spend(10.0)),))),
    claims=(Claim(A, "one", Spend(30.0)), Claim(B, "one", Spend(20.0))),
)


def _taken(purse: MonthlyBudgets, key: str = "one") -> tuple[float, float]:
    ledger = dict(purse.ledgers())[key]
    return ledger.spent.tokens, ledger.claimed.tokens


@pytest.mark.parametrize("key", ["one", ALL])
@pytest.mark.parametrize(
    ("budget", "need", "room"),
    [
        (Budget(), Spend(1e12, 10**12), "yes"),
        (Budget(tokens=100), Spend(50.0), "yes"),
        (Budget(tokens=100), Spend(51.0), "later"),
        (Budget(tokens=100), Spend(91.0), "never"),
        (Budget(microusd=100), Spend(0.0, 50), "yes"),
        (Budget(microusd=100), Spend(0.0, 51), "later"),
        (Budget(microusd=100), Spend(0.0, 91), "never"),
        (Budget(100, 1000), Spend(51.0, 1), "later"),
    ],
)
def test_room_is_what_spending_and_claims_leave_of_the_scarcer_budget(
    key: str, budget: Budget, need: Spend, room: str
) -> None:
    days = (("2026-10-31", Spend(99.0, 99)), ("2026-11-01", Spend(10.0, 10)))
    purse = MonthlyBudgets(PacingMemory("2026-11", days=(("one", days), ("", days))), 0)
    assert purse.set_budget(key, budget) is (budget != Budget())
    assert not purse.set_budget(key, budget)
    assert purse.claim(A, Spend(40.0, 40), ONE) == "yes"
    assert purse.claim(B, need, ONE) == room


def test_a_call_counts_once_towards_its_account_and_towards_all() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    purse.hold(A, Spend(99.0), ("one", ALL))
    purse.hold(A, Spend(30.0), ("one", ALL))
    purse.hold(B, Spend(5.0), ("two", ALL))
    purse.settle(A, Spend(20.0))
    assert [_taken(purse, key) for key in ("one", "two", "")] == [(20, 0), (0, 5), (20, 5)]
    assert purse.settle(B, None)
    assert not purse.settle(B, Spend(99.0))
    assert [one.spent.tokens for _, one in purse.ledgers()] == [20.0, 20.0, 0.0]
    assert [key for key, _ in purse.days()] in (["one", ""], ["", "one"])
    assert purse.claims() == ()


def test_rounding_leaves_no_claim_behind() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    for number in range(10):
        purse.hold(("client", number), Spend(0.1 * number + 0.3), ("one", ALL))
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
    purse.adopt(A, "one", Spend(99.0))
    assert purse.held(A) == Spend(30.0)
    purse.adopt(("new", 1), "one", Spend(7.0))
    assert purse.held(("new", 1)) == Spend(7.0)
    purse.expire(CLAIM_S)
    assert _taken(purse) == _taken(purse, ALL) == (30.0, 37.0)
    purse.settle(A, Spend(4.0))
    assert _taken(purse) == (34.0, 7.0)


def test_an_account_takes_what_was_spent_and_claimed_under_another_name() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    purse.hold(("new", 1), Spend(5.0), ("two", ALL))
    purse.rename("one", "two")
    assert _taken(purse, "two") == _taken(purse, ALL) == (10.0, 55.0)
    assert [claim.account for claim in purse.claims()] == ["two"] * 3
    purse.expire(CLAIM_S)
    purse.rename("two", "three")
    purse.adopt(A, "three", Spend(1.0))
    assert _taken(purse, "three") == (30.0, 35.0)
    assert purse.keys == {"three"}


def test_a_month_begins_with_nothing_spent_and_everything_in_flight() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    purse.turn("2026-11")
    assert _taken(purse) == (10.0, 50.0)
    purse.turn("2026-12")
    assert (purse.month, _taken(purse)) == ("2026-12", (0.0, 50.0))
    purse.expire(CLAIM_S)
    purse.turn("2027-01")
    purse.adopt(A, "one", Spend(9.0))
    assert _taken(purse) == (0.0, 9.0)


def test_a_clock_that_is_set_back_into_a_month_finds_what_was_spent_in_it() -> None:
    purse = MonthlyBudgets(CLAIMS, 0.0)
    purse.turn("2026-12-01")
    purse.turn("2026-11-30")
    assert _taken(purse) == (10.0, 50.0)


def test_a_months_days_sum_to_what_was_spent() -> None:
    memory = PacingMemory(month="2026-11", claims=(Claim(A, "one", Spend(30.0, 9)),))
    purse = MonthlyBudgets(memory, 0.0)
    purse.turn("2026-11-16")
    purse.hold(B, Spend(7.0, 2), ("one", ALL))
    purse.settle(B, Spend(5.0, 1))
    purse.expire(CLAIM_S)
    purse.turn("2026-11-17")
    # A client that is back late gets back what was counted for its call, and pays what it cost.
    purse.adopt(A, "one", Spend(99.0))
    purse.settle(A, Spend(20.0, 6))
    days = (("2026-11-16", Spend(35.0, 10)), ("2026-11-17", Spend(-10.0, -3)))
    assert dict(purse.days()) == {"one": days, ALL: days}
    assert dict(purse.ledgers())["one"].spent == Spend(25.0, 7)
    heir = MonthlyBudgets(PacingMemory("2026-11", days=purse.days()), 0.0)
    assert (heir.days(), heir.ledgers()) == (purse.days(), purse.ledgers())


def test_the_oldest_days_make_room() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    for day in range(100):
        purse.turn(date_of(20_000 + day))
        purse.hold(A, Spend(1.0), ("one", ALL))
        purse.settle(A, Spend(1.0))
    kept = [date for date, _ in dict(purse.days())["one"]]
    assert kept == [date_of(20_100 - left) for left in range(DAYS_KEPT, 0, -1)]


def run(microusd: int | None = None, **groups: int) -> Budgets[int]:
    return Budgets({ALL: Budget(microusd=microusd)} | {
        name: Budget(microusd=one) for name, one in groups.items()
    })  # fmt: skip


def ask(purse: Budgets[int], id: int, microusd: int, group: str = "") -> str:
    return purse.claim(id, Spend(0, microusd), (ALL, group) if group else (ALL,))


def test_one_that_holds_something_goes_before_those_that_hold_nothing() -> None:
    tight = run(100)
    asked = [(1, 40), (2, 40), (3, 80), (1, 80)]
    assert [ask(tight, *one) for one in asked] == ["yes", "yes", "later", "later"]
    tight.settle(2, Spend(0, 10))
    assert ask(tight, 3, 80) == "later"
    assert ask(tight, 1, 80) == "yes"
    # What it needs less later is no reason to ask.
    assert ask(tight, 1, 10) == "yes"
    assert tight.held(1) == Spend(0, 80)


def test_when_all_that_hold_something_wait_for_more_one_of_them_has_to_fail() -> None:
    tight = run(100)
    asked = [(1, 50), (2, 40), (1, 80), (2, 70)]
    assert [ask(tight, *one) for one in asked] == ["yes", "yes", "later", "never"]
    tight.settle(2, None)
    assert ask(tight, 1, 80) == "yes"


def test_the_last_one_that_can_end_may_pass_those_that_wait_for_it() -> None:
    tight = run(100)
    asked = [(1, 50), (2, 30), (1, 90), (2, 40)]
    assert [ask(tight, *one) for one in asked] == ["yes", "yes", "later", "yes"]


def test_one_that_the_budget_will_never_have_room_for_keeps_no_other_waiting() -> None:
    tight = run(100)
    asked = [(1, 50), (2, 70), (3, 40)]
    assert [ask(tight, *one) for one in asked] == ["yes", "later", "later"]
    tight.settle(1, Spend(0, 50))
    assert [ask(tight, *one) for one in asked[:0:-1]] == ["yes", "never"]


def test_one_that_leaves_the_line_lets_the_next_one_go() -> None:
    tight = run(100)
    asked = [(1, 50), (2, 70), (3, 40)]
    assert [ask(tight, *one) for one in asked] == ["yes", "later", "later"]
    assert tight.leave(2)
    assert not tight.leave(2)
    assert ask(tight, 3, 40) == "yes"
    # So does one for which there is no budget any more.
    assert ask(tight, 4, 70) == "later"
    tight.set_budget(ALL, Budget())
    assert ask(tight, 4, 70) == "yes"
    assert not tight.leave(4)


def test_a_group_has_a_budget_beside_that_of_the_run() -> None:
    both = run(100, review=30)
    assert [ask(both, 1, 30, "review"), ask(both, 2, 20, "review")] == ["yes", "later"]
    # Another group does not wait for a pot that is not its own.
    assert ask(both, 3, 70, "other") == "yes"
    both.settle(1, Spend(0, 10))
    assert ask(both, 2, 20, "review") == "yes"
    both.settle(2, Spend(0, 20))
    both.settle(3, None)
    assert both.pots["review"].spent == both.pots[ALL].spent == Spend(0, 30)
    words = "$0.00 for the run ($0.0001 left), $0.00 for review ($0.0000 left)"
    assert both.describe((ALL, "review")) == words


def test_a_soft_claim_grows_ahead_of_its_answer_in_large_steps_while_there_is_room() -> None:
    purse: Budgets[int] = Budgets({ALL: Budget(tokens=3000)})
    purse.claim(1, cost_of(100))
    tokens = (100, 101, 357, 700, 1000, 1500, 2000, 2900)
    found = [(purse.grow(1, one, cost_of, 10_000.0), purse.held(1).tokens) for one in tokens]
    assert found == [
        (None, 110), ("yes", 367), (None, 367), ("yes", 1060), (None, 1060), ("yes", 2260),
        (None, 2260), ("never", 2910),
    ]  # fmt: skip
    # The longest answer is not exceeded by a step.
    purse.settle(1, Spend(500))
    purse.claim(2, cost_of(100))
    assert purse.grow(2, 101, cost_of, 120.0) == "yes"
    assert purse.held(2).tokens == 130


def cost_of(output_tokens: float) -> Spend:
    return Spend(10 + output_tokens)
