"""Whether a month's budget lasts: what was spent by day, and what that comes to by its end.

Laws:
- The pace is that of the last `PACE_DAYS` days, of as many of them as there are records of.
- Of the days to come it is told what is expected and a range that eight of ten months stay in, if
  days go on to vary as they did. One day alone says nothing of a range.
- Days that nobody wrote down are not taken for days without spending: what a month had spent
  before the first one is told as spent by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Final, Literal

from headway.core.dates import date_of, day_of, next_month
from headway.core.quota.ledger import LedgerStatistics
from headway.core.quota.terms import DaySpend, Spend
from headway.core.quota.view import BookView

PACE_DAYS: Final = 7
"""A week: working days and others are in it as they come."""

RANGE: Final = 1.2816
"""Deviations within which a normal quantity lies eight times of ten."""

NEEDED_MARGIN: Final = 1.1
"""What tasks to come take is known from those that have finished, more or less."""

Unit = Literal["tokens", "microusd"]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What will have been spent by the end of a day to come."""

    date: str
    expected: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """One budget of this month: spent so far, and whether it lasts."""

    account: str
    """Nothing, for all accounts together."""
    unit: Unit
    budget: float
    spent: float
    in_flight: float
    """What calls in flight may still take."""
    date: str
    turns_on: str
    """The first day of the next month, when nothing is spent."""
    past: tuple[tuple[str, float], ...]
    """Spent by the end of each day of this month, as far back as was written down."""
    pace_per_day: float
    pace_days: int
    ahead: tuple[Ahead, ...] = ()
    exhausted_on: str | None = None
    """The day on which it is expected to be used up; `None` if it lasts for the month."""
    exhausted_within: tuple[str | None, str | None] = (None, None)
    """The earliest and the latest such day of eight months in ten; `None` is not this month."""

    @property
    def left(self) -> float:
        return max(0.0, self.budget - self.spent)

    @property
    def days_short(self) -> int:
        """Days of the month that are left when the budget is used up."""
        if self.exhausted_on is None:
            return 0
        return day_of(self.turns_on) - day_of(self.exhausted_on)


def outlooks(view: BookView, passed: float) -> tuple[Outlook, ...]:
    """Every budget that is set; `passed` is how much of the day has gone, 0 to 1."""
    days = dict(view.days)
    found: list[Outlook] = []
    for account, ledger in view.ledgers:
        found += _of(account, ledger, days.get(account, ()), view, passed)
    return tuple(found)


def _of(
    account: str,
    ledger: LedgerStatistics,
    days: tuple[DaySpend, ...],
    view: BookView,
    passed: float,
) -> list[Outlook]:
    date = view.date or f"{view.month}-01"
    budget, spent, claimed = ledger.budget, ledger.spent, ledger.claimed
    tokens = tuple((day.date, day.tokens) for day in days)
    money = tuple((day.date, float(day.microusd)) for day in days)
    amounts: tuple[tuple[Unit, float | None, float, float, tuple[tuple[str, float], ...]], ...] = (
        ("tokens", budget.tokens, spent.tokens, claimed.tokens, tokens),
        ("microusd", budget.microusd, spent.microusd, claimed.microusd, money),
    )
    return [
        _foresee(
            Outlook(account, unit, of, used, flying, date, next_month(date), by_day, 0.0, 0), passed
        )
        for unit, of, used, flying, by_day in amounts
        if of is not None
    ]


def _foresee(known: Outlook, passed: float) -> Outlook:
    """Fill in what follows from spending by day, which is what `past` still is."""
    by_day = dict(known.past)
    today = day_of(known.date)
    first = max(today - PACE_DAYS + 1, min((day_of(date) for date in by_day), default=today))
    amounts = [by_day.get(date_of(day), 0.0) for day in range(first, today + 1)]
    # A first day is taken as a whole one: its first hour would make a month of it.
    pace = sum(amounts) / max(1.0, len(amounts) - 1 + passed)
    spread = _spread(amounts[:-1])
    rest = 1.0 - passed
    ahead = tuple(
        _day_ahead(
            known.spent, date_of(day), (pace, spread), (day - today + rest, len(amounts) - 1)
        )
        for day in range(today, day_of(known.turns_on))
    )
    told = replace(
        known, past=_past(known, by_day), pace_per_day=max(0.0, pace), pace_days=len(amounts),
        ahead=ahead,
    )  # fmt: skip
    return replace(
        told,
        exhausted_on=_reached(told, [day.expected for day in ahead]),
        exhausted_within=(
            _reached(told, [day.most for day in ahead]),
            _reached(told, [day.least for day in ahead]),
        ),
    )


def _spread(whole: list[float]) -> float | None:
    """How much whole days differ; unknown below two of them."""
    if len(whole) < 2:
        return None
    mean = sum(whole) / len(whole)
    return sqrt(sum((amount - mean) ** 2 for amount in whole) / (len(whole) - 1))


def _day_ahead(
    spent: float, date: str, pace: tuple[float, float | None], over: tuple[float, int]
) -> Ahead:
    """Spending by the end of a day, from what a day takes and how much days differ.

    The mean of few days is itself in doubt, by as much as they differ over the root of how many.
    """
    (per_day, spread), (days, known) = pace, over
    expected = spent + max(0.0, per_day) * days
    if spread is None:
        return Ahead(date, expected, expected, expected)
    doubt = RANGE * spread * sqrt(days + days * days / known)
    return Ahead(date, expected, max(spent, expected - doubt), expected + doubt)


def _past(known: Outlook, by_day: dict[str, float]) -> tuple[tuple[str, float], ...]:
    """The month's sums to the end of each day, ending with what is spent now."""
    month = [date for date in sorted(by_day) if date[:7] == known.date[:7]]
    if not month:
        return ((known.date, known.spent),)
    total = known.spent - sum(by_day[date] for date in month)
    sums: list[tuple[str, float]] = []
    if month[0] > f"{known.date[:7]}-01":
        sums.append((date_of(day_of(month[0]) - 1), max(0.0, total)))
    for day in range(day_of(month[0]), day_of(known.date) + 1):
        total += by_day.get(date_of(day), 0.0)
        sums.append((date_of(day), total))
    return tuple(sums)


def _reached(outlook: Outlook, sums: list[float]) -> str | None:
    """The day on which one of these lines reaches the budget."""
    if outlook.spent >= outlook.budget:
        return outlook.date
    for day, amount in zip(outlook.ahead, sums, strict=True):
        if amount >= outlook.budget:
            return day.date
    return None


def raised_to(needed: float) -> float:
    """A budget of at least so much, in two digits that matter."""
    step = 10.0 ** max(0, len(str(ceil(needed))) - 2)
    return ceil(needed / step) * step


def lasting(outlook: Outlook) -> float:
    """A budget that lasts until the month turns, nine times of ten."""
    return raised_to(max(outlook.spent, *(day.most for day in outlook.ahead)))


@dataclass(frozen=True, slots=True)
class Rest:
    """What a run still needs that a budget has no room for."""

    tasks: int
    tokens: float
    """That they will probably take."""
    microusd: float
    """What that will probably cost."""
    claim: Spend
    """The most that the call which was refused can take: there has to be room for it."""


@dataclass(frozen=True, slots=True)
class Finish:
    """When a run could end that a month's budget has stopped."""

    outlook: Outlook
    needs: float
    """What is left of the run will probably take so much of the budget."""
    raise_to: float
    """With a budget of so much it could go on at once, to its end."""
    turns: int
    """How many months have to begin before what is left of it fits; 1 is the next one, 0 is that
    no month has room for a single call."""

    @property
    def on(self) -> str:
        """The day on which it could end if nothing else is spent until then; nothing for never."""
        date = self.outlook.turns_on if self.turns else ""
        for _ in range(self.turns - 1):
            date = next_month(date)
        return date


def finishes(found: Sequence[Outlook], rest: Rest) -> tuple[Finish, ...]:
    """For each budget that is in the way of a run, when it could finish."""
    told: list[Finish] = []
    for one in found:
        claim, needs = rest.claim.tokens, rest.tokens
        if one.unit == "microusd":
            claim, needs = float(rest.claim.microusd), rest.microusd
        if one.left < max(claim, needs):
            more = one.spent + one.in_flight + NEEDED_MARGIN * needs + claim
            turns = 0 if claim > one.budget else max(1, ceil(needs / max(1.0, one.budget)))
            told.append(Finish(one, needs, raised_to(more), turns))
    return tuple(told)
