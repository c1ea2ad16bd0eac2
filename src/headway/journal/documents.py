"""What is kept of a run beside its tasks and events: its shape, its forecast, what was found.

Each is a row of its journal under a name; of most, the last one counts. Without one, a run goes on:
what is spoilt is as if it had not been kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from headway.base.codec import decode, encode
from headway.base.values import Budget
from headway.errors import HeadwayError

if TYPE_CHECKING:
    from headway.journal.journal import Journal
    from headway.journal.reader import JournalReader
    from headway.plans.graph import Graph
    from headway.report.findings import Finding
    from headway.work import Work

T = TypeVar("T")

SOURCE: Final = "source"
"""What the run is to do now; without one, what it was to do when it began."""
INCLUDED: Final = "included"
SHAPE: Final = "shape"
CAST: Final = "cast"
FORECAST: Final = "forecast"
FINDINGS: Final = "findings"
LANDED: Final = "landed"

GROUPS_MAX: Final = 20_000
"""The shape of a larger graph is not kept: writing it would delay the start."""
FINDINGS_MAX: Final = 1_000


def keep(journal: Journal, name: str, value: object) -> None:
    """Keep a record; one that is as it was is not written again."""
    data = encode(value)
    if journal.reader.document(name) != data:
        journal.keep(name, data)


def kept(reader: JournalReader, name: str, kind: type[T]) -> T | None:
    """The record of a name; None if there is none, or it is spoilt."""
    with suppress(HeadwayError):
        data = reader.document(name)
        return None if data is None else decode(kind, data)
    return None


def source_of(reader: JournalReader) -> str:
    """What the run is to do now, as text; the header has what it began with."""
    data = reader.document(SOURCE)
    return reader.header.source if data is None else data.decode()


def is_edited(reader: JournalReader) -> bool:
    """Whether the run is to do something else than when it began."""
    source, first = source_of(reader), reader.header.source
    if source == first or reader.header.kind != "plan":
        return source != first
    with suppress(HeadwayError):
        now, then = (decode(dict[str, object], one.encode()) for one in (source, first))
        return any(now.get(name) != then.get(name) for name in ("text", "files", "items"))
    return True


class RunOutline(Struct, frozen=True):
    """What a run was to do, as far as is needed to understand its time."""

    graph: Graph
    ceiling: float = inf
    models: frozenset[str] | None = None
    """The groups whose tasks only ask a model; None where that is unknown."""
    budget: Budget | None = None


def keep_shape(
    journal: Journal, graph: Graph, works: Sequence[Work], ceiling: float,
    budget: Budget | None = None,
) -> None:  # fmt: skip
    """Which group needs which, for readers after the run."""
    from headway.plans.resources import ANYTHING

    if len(graph) > GROUPS_MAX:
        return
    groups = [
        replace(one, touches=None if one.touches is None else ANYTHING) for one in graph.groups
    ]
    both = zip(graph.groups, works, strict=True)
    models = [one.name for one, work in both if work.is_idle_until_sent]
    keep(journal, SHAPE, (groups, ceiling, models, budget))


def kept_shape(reader: JournalReader) -> RunOutline | None:
    """The graph that the run last had, as far as its shape goes."""
    from headway.plans.graph import Graph, TaskGroup

    found = kept(reader, SHAPE, tuple[tuple[TaskGroup, ...], float, frozenset[str], Budget | None])
    with suppress(HeadwayError, IndexError, ValueError):
        return None if found is None else RunOutline(Graph(found[0]), *found[1:])
    return None


def keep_findings(journal: Journal, found: Sequence[Finding]) -> None:
    """What observing has found; of a run that was clean, nothing."""
    if found or journal.reader.document(FINDINGS) is not None:
        keep(journal, FINDINGS, found[:FINDINGS_MAX])


def kept_findings(reader: JournalReader) -> tuple[Finding, ...]:
    if reader.document(FINDINGS) is None:
        return ()  # Without loading what reads them.
    from headway.report.findings import Finding

    return kept(reader, FINDINGS, tuple[Finding, ...]) or ()


# What tasks in workspaces came to.


class LandedTask(Struct, frozen=True):
    """A task whose work is part of the run's files."""

    name: str
    key: str
    changes: dict[str, str | None]
    other_refs: dict[str, str] = {}
    """Commits that its files do not show, by name: of other branches, of stashes."""


class LandedFolder(Struct, frozen=True):
    """What landed in one folder."""

    root: str
    folder: str
    base: str
    """The REF that its workspaces began with; empty for the files as they were."""
    tasks: tuple[LandedTask, ...]
    commit: str
    diffstat: str


class Score(Struct, frozen=True):
    """What the objective says of some files and state."""

    value: float | None
    """None if its command failed, or printed no number."""
    output: str = ""


class ScoredLanding(Struct, frozen=True):
    """The score with the work of a task, and what the task itself says of its work."""

    task: str
    before: float | None
    after: float | None
    is_verified: bool | None
    """Whether its `verify` accepted it; None if it has none."""


class Landing(Struct, frozen=True):
    """What landed in a run, and what a user should know of it."""

    folders: tuple[LandedFolder, ...] = ()
    remarks: tuple[str, ...] = ()
    scores: tuple[ScoredLanding, ...] = ()
    """In the order of landing, if the plan has an objective."""

    def __bool__(self) -> bool:
        return bool(self.folders or self.remarks)
