"""A month's budgets in words: what is left, at which pace it goes, and until when it lasts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from headway.core.numbers import short
from headway.core.outlook import Outlook, Unit, raised_to

MICRO: Final = 1_000_000


def amount(number: float, unit: Unit) -> str:
    """`4.2M`, `$20.00`."""
    return short(number) if unit == "tokens" else f"${number / MICRO:,.2f}"


def whose(outlook: Outlook) -> str:
    """The account, or all of them."""
    return outlook.account or "all accounts"


def title(outlook: Outlook) -> str:
    """`2026-11, all accounts: a budget of 5M tokens`."""
    tokens = " tokens" if outlook.unit == "tokens" else ""
    of = amount(outlook.budget, outlook.unit)
    return f"{outlook.date[:7]}, {whose(outlook)}: a budget of {of}{tokens}"


def outlook_words(outlook: Outlook) -> str:
    """`at the pace of the last 7 days (310k a day) the budget of 5M is used up on 2026-11-24, 7
    days before the month ends`; or that it lasts."""
    unit = outlook.unit
    of = amount(outlook.budget, unit)
    if outlook.spent >= outlook.budget:
        return f"the budget of {of} is used up; {again(outlook)}"
    if not outlook.pace_per_day:
        return f"nothing was spent in the last {_days(outlook.pace_days)}"
    pace = f"at the pace of the last {_days(outlook.pace_days)} "
    if outlook.pace_days == 1:
        pace = "at the pace of today "
    pace += f"({amount(outlook.pace_per_day, unit)} a day)"
    if outlook.exhausted_on is None:
        end = amount(outlook.ahead[-1].expected, unit)
        words = f"{pace} the budget of {of} lasts: {end} by the end of the month"
        earliest, _ = outlook.exhausted_within
        return words + (f"; at worst it is used up on {earliest}" if earliest else "")
    ends = f"{_days(outlook.days_short)} before the month turns"
    return (
        f"{pace} the budget of {of} is used up on {outlook.exhausted_on}{_within(outlook)}; {ends}"
    )


def again(outlook: Outlook) -> str:
    """How somebody goes on whose budget is used up."""
    more = raised_to(outlook)
    setting = f"'${more / MICRO:g}/month'" if outlook.unit == "microusd" else f"{short(more)}/month"
    return f"there is more on {outlook.turns_on}, or with `headway limits budget {setting}`"


def outlook_json(outlook: Outlook) -> dict[str, object]:
    """The same for a program."""
    return {
        **asdict(outlook),
        "left": outlook.left,
        "days_short": outlook.days_short,
        "words": outlook_words(outlook),
    }


def _within(outlook: Outlook) -> str:
    """The range of the day, where it is one."""
    earliest, latest = outlook.exhausted_within
    if earliest == latest:
        return ""
    return f" (between {earliest} and {latest})" if latest else f" ({earliest} at the earliest)"


def _days(number: int) -> str:
    return "1 day" if number == 1 else f"{number} days"
