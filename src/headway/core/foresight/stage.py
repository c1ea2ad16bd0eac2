"""Where tasks are performed while schedules are tried: attempts in visible steps, and the world.

Laws:
- An attempt is a sequence of steps; what others do can come between two of them and nowhere else.
- The world (files, and whatever else has no versions) shows a write at once, to everybody.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from headway.core.engine.snapshot import Snapshot
from headway.core.plan.paths import above
from headway.core.records import quick

PROCESS: Final = "process"
"""The kind of what code does that nobody can look into: all of it may touch all other of it."""


@quick
class Done:
    """What an attempt gave."""

    body: bytes
    prompts: tuple[str, ...] = ()
    """What it asked, or would have: everything that its result is made of."""
    fault: str = ""
    """Why it has no result; empty if it has one."""


@quick
class Touch:
    """Something that a step looked at or changed: `file out/a.json`, `state total`."""

    kind: str
    what: str
    is_write: bool


Given = tuple[tuple[int, tuple[bytes, ...]], ...]
"""By group that a task needs: results, of all its members or of the task's own."""

Grown = tuple[tuple[int, bytes], ...]
"""Groups that were spread over a result at run time, and that result, in order."""


@quick
class Asked:
    """One attempt: of which task, and what it is given."""

    task: int
    group: int
    member: int
    attempt: int
    label: str
    snapshot: Snapshot | None
    """The shared state as it sees it; None if it has nothing to do with it."""
    given: Given = ()
    grown: Grown = ()


class Going(Protocol):
    """An attempt that goes on."""

    def step(self) -> Done | None:
        """One visible step; what the attempt gave, if that was the last one."""

    def stop(self) -> None:
        """End it: what it has read has changed, or nobody wants to know how it goes on."""


class Stage(Protocol):
    """The world of one trial, and who acts in it."""

    def begin(self, asked: Asked) -> Going:
        """An attempt starts."""

    def label(self, group: int, member: int, grown: Grown) -> str:
        """A task as people read it."""

    def count(self, group: int, grown: Grown) -> int:
        """How many members a group has, now that what it is spread over is known."""

    def publish(self, place: tuple[int, int], grown: Grown, body: bytes) -> None:
        """A committed result, of a group's member, is shown where the plan says."""

    def touched(self) -> list[Touch]:
        """What was touched since this was last asked."""

    def world(self) -> Mapping[str, str]:
        """What there is in the end."""

    def copied(
        self, going: Mapping[int, Going], snapshots: Mapping[int, Snapshot]
    ) -> tuple[Stage, dict[int, Going]]:
        """Another world like this, and the attempts that go on there, by task, with what they see.

        Of worlds that cannot be copied nobody asks for it: their cast says so.
        """

    def restart(self) -> None:
        """The process has died: what was in its memory is gone, and the world is as it was left."""

    def close(self) -> None:
        """Nobody acts any more."""


@dataclass(frozen=True, slots=True)
class FilesStatistics:
    """How many files were written."""

    files: int


@dataclass(slots=True)
class Files:
    """Declared files, as short texts that say who wrote them. Whoever writes a folder replaces it.

    What nobody has written is as it was before the run.
    """

    texts: dict[str, str] = field(default_factory=dict)
    _paths: list[str] = field(default_factory=list)

    def look(self, path: str) -> tuple[tuple[str, str], ...]:
        """What is at a path, around it and within it."""
        if not self.texts:
            return ()
        around = [(one, self.texts[one]) for one in above(path) if one in self.texts]
        own = [(path, self.texts[path])] if path in self.texts else []
        return (*around, *own, *((one, self.texts[one]) for one in self._within(path)))

    def put(self, path: str, text: str) -> None:
        """Write a file, or a folder."""
        for inner in self._within(path):
            del self.texts[inner]
            self._paths.remove(inner)
        if path not in self.texts:
            insort(self._paths, path)
        self.texts[path] = text

    def copied(self) -> Files:
        """The same files, elsewhere."""
        return Files(self.texts.copy(), self._paths[:])

    def statistics(self) -> FilesStatistics:
        return FilesStatistics(len(self.texts))

    def _within(self, path: str) -> list[str]:
        folder = f"{path}/" if path else ""
        first = bisect_left(self._paths, folder)
        last = bisect_left(self._paths, folder + "\U0010ffff")
        return [one for one in self._paths[first:last] if one != path]


def overlap(one: Iterable[Touch], other: Iterable[Touch]) -> list[Touch]:
    """What both touch and one of them changes, as the first one does."""
    theirs = list(other)
    return [
        mine
        for mine in one
        if any((mine.is_write or yours.is_write) and _meet(mine, yours) for yours in theirs)
    ]


def _meet(one: Touch, other: Touch) -> bool:
    if one.kind != other.kind:
        return False
    a, b = one.what, other.what
    return a == b or not a or not b or a.startswith(b + "/") or b.startswith(a + "/")
