"""Which ready task starts next, and how many are active: all at once, waves, fixed, adaptive.

A strategy answers one question: how many more tasks may start now? `adaptive` has no number to
guess: it starts another task while hardly any started one is waiting for a permit, so that the
width is whatever the quota can feed. Tasks that use this machine instead are fed by its own law.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Final, Protocol

from headway.errors import BadValueError, did_you_mean

# How many tasks may use this machine at once: as many as finish more together than fewer do.

SETTLE_S: Final = 0.5
"""A change needs time to be seen."""
MEMORY_FREE_ABOVE: Final = 0.15
MEMORY_GONE_BELOW: Final = 0.05
FIRST: Final = 4
"""What waves of agents are usually sized to: enough to see how fast things go."""
ROUND: Final = 8
"""Ends that tell a rate: fewer are chance."""
GROWTH: Final = 1.5
SHRINK: Final = 0.75
ELASTIC: Final = 0.2
REST: Final = 10
"""Rounds until a width that did not pay is tried again."""
QUEUED: Final = 4
"""Tasks that wait for a permit: enough to take each that becomes free, and processes are dear."""
PLACES_PER_CORE_MAX: Final = 256
"""A process is a few megabytes even when it only waits: beyond this nobody can want more."""


@dataclass(frozen=True, slots=True)
class Resting:
    """Tasks that use this machine, and are seen to wait for somebody else."""

    tasks: int = 0
    """For a permit or for an answer."""
    queued: int = 0
    """Of these, for a permit."""


NOBODY: Final = Resting()


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to see of the machine, and of what our tasks do on it."""

    memory_available: float
    """Share of all memory, 0 to 1."""
    active: int
    """Tasks of ours that use this machine."""
    ended: int
    """Tasks of ours that used this machine and have ended, since the run began."""
    resting: Resting = NOBODY
    """Of those that are active, who is seen to wait."""


@dataclass(frozen=True, slots=True)
class LocalLawStatistics:
    """Where the law is."""

    places: float
    lent: int
    """Places of tasks that wait, which others have meanwhile."""
    grown: int
    shrunk: int
    returned: int
    """Widths that were tried and did not pay."""


@dataclass(frozen=True, slots=True)
class _Rate:
    """What a width gave."""

    places: float
    per_s: float


class LocalLaw:
    """The places of one machine."""

    __slots__ = (
        "_cores", "_grown", "_known", "_lent", "_rest", "_returned", "_shrunk", "_since_ended",
        "_since_s", "places",
    )  # fmt: skip

    def __init__(self, cores: int) -> None:
        self._cores = max(1, cores)
        self.places = float(max(self._cores, FIRST))
        self._known: _Rate | None = None
        """The width before this one, and its rate."""
        self._since_s = 0.0
        self._since_ended = -1
        self._rest = 0
        self._lent = 0
        self._grown = self._shrunk = self._returned = 0

    def __repr__(self) -> str:
        return f"<LocalLaw {self.places:g} places on {self._cores} cores>"

    @property
    def room(self) -> float:
        """How many tasks may be active: places, and those that are lent."""
        return self.places + self._lent

    def observe(self, load: Load, now: float) -> float:
        """A sample: how many places there are from now on."""
        self._lend(load)
        if self._since_ended < 0:
            self._begin(load, now)
        if now < self._since_s + SETTLE_S:
            return self.places
        if load.memory_available < MEMORY_GONE_BELOW and self.places > 1:
            self._shrunk += 1
            self._known = None
            self._change(min(self.places - 1, self.places * SHRINK), load, now)
        elif load.ended - self._since_ended >= max(ROUND, self.places):
            self._round(load, now)
        return self.places

    def statistics(self) -> LocalLawStatistics:
        return LocalLawStatistics(
            self.places, self._lent, self._grown, self._shrunk, self._returned
        )

    def _lend(self, load: Load) -> None:
        """Lend no more than there is, and more only where it helps."""
        resting = load.resting
        if load.memory_available > MEMORY_FREE_ABOVE and resting.queued < QUEUED:
            self._lent = resting.tasks
        elif load.memory_available < MEMORY_GONE_BELOW:
            self._lent = 0
        else:
            self._lent = min(self._lent, resting.tasks)

    def _round(self, load: Load, now: float) -> None:
        """Enough have ended to know what this width gives."""
        per_s = (load.ended - self._since_ended) / (now - self._since_s)
        before, self._known = self._known, _Rate(self.places, per_s)
        if before is not None and before.places < self.places and not _pays(before, self._known):
            self._returned += 1
            self._rest = REST
            self._known = None
            self._change(before.places, load, now)
            return
        has_room = load.memory_available > MEMORY_FREE_ABOVE
        is_full = load.active - load.resting.tasks >= self.places - 1
        most = float(PLACES_PER_CORE_MAX * self._cores)
        if self._rest:
            self._rest -= 1
        elif has_room and is_full and self.places < most:
            self._grown += 1
            self._change(min(most, max(self.places + 1, self.places * GROWTH)), load, now)
            return
        self._begin(load, now)

    def _change(self, places: float, load: Load, now: float) -> None:
        self.places = max(1.0, float(int(places)))
        self._begin(load, now)

    def _begin(self, load: Load, now: float) -> None:
        self._since_s, self._since_ended = now, load.ended


def _pays(before: _Rate, after: _Rate) -> bool:
    """Whether enough of a greater width came back as a greater rate."""
    return log(after.per_s / before.per_s) >= ELASTIC * log(after.places / before.places)


LOOKAHEAD: Final = 32
"""Calls that wait for a permit before no more tasks start: enough to choose from and to show that
the run is in full swing, few enough to keep the choice open."""


class Strategy(Protocol):
    """How many more tasks may start, and the reason that is recorded with each start."""

    @property
    def name(self) -> str:
        """As users write it: `waves:4`."""

    @property
    def reason(self) -> str:
        """Why a task starts when it does."""

    @property
    def ranked(self) -> bool:
        """Whether the critical path goes first, rather than declared order."""

    def room(self, active: int) -> float:
        """How many more tasks may start beside so many that are active."""

    def callers(self, waiting: int) -> float:
        """How many of them may make calls, while so many wait for a permit already."""


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Every ready task starts."""

    name: str = "all-at-once"
    reason: str = "everything starts at once"
    ranked: bool = False

    def room(self, active: int) -> float:  # noqa: ARG002 - the strategies' verb
        return inf

    def callers(self, waiting: int) -> float:  # noqa: ARG002 - the same
        return inf


@dataclass(frozen=True, slots=True)
class Waves:
    """`size` tasks start together; the next wave starts when the last of them has ended."""

    size: int
    ranked: bool = False

    @property
    def name(self) -> str:
        return f"waves:{self.size}"

    @property
    def reason(self) -> str:
        return f"wave of {self.size}"

    def room(self, active: int) -> float:
        return self.size if active == 0 else 0

    def callers(self, waiting: int) -> float:  # noqa: ARG002 - the strategies' verb
        return inf


@dataclass(frozen=True, slots=True)
class Fixed:
    """`size` tasks are active at any time."""

    size: int
    ranked: bool = False

    @property
    def name(self) -> str:
        return f"fixed:{self.size}"

    @property
    def reason(self) -> str:
        return f"one of {self.size} places is free"

    def room(self, active: int) -> float:
        return self.size - active

    def callers(self, waiting: int) -> float:  # noqa: ARG002 - the strategies' verb
        return inf


@dataclass(frozen=True, slots=True)
class Adaptive:
    """As many as the quota feeds."""

    ranked: bool = True

    @property
    def name(self) -> str:
        return "adaptive"

    @property
    def reason(self) -> str:
        return "there is room for one more"

    def room(self, active: int) -> float:  # noqa: ARG002 - the strategies' verb
        return inf

    def callers(self, waiting: int) -> float:
        return LOOKAHEAD - waiting


def parse(text: str) -> Strategy:
    """A strategy as users write it: `all-at-once`, `waves(4)`, `fixed(5)`, `adaptive`.

    On a command line, where brackets must be quoted, `waves:4` is the same.
    """
    word, _, size = text.partition(":")
    if text.endswith(")") and ":" not in text:
        word, _, size = text[:-1].partition("(")
    if text == "all-at-once":
        return AllAtOnce()
    if text == "adaptive":
        return Adaptive()
    if word in ("waves", "fixed") and size.isascii() and size.isdigit() and int(size) > 0:
        return Waves(int(size)) if word == "waves" else Fixed(int(size))
    hint = did_you_mean(word, ("all-at-once", "waves:4", "fixed:5", "adaptive"))
    raise BadValueError(f"{text!r} is not a strategy", hint=hint)
