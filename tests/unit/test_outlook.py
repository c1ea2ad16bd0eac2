"""Until when a month's budget lasts: pace, the day it is used up, and how to go on."""

from __future__ import annotations

import pytest

from headway.base.numbers import date_of, day_of
from headway.base.values import Budget, Spend
from headway.pacing.budget import Pot, spent_in
from headway.pacing.view import AdmissionView
from headway.report.health import BudgetOutlook, outlooks

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
    assert (found.pace_per_day, found.spent) == (100.0, 1600.0)
    assert found.exhausted_on == "2026-11-24"
    assert found.turns_on == "2026-12-01"
    assert found.expected == pytest.approx(1600.0 + 14 * 100.0)


def test_todays_morning_does_not_make_a_pace() -> None:
    found = outlook([100.0] * 6 + [10.0], "2026-11-16", 5000.0, passed=0.1)
    assert found.pace_per_day == pytest.approx(610.0 / 6.1)
    alone = outlook([600.0], "2026-11-16", 5000.0, passed=0.01)
    assert alone.pace_per_day == 600.0


def test_the_pace_at_a_months_beginning_is_that_of_the_month_before() -> None:
    found = outlook([100.0] * 20, "2026-11-02", 5000.0)
    assert (found.spent, found.pace_per_day) == (200.0, 100.0)


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
