"""What is asked, by whom and under which circumstances: all that advice is given on.

Laws:
- What nobody knows is None, and whoever decides all the same says what they assumed.
- Several agents each read what all of them need; one agent reads it once. That difference is the
  whole of what several cost more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal

from headway.core.quota.terms import Budget, Spend
from headway.core.values import HOUR_S

PANEL_AGENTS: Final = 4
PANEL_TOKENS: Final = 68_000
SINGLE_TOKENS: Final = 35_000
"""A review by four agents and by one, as "Concurrent vs. Parallel Execution" counts them."""

TOKENS_EACH: Final = PANEL_TOKENS / PANEL_AGENTS
"""17,000: what one of four agents takes there."""

OUTPUT_EACH: Final = 1_000.0
"""The document does not say how much of it is answer: about what a review writes."""

HOUR_MICROUSD: Final = 60_000_000
"""What an hour of waiting is worth, where nobody says: a person's."""

Shape = Literal["slices", "views", "coupled"]
"""Each its own part | each another view of the same thing | each needs what others found."""

Stakes = Literal["routine", "release", "enterprise"]
Prefer = Literal["time", "cost", "balanced", "quality"]
"""Balanced: money, and what time is worth. Quality: a thorough answer, at about twice the cost."""


def common_share_of(agents: int, several_tokens: float, one_tokens: float) -> float:
    """What share of its tokens each agent has in common with all others, from two totals.

    several = n (common + own) and one = common + n own give common = (several - one) / (n - 1).
    """
    return (several_tokens - one_tokens) / (agents - 1) / (several_tokens / agents)


COMMON_SHARE: Final = common_share_of(PANEL_AGENTS, PANEL_TOKENS, SINGLE_TOKENS)
"""11/17, about 65 %."""


@dataclass(frozen=True, slots=True)
class AccountState:
    """How the account is now, as far as that was measured."""

    used: tuple[tuple[str, float], ...] = ()
    """Of each limit by its name, the share that is taken: `("tokens/60s", 0.4)`."""
    refused_share: float | None = None
    """Of the calls lately, those that were turned away."""
    first_byte_s: float | None = None
    slowdown: float | None = None
    """How many times slower than usual answers come."""
    is_peak: bool | None = None
    """If somebody says so; otherwise the slowdown tells."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The work, what matters about it, and what it may cost."""

    agents: int = PANEL_AGENTS
    """Slices, or views."""
    tokens_each: float = TOKENS_EACH
    """Input and output of one of several agents."""
    output_each: float = OUTPUT_EACH
    """Of these, its answers."""
    calls_each: int = 1
    common: float | None = None
    """Share of its tokens that each agent has in common with all others; None: as usual."""
    shape: Shape = "slices"
    coupled: float | None = None
    """Share of the agents that need what another one found; None: as the shape says."""
    files: int | None = None
    """Changed by what is to be looked at."""
    is_urgent: bool = False
    stakes: Stakes = "routine"
    is_cost_sensitive: bool = False
    prefer: Prefer = "balanced"
    hour_microusd: int = HOUR_MICROUSD
    budget: Budget = Budget()
    """For a month."""
    spent: Spend = Spend()
    """Of it, so far."""
    state: AccountState = field(default_factory=AccountState)

    @property
    def common_tokens(self) -> float:
        """What all agents read; an answer is nobody's but one's."""
        share = COMMON_SHARE if self.common is None else self.common
        return min(share * self.tokens_each, self.tokens_each - self.output_each)

    @property
    def own_tokens(self) -> float:
        """What each agent has for itself, its answers included."""
        return self.tokens_each - self.common_tokens

    @property
    def coupled_share(self) -> float:
        """Of the agents, those that need what another one found."""
        if self.coupled is not None:
            return self.coupled
        return 1.0 if self.shape == "coupled" else 0.0

    @property
    def several_tokens(self) -> float:
        """What several agents take together, at any width."""
        return self.agents * self.tokens_each

    @property
    def one_tokens(self) -> float:
        """What one agent takes that does it all."""
        return self.common_tokens + self.agents * self.own_tokens


def waiting_microusd(hour_microusd: int, time_s: float) -> float:
    """What so much waiting is worth; what never ends is worth nothing to anybody."""
    return hour_microusd * time_s / HOUR_S if time_s < inf else inf


def runs_within(budget: float, takes: float) -> int:
    """How many whole runs a budget pays for."""
    return int(budget // takes) if takes > 0 else 0
