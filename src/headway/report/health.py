"""The health of each account: good, watch or bad, with reasons.

Laws:
- A limit that is used in full is no alarm: that is what pacing is for. The limit that binds is
  named. Refusals, slower answers, overload and neighbours that take our share are alarms.
- Speed is compared per output token and to the first byte, with what is usual on this account. If
  more calls in flight explain it, that is said, and it is never bad.
- An hour of the day is judged only from enough calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from operator import attrgetter
from typing import Final, Literal

from msgspec import Struct

from headway.base.numbers import date_of, day_of, next_month
from headway.base.values import Spend
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
"""An hour is quieter if answers come so many times faster, or if the share of refused calls is so
much lower."""

CROWDED: Final = 1.5
"""With so many times as many calls in flight as usual, slower answers are our own doing."""

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
    refused: float
    """Calls that were refused then..."""
    calls: float
    """...of so many."""


class Condition(Struct, frozen=True):
    """The state of one account and model group."""

    account: str
    group: str
    level: Level
    reasons: tuple[str, ...]
    headroom: tuple[tuple[str, float], ...]
    """What is left of each limit, by its name, 0 to 1."""
    binding: str
    is_peak: bool | None
    """Whether other hours of the day are better; None if unknown."""
    quiet: Quiet | None
    hours_known: int
    slower: float
    """Recent time per output token over what is usual; 1 if unknown."""
    refusal_rate: float
    neighbours: float
    """What others take of the scarcest limit, 0 to 1."""
    recent: Spell
    usual: Spell


Finding = tuple[Level, str]


def condition_of(lane: AccountView, hour: int) -> Condition:
    """The state of an account at this hour of the day."""
    recent = lately(lane.chronicle, RECENT_MIN)
    by_hour = hours_of(lane.chronicle)
    usual = without(total(by_hour.values()), recent)
    if not usual.ended:
        usual = lately(lane.chronicle, 10 * RECENT_MIN, RECENT_MIN)
    slower = later = None
    if recent.begun >= RECENT_CALLS and usual.begun >= USUAL_CALLS:
        slower = _times(recent.per_token_s, usual.per_token_s)
        later = _times(recent.first_byte_s, usual.first_byte_s)
    draw = max([0.0, *(one.neighbours_per_s / one.limit.rate_per_s for one in lane.limits
                       if one.limit.rate_per_s)])  # fmt: skip
    found = [*_refusals(recent), *_slowness(recent, usual, slower, later)]
    if draw >= NEIGHBOURS[0]:
        found.append(
            (_level(draw, NEIGHBOURS), f"others on the account take {draw:.0%} of a limit")
        )
    if lane.wait is not None and lane.wait.resource == "account":
        found.append(("bad", f"the account takes no calls: {lane.wait.reason}"))
    found.sort(key=lambda one: -ORDER.index(one[0]))
    quiet = _quiet(by_hour, hour)
    known = _known(by_hour)
    is_peak = True if quiet is not None else None
    if quiet is None and hour in known and len(known) > HOURS_KNOWN:
        is_peak = False
    return Condition(
        lane.account, lane.group, found[0][0] if found else "good",
        tuple(words for level, words in found if level != "good"),
        tuple((one.limit.name, max(0.0, 1.0 - one.used / one.limit.amount)) for one in lane.limits),
        "" if lane.wait is None else lane.wait.resource, is_peak, quiet, len(known), slower or 1.0,
        recent.share(recent.refused), draw, recent, usual,
    )  # fmt: skip


def hour_words(condition: Condition) -> str:
    """When to start, by the hours of the day; or that it is not known yet."""
    quiet = condition.quiet
    if condition.is_peak is None:
        return (
            f"which hours are busy is not known yet: {condition.hours_known} of 24 have had "
            f"{USUAL_CALLS} calls"
        )
    if quiet is None:
        return f"no hour is better than this one, of the {condition.hours_known} that are known"
    better = []
    if quiet.faster >= FASTER:
        better.append(f"answers come {quiet.faster:.1f}x faster")
    # Remembered counts fade.
    few = "hardly any" if 0.0 < quiet.refused < 1.0 else f"{quiet.refused:,.0f}"
    better.append(f"{few} of {quiet.calls:,.0f} calls are refused")
    return (
        f"between {quiet.from_hour:02}:00 and {quiet.to_hour:02}:00 {', '.join(better)}: start then"
    )


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
        kinds = [
            f"{count:,.0f} by {what}"
            for count, what in ((recent.rate, "rate"), (recent.concurrency, "calls at once"))
            if count
        ]
        share = recent.share(recent.refused)
        yield (_level(share, REFUSED), f"{share:.1%} of calls were refused ({', '.join(kinds)})")
    away = recent.overload + recent.failed
    if away >= REFUSALS_LEAST:
        share = recent.share(away)
        yield (
            _level(share, REFUSED),
            f"{share:.1%} of calls found the provider overloaded or failing "
            f"({recent.overload:,.0f} overload, {recent.failed:,.0f} failed)",
        )


def _slowness(
    recent: Spell, usual: Spell, slower: float | None, later: float | None
) -> Iterator[Finding]:
    """Answers that come slower than usual here, per token and to the first byte."""
    if slower is not None and slower >= SLOWER[0]:
        now_ms, usual_ms = 1e3 * (recent.per_token_s or 0.0), 1e3 * (usual.per_token_s or 0.0)
        words = f"answers come {slower:.1f}x slower per token than usual here "
        words += f"({now_ms:.3g} ms, usually {usual_ms:.3g} ms)"
        level = _level(slower, SLOWER)
        if recent.company >= CROWDED * usual.company:
            words += f", with {recent.company:.0f} in flight and usually {usual.company:.0f}"
            level = "watch"
        yield level, words
    if later is not None and later >= SLOWER[0]:
        yield (
            _level(later, SLOWER),
            f"first bytes come {later:.1f}x later than usual here "
            f"({recent.first_byte_s or 0.0:.2g} s, usually {usual.first_byte_s or 0.0:.2g} s)",
        )


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
    return Quiet(
        best[0], (best[-1] + 1) % 24, _times(now.per_token_s, then.per_token_s) or 1.0,
        then.refused, then.ended,
    )  # fmt: skip


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

NEEDED_MARGIN: Final = 1.1
"""Reserve for what is estimated from finished tasks and past days."""

Unit = Literal["tokens", "microusd"]


class BudgetOutlook(Struct, frozen=True):
    """One budget of this month: spent so far, and until when it lasts."""

    account: str
    """Empty for all accounts together."""
    unit: Unit
    budget: float
    spent: float
    in_flight: float
    """What calls in flight may still take."""
    date: str
    turns_on: str
    past: tuple[tuple[str, float], ...]
    """Spent by the end of each day of this month, as far back as it was recorded."""
    pace_per_day: float
    pace_days: int
    expected: float
    """Spent by the end of the month, at this pace."""
    exhausted_on: str | None
    """The day on which it is expected to be used up; None if it lasts for the month."""

    @property
    def left(self) -> float:
        return max(0.0, self.budget - self.spent)

    @property
    def days_short(self) -> int:
        """Days of the month that are left when the budget is used up."""
        if self.exhausted_on is None:
            return 0
        return day_of(self.turns_on) - day_of(self.exhausted_on)


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
                amounts = (of(ledger.budget), of(ledger.spent), of(ledger.claimed))
                found.append(_outlook(account, unit, amounts, date, by_day, passed))
    return tuple(found)


def _outlook(
    account: str, unit: Unit, amounts: tuple[float, float, float], date: str,
    by_day: dict[str, float], passed: float,
) -> BudgetOutlook:  # fmt: skip
    budget, spent, in_flight = amounts
    today, turns_on = day_of(date), next_month(date)
    first = max(today - PACE_DAYS + 1, min(map(day_of, by_day), default=today))
    days = today - first + 1
    lately_spent = sum(by_day.get(date_of(day), 0.0) for day in range(first, today + 1))
    # A first day counts as a whole one: otherwise its first hour would be extrapolated.
    pace = max(0.0, lately_spent / max(1.0, days - 1 + passed))
    exhausted_on = None
    expected = spent + pace * (day_of(turns_on) - today - passed)
    if spent >= budget:
        exhausted_on = date
    elif expected >= budget:
        exhausted_on = date_of(ceil(today - 1 + passed + (budget - spent) / pace))
    return BudgetOutlook(
        account, unit, budget, spent, in_flight, date, turns_on, _past(date, spent, by_day), pace,
        days, expected, exhausted_on,
    )  # fmt: skip


def _past(date: str, spent: float, by_day: dict[str, float]) -> tuple[tuple[str, float], ...]:
    """The month's sums to the end of each day, ending with what is spent now."""
    month = [day for day in sorted(by_day) if day[:7] == date[:7]]
    if not month:
        return ((date, spent),)
    total = spent - sum(by_day[day] for day in month)
    sums: list[tuple[str, float]] = []
    if month[0] > f"{date[:7]}-01":
        sums.append((date_of(day_of(month[0]) - 1), max(0.0, total)))
    for number in range(day_of(month[0]), day_of(date) + 1):
        total += by_day.get(date_of(number), 0.0)
        sums.append((date_of(number), total))
    return tuple(sums)


def raised_to(needed: float) -> float:
    """A budget of at least so much, rounded up to two digits."""
    step = 10.0 ** max(0, len(str(ceil(needed))) - 2)
    return ceil(needed / step) * step


def lasting(outlook: BudgetOutlook) -> float:
    """A budget that lasts until the end of the month, with a reserve."""
    return raised_to(NEEDED_MARGIN * outlook.expected)


class Finish(Struct, frozen=True):
    """When a run that a month's budget has stopped could end."""

    outlook: BudgetOutlook
    needs: float
    """What the rest of the run is expected to take of the budget."""
    raise_to: float
    """A budget with which it could go on at once."""
    turns: int
    """Months that have to begin before the rest fits; 0 if no month has room for a single call."""

    @property
    def on(self) -> str:
        """The day from which on it could end; empty for never."""
        date = self.outlook.turns_on if self.turns else ""
        for _ in range(self.turns - 1):
            date = next_month(date)
        return date


def finishes(
    found: Sequence[BudgetOutlook], tokens: float, microusd: float, claim: Spend
) -> tuple[Finish, ...]:
    """For each budget that is in the way of a run, when it could finish.

    The rest of the run takes about so much; the call that was refused takes at most `claim`.
    """
    late: list[Finish] = []
    for one in found:
        is_tokens = one.unit == "tokens"
        needs = tokens if is_tokens else microusd
        most = claim.tokens if is_tokens else float(claim.microusd)
        if one.left < max(most, needs):
            more = one.spent + one.in_flight + NEEDED_MARGIN * needs + most
            turns = 0 if most > one.budget else max(1, ceil(needs / max(1.0, one.budget)))
            late.append(Finish(one, needs, raised_to(more), turns))
    return tuple(late)
