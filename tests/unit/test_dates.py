"""Days as numbers, by the calendar that everybody uses."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from headway.base.numbers import date_of, day_of, next_month


def test_days_of_five_centuries_are_the_calendars() -> None:
    first = date(1799, 12, 1)
    for number in range(0, 185_000, 13):
        day = first + timedelta(number)
        since = (day - date(1970, 1, 1)).days
        assert (day_of(day.isoformat()), date_of(since)) == (since, day.isoformat())


@pytest.mark.parametrize(
    ("date", "turns_on"),
    [("2026-11", "2026-12-01"), ("2026-12-31", "2027-01-01"), ("2027-01-01", "2027-02-01")],
)
def test_a_month_turns_into_the_next(date: str, turns_on: str) -> None:
    assert next_month(date) == turns_on
