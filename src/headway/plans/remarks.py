"""Where each value that a task reads comes from, and values that are never read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, Literal

from headway.errors import Fix, nearest
from headway.plans.expand import GroupPlan, NeedEdge, prompt_paths, results_used
from headway.plans.hazards import Remark, Severity, Survey, filled, listed
from headway.plans.resources import WILD, above, fixed_part, inside
from headway.plans.section import shown, where
from headway.plans.spec import CommandSpec, Prompt, Python, text_of
from headway.plans.template import Template

# Paths that the text of a command names: what it reads or writes, as far as one can see that.

COMMAND_CHARS_MAX: Final = 20_000
"""Of a longer command only the beginning is looked at."""

MEMBERS_SEEN_MAX: Final = 100
"""Members whose command is looked at: they have the same one, with other values."""

_WORD: Final = re.compile(
    r"(?P<to>\d?>>?\|?|&>>?)?(?P<of><)?[ \t]*"
    r"""(?P<quote>["']?)(?P<path>[^\s"'<>|&;()`=,]+)(?P=quote)"""
)
_VALUE: Final = re.compile(r"\$(?:\{(?P<in>[a-z][a-z0-9_]*)\}|(?P<name>[a-z][a-z0-9_]*))")
_MOVES: Final = re.compile(r"(?:^|[\s;&|(])(?:cd|pushd)\s|<<")
"""Paths after these are relative to something else, or are no paths."""

How = Literal["writes", "reads", "names"]
"""It is redirected to | or from | an argument, whatever the command does with it."""


Mention = tuple[int, str, How]
"""A member, a path that its command names, and how."""


def mentions(group: GroupPlan) -> Iterator[Mention]:
    """The paths that a group's commands name, member by member."""
    work = group.task.work
    if not isinstance(work, CommandSpec) or group.members is None or _MOVES.search(work.command):
        return
    command = work.command[:COMMAND_CHARS_MAX]
    has_values = "$" in command
    for member in range(min(group.members.count, MEMBERS_SEEN_MAX if has_values else 1)):
        variable = partial(_variable, _values(group, member) if has_values else {})
        for found in _WORD.finditer(command):
            text = found["path"]
            how: How = "writes" if found["to"] else "reads" if found["of"] else "names"
            if "$" in text and found["quote"] != "'":
                text = _VALUE.sub(variable, text)
            if how != "names" or "/" in text or "." in text:
                path = None if text.startswith("-") else inside(text)
                if path and not any(char in path for char in f"{WILD}${{"):
                    yield member, path, how


def _variable(values: Mapping[str, str], found: re.Match[str]) -> str:
    return values.get(found["in"] or found["name"], "$")


def _values(group: GroupPlan, member: int) -> dict[str, str]:
    """The environment variables of a member, without those that need results of other tasks."""
    own = group.known.member(member)
    values = {"index": str(member), **{name: text_of(value) for name, value in own.matrix}}
    if group.known.items is not None:
        values["item"] = text_of(own.item)
    for name, value in group.vars.items():
        if not isinstance(value, Template):
            values[name] = text_of(value)
        elif not any(ref.task for ref in value.refs):
            values[name] = group.fill(value, own)
    return values


# What commands seem to touch without saying so: a path in the text that another task writes.

REMARKS_MAX: Final = 100
"""Remarks of one kind on one plan."""


_Seen = tuple[bool, bool, Mention, int, str, bool]
"""Whether both tasks are in order, whether it is no write, the mention of a path; the other task
that touches the path, the path as that one declares it, and whether it writes it."""


def undeclared(survey: Survey) -> Iterator[Remark]:
    """Remarks on paths that commands name and tasks do not declare, one for each task."""
    seen = {
        group.index: found for group in survey.expanded.groups if (found := tuple(mentions(group)))
    }
    writes = _written(survey, seen)
    for index, found in seen.items():
        mentioned = dict.fromkeys(found)
        if every := [one for some in mentioned for one in _others(survey, index, some, writes)]:
            # A hazard before the rest, a write before a read.
            yield _remark(survey, index, min(every, key=lambda one: one[:2]))


def _written(survey: Survey, seen: Mapping[int, tuple[Mention, ...]]) -> Mapping[str, set[int]]:
    """Which groups write what, or something in it, by what is declared and by what is shown."""
    writes: dict[str, set[int]] = {}
    named = {path for found in seen.values() for _, path, _ in found}
    for path, groups in survey.touched.writes.items() if seen else ():
        writes.setdefault(path, set()).update(groups)
        for outer in above(path):
            if outer in named:
                writes.setdefault(outer, set()).update(groups)
    for index, found in seen.items():
        for _, path, how in found:
            if how == "writes":
                writes.setdefault(path, set()).add(index)
    return writes


def _others(
    survey: Survey, index: int, mention: Mention, writes: Mapping[str, set[int]]
) -> Iterator[_Seen]:
    """Those who touch what a task's command names and the task does not declare.

    They write it; of what the command writes, they may read it, too. Where both are in order it
    counts only if the command redirects and the other one says what it shares.
    """
    _, path, how = mention
    touched, entirely, groups = survey.touched, survey.order.entirely, survey.expanded.groups
    around = (path, *above(path))
    # A task that writes a path may read it, too.
    is_declared = any(index in touched.writes.get(one, ()) for one in around)
    if how != "writes":
        is_declared |= index in writes.get(path, ())
        is_declared |= any(index in touched.reads.get(one, ()) for one in around)
    for one in () if is_declared else around:
        others = [(other, True) for other in sorted(writes.get(one, ()))]
        if how == "writes":
            others += [(other, False) for other in sorted(touched.reads.get(one, ()))]
        for other, is_write in others:
            task = groups[other].task
            is_ordered = bool(entirely[index] >> other & 1 or entirely[other] >> index & 1)
            is_sure = how != "names" and bool(
                (task.writes or task.output) if is_write else task.reads
            )
            if other != index and (is_sure or not is_ordered):
                yield is_ordered, how != "writes", mention, other, one, is_write


def _remark(survey: Survey, index: int, seen: _Seen) -> Remark:
    is_ordered, is_read, (member, path, how), other_index, declared, is_write = seen
    group, other = survey.expanded.groups[index], survey.expanded.groups[other_index]
    key: Literal["reads", "writes"] = "reads" if is_read else "writes"
    who = f"`{group.label(member)}`"
    verb = "writes" if is_write else "reads"
    detail = f"`{other.name}` {verb} it; as long as the other needs stay, they are in order"
    if not is_ordered and is_read:
        detail = f"`{other.name}` writes it: if {who} runs first, it reads the old version"
    elif not is_ordered:
        detail = f"if {who} runs first, `{other.name}` overwrites it"
        if not is_write:
            detail = f"if `{other.name}` runs first, it reads the version from before the run"
    message = f"the command of {who} {how} `{shown(path)}`, and `{group.name}` does not declare it"
    hint = f"add `{key}: {shown(declared)}` to `{group.name}`"
    fixes = (group.task.extend(key, declared),)
    place = where(survey.expanded.spec.file, group.task.spot("run").value)
    level: Severity = "note" if is_ordered and is_read else "warning"
    return Remark(level, "undeclared", group.name, message, detail, hint, fixes, place, declared)


# Declarations without use: writes that no task reads, needs that carry nothing.

LATER_MAX: Final = 20
"""Tasks behind another that are thought of as its readers."""

GATES_MAX: Final = 20
"""Needs of one plan that are looked at and told: each is compared with all that is touched."""


def nobody_reads(survey: Survey, told: frozenset[str]) -> Iterator[Remark]:
    """Notes on declared writes that no other task reads, but for those that were told already."""
    unread = (
        (group, number)
        for group in survey.expanded.groups
        for number, text in enumerate(group.task.writes)
        if text not in told and text in group.task.paths_written
        if not _is_read(survey, group, text)
    )
    # A prompt sees nothing but its text.
    readers = [one for one in survey.expanded.groups if not isinstance(one.task.work, Prompt)]
    left: list[tuple[GroupPlan, int]] = []
    for group, number in islice(unread, REMARKS_MAX):
        index = group.index
        users = [one for one in readers if any(edge.group == index for edge in one.edges)]
        # Tasks not far behind it that wait for none and do not say what they read.
        silent = [
            one
            for one in readers
            if index < one.index <= index + LATER_MAX
            if one.task.state_reads is None and not one.edges
        ]
        if likely := users or silent:
            yield _unread(survey, group, number, likely)
        else:
            left.append((group, number))
    if left:
        yield _left(survey, left)


def _is_read(survey: Survey, group: GroupPlan, text: str) -> bool:
    """Whether another task reads one of the paths, something in it or something around it."""
    return any(
        reader != group.index
        for _, path in filled(group, text)
        for readers in survey.touched.overlapping(path, False)
        for reader in readers
    )


def _unread(survey: Survey, group: GroupPlan, number: int, likely: list[GroupPlan]) -> Remark:
    text = group.task.writes[number]
    names = listed([one.name for one in likely])
    detail = "it is taken for something that the plan leaves behind"
    if not likely[0].edges:
        detail += f"; {names} would not wait for it"
    fixes = (likely[0].task.extend("reads", text),) if len(likely) == 1 else ()
    message = f"`{group.name}` writes `{shown(text)}`, which no task reads"
    hint = f"if {names} reads it, add `reads: {shown(text)}` there"
    place = _place(survey, group, number)
    return Remark("note", "nobody reads", group.name, message, detail, hint, fixes, place, text)


def _left(survey: Survey, left: list[tuple[GroupPlan, int]]) -> Remark:
    texts = [shown(group.task.writes[number]) for group, number in left]
    group, number = left[0]
    message = f"no task reads {listed(texts)}: taken for what the plan leaves behind"
    place = _place(survey, group, number)
    name = group.name if len(left) == 1 else ""
    return Remark("note", "nobody reads", name, message, where=place, what=texts[0])


def _place(survey: Survey, group: GroupPlan, number: int) -> str:
    return where(survey.expanded.spec.file, group.task.spot(f"writes.{number}", "writes").value)


def carries_nothing(survey: Survey) -> Iterator[Remark]:
    """Notes on needs by which nothing gets from one task to the other: they may be gates."""
    looked = 0
    for group in survey.expanded.groups:
        for edge in group.edges:
            if looked < GATES_MAX and _may_be_idle(survey, group, edge):
                looked += 1
                if not _meet(survey, edge.group, group.index):
                    yield _idle(survey, group, survey.expanded.groups[edge.group])


def _may_be_idle(survey: Survey, group: GroupPlan, edge: NeedEdge) -> bool:
    """A need between tasks that say all that they touch, of which no result is used."""
    needed = survey.expanded.groups[edge.group]
    if edge.key != "needs" or not (group.task.says_all and needed.task.says_all):
        return False
    if isinstance(group.task.work, Python) or needed.name in results_used(survey.expanded, group):
        return False
    return not any(one.group == edge.group and one.key != "needs" for one in group.edges)


def _meet(survey: Survey, before: int, after: int) -> bool:
    """Whether tasks up to a need and tasks from it on share what one of them writes."""
    somehow = survey.order.somehow
    first = somehow[before] | 1 << before
    second = _bits(index for index, mask in enumerate(somehow) if mask >> after & 1) | 1 << after
    for touched in (survey.touched, survey.state.keys):
        for path, writers in touched.writes.items():
            mask = _bits(writers)
            if mask & (first | second):
                found = (touched.overlapping(path, is_write) for is_write in (False, True))
                others = _bits({group for some in found for groups in some for group in groups})
                if (mask & first and others & second) or (mask & second and others & first):
                    return True
    return False


def _bits(groups: Iterable[int]) -> int:
    return sum(1 << group for group in groups)


def _idle(survey: Survey, group: GroupPlan, needed: GroupPlan) -> Remark:
    message = f"`{group.name}` needs `{needed.name}`, and nothing gets from one to the other"
    detail = "no result is used and no path is shared: without the need they could run at once"
    hint = f"remove `{needed.name}` from `needs`, unless it is a gate"
    fixes = (group.task.exchange("needs", needed.name),)
    place = where(survey.expanded.spec.file, group.task.spot("needs").value)
    return Remark("note", "carries nothing", group.name, message, detail, hint, fixes, place)


Absent = Callable[[Sequence[str]], frozenset[str]]
"""Tells which of some paths are not there before the run."""


LOOKED_MAX: Final = 1_000
"""Written paths among which a misspelt one is looked for."""


def nobody_writes(survey: Survey, absent: Absent) -> Iterator[Remark]:
    """Remarks on reads that no task writes before and that are not there."""
    for group in survey.expanded.groups:
        for text in group.task.paths_read:
            members: dict[str, int] = {}
            for member, path in filled(group, text):
                members.setdefault(path, member)
            wanted = [path for path in members if not _is_written(survey, group.index, path)]
            gone = absent(wanted) if wanted else frozenset()
            missing = [(members[path], path) for path in wanted if path in gone]
            if missing:
                yield _absent(survey, group, text, missing)


def _is_written(survey: Survey, reader: int, path: str) -> bool:
    """Whether a task before the reader writes a path, something in it or something around it."""
    before = survey.order.somehow[reader]
    return any(
        before >> writer & 1
        for writers in survey.touched.overlapping(path, True)
        for writer in writers
    )


def _absent(survey: Survey, group: GroupPlan, text: str, missing: list[tuple[int, str]]) -> Remark:
    member, path = missing[0]
    who = group.label(member) if member >= 0 else group.name
    more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
    message = f"`{who}` reads `{shown(path)}`{more}, which no task writes before and is not there"
    hint, fixes = _way_out(survey, group, text, path)
    spot = group.task.spot(f"reads.{group.task.reads.index(text)}", "reads")
    place, detail = where(survey.expanded.spec.file, spot.value), "it would find nothing there"
    return Remark("warning", "nobody writes", group.name, message, detail, hint, fixes, place)


def _way_out(survey: Survey, group: GroupPlan, text: str, path: str) -> tuple[str, tuple[Fix, ...]]:
    """The path that was probably meant, or the task that probably writes it."""
    task = group.task
    folder = path.rpartition("/")[0]
    some = islice(survey.touched.writes, LOOKED_MAX)
    written = [one for one in some if one.rpartition("/")[0] == folder]
    if near := nearest(path, written, 0.8):
        return f"did you mean `{shown(near)}`?", (task.exchange("reads", text, near),)
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
        return hint, (writer.task.extend("writes", text),)
    return f"add `writes: {shown(text)}` to the task that writes it", ()


def read_too_early(survey: Survey) -> Iterator[Remark]:
    """Remarks on prompts, schemas and lists of items that a task of the same plan writes."""
    for group in survey.expanded.groups:
        task = group.task
        each = task.each
        named = [("prompt_file", path) for path in prompt_paths(group)]
        if each is not None and each.kind == "lines":
            named.append(("each", each.source))
        for key, path in named:
            at = inside(path) or ""
            writers = (survey.touched.writes.get(one, ()) for one in (at, *above(at)))
            others = [one for some in writers for one in some if one != group.index]
            if others:
                yield _early(survey, group, key, path, others[0])
                break
        if each is not None and each.kind == "glob":
            yield from _new_files(survey, group, each.source)


def _new_files(survey: Survey, group: GroupPlan, pattern: str) -> Iterator[Remark]:
    """A task writes into the folder of a pattern what was not there when it was read."""
    items = set(survey.expanded.sources.globs.get(pattern, ()))
    folder = inside(fixed_part(pattern)) or ""
    before = survey.order.somehow[group.index]
    for path, writers in survey.touched.writes.items() if folder else ():
        if path not in items and (path == folder or path.startswith(folder + "/")):
            for writer in writers:
                if before >> writer & 1:
                    yield _early(survey, group, "each", path, writer)
                    return


def _early(survey: Survey, group: GroupPlan, key: str, path: str, writer: int) -> Remark:
    name = survey.expanded.groups[writer].name
    what = f"the items of `{group.name}` are"
    hint = f"give them as the result of `{name}`: `each: {name}`"
    if key == "prompt_file":
        what = f"the prompt of `{group.name}` is"
        hint = f"give the text as a result: `needs: {name}` and `{{{{ tasks.{name}.output }}}}`"
    message = f"{what} read before the run, and `{name}` writes `{shown(path)}`"
    detail = f"`{group.name}` uses what was there before, whatever `{name}` writes"
    place = where(survey.expanded.spec.file, group.task.spot(key).value)
    return Remark("warning", "read too early", group.name, message, detail, hint, (), place)
