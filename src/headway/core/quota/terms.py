"""What a user sets for an account, what is learned of it, and all of both that outlives a process.

Everything here is plain data, so that whoever keeps it on a disk needs to know nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from headway.core.quota.allowance import Allowance
from headway.core.quota.belief import Profile
from headway.core.quota.chronicle import ChronicleMemory
from headway.core.values import Limit, LimitReading

EVERY_ACCOUNT: Final = ""
"""The name under which terms for all accounts together are kept."""

MEMORY_VERSION: Final = 1

CallId = tuple[str, int]
"""(client, number). The client chooses it, so that a permit outlives the broker that gave it."""

MODELS_KEPT: Final = 1024
"""Models whose group is kept: it is asked for several times for every call."""

_DATED: Final = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")
_CLAUDE: Final = re.compile(r"claude-(?:(\d+)(?:[-.]\d+)?-)?(opus|sonnet|haiku)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a user wants to spend in a calendar month. `None` is no budget."""

    tokens: float | None = None
    microusd: int | None = None


@dataclass(frozen=True, slots=True)
class AccountTerms:
    """What a user set for an account, for one model group of it, or for every account."""

    limits: tuple[Limit, ...] = ()
    share: float = 1.0
    """The ceiling: at most this share of every limit is used."""
    pace: Literal["fast", "smooth"] = "fast"
    budget: Budget = Budget()


@dataclass(frozen=True, slots=True)
class Spend:
    """What a call takes of a budget."""

    tokens: float = 0.0
    microusd: int = 0
    unpriced: int = 0
    """Calls whose price is unknown: `microusd` does not contain their cost."""

    def plus(self, other: Spend) -> Spend:
        return Spend(
            self.tokens + other.tokens, self.microusd + other.microusd,
            self.unpriced + other.unpriced,
        )  # fmt: skip

    def minus(self, other: Spend) -> Spend:
        return self.plus(Spend(-other.tokens, -other.microusd, -other.unpriced))


@dataclass(frozen=True, slots=True)
class DaySpend:
    """What was spent on one day, like 2026-11-16."""

    date: str
    tokens: float = 0.0
    microusd: int = 0
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class LaneMemory:
    """One account and model group between two processes: what was learned, what was left."""

    account: str
    group: str
    dialect: str
    profile: Profile
    levels: tuple[LimitReading, ...] = ()
    """How each limit stood when this was written."""
    chronicle: ChronicleMemory = ChronicleMemory()
    windows: tuple[Allowance, ...] = ()
    """How each usage window stood."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a call in flight may still take of the budgets; nobody else may have it."""

    id: CallId
    account: str
    spend: Spend


@dataclass(frozen=True, slots=True)
class Memory:
    """All that outlives a process."""

    version: int = MEMORY_VERSION
    month: str = ""
    """The calendar month that `spent` is about, like 2026-11."""
    terms: tuple[tuple[str, AccountTerms], ...] = ()
    lanes: tuple[LaneMemory, ...] = ()
    spent: tuple[tuple[str, Spend], ...] = ()
    claims: tuple[Claim, ...] = ()
    days: tuple[tuple[str, tuple[DaySpend, ...]], ...] = ()
    """What was spent on which day, by account."""


@lru_cache(maxsize=MODELS_KEPT)
def model_group(model: str) -> str:
    """The models that share limits with this one.

    A dated name is a version of one model. Anthropic counts each family and major version as a
    whole: every Sonnet 4 draws on the same limits.
    """
    name = _DATED.sub("", model.lower().rsplit("/", 1)[-1])
    claude = _CLAUDE.search(name)
    if claude is None:
        return name
    before, family, after = claude.groups()
    version = before or after
    return f"claude-{family}-{version}" if version else f"claude-{family}"
