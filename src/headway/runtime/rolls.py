"""Who waits at a desk, and whose calls are in flight: so that nothing is done twice or forgotten.

Invariant: a call is on one roll at most. Calls in flight are in the order in which they were last
heard of, so that the first is the next to stall.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from headway.core.quota.terms import CallId


@dataclass(slots=True)
class _Held:
    """A call in flight: whose account it draws on, and when it was last heard of."""

    account: str
    heard_s: float


@dataclass(frozen=True, slots=True)
class RollsStatistics:
    """The rolls at an instant."""

    waiting: int
    in_flight: int


class Rolls:
    """All calls that a desk knows of."""

    __slots__ = ("_held", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[CallId, str] = {}
        self._held: dict[CallId, _Held] = {}

    def __repr__(self) -> str:
        return f"<Rolls {len(self._held)} in flight, {len(self._waiting)} waiting>"

    def __contains__(self, call: CallId) -> bool:
        return call in self._waiting or call in self._held

    def wait(self, call: CallId, account: str) -> None:
        """A call has asked."""
        self._waiting[call] = account

    def waits_for(self, call: CallId) -> str | None:
        """The account that a call waits for, if it does."""
        return self._waiting.get(call)

    def leave(self, call: CallId) -> None:
        """A call waits no longer."""
        self._waiting.pop(call, None)

    def hold(self, call: CallId, account: str, now: float) -> None:
        """A call is in flight."""
        self._waiting.pop(call, None)
        self._held[call] = _Held(account, now)

    def heard(self, call: CallId, now: float) -> str | None:
        """A call in flight has shown that it lives; whose account it draws on, if it does."""
        held = self._held.pop(call, None)
        if held is None:
            return None
        held.heard_s = now
        self._held[call] = held
        return held.account

    def end(self, call: CallId) -> str | None:
        """A call ended; whose account it drew on, if it was in flight."""
        held = self._held.pop(call, None)
        return None if held is None else held.account

    def quietest(self) -> tuple[CallId | None, float]:
        """The call that has not been heard of for longest, and since when."""
        for call, held in self._held.items():
            return call, held.heard_s
        return None, inf

    def waiting_of(self, client: str) -> list[CallId]:
        return [call for call in self._waiting if call[0] == client]

    def held_of(self, client: str) -> list[CallId]:
        return [call for call in self._held if call[0] == client]

    def statistics(self) -> RollsStatistics:
        return RollsStatistics(len(self._waiting), len(self._held))
