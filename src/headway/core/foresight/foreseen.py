"""What a run will probably take: the record that forecasts give and reports compare with.

Laws:
- No time without the bound beside it, and no number without what it was learned from.
- Every amount is a spread: in eight of ten runs the truth lies between its ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MONEY: Final = "micro-dollars"
"""What a portion's name begins with that is not counted in tokens."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A number that is not known: one in ten is lower than `low`, one in ten higher than `high`."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True)
class Portion:
    """What a run takes of something that is finite: a usage window, a month's budget."""

    name: str
    """`5h window of HOST`, `tokens of 2026-11`."""
    of: float
    used: float
    """Before the run."""
    takes: Spread
    resets_s: float | None = None
    """From now, where it is a usage window; a budget does not come back by waiting."""

    @property
    def left(self) -> float:
        return max(0.0, self.of - self.used)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One way to perform a plan, in numbers."""

    strategy: str
    tasks: int
    calls: Spread
    time_s: Spread
    input_tokens: Spread
    output_tokens: Spread
    microusd: Spread | None
    """None: nobody knows the price of a model in it."""
    bound_s: float
    """The least time in which the middle one of the draws can be done."""
    binding: str
    """What makes the bound so long: `input/60s`, `width`, `critical path`."""
    width: float
    """Calls in flight, on average."""
    refused: float
    """Calls that are turned away, on average."""
    learned_calls: int
    """Calls that sizes and speeds were learned from; 0: they are what is usual."""
    learned_from: str
    portions: tuple[Portion, ...] = ()
    unpriced: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    """What nobody knows and was taken as given, a sentence each."""
    budget_width: int | None = None
    """Calls that may be in flight at once for the budgets' sake: each may cost as much as it can
    until it has ended. None: no budget, or one that covers all calls at once."""

    @property
    def tokens(self) -> Spread:
        """Input and output together; ends are added, so the spread is no narrower than it is."""
        one, other = self.input_tokens, self.output_tokens
        return Spread(one.low + other.low, one.mid + other.mid, one.high + other.high)
