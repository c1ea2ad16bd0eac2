"""The tasks of a run as they are declared now, for readers of its journal.

Laws:
- The order is that of the plan as it was last performed. Members that were found at run time have
  their place in it, as far as the result that they come from is in the journal.
- Rows whose tasks an edit has removed or changed are no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headway.core.engine.record import Header
from headway.errors import HeadwayError
from headway.planfile import plan_from
from headway.runtime.eachsource import EachSource
from headway.runtime.eachwork import EachWork
from headway.runtime.filling import text_in
from headway.runtime.journal_reader import JournalReader
from headway.runtime.planrun import PlanSource, with_model
from headway.runtime.planwork import Plans
from headway.runtime.reduction import inner_keys
from headway.runtime.runs import kept_source
from headway.runtime.shell import Shim


@dataclass(frozen=True, slots=True)
class Declared:
    """Every task by its key, with its place."""

    places: dict[bytes, int]
    inner: dict[bytes, str] = field(default_factory=dict)
    """Tasks that bring results together for a reduction: by key, with the level that each is of."""


def declared(reader: JournalReader, folder: str) -> Declared | None:
    """What a run is to do; `folder` is the run's. None if nobody but its own process knows."""
    header = reader.header
    if header.kind == "python":
        return None
    text = kept_source(folder, header.source)
    try:
        if header.kind == "each":
            return _each(header, EachSource.decoded(text))
        return _plan(reader, PlanSource.kept(folder, header.source))
    except (HeadwayError, ValueError, TypeError, KeyError):
        return None  # A file that the plan names is gone: the journal alone has to do.


def _each(header: Header, source: EachSource) -> Declared:
    work = EachWork(source.plan(), header.folder, Shim(header.folder))
    return Declared({work.key(member): member for member in range(work.plan.count())})


def plans_of(reader: JournalReader, source: PlanSource) -> Plans:
    """The plan of a run, as far as results in its journal make it known."""
    path = Path(source.path)
    loaded = plan_from(source.text, path.parent, path.name, source.may_leave)
    plans = Plans.of(with_model(loaded.expanded, source))
    while _grown(reader, plans):
        pass  # Each turn makes at least one group known.
    return plans


def _plan(reader: JournalReader, source: PlanSource) -> Declared:
    plans = plans_of(reader, source)
    keys = [
        known.key(member)
        for group, known in zip(plans.expanded.groups, plans.keys, strict=True)
        if known is not None
        for member in range(group.known.count)
    ]
    return Declared({key: place for place, key in enumerate(keys)}, inner_keys(plans))


def _grown(reader: JournalReader, plans: Plans) -> bool:
    """Whether a group became known by a result in the journal."""
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
