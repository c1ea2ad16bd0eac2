"""Which ready task starts next and how many are active: all at once, waves, fixed, adaptive.

`adaptive` has no number to choose: it starts another task while few started tasks wait for a
permit, so that the width is what the quota can feed. `LocalWidth` limits its tasks on this machine.
A number that the user gives is exact: neither of the two limits it.
"""

from __future__ import annotations

from math import inf
from typing import Final, Literal

from msgspec import Struct

from headway.errors import BadValueError, did_you_mean

# How many tasks may use this machine at once: as many as its processors and memory can serve.

FIRST: Final = 4
"""What waves of agents are usually sized to: enough to see what they need."""
GROWTH: Final = 2.0
"""A look: commands that only wait are 64 after a second of four looks."""
SHRINK: Final = 0.75
BLEND: Final = 0.5
"""Of the last look in what is known of the processors: one look alone sees a moment."""
HEADROOM: Final = 1.5
"""Busy processes for each processor: with one alone it idles while a command starts or writes."""
QUEUED: Final = 4
"""Tasks that wait for a permit: enough to take each that becomes free, and processes are dear."""
PLACES_MAX: Final = 1024
"""Processes beyond it cost the system more than they give, even if they only wait."""


class MachineLoad(Struct, frozen=True):
    """What the commands of a run leave of this machine."""

    busy: float = 0.0
    """Processes of theirs that run, or wait for a processor or a disk."""
    room: float = inf
    """For how many more of them there is memory."""
    is_short: bool = False
    """Whether memory is nearly gone."""
    queued: int = 0
    """Tasks that wait for a permit."""
    starting: int = 0
    """Agents that have not called a model yet: whether they will have to wait is unknown."""


class LocalWidth:
    """How many tasks may use this machine at once.

    It doubles while all places are taken, until the tasks keep every processor busy, memory is
    used, or some of them wait for permits; agents have to show first that they need not wait. The
    number of processors does not limit tasks that wait.
    """

    def __init__(self, cores: int) -> None:
        self._cores = max(1, cores)
        self._first = max(self._cores, FIRST)
        self.places = float(self._first)
        self._busy: float | None = None

    def observe(self, load: MachineLoad, active: int) -> float:
        """The places from now on; `active` tasks use the machine."""
        before = load.busy if self._busy is None else self._busy
        busy = self._busy = before + BLEND * (load.busy - before)
        places = self.places
        if load.is_short:
            places = min(places - 1, SHRINK * active)
        elif load.queued > QUEUED and places > self._first:
            places = max(self._first, min(places, active - load.queued + QUEUED))
        elif busy > 2 * HEADROOM * self._cores and places > self._first:
            # What waited before keeps the processors busy now: as places become free.
            places = max(self._first, SHRINK * places)
        elif active >= places and load.queued + load.starting < QUEUED:
            served = active * HEADROOM * self._cores / busy if busy else inf
            places = max(places, min(GROWTH * places, served, active + load.room, PLACES_MAX))
        self.places = float(max(1, int(places)))
        return self.places


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
