"""The `why` verb: why a task has not started, or failed, or when and why it started."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headway.errors import PlanError

if TYPE_CHECKING:
    from headway.core.engine.record import Header
    from headway.watch.cause import Known

EXAMPLES: Final = """\
examples:
  headway why last 'review[security]'     a task by its name
  headway why last security               or by a part that no other name has
  headway why RUN verdict --json          for a program
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway why` takes."""
    parser.add_argument("name", metavar="RUN", help="its id, the beginning of one, or last")
    parser.add_argument("task", metavar="TASK", help="its name, or a part of it")
    parser.add_argument("--json", action="store_true", help="for a program")
    return _why


def _why(parsed: argparse.Namespace) -> int:
    from dataclasses import asdict

    from headway.watch.cause import cause_of
    from headway.watch.causes import draw_cause
    from headway.watch.glance import opened
    from headway.watch.screen import console_for

    with opened(parsed.name) as (place, reader):
        found = cause_of(reader, parsed.task, lambda: _known(reader.header, place.folder))
    if parsed.json:
        from headway.cli.status import print_json

        return print_json(asdict(found))
    draw_cause(console_for(sys.stdout), found)
    return 0


def _known(header: Header, folder: str) -> Known | None:
    """What the run was to do; nobody but its own process knows that of Python functions."""
    if header.kind == "each":
        return _known_each(header, folder)
    try:
        return _known_plan(header, folder) if header.kind == "plan" else None
    except PlanError:
        return None  # A file that the plan names is gone.


def _known_plan(header: Header, folder: str) -> Known:
    from math import inf
    from pathlib import Path

    from headway.core.engine.engine import Rules
    from headway.core.plan.expand import graph_of
    from headway.core.plan.fanin import level_of, shapes_of, with_levels
    from headway.planfile import plan_from
    from headway.runtime.planrun import PlanSource
    from headway.watch.cause import Known

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
    from headway.core.engine.engine import Rules
    from headway.core.plan.graph import Graph, Group
    from headway.runtime.eachsource import EachSource
    from headway.runtime.eachwork import EachWork
    from headway.runtime.runs import kept_source
    from headway.runtime.shell import Shim
    from headway.watch.cause import Known

    source = EachSource.decoded(kept_source(folder, header.source))
    plan = source.plan()
    graph = Graph((Group("each", plan.count(), retries=source.retries, is_local=True),))
    work = EachWork(plan, header.folder, Shim(header.folder))
    return Known(graph, Rules(ceiling=source.jobs), lambda _, member: work.label(member))
