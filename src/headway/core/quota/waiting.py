"""Calls before their permit: what each has to wait for, in which order, and what will never be.

Laws:
- A call goes through three doors: the leader of its cached beginning, the budgets, the quota. It
  is in the quota's line only when the first two are behind it.
- Whoever waits at the first two doors is parked, in order of arrival, and tried again when
  something has happened that it may have waited for, or when its time is up.
- What can never be granted is denied when its turn comes, with the reason and what to do about it.
- A decision is made until nothing moves any more: what one call gives up may let another one go.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.quota.estimate import Estimates
from headway.core.quota.growth import Cut, no_room
from headway.core.quota.lane import Entry, Lane
from headway.core.quota.lanes import Lanes
from headway.core.quota.leader import Leaders
from headway.core.quota.purse import Purse, named
from headway.core.quota.quota import Decision
from headway.core.quota.terms import CallId, Claim
from headway.core.values import Permit, Wait
from headway.errors import (
    AccountClosedError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
)

FOLLOWS: Final = "the first answer to a call with the same cached beginning"
BUDGETED: Final = "what calls in flight leave of the budget"

Door = tuple[str, str] | str
"""What parked calls wait for together: a beginning, or an account's budget."""

_WORDS: Final = re.compile(r"(\S+) \((.*); ([0-9]+\.[0-9]) s; [0-9]+ waiting\)")
"""What a call that gives up is told it waited for: see `_in_words`."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A call that may be sent now."""

    id: CallId
    permit: Permit


@dataclass(frozen=True, slots=True)
class Denied:
    """A call that will never be granted; `code` is that of the error to raise."""

    id: CallId
    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may go, what never will, when to decide again if nothing happens before; and what was
    sent and is to be ended."""

    grants: tuple[Granted, ...]
    denials: tuple[Denied, ...]
    wake_s: float
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingStatistics:
    """Calls that are not in the quota's line yet."""

    parked: int


class Waiting:
    """Everybody who has no permit yet."""

    __slots__ = ("_denials", "_estimates", "_lanes", "_leaders", "_parked", "_purse")

    def __init__(self, lanes: Lanes, purse: Purse, leaders: Leaders, estimates: Estimates) -> None:
        self._lanes = lanes
        self._purse = purse
        self._leaders = leaders
        self._estimates = estimates
        self._parked: dict[Door, OrderedDict[CallId, Entry]] = {}
        self._denials: dict[CallId, Denied] = {}

    def __repr__(self) -> str:
        return f"<Waiting {self.statistics().parked} parked>"

    def enter(self, entry: Entry, now: float) -> float:
        """Go as far as possible; returns when to try again, inf if only an event helps."""
        lane = self._lanes.of(entry.request, now)
        call, account, request = entry.request.id, entry.request.account, entry.request
        if entry.beginning is not None:
            until_s = self._leaders.until_s(entry.beginning, call, entry.asked_s, now)
            if until_s > now:
                self._park(entry, FOLLOWS)
                return until_s
        self.size(entry, lane, now)
        entry.claim = self._estimates.claim(request.sketch, entry.demand, request.is_soft)
        room = self._purse.room(account, entry.claim)
        refusal = self._unbounded(entry) or (self._too_dear(entry) if room == "never" else None)
        if refusal is not None:
            self._unpark(entry)
            self._deny(entry, refusal)
        elif room == "later" or (entry.parked != BUDGETED and account in self._parked):
            self._park(entry, BUDGETED)
        else:
            self._unpark(entry)
            self._purse.claim(Claim(call, account, entry.claim))
            lane.enter(entry, now)
        return inf

    def size(self, entry: Entry, lane: Lane, now: float) -> None:
        """Estimate what a call will consume, by all that is known now."""
        is_warm = entry.beginning is not None and self._leaders.is_warm(entry.beginning, now)
        entry.demand = self._estimates.demand(entry.request.sketch, lane.dialect, is_warm)

    def leave(self, entry: Entry, now: float) -> str:
        """Give up; says in words what the call was waiting for."""
        denied = self._denials.pop(entry.request.id, None)
        if denied is not None:
            return denied.message
        if entry.parked:
            why = entry.parked
            self._unpark(entry)
            return why
        lane = self._lanes.of(entry.request, now)
        lane.leave(entry)
        self._purse.settle(entry.request.id, None)
        return _in_words(lane, now)

    def reconsider(self, now: float) -> None:
        """A budget was changed: whoever is in a line goes through every door again."""
        waiting = [(entry, lane) for lane in self._lanes for entry in lane.waiting]
        for entry, lane in waiting:
            lane.leave(entry)
            self._purse.settle(entry.request.id, None)
        for entry, _ in sorted(waiting, key=lambda one: one[0].number):
            self.enter(entry, now)

    def decide(self, now: float) -> Verdict:
        """Everything that may go now, in fair order; everything that never will."""
        grants: list[Granted] = []
        while True:
            moved = len(grants) + len(self._denials)
            wake_s = min(self._purse.expire(now), self._try_parked(now))
            for lane in self._lanes:
                wake_s = min(wake_s, self._serve(lane, grants, now))
            if not self._parked or moved == len(grants) + len(self._denials):
                break
        denials, self._denials = tuple(self._denials.values()), {}
        return Verdict(tuple(grants), denials, wake_s)

    def statistics(self) -> WaitingStatistics:
        return WaitingStatistics(sum(map(len, self._parked.values())))

    def _park(self, entry: Entry, why: str) -> None:
        """Wait at a door, behind those who do; whoever waits there keeps its place."""
        if entry.parked != why:
            self._unpark(entry)
            entry.parked = entry.was_parked = why
            self._parked.setdefault(_door(entry), OrderedDict())[entry.request.id] = entry

    def _unpark(self, entry: Entry) -> None:
        if entry.parked:
            door = _door(entry)
            entry.parked = ""
            del self._parked[door][entry.request.id]
            if not self._parked[door]:
                del self._parked[door]

    def _try_parked(self, now: float) -> float:
        """Let those go on whose reason is gone; returns when the next one's time is up.

        Of calls that wait at the same door, whoever comes after one that must wait on does too.
        """
        wake_s = inf
        for parked in list(self._parked.values()):
            while parked:
                call, entry = next(iter(parked.items()))
                wake_s = min(wake_s, self.enter(entry, now))
                if call in parked:
                    break
        return wake_s

    def _serve(self, lane: Lane, grants: list[Granted], now: float) -> float:
        """Grant what the lane's quota grants; deny what it never will."""

        def size(entry: Entry) -> None:
            self.size(entry, lane, now)

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
                self.leave(entry, now)
                self._deny(entry, error)

    def _deny(self, entry: Entry, error: HeadwayError) -> None:
        call = entry.request.id
        self._denials[call] = Denied(call, error.code, error.message, error.hint or "")
        if entry.beginning is not None:
            self._leaders.ended(entry.beginning, call)

    def _unbounded(self, entry: Entry) -> BudgetReachedError | None:
        """Why a budget has to refuse a call: it has no price, or its answer has no end."""
        request = entry.request
        budgets = self._purse.budgets(request.account)
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

    def _too_dear(self, entry: Entry) -> BudgetReachedError:
        what = f"{entry.claim.tokens:,.0f} tokens"
        if entry.claim.microusd:
            what += f", ${entry.claim.microusd / 1e6:,.4f}"
        about = "about" if entry.request.is_soft else "up to"
        return no_room(named(self._purse, entry.request.account), f"a call of {about} {what}")


def _hopeless(lane: Lane, decision: Decision | None) -> list[tuple[Entry, HeadwayError]]:
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
    balances = (mirror.balance for mirror in lane.quota.belief.mirrors)
    short = [one.limit.name for one in balances if not one.can_ever(first.demand)]
    if lane.calling and not short:
        return []
    hint = "make the call smaller, or change what is set with `headway limits`"
    too_little = f"{(short or [wait.resource])[0]} leaves too little for this call, for good"
    return [(first, DemandTooLargeError(too_little, hint=hint))]


def _door(entry: Entry) -> Door:
    """Where a parked call waits."""
    return (entry.parked == FOLLOWS and entry.beginning) or entry.request.account


def _in_words(lane: Lane, now: float) -> str:
    """What the line waits for."""
    wait = lane.wait
    if wait is None:
        return "its turn"
    left = "until a call ends" if wait.until_s == inf else f"{max(0.0, wait.until_s - now):.1f} s"
    return f"{wait.resource} ({wait.reason}; {left}; {lane.queued} waiting)"


def wait_in(words: str, now: float) -> Wait | None:
    """The record that such words were made of; `None` if they do not say how long it takes."""
    found = _WORDS.search(words)
    return None if found is None else Wait(found[1], now + float(found[3]), found[2])
