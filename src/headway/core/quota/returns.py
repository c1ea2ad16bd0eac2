"""Whether what was reserved for an answer and not used comes back at its end.

Law: what is missing exactly as our own reservations should have come back is no neighbour's. The
provider keeps them, until readings show more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.core.quota.balance import Balance
from headway.core.quota.toll import Toll

PROOF_CALLS: Final = 8.0
"""Reservations of so many calls have to have been left unused before it is said where they are."""

KEPT: Final = (0.6, 1.4)
"""As a share of what was not used: if so much is missing, it was kept. Less than all of it, as
calls in flight have not been seen yet."""

RETURNED: Final = 0.5
"""If so much of it is there that should not be, it comes back after all."""


@dataclass(slots=True)
class Returns:
    """The evidence on one limit."""

    gone: float = 0.0
    """What was missing..."""
    unused_before: float = 0.0
    """...since so much had been left unused."""

    def weigh(self, balance: Balance, missing: float) -> bool:
        """Learn from what one reading misses; True if it is otherwise than was believed."""
        self.gone += missing
        unused = balance.unused - self.unused_before
        if unused <= 0.0 or unused < PROOF_CALLS * balance.mean_need:
            return False
        share, toll = self.gone / unused, balance.toll
        self.gone, self.unused_before = 0.0, balance.unused
        if not (share <= -RETURNED if toll.keeps else KEPT[0] <= share <= KEPT[1]):
            return False
        balance.toll = Toll(balance.limit.resource, "reserved" if toll.keeps else "kept")
        return True
