"""What the first in line has waited for, and for how long: by it everybody in line is told why.

Laws:
- At every instant the line waits for one thing, or for nothing; spells of the same thing that
  follow each other are one.
- To ask costs the same however long a call has waited.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from math import inf
from typing import Final

SPELLS_MAX: Final = 2048
"""Spells of one cause that are kept; who waits for longer is told by the newer half of them."""


@dataclass(slots=True)
class _Spells:
    """Times during which the line waited for one thing, in order."""

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    """What the spells before each of them add up to."""
    total_s: float = 0.0

    def add(self, from_s: float, to_s: float) -> None:
        self.begins.append(from_s)
        self.ends.append(to_s)
        self.before.append(self.total_s)
        self.total_s += to_s - from_s
        if len(self.begins) > SPELLS_MAX:
            for kept in (self.begins, self.ends, self.before):
                del kept[: SPELLS_MAX // 2]

    def since(self, from_s: float) -> float:
        """How much of them came after a time."""
        first = bisect_right(self.ends, from_s)
        if first == len(self.ends):
            return 0.0
        return self.total_s - self.before[first] - max(0.0, from_s - self.begins[first])


class Blame:
    """What one line waits for, over time."""

    __slots__ = ("_cause", "_since_s", "_spells")

    def __init__(self) -> None:
        self._cause = ""
        self._since_s = -inf
        self._spells: dict[str, _Spells] = {}

    def __repr__(self) -> str:
        return f"<Blame {self._cause or 'nothing'} since {self._since_s:.1f}s>"

    def note(self, cause: str, now: float) -> None:
        """From now on the line waits for this; for nothing, if it is empty."""
        if cause == self._cause:
            return
        if self._cause and now > self._since_s:
            self._spells.setdefault(self._cause, _Spells()).add(self._since_s, now)
        self._cause, self._since_s = cause, now

    def longest(self, from_s: float, now: float) -> str:
        """What the line has waited for longest since a time; nothing, if it has not."""
        waited = {cause: spells.since(from_s) for cause, spells in self._spells.items()}
        if self._cause:
            here_s = max(0.0, now - max(from_s, self._since_s))
            waited[self._cause] = waited.get(self._cause, 0.0) + here_s
        cause = max(waited, key=waited.__getitem__, default="")
        return cause if cause and waited[cause] > 0.0 else ""

    def statistics(self) -> dict[str, float]:
        """Seconds for which the line waited, by what for, without the present spell."""
        return {cause: spells.total_s for cause, spells in self._spells.items()}
