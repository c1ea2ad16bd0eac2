"""Which ready task starts next and how many are active: all at once, waves, fixed, adaptive.

`adaptive` has no number to choose: it starts another task while few started tasks wait for a
permit, so that the width is what the quota can feed. `LocalLaw` limits tasks that use this machine.
"""

from __future__ import annotations

from math import inf, log
from typing import Final, Literal

from msgspec import Struct

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
"""A greater width pays if the rate grows by at least this share of the growth, in logarithms."""
REST: Final = 10
"""Rounds until a width that did not pay is tried again."""
QUEUED: Final = 4
"""Tasks that wait for a permit: enough to take each that becomes free, and processes are dear."""
PLACES_PER_CORE_MAX: Final = 256
"""A process is a few megabytes even when it only waits."""


class Resting(Struct, frozen=True):
    """How many active tasks that use this machine wait for an answer or a permit."""

    tasks: int = 0
    queued: int = 0


class LocalLaw:
    def __init__(self, cores: int) -> None:
        self._cores = max(1, cores)
        self.places = float(max(self._cores, FIRST))
        self._known: tuple[float, float] | None = None
        self._since_s = 0.0
        self._since_ended = -1
        self._rest = 0
        self._lent = 0

    @property
    def room(self) -> float:
        return self.places + self._lent

    def observe(
        self, memory: float, active: int, ended: int, now: float, resting: Resting = Resting()
    ) -> float:
        """The places from now on.

        `memory` is the share that is available; `active` and `ended` count tasks on this machine.
        """
        self._lend(memory, resting)
        if self._since_ended < 0:
            self._since_s, self._since_ended = now, ended
        if now < self._since_s + SETTLE_S:
            return self.places
        if memory < MEMORY_GONE_BELOW and self.places > 1:
            self._known = None
            self._change(min(self.places - 1, self.places * SHRINK), ended, now)
        elif ended - self._since_ended >= max(ROUND, self.places):
            is_full = active - resting.tasks >= self.places - 1
            self._round(is_full and memory > MEMORY_FREE_ABOVE, ended, now)
        return self.places

    def _lend(self, memory: float, resting: Resting) -> None:
        """Lend no more than there is, and more only where it helps."""
        if memory > MEMORY_FREE_ABOVE and resting.queued < QUEUED:
            self._lent = resting.tasks
        elif memory < MEMORY_GONE_BELOW:
            self._lent = 0
        else:
            self._lent = min(self._lent, resting.tasks)

    def _round(self, may_grow: bool, ended: int, now: float) -> None:
        """Enough have ended to know what this width gives."""
        per_s = (ended - self._since_ended) / (now - self._since_s)
        before, self._known = self._known, (self.places, per_s)
        if before is not None and before[0] < self.places:
            gained = log(per_s / before[1])
            if gained < ELASTIC * log(self.places / before[0]):
                self._rest = REST
                self._known = None
                self._change(before[0], ended, now)
                return
        most = float(PLACES_PER_CORE_MAX * self._cores)
        if self._rest:
            self._rest -= 1
        elif may_grow and self.places < most:
            self._change(min(most, max(self.places + 1, self.places * GROWTH)), ended, now)
            return
        self._since_s, self._since_ended = now, ended

    def _change(self, places: float, ended: int, now: float) -> None:
        self.places = max(1.0, float(int(places)))
        self._since_s, self._since_ended = now, ended


LOOKAHEAD: Final = 32
"""Calls that wait for a permit before no more tasks start: enough to choose from and to show that
the run is in full swing, few enough to keep the choice open."""


class Strategy(Struct, frozen=True):
    """How many more tasks may start."""

    kind: Literal["all-at-once", "waves", "fixed", "adaptive"] = "adaptive"
    size: int = 0
    """Tasks of a wave: the next one starts when the last of them has ended. Of `fixed`, tasks that
    are active at any time."""

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.size}" if self.size else self.kind

    @property
    def reason(self) -> str:
        """Why a task starts when it does; recorded with each start."""
        if self.kind == "waves":
            return f"wave of {self.size}"
        if self.kind == "fixed":
            return f"one of {self.size} places is free"
        return (
            "everything starts at once"
            if self.kind == "all-at-once"
            else "there is room for one more"
        )

    def room(self, active: int) -> float:
        if self.kind == "waves":
            return 0 if active else self.size
        return self.size - active if self.kind == "fixed" else inf

    def callers(self, waiting: int) -> float:
        """How many of them may make calls, while so many wait for a permit already."""
        return LOOKAHEAD - waiting if self.kind == "adaptive" else inf


ADAPTIVE: Final = Strategy()
ALL_AT_ONCE: Final = Strategy("all-at-once")


def parse(text: str) -> Strategy:
    """A strategy as users write it: `all-at-once`, `waves(4)`, `fixed(5)`, `adaptive`.

    On a command line, where brackets must be quoted, `waves:4` is the same.
    """
    word, _, size = text.partition(":")
    if text.endswith(")") and ":" not in text:
        word, _, size = text[:-1].partition("(")
    if text == "all-at-once":
        return ALL_AT_ONCE
    if text == "adaptive":
        return ADAPTIVE
    if word in ("waves", "fixed") and size.isascii() and size.isdigit() and int(size) > 0:
        return Strategy("waves" if word == "waves" else "fixed", int(size))
    hint = did_you_mean(word, ("all-at-once", "waves:4", "fixed:5", "adaptive"))
    raise BadValueError(f"{text!r} is not a strategy", hint=hint)
