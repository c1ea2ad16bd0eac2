"""Budgets of a month, of each account and of all together.

Laws:
- A call counts towards the budget of its account and towards the common one, in that order.
- A call of a former process whose client does not come back is paid as it was claimed; a client
  that comes back later does not pay twice.
- A budget is for a calendar month; what is in flight at midnight counts in the new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import astuple, replace

from headway.base.numbers import next_month
from headway.errors import BudgetReachedError
from headway.pacing.call import CallId, Spend
from headway.pacing.memory import EVERY_ACCOUNT, Claim, DaySpend, MonthlyBudget, PacingMemory

Room = Literal["yes", "later", "never"]
"""Whether a budget has room: now, perhaps when calls in flight turn out cheaper, or not at all."""


class BudgetLedger(Struct):
    """One budget, or the absence of one, and everything that counts towards it."""

    budget: MonthlyBudget = MonthlyBudget()
    spent: Spend = Spend()
    claimed: Spend = Spend()
    claims: int = 0


CLAIM_S: Final = 10.0
"""Clients of a broker that was killed are back within a second; after this long they are gone."""

DAYS_KEPT: Final = 40
"""Days with spending: the whole of this month, and a week before it for the pace."""


class MonthlyBudgets:
    """What was spent on which day, and what may still be."""

    def __init__(self, memory: PacingMemory, now: float) -> None:
        self.month = memory.month
        self.date = ""
        self.keys: frozenset[str] = frozenset()
        """The accounts that have a budget."""
        self.in_money = False
        """Whether one of the budgets is in money."""
        self.orphans: dict[CallId, Claim] = {}
        """Claims of a former process whose clients are not back yet."""
        self._days = {
            key: {day.date: Spend(day.tokens, day.microusd, day.unpriced) for day in days}
            for key, days in memory.days
        }
        self.changed_claims: dict[CallId, None] = {}
        self._changed_days: dict[tuple[str, str], None] = {}
        """What is not in the memory as it was last taken, in order."""
        self._ledgers: defaultdict[str, BudgetLedger] = defaultdict(BudgetLedger)
        for key, spent in memory.spent:
            self._ledgers[key].spent = spent
        self._claims: dict[CallId, Claim] = {}
        self._paid: dict[CallId, Claim] = {}
        """Those whose clients did not come back in time."""
        self._orphans_until_s = now + CLAIM_S
        for key, terms in memory.terms:
            self.budget(key, terms.budget)
        for claim in memory.claims:
            self.claim(claim)
        self.orphans = {claim.id: claim for claim in memory.claims}

    def budget(self, key: str, budget: MonthlyBudget) -> bool:
        """The user set a budget for an account, or for all; True if that changes it."""
        ledger = self._ledgers[key]
        changed = ledger.budget != budget
        ledger.budget = budget
        ledgers = self._ledgers.items()
        self.keys = frozenset(key for key, one in ledgers if one.budget != MonthlyBudget())
        self.in_money = any(one.budget.microusd is not None for _, one in ledgers)
        return changed

    def rename(self, old: str, new: str) -> None:
        """What one account spent and claimed counts for another, and so does its budget if that
        has none."""
        ledger = self._ledgers.pop(old, BudgetLedger())
        other = self._ledgers[new]
        other.spent = other.spent.plus(ledger.spent)
        other.claimed, other.claims = (
            other.claimed.plus(ledger.claimed),
            other.claims + ledger.claims,
        )
        days = self._days.setdefault(new, {})
        for date, spend in self._days.pop(old, {}).items():
            days[date] = days.get(date, Spend()).plus(spend)
        for claims in (self._claims, self.orphans, self._paid):
            for id, claim in claims.items():
                if claim.account == old:
                    claims[id] = replace(claim, account=new)
        self.budget(new, ledger.budget if other.budget == MonthlyBudget() else other.budget)

    def of(self, account: str) -> list[MonthlyBudget]:
        """The budgets that a call of this account counts towards."""
        return [self._ledgers[key].budget for key in (account, EVERY_ACCOUNT) if key in self.keys]

    def room(self, account: str, need: Spend) -> Room:
        """Whether so much more may be claimed."""
        room: Room = "yes"
        for key in (account, EVERY_ACCOUNT):
            if key not in self.keys:
                continue
            one = self._ledgers[key]
            for most, spent, claimed in (
                (one.budget.tokens, one.spent.tokens + need.tokens, one.claimed.tokens),
                (one.budget.microusd, one.spent.microusd + need.microusd, one.claimed.microusd),
            ):
                if most is not None and spent > most:
                    return "never"
                if most is not None and spent + claimed > most:
                    room = "later"
        return room

    def claim(self, claim: Claim) -> None:
        """Keep this for a call, in place of what was kept for it."""
        self.orphans.pop(claim.id, None)
        known = self._claims.get(claim.id)
        self._claims[claim.id] = claim
        if known is not None:
            self._hold(known, -1)
        self._hold(claim, 1)

    def adopt(self, claim: Claim) -> Spend:
        """A call of a former process goes on, at what that process kept for it if it is known."""
        paid = self._paid.pop(claim.id, None)
        if paid is not None:
            self._spend(paid.account, Spend().minus(paid.spend))
        known = paid or self.orphans.get(claim.id, claim)
        self.claim(replace(claim, spend=known.spend))
        return known.spend

    def settle(self, call: CallId, used: Spend | None) -> None:
        """A call cost this, or nothing."""
        claim = self._claims.pop(call, None)
        self.orphans.pop(call, None)
        if claim is not None:
            self.changed_claims[call] = None
            self._hold(claim, -1)
            if used is not None:
                self._spend(claim.account, used)

    def expire(self, now: float) -> float:
        """Count orphaned claims as paid when their time is over; returns when that is."""
        if self.orphans and now >= self._orphans_until_s:
            self._paid = self.orphans.copy()
            for claim in self._paid.values():
                self.settle(claim.id, claim.spend)
        return self._orphans_until_s if self.orphans else inf

    def turn(self, date: str) -> None:
        """It is this day now; a month may have begun with it."""
        self.date, month = date, date[:7]
        if month != self.month:
            self.month = month
            self._paid.clear()
            for key, ledger in self._ledgers.items():
                ledger.spent = Spend()
                self._changed_days[key, date] = None

    def spent(self) -> tuple[tuple[str, Spend], ...]:
        return tuple((key, ledger.spent) for key, ledger in self._ledgers.items())

    def memory(self, is_whole: bool, is_out: Callable[[CallId], bool]) -> PacingMemory:
        """All that outlives this process, or what changed since this was last called. Claims of
        calls that are not out count for nothing."""
        days, self._changed_days = self._changed_days, {}
        ids, self.changed_claims = self.changed_claims, {}
        known = self._claims
        if is_whole:
            return PacingMemory(
                self.month, spent=self.spent(), days=self.days(),
                claims=tuple([claim for id, claim in known.items() if is_out(id)]),
            )  # fmt: skip
        return PacingMemory(
            self.month,
            spent=tuple([(key, self._ledgers[key].spent) for key, _ in days]),
            claims=tuple([known[id] for id in ids if id in known and is_out(id)]),
            days=tuple([
                (key, (DaySpend(date, *astuple(self._days[key][date])),))
                for key, date in days if date in self._days.get(key, ())
            ]),
            ended=tuple([id for id in ids if id not in known or not is_out(id)]),
        )  # fmt: skip

    def days(self) -> tuple[tuple[str, tuple[DaySpend, ...]], ...]:
        """Every day that is kept, by account, oldest first."""
        return tuple([
            (key, tuple([DaySpend(date, *astuple(spend)) for date, spend in sorted(days.items())]))
            for key, days in self._days.items()
        ])  # fmt: skip

    def claims(self) -> tuple[Claim, ...]:
        return tuple(self._claims.values())

    def ledgers(self) -> tuple[tuple[str, BudgetLedger], ...]:
        """Every budget, or account without one, as it stands."""
        return tuple([(key, replace(one)) for key, one in self._ledgers.items()])

    def _hold(self, claim: Claim, sign: int) -> None:
        """Set what a call may cost aside, or let go of it."""
        for key in (claim.account, EVERY_ACCOUNT):
            one = self._ledgers[key]
            one.claims += sign
            held = one.claimed.plus(claim.spend) if sign > 0 else one.claimed.minus(claim.spend)
            # Sums of floats drift: with nothing in flight, nothing is claimed.
            one.claimed = held if one.claims else Spend()

    def _spend(self, account: str, more: Spend) -> None:
        """An account spent this today; less than nothing, where too much was counted."""
        for key in (account, EVERY_ACCOUNT):
            self._ledgers[key].spent = self._ledgers[key].spent.plus(more)
            self._changed_days[key, self.date] = None
            days = self._days.setdefault(key, {})
            days[self.date] = days.get(self.date, Spend()).plus(more)
            if len(days) > DAYS_KEPT:
                del days[min(days)]


def named(purse: MonthlyBudgets, account: str) -> str:
    """The budgets of an account in words: what is left of each, and when the month turns."""
    ledgers, told = dict(purse.ledgers()), list[str]()
    for key, whose in ((account, account), (EVERY_ACCOUNT, "all accounts")):
        one = ledgers.get(key, BudgetLedger())
        tokens, microusd = one.budget.tokens, one.budget.microusd
        if tokens is not None:
            left = max(0.0, tokens - one.spent.tokens)
            told.append(f"{tokens:,.0f} tokens for {whose} ({left:,.0f} left)")
        if microusd is not None:
            dollars = max(0, microusd - one.spent.microusd) / 1e6
            told.append(f"${microusd / 1e6:,.2f} for {whose} (${dollars:,.4f} left)")
    turns = f"; the month turns on {next_month(purse.month)}" if told and purse.month else ""
    return ", ".join(told) + turns


STEP_TOKENS: Final = 256
"""What is set aside for an answer grows by at least so many tokens: each time is a write..."""

STEP_SHARE: Final = 0.5
"""...and by so much of the answer, where there is room: a long one grows a few times."""


def no_room(purse: MonthlyBudgets, account: str, what: str) -> BudgetReachedError:
    """The error of a call that needs more than a budget has."""
    return BudgetReachedError(
        f"this month's budget has no room for {what}",
        hint=f"it is {named(purse, account)}: see `headway limits`; raise it with "
        "`headway limits budget AMOUNT/month`",
    )
