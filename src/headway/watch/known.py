"""What a run was to do, by what is kept of it: a plan is read again, nothing of it is executed."""

from __future__ import annotations

from math import inf
from pathlib import Path

from headway.core.engine.engine import Rules
from headway.core.engine.record import Header
from headway.core.plan.expand import graph_of
from headway.core.plan.fanin import level_of, shapes_of, with_levels
from headway.core.plan.graph import Graph, Group
from headway.errors import PlanError
from headway.planfile import plan_from
from headway.runtime.eachsource import EachSource
from headway.runtime.eachwork import EachWork
from headway.runtime.planrun import PlanSource
from headway.runtime.runs import kept_source
from headway.runtime.shell import Shim
from headway.watch.cause import Known


def known(header: Header, folder: str) -> Known | None:
    """What the run was to do; nobody but its own process knows that of Python functions."""
    if header.kind == "each":
        return _known_each(header, folder)
    try:
        return _known_plan(header, folder) if header.kind == "plan" else None
    except PlanError:
        return None  # A file that the plan names is gone.


def _known_plan(header: Header, folder: str) -> Known:
    source = PlanSource.kept(folder, header.source)
    path = Path(source.path)
    expanded = plan_from(source.text, path.parent, path.name, source.may_leave).expanded
    shapes = shapes_of(expanded)

    def label(index: int, member: int) -> str:
        if index >= len(expanded.groups):
            return f"{level_of(expanded, shapes, index)}[{member + 1}]"
        group = expanded.groups[index]
        # Who the members of a group are that was found at run time, only its results tell.
        return f"{group.name}[{member}]" if group.count is None else group.label(member)

    graph = with_levels(graph_of(expanded), expanded, shapes)
    return Known(graph, Rules(ceiling=source.jobs or inf), label)


def _known_each(header: Header, folder: str) -> Known:
    source = EachSource.decoded(kept_source(folder, header.source))
    plan = source.plan()
    graph = Graph((Group("each", plan.count(), retries=source.retries, is_local=True),))
    work = EachWork(plan, header.folder, Shim(header.folder))
    return Known(graph, Rules(ceiling=source.jobs), lambda _, member: work.label(member))
