"""What holds everybody back, whatever the limits say: closed accounts, overloads, told waits.

Laws:
- An account that is closed stays closed until somebody opens it: waiting alone mends nothing.
- A wait that nobody named is not believed for long before it is tried: some of them lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.values import Wait

HOLD_S_MAX: Final = 60.0
"""No refusal without a named limit stops the account for longer: some of them lie."""

UNVERIFIED_S: Final = 5.0
"""An unnamed wait is tried after this long, once, to see whether it is meant."""

OVERLOAD_S_MAX: Final = 30.0
UNTOLD_S: Final = 1.0

AGAIN_S: Final = 1.0
"""A refusal this soon after a hold has ended confirms it."""


@dataclass(frozen=True, slots=True)
class HoldStatistics:
    """Until when nobody may call, and why."""

    until_s: float
    reason: str


class Hold:
    """Why nobody may call at all."""

    __slots__ = (
        "_closed", "_idle_refusals", "_overloads", "_reason", "_share", "_until_s", "_verified",
    )  # fmt: skip

    def __init__(self, share: float) -> None:
        self._share = share
        self._closed = "" if share > 0 else "the ceiling leaves nothing of any limit"
        self._until_s = -inf
        self._reason = ""
        self._verified = False
        self._overloads = 0
        self._idle_refusals = 0

    def __repr__(self) -> str:
        held = self.statistics()
        return f"<Hold until {held.until_s:.1f}s {held.reason}>"

    def wait(self, now: float) -> Wait | None:
        """What holds everybody back now."""
        if self._closed:
            return Wait("account", inf, self._closed)
        if now < self._until_s:
            return Wait("account", self._until_s, self._reason)
        return None

    def close(self, reason: str) -> None:
        """Waiting does not help: no call is made any more."""
        self._closed = self._closed or reason

    def reopen(self) -> None:
        """Time has passed, and somebody may have paid: one call may find out."""
        if self._share > 0:
            self._closed = ""

    def overloaded(self, told_s: float | None, now: float) -> None:
        """The provider is out of capacity: longer each time, as long as it is told at most."""
        self._overloads += 1
        wait_s = told_s or 2.0 ** (self._overloads - 1)
        self._until_s, self._reason = now + min(wait_s, OVERLOAD_S_MAX), "provider overloaded"

    def crowded(self, in_flight: int, now: float) -> None:
        """One call too many. A free slot ends the wait; only without any of ours does a clock."""
        if in_flight > 0:
            return
        self._idle_refusals += 1
        self._until_s = now + min(UNVERIFIED_S, 2.0**self._idle_refusals / 4)
        self._reason = "somebody else holds every slot"

    def burst_refused(self, told_s: float | None, now: float) -> None:
        """Enough was left of the limit that was named."""
        self._until_s = now + min(told_s or UNTOLD_S, HOLD_S_MAX)
        self._reason = "a burst was refused"

    def asked(self, told_s: float, now: float) -> None:
        """A wait for a limit that we cannot see. It is meant if trying early is refused again."""
        self._verified = self._verified or now - self._until_s < AGAIN_S
        most_s = HOLD_S_MAX if self._verified else UNVERIFIED_S
        self._until_s, self._reason = now + min(told_s, most_s), "asked to wait"

    def answered(self) -> None:
        """A call was let in: neither overloaded nor crowded out."""
        self._overloads = 0
        self._idle_refusals = 0

    def statistics(self) -> HoldStatistics:
        if self._closed:
            return HoldStatistics(inf, self._closed)
        return HoldStatistics(self._until_s, self._reason)
