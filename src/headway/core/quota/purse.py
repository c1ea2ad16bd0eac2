"""All budgets of a user: each account's own, and the one for every account together.

Laws:
- A call counts towards the budget of its account and towards the common one, in that order.
- A call that a former process knew of and nobody has come back for was paid, at what was claimed
  for it: its ceiling, or what its answer had grown to if the claim was soft. Whoever comes back
  later all the same does not pay twice.
- A budget is for a calendar month; what is in flight at midnight counts in the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from headway.core.dates import next_month
from headway.core.quota.diary import Diary
from headway.core.quota.ledger import Ledger, LedgerStatistics, Room
from headway.core.quota.terms import EVERY_ACCOUNT, Budget, CallId, Claim, Memory, Spend

CLAIM_S: Final = 10.0
"""Clients of a broker that was killed are back within a second; after this long they are gone."""


@dataclass(frozen=True, slots=True)
class PurseStatistics:
    """Every ledger by its account."""

    month: str
    ledgers: tuple[tuple[str, LedgerStatistics], ...]


class Purse:
    """What was spent, and what may still be."""

    __slots__ = ("_claims", "_ledgers", "_orphans", "_orphans_until_s", "_paid", "diary", "month")

    def __init__(self, memory: Memory, now: float) -> None:
        self.month = memory.month
        self.diary = Diary(memory.days)
        self._ledgers = {key: Ledger(spent=spent) for key, spent in memory.spent}
        self._claims: dict[CallId, Claim] = {}
        self._orphans: dict[CallId, Claim] = {}
        """Claims of a former process for which nobody has come back yet."""
        self._paid: dict[CallId, Claim] = {}
        """Those for which nobody came back in time."""
        self._orphans_until_s = now + CLAIM_S
        for key, terms in memory.terms:
            self.budget(key, terms.budget)
        for claim in memory.claims:
            self.claim(claim)
        self._orphans = {claim.id: claim for claim in memory.claims}

    def __repr__(self) -> str:
        return f"<Purse {self.month} of {len(self._ledgers)} accounts>"

    def budget(self, key: str, budget: Budget) -> bool:
        """The user set a budget for an account, or for all; True if that changes it."""
        ledger = self._ledger(key)
        changed = ledger.budget != budget
        ledger.budget = budget
        return changed

    def budgets(self, account: str) -> tuple[Budget, Budget]:
        """The budgets that a call of this account counts towards."""
        return self._ledger(account).budget, self._ledger(EVERY_ACCOUNT).budget

    def room(self, account: str, need: Spend) -> Room:
        """Whether so much more may be claimed."""
        rooms = {ledger.room(need) for ledger in self._of(account)}
        return "never" if "never" in rooms else "later" if "later" in rooms else "yes"

    def claim(self, claim: Claim) -> None:
        """Keep this for a call, in place of what was kept for it."""
        self._orphans.pop(claim.id, None)
        self._claims[claim.id] = claim
        for ledger in self._of(claim.account):
            ledger.claim(claim.id, claim.spend)

    def adopt(self, claim: Claim) -> Spend:
        """A call of a former process goes on, at what that process kept for it if it is known."""
        paid = self._paid.pop(claim.id, None)
        if paid is not None:
            back = Spend().minus(paid.spend)
            for ledger in self._of(paid.account):
                ledger.settle(claim.id, back)
            self.diary.spend(paid.account, back)
        known = paid or self._orphans.get(claim.id, claim)
        self.claim(replace(claim, spend=known.spend))
        return known.spend

    def settle(self, call: CallId, used: Spend | None) -> None:
        """A call cost this, or nothing."""
        claim = self._claims.pop(call, None)
        self._orphans.pop(call, None)
        if claim is None:
            return
        for ledger in self._of(claim.account):
            if used is None:
                ledger.drop(call)
            else:
                ledger.settle(call, used)
        if used is not None:
            self.diary.spend(claim.account, used)

    def expire(self, now: float) -> float:
        """Count as paid what nobody has come back for; returns when to look again."""
        if not self._orphans:
            return inf
        if now >= self._orphans_until_s:
            self._paid = self._orphans.copy()
            for claim in self._paid.values():
                self.settle(claim.id, claim.spend)
            return inf
        return self._orphans_until_s

    def turn(self, date: str) -> None:
        """It is this day now; a month may have begun with it."""
        self.diary.date, month = date, date[:7]
        if month != self.month:
            self.month = month
            self._paid.clear()
            for ledger in self._ledgers.values():
                ledger.reset()

    def spent(self) -> tuple[tuple[str, Spend], ...]:
        """What was spent this month, by account."""
        return tuple((key, ledger.spent) for key, ledger in self._ledgers.items())

    def claims(self) -> tuple[Claim, ...]:
        """What calls in flight may still cost."""
        return tuple(self._claims.values())

    def statistics(self) -> PurseStatistics:
        ledgers = tuple((key, ledger.statistics()) for key, ledger in self._ledgers.items())
        return PurseStatistics(self.month, ledgers)

    def _ledger(self, key: str) -> Ledger:
        if key not in self._ledgers:
            self._ledgers[key] = Ledger()
        return self._ledgers[key]

    def _of(self, account: str) -> tuple[Ledger, Ledger]:
        return self._ledger(account), self._ledger(EVERY_ACCOUNT)


def named(purse: Purse, account: str) -> str:
    """The budgets that a call of this account counts towards, for people: what is left of each, and
    when there is more."""
    ledgers = dict(purse.statistics().ledgers)
    told = _amounts(ledgers.get(account), account)
    told += _amounts(ledgers.get(EVERY_ACCOUNT), "all accounts")
    turns = f"; the month turns on {next_month(purse.month)}" if told and purse.month else ""
    return ", ".join(told) + turns


def _amounts(ledger: LedgerStatistics | None, whose: str) -> list[str]:
    told: list[str] = []
    if ledger is not None and ledger.budget.tokens is not None:
        left = max(0.0, ledger.budget.tokens - ledger.spent.tokens)
        told.append(f"{ledger.budget.tokens:,.0f} tokens for {whose} ({left:,.0f} left)")
    if ledger is not None and ledger.budget.microusd is not None:
        dollars = max(0, ledger.budget.microusd - ledger.spent.microusd) / 1e6
        told.append(f"${ledger.budget.microusd / 1e6:,.2f} for {whose} (${dollars:,.4f} left)")
    return told
