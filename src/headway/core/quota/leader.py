"""Who writes a shared beginning into the provider's prompt cache, and who waits to read it.

Laws:
- Of calls that share a cacheable beginning, the first one leads; the others wait for its first
  byte, from which on the beginning can be read at a tenth of its price.
- They wait a bounded time: a slow leader costs money, not the run.
- A leader that ends without a first byte leads no more; the next one that asks does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.quota.length import remember
from headway.core.quota.terms import CallId

WARM_S: Final = 270.0
"""Caches forget after five minutes without use; half a minute is left for the way."""

LEADER_S_MAX: Final = 10.0
"""A leader that was sent this long ago is not waited for any longer..."""

FOLLOWER_S_MAX: Final = 30.0
"""...and nobody waits for longer than this, whether or not the leader was sent."""

Beginning = tuple[str, str]
"""(account and model group, digest): caches are not shared between either."""


@dataclass(slots=True)
class _Cached:
    """One beginning: until when it can be read, or who is about to write it."""

    warm_until_s: float = -inf
    leader: CallId | None = None
    sent_s: float = inf


@dataclass(frozen=True, slots=True)
class LeadersStatistics:
    """Beginnings that are remembered, and those that somebody is about to write."""

    beginnings: int
    led: int


class Leaders:
    """Every beginning that was seen lately; the one used least recently is forgotten first."""

    __slots__ = ("_cached",)

    def __init__(self) -> None:
        self._cached: dict[Beginning, _Cached] = {}

    def __repr__(self) -> str:
        return f"<Leaders of {len(self._cached)} beginnings>"

    def is_warm(self, beginning: Beginning, now: float) -> bool:
        """Whether the provider can read this beginning from its cache."""
        cached = self._cached.get(beginning)
        return cached is not None and now < cached.warm_until_s

    def until_s(self, beginning: Beginning, call: CallId, asked_s: float, now: float) -> float:
        """When the call may go at the latest: `now` for a leader, or where nobody is waited for."""
        cached = remember(self._cached, beginning, _Cached)
        if now < cached.warm_until_s:
            return now
        if cached.leader is None:
            cached.leader, cached.sent_s = call, inf
        if cached.leader == call:
            return now
        return max(now, min(cached.sent_s + LEADER_S_MAX, asked_s + FOLLOWER_S_MAX))

    def sent(self, beginning: Beginning, call: CallId, now: float) -> None:
        """A call was granted its permit."""
        cached = self._cached.get(beginning)
        if cached is not None and cached.leader == call:
            cached.sent_s = now

    def answered(self, beginning: Beginning, now: float) -> None:
        """A first byte: whoever wrote it, the beginning is in the cache from now on."""
        cached = remember(self._cached, beginning, _Cached)
        cached.warm_until_s, cached.leader = now + WARM_S, None

    def ended(self, beginning: Beginning, call: CallId) -> bool:
        """A call is over; True if others were waiting for it and need not any more."""
        cached = self._cached.get(beginning)
        if cached is None or cached.leader != call:
            return False
        cached.leader, cached.sent_s = None, inf
        return True

    def statistics(self) -> LeadersStatistics:
        led = sum(cached.leader is not None for cached in self._cached.values())
        return LeadersStatistics(len(self._cached), led)
