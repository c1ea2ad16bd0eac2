"""Numbers as people write them: 100k, 5M, 50 %, 10m; and how many things are remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MULTIPLES: Final = {"k": 1e3, "K": 1e3, "M": 1e6}
ENDLESS: Final = ("inf", ".inf", "never")
UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

STEPS_MAX: Final = 20
"""Twenty doublings of a second are twelve days. After a thousand, a float overflows."""


def backoff_s(first_s: float, growth: float, times: int) -> float:
    """A wait that began with `first_s` and grew `times` times."""
    return first_s * growth ** min(times, STEPS_MAX)


REMEMBERED_MAX: Final = 1024
"""Names, kinds, hosts or times of which something is kept at once: a user meets a few of each."""


def remember(memory: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """The value of a key, made if need be and moved to the end; the oldest makes room."""
    value = memory.pop(key, None)
    if value is None:
        value = make()
        if len(memory) >= REMEMBERED_MAX:
            del memory[next(iter(memory))]
    memory[key] = value
    return value


def number_of(text: str) -> float | None:
    """`22`, `0.5`, `1e3`, `100_000`, `100k`, `2M`, `inf`; anything else is no number."""
    if text.lower() in ENDLESS:
        return inf
    multiple = MULTIPLES.get(text[-1:], 1.0)
    digits = text[:-1] if text[-1:] in MULTIPLES else text
    try:
        number = float(digits)
    except ValueError:
        return None
    return number * multiple if abs(number) < inf else None


def share_of(text: str) -> float | None:
    """`50%`, `0.5`; a share is above 0 and at most 1."""
    number = number_of(text.removesuffix("%").rstrip())
    if number is None:
        return None
    share = number / 100.0 if text.endswith("%") else number
    return share if 0.0 < share <= 1.0 else None


def seconds_of(text: str) -> float | None:
    """`90s`, `10m`, `2h`, `1d`; a number without a unit is no duration."""
    unit = UNITS_S.get(text[-1:])
    if unit is None or not text[:-1].replace(".", "", 1).isdecimal():
        return None
    return float(text[:-1]) * unit


def short(number: float) -> str:
    """`500`, `1.5k`, `100k`, `2M`: at most three digits that matter."""
    for unit, multiple in (("M", 1e6), ("k", 1e3)):
        # A number that would be rounded up to the unit is written in it.
        if abs(number) >= multiple * 0.9995:
            return f"{_digits(number / multiple)}{unit}"
    return _digits(number)


def _digits(number: float) -> str:
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values do not exceed (nearest rank)."""
    if not values:
        return inf
    return sorted(values)[ceil(share * len(values)) - 1]


def median(values: Sequence[float]) -> float:
    """The middle value, or the middle of the two middle ones."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


# Days of the calendar as numbers and back. Pure code may not import `datetime`, which has a clock.

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
