"""The person beside the runs: whether one is at work on an account, and what their calls need.

Laws:
- A person is active from an interactive call on, until none was asked for or ended for `ACTIVE_S`.
- While a person is active, other calls leave of each limit what the largest of the recent
  interactive calls took, and one place in flight. One other call may always be in flight.
- Nothing refills a window before its end: there they leave what interactive calls, as often as they
  came lately, may take until then, up to half of it.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import inf
from typing import Final

ACTIVE_S: Final = 300.0
"""A person who sends nothing for five minutes does something else; the prompt cache of the session
is cold by then as well. The first call after that waits until what it needs is there."""

RECENT: Final = 16
"""Interactive calls that are looked at: a minute of an agent's tools, one call every four seconds.
A conversation grows by little from one of them to the next."""

EVERY_S: Final = 30.0
"""How often interactive calls are taken to come until a second one shows it."""

SESSIONS_MAX: Final = 64
"""Sessions that are counted for people to read."""


class PersonActivity:
    """The interactive calls of one account."""

    def __init__(self) -> None:
        self.until_s = -inf
        """Until when a person counts as active."""
        self.in_flight = 0
        self._seen_s: dict[str, float] = {}
        """When each session was last seen."""

    def note(self, session: str, now: float) -> None:
        """A session asked for a call, or one ended."""
        self.until_s = max(self.until_s, now + ACTIVE_S)
        self._seen_s.pop(session, None)
        self._seen_s[session] = now
        if len(self._seen_s) > SESSIONS_MAX:
            del self._seen_s[next(iter(self._seen_s))]

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
