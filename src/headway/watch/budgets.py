"""A month's budgets in words: what is left, at which pace it goes, and until when it lasts."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Final

from headway.core.numbers import short
from headway.core.outlook import Finish, Outlook, Unit, lasting
from headway.watch.words import count

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
    return f"there is more on {outlook.turns_on}, or with `{raising(outlook, lasting(outlook))}`"


def raising(outlook: Outlook, to: float) -> str:
    """The command that raises a budget."""
    setting = f"'${to / MICRO:g}/month'" if outlook.unit == "microusd" else f"{to:.0f}/month"
    account = f" --account {shlex.quote(outlook.account)}" if outlook.account else ""
    return f"headway limits budget {setting}{account}"


def finish_words(finish: Finish, tasks: int) -> str:
    """Which budget stopped a run, what is left of it, and when the run could end."""
    one = finish.outlook
    tokens = " tokens" if one.unit == "tokens" else ""
    of, left = amount(one.budget, one.unit), amount(one.left, one.unit)
    need = "needs" if tasks == 1 else "need"
    needs = f"{count(tasks, 'task')} still {need} about {amount(finish.needs, one.unit)}{tokens}"
    when = f"it could finish from {finish.on} on, when the month turns, or now with"
    if finish.turns > 1:
        when = f"it could finish from {finish.on} on, after {finish.turns} months, or now with"
    elif not finish.turns:
        when = "no month has room for one of its calls, it can finish only with"
    return (
        f"the budget of {of}{tokens} for {whose(one)} has {left} left in {one.date[:7]}; {needs}: "
        f"{when} `{raising(one, finish.raise_to)}`"
    )


def finish_json(finish: Finish) -> dict[str, object]:
    """The same for a program."""
    one = finish.outlook
    return {
        "account": one.account,
        "unit": one.unit,
        "budget": one.budget,
        "left": one.left,
        "needs": finish.needs,
        "raise_to": finish.raise_to,
        "finishes_on": finish.on,
    }


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
