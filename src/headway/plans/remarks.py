"""Where each value that a task reads comes from, and values that are never read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Literal

from msgspec import Struct

from headway.errors import Fix, nearest
from headway.plans.command_files import (
    UNKNOWN,
    CommandFiles,
    FileMention,
    files_of,
    folder_of,
    is_wild,
    meets,
)
from headway.plans.expand import GroupPlan, NeedEdge, prompt_paths, results_used
from headway.plans.hazards import Remark, Severity, Survey, filled, listed
from headway.plans.resources import above, fixed_part, inside
from headway.plans.section import shown, where
from headway.plans.spec import CommandSpec, Prompt, Python, text_of
from headway.plans.template import Template

# Files that commands seem to touch without saying so.

COMMAND_CHARS_MAX: Final = 20_000
"""Of a longer command only the beginning is looked at."""

MEMBERS_SEEN_MAX: Final = 100
"""Members whose command is looked at: they have the same one, with other values."""

REMARKS_MAX: Final = 100
"""Remarks of one kind on one plan."""

Absent = Callable[[Sequence[str]], frozenset[str]]
"""Tells which of some paths are not there before the run."""


def files_named(group: GroupPlan, absent: Absent) -> Iterator[tuple[int, FileMention]]:
    """The files that a group's commands name, member by member."""
    for member, found in _commands(group):
        made = [one.path for one in found.mentions if one.is_made]
        missing = absent(made) if made else frozenset()
        for one in dict.fromkeys(found.mentions):
            if not one.is_made or one.path in missing:
                yield member, one


def _commands(group: GroupPlan) -> Iterator[tuple[int, CommandFiles]]:
    work = group.task.work
    if not isinstance(work, CommandSpec) or group.members is None:
        return
    command = work.command[:COMMAND_CHARS_MAX]
    has_values = "$" in command
    for member in range(min(group.members.count, MEMBERS_SEEN_MAX if has_values else 1)):
        yield member, files_of(command, _values(group, member) if has_values else {})


def unknown_files(survey: Survey, group: GroupPlan) -> str:
    """Why it is not known what a task that declares too little reads and writes; empty if it is,
    or if it has files of its own, which land in declared order."""
    task = group.task
    made = survey.expanded.spec.workspace_of(task)
    if made is not None and made.land != "merge":
        return ""
    if task.says_all or (isinstance(task.work, Prompt) and task.work.agent is None):
        return ""
    if isinstance(task.work, Python):
        return f"function {task.work.target}"
    if isinstance(task.work, Prompt):
        return f"agent {task.work.agent}"
    if len(task.work.command) > COMMAND_CHARS_MAX:
        return "a long command"
    if group.members is None:
        return "members that are found at run time" if "$" in task.work.command else ""
    return next((found.unknown for _, found in _commands(group) if found.unknown), "")


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


class _Use(Struct, frozen=True):
    """A group's member that touches a path: by its command, or as it is declared."""

    group: int
    member: int
    mention: FileMention
    is_declared: bool = False

    @property
    def is_write(self) -> bool:
        return self.mention.how == "writes"


class _Uses:
    """Everything that a plan's tasks touch, by the folder before the first wildcard."""

    def __init__(self, survey: Survey, absent: Absent) -> None:
        self.commands = {
            group.index: [_Use(group.index, *one) for one in files_named(group, absent)]
            for group in survey.expanded.groups
        }
        self._at: dict[str, list[_Use]] = {}
        for uses in self.commands.values():
            for use in uses:
                self._at.setdefault(folder_of(use.mention.path), []).append(use)
        for entries, how in ((survey.touched.reads, "reads"), (survey.touched.writes, "writes")):
            for path, groups in entries.items() if self._at else ():
                mention = FileMention(path, "writes" if how == "writes" else "reads", is_tree=True)
                self._at.setdefault(path, []).extend(
                    _Use(group, -1, mention, is_declared=True) for group in groups
                )
        self._paths = sorted(self._at)

    def meeting(self, use: _Use) -> Iterator[_Use]:
        """What other groups do with the same files, if one of both changes them."""
        path = folder_of(use.mention.path)
        for one in (path, *above(path)):
            yield from self._met(use, one)
        if path:
            first = bisect_left(self._paths, f"{path}/")
            last = bisect_left(self._paths, f"{path}0")  # The character after the slash.
        else:
            first, last = bisect_left(self._paths, "\x01"), len(self._paths)
        for one in self._paths[first:last]:
            yield from self._met(use, one)

    def _met(self, use: _Use, path: str) -> Iterator[_Use]:
        for other in self._at.get(path, ()):
            if other.group == use.group or not (use.is_write or other.is_write):
                continue
            if meets(use.mention, other.mention) and not self._is_own_folder(use, other):
                yield other

    def _is_own_folder(self, use: _Use, other: _Use) -> bool:
        """Both make the folder, or the one that works in it makes it itself."""
        for maker, worker in ((use, other), (other, use)):
            made = maker.mention
            if made.is_made and any(
                one.mention.is_made and one.mention.path == made.path
                for one in self.commands.get(worker.group, ())
            ):
                return True
        return False


_Clash = tuple[bool, bool, _Use, _Use]
"""Whether both are in order, whether it is no write; what the command does, and the other one."""


def undeclared(survey: Survey, absent: Absent) -> Iterator[Remark]:
    """Remarks on files that commands touch and tasks do not declare, one for each task."""
    uses = _Uses(survey, absent)
    for index, own in uses.commands.items():
        found = [one for use in own for one in _clashes(survey, uses, use)]
        if found:
            # A hazard before the rest, a write before a read.
            first = min(found, key=lambda one: one[:2])
            yield _remark(survey, first, [other.group for *_, other in found])
        elif (use := _among_members(survey, index, own)) is not None:
            yield _members_remark(survey, use)


def _clashes(survey: Survey, uses: _Uses, use: _Use) -> Iterator[_Clash]:
    """Those who touch what a task's command names and the task does not declare."""
    index, path, touched = use.group, use.mention.path, survey.touched
    around = (path, *above(path))
    # A task that writes a path may read it, too.
    is_declared = any(index in touched.writes.get(one, ()) for one in around)
    if not use.is_write:
        is_declared |= any(index in touched.reads.get(one, ()) for one in around)
        is_declared |= any(o.is_write and o.mention.path == path for o in uses.commands[index])
    for other in () if is_declared else uses.meeting(use):
        task = survey.expanded.groups[other.group].task
        is_ordered = survey.order.has(other.group, index, other.member, use.member)
        if UNKNOWN in path and UNKNOWN in other.mention.path:
            # Members that follow members make the same of the same item.
            is_ordered |= survey.order.precedes(other.group, index)
        is_sure = other.is_declared and use.mention.how in ("writes", "reads")
        if is_ordered and not (is_sure and (task.writes or task.output or not other.is_write)):
            continue
        if not is_ordered and not other.is_declared and other.group > index:
            continue  # It is told of the later one.
        yield is_ordered, not use.is_write, use, other


def _remark(survey: Survey, clash: _Clash, others: Sequence[int]) -> Remark:
    is_ordered, is_read, use, seen = clash
    groups = survey.expanded.groups
    group, other = groups[use.group], groups[seen.group]
    path, how = use.mention.path.replace(UNKNOWN, "*"), use.mention.how
    key: Literal["reads", "writes"] = "reads" if is_read else "writes"
    who = f"`{group.label(use.member)}`"
    verb = seen.mention.how
    detail = f"`{other.name}` {verb} it; as long as the other needs stay, they are in order"
    if not is_ordered and is_read:
        detail = f"`{other.name}` writes it: if {who} runs first, it reads the old version"
    elif not is_ordered:
        detail = f"if {who} runs first, `{other.name}` overwrites it"
        if not seen.is_write:
            detail = f"if `{other.name}` runs first, it reads the version from before the run"
            if other.index < group.index and not seen.is_declared:
                detail = f"`{other.name}` {verb} it: if {who} runs first, it reads the new version"
    message = f"the command of {who} {how} `{shown(path)}`, and `{group.name}` does not declare it"
    if seen.is_declared:
        declared = path if seen.mention.path.startswith(f"{path}/") else seen.mention.path
        hint = f"add `{key}: {shown(declared)}` to `{group.name}`"
        fixes = (group.task.extend(key, declared),)
    else:
        names = tuple(dict.fromkeys(groups[one].name for one in others if one < group.index))
        every = names[0] if len(names) == 1 else f"[{', '.join((*group.task.needs, *names))}]"
        hint = f"add `needs: {every}` to `{group.name}`"
        fixes = (group.task.extend("needs", *names),)
    place = where(survey.expanded.spec.file, group.task.spot("run").value)
    level: Severity = "note" if is_ordered and is_read else "warning"
    if how == "searches":
        message = f"whether {who} finds something else in `{shown(path)}` is not judged"
        detail = f"`{other.name}` writes there: `headway explore` tries it"
        return Remark("note", "not judged", group.name, message, detail, hint, fixes, place, path,
                      other.name)  # fmt: skip
    what = declared if seen.is_declared else path
    return Remark(level, "undeclared", group.name, message, detail, hint, fixes, place, what,
                  other.name)  # fmt: skip


def _among_members(survey: Survey, index: int, own: Sequence[_Use]) -> _Use | None:
    """What one member's command writes and that of another one touches."""
    group = survey.expanded.groups[index]
    if group.count == 1 or group.task.queue or survey.expanded.spec.workspace_of(group.task):
        return None
    seen: dict[str, int] = {}
    are_alike = len({use.member for use in own}) == 1
    for use in sorted(own, key=lambda one: not one.is_write):
        path = use.mention.path
        if is_wild(path) or use.mention.is_made:
            continue
        if use.is_write and (are_alike or seen.setdefault(path, use.member) != use.member):
            return use
        if not use.is_write and seen.get(path, use.member) != use.member:
            return use
    return None


def _members_remark(survey: Survey, use: _Use) -> Remark:
    group = survey.expanded.groups[use.group]
    path, how, name = shown(use.mention.path), use.mention.how, group.name
    message = f"the command of `{group.label(use.member)}` {how} `{path}`, as others of `{name}` do"
    detail = "if they run at once, what one of them writes may be lost, or read half done"
    hint = f"add `queue: {name}`, so that they run one at a time, or give each a path of its own"
    fixes = (Fix("add", group.task.body, "queue", name),)
    place = where(survey.expanded.spec.file, group.task.spot("run").value)
    return Remark("warning", "undeclared", name, message, detail, hint, fixes, place, path)


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
    return Remark("note", "never read", group.name, message, detail, hint, fixes, place, text)


def _left(survey: Survey, left: list[tuple[GroupPlan, int]]) -> Remark:
    texts = [shown(group.task.writes[number]) for group, number in left]
    group, number = left[0]
    message = f"no task reads {listed(texts)}: taken for what the plan leaves behind"
    place = _place(survey, group, number)
    name = group.name if len(left) == 1 else ""
    return Remark("note", "never read", name, message, where=place, what=texts[0])


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


def _uses_files(group: GroupPlan) -> bool:
    return group.task.is_command or isinstance(group.task.work, Python)


def outside_workspaces(survey: Survey) -> Iterator[Remark]:
    """Remarks on tasks that work on the user's files and come after tasks in workspaces."""
    spec, groups = survey.expanded.spec, survey.expanded.groups
    for group in groups:
        task = group.task
        if spec.workspace_of(task) is not None or not _uses_files(group):
            continue
        others = [edge for edge in group.edges if spec.workspace_of(groups[edge.group].task)]
        if not others:
            continue
        name = groups[others[0].group].name
        # What is given a result may need no more than that.
        is_given = isinstance(task.work, Python) or any(
            edge.key in ("each", "reduce") for edge in others
        )
        is_given |= name in results_used(survey.expanded, group)
        message = (
            f"`{group.name}` works in the user's folder, where what `{name}` did to files is not"
        )
        detail = f"`{name}` has a workspace; what it did is there after `headway results --apply`"
        hint = f"add `workspace: on` to `{group.name}`, so that it sees files as `{name}` left them"
        fixes = (Fix("add", task.body, "workspace", "on"),) if "workspace" not in task.spots else ()
        level: Severity = "note" if is_given else "warning"
        place = where(spec.file, task.place)
        yield Remark(level, "outside workspaces", group.name, message, detail, hint, fixes, place)


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
    return Remark("warning", "never written", group.name, message, detail, hint, fixes, place)


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


def read_too_early(survey: Survey, absent: Absent) -> Iterator[Remark]:
    """Remarks on prompts, schemas and lists of items that a task of the same plan writes."""
    written = {path: [*groups] for path, groups in survey.touched.writes.items()}
    if any(_reads_before(group) for group in survey.expanded.groups):
        for group in survey.expanded.groups:
            for _, one in files_named(group, absent):
                if one.how == "writes" and not is_wild(one.path):
                    written.setdefault(one.path, []).append(group.index)
    for group in survey.expanded.groups:
        task = group.task
        each = task.each
        named = [("prompt_file", path) for path in prompt_paths(group)]
        if each is not None and each.kind in ("lines", "rows"):
            named.append(("each", each.source))
        for key, path in named:
            at = inside(path) or ""
            writers = (written.get(one, ()) for one in (at, *above(at)))
            others = [one for some in writers for one in some if one != group.index]
            if others:
                yield _early(survey, group, key, path, others[0])
                break
        if each is not None and each.kind == "glob":
            yield from _new_files(survey, group, each.source)


def _reads_before(group: GroupPlan) -> bool:
    each = group.task.each
    return bool(prompt_paths(group)) or (each is not None and each.kind in ("lines", "rows"))


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
