"""How the tasks of a plan name each other: `needs`, `each: TASK`, `reduce`; and no circle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from headway.errors import CycleError, Fix, PlanShapeError, SourceError, UnknownNeedError, nearest
from headway.plans.grammar import OF_REVISE
from headway.plans.section import PlanFaults, shown
from headway.plans.spec import Each, PlanSpec, TaskSpec

# What comes before what: levels of a set of edges, or the circle that keeps it from having any.

CYCLE_SHOWN_MAX: Final = 12
"""Tasks of a cycle that a message names."""

Edges = tuple[tuple[int, ...], ...]
"""For everyone, by index, the indices of others in rising order."""

Levels = tuple[tuple[int, ...], ...]
"""Those with nothing before them, those with only these before them, and so on."""


def reversed_edges(edges: Edges) -> Edges:
    """The same edges from the other end."""
    back: list[list[int]] = [[] for _ in edges]
    for one, others in enumerate(edges):
        for other in others:
            back[other].append(one)
    return tuple(map(tuple, back))


def levels(before: Edges, after: Edges) -> Levels:
    """Everyone by the longest chain before it. Those on or behind a cycle are on no level."""
    missing = [len(needs) for needs in before]
    found: list[tuple[int, ...]] = []
    level = tuple(one for one, count in enumerate(missing) if count == 0)
    while level:
        found.append(level)
        freed: list[int] = []
        for one in level:
            for other in after[one]:
                missing[other] -= 1
                if missing[other] == 0:
                    freed.append(other)
        level = tuple(sorted(freed))
    return tuple(found)


def serial(before: Edges, after: Edges) -> tuple[int, ...]:
    """Everyone as one who works alone would take them: as declared, but never before its needs."""
    missing = [len(needs) for needs in before]
    ready = [one for one, count in enumerate(missing) if count == 0]
    found: list[int] = []
    while ready:
        one = heappop(ready)
        found.append(one)
        for other in after[one]:
            missing[other] -= 1
            if missing[other] == 0:
                heappush(ready, other)
    return tuple(found)


def circle(before: Edges, order: Sequence[int]) -> list[int]:
    """One cycle among those that could not be ordered, from its first one back to it."""
    ordered = set(order)
    one = min(set(range(len(before))) - ordered)
    seen: dict[int, int] = {}
    while one not in seen:
        seen[one] = len(seen)
        one = next(need for need in before[one] if need not in ordered)
    cycle = list(seen)[seen[one] :]
    first = cycle.index(min(cycle))
    return [*cycle[first:], *cycle[: first + 1]]


def path_words(names: list[str]) -> str:
    """The names of a cycle that ends with its first one, the last of them left out if many."""
    *shown_names, first = names
    if len(shown_names) > CYCLE_SHOWN_MAX:
        shown_names[CYCLE_SHOWN_MAX:] = [f"({len(shown_names) - CYCLE_SHOWN_MAX} more)"]
    return " -> ".join([*shown_names, first])


CIRCLES_MAX: Final = 10
"""Circles that are told at once."""


Link = tuple[str, str]
"""A task that another needs, and the key that says so."""


def links_of(task: TaskSpec) -> Iterator[Link]:
    """Every task that this one names, as declared."""
    for name in task.needs:
        yield name, "needs"
    if task.each is not None and task.each.kind == "task":
        yield task.each.source, "each"
    if task.reduce:
        yield task.reduce, "reduce"


def check_links(spec: PlanSpec, faults: PlanFaults) -> PlanSpec:
    """The plan with every `each` that names a task known as such; notes what names nothing."""
    named = {task.name: task for task in spec.tasks}
    tasks = tuple(
        replace(task, each=Each("task", source=task.each.source))
        if task.each is not None and task.each.kind == "glob" and task.each.source in named
        else task
        for task in spec.tasks
    )
    named = {task.name: task for task in tasks}
    for task in tasks:
        _check_each(task, named, faults)
        for name, key in links_of(task):
            if name not in named:
                _unknown(task, name, key, named, faults)
    _check_circles(tasks, named, faults)
    for task in tasks:
        if task.revise is not None:
            _check_revise(task, task.revise.task, named, faults)
    return replace(spec, tasks=tasks)


def _check_each(task: TaskSpec, named: Mapping[str, TaskSpec], faults: PlanFaults) -> None:
    each = task.each
    if each is None:
        return
    if each.kind == "task" and task.matrix and named[each.source].is_group:
        message = f"`{task.name}` follows the members of `{each.source}` and has a `matrix` too"
        place = task.spot("matrix").key
        hint = f"remove `matrix`, or put it into `{each.source}`"
        faults.add(PlanShapeError, place, message, hint, Fix("remove", place))
    is_pattern = any(char in each.source for char in "*?[/.")
    if each.kind == "glob" and not is_pattern and (near := nearest(each.source, named)):
        place = task.spot("each").value
        message = f"`{shown(each.source)}` in `tasks.{task.name}.each` is no task and no pattern"
        fix = Fix("replace", place, value=near)
        faults.add(SourceError, place, message, f"did you mean `{near}`?", fix)


def _check_revise(
    task: TaskSpec, judged: str, named: Mapping[str, TaskSpec], faults: PlanFaults
) -> None:
    """What a task judges is there, and comes before it by what both declare."""
    if judged not in named:
        _unknown(task, judged, "revise", named, faults)
        return
    reached, waiting = {task.name}, [task]
    while waiting:
        for name, _ in links_of(waiting.pop()):
            if name in named and name not in reached:
                reached.add(name)
                waiting.append(named[name])
    place = task.spot("revise").value
    if judged == task.name:
        message = f"`{task.name}` cannot judge its own work"
        gone = (Fix("remove", task.spots[key].key) for key in OF_REVISE if key in task.spots)
        hint = "remove `revise`: `verify` is for a task's own work"
        faults.add(PlanShapeError, place, message, hint, *gone)
    elif judged not in reached:
        message = f"`{task.name}` judges `{judged}` and does not need it"
        fix = task.extend("needs", judged)
        faults.add(PlanShapeError, place, message, f"add `needs: {judged}`", fix)


def _unknown(
    task: TaskSpec, needed: str, key: str, named: Mapping[str, TaskSpec], faults: PlanFaults
) -> None:
    near = nearest(needed, named)
    verb = {"reduce": "reduces", "revise": "judges"}.get(key, "needs")
    message = f"`{task.name}` {verb} `{shown(needed)}`, which the plan does not have"
    place = task.spot(key).value
    hint = f"did you mean `{near}`?"
    if not near or near == task.name or (key != "revise" and near in task.needs):
        near, hint = "", f"remove `{shown(needed)}`, or add a task of this name"
    faults.add(UnknownNeedError, place, message, hint, task.exchange(key, needed, near))


def _check_circles(
    tasks: tuple[TaskSpec, ...], named: Mapping[str, TaskSpec], faults: PlanFaults
) -> None:
    index = {task.name: place for place, task in enumerate(tasks)}
    links = [
        [(index[name], key) for name, key in links_of(task) if name in named] for task in tasks
    ]
    for _ in range(CIRCLES_MAX):
        edges = tuple(tuple(sorted({need for need, _ in some})) for some in links)
        order = serial(edges, reversed_edges(edges))
        if len(order) == len(tasks):
            return
        one, need = note_circle(tasks, circle(edges, order), links, faults)
        links[one] = [other for other in links[one] if other[0] != need]


def note_circle(
    tasks: Sequence[TaskSpec],
    path: list[int],
    links: Sequence[Sequence[tuple[int, str]]],
    faults: PlanFaults,
) -> tuple[int, int]:
    """Note a circle with the need to remove, and say which it is.

    `links` has for each task those that it names, with the key; those by `reads` are not declared.
    """
    steps = [
        (one, need, key)
        for one, need in pairwise(path)
        for other, key in links[one]
        if other == need and key != "reads"
    ]
    # A need is cut rather than what a task is made of.
    one, need, key = min(steps, key=lambda step: step[2] != "needs")
    task, needed = tasks[one], tasks[need].name
    fixes = [task.exchange(by, needed) for who, other, by in steps if (who, other) == (one, need)]
    message = f"tasks need each other in a circle: {path_words([tasks[n].name for n in path])}"
    hint = f"remove `{needed}` from `{task.name}`"
    faults.add(CycleError, task.spot(key).value, message, hint, *fixes)
    return one, need
