"""A run looked back upon, from its journal and the files beside it: gathered once, for every view.

Nothing of its plan is imported or executed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.afterwards import (
    Binding,
    Compared,
    GroupAfter,
    Serial,
    Slow,
    binding,
    compared,
    groups_after,
    slowest,
)
from headway.core.engine.record import Header
from headway.core.engine.strategy import Adaptive, AllAtOnce, parse
from headway.core.lineage import Lineage, lineage
from headway.core.passage import Passages, PassagesStatistics, Taken
from headway.core.plan.graph import Graph
from headway.core.spent import WORK, Nature, Seen, Spent, spent
from headway.core.story import Standing, Story, effective_width, in_line, stand
from headway.core.verdict import verdict
from headway.errors import HeadwayError
from headway.runtime.forecasts import KeptForecast, read_forecast
from headway.runtime.journal_reader import JournalReader, Recorded
from headway.runtime.runs import RunPlace, list_runs
from headway.runtime.shapes import Kept, kept_shape
from headway.watch.glance import Glance, look, state_folder
from headway.watch.played import group_name

SLOW_MAX: Final = 3
"""Tasks that are named as the slowest."""

NATURES: Final = {
    "plan": Nature("provider"),
    "each": Nature("machine", is_local=True),
    "python": Nature("function"),
}
"""What tasks are where nothing else is known of them."""

LOOKS_MAX: Final = 3
"""A run that goes on is looked at again so often before what it did meanwhile is left out."""

EARLIER_MAX: Final = 10
LOOKED_MAX: Final = 200
"""Earlier runs of the same plan that are compared, and runs that are looked at to find them."""


@dataclass(frozen=True, slots=True)
class Afterwards:
    """All that a report says."""

    glance: Glance
    names: Mapping[bytes, str]
    forecast: KeptForecast
    compared: tuple[Compared, ...]
    serial: Serial
    lineage: Lineage
    submitted: int
    effective: float
    spent: Spent
    numbers: PassagesStatistics
    is_measured: bool
    """Whether headway's own share of the machine is known."""
    refusals: Mapping[str, int]
    taken: Taken
    lost: Taken
    cut_calls: int
    """Calls without a recorded end when a process of the run ended."""
    cut_tokens: int
    """What they can have used at most; 0 if that is not recorded."""
    retries: int
    stale: int
    groups: Mapping[str, GroupAfter]
    slow: list[Slow]
    earlier_s: tuple[float, ...]
    """How long earlier runs of the same plan took, the newest first."""
    binding: Binding | None

    @property
    def elapsed_s(self) -> float:
        return self.spent.wall_s

    @property
    def is_simulated(self) -> bool:
        """Whether its process was the provider too."""
        return bool(_said(self.glance.header).get("sim") is not None)


def afterwards(reader: JournalReader, folder: str) -> Afterwards:
    """Fold a journal; `folder` is the run's."""
    glance, recorded = _seen(reader)
    names = {row.key: row.name for row in reader.rows()}
    shape = _shape(reader.header, folder)
    graph = None if shape is None else shape.graph
    group_of = _grouping(reader.header, names, graph)
    works_alone = _loners(reader.header, shape, group_of)
    ways, story = Passages(works_alone), Story(works_alone)
    for one in recorded:
        story.hear(one.key, one.event)
        ways.hear(one.key, one.event)
    now_s = ways.statistics().elapsed_s
    if glance.verdict.is_live and recorded:
        now_s += max(0.0, time.time() - recorded[-1].event.at_s)
    ways.close(now_s, glance.verdict.is_live)
    kin = lineage(ways.tasks.values(), graph, group_of)
    seen = Seen(
        kin.ready_s, _natures(reader.header, shape, group_of), ways.holds,
        _is_bounded(glance.standing, shape), now_s,
    )  # fmt: skip
    where = spent(ways.tasks.values(), seen)
    groups = groups_after(ways.tasks.values(), group_of)
    if graph is not None:
        declared = [group.name for group in graph.groups if group.name in groups]
        groups = {name: groups[name] for name in dict.fromkeys((*declared, *groups))}
    lines = in_line(story.tales.values(), group_of)
    taken, lost = Taken(), Taken()
    for group in groups.values():
        taken.add(group.taken)
        lost.add(group.lost)
    forecast = read_forecast(folder)
    work_s = sum(one.task_s for one in where.shares if one.cause in WORK)
    return Afterwards(
        glance, names, forecast,
        () if forecast.foreseen is None else compared(forecast.foreseen, now_s, taken),
        Serial(work_s, kin.critical_path_s, now_s), kin, story.statistics().submitted,
        effective_width(story, lines, now_s), where, ways.statistics(), ways.is_measured,
        dict(sorted(ways.refusals.items())), taken, lost,
        sum(one.cut_calls for one in ways.tasks.values()),
        sum(one.cut_tokens for one in ways.tasks.values()),
        sum(one.retries for one in ways.tasks.values()),
        sum(one.stale for one in ways.tasks.values()), groups,
        slowest(ways.tasks.values(), SLOW_MAX), _earlier(reader.header),
        binding(where, kin, ways.tasks, groups, group_of),
    )  # fmt: skip


def _seen(reader: JournalReader) -> tuple[Glance, list[Recorded]]:
    """A run and its facts, of one moment as far as can be: it may go on meanwhile."""
    recorded = list(reader.events())
    for _ in range(LOOKS_MAX):
        glance = look(reader)
        later = list(reader.events(recorded[-1].seq if recorded else 0))
        recorded += later
        if not later:
            break
    return glance, recorded


def _shape(header: Header, folder: str) -> Kept | None:
    """What the run was to do: as it is kept beside the journal, or by reading its plan again."""
    kept = kept_shape(folder)
    if kept is not None:
        return kept
    from headway.watch.known import known

    try:
        found = known(header, folder)
    except (HeadwayError, ValueError, TypeError, KeyError):
        return None
    return None if found is None else Kept(found.graph, found.rules.ceiling)


def _grouping(
    header: Header, names: Mapping[bytes, str], graph: Graph | None
) -> Callable[[bytes], str]:
    """The group of a task, by its name; all that an `each` does is one."""
    if header.kind == "each":
        only = "each" if graph is None else graph.groups[0].name
        return lambda _: only
    return lambda key: group_name(names.get(key, ""))


def _natures(
    header: Header, shape: Kept | None, group_of: Callable[[bytes], str]
) -> Callable[[bytes], Nature]:
    """What tasks are for where their time goes."""
    usual = NATURES[header.kind]
    if shape is None:
        return lambda _: usual
    natures = {
        group.name: _nature(shape, index, usual) for index, group in enumerate(shape.graph.groups)
    }
    return lambda key: natures.get(group_of(key), usual)


def _loners(
    header: Header, shape: Kept | None, group_of: Callable[[bytes], str]
) -> Callable[[bytes], bool]:
    """Whether a task works before it calls anybody: programs and functions do, prompts do not."""
    if shape is None:
        return lambda _: header.kind != "plan"
    if shape.models is not None:
        models = shape.models
        return lambda key: group_of(key) not in models
    local = {group.name for group in shape.graph.groups if group.is_local}
    return lambda key: header.kind != "plan" or group_of(key) in local


def _nature(shape: Kept, index: int, usual: Nature) -> Nature:
    graph = shape.graph
    group = graph.groups[index]
    service = usual.service
    if group.is_local:
        service = "machine"
    elif shape.models is not None:
        service = "provider" if group.name in shape.models else "function"
    if not group.is_local and _is_fan_in(graph, index):
        service = "fan-in"
    is_ordered = bool(group.queue) or group.touches is not None
    return Nature(service, group.is_local, is_ordered)


def _is_fan_in(graph: Graph, index: int) -> bool:
    """Whether it brings the results of several tasks together."""
    group = graph.groups[index]
    return any(need.block != 1 and graph.groups[need.group].count != 1 for need in group.needs)


def _is_bounded(standing: Standing, shape: Kept | None) -> bool:
    """Whether the user said how many may be active at once."""
    if shape is not None and shape.ceiling < inf:
        return True
    try:
        strategy = parse(standing.strategy) if standing.strategy else Adaptive()
    except HeadwayError:
        return False
    return not isinstance(strategy, Adaptive | AllAtOnce)


def _earlier(header: Header) -> tuple[float, ...]:
    """How long the last runs of the same plan took that came to an end in one go."""
    mine = _plan_of(header)
    found: list[float] = []
    for place in list_runs(state_folder(), LOOKED_MAX):
        if len(found) == EARLIER_MAX:
            break
        if place.id < header.run:
            took_s = _took(place, mine)
            found += [] if took_s is None else [took_s]
    return tuple(found)


def _took(place: RunPlace, plan: tuple[str, ...]) -> float | None:
    try:
        with JournalReader(place.folder) as reader:
            if _plan_of(reader.header) != plan:
                return None
            standing = Standing()
            for recorded in reader.events(key=b""):
                standing = stand(standing, recorded.event)
            is_one = standing.parts == 1 and verdict(standing, False, 0.0).state == "done"
            if standing.finished is None or not is_one:
                return None
            return standing.finished.at_s - standing.began_s
    except HeadwayError:
        return None  # A journal that cannot be read: `doctor` tells.


def _plan_of(header: Header) -> tuple[str, ...]:
    """What two runs of one plan have in common."""
    if header.kind != "plan":
        return header.kind, header.name, header.folder
    path = str(_said(header).get("path", header.name))
    return header.kind, os.path.abspath(os.path.join(header.folder, path))


def _said(header: Header) -> dict[str, object]:
    """What a run was to do, as it is kept; nothing, if that is no plan's."""
    try:
        said = json.loads(header.source) if header.kind == "plan" else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
