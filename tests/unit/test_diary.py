"""What was spent on which day: sums, bounds, and that they are the month's."""

from __future__ import annotations

from headway.base.numbers import date_of
from headway.pacing.budget import CLAIM_S, MonthlyBudgets
from headway.pacing.memory import (
    DAYS_KEPT,
    EVERY_ACCOUNT,
    Claim,
    DaySpend,
    Diary,
    PacingMemory,
    Spend,
)

A, B = ("client", 1), ("client", 2)


def test_an_account_spends_for_itself_and_for_all() -> None:
    diary = Diary()
    diary.date = "2026-11-16"
    diary.spend("one", Spend(10.0, 3))
    diary.spend("two", Spend(5.0, 1))
    diary.date = "2026-11-17"
    diary.spend("one", Spend(1.0, 1))
    assert dict(diary.memory()) == {
        "one": (DaySpend("2026-11-16", 10.0, 3), DaySpend("2026-11-17", 1.0, 1)),
        "two": (DaySpend("2026-11-16", 5.0, 1),),
        "": (DaySpend("2026-11-16", 15.0, 4), DaySpend("2026-11-17", 1.0, 1)),
    }
    assert Diary(diary.memory()).memory() == diary.memory()


def test_the_oldest_days_make_room() -> None:
    diary = Diary()
    for day in range(100):
        diary.date = date_of(20_000 + day)
        diary.spend("one", Spend(1.0))
    kept = dict(diary.memory())["one"]
    assert len(kept) == DAYS_KEPT
    assert [kept[0].date, kept[-1].date] == [date_of(20_100 - DAYS_KEPT), date_of(20_099)]


def test_a_months_days_sum_to_what_its_ledger_has_spent() -> None:
    memory = PacingMemory(month="2026-11", claims=(Claim(A, "one", Spend(30.0, 9)),))
    purse = MonthlyBudgets(memory, 0.0)
    purse.turn("2026-11-16")
    purse.claim(Claim(B, "one", Spend(7.0, 2)))
    purse.settle(B, Spend(5.0, 1))
    purse.expire(CLAIM_S)
    assert dict(purse.spent())["one"] == Spend(35.0, 10)
    purse.turn("2026-11-17")
    # Whoever comes back late is given back what was counted for the call, and pays what it cost.
    purse.adopt(Claim(A, "one", Spend(99.0)))
    purse.settle(A, Spend(20.0, 6))
    days = dict(purse.diary.memory())
    for key in ("one", EVERY_ACCOUNT):
        spent = dict(purse.spent())[key]
        assert sum(day.tokens for day in days[key]) == spent.tokens == 25.0
        assert sum(day.microusd for day in days[key]) == spent.microusd == 7
    purse.turn("2026-12-01")
    assert dict(purse.spent())["one"] == Spend()
    assert dict(purse.diary.memory()) == days


def test_what_cost_nothing_is_on_no_day() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    purse.claim(Claim(A, "one", Spend(7.0)))
    purse.settle(A, None)
    assert purse.diary.memory() == ()
