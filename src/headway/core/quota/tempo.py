"""How fast answers come: time to first byte, time per token, and how many were in flight meanwhile.

The integral of calls in flight over time gives the mean width during any call from two readings
of it, so a sample of latency always comes with the company it was measured in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.core.quota.outflow import HORIZON_S, Stream

FIRST_BYTE_S: Final = 1.0
PER_TOKEN_S: Final = 0.02
"""Before anything is measured: a hosted model of medium size."""

MEMORY: Final = 0.15
TOKENS_TYPICAL: Final = 100.0
"""A piece of this many tokens moves the learned pace by `MEMORY`."""


@dataclass(frozen=True, slots=True)
class TempoStatistics:
    """Current speed of answers and calls in flight."""

    first_byte_s: float
    per_token_s: float
    in_flight: int


class Tempo:
    """Learned speed, and the clock of calls in flight."""

    __slots__ = ("_at_s", "_integral", "_known", "first_byte_s", "in_flight", "per_token_s")

    def __init__(self, now: float) -> None:
        self.first_byte_s = FIRST_BYTE_S
        self.per_token_s = PER_TOKEN_S
        self.in_flight = 0
        self._integral = 0.0
        self._at_s = now
        self._known = 0

    def __repr__(self) -> str:
        return f"<Tempo {self.first_byte_s:.2f}s + {self.per_token_s * 1000:.1f}ms/token>"

    def enter(self, now: float) -> float:
        """One more in flight; returns the integral for `mean_since`."""
        integral = self.integral(now)
        self.in_flight += 1
        return integral

    def leave(self, now: float) -> None:
        self.integral(now)
        self.in_flight -= 1

    def integral(self, now: float) -> float:
        if now > self._at_s:
            self._integral += self.in_flight * (now - self._at_s)
            self._at_s = now
        return self._integral

    def mean_since(self, integral: float, since_s: float, now: float) -> float:
        """Mean calls in flight since a reading of the integral."""
        elapsed = now - since_s
        return (self.integral(now) - integral) / elapsed if elapsed > 0 else self.in_flight

    def first_byte(self, waited_s: float) -> None:
        share = 1.0 if self._known == 0 else MEMORY
        self.first_byte_s += share * (waited_s - self.first_byte_s)
        self._known |= 1

    def moved(self, streamed_s: float, tokens: float) -> float:
        """The time per token of a piece of an answer; longer pieces weigh more."""
        per_token_s = streamed_s / tokens
        share = 1.0 if self._known < 2 else min(0.5, MEMORY * tokens / TOKENS_TYPICAL)
        self.per_token_s += share * (per_token_s - self.per_token_s)
        self._known |= 2
        return per_token_s

    def plan(self, tokens: float, now: float) -> Stream:
        """When an answer of so many tokens would flow if its call were sent now."""
        begins = now + self.first_byte_s
        return self._plan(begins, tokens, now)

    def replan(self, tokens: float, now: float) -> Stream:
        """The same for an answer whose first byte has just come."""
        return self._plan(now, tokens, now)

    def _plan(self, begins_s: float, tokens: float, now: float) -> Stream:
        ends = min(begins_s + max(1e-3, tokens * self.per_token_s), now + HORIZON_S)
        return Stream(min(begins_s, ends - 1e-3), ends, tokens)

    def statistics(self) -> TempoStatistics:
        return TempoStatistics(self.first_byte_s, self.per_token_s, self.in_flight)
