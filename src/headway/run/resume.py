"""What a run is to do and has committed, by its journal: for readers, and to go on with it.

Laws:
- The order is that of the plan as it was last performed. Members that were found at run time have
  their place in it, as far as the result that they come from is in the journal.
- Rows whose tasks an edit has removed or changed are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from headway.errors import HeadwayError, UsageError
from headway.journal.documents import INCLUDED, kept
from headway.journal.reader import JournalReader
from headway.plans.expand import ExpandedPlan, Sources, graph_of
from headway.plans.load import Loaded, load_foreign, plan_from
from headway.plans.sharing import targets_of
from headway.plans.untrusted import PlanPermissions
from headway.report.history import RunHistory
from headway.run.filling import text_in
from headway.run.plan_run import PlanSource, with_model
from headway.run.reduce import inner_keys, reducer
from headway.run.tasks import Plans, function_of
from headway.state.shared import Access, Channels, Shared, decode, scan_digest


def declared_places(reader: JournalReader) -> dict[bytes, int] | None:
    """The tasks of a plan as it was last performed, by their keys, with their places; the inner
    calls of reductions come last. None if that is not known."""
    try:
        plans = plans_of(reader, PlanSource.kept(reader))
        return {key: place for place, key in enumerate([*_keys(plans), *inner_keys(plans)])}
    except (HeadwayError, ValueError, TypeError, KeyError):
        return None  # A file that the plan names is gone: the journal alone has to do.


def plan_of_run(reader: JournalReader, source: PlanSource) -> Loaded:
    """The plan as it was last performed, with what it named then: no other file is read."""
    path, included = Path(source.path), kept(reader, INCLUDED, Sources)
    return plan_from(source.text, path.parent, path.name, source.may_leave, included)


def plans_of(reader: JournalReader, source: PlanSource) -> Plans:
    """The plan of a run, as far as results in its journal make it known."""
    plans = Plans.of(with_model(plan_of_run(reader, source).expanded, source))
    while _grown(reader, plans):
        pass  # Each turn makes at least one group known.
    return plans


def _keys(plans: Plans) -> Iterator[bytes]:
    """The keys of all tasks that are known, in declared order."""
    for group, known in zip(plans.expanded.groups, plans.keys, strict=True):
        if known is not None:
            yield from map(known.key, range(group.known.count))


def _grown(reader: JournalReader, plans: Plans) -> bool:
    groups = plans.expanded.groups
    names = {group.name: index for index, group in enumerate(groups)}
    is_grown = False
    for index, group in enumerate(groups):
        each = group.task.each
        if group.members is not None or group.leader != index or each is None:
            continue
        known = plans.keys[names[each.source]]
        row = None if known is None else reader.row(known.key(0))
        body = reader.body(row.ending.body) if row is not None and row.ending.body else None
        if body is not None and row is not None and row.state == "finished":
            plans.grow(index, text_in(body))
            is_grown = True
    return is_grown


# The plan that a run goes on with: as it was, or as its file is now.


def plan_to_resume(
    reader: JournalReader, source: PlanSource, changed: bool, keep: bool,
    allowance: PlanPermissions,
) -> tuple[Loaded, PlanSource, str]:  # fmt: skip
    """The plan, its source, and what an edit changes, in words; empty if nothing was edited.

    UsageError if it was edited, and neither `changed` nor `keep` says what is meant.
    """
    path = Path(source.path)
    try:
        text = source.text if keep else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        if changed:
            why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
            raise UsageError(f"{path} cannot be read: {why}", hint="--keep: as it was") from None
        text = source.text
    included = kept(reader, INCLUDED, Sources) if keep else None
    # What the user has edited is the user's own.
    is_foreign = source.is_foreign and text == source.text
    if is_foreign:
        has_begun = any(row.attempt for row in reader.rows())
        loaded = load_foreign(text, path.parent, allowance, path.name, has_begun, included)
    else:
        loaded = plan_from(text, path.parent, path.name, source.may_leave, included)
    words = ""
    if text != source.text or source.files not in ("", source.of(loaded.expanded).files):
        words = _what_changes(reader, with_model(loaded.expanded, source))
    if words and not changed:
        raise UsageError(
            f"{path.name}, or a file that it names, was edited since this run began",
            detail=words,
            hint=f"headway resume {reader.header.run} --changed, or --keep for the plan as it was",
        )
    return loaded, replace(source, text=text, is_foreign=is_foreign), words


def _what_changes(reader: JournalReader, expanded: ExpandedPlan) -> str:
    plans = Plans.of(expanded)
    keys = {*inner_keys(plans), *_keys(plans)}
    finished = [row for row in reader.rows() if row.state == "finished"]
    holds = sum(row.key in keys for row in finished)
    spent = sum(row.spent_microusd for row in finished if row.key not in keys)
    paid = f", which cost ${spent / 1e6:.4f}" if spent else ""
    return f"{holds} of {len(finished)} results still hold; {len(finished) - holds} do not{paid}"


# The shared state of a run as its journal tells it: what was committed, in declared order.

EVERYWHERE: Final = 1 << 62


def committed(reader: JournalReader, pattern: str = "**") -> tuple[dict[str, bytes], bytes]:
    """The keys of a pattern with their values as JSON, in order, and one digest of all of them."""
    if reader.header.kind != "plan":
        raise UsageError(
            f"{reader.header.run} is no run of a plan's file: its journal does not tell how what "
            "its tasks put under a key combines",
            hint="ask the program that started it: `run.state`",
        )
    shared = _shared(reader, PlanSource.kept(reader))
    found = shared.matching(pattern, EVERYWHERE)
    return {key: data for key, data, _ in found}, scan_digest(found)


def _shared(reader: JournalReader, source: PlanSource) -> Shared:
    from headway.state.coherence import TaskPositions

    plans = plans_of(reader, source)
    graph, spec = graph_of(plans.expanded, lambda: plans.expanded), plans.expanded.spec
    folder = reader.header.folder
    targets = targets_of(spec, "reduce")
    reducers = {target: reducer(target, function_of(target, folder, "state")) for target in targets}
    shared, places = Shared(Channels(spec.channels, reducers)), TaskPositions(graph)
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
    history = RunHistory()
    for recorded in reader.events():
        history.apply(recorded.key, recorded.event)
    tasks = history.tasks.values()
    committed = {task.key: task.access for task in tasks if task.state == "finished"}
    # A saved journal may have lost events of tasks whose rows are whole.
    committed |= {row.key: row.ending.access for row in reader.rows(state="finished")}
    return committed
