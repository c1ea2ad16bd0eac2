"""Days of the calendar as numbers and back: the core has no clock, and needs no more than this.

A date is text like 2026-11-16, as whoever has a clock tells it.
"""

from __future__ import annotations

from typing import Final

MARCH: Final = 3
"""Years are counted from March here, so that the day of a leap year is a year's last."""

ERA_DAYS: Final = 146_097
"""Days in 400 years: after that the calendar repeats itself."""


def day_of(date: str) -> int:
    """Days since 1970-01-01."""
    year, month, day = (int(part) for part in date.split("-"))
    year -= month < MARCH
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month - MARCH) % 12) + 2) // 5 + day - 1
    day_of_era = 365 * year_of_era + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * ERA_DAYS + day_of_era - 719_468


def date_of(day: int) -> str:
    """The date that is so many days after 1970-01-01."""
    era, day_of_era = divmod(day + 719_468, ERA_DAYS)
    skipped = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // (ERA_DAYS - 1)
    year_of_era = (day_of_era - skipped) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + MARCH - 1) % 12 + 1
    year = era * 400 + year_of_era + (month < MARCH)
    return f"{year:04}-{month:02}-{day_of_year - (153 * shifted + 2) // 5 + 1:02}"


def next_month(date: str) -> str:
    """The first day of the month after the one that a date, or a month, is in."""
    year, month = int(date[:4]), int(date[5:7])
    return f"{year + month // 12:04}-{month % 12 + 1:02}-01"
