"""Files that tasks of a run used at the same time, or against the order of the plan.

Laws:
- Two tasks that nothing orders used a file at the same time, or against the order of the plan, one
  of them to write it: a lost update or a stale read. One after the other in that order: a hazard.
- Two tasks that only append to a file need no order.
- The same is said once for all members of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final, Literal

from msgspec import Struct

from headway.base.file_use import APPEND, DRAFT, MADE, READ, REMOVE, WRITE
from headway.plans.resources import ACTS, SCHEME, is_pattern, matches
from headway.state.shared import UNTOUCHED, Access

FindingKind = Literal["lost-update", "stale-read", "hazard", "unobserved"]

RIGHT: Final = ": right this time"
ERRORS: Final = frozenset({"lost-update", "stale-read"})
"""Kinds of findings that make the result of a run doubtful: its exit code is 1."""


class Finding(Struct, frozen=True):
    """Files that tasks used in no order, or that could not be observed."""

    kind: FindingKind
    task: str
    what: str
    """The path in the plan's folder."""
    other: str = ""
    """The other task."""
    words: str = ""
    fix: str = ""
    where: str = ""
    count: int = 1
    """Of how many tasks of the group the same is true."""


class FileUse(Struct, frozen=True):
    """How one task used a path of the folder, from when to when."""

    path: str
    from_s: float
    to_s: float
    use: int

    @property
    def is_write(self) -> bool:
        return bool(self.use & WRITING)


class TaskUse(Struct, frozen=True):
    """What one attempt used."""

    group: int
    member: int
    name: str
    files: tuple[FileUse, ...] = ()
    access: Access = UNTOUCHED
    """Of the shared state."""


Task = tuple[int, int]


class PlanFacts(Struct, frozen=True):
    """What the uses of files are judged by; all functions take a group and a member."""

    is_ordered: Callable[[Task, Task], bool]
    place: Callable[[int, int], int]
    """Of a task in the serial run."""
    item: Callable[[int, int], str] = lambda _group, _member: ""
    where: Callable[[int], str] = lambda _group: ""
    outputs: Callable[[int, int], tuple[str, ...]] = lambda _group, _member: ()
    """What headway itself writes for a task, as a plan writes it."""


WRITING: Final = WRITE | APPEND | REMOVE
_KINDS: Final = (WRITE | REMOVE, APPEND, READ)
DATABASE: Final = ("-journal", "-wal", "-shm")
"""Of a file beside which there is one of these, SQLite keeps the updates apart."""


class _Used(Struct):
    """How one task used one path in all of its attempts."""

    task: TaskUse
    place: int
    from_s: float
    to_s: float
    use: int

    def clashes(self, other: _Used) -> bool:
        """Whether one of them writes what the other uses; two that only append do not clash."""
        return bool((self.use | other.use) & WRITING) and not (
            self.use & ~MADE == APPEND and other.use & ~MADE == APPEND
        )


class _Clash(Struct, frozen=True):
    """Two tasks, in declared order, that used a path which one of them writes."""

    kind: FindingKind
    path: str
    first: _Used
    second: _Used


def findings(
    tasks: Sequence[TaskUse], facts: PlanFacts, others: Iterable[TaskUse] = ()
) -> tuple[Finding, ...]:
    """What went wrong, then what went right by luck.

    `others` are attempts that gave no result: what they did to files counts all the same.
    """
    every = list(_clashes((*tasks, *others), facts))
    wrong = [one for one in every if one.kind in ERRORS]
    known = {(used.task.group, one.path) for one in wrong for used in (one.first, one.second)}
    lucky = [
        one
        for one in every
        if one.kind not in ERRORS
        and not any((used.task.group, one.path) in known for used in (one.first, one.second))
    ]
    return tuple(_told([*wrong, *lucky], facts))


def _clashes(tasks: Iterable[TaskUse], facts: PlanFacts) -> Iterator[_Clash]:
    """Pairs of tasks that nothing orders, one for each task that comes second in one."""
    paths: dict[str, dict[Task, _Used]] = {}
    for task in tasks:
        for one in task.files:
            by_task = paths.setdefault(one.path, {})
            known = by_task.get((task.group, task.member))
            if known is None:
                place = facts.place(task.group, task.member)
                used = _Used(task, place, one.from_s, one.to_s, one.use)
                by_task[task.group, task.member] = used
            else:
                known.from_s = min(known.from_s, one.from_s)
                known.to_s, known.use = max(known.to_s, one.to_s), known.use | one.use
    for path, by_task in paths.items():
        if path.endswith(DATABASE) or any(path + end in paths for end in DATABASE):
            continue
        every = list(by_task.values())
        # Who makes or removes a file changes what a listing of its folder gives.
        if any((one.use & MADE and not one.use & DRAFT) or one.use & REMOVE for one in every):
            listing = f"{path.rpartition('/')[0]}/*".removeprefix("/")
            every += [one for task, one in paths.get(listing, {}).items() if task not in by_task]
        if len(every) > 1 and any(one.use & WRITING for one in every):
            yield from _clashes_at(path, every, facts.is_ordered)


def _clashes_at(
    path: str, every: list[_Used], is_ordered: Callable[[Task, Task], bool]
) -> Iterator[_Clash]:
    """Each use with the one before it that it clashes with, if nothing orders them.

    Of those before it only the last to end and the last declared count, of each kind.
    """
    last: dict[tuple[int, bool], _Used] = {}
    for one in sorted(every, key=lambda used: (used.from_s, used.place)):
        mine = one.task.group, one.task.member
        lucky: _Used | None = None
        for other in last.values():
            if not one.clashes(other) or is_ordered(mine, (other.task.group, other.task.member)):
                continue
            if other.to_s > one.from_s or other.place > one.place:
                is_update = one.use & WRITING and other.use & WRITING
                kind: FindingKind = "lost-update" if is_update else "stale-read"
                pair = (other, one) if other.place < one.place else (one, other)
                yield _Clash(kind, path, *pair)
                break
            if not (one.use | other.use) & DRAFT:
                lucky = other
        else:
            if lucky is not None:
                yield _Clash("hazard", path, lucky, one)
        for kinds in _KINDS:
            if one.use & kinds:
                for is_end in (True, False):
                    best = last.get((kinds, is_end), one)
                    is_later = one.to_s > best.to_s if is_end else one.place > best.place
                    last[kinds, is_end] = one if is_later else best


def _told(every: Iterable[_Clash], facts: PlanFacts) -> Iterator[Finding]:
    """Findings, each once for all members of a group and for all files that are alike."""
    alike: dict[tuple[FindingKind, int, int], dict[str, list[_Clash]]] = {}
    for one in every:
        task = one.second.task
        shown = general(one.path, facts.item(task.group, task.member))
        by_path = alike.setdefault((one.kind, task.group, one.first.task.group), {})
        by_path.setdefault(shown, []).append(one)
    for by_path in alike.values():
        patterns: dict[str, list[_Clash]] = {name: [] for name in condensed(by_path)}
        for shown, clashes in by_path.items():
            fits = (p for p in patterns if p.endswith("*") and shown.startswith(p.rstrip("*")))
            patterns[shown if shown in patterns else next(fits)] += clashes
        for clashes in patterns.values():
            yield _finding(clashes, facts)


def _finding(every: Sequence[_Clash], facts: PlanFacts) -> Finding:
    kind, first, second = every[0].kind, every[0].first, every[0].second
    one, other, what = second.task.name, first.task.name, f"`{every[0].path}`"
    is_early = second.to_s <= first.from_s
    writer, reader = (one, other) if second.use & WRITING else (other, one)
    if kind == "hazard" and first.use & second.use & WRITING:
        words = f"`{other}` and `{one}` both write {what}, and nothing orders them{RIGHT}"
    elif kind == "hazard":
        words = f"`{reader}` reads {what}, which `{writer}` writes, and nothing orders them{RIGHT}"
    elif kind == "lost-update" and is_early:
        words = f"`{one}` wrote {what} before `{other}`, which comes first in the plan, "
        words += "wrote over it"
    elif kind == "lost-update":
        words = f"`{other}` and `{one}` wrote {what} at the same time: what one of them "
        words += "wrote may be lost"
    elif is_early and writer == one:
        words = f"`{other}` read {what} after `{one}` wrote it, which comes later in the plan"
    elif is_early:
        words = f"`{one}` read {what} before `{other}` wrote it, which comes first in the plan"
    else:
        words = f"`{reader}` read {what} while `{writer}` wrote it: it may be stale or half written"
    is_same = first.task.group == second.task.group
    count = len({clash.second.task.member for clash in every}) + (kind == "lost-update" and is_same)
    # Members of one group cannot need each other, but they can take turns.
    fix = f"{'queue' if is_same else 'needs'}: {other.partition('[')[0]}"
    where = facts.where(second.task.group)
    return Finding(kind, one, every[0].path, other, words, fix, where, count)


def order_by(
    needs: Sequence[Sequence[tuple[int, int]]], queues: Iterable[Sequence[int]]
) -> Callable[[Task, Task], bool]:
    """Whether a plan orders two tasks: by queues, or by needs: a group, and blocks of how many,
    0 for all of it."""
    before: list[dict[int, int]] = [{} for _ in needs]
    """By group: those that it waits for, and for blocks of how many, 0 for all of each."""
    queued: set[int] = set()
    for group, every in enumerate(needs):
        for need, block in every:
            before[group][need] = min(before[group].get(need, block), block)
    for queue in queues:
        queued.update(queue)
        for place, group in enumerate(queue[1:]):
            before[group][queue[place]] = 0

    @cache
    def all_before(group: int) -> dict[int, int]:
        return _ancestors(before, group)

    def is_ordered(one: Task, other: Task) -> bool:
        if one[0] == other[0]:
            return one[0] in queued
        for first, second in ((one, other), (other, one)):
            block = all_before(second[0]).get(first[0])
            if block == 0 or (block is not None and first[1] // block == second[1]):
                return True
        return False

    return is_ordered


def _ancestors(before: Sequence[dict[int, int]], group: int) -> dict[int, int]:
    """All groups before one, and blocks of how many come before each of it: all of it if 0."""
    found: dict[int, int] = {}
    waiting = [(group, 1)]
    while waiting:
        one, share = waiting.pop()
        for need, block in before[one].items():
            whole = share * block
            # Seen again by a way that says more, what is before it has to be seen again too.
            if need not in found or (whole == 0 and found[need]):
                found[need] = whole
                waiting.append((need, whole))
    return found


# What the members of a group touch, said once for all: `records/7` is `records/{{ item }}`.

ITEM: Final = "{{ item }}"
APART_MAX: Final = 3
"""Things of one folder that are named one by one."""


def general(what: str, item: str) -> str:
    """A key or path with the member's item in place of its text: whole segments, or their stems."""
    if not item:
        return what
    scheme, colon, rest = what.rpartition(":")
    if "/" in item and item in rest:
        return scheme + colon + rest.replace(item, ITEM, 1)
    parts = rest.split("/")
    for place in range(len(parts) - 1, -1, -1):
        stem, dot, suffix = parts[place].partition(".")
        if item in (parts[place], stem):
            parts[place] = ITEM if parts[place] == item else ITEM + dot + suffix
            return scheme + colon + "/".join(parts)
    return what


def folder_of(what: str) -> str:
    """What a key or path lies in, with the slash; of one at the top its scheme, or nothing."""
    folder, slash, _ = what.rpartition("/")
    if slash:
        return folder + slash
    scheme, colon, _ = what.rpartition(":")
    return scheme + colon


def condensed(things: Iterable[str]) -> tuple[str, ...]:
    """A short list that stands for all of them: many in one folder are `folder/*`, many folders
    in one `folder/**`. What lies at the top stays as it is: `*` alone would be everything."""
    every = set(things)
    while True:
        shorter = _shorter(every)
        if shorter == every:
            return tuple(sorted(every))
        every = shorter


def _shorter(every: set[str]) -> set[str]:
    """One step: each folder that has too many entries becomes one; what it covers goes."""
    inside: dict[str, set[str]] = {}
    for one in every:
        deep = one.endswith(("/*", "/**"))
        folder = folder_of(one.rpartition("/")[0]) if deep else folder_of(one)
        if folder.endswith("/"):
            inside.setdefault(folder, set()).add(one)
    found = set(every)
    for folder, entries in inside.items():
        if len(entries) > APART_MAX:
            is_flat = not any(one.endswith(("/*", "/**")) for one in entries)
            found -= entries
            found.add(folder + ("*" if is_flat else "**"))
    covers = [one.rstrip("*") for one in found if one.endswith("/**")]
    flat = {one[:-1] for one in found if one.endswith("/*")}
    return {
        one
        for one in found
        if not any(one.startswith(folder) and one != folder + "**" for folder in covers)
        and (folder_of(one) not in flat or one.endswith("*"))
    }


# The `reads` and `writes` that a plan should have, by what its tasks were seen to touch.


class Learned(Struct, frozen=True):
    """What one declared task was seen to touch, for all of its members."""

    task: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def lines(self) -> list[str]:
        both = (("reads", self.reads), ("writes", self.writes))
        lists = (f"    {key}: [{', '.join(map(_quoted, entries))}]" for key, entries in both)
        return [f"  {self.task}:", *lists]


def declarations(tasks: Sequence[TaskUse], facts: PlanFacts) -> tuple[Learned, ...]:
    """What to declare, task by task in declared order.

    Of the files that a task reads those that another one writes: others are there before the run
    and after it, and order nothing. An `output` declares itself.
    """
    written = {one.path for task in tasks for one in task.files if one.is_write}
    found: dict[int, tuple[set[str], set[str]]] = {}
    names: dict[int, str] = {}
    for task in tasks:
        names.setdefault(task.group, task.name.partition("[")[0])
        reads, writes = found.setdefault(task.group, (set(), set()))
        item, own = facts.item(task.group, task.member), facts.outputs(task.group, task.member)
        put = [SCHEME + one.key for one in task.access.writes]
        put += [ACTS + act.channel for act in task.access.acts]
        files = [one for one in task.files if not _is_hidden(one.path)]
        put += [one.path for one in files if one.is_write and not one.use & DRAFT]
        seen = [SCHEME + one.what for one in task.access.reads]
        seen += [
            one.path
            for one in files
            if one.use & READ
            and (
                one.path in written
                or (is_pattern(one.path) and any(matches(one.path, path) for path in written))
            )
        ]
        reads.update(general(one, item) for one in seen)
        writes.update(general(one, item) for one in put if one not in own)
    return tuple(
        Learned(names[group], condensed(reads), condensed(writes))
        for group, (reads, writes) in sorted(found.items())
    )


def _is_hidden(path: str) -> bool:
    """Whether a path is hidden, or not in the folder: nothing that a plan declares."""
    return path[:1] in "./" or "/." in path


def _quoted(entry: str) -> str:
    """An entry of a list in a plan, which YAML must not read as something else."""
    return f'"{entry}"' if "{{" in entry or "*" in entry else entry
