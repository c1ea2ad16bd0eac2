"""All accounts: which calls wait, in which order, and which may be sent now.

Laws:
- A call waits for the leader of its cached beginning, then for the budgets, then for the quota.
- Before the quota it is parked, in order of arrival, and tried again after an event or its time.
- What can never be granted is denied when its turn comes, with the reason and what to do about it.
- A decision is made until nothing moves any more: what one call gives up may let another one go.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Fault, Limit, Permit, Reading, SettledAs, Tally, Wait
from headway.errors import AccountClosedError, BudgetReachedError, DemandTooLargeError, HeadwayError
from headway.pacing.budget import (
    STEP_SHARE,
    STEP_TOKENS,
    BudgetLedgerStatistics,
    Cut,
    MonthlyBudgets,
    no_room,
)
from headway.pacing.estimate import Estimates, Prices
from headway.pacing.headers import DIALECTS, PLAIN
from headway.pacing.lane import CallEntry, Lane, Request, lane_of, new_lane, terms_of
from headway.pacing.memory import (
    HOUR_UNKNOWN,
    AccountTerms,
    CallId,
    ChronicleMemory,
    Claim,
    DaySpend,
    PacingMemory,
    Spend,
    model_group,
)
from headway.pacing.queue import Leaders
from headway.pacing.quota import Decision
from headway.pacing.windows import WindowState

FOLLOWS: Final = "the first answer to a call with the same cached beginning"
BUDGETED: Final = "what calls in flight leave of the budget"

LANES_MAX: Final = 1024
"""Lanes that are kept; beyond this, the idle one that was made first makes room."""

Door = tuple[str, str] | str
"""What parked calls wait for together: a beginning, or an account's budget."""

_WORDS: Final = re.compile(r"(\S+) \((.*); ([0-9]+\.[0-9]) s; [0-9]+ waiting\)")
"""What a call that gives up is told it waited for: see `_in_words`."""


class Granted(Struct, frozen=True):
    """A call that may be sent now."""

    id: CallId
    permit: Permit


class Denied(Struct, frozen=True):
    """A call that will never be granted; `code` is that of the error to raise."""

    id: CallId
    code: str
    message: str
    hint: str = ""


class AdmissionDecision(Struct, frozen=True):
    """What may go, what never will, when to decide again at the latest, and which calls to end."""

    grants: tuple[Granted, ...]
    denials: tuple[Denied, ...]
    wake_s: float
    cuts: tuple[Cut, ...] = ()


class CallOutcome(Struct, frozen=True):
    """How a call ended, as its caller saw it."""

    how: SettledAs
    tally: Tally = Tally(known="unknown")
    fault: Fault | None = None
    reading: Reading = Reading()
    dialect: str = ""


class Book:
    """All that is known of a user's accounts, and every call that waits or is in flight."""

    def __init__(
        self, memory: PacingMemory, prices: Prices, now: float, age_s: float = 0.0
    ) -> None:
        """Go on from a memory that was written `age_s` before `now`."""
        self._terms = dict(memory.terms)
        self.hour = HOUR_UNKNOWN
        self._lanes: dict[tuple[str, str], Lane] = {}
        self.lanes = self._lanes.values()
        for kept in memory.lanes:
            terms = terms_of(self._terms, kept.account, kept.group)
            dialect = DIALECTS.get(kept.dialect, PLAIN)
            lane = lane_of(kept, terms, dialect, now - age_s, now)
            self._lanes[kept.account, kept.group] = lane
        self.purse = MonthlyBudgets(memory, now)
        self._estimates = Estimates(prices)
        self._leaders = Leaders()
        self._entries: dict[CallId, CallEntry] = {}
        self._parked: dict[Door, OrderedDict[CallId, CallEntry]] = {}
        self._denials: dict[CallId, Denied] = {}
        self._cuts: dict[CallId, Cut] = {}
        self._numbers = 0

    def ask(self, request: Request, now: float) -> None:
        """A call wants a permit. Asking again for the same call changes nothing."""
        if request.id not in self._entries:
            # A call that asks was not sent: what a former process kept for it is free.
            self.purse.settle(request.id, None)
            self._enter(self._open(request, now), now)

    def leave(self, call: CallId, now: float) -> str:
        """Give up waiting; says in words what for, or nothing if the call was not waiting."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is not None:
            return ""
        denied = self._denials.pop(call, None)
        why = denied.message if denied is not None else self._withdraw(entry, now)
        self._close(entry)
        return why

    def decide(self, now: float) -> AdmissionDecision:
        """All that can be granted or denied now, what is to be cut, and when to ask again."""
        grants: list[Granted] = []
        while True:
            moved = len(grants) + len(self._denials)
            wake_s = min(self.purse.expire(now), self._try_parked(now))
            for lane in self.lanes:
                wake_s = min(wake_s, self._serve(lane, grants, now))
            if not self._parked or moved == len(grants) + len(self._denials):
                break
        denials, self._denials = tuple(self._denials.values()), {}
        for grant in grants:
            entry = self._entries[grant.id]
            self._estimates.began(entry.number, entry.demand)
        for denied in denials:
            self._close(self._entries[denied.id])
        cuts, self._cuts = tuple(self._cuts.values()), {}
        return AdmissionDecision(tuple(grants), denials, wake_s, cuts)

    def first_byte(self, call: CallId, reading: Reading, dialect: str, now: float) -> None:
        """An answer began, with these headers."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is None:
            return
        lane = self._answering_lane(entry.request, dialect, now)
        entry.answered_s = now
        lane.quota.first_byte(entry.permit.id, reading, now)
        if entry.beginning is not None:
            self._leaders.answered(entry.beginning, now)

    def progress(self, call: CallId, output_tokens: float, now: float) -> bool:
        """An answer has grown to so many tokens; True if more is claimed for it than before."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is None:
            return False
        self._estimates.outputs.progressed(entry.number, output_tokens)
        quota = self._lane(entry.request, now).quota
        quota.progress(entry.permit.id, output_tokens, now)
        return entry.request.is_soft and self._grew(entry, output_tokens)

    def settle(self, call: CallId, outcome: CallOutcome, now: float) -> bool:
        """A permit ends; only the first time does anything, and returns True."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is None:
            return False
        lane, sketch = (
            self._answering_lane(entry.request, outcome.dialect, now),
            entry.request.sketch,
        )
        ran, tally = outcome.how == "used", outcome.tally
        if entry.request.is_soft:
            entry.claim = self._owed(entry, tally.output_tokens)
        spend = self._estimates.spend(sketch, entry.claim, tally, entry.request.is_soft)
        usage = self._estimates.usage(entry.demand, tally, spend, lane.dialect)
        is_whole = ran and outcome.fault is None
        self._estimates.ended(entry.number, sketch, tally if is_whole else None)
        self.purse.settle(call, spend if ran else None)
        how, fault = outcome.how, outcome.fault
        lane.settle(entry, entry.permit, how, usage, now, fault, outcome.reading)
        self._close(entry)
        return True

    def gone(self, client: str, now: float) -> int:
        """A client died: what it had sent was sent. Returns how many permits it held."""
        held = 0
        for call in [call for call in self._entries if call[0] == client]:
            if self.settle(call, CallOutcome("used"), now):
                held += 1
            else:
                self.leave(call, now)
        return held

    def adopt(self, request: Request, age_s: float, now: float) -> None:
        """A client holds a permit for a call that it sent `age_s` ago, from a former broker."""
        if request.id not in self._entries:
            entry, lane = self._open(request, now), self._lane(request, now)
            self._size(entry, lane, now)
            claim = self._estimates.claim(request.sketch, entry.demand, request.is_soft)
            entry.claim = self.purse.adopt(Claim(request.id, request.account, claim))
            self._estimates.began(entry.number, entry.demand)
            lane.adopt(entry, now - age_s, now)

    def configure(self, key: str, terms: AccountTerms, now: float) -> None:
        """Terms of an account, an `account/group` or all (``); a budget alone changes no quota."""
        self._terms[key] = terms
        for name, lane in self._lanes.items():
            wanted = terms_of(self._terms, *name)
            if replace(wanted, budget=lane.terms.budget) != lane.terms:
                lane.retermed(wanted, now)
        if self.purse.budget(key, terms.budget):
            for entry in self._entries.values():
                if entry.permit is not None:
                    # Where the budget is the first in money, no price was claimed for it.
                    request, claim = entry.request, entry.claim
                    most = self._estimates.claim(request.sketch, entry.demand, request.is_soft)
                    tokens = max(claim.tokens, most.tokens)
                    money = max(claim.microusd, most.microusd)
                    self._keep(entry, Spend(tokens, money, most.unpriced))
            # Calls in line go through every door again.
            waiting = [entry for lane in self.lanes for entry in lane.waiting]
            for entry in waiting:
                self._withdraw(entry, now)
            for entry in sorted(waiting, key=lambda one: one.number):
                self._enter(entry, now)

    def turn(self, hour: int, now: float) -> None:
        """It is this hour of the day now."""
        self.hour = hour
        for lane in self.lanes:
            lane.chronicle.turn(hour, now)

    def terms(self) -> tuple[tuple[str, AccountTerms], ...]:
        return tuple(self._terms.items())

    def memory(self, now: float) -> PacingMemory:
        """All that outlives this process. What was not granted costs nothing if we die."""
        waiting = {call for call, entry in self._entries.items() if entry.permit is None}
        claims = tuple(claim for claim in self.purse.claims() if claim.id not in waiting)
        return PacingMemory(
            month=self.purse.month, terms=self.terms(), spent=self.purse.spent(), claims=claims,
            lanes=tuple(lane.memory(now) for lane in self.lanes), days=self.purse.diary.memory(),
        )  # fmt: skip

    def _lane(self, request: Request, now: float) -> Lane:
        """The lane that a request belongs to."""
        account, group = request.account, model_group(request.sketch.model)
        lane = self._lanes.get((account, group))
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                lanes = self._lanes.items()
                idle = [name for name, one in lanes if not one.queued and not one.calling]
                for name in idle[:1]:
                    del self._lanes[name]
            terms = terms_of(self._terms, account, group)
            dialect = DIALECTS.get(request.dialect, PLAIN)
            lane = self._lanes[account, group] = new_lane(account, group, terms, dialect, now)
            lane.chronicle.turn(self.hour, now)
        return lane

    def _answering_lane(self, request: Request, dialect: str, now: float) -> Lane:
        """The lane of a call that was answered in this dialect; an unknown one says nothing."""
        lane, spoken = self._lane(request, now), DIALECTS.get(dialect)
        if spoken is not None and spoken is not lane.dialect:
            belief = lane.quota.belief
            lane.dialect = spoken
            belief.config = replace(belief.config, dialect=spoken)
        return lane

    def _open(self, request: Request, now: float) -> CallEntry:
        self._numbers += 1
        prefix, lane = request.sketch.prefix, self._lane(request, now)
        beginning = (f"{lane.account}/{lane.group}", prefix) if prefix else None
        entry = CallEntry(request, self._numbers, now, beginning)
        self._entries[request.id] = entry
        return entry

    def _close(self, entry: CallEntry) -> None:
        del self._entries[entry.request.id]
        self._cuts.pop(entry.request.id, None)
        if entry.beginning is not None:
            self._leaders.ended(entry.beginning, entry.request.id)

    def _enter(self, entry: CallEntry, now: float) -> float:
        """Go as far as possible; returns when to try again, inf if only an event helps."""
        lane = self._lane(entry.request, now)
        call, account, request = entry.request.id, entry.request.account, entry.request
        if entry.beginning is not None:
            until_s = self._leaders.until_s(entry.beginning, call, entry.asked_s, now)
            if until_s > now:
                self._park(entry, FOLLOWS)
                return until_s
        self._size(entry, lane, now)
        entry.claim = self._estimates.claim(request.sketch, entry.demand, request.is_soft)
        room = self.purse.room(account, entry.claim)
        refusal = self._unbounded(entry) or (self._too_dear(entry) if room == "never" else None)
        if refusal is not None:
            self._unpark(entry)
            self._deny(entry, refusal)
        elif room == "later" or (entry.parked != BUDGETED and account in self._parked):
            self._park(entry, BUDGETED)
        else:
            self._unpark(entry)
            self._keep(entry, entry.claim)
            lane.enter(entry, now)
        return inf

    def _size(self, entry: CallEntry, lane: Lane, now: float) -> None:
        """Estimate what a call will consume, by all that is known now."""
        is_warm = entry.beginning is not None and self._leaders.is_warm(entry.beginning, now)
        entry.demand = self._estimates.demand(entry.request.sketch, lane.dialect, is_warm)

    def _withdraw(self, entry: CallEntry, now: float) -> str:
        """Leave the door or the line; says in words what the call was waiting for."""
        if entry.parked:
            why = entry.parked
            self._unpark(entry)
            return why
        lane = self._lane(entry.request, now)
        lane.leave(entry)
        self.purse.settle(entry.request.id, None)
        return _in_words(lane, now)

    def _park(self, entry: CallEntry, why: str) -> None:
        """Wait at a door, behind those who do; a call that waits there keeps its place."""
        if entry.parked != why:
            self._unpark(entry)
            entry.parked = entry.was_parked = why
            self._parked.setdefault(_door(entry), OrderedDict())[entry.request.id] = entry

    def _unpark(self, entry: CallEntry) -> None:
        if entry.parked:
            door = _door(entry)
            entry.parked = ""
            del self._parked[door][entry.request.id]
            if not self._parked[door]:
                del self._parked[door]

    def _try_parked(self, now: float) -> float:
        """Let calls go on whose reason is gone, in order of arrival; returns when to try again."""
        wake_s = inf
        for parked in list(self._parked.values()):
            while parked:
                call, entry = next(iter(parked.items()))
                wake_s = min(wake_s, self._enter(entry, now))
                if call in parked:
                    break
        return wake_s

    def _serve(self, lane: Lane, grants: list[Granted], now: float) -> float:
        """Grant what the lane's quota grants; deny what it never will."""

        def size(entry: CallEntry) -> None:
            self._size(entry, lane, now)

        while True:
            granted, decision = lane.decide(size, now)
            grants += [
                Granted(one.request.id, one.permit) for one in granted if one.permit is not None
            ]
            for entry in granted:
                if entry.beginning is not None:
                    self._leaders.sent(entry.beginning, entry.request.id, now)
            hopeless = _hopeless(lane, decision)
            if not hopeless:
                return decision.wake_s if decision is not None else inf
            for entry, error in hopeless:
                self._withdraw(entry, now)
                self._deny(entry, error)

    def _deny(self, entry: CallEntry, error: HeadwayError) -> None:
        call = entry.request.id
        self._denials[call] = Denied(call, error.code, error.message, error.hint or "")
        if entry.beginning is not None:
            self._leaders.ended(entry.beginning, call)

    def _unbounded(self, entry: CallEntry) -> BudgetReachedError | None:
        """Why a budget has to refuse a call: it has no price, or its answer has no end."""
        request = entry.request
        budgets = self.purse.budgets(request.account)
        in_money = any(budget.microusd is not None for budget in budgets)
        if in_money and not self._estimates.has_price(request.sketch):
            return BudgetReachedError(
                f"there is a budget in money, and no price is known for {request.sketch.model}",
                hint="use a model with a known price, or budget in tokens",
            )
        has_budget = in_money or any(budget.tokens is not None for budget in budgets)
        if not has_budget or request.is_soft or request.sketch.max_output_tokens is not None:
            return None
        return BudgetReachedError(
            "there is a budget, and this call does not limit the length of its answer",
            hint="set max_tokens (OpenAI: max_completion_tokens or max_output_tokens; Gemini: "
            "maxOutputTokens)",
        )

    def _too_dear(self, entry: CallEntry) -> BudgetReachedError:
        what = f"{entry.claim.tokens:,.0f} tokens"
        if entry.claim.microusd:
            what += f", ${entry.claim.microusd / 1e6:,.4f}"
        about = "about" if entry.request.is_soft else "up to"
        return no_room(self.purse, entry.request.account, f"a call of {about} {what}")

    def _grew(self, entry: CallEntry, output_tokens: float) -> bool:
        """An answer has so many tokens by now; True if more is kept for it than before."""
        owed = self._owed(entry, output_tokens)
        if owed == entry.claim:
            return False
        kept = None if entry.is_cut else self._with_room(entry, output_tokens)
        if kept is None and not entry.is_cut:
            entry.is_cut = True
            what = f"more of this answer, which was ended at {output_tokens:,.0f} tokens"
            error = no_room(self.purse, entry.request.account, what)
            self._cuts[entry.request.id] = Cut(entry.request.id, error.message, error.hint or "")
        self._keep(entry, kept or owed)
        return True

    def _owed(self, entry: CallEntry, output_tokens: float) -> Spend:
        """What is kept for a call, or what it costs with so long an answer if that is more."""
        claim, known = entry.claim, self._estimates.grown(entry.request.sketch, output_tokens)
        return Spend(
            max(claim.tokens, known.tokens), max(claim.microusd, known.microusd), claim.unpriced
        )

    def _with_room(self, entry: CallEntry, output_tokens: float) -> Spend | None:
        """What to keep for a longer answer: a large step ahead, or else a small one; or none."""
        most = entry.request.sketch.max_output_tokens
        longest = inf if most is None else float(most)
        for step in (max(STEP_TOKENS, STEP_SHARE * output_tokens), STEP_TOKENS):
            tokens = max(output_tokens, min(output_tokens + step, longest))
            whole = self._owed(entry, tokens)
            if self.purse.room(entry.request.account, whole.minus(entry.claim)) == "yes":
                return whole
        return None

    def _keep(self, entry: CallEntry, spend: Spend) -> None:
        entry.claim = spend
        self.purse.claim(Claim(entry.request.id, entry.request.account, spend))


def _hopeless(lane: Lane, decision: Decision | None) -> list[tuple[CallEntry, HeadwayError]]:
    """Those who wait and whom no time and no event will help, and why."""
    if decision is None or decision.wait is None or decision.place is None:
        return []
    wait = decision.wait
    if wait.until_s < inf:
        return []
    if wait.resource == "account":
        hint = "check the account with its provider; it is asked again every 30 seconds"
        closed = f"{lane.account} takes no calls: {wait.reason}"
        return [(one, AccountClosedError(closed, hint=hint)) for one in lane.waiting]
    first = lane.in_line[decision.place]
    mirrors = lane.quota.belief.mirrors
    short = [one.limit.name for one in mirrors if not one.can_ever(first.demand)]
    if lane.calling and not short:
        return []
    hint = "make the call smaller, or change what is set with `headway limits`"
    too_little = f"{(short or [wait.resource])[0]} leaves too little for this call, for good"
    return [(first, DemandTooLargeError(too_little, hint=hint))]


def _door(entry: CallEntry) -> Door:
    return (entry.parked == FOLLOWS and entry.beginning) or entry.request.account


def _in_words(lane: Lane, now: float) -> str:
    wait = lane.wait
    if wait is None:
        return "its turn"
    left = "until a call ends" if wait.until_s == inf else f"{max(0.0, wait.until_s - now):.1f} s"
    return f"{wait.resource} ({wait.reason}; {left}; {lane.queued} waiting)"


def wait_in(words: str, now: float) -> Wait | None:
    """The record that such words were made of; `None` if they do not say how long it takes."""
    found = _WORDS.search(words)
    return None if found is None else Wait(found[1], now + float(found[3]), found[2])


# What a person is told of their accounts: limits, from where, how old, used now, by whom.


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


class CallerView(Struct, frozen=True):
    """One client's calls in a lane."""

    client: str
    in_flight: int
    waiting: int


class LaneView(Struct, frozen=True):
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
    """What happened lately, and usually at which hour; `report/health.py` says what it means."""
    windows: tuple[WindowState, ...] = ()
    """Usage windows, known by the share that is used."""


class BookView(Struct, frozen=True):
    """Everything at an instant."""

    month: str
    lanes: tuple[LaneView, ...]
    ledgers: tuple[tuple[str, BudgetLedgerStatistics], ...]
    terms: tuple[tuple[str, AccountTerms], ...]
    date: str = ""
    hour: int = HOUR_UNKNOWN
    """Of the day, by the broker's clock: what the hours of chronicles are."""
    days: tuple[tuple[str, tuple[DaySpend, ...]], ...] = ()
    """What was spent on which day, by account."""


def describe(book: Book, now: float) -> BookView:
    """All accounts of a user, for people."""
    lanes = tuple(_lane_view(lane, now) for lane in book.lanes)
    purse, diary = book.purse, book.purse.diary
    return BookView(
        purse.month, lanes, purse.ledgers(), book.terms(), diary.date, book.hour,
        diary.memory(),
    )  # fmt: skip


def _lane_view(lane: Lane, now: float) -> LaneView:
    quota, belief = lane.quota, lane.quota.belief
    limits = []
    for mirror in belief.mirrors:
        used = mirror.count.size - mirror.level(now)
        age_s = None if mirror.read_s == -inf else now - mirror.read_s
        each = mirror.mean_need if mirror.toll.keeps else 0.0
        limits.append(
            LimitView(
                mirror.limit, max(0.0, used), age_s, mirror.draw_per_s, each, mirror.spare(),
                mirror.holds(),
            )
        )  # fmt: skip
    flying = Counter(call[0] for call in lane.calling)
    waiting = Counter(entry.request.id[0] for entry in lane.waiting)
    callers = [CallerView(who, flying[who], waiting[who]) for who in sorted(flying | waiting)]
    wait, terms = lane.wait, lane.terms
    return LaneView(
        lane.account, lane.group, lane.dialect.name, terms.share, terms.pace, tuple(limits),
        min(belief.width.allowed, belief.width.cap.limit), quota.in_flight, quota.granted,
        quota.refused,
        "" if wait is None else f"{wait.resource}: {wait.reason}", tuple(callers),
        lane.chronicle.memory(now), belief.allowances.statistics(now),
    )  # fmt: skip
