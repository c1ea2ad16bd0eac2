"""The shared state of a run as its journal tells it: what was committed, in declared order.

Law: it is the state that the run's own process had when it ended, or was killed; nothing is
executed to find out but the functions that the plan's channels name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.core.engine.access import Access, decode
from headway.core.engine.channels import Channels
from headway.core.engine.coherence import Places
from headway.core.engine.events import TaskFailed, TaskFinished, TaskProposed, TaskReused, TaskStale
from headway.core.engine.snapshot import Shared, scan_digest
from headway.core.plan.expand import graph_of
from headway.core.plan.sharing import channels_of
from headway.errors import UsageError
from headway.runtime.declared import plans_of
from headway.runtime.journal_reader import JournalReader
from headway.runtime.planrun import PlanSource, loaded
from headway.runtime.reducers import reducer

EVERYWHERE: Final = 1 << 62
"""A position behind all tasks."""

KINDS: Final = ("task_finished", "task_proposed", "task_stale", "task_reused", "task_failed")


@dataclass(frozen=True, slots=True)
class Committed:
    """Keys with their values as JSON, in order, and one digest of all of them."""

    values: tuple[tuple[str, bytes], ...]
    digest: bytes


def committed(reader: JournalReader, folder: str, pattern: str = "**") -> Committed:
    """What is under the keys of a pattern; `folder` is the run's."""
    if reader.header.kind != "plan":
        raise UsageError(
            f"{reader.header.run} is no run of a plan's file: its journal does not tell how what "
            "its tasks put under a key combines",
            hint="ask the program that started it: `run.state`",
        )
    shared = _shared(reader, PlanSource.kept(folder, reader.header.source))
    found = shared.matching(pattern, EVERYWHERE)
    return Committed(
        tuple((key, data) for key, data, _ in found),
        scan_digest(found),
    )


def _shared(reader: JournalReader, source: PlanSource) -> Shared:
    plans = plans_of(reader, source)
    graph, named = (
        graph_of(plans.expanded, lambda: plans.expanded),
        channels_of(plans.expanded.spec),
    )
    folder = reader.header.folder
    reducers = {target: reducer(target, loaded(target, folder)) for target in named.reducers}
    shared, places = Shared(Channels(named.declared, reducers)), Places(graph)
    touched = _touched(reader)
    for group, keys in enumerate(plans.keys):
        members = 0 if keys is None else plans.expanded.groups[group].known.count
        for member in range(members):
            name = None if keys is None else touched.get(keys.key(member))
            if name:
                shared.commit(places.task(group, member), _access(reader, name).writes)
    return shared


def _access(reader: JournalReader, name: bytes) -> Access:
    body = reader.body(name)
    if body is None:
        raise UsageError(
            f"what the tasks of {reader.header.run} touched was not kept",
            hint="write `keep_results = true` into the file that `headway config path` names, and "
            "run the plan again",
        )
    return decode(body)


def _touched(reader: JournalReader) -> dict[bytes, bytes]:
    """By the key of every committed task: the digest of what it touched."""
    committed: dict[bytes, bytes] = {}
    latest: dict[bytes, bytes] = {}
    for recorded in reader.events(kinds=KINDS):
        key, event = recorded.key, recorded.event
        if isinstance(event, TaskFinished | TaskProposed):
            latest[key] = event.ending.access
        if isinstance(event, TaskFinished | TaskReused):
            committed[key] = latest.get(key, b"")
        elif isinstance(event, TaskStale | TaskFailed):
            committed.pop(key, None)
    # A saved journal may have lost events of tasks whose rows are whole.
    committed |= {row.key: row.ending.access for row in reader.rows(state="finished")}
    return committed
