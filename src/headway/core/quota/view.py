"""What a person is told of their accounts: limits, from where, how old, used now, by whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from headway.core.quota.allowance import Allowance
from headway.core.quota.book import Book
from headway.core.quota.chronicle import HOUR_UNKNOWN, ChronicleMemory
from headway.core.quota.lane import Lane
from headway.core.quota.ledger import LedgerStatistics
from headway.core.quota.terms import AccountTerms, DaySpend
from headway.core.values import Limit


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit of an account."""

    limit: Limit
    used: float
    """Of the limit, now: everybody's use, as far as the provider told."""
    age_s: float | None = None
    """Since the provider last confirmed it; `None` if it never did."""
    neighbours_per_s: float = 0.0
    each: float = 0.0
    """What every call takes of it, where reservations do not come back."""
    spare: float = 0.0
    """What is never used of it, less what comes back of calls in flight."""
    holds: float = 0.0
    """What a call holds until its end, where some of it comes back then."""


@dataclass(frozen=True, slots=True)
class CallerView:
    """One client's calls in a lane."""

    client: str
    in_flight: int
    waiting: int


@dataclass(frozen=True, slots=True)
class LaneView:
    """One account and model group."""

    account: str
    group: str
    dialect: str
    share: float
    pace: str
    limits: tuple[LimitView, ...]
    width: float
    """Calls that may be in flight at once, as far as is known."""
    in_flight: int
    granted: int
    refused: int
    waits_for: str
    callers: tuple[CallerView, ...]
    chronicle: ChronicleMemory = ChronicleMemory()
    """What happened lately, and usually at which hour; `core/health.py` says what it means."""
    windows: tuple[Allowance, ...] = ()
    """Usage windows, known by the share that is used."""


@dataclass(frozen=True, slots=True)
class BookView:
    """Everything at an instant."""

    month: str
    lanes: tuple[LaneView, ...]
    ledgers: tuple[tuple[str, LedgerStatistics], ...]
    terms: tuple[tuple[str, AccountTerms], ...]
    date: str = ""
    hour: int = HOUR_UNKNOWN
    """Of the day, by the broker's clock: what the hours of chronicles are."""
    days: tuple[tuple[str, tuple[DaySpend, ...]], ...] = ()
    """What was spent on which day, by account."""


def describe(book: Book, now: float) -> BookView:
    """All accounts of a user, for people."""
    purse = book.purse.statistics()
    lanes = tuple(_lane(lane, now) for lane in book.lanes)
    diary = book.purse.diary
    return BookView(
        purse.month, lanes, purse.ledgers, book.lanes.terms(), diary.date, book.lanes.hour,
        diary.memory(),
    )  # fmt: skip


def _lane(lane: Lane, now: float) -> LaneView:
    told = lane.quota.statistics()
    belief = lane.quota.belief
    limits = []
    for mirror in belief.mirrors:
        known = mirror.statistics()
        used = known.capacity - mirror.balance.level(now)
        age_s = None if known.read_s == -inf else now - known.read_s
        balance = mirror.balance
        each = balance.mean_need if balance.toll.keeps else 0.0
        limits.append(
            LimitView(
                known.limit, max(0.0, used), age_s, known.draw_per_s, each, balance.spare(),
                balance.holds(),
            )
        )  # fmt: skip
    width = told.belief.width
    flying = Counter(call[0] for call in lane.calling)
    waiting = Counter(entry.request.id[0] for entry in lane.waiting)
    callers = [CallerView(who, flying[who], waiting[who]) for who in sorted(flying | waiting)]
    wait, terms = lane.wait, lane.lasting.terms
    return LaneView(
        lane.account, lane.group, lane.dialect.name, terms.share, terms.pace, tuple(limits),
        min(width.limit, width.cap), told.in_flight, told.granted, told.refused,
        "" if wait is None else f"{wait.resource}: {wait.reason}", tuple(callers),
        lane.chronicle.memory(now), belief.allowances.statistics(now),
    )  # fmt: skip
