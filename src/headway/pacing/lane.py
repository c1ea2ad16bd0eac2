"""One account and model group: its quota, waiting calls and calls in flight."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    FaultKind,
    Permit,
    Reading,
    SettledAs,
    Sketch,
    Usage,
    Wait,
)
from headway.pacing.account import Belief, QuotaConfig, restore, standing
from headway.pacing.headers import Dialect
from headway.pacing.memory import (
    EVERY_ACCOUNT,
    AccountTerms,
    CallId,
    Chronicle,
    LaneMemory,
    ObservedAnswer,
    Spend,
)
from headway.pacing.quota import ADOPTED, MAY_CALL, WAITED, Decision, Quota

REOPEN_S: Final = 30.0
"""A closed account is tried again this often: paying needs no restart."""

RESENT_FIRST: Final = -1.0
"""A call that was sent and refused comes before those of its flow that were not."""

CLOSING: Final[tuple[FaultKind, ...]] = ("billing", "spend_cap")
"""Faults after which an account takes no calls until it is paid."""

IN_LINE_MAX: Final = 32
"""Calls of one flow in the quota's line; the others are sized when their turn is near."""

UNKNOWN: Final = Demand(Amounts(), Amounts())


class Request(Struct, frozen=True):
    """A call that wants a permit, from whichever client."""

    id: CallId
    account: str
    dialect: str
    sketch: Sketch
    path: tuple[str, ...] = ()
    """The flow that it belongs to; a client's own, if nothing is said."""
    is_resent: bool = False
    is_soft: bool = False
    """The budgets claim its expected cost, and more as it grows, in place of the highest."""


class CallEntry(Struct, eq=False):
    """A call from its request to its end."""

    request: Request
    number: int
    asked_s: float
    beginning: tuple[str, str] | None = None
    """What the provider may keep of it in its prompt cache."""
    demand: Demand = UNKNOWN
    claim: Spend = Spend()
    place: int | None = None
    permit: Permit | None = None
    parked: str = ""
    """What it waits for before it may join the line."""
    was_parked: str = ""
    """What it last waited for there."""
    is_cut: bool = False
    """Its answer outgrew the budget and is to be ended."""
    answered_s: float | None = None
    """When its first byte came."""

    @property
    def path(self) -> tuple[str, ...]:
        return self.request.path or (self.request.id[0],)

    def granted(self, permit: Permit) -> None:
        """It may call. Who did not wait in line may have waited before it."""
        is_new = self.was_parked and permit.reason == MAY_CALL
        self.permit = replace(permit, reason=WAITED + self.was_parked) if is_new else permit


Sizer = Callable[[CallEntry], None]
"""Estimates what a call will consume, by all that is known at that moment."""


class _Flow(Struct):
    """The calls of one flow that are not in the quota's line yet, and how many of it are."""

    backlog: OrderedDict[CallId, CallEntry] = field(default_factory=OrderedDict)
    in_line: int = 0


class Lane(Struct, eq=False):
    """A quota and the calls in it."""

    account: str
    group: str
    quota: Quota
    terms: AccountTerms
    dialect: Dialect
    known_s: float = -inf
    """When the levels stood as this lane began with; calls from before are in them."""
    is_new: bool = True
    """Whether nothing was known, and nothing granted before the terms were last changed."""
    closed_s: float = inf
    chronicle: Chronicle = field(default_factory=Chronicle)
    in_line: dict[int, CallEntry] = field(default_factory=dict)
    calling: dict[CallId, CallEntry] = field(default_factory=dict)
    wait: Wait | None = None
    """What the first in line waits for."""
    _flows: dict[tuple[str, ...], _Flow] = field(default_factory=dict)
    _hungry: dict[tuple[str, ...], _Flow] = field(default_factory=dict)
    """Flows of which the next calls may be near; the others need not be looked at."""
    _behind: int = 0
    """Calls that are not in the quota's line yet."""

    @property
    def queued(self) -> int:
        return len(self.in_line) + self._behind

    @property
    def waiting(self) -> list[CallEntry]:
        """Calls without a permit, those in line first."""
        behind = (entry for flow in self._flows.values() for entry in flow.backlog.values())
        return [*self.in_line.values(), *behind]

    def enter(self, entry: CallEntry, now: float) -> None:
        """Wait here. Long after an account was closed, one call may find out whether it is."""
        if now - self.closed_s >= REOPEN_S:
            self.closed_s = inf
            self.quota.belief.hold.reopen()
        flow = self._flows.setdefault(entry.path, _Flow())
        flow.backlog[entry.request.id] = entry
        self._behind += 1
        self._hungry[entry.path] = flow
        if entry.request.is_resent:
            flow.backlog.move_to_end(entry.request.id, last=False)

    def leave(self, entry: CallEntry) -> None:
        if entry.place is None:
            del self._flows[entry.path].backlog[entry.request.id]
            self._behind -= 1
        else:
            self.quota.leave(entry.place)
        self._out(entry)

    def decide(self, size: Sizer, now: float) -> tuple[list[CallEntry], Decision | None]:
        """Calls that may go now, and the decision that the rest waits for."""
        granted: list[CallEntry] = []
        decision: Decision | None = None
        self._feed(size)
        while self.in_line:
            decision = self.quota.decide(now)
            for grant in decision.grants:
                entry = self.in_line[grant.place]
                self._out(entry)
                entry.granted(grant.permit)
                self.calling[entry.request.id] = entry
                granted.append(entry)
            # Those who follow in a flow do not pass one that waits: they may come next time.
            if decision.wait is not None or not self._feed(size):
                break
        self.wait = decision.wait if decision is not None else None
        return granted, decision

    def adopt(self, entry: CallEntry, sent_s: float, now: float) -> None:
        """A call that another process was granted."""
        entry.permit = self.quota.adopt(entry.demand, entry.path, sent_s, self.known_s, now)
        self.calling[entry.request.id] = entry

    def settle(
        self, entry: CallEntry, permit: Permit, how: SettledAs, usage: Usage, now: float,
        fault: Fault | None, reading: Reading,
    ) -> None:  # fmt: skip
        del self.calling[entry.request.id]
        belief = self.quota.belief
        company = belief.tempo.in_flight
        self.quota.settle(permit.id, how, usage, now, fault, reading)
        if fault is not None:
            self.chronicle.refused(fault.kind, now)
            if fault.kind in CLOSING:
                self.closed_s = now
        elif how == "used":
            self.chronicle.answered(_answer(entry, permit, usage, belief, company, now), now)

    def retermed(self, terms: AccountTerms, now: float) -> None:
        """The user changed the terms: the quota is made anew, and its calls go on."""
        self.is_new = self.is_new and self.quota.granted == 0
        fresh = lane_of(self.memory(now), terms, self.dialect, now, now)
        if self.is_new:
            fresh = new_lane(self.account, self.group, terms, self.dialect, now)
        calling = [(one, one.permit) for one in self.calling.values() if one.permit is not None]
        for entry, permit in calling:
            demand, sent_s = entry.demand, permit.granted_s
            entry.permit = fresh.quota.adopt(demand, entry.path, sent_s, now, now)
        waiting = self.waiting
        # Of calls that are yet to be adopted, the present levels know no more than the first ones.
        self.quota, self.terms, self.closed_s = fresh.quota, terms, inf
        self.in_line, self._flows, self._hungry, self._behind = {}, {}, {}, 0
        for entry in waiting:
            entry.place = None
            self.enter(entry, now)

    def memory(self, now: float) -> LaneMemory:
        """What is worth keeping. What the user set is no knowledge: it is in the terms."""
        mirrors, profile = self.quota.belief.mirrors, self.quota.belief.profile()
        learned = tuple(
            limit
            for mirror, limit in zip(mirrors, profile.limits, strict=True)
            if mirror.limit.source != "configured"
        )
        levels = tuple(standing(mirror, now) for mirror in mirrors)
        profile = replace(profile, limits=learned)
        return LaneMemory(
            self.account, self.group, self.dialect.name, profile, levels,
            self.chronicle.memory(now), self.quota.belief.allowances.statistics(now),
        )  # fmt: skip

    def _feed(self, size: Sizer) -> bool:
        """Let each flow send its next ones into the line, sized by what is known now."""
        fed = False
        hungry, self._hungry = self._hungry, {}
        for flow in hungry.values():
            while flow.backlog and flow.in_line < IN_LINE_MAX:
                _, entry = flow.backlog.popitem(last=False)
                self._behind -= 1
                size(entry)
                turn = RESENT_FIRST if entry.request.is_resent else 0.0
                entry.place = self.quota.ask(entry.demand, entry.path, (turn,), entry.asked_s)
                self.in_line[entry.place] = entry
                flow.in_line += 1
                fed = True
        return fed

    def _out(self, entry: CallEntry) -> None:
        """Wait no longer: the next one of the flow may come. A flow without any is forgotten."""
        flow = self._flows[entry.path]
        if entry.place is not None:
            del self.in_line[entry.place]
            entry.place = None
            flow.in_line -= 1
        if flow.backlog:
            self._hungry[entry.path] = flow
        elif not flow.in_line:
            del self._flows[entry.path]


def _answer(
    entry: CallEntry, permit: Permit, usage: Usage, belief: Belief, company: int, now: float
) -> ObservedAnswer:
    """How an answer came. What was not counted, or was sent by another process, is not timed."""
    amounts = usage.amounts
    drawn = 0.0
    for mirror in belief.mirrors:
        if mirror.draw_per_s > 0.0:
            drawn = max(drawn, mirror.draw_per_s / mirror.limit.rate_per_s)
    first_s: float | None = None
    rest_s: float | None = None
    tokens = amounts.output_tokens
    if usage.known != "unknown" and permit.reason != ADOPTED:
        if not entry.demand.is_whole:
            if entry.answered_s is not None:
                first_s, rest_s = entry.answered_s - permit.granted_s, now - entry.answered_s
        elif tokens > 0:
            took_s, tempo = now - permit.granted_s, belief.tempo
            ahead = tempo.first_byte_s / max(tempo.per_token_s, 1e-9)
            rest_s = took_s * tokens / (tokens + ahead)
            first_s = took_s - rest_s
    return ObservedAnswer(amounts.input_tokens, tokens, first_s, rest_s, company, drawn)


def new_lane(account: str, group: str, terms: AccountTerms, dialect: Dialect, now: float) -> Lane:
    """A lane of which nothing is known but what the user says."""
    config = QuotaConfig(dialect, terms.limits, terms.share, terms.pace)
    return Lane(account, group, Quota(config, now), terms, dialect)


def lane_of(
    memory: LaneMemory, terms: AccountTerms, dialect: Dialect, known_s: float, now: float
) -> Lane:
    """A lane that goes on from where it stood at `known_s`."""
    config = QuotaConfig(dialect, terms.limits, terms.share, terms.pace, memory.profile)
    quota = Quota(config, now)
    restore(quota.belief.mirrors, memory.levels, known_s, now)
    quota.belief.allowances.restore(memory.windows, known_s)
    lane = Lane(memory.account, memory.group, quota, terms, dialect, known_s, is_new=False)
    lane.chronicle = Chronicle(memory.chronicle, known_s)
    return lane


def terms_of(terms: Mapping[str, AccountTerms], account: str, group: str) -> AccountTerms:
    """The terms set for the nearest of: this model group, this account, every account."""
    for key in (f"{account}/{group}", account, EVERY_ACCOUNT):
        if key in terms:
            return terms[key]
    return AccountTerms()
