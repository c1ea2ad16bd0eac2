"""The person beside the runs: whether one is at work on an account, and what their calls need.

Laws:
- A person is active from an interactive call on, until none was asked for or ended for `ACTIVE_S`.
- While a person is active, other calls leave of each limit what the largest of the recent
  interactive calls took, and one place in flight: of the model group that those calls use, and of
  the account. One other call may always be in flight.
- Nothing refills a window before its end: there they leave what interactive calls, as often as they
  came lately, may take until then, up to half of it; and for `AWAY_S` after a person was active, as
  much as the first call takes of one who comes back.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import inf
from typing import Final

from headway.base.numbers import remember
from headway.base.values import HOUR_S

ACTIVE_S: Final = 300.0
"""A person who sends nothing for five minutes does something else; the cache is cold then."""
AWAY_S: Final = 8 * HOUR_S
"""A person comes back the same day. Without room in windows the first call waits for their end: in
fixed windows of a minute up to 55 s."""
RECENT: Final = 16
"""Interactive calls that are looked at: those of about a minute."""
EVERY_S: Final = 30.0
"""How often interactive calls are taken to come until a second one shows it."""


class PersonActivity:
    """The interactive calls of one model group, and of its account."""

    def __init__(self, account: PersonActivity | None = None) -> None:
        self.account = account
        """All model groups together; none in what stands for all of them."""
        self.until_s = -inf
        """Until when a person counts as active."""
        self.in_flight = 0
        self._seen_s: dict[str, float] = {}
        """When each session was last seen."""

    def note(self, session: str, now: float) -> None:
        """A session asked for a call, or one ended."""
        self.until_s = max(self.until_s, now + ACTIVE_S)
        remember(self._seen_s, session, float)
        self._seen_s[session] = now
        if self.account is not None:
            self.account.note(session, now)

    def may_return(self, now: float) -> bool:
        """Whether a person who was active comes back soon enough to keep room for a first call."""
        return now < self.until_s + AWAY_S

    def fly(self, calls: int) -> None:
        """Add to the number of interactive calls in flight; a negative number subtracts."""
        self.in_flight += calls
        if self.account is not None:
            self.account.fly(calls)

    def move(self, account: PersonActivity) -> None:
        """The model group, without calls in flight, belongs to another account from now on."""
        self.account = account
        account.until_s = max(account.until_s, self.until_s)

    def sessions(self, now: float) -> int:
        """How many sessions are active."""
        return sum(now - seen_s < ACTIVE_S for seen_s in self._seen_s.values())


class PersonalNeed:
    """What the recent interactive calls took of one limit, and how often they came."""

    def __init__(self) -> None:
        self.largest = 0.0
        self._every_s = EVERY_S
        """The usual time from one of them to the next."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def note(self, amount: float, now: float) -> None:
        self._recent.append((now, amount))
        self.largest = max([one for _, one in self._recent])
        apart = sorted(later - earlier for (earlier, _), (later, _) in pairwise(self._recent))
        self._every_s = max(1.0, apart[len(apart) // 2]) if apart else EVERY_S

    def withdraw(self) -> None:
        """The last one did not run."""
        if self._recent:
            self._recent.pop()

    def within(self, seconds: float) -> float:
        """What the calls of so many seconds may take, and the next one after that."""
        return self.largest * (1.0 + seconds / self._every_s)

    def taken_since(self, at_s: float) -> float:
        return sum(amount for taken_s, amount in self._recent if taken_s > at_s)
