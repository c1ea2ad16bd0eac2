"""What `headway limits` shows of all accounts: limits, their source, age and use, and by whom."""

from __future__ import annotations

from collections import Counter
from math import inf

from msgspec import Struct

from headway.base.values import Limit, Wait
from headway.pacing.admission import Admission, ManagedAccount
from headway.pacing.budget import Days, Pot
from headway.pacing.limits import TrackedLimit
from headway.pacing.memory import HOUR_UNKNOWN, AccountTerms, ChronicleMemory
from headway.pacing.windows import WindowState


class LimitView(Struct, frozen=True):
    """One limit of an account."""

    limit: Limit
    used: float
    """Of the limit, now: used by all, as far as the provider reports it."""
    age_s: float | None = None
    """Since the provider last confirmed it; `None` if it never did."""
    neighbours_per_s: float = 0.0
    each: float = 0.0
    """What every call takes of it, where reservations do not come back."""
    spare: float = 0.0
    """What is never used of it, less what comes back of calls in flight."""
    holds: float = 0.0
    """What a call holds until its end, where some of it comes back then."""


class ClientCalls(Struct, frozen=True):
    """One client's calls of an account."""

    client: str
    in_flight: int
    waiting: int


class AccountView(Struct, frozen=True, rename={"clients": "callers"}):
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
    wait: Wait | None
    """What the first of the waiting calls waits for."""
    clients: tuple[ClientCalls, ...]
    chronicle: ChronicleMemory = ChronicleMemory()
    """What happened lately, and usually at which hour; `report/health.py` says what it means."""
    windows: tuple[WindowState, ...] = ()
    """Usage windows, known by the share that is used."""
    reserve: float = 0.0
    """The part of the share that is kept for interactive calls."""
    interactive: int = 0
    """Interactive sessions that are active: runs leave room for them."""


class AdmissionView(Struct, frozen=True):
    """Everything at an instant. In JSON the names are those that users' scripts read."""

    month: str
    accounts: tuple[AccountView, ...]
    ledgers: tuple[tuple[str, Pot], ...]
    terms: tuple[tuple[str, AccountTerms], ...]
    date: str = ""
    hour: int = HOUR_UNKNOWN
    """Of the day, by the broker's clock: what the hours of chronicles are."""
    days: tuple[tuple[str, Days], ...] = ()
    """What was spent on which day, by account."""
    keys: tuple[tuple[str, str], ...] = ()
    """The keys and logins whose account has another name, with that name."""


def describe(admission: Admission, now: float) -> AdmissionView:
    """All accounts of a user, for people."""
    budgets = admission.budgets
    return AdmissionView(
        budgets.month, tuple([_account_view(one, now) for one in admission.accounts]),
        admission.ledgers(), admission.terms(), budgets.date, admission.hour,
        budgets.days(), admission.keys(),
    )  # fmt: skip


def _account_view(managed: ManagedAccount, now: float) -> AccountView:
    account, terms = managed.account, managed.terms
    flying = Counter(call.id[0] for call in managed.in_flight.values())
    waiting = Counter(call.id[0] for call in managed.waiting)
    return AccountView(
        managed.name, managed.group, account.config.dialect.name, terms.share, terms.pace,
        tuple([_limit_view(limit, now) for limit in account.limits]),
        min(account.width.allowed, account.width.cap.limit), len(managed.in_flight),
        managed.granted, managed.refused, managed.wait,
        tuple([ClientCalls(who, flying[who], waiting[who]) for who in sorted(flying | waiting)]),
        managed.chronicle.memory(now),
        tuple([one.shown() for one in account.allowances.statistics(now)]),
        terms.reserve, account.presence.sessions(now),
    )  # fmt: skip


def _limit_view(tracked: TrackedLimit, now: float) -> LimitView:
    used = tracked.meter.size - tracked.level(now)
    age_s = None if tracked.read_s == -inf else now - tracked.read_s
    each = tracked.mean_need if tracked.rule.keeps else 0.0
    return LimitView(
        tracked.limit, max(0.0, used), age_s, tracked.draw_per_s, each, tracked.spare(),
        tracked.holds(),
    )  # fmt: skip
