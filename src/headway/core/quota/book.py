"""Everything that one user may call: all accounts, their quotas, estimates, budgets and callers.

Laws:
- Every request ends in exactly one of: granted, denied, left. Every grant is settled exactly once.
- A client's death settles its permits: its places in flight are free at once, what it had sent
  stays charged, its answers count as long as was expected, its money as the most it can have cost;
  where the claim was soft, as what was claimed by then, which is no less than what is known of its
  answer.
- What is said twice is done once: clients repeat themselves when a broker comes back.
- Whoever drives the book tells it the time; the same calls at the same times give the same grants.

The broker and the in-process port drive the same book.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.core.quota.estimate import Estimates, EstimatesStatistics, Prices
from headway.core.quota.growth import Cut, Growth
from headway.core.quota.lane import Entry, Request
from headway.core.quota.lanes import Lanes, LanesStatistics
from headway.core.quota.leader import Leaders, LeadersStatistics
from headway.core.quota.purse import Purse, PurseStatistics
from headway.core.quota.quota import Settlement
from headway.core.quota.terms import AccountTerms, CallId, Claim, Memory, Spend
from headway.core.quota.waiting import Denied, Granted, Verdict, Waiting
from headway.core.values import Fault, Reading, SettledAs, Tally

__all__ = ["Book", "BookStatistics", "Cut", "Denied", "Granted", "Outcome", "Request", "Verdict"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, as its caller saw it."""

    how: SettledAs
    tally: Tally = Tally(known="unknown")
    fault: Fault | None = None
    reading: Reading = Reading()
    dialect: str = ""


@dataclass(frozen=True, slots=True)
class BookStatistics:
    """Everything at an instant."""

    calls: int
    parked: int
    lanes: LanesStatistics
    purse: PurseStatistics
    leaders: LeadersStatistics
    estimates: EstimatesStatistics


class Book:
    """All that is known of a user's accounts, and everybody who waits or calls."""

    __slots__ = (
        "_entries", "_estimates", "_growth", "_leaders", "_numbers", "_waiting", "lanes", "purse",
    )  # fmt: skip

    def __init__(self, memory: Memory, prices: Prices, now: float, age_s: float = 0.0) -> None:
        """Go on from a memory that was written `age_s` before `now`."""
        self.lanes = Lanes(memory, now - age_s, now)
        self.purse = Purse(memory, now)
        self._estimates = Estimates(prices)
        self._growth = Growth(self.purse, self._estimates)
        self._leaders = Leaders()
        self._waiting = Waiting(self.lanes, self.purse, self._leaders, self._estimates)
        self._entries: dict[CallId, Entry] = {}
        self._numbers = 0

    def __repr__(self) -> str:
        return f"<Book {len(self._entries)} calls, {self._waiting!r}, {self.lanes!r}>"

    def ask(self, request: Request, now: float) -> None:
        """A call wants a permit. Asking again for the same call changes nothing."""
        if request.id not in self._entries:
            # Whoever asks has not called: what a former process kept for the call is free.
            self.purse.settle(request.id, None)
            self._waiting.enter(self._open(request, now), now)

    def leave(self, call: CallId, now: float) -> str:
        """Give up waiting; says in words what for, or nothing if the call was not waiting."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is not None:
            return ""
        why = self._waiting.leave(entry, now)
        self._close(entry)
        return why

    def decide(self, now: float) -> Verdict:
        """Everything that can be granted now, everything that never will be, what is to be cut, and
        when to ask again."""
        verdict = self._waiting.decide(now)
        for grant in verdict.grants:
            entry = self._entries[grant.id]
            self._estimates.began(entry.number, entry.demand)
        for denied in verdict.denials:
            self._close(self._entries[denied.id])
        cuts = self._growth.take()
        return replace(verdict, cuts=cuts) if cuts else verdict

    def first_byte(self, call: CallId, reading: Reading, dialect: str, now: float) -> None:
        """An answer began, with these headers."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is None:
            return
        lane = self.lanes.spoken(entry.request, dialect, now)
        entry.answered_s = now
        lane.quota.first_byte(entry.permit.id, reading, now)
        if entry.beginning is not None:
            self._leaders.answered(entry.beginning, now)

    def progress(self, call: CallId, output_tokens: float, now: float) -> bool:
        """An answer has grown to so many tokens; True if more is claimed for it than before."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is None:
            return False
        self._estimates.progressed(entry.number, output_tokens)
        quota = self.lanes.of(entry.request, now).quota
        quota.progress(entry.permit.id, output_tokens, now)
        return entry.request.is_soft and self._growth.grew(entry, output_tokens)

    def settle(self, call: CallId, outcome: Outcome, now: float) -> bool:
        """A permit ends; only the first time does anything, and returns True."""
        entry = self._entries.get(call)
        if entry is None or entry.permit is None:
            return False
        lane, sketch = self.lanes.spoken(entry.request, outcome.dialect, now), entry.request.sketch
        ran, tally = outcome.how == "used", outcome.tally
        if entry.request.is_soft:
            entry.claim = self._growth.owed(entry, tally.output_tokens)
        spend = self._estimates.spend(sketch, entry.claim, tally, entry.request.is_soft)
        usage = self._estimates.usage(entry.demand, tally, spend, lane.dialect)
        is_whole = ran and outcome.fault is None
        self._estimates.ended(entry.number, sketch, tally if is_whole else None)
        self.purse.settle(call, spend if ran else None)
        settlement = Settlement(outcome.how, usage, outcome.fault, outcome.reading)
        lane.settle(call, entry.permit, settlement, now)
        self._close(entry)
        return True

    def gone(self, client: str, now: float) -> int:
        """A client died: what it had sent was sent. Returns how many permits it held."""
        held = 0
        for call in [call for call in self._entries if call[0] == client]:
            if self.settle(call, Outcome("used"), now):
                held += 1
            else:
                self.leave(call, now)
        return held

    def adopt(self, request: Request, age_s: float, now: float) -> None:
        """A client holds a permit for a call that it sent `age_s` ago, from a former broker."""
        if request.id not in self._entries:
            entry, lane = self._open(request, now), self.lanes.of(request, now)
            self._waiting.size(entry, lane, now)
            claim = self._estimates.claim(request.sketch, entry.demand, request.is_soft)
            entry.claim = self.purse.adopt(Claim(request.id, request.account, claim))
            self._estimates.began(entry.number, entry.demand)
            lane.adopt(entry, now - age_s, now)

    def configure(self, key: str, terms: AccountTerms, now: float) -> None:
        """The user's terms for an account, one `account/group` of it, or every account (``)."""
        self.lanes.configure(key, terms, now)
        if self.purse.budget(key, terms.budget):
            for entry in self._entries.values():
                if entry.permit is not None:
                    # Where the budget is the first in money, no price was claimed for it.
                    request, claim = entry.request, entry.claim
                    most = self._estimates.claim(request.sketch, entry.demand, request.is_soft)
                    tokens = max(claim.tokens, most.tokens)
                    money = max(claim.microusd, most.microusd)
                    entry.claim = Spend(tokens, money, most.unpriced)
                    self.purse.claim(Claim(request.id, request.account, entry.claim))
            self._waiting.reconsider(now)

    def memory(self, now: float) -> Memory:
        """All that outlives this process. What nobody was granted costs nothing if we die."""
        waiting = {call for call, entry in self._entries.items() if entry.permit is None}
        claims = tuple(claim for claim in self.purse.claims() if claim.id not in waiting)
        return Memory(
            month=self.purse.month, terms=self.lanes.terms(), lanes=self.lanes.memory(now),
            spent=self.purse.spent(), claims=claims, days=self.purse.diary.memory(),
        )  # fmt: skip

    def statistics(self) -> BookStatistics:
        return BookStatistics(
            len(self._entries), self._waiting.statistics().parked, self.lanes.statistics(),
            self.purse.statistics(), self._leaders.statistics(), self._estimates.statistics(),
        )  # fmt: skip

    def _open(self, request: Request, now: float) -> Entry:
        self._numbers += 1
        prefix, lane = request.sketch.prefix, self.lanes.of(request, now)
        entry = Entry(request, self._numbers, now, (lane.key, prefix) if prefix else None)
        self._entries[request.id] = entry
        return entry

    def _close(self, entry: Entry) -> None:
        del self._entries[entry.request.id]
        self._growth.ended(entry.request.id)
        if entry.beginning is not None:
            self._leaders.ended(entry.beginning, entry.request.id)
