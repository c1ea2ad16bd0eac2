"""Who has looked at what of the shared state: those whom a change may concern."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.core.plan.resources import is_pattern, matches


@dataclass(frozen=True, slots=True)
class ReadersStatistics:
    """Keys and patterns that are looked at, and by how many."""

    looked_at: int
    readers: int


class Readers:
    """Tasks by what they have read, and back."""

    __slots__ = ("_looked", "_patterns", "_readers")

    def __init__(self) -> None:
        self._readers: dict[str, dict[int, None]] = {}
        self._looked: dict[int, dict[str, None]] = {}
        self._patterns: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<Readers {self.statistics()}>"

    def copied(self) -> Readers:
        """Another one like this."""
        twin = Readers()
        twin._readers = {what: tasks.copy() for what, tasks in self._readers.items()}
        twin._looked = {task: looked.copy() for task, looked in self._looked.items()}
        twin._patterns = self._patterns.copy()
        return twin

    def add(self, task: int, what: str) -> None:
        """A task has looked at a key or a pattern."""
        readers = self._readers.get(what)
        if readers is None:
            readers = self._readers[what] = {}
            if is_pattern(what):
                self._patterns[what] = None
        readers[task] = None
        self._looked.setdefault(task, {})[what] = None

    def forget(self, task: int) -> None:
        """A task has ended, or begins anew."""
        for what in self._looked.pop(task, ()):
            readers = self._readers[what]
            del readers[task]
            if not readers:
                del self._readers[what]
                self._patterns.pop(what, None)

    def of(self, keys: Iterable[str]) -> list[int]:
        """Everybody who has looked at one of these keys, each once."""
        found: dict[int, None] = {}
        for key in keys:
            if (readers := self._readers.get(key)) is not None:
                found.update(readers)
            for pattern in self._patterns:
                if matches(pattern, key):
                    found.update(self._readers[pattern])
        return list(found)

    def statistics(self) -> ReadersStatistics:
        return ReadersStatistics(len(self._readers), len(self._looked))
