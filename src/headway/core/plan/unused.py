"""Declarations that nothing comes of: writes that nobody reads, needs that carry nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from headway.core.plan.clash import filled
from headway.core.plan.expand import Edge, GroupPlan, prompt_texts
from headway.core.plan.hazard import Survey
from headway.core.plan.links import Link, without
from headway.core.plan.paths import above
from headway.core.plan.remark import Remark, listed, where, with_entry
from headway.core.plan.section import shown
from headway.core.plan.spec import Prompt, Python, TaskSpec
from headway.core.plan.template import references
from headway.core.plan.touched import Touched
from headway.errors import Fix

NOTES_MAX: Final = 100
"""Paths of one plan that are told to be read by nobody."""

LATER_MAX: Final = 20
"""Tasks behind another that are thought of as its readers."""

GATES_MAX: Final = 20
"""Needs of one plan that are looked at and told: each is compared with all that is touched."""


def nobody_reads(survey: Survey, told: frozenset[str]) -> Iterator[Remark]:
    """Notes on paths that are written and that no other task reads, but for those told already.

    What is put there by `output` is meant for people; what a task writes itself may be, too.
    """
    unread = (
        (group, number)
        for group in survey.expanded.groups
        for number, text in enumerate(group.task.writes)
        if text not in told and text in group.task.paths_written
        if not _is_read(survey, group, text)
    )
    users: dict[int, list[GroupPlan]] = {}
    for group in filter(_opens_files, survey.expanded.groups):
        for edge in group.edges:
            users.setdefault(edge.group, []).append(group)
    left: list[tuple[GroupPlan, int]] = []
    for group, number in islice(unread, NOTES_MAX):
        likely = users.get(group.index) or _silent(survey, group)
        if likely:
            yield _unread(survey, (group, number), likely)
        else:
            left.append((group, number))
    if left:
        yield _left(survey, left)


def _silent(survey: Survey, group: GroupPlan) -> list[GroupPlan]:
    """Tasks behind another one that wait for nobody and do not say what they read."""
    later = survey.expanded.groups[group.index + 1 : group.index + 1 + LATER_MAX]
    return [
        one for one in later if one.task.state_reads is None and not one.edges and _opens_files(one)
    ]


def _opens_files(group: GroupPlan) -> bool:
    """A prompt sees nothing but its text."""
    return not isinstance(group.task.work, Prompt)


def _is_read(survey: Survey, group: GroupPlan, text: str) -> bool:
    """Whether another task reads one of the paths, something in it or something around it."""
    reads = survey.touched.reads
    for _, path in filled(group, text):
        for one in (path, *above(path)):
            if any(reader != group.index for reader in reads.get(one, ())):
                return True
        if any(reader != group.index for reader in survey.touched.below(path)[0]):
            return True
    return False


def _unread(survey: Survey, what: tuple[GroupPlan, int], likely: list[GroupPlan]) -> Remark:
    """What one of these might read after all."""
    group, number = what
    text = group.task.writes[number]
    names = listed([one.name for one in likely])
    detail = "it is taken for something that the plan leaves behind"
    if not likely[0].edges:
        detail += f"; {names} would not wait for it"
    fixes = (with_entry(likely[0].task, "reads", text),) if len(likely) == 1 else ()
    return Remark(
        "note",
        "nobody reads",
        group.name,
        f"`{group.name}` writes `{shown(text)}`, which no task reads",
        detail,
        f"if {names} reads it, add `reads: {shown(text)}` there",
        fixes,
        _place(survey, group, number),
        text,
    )


def _left(survey: Survey, left: list[tuple[GroupPlan, int]]) -> Remark:
    """What nobody can be thought to read."""
    texts = [shown(group.task.writes[number]) for group, number in left]
    group, number = left[0]
    message = f"no task reads {listed(texts)}: taken for what the plan leaves behind"
    place = _place(survey, group, number)
    name = group.name if len(left) == 1 else ""
    return Remark("note", "nobody reads", name, message, where=place, what=texts[0])


def _place(survey: Survey, group: GroupPlan, number: int) -> str:
    spots = dict(group.task.spots)
    spot = spots.get(f"writes.{number}") or group.task.spot("writes")
    return where(survey.expanded.spec.file, spot.value)


def carries_nothing(survey: Survey) -> Iterator[Remark]:
    """Notes on needs by which nothing gets from one task to the other, as far as both declare.

    Such a need may be a gate: deploy if the tests have passed. So it is a note and no more.
    """
    looked = 0
    for group in survey.expanded.groups:
        for edge in group.edges:
            if looked < GATES_MAX and _may_be_idle(survey, group, edge):
                looked += 1
                if not _meet(survey, edge.group, group.index):
                    yield _idle(survey, group, survey.expanded.groups[edge.group])


def _may_be_idle(survey: Survey, group: GroupPlan, edge: Edge) -> bool:
    """A need between tasks that say all that they touch, of which no result is used."""
    needed = survey.expanded.groups[edge.group]
    if edge.key != "needs" or not (_says_all(group.task) and _says_all(needed.task)):
        return False
    if isinstance(group.task.work, Python) or needed.name in _used(survey, group):
        return False
    return not any(one.group == edge.group and one.key != "needs" for one in group.edges)


def _says_all(task: TaskSpec) -> bool:
    return task.state_reads is not None and task.state_writes is not None


def _used(survey: Survey, group: GroupPlan) -> set[str]:
    """The tasks whose results its texts name."""
    task = group.task
    texts = [value for _, value in task.vars if isinstance(value, str)]
    texts += prompt_texts(survey.expanded, group)
    return {ref.task for text in texts for _, ref in references(text)}


def _meet(survey: Survey, before: int, after: int) -> bool:
    """Whether one of those up to a need writes what one of those from it on touches, or reads so.

    The need may be what keeps them in order.
    """
    order = survey.order
    first = order.somehow[before] | 1 << before
    second = 1 << after
    for index, mask in enumerate(order.somehow):
        second |= (mask >> after & 1) << index
    return any(_share(touched, first, second) for touched in (survey.touched, survey.state.keys))


def _share(touched: Touched, first: int, second: int) -> bool:
    """Whether a group of one set writes what a group of the other touches; sets are bits."""
    for path, writers in touched.writes.items():
        around = [
            entries[one]
            for one in (path, *above(path))
            for entries in (touched.reads, touched.writes)
            if one in entries
        ]
        others = [*around, *touched.below(path)]
        for one, other in ((first, second), (second, first)):
            if _has(one, writers) and any(_has(other, groups) for groups in others):
                return True
    return False


def _has(mask: int, groups: Iterable[int]) -> bool:
    return any(mask >> group & 1 for group in groups)


def _idle(survey: Survey, group: GroupPlan, needed: GroupPlan) -> Remark:
    fix: Fix = without(group.task, Link(needed.name, "needs"))
    return Remark(
        "note",
        "carries nothing",
        group.name,
        f"`{group.name}` needs `{needed.name}`, and nothing gets from one to the other",
        "no result is used and no path is shared: without the need they could run at once",
        f"remove `{needed.name}` from `needs`, unless it is a gate",
        (fix,),
        where(survey.expanded.spec.file, group.task.spot("needs").value),
    )
