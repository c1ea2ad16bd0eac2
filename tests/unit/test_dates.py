"""Days as numbers, by the calendar that everybody uses."""

from __future__ import annotations

import pytest

from headway.base.numbers import date_of, day_of, next_month


def test_a_date_is_a_number_of_days_and_back() -> None:
    for date, day in (("1970-01-01", 0), ("1969-12-31", -1), ("2028-02-29", 21243)):
        assert (day_of(date), date_of(day)) == (day, date)


@pytest.mark.parametrize(
    ("date", "turns_on"),
    [("2026-11", "2026-12-01"), ("2026-12-31", "2027-01-01"), ("2027-01-01", "2027-02-01")],
)
def test_a_month_turns_into_the_next(date: str, turns_on: str) -> None:
    assert next_month(date) == turns_on
