"""The health of each account: good, watch or bad, with reasons; until when a budget lasts.

Laws:
- A limit that is used in full is no alarm: that is what pacing is for. Refusals, slower answers,
  overload and neighbours that take a large share are alarms.
- Speed is compared per output token and to the first byte, with what is usual on this account. If
  more calls in flight explain it, that is said, and it is never bad.
- An hour of the day is judged only from enough calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from operator import attrgetter
from typing import Final, Literal

from msgspec import Struct

from headway.base.numbers import date_of, day_of, next_month
from headway.pacing.memory import (
    HOUR_UNKNOWN,
    ChronicleMemory,
    Spell,
    hours_of,
    lately,
    total,
    without,
)
from headway.pacing.view import AccountView, AdmissionView

Level = Literal["good", "watch", "bad"]

ORDER: Final[tuple[Level, ...]] = ("good", "watch", "bad")

RECENT_MIN: Final = 10
"""The last minutes, which are compared with what is usual."""

RECENT_CALLS: Final = 10
USUAL_CALLS: Final = 30
"""Calls before their speed is compared, and before an hour of the day is known."""

REFUSALS_LEAST: Final = 2
"""A single refusal is how a limit is found."""

HOURS_KNOWN: Final = 6
"""Other hours that must be known before this one counts as no peak."""

FASTER: Final = 1.3
FEWER: Final = 0.02
"""An hour is quieter if answers come this many times faster, or if the share of refused calls is
lower by this much."""

CROWDED: Final = 1.5
"""From this many times the usual number of calls in flight on, slower answers are our own doing."""

REFUSED: Final = (0.02, 0.10)
"""Shares of calls that are refused, or that meet an overloaded or failing provider: watch, bad."""

SLOWER: Final = (1.5, 3.0)

NEIGHBOURS: Final = (0.25, 0.50)
"""Shares of a limit that others take."""


class Quiet(Struct, frozen=True):
    """Hours at which this account is better than now."""

    from_hour: int
    to_hour: int
    faster: float
    """How many times faster an output token comes then; 1 if unknown."""


class Condition(Struct, frozen=True):
    """The state of one account and model group."""

    account: str
    group: str
    level: Level
    reasons: tuple[str, ...]
    is_peak: bool | None
    """Whether other hours of the day are better; None if unknown."""
    quiet: Quiet | None
    refused_share: float | None
    """Of the calls of the last minutes; None if there were none."""
    slower: float | None
    """Recent time per output token over what is usual; None if unknown."""


Finding = tuple[Level, str]


def condition_of(lane: AccountView, hour: int) -> Condition:
    """The state of an account at this hour of the day."""
    recent = lately(lane.chronicle, RECENT_MIN)
    by_hour = hours_of(lane.chronicle)
    usual = without(total(by_hour.values()), recent)
    if not usual.ended:
        usual = lately(lane.chronicle, 10 * RECENT_MIN, RECENT_MIN)
    found = [*_refusals(recent), *_slowness(recent, usual)]
    draw = max([0.0, *(one.neighbours_per_s / one.limit.rate_per_s for one in lane.limits
                       if one.limit.rate_per_s)])  # fmt: skip
    if draw >= NEIGHBOURS[0]:
        words = f"others on the account take {draw:.0%} of a limit"
        found.append((_level(draw, NEIGHBOURS), words))
    if lane.wait is not None and lane.wait.resource == "account":
        found.append(("bad", f"the account takes no calls: {lane.wait.reason}"))
    found.sort(key=lambda one: -ORDER.index(one[0]))
    quiet, known = _quiet(by_hour, hour), _known(by_hour)
    is_peak = True if quiet is not None else None
    if quiet is None and hour in known and len(known) > HOURS_KNOWN:
        is_peak = False
    return Condition(
        lane.account, lane.group, found[0][0] if found else "good",
        tuple(words for _, words in found), is_peak, quiet,
        recent.share(recent.refused) if recent.ended else None, _slower(recent, usual),
    )  # fmt: skip


def quiet_from(chronicle: ChronicleMemory, hour: int, preset: tuple[int, int]) -> int | None:
    """The hour from which on it is quieter than in this one or, if this one is not known, than
    usual; while too few hours are known, that of the preset. None: it is quiet now."""
    by_hour, seen = hours_of(chronicle), _known(hours_of(chronicle))
    if hour not in seen:
        by_hour[hour] = total(seen.values()) if seen else Spell()
    quiet = _quiet(by_hour, hour)
    if quiet is not None:
        return quiet.from_hour
    begins, ends = preset
    is_quiet = (hour - begins) % 24 < (ends - begins) % 24
    return None if is_quiet or (hour in seen and len(seen) > HOURS_KNOWN) else begins


def slowdown_of(chronicle: ChronicleMemory, is_peak: bool) -> float | None:
    """How many times as long as usual answers take in the busiest hour, or in the quietest one;
    None where too few hours are known to tell them apart."""
    known = _known(hours_of(chronicle))
    usual = total(known.values()).per_token_s
    paces = [one.per_token_s for one in known.values() if one.per_token_s is not None]
    if len(paces) < 2 or not usual:
        return None
    return (max(paces) if is_peak else min(paces)) / usual


def _refusals(recent: Spell) -> Iterator[Finding]:
    if recent.refused >= REFUSALS_LEAST:
        share = recent.share(recent.refused)
        yield _level(share, REFUSED), f"{share:.1%} of calls were refused"
    away = recent.overload + recent.failed
    if away >= REFUSALS_LEAST:
        share = recent.share(away)
        words = f"{share:.1%} of calls found the provider overloaded or failing"
        yield _level(share, REFUSED), words


def _slower(recent: Spell, usual: Spell) -> float | None:
    if recent.begun < RECENT_CALLS or usual.begun < USUAL_CALLS:
        return None
    return _times(recent.per_token_s, usual.per_token_s)


def _slowness(recent: Spell, usual: Spell) -> Iterator[Finding]:
    """Answers that come slower than usual here, per token and to the first byte."""
    slower = _slower(recent, usual) or 1.0
    if slower >= SLOWER[0]:
        words, level = f"answers come {slower:.1f}x slower per token", _level(slower, SLOWER)
        if recent.company >= CROWDED * usual.company:
            words += f", with {recent.company:.0f} in flight and usually {usual.company:.0f}"
            level = "watch"
        yield level, words
    is_known = recent.begun >= RECENT_CALLS and usual.begun >= USUAL_CALLS
    later = (_times(recent.first_byte_s, usual.first_byte_s) if is_known else None) or 1.0
    if later >= SLOWER[0]:
        yield _level(later, SLOWER), f"first bytes come {later:.1f}x later than usual"


def _quiet(by_hour: dict[int, Spell], hour: int) -> Quiet | None:
    """The longest stretch of hours that are better than this one, the next one of several."""
    known = _known(by_hour)
    if hour not in known:
        return None
    now = known[hour]
    best: list[int] = []
    stretch: list[int] = []
    for later in range(1, 24):
        at = (hour + later) % 24
        stretch = [*stretch, at] if at in known and _is_better(known[at], now) else []
        best = max(best, stretch, key=len)
    if not best:
        return None
    then = total(known[at] for at in best)
    faster = _times(now.per_token_s, then.per_token_s) or 1.0
    return Quiet(best[0], (best[-1] + 1) % 24, faster)


def _is_better(then: Spell, now: Spell) -> bool:
    """Whether an hour is better than this one, and not only because fewer calls were made."""
    faster = _times(now.per_token_s, then.per_token_s) or 1.0
    fewer = now.share(now.refused) - then.share(then.refused)
    is_faster = faster >= FASTER and CROWDED * then.company >= now.company
    return (is_faster and fewer >= 0.0) or (fewer >= FEWER and faster >= 1.0)


def _known(by_hour: dict[int, Spell]) -> dict[int, Spell]:
    return {
        hour: spell
        for hour, spell in by_hour.items()
        if spell.ended >= USUAL_CALLS and hour != HOUR_UNKNOWN
    }


def _times(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _level(value: float, bounds: tuple[float, float]) -> Level:
    watch, bad = bounds
    return "bad" if value >= bad else "watch" if value >= watch else "good"


# Until when a month's budget lasts, by what was spent on each day.

PACE_DAYS: Final = 7
"""A week: working days and weekends as they come."""

Unit = Literal["tokens", "microusd"]


class BudgetOutlook(Struct, frozen=True):
    """One budget of this month: spent so far, and until when it lasts."""

    account: str
    """Empty for all accounts together."""
    unit: Unit
    budget: float
    spent: float
    turns_on: str
    """The first day of the next month."""
    pace_per_day: float
    """On average of the last days, at most `PACE_DAYS`."""
    expected: float
    """Spent by the end of the month, at this pace."""
    exhausted_on: str | None
    """The day on which it is expected to be used up; None if it lasts for the month."""


def outlooks(view: AdmissionView, passed: float) -> tuple[BudgetOutlook, ...]:
    """Every budget that is set; `passed` is how much of the day is over, 0 to 1."""
    days = dict(view.days)
    date = view.date or f"{view.month}-01"
    found: list[BudgetOutlook] = []
    for account, ledger in view.ledgers:
        units: tuple[Unit, ...] = ("tokens", "microusd")
        for unit in units:
            of = attrgetter(unit)
            if of(ledger.budget) is not None:
                by_day = {day: float(of(spend)) for day, spend in days.get(account, ())}
                amounts = of(ledger.budget), of(ledger.spent)
                found.append(_outlook(account, unit, *amounts, date, by_day, passed))
    return tuple(found)


def _outlook(
    account: str, unit: Unit, budget: float, spent: float, date: str, by_day: dict[str, float],
    passed: float,
) -> BudgetOutlook:  # fmt: skip
    today, turns_on = day_of(date), next_month(date)
    first = max(today - PACE_DAYS + 1, min(map(day_of, by_day), default=today))
    lately_spent = sum(by_day.get(date_of(day), 0.0) for day in range(first, today + 1))
    # A first day counts as a whole one: otherwise its first hour would be extrapolated.
    pace = max(0.0, lately_spent / max(1.0, today - first + passed))
    exhausted_on = None
    expected = spent + pace * (day_of(turns_on) - today - passed)
    if spent >= budget:
        exhausted_on = date
    elif expected >= budget:
        exhausted_on = date_of(ceil(today - 1 + passed + (budget - spent) / pace))
    return BudgetOutlook(account, unit, budget, spent, turns_on, pace, expected, exhausted_on)
