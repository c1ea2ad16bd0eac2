"""What was spent on which day, by account and by all together: a few weeks of it.

Invariant: what the days of a month sum to is what its ledger has spent, from the first day on that
was written down here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headway.core.quota.terms import EVERY_ACCOUNT, DaySpend, Spend

DAYS_KEPT: Final = 40
"""Days with spending: the whole of this month, and a week before it for the pace."""


@dataclass(frozen=True, slots=True)
class DiaryStatistics:
    """How much is written down."""

    accounts: int
    days: int


class Diary:
    """Spending by account and day. The date is told from outside."""

    __slots__ = ("_days", "date")

    def __init__(self, kept: Iterable[tuple[str, tuple[DaySpend, ...]]] = ()) -> None:
        self.date = ""
        self._days = {key: {one.date: one for one in days} for key, days in kept}

    def __repr__(self) -> str:
        return f"<Diary {self.statistics()}>"

    def spend(self, account: str, spend: Spend) -> None:
        """An account spent this today; less than nothing, where too much was counted."""
        for key in {account, EVERY_ACCOUNT}:
            days = self._days.setdefault(key, {})
            past = days.get(self.date, DaySpend(self.date))
            days[self.date] = DaySpend(
                self.date, past.tokens + spend.tokens, past.microusd + spend.microusd,
                past.unpriced + spend.unpriced,
            )  # fmt: skip
            if len(days) > DAYS_KEPT:
                del days[min(days)]

    def memory(self) -> tuple[tuple[str, tuple[DaySpend, ...]], ...]:
        """Every day that is kept, oldest first."""
        return tuple([
            (key, tuple([days[date] for date in sorted(days)])) for key, days in self._days.items()
        ])  # fmt: skip

    def statistics(self) -> DiaryStatistics:
        return DiaryStatistics(len(self._days), sum(map(len, self._days.values())))
