"""Whether an account is well: good, watch or bad, with the reasons in words, for each lane.

Laws:
- Whoever is paced may use all of a limit: that is the point, and no alarm. A limit that binds is
  named. Refusals, answers that slow down, overload, and neighbours who take our share are alarms.
- Speed is compared per output token and to the first byte, with what is usual on this account; a
  crowd of our own that explains it is named, and is never bad.
- Of hours of the day nothing is said before there were enough calls in them.
- For clients that do not pace themselves the same account reads differently: the thresholds of
  *Concurrent vs. Parallel Execution* are for those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Final, Literal

from headway.base.numbers import date_of, day_of, next_month
from headway.pacing.admission import BookView, LaneView, LimitView
from headway.pacing.budget import BudgetLedgerStatistics
from headway.pacing.memory import (
    HOUR_UNKNOWN,
    ChronicleMemory,
    DaySpend,
    Spell,
    Spend,
    hours_of,
    lately,
    total,
    without,
)

Level = Literal["good", "watch", "bad"]

ORDER: Final[tuple[Level, ...]] = ("good", "watch", "bad")

RECENT_MIN: Final = 10
"""Minutes that are compared with what is usual."""

RECENT_CALLS: Final = 10
USUAL_CALLS: Final = 30
"""Calls before their speed is compared, and before an hour of the day is known."""

REFUSALS_LEAST: Final = 2
"""A single refusal is how a limit is found: it is no rate."""

HOURS_KNOWN: Final = 6
"""Other hours that must be known before it can be said that this one is not worse than they."""

FASTER: Final = 1.3
FEWER: Final = 0.02
"""An hour is quieter where answers come so many times faster, or so much less of calls is
refused."""

CROWDED: Final = 1.5
"""With so many times as many in flight as usual, a slower token is our own doing."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something is to be watched, and from where on it is bad."""

    refusals_watch: float = 0.02
    refusals_bad: float = 0.10
    overload_watch: float = 0.02
    overload_bad: float = 0.10
    slower_watch: float = 1.5
    slower_bad: float = 3.0
    neighbours_watch: float = 0.25
    neighbours_bad: float = 0.50
    unpaced_requests_watch: float = 0.50
    unpaced_requests_bad: float = 0.60
    unpaced_tokens_watch: float = 0.50
    unpaced_tokens_bad: float = 0.70
    unpaced_first_byte_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Quiet:
    """Hours at which this account is better than now."""

    from_hour: int
    to_hour: int
    """The hour at which they end."""
    faster: float
    """How many times faster an output token comes then; 1 where that is not it."""
    refused: float
    """Of the calls that ended then, as far as they are remembered..."""
    calls: float
    """...of so many."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One account and model group, as advice needs it."""

    account: str
    group: str
    level: Level
    reasons: tuple[str, ...]
    headroom: tuple[tuple[str, float], ...]
    """What is left of each limit, by its name, 0 to 1."""
    binding: str
    """The limit that calls wait for now, if they wait for one."""
    is_peak: bool | None
    """Whether other hours of the day are better; `None` as long as that is not known."""
    quiet: Quiet | None
    hours_known: int
    slower: float
    """Recent time per output token over what is usual; 1 as long as that is not known."""
    refusal_rate: float
    neighbours: float
    """What others take of the scarcest limit, 0 to 1."""
    recent: Spell
    usual: Spell
    unpaced: Level
    """How the same account reads for a client that does not pace itself..."""
    unpaced_reasons: tuple[str, ...]
    """...and why."""


Finding = tuple[Level, str]


def condition_of(lane: LaneView, hour: int, at: Thresholds = Thresholds()) -> Condition:
    """How an account is, at this hour of the day."""
    recent = lately(lane.chronicle, RECENT_MIN)
    by_hour = hours_of(lane.chronicle)
    usual = without(total(by_hour.values()), recent)
    if not usual.ended:
        usual = lately(lane.chronicle, 10 * RECENT_MIN, RECENT_MIN)
    slower = _ratio(recent, usual, "per_token_s")
    found = [
        *_refusals(recent, at),
        *_slowness(recent, usual, slower, at),
        *_neighbours(lane, at),
        *_closed(lane),
    ]
    unpaced = [*_unpaced(lane, recent, at), *_refusals(recent, at)]
    quiet = _quiet(by_hour, hour)
    return Condition(
        lane.account, lane.group, _worst(found), _words(found),
        tuple((one.limit.name, max(0.0, 1.0 - _used(one))) for one in lane.limits),
        lane.waits_for.partition(":")[0], _is_peak(by_hour, hour, quiet), quiet,
        len(_known(by_hour)), slower or 1.0, recent.share(recent.refused), _draw(lane), recent,
        usual, _worst(unpaced), _words(unpaced),
    )  # fmt: skip


def hour_words(condition: Condition) -> str:
    """What the hours of the day say, as advice: when to start, or that it is not known yet."""
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
    better.append(f"{_whole(quiet.refused)} of {quiet.calls:,.0f} calls are refused")
    return (
        f"between {quiet.from_hour:02}:00 and {quiet.to_hour:02}:00 {', '.join(better)}: start then"
    )


def _refusals(recent: Spell, at: Thresholds) -> Iterator[Finding]:
    """What the account's limits, and what the provider, did not take."""
    if recent.refused >= REFUSALS_LEAST:
        kinds = [
            f"{count:,.0f} by {what}"
            for count, what in ((recent.rate, "rate"), (recent.concurrency, "calls at once"))
            if count
        ]
        share = recent.share(recent.refused)
        yield (
            _level(share, at.refusals_watch, at.refusals_bad),
            f"{share:.1%} of calls were refused ({', '.join(kinds)})",
        )
    away = recent.overload + recent.failed
    if away >= REFUSALS_LEAST:
        share = recent.share(away)
        yield (
            _level(share, at.overload_watch, at.overload_bad),
            f"{share:.1%} of calls found the provider overloaded or failing "
            f"({recent.overload:,.0f} overload, {recent.failed:,.0f} failed)",
        )


def _slowness(
    recent: Spell, usual: Spell, slower: float | None, at: Thresholds
) -> Iterator[Finding]:
    """Answers that come slower than usual here, per token and to the first byte."""
    if slower is not None and slower >= at.slower_watch:
        now_ms, usual_ms = 1e3 * (recent.per_token_s or 0.0), 1e3 * (usual.per_token_s or 0.0)
        words = f"answers come {slower:.1f}x slower per token than usual here "
        words += f"({now_ms:.3g} ms, usually {usual_ms:.3g} ms)"
        level = _level(slower, at.slower_watch, at.slower_bad)
        if recent.company >= CROWDED * usual.company:
            words += f", with {recent.company:.0f} in flight and usually {usual.company:.0f}"
            level = "watch"
        yield level, words
    later = _ratio(recent, usual, "first_byte_s")
    if later is not None and later >= at.slower_watch:
        yield (
            _level(later, at.slower_watch, at.slower_bad),
            f"first bytes come {later:.1f}x later than usual here "
            f"({recent.first_byte_s or 0.0:.2g} s, usually {usual.first_byte_s or 0.0:.2g} s)",
        )


def _neighbours(lane: LaneView, at: Thresholds) -> Iterator[Finding]:
    draw = _draw(lane)
    if draw >= at.neighbours_watch:
        level = _level(draw, at.neighbours_watch, at.neighbours_bad)
        yield level, f"somebody else on the account takes {draw:.0%} of a limit"


def _closed(lane: LaneView) -> Iterator[Finding]:
    """An account that takes no calls at all."""
    resource, _, reason = lane.waits_for.partition(": ")
    if resource == "account":
        yield "bad", f"the account takes no calls: {reason}"


def _unpaced(lane: LaneView, recent: Spell, at: Thresholds) -> Iterator[Finding]:
    """Use and response time, as whoever sends whenever they like should read them."""
    for one in lane.limits:
        watch, bad = at.unpaced_tokens_watch, at.unpaced_tokens_bad
        if one.limit.resource == "requests":
            watch, bad = at.unpaced_requests_watch, at.unpaced_requests_bad
        used = _used(one)
        if used >= watch:
            yield _level(used, watch, bad), f"{used:.0%} of {one.limit.name} is used"
    first_byte_s = recent.first_byte_s
    if first_byte_s is not None and first_byte_s > at.unpaced_first_byte_s:
        yield "bad", f"first bytes take {first_byte_s:.2g} s"


def _is_peak(by_hour: dict[int, Spell], hour: int, quiet: Quiet | None) -> bool | None:
    known = _known(by_hour)
    if hour not in known:
        return None
    if quiet is not None:
        return True
    return False if len(known) > HOURS_KNOWN else None


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
        if at in known and _is_better(known[at], now):
            stretch.append(at)
        else:
            stretch = []
        if len(stretch) > len(best):
            best = list(stretch)
    if not best:
        return None
    then = total(known[at] for at in best)
    return Quiet(
        best[0], (best[-1] + 1) % 24, _times(now.per_token_s, then.per_token_s) or 1.0,
        then.refused, then.ended,
    )  # fmt: skip


def _is_better(then: Spell, now: Spell) -> bool:
    """Whether an hour is better than this one, and not because so little was asked of it."""
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


def _ratio(
    recent: Spell, usual: Spell, name: Literal["per_token_s", "first_byte_s"]
) -> float | None:
    """How many times as long it takes now, where there were calls enough to compare."""
    if recent.begun < RECENT_CALLS or usual.begun < USUAL_CALLS:
        return None
    if name == "per_token_s":
        return _times(recent.per_token_s, usual.per_token_s)
    return _times(recent.first_byte_s, usual.first_byte_s)


def _times(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _draw(lane: LaneView) -> float:
    """What others take of the limit that they take most of."""
    shares = [
        one.neighbours_per_s / one.limit.rate_per_s for one in lane.limits if one.limit.rate_per_s
    ]
    return max([0.0, *shares])


def _used(one: LimitView) -> float:
    return min(1.0, one.used / one.limit.amount)


def _level(value: float, watch: float, bad: float) -> Level:
    return "bad" if value >= bad else "watch" if value >= watch else "good"


def _worst(found: list[Finding]) -> Level:
    return max((level for level, _ in found), key=ORDER.index, default="good")


def _words(found: list[Finding]) -> tuple[str, ...]:
    """The worst first; what is good needs no reason."""
    told = [(ORDER.index(level), words) for level, words in found if level != "good"]
    return tuple(words for _, words in sorted(told, key=lambda one: -one[0]))


def _whole(number: float) -> str:
    """Remembered counts fade, and what has faded to little is still not none."""
    return f"{number:,.0f}" if number >= 1.0 or number == 0.0 else "hardly any"


# Whether a month's budget lasts: what was spent by day, and what that comes to by its end.

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
class BudgetOutlook:
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


def outlooks(view: BookView, passed: float) -> tuple[BudgetOutlook, ...]:
    """Every budget that is set; `passed` is how much of the day has gone, 0 to 1."""
    days = dict(view.days)
    found: list[BudgetOutlook] = []
    for account, ledger in view.ledgers:
        found += _of(account, ledger, days.get(account, ()), view, passed)
    return tuple(found)


def _of(
    account: str,
    ledger: BudgetLedgerStatistics,
    days: tuple[DaySpend, ...],
    view: BookView,
    passed: float,
) -> list[BudgetOutlook]:
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
            BudgetOutlook(account, unit, of, used, flying, date, next_month(date), by_day, 0.0, 0),
            passed,
        )
        for unit, of, used, flying, by_day in amounts
        if of is not None
    ]


def _foresee(known: BudgetOutlook, passed: float) -> BudgetOutlook:
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


def _past(known: BudgetOutlook, by_day: dict[str, float]) -> tuple[tuple[str, float], ...]:
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


def _reached(outlook: BudgetOutlook, sums: list[float]) -> str | None:
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


def lasting(outlook: BudgetOutlook) -> float:
    """A budget that lasts until the month turns, nine times of ten."""
    return raised_to(max(outlook.spent, *(day.most for day in outlook.ahead)))


@dataclass(frozen=True, slots=True)
class BudgetRest:
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

    outlook: BudgetOutlook
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


def finishes(found: Sequence[BudgetOutlook], rest: BudgetRest) -> tuple[Finish, ...]:
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


# How much slower answers are at one hour of the day than at those at which calls were seen.

ANSWERS_MIN: Final = 50.0
"""Answers of an hour below which it is not known."""

FACTOR_MAX: Final = 3.0
"""No hour is believed to be so many times slower, or faster, than another."""


def slower_at(chronicle: ChronicleMemory, hour: int, seen: Sequence[int]) -> float:
    """How many times longer a token takes at an hour than at the hours of calls that were seen.

    1 where one of the two is not known.
    """
    known = {
        one: spell.per_token_s
        for one, spell in hours_of(chronicle).items()
        if spell.answered >= ANSWERS_MIN and spell.per_token_s
    }
    then = [known[one] or 0.0 for one in seen if one in known]
    now = known.get(hour)
    if not now or not then:
        return 1.0
    return min(FACTOR_MAX, max(1.0 / FACTOR_MAX, now * len(then) / sum(then)))
