"""What was spent of a budget this month, and what calls in flight may still spend of it.

Invariant: spent + claimed never exceeds the budget, unless a call used more than was claimed for
it. A claim is made before a call is sent, hard at the most that it can cost, or soft at what it is
expected to and raised as its answer grows; it becomes what the call did cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.core.quota.terms import Budget, CallId, Spend

Room = Literal["yes", "later", "never"]
"""Whether a budget has room: now, perhaps when calls in flight turn out cheaper, or not at all."""


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    """A budget at an instant."""

    budget: Budget
    spent: Spend
    claimed: Spend


class Ledger:
    """One budget, or the absence of one, and everything that counts towards it."""

    __slots__ = ("_claims", "budget", "claimed", "spent")

    def __init__(self, budget: Budget = Budget(), spent: Spend = Spend()) -> None:
        self.budget = budget
        self.spent = spent
        self.claimed = Spend()
        self._claims: dict[CallId, Spend] = {}

    def __repr__(self) -> str:
        return f"<Ledger {self.statistics()}>"

    def room(self, need: Spend) -> Room:
        """Whether so much more may be claimed."""
        alone = self.spent.plus(need)
        if _exceeds(alone, self.budget):
            return "never"
        return "later" if _exceeds(alone.plus(self.claimed), self.budget) else "yes"

    def claim(self, call: CallId, need: Spend) -> None:
        """Keep this for a call, in place of what was kept for it."""
        self.drop(call)
        self._claims[call] = need
        self.claimed = self.claimed.plus(need)

    def drop(self, call: CallId) -> None:
        """The call cost nothing."""
        need = self._claims.pop(call, None)
        if need is not None:
            # Sums of floats drift: with nothing in flight, nothing is claimed.
            left = self.claimed.minus(need)
            self.claimed = left if self._claims else Spend()

    def settle(self, call: CallId, used: Spend) -> None:
        """The call cost this."""
        self.drop(call)
        self.spent = self.spent.plus(used)

    def reset(self) -> None:
        """A new month: nothing is spent; what is in flight will be."""
        self.spent = Spend()

    def statistics(self) -> LedgerStatistics:
        return LedgerStatistics(self.budget, self.spent, self.claimed)


def _exceeds(spend: Spend, budget: Budget) -> bool:
    too_many = budget.tokens is not None and spend.tokens > budget.tokens
    return too_many or (budget.microusd is not None and spend.microusd > budget.microusd)
