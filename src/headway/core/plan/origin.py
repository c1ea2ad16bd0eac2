"""Where what a task reads comes from: a task before it, the disk before the run, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final

from headway.core.plan.clash import filled
from headway.core.plan.expand import GroupPlan, prompt_paths
from headway.core.plan.hazard import Survey
from headway.core.plan.paths import above, fixed_part, inside
from headway.core.plan.remark import Remark, where, with_entry
from headway.core.plan.section import shown
from headway.errors import Fix

Absent = Callable[[Sequence[str]], frozenset[str]]
"""Tells which of some paths are not there before the run."""


def nothing_absent(paths: Sequence[str]) -> frozenset[str]:
    """Whoever does not look takes all of them to be there."""
    del paths
    return frozenset()


REMARKS_MAX: Final = 100
"""Of one kind that are told of one plan."""

LOOKED_MAX: Final = 1_000
"""Written paths among which a misspelt one is looked for."""

NEAR_MAX: Final = 100
"""Written paths that a misspelt one is compared with: those in the same folder."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A path that has to be there before the run, because no task before its reader writes it."""

    group: int
    text: str
    """As declared."""
    members: tuple[tuple[int, str], ...]
    """Who reads it, and the path for each."""


def wanted(survey: Survey) -> tuple[Wanted, ...]:
    """All paths that nobody writes before they are read."""
    found: list[Wanted] = []
    for group in survey.expanded.groups:
        for text in group.task.paths_read:
            known: dict[str, bool] = {}
            missing: list[tuple[int, str]] = []
            for member, path in filled(group, text):
                if path not in known:
                    known[path] = _is_written(survey, group.index, path)
                    if not known[path]:
                        missing.append((member, path))
            if missing:
                found.append(Wanted(group.index, text, tuple(missing)))
    return tuple(found)


def _is_written(survey: Survey, reader: int, path: str) -> bool:
    """Whether a task before the reader writes a path, something in it or something around it."""
    touched, before = survey.touched, survey.order.somehow[reader]
    for one in (path, *touched.around(path)):
        if any(before >> writer & 1 for writer in touched.writes.get(one, ())):
            return True
    return any(before >> writer & 1 for writer in touched.below(path)[1])


def nobody_writes(survey: Survey, absent: Absent) -> Iterator[Remark]:
    """Remarks on reads that no task writes before and that are not there."""
    every = wanted(survey)
    paths = dict.fromkeys(path for one in every for _, path in one.members)
    gone = absent(list(paths)) if paths else frozenset()
    told = 0
    for one in every if gone else ():
        missing = [(member, path) for member, path in one.members if path in gone]
        if missing and told < REMARKS_MAX:
            told += 1
            yield _absent(survey, one, missing)


def _absent(survey: Survey, one: Wanted, missing: list[tuple[int, str]]) -> Remark:
    group = survey.expanded.groups[one.group]
    member, path = missing[0]
    who = group.label(member) if member >= 0 else group.name
    more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
    message = f"`{who}` reads `{shown(path)}`{more}, which no task writes before and is not there"
    hint, fixes = _way_out(survey, group, one.text, path)
    place = group.task.spot("reads").value
    inner = f"reads.{group.task.reads.index(one.text)}"
    place = dict(group.task.spots)[inner].value if inner in dict(group.task.spots) else place
    return Remark(
        "warning", "nobody writes", group.name, message, "it would find nothing there", hint, fixes,
        where(survey.expanded.spec.file, place),
    )  # fmt: skip


def _way_out(survey: Survey, group: GroupPlan, text: str, path: str) -> tuple[str, tuple[Fix, ...]]:
    """The path that was probably meant, or the task that probably writes it."""
    task = group.task
    folder = path.rpartition("/")[0]
    written = [one for one in _some(survey) if one.rpartition("/")[0] == folder]
    near = get_close_matches(path, written[:NEAR_MAX], n=1, cutoff=0.8)
    if near:
        value = tuple(near[0] if one == text else one for one in task.reads)
        fix = Fix("replace", task.spot("reads").value, value=value if len(value) > 1 else value[0])
        return f"did you mean `{shown(near[0])}`?", (fix,)
    before = [
        other
        for other in survey.expanded.groups[max(0, group.index - LOOKED_MAX) : group.index]
        if other.task.state_writes is None and not (other.task.output or other.task.output_key)
    ]
    needed = [other for other in before if survey.order.somehow[group.index] >> other.index & 1]
    likely = needed or before
    if len(likely) == 1 and group.count == 1:
        writer = likely[0]
        hint = f"if `{writer.name}` writes it, add `writes: {shown(text)}` to `{writer.name}`"
        return hint, (with_entry(writer.task, "writes", text),)
    return f"add `writes: {shown(text)}` to the task that writes it", ()


def _some(survey: Survey) -> list[str]:
    return list(islice(survey.touched.writes, LOOKED_MAX))


def read_too_early(survey: Survey) -> Iterator[Remark]:
    """Remarks on prompts, schemas and lists of items that a task of the same plan writes."""
    for group in survey.expanded.groups:
        task = group.task
        each = task.each
        named = [("prompt_file", path) for path in prompt_paths(group)]
        if each is not None and each.kind == "lines":
            named.append(("each", each.source))
        for key, path in named:
            writer = _writer(survey, group.index, inside(path) or "")
            if writer is not None:
                yield _early(survey, group, key, path, writer)
                break
        if each is not None and each.kind == "glob":
            yield from _new_files(survey, group, each.source)


def _writer(survey: Survey, reader: int, path: str) -> int | None:
    for one in (path, *above(path)):
        for writer in survey.touched.writes.get(one, ()):
            if writer != reader:
                return writer
    return None


def _new_files(survey: Survey, group: GroupPlan, pattern: str) -> Iterator[Remark]:
    """Somebody writes into the folder of a pattern what was not there when it was read."""
    items = set(survey.expanded.sources.globs.get(pattern, ()))
    folder = inside(fixed_part(pattern)) or ""
    inner = {
        path: writers
        for path, writers in survey.touched.writes.items()
        if path not in items and (path == folder or path.startswith(folder + "/"))
    }
    for path, writers in inner.items():
        others = [one for one in writers if one != group.index]
        is_before = [one for one in others if survey.order.somehow[group.index] >> one & 1]
        if folder and is_before:
            yield _early(survey, group, "each", path, is_before[0])
            return


def _early(survey: Survey, group: GroupPlan, key: str, path: str, writer: int) -> Remark:
    name = survey.expanded.groups[writer].name
    what = f"the items of `{group.name}` are"
    hint = f"give them as the result of `{name}`: `each: {name}`"
    if key == "prompt_file":
        what = f"the prompt of `{group.name}` is"
        hint = f"give the text as a result: `needs: {name}` and `{{{{ tasks.{name}.output }}}}`"
    return Remark(
        "warning",
        "read too early",
        group.name,
        f"{what} read before the run, and `{name}` writes `{shown(path)}`",
        f"`{group.name}` uses what was there before, whatever `{name}` writes",
        hint,
        (),
        where(survey.expanded.spec.file, group.task.spot(key).value),
    )
