"""The time of a run: seconds since it began, without those in which no process had it."""

from __future__ import annotations

from headway.core.engine.events import RunBegan
from headway.core.engine.record import Fact


class Elapsed:
    """A clock that facts wind, in the journal's order. It never goes back."""

    __slots__ = ("_began_s", "last_s", "parts")

    def __init__(self) -> None:
        self._began_s: float | None = None
        self.last_s = 0.0
        self.parts = 0
        """How many processes have had the run."""

    def __repr__(self) -> str:
        return f"<Elapsed {self.last_s:.1f} s in {self.parts} parts>"

    def at(self, event: Fact) -> float:
        """When a fact was, as seconds of the run."""
        if self._began_s is None:
            self._began_s = event.at_s
        if isinstance(event, RunBegan):
            self.parts += 1
            self._began_s = event.at_s - self.last_s
        self.last_s = max(self.last_s, event.at_s - self._began_s)
        return self.last_s

    def statistics(self) -> float:
        """Seconds so far."""
        return self.last_s
