"""What every kind of agent that is a program has in common: how it is started, heard and found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headway.runtime.agents.cli.heard import Notes
from headway.wire.loose import Fields


@dataclass(frozen=True, slots=True)
class Errand:
    """What a program is started for, once."""

    prompt: str
    model: str
    """As the plan names it; empty for the program's own."""
    is_own_model: bool
    """Whether the task itself names it, and not the plan for all."""
    home: str
    """The folder of the session: what the program keeps goes there."""
    session: str
    goes_on: bool
    """Whether the session is there already, and is gone on with."""
    environ: Mapping[str, str]
    """Everything that the program finds in its environment, the meter's addresses included."""
    permissions: str = ""
    """`edit` or `all`: what the plan gives beyond the user's settings; empty is nothing."""


@dataclass(frozen=True, slots=True)
class Start:
    """A process to start. No prompt is in its arguments, which others on the machine can read."""

    argv: tuple[str, ...]
    told: Mapping[str, str]
    """Variables on top of those that it has."""
    stdin: bytes | None


@dataclass(frozen=True, slots=True)
class Held:
    """A session as it is on the disk."""

    session: str
    """What the program calls it."""
    replies: int | None = 0
    """Answers of models that are in it; None if nobody can know."""
    is_cut: bool = False
    """Whether nothing came after the last of them: what it wanted done was cut off, so that it
    will be asked for again."""
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    """What it counts as used, where it counts for the whole session."""


class Kind(Protocol):
    """One program. Its methods are called in threads, and change nothing but files in a home."""

    @property
    def name(self) -> str:
        """As a plan says it."""

    @property
    def program(self) -> str:
        """As it is found on the PATH."""

    @property
    def install(self) -> str:
        """How one gets it."""

    @property
    def permissions(self) -> tuple[str, ...]:
        """Those that a plan can give it."""

    @property
    def lost(self) -> tuple[str, ...]:
        """What it says when it does not find a session: that one is begun anew."""

    @property
    def is_summed(self) -> bool:
        """Whether the tokens that it tells are those of the whole session, earlier processes
        too."""

    @property
    def is_cost_summed(self) -> bool:
        """The same of the money."""

    def start(self, errand: Errand) -> Start:
        """How to start it. Writes what has to be in its home first."""

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> Held | None:
        """The session that a process has left behind; None if there is none to go on with."""

    def hear(self, notes: Notes, event: Fields) -> None:
        """One event of its output. Total: never raises."""


def bare_model(errand: Errand, provider: str, *beginnings: str) -> str:
    """A model by the name that its own provider has for it.

    One that the plan names for all its tasks is passed on only if it is this provider's.
    """
    prefix, slash, name = errand.model.partition("/")
    if slash and prefix == provider:
        return name
    is_theirs = errand.model.startswith(beginnings) if beginnings else True
    return errand.model if errand.is_own_model or is_theirs else ""
