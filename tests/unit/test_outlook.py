"""Until when a month's budget lasts: pace, the day it is used up, and how to go on."""

from __future__ import annotations

import pytest

from headway.base.numbers import date_of, day_of
from headway.base.values import Budget, Spend
from headway.pacing.budget import Pot, spent_in
from headway.pacing.view import AdmissionView
from headway.report.health import (
    PACE_DAYS,
    BudgetOutlook,
    Finish,
    finishes,
    lasting,
    outlooks,
    raised_to,
)

NOTHING = Spend()


def view_of(
    amounts: list[float], date: str, budget: Budget, spent: Spend | None = None
) -> AdmissionView:
    """So much on each of the days that end with this one."""
    first = day_of(date) - len(amounts) + 1
    days = tuple(
        (date_of(first + at), Spend(amount, round(amount))) for at, amount in enumerate(amounts)
    )
    month = spent_in(date[:7], days).tokens
    ledger = Pot(budget, spent or Spend(month, round(month)), Spend(7.0, 7))
    return AdmissionView(date[:7], (), (("", ledger),), (), date, 12, (("", days),))


def outlook(amounts: list[float], date: str, budget: float, passed: float = 1.0) -> BudgetOutlook:
    (found,) = outlooks(view_of(amounts, date, Budget(tokens=budget)), passed)
    return found


def test_a_steady_pace_uses_a_budget_up_on_the_day_that_division_says() -> None:
    found = outlook([100.0] * 16, "2026-11-16", 2400.0)
    assert (found.pace_per_day, found.pace_days) == (100.0, PACE_DAYS)
    assert (found.spent, found.left, found.in_flight) == (1600.0, 800.0, 7.0)
    assert found.exhausted_on == "2026-11-24"
    assert found.days_short == 7
    assert found.turns_on == "2026-12-01"
    assert found.past[0] == ("2026-11-01", 100.0)
    assert found.past[-1] == ("2026-11-16", 1600.0)
    assert found.expected == pytest.approx(1600.0 + 14 * 100.0)


def test_todays_morning_does_not_make_a_pace() -> None:
    found = outlook([100.0] * 6 + [10.0], "2026-11-16", 5000.0, passed=0.1)
    assert found.pace_per_day == pytest.approx(610.0 / 6.1)
    alone = outlook([600.0], "2026-11-16", 5000.0, passed=0.01)
    assert (alone.pace_per_day, alone.pace_days) == (600.0, 1)


def test_the_pace_at_a_months_beginning_is_that_of_the_month_before() -> None:
    found = outlook([100.0] * 20, "2026-11-02", 5000.0)
    assert (found.spent, found.pace_per_day, found.pace_days) == (200.0, 100.0, PACE_DAYS)
    assert [date for date, _ in found.past] == ["2026-11-01", "2026-11-02"]


def test_what_was_spent_before_anybody_wrote_it_down_is_told_as_spent_by_then() -> None:
    view = view_of([100.0, 100.0], "2026-11-16", Budget(tokens=5000.0), Spend(1200.0))
    (found,) = outlooks(view, 0.5)
    assert found.past == (("2026-11-14", 1000.0), ("2026-11-15", 1100.0), ("2026-11-16", 1200.0))
    nothing = view_of([], "2026-11-16", Budget(tokens=5000.0), Spend(1200.0))
    (found,) = outlooks(nothing, 0.5)
    assert found.past == (("2026-11-16", 1200.0),)
    assert (found.pace_per_day, found.exhausted_on) == (0.0, None)


def test_days_without_spending_are_part_of_the_pace() -> None:
    found = outlook([700.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "2026-11-16", 5000.0)
    assert found.pace_per_day == 100.0
    idle = outlook([900.0, *([0.0] * 8)], "2026-11-16", 5000.0)
    assert (idle.pace_per_day, idle.expected) == (0.0, 900.0)


def test_every_budget_has_an_outlook_of_its_own() -> None:
    view = view_of([100.0] * 3, "2026-11-16", Budget(5000.0, 900))
    ledger = Pot(Budget(tokens=10.0), NOTHING, NOTHING)
    free = Pot(Budget(), Spend(5.0), NOTHING)
    view = AdmissionView(
        "2026-11", (), (*view.ledgers, ("one", ledger), ("two", free)), (), "", 3, view.days
    )
    found = outlooks(view, 0.5)
    assert [(one.account, one.unit, one.budget) for one in found] == [
        ("", "tokens", 5000.0), ("", "microusd", 900.0), ("one", "tokens", 10.0),
    ]  # fmt: skip
    assert {one.date for one in found} == {"2026-11-01"}, "an older broker does not tell the day"


@pytest.mark.parametrize(
    ("needed", "to"),
    [(0.0, 0.0), (7.2, 8.0), (99.0, 99.0), (101.0, 110.0), (8712.0, 8800.0), (1.21e6, 1.3e6)],
)
def test_a_larger_budget_is_a_round_number(needed: float, to: float) -> None:
    assert raised_to(needed) == to


def test_a_budget_that_is_proposed_lasts_for_the_month() -> None:
    found = outlook([50.0, 150.0] * 8, "2026-11-16", 1700.0)
    assert outlook([50.0, 150.0] * 8, "2026-11-16", lasting(found)).exhausted_on is None


def test_a_stopped_run_finishes_when_the_month_turns_or_with_a_larger_budget() -> None:
    found = outlook([100.0] * 16, "2026-11-16", 1650.0)
    (finish,) = finishes([found], 923.0, 200.0, Spend(94.0, 40))
    assert (finish.needs, finish.turns, finish.on) == (923.0, 1, "2026-12-01")
    assert finish.raise_to == raised_to(1600.0 + 7.0 + 1.1 * 923.0 + 94.0)


def test_a_run_that_takes_more_than_a_month_finishes_after_several() -> None:
    found = outlook([100.0] * 16, "2026-11-16", 1650.0)
    (finish,) = finishes([found], 3301.0, 0.0, Spend(94.0))
    assert (finish.turns, finish.on) == (3, "2027-02-01")
    (never,) = finishes([found], 3301.0, 0.0, Spend(1651.0))
    assert (never.turns, never.on) == (0, "")


def test_only_a_budget_that_is_in_the_way_is_blamed() -> None:
    tokens = outlook([100.0] * 16, "2026-11-16", 1650.0)
    view = view_of([100.0] * 16, "2026-11-16", Budget(microusd=1650))
    (money,) = outlooks(view, 1.0)
    enough = Finish(money, 40.0, raised_to(1600 + 7 + 44.0 + 45.0), 1)
    assert finishes([tokens, money], 50.0, 40.0, Spend(50.0, 45)) == ()
    assert finishes([tokens, money], 50.0, 40.0, Spend(50.0, 51))[0].outlook is money
    assert enough.on == "2026-12-01"
