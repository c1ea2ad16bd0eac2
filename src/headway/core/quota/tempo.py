"""How fast answers come: time to first byte, time per token, and how many were in flight meanwhile.

The integral of calls in flight over time gives the mean width during any call from two readings
of it, so a sample of latency always comes with the company it was measured in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.quota.outflow import HORIZON_S, Stream

FIRST_BYTE_S: Final = 1.0
PER_TOKEN_S: Final = 0.02
"""Before anything is measured: a hosted model of medium size."""

MEMORY: Final = 0.15
WHOLE_PRIOR_TOKENS: Final = 50.0
"""The spread of lengths, in tokens, from which whole answers tell their first byte from the rest;
until then the ratio of the two stays what it was."""

OVERDUE: Final = 2.0
OVERDUE_S_MIN: Final = 0.2
"""A first byte that takes so many times as long as others is probably waited for in a line."""

TOKENS_TYPICAL: Final = 100.0
"""A piece of this many tokens moves the learned pace by `MEMORY`."""


@dataclass(frozen=True, slots=True)
class TempoStatistics:
    """Current speed of answers and calls in flight."""

    first_byte_s: float
    per_token_s: float
    in_flight: int


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """How many answers count, and their mean length."""

    answers: float
    tokens_mean: float


class Line:
    """Time of whole answers against their length: where it begins, and how steeply it rises."""

    __slots__ = ("_count", "_x", "_xx", "_xy", "_y")

    def __init__(self) -> None:
        self._count = self._x = self._y = self._xx = self._xy = 0.0

    def __repr__(self) -> str:
        return f"<Line through {self._count:.0f} answers>"

    def fit(self, tokens: float, elapsed_s: float, ahead: float) -> tuple[float, float]:
        """Count one answer; returns seconds to the first byte and per token, both above 0.

        `ahead` is how many tokens' time a first byte takes, by what was believed before.
        """
        keep = 1.0 - MEMORY / 2.0
        self._count = keep * self._count + 1.0
        self._x = keep * self._x + tokens
        self._y = keep * self._y + elapsed_s
        self._xx = keep * self._xx + tokens * tokens
        self._xy = keep * self._xy + tokens * elapsed_s
        mean_x, mean_y = self._x / self._count, self._y / self._count
        spread = self._xx / self._count - mean_x * mean_x
        rises = self._xy / self._count - mean_x * mean_y
        believed = mean_y / (mean_x + ahead)
        prior = WHOLE_PRIOR_TOKENS**2 / self._count
        slope = (rises + prior * believed) / (spread + prior)
        # An answer takes longer the longer it is, and some time even if it is empty.
        slope = min(max(slope, 0.1 * mean_y / mean_x), mean_y / mean_x)
        return max(mean_y - slope * mean_x, 1e-3), slope

    def statistics(self) -> LineStatistics:
        return LineStatistics(self._count, self._x / max(1.0, self._count))


class Tempo:
    """Learned speed, and the clock of calls in flight."""

    __slots__ = (
        "_ahead", "_at_s", "_integral", "_known", "_whole", "first_byte_s", "in_flight",
        "per_token_s",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.first_byte_s = FIRST_BYTE_S
        self.per_token_s = PER_TOKEN_S
        self.in_flight = 0
        self._integral = 0.0
        self._at_s = now
        self._known = 0
        self._whole = Line()
        self._ahead = inf

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

    def arrived(self, elapsed_s: float, tokens: float) -> float:
        """The time per token of an answer that came whole, its first byte counted in tokens."""
        ahead = self.first_byte_s / max(self.per_token_s, 1e-9)
        self.first_byte_s, self.per_token_s = self._whole.fit(tokens, elapsed_s, ahead)
        return elapsed_s / (tokens + self.first_byte_s / self.per_token_s)

    def work(self, tokens: float) -> float:
        """An answer's work, in tokens. Its first byte counts as so many as it takes at its
        quickest: more would make a line at the provider look like work."""
        self._ahead = min(self._ahead, self.first_byte_s / max(self.per_token_s, 1e-9))
        return tokens + self._ahead

    def is_overdue(self, waited_s: float, per_token_s: float) -> bool:
        """Whether a first byte takes much longer than it would at this time per token."""
        slower = max(1.0, per_token_s / max(self.per_token_s, 1e-9))
        return waited_s > max(OVERDUE_S_MIN, OVERDUE * self.first_byte_s * slower)

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
