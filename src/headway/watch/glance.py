"""A run at a glance: what its journal says, its state and its numbers, for every reader of runs."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import nlargest
from math import inf
from typing import TYPE_CHECKING, Final

from headway.core.engine.record import Header, Row, TaskState
from headway.core.story import Standing, stand
from headway.core.verdict import Verdict, verdict
from headway.runtime.folders import folders
from headway.runtime.journal_reader import JournalReader, Summary
from headway.runtime.owner import look as look_owner
from headway.runtime.runs import FOLDER, RunPlace, find_run, kept_source

if TYPE_CHECKING:
    from headway.runtime.declared import Declared

LISTED_MAX: Final = 10
"""Tasks that failed, or were slow, that are named one by one."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What there is to say of a run without reading all that happened."""

    header: Header
    standing: Standing
    verdict: Verdict
    summary: Summary
    pid: int | None
    now_s: float
    places: Mapping[bytes, int] | None = None
    """By key, of an edited plan: tasks that it does not have any more do not count."""
    inner: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of each level of a reduction, how many tasks have finished, and how many there are."""

    @property
    def total(self) -> int:
        """Tasks, as far as they are known."""
        if self.places is not None:
            return len(self.places)
        return max(self.header.tasks + self.standing.grown, sum(self.summary.counts.values()))

    @property
    def elapsed_s(self) -> float:
        """From its first fact to its last, or to now while it goes on."""
        if not self.summary.events:
            return 0.0
        end_s = self.now_s if self.verdict.is_live else self.summary.last_s
        return max(0.0, end_s - self.summary.first_s)

    def of(self, state: TaskState) -> int:
        """How many tasks are in a state."""
        return self.summary.counts.get(state, 0)

    def rows(self, reader: JournalReader, state: TaskState) -> Iterator[Row]:
        """The tasks that are in a state."""
        rows = reader.rows(state)
        return rows if self.places is None else (row for row in rows if row.key in self.places)


def state_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Where this user's runs are."""
    return folders(environ).state


@contextmanager
def opened(word: str) -> Iterator[tuple[RunPlace, JournalReader]]:
    """The run that a word names, and its journal to read."""
    place = find_run(state_folder(), word)
    with JournalReader(place.folder) as reader:
        yield place, reader


def look(reader: JournalReader) -> Glance:
    """A run as it is now."""
    standing = Standing()
    for recorded in reader.events(key=b""):
        standing = stand(standing, recorded.event)
    owner = look_owner(reader.folder)
    now_s = time.time()
    is_owned = owner is not None and owner.is_alive
    summary = reader.summary()
    plan = _edited(reader, standing, sum(summary.counts.values()))
    places: Mapping[bytes, int] | None = None
    inner: dict[str, tuple[int, int]] = {}
    if plan is not None:
        places = {**plan.places, **{key: len(plan.places) for key in plan.inner}}
        there = [row for row in reader.rows() if row.key in places]
        summary = replace(summary, counts=dict(Counter(row.state for row in there)))
        done = Counter(plan.inner.get(row.key) for row in there if row.state == "finished")
        inner = {name: (done[name], n) for name, n in Counter(plan.inner.values()).items()}
    return Glance(
        reader.header, standing, verdict(standing, is_owned, now_s), summary,
        owner.pid if owner is not None and is_owned else None, now_s, places, inner,
    )  # fmt: skip


def _edited(reader: JournalReader, standing: Standing, rows: int) -> Declared | None:
    """The tasks of a run that is not to do what it began with; None is the usual case."""
    header = reader.header
    folder = os.path.join(state_folder(), FOLDER, header.run)
    is_same = kept_source(folder, header.source) == header.source
    if is_same and rows <= header.tasks + standing.grown:
        return None
    from headway.runtime.declared import declared

    return declared(reader, folder)


def find_row(reader: JournalReader, word: str) -> Row | None:
    """The task of a name, or the only one whose name has the word in it, as it is or as shown."""
    # No name in a journal has what UTF-8 does not, and its database would refuse to look for it.
    word = word.encode(errors="replace").decode()
    same = list(reader.rows(name=word))
    if same:
        return same[-1]  # After an edit there may be several, and the last one is what counts.
    shown = " ".join(word.split())
    near: dict[str, Row] = {}
    for row in reader.rows():
        if word in row.name or shown in " ".join(row.name.split()):
            near[row.name] = row
    return near.popitem()[1] if len(near) == 1 else None


def slowest(
    reader: JournalReader, glance: Glance | None = None, count: int = 3
) -> list[tuple[Row, float]]:
    """The finished tasks whose last attempt took longest."""
    rows = reader.rows("finished") if glance is None else glance.rows(reader, "finished")
    took = ((row, row.ended_s - row.started_s) for row in rows)
    return nlargest(count, took, key=lambda pair: pair[1])


def finite(value: object) -> object:
    """JSON has no infinity: what has no end is null."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if value in (inf, -inf) else value
