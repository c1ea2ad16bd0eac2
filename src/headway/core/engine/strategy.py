"""Which ready task starts next, and how many are active: all at once, waves, fixed, adaptive.

A strategy answers one question: how many more tasks may start now? `adaptive` has no number to
guess: it starts another task while hardly any started one is waiting for a permit, so that the
width is whatever the quota can feed. Tasks that use this machine instead are fed by its own law.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from headway.errors import BadValueError, did_you_mean

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
