"""What the tasks of a run used together in no order, and what they used without declaring it.

Laws:
- Two tasks that used a file at the same time, or against the order of the plan, one of them to
  write it: a lost update or a stale read. One after the other in that order: a hazard.
- What a task declares to read or write is all that it may touch. A task that declares nothing is
  judged by its plan: where other tasks declare, it should.
- Two tasks of which one writes what the other touches are in an order that the plan gives: by needs
  and queues, or because both declare it. If not, that is found, however well the run went.
- What adds to a channel that combines has no order to keep with others that add.
- A program reads the files that it is made of: what it reads counts if another task writes it.
- The same is said once for all members of a group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.file_use import APPEND, DRAFT, MADE, READ, REMOVE, WRITE
from headway.plans.resources import (
    ACTS,
    ANYTHING,
    SCHEME,
    Prefixes,
    Touches,
    covers,
    is_pattern,
    matches,
    prefix_of,
)
from headway.state.shared import UNTOUCHED, Access, Channels

FindingKind = Literal[
    "lost-update", "stale-read", "unobserved", "undeclared-read", "undeclared-write",
    "undeclared-effect", "hazard", "aliasing", "nondeterminism",
]  # fmt: skip
Room = Literal["state", "path", "effect"]

RIGHT: Final = ": right this time"
ERRORS: Final = frozenset({"lost-update", "stale-read"})
"""Kinds of findings that make the result of a run doubtful: its exit code is 1."""

PAIRS_MAX: Final = 500_000
"""Overlaps between tasks that are looked at: as many as take about a second."""
ALIKE: Final = 2
"""Members of a group that are compared for one thing: with two of them all others are alike."""


class Finding(Struct, frozen=True):
    """Something that a plan does not say, or that a task should not do."""

    kind: FindingKind
    task: str
    what: str
    """As a plan writes it: a path, `state:KEY`, `effect:CHANNEL`."""
    other: str = ""
    """The task that it comes between, if there is one."""
    words: str = ""
    fix: str = ""
    where: str = ""
    count: int = 1
    """Of how many tasks of the group the same is true."""


class DeclaredAccess(Struct, frozen=True):
    """What a task says that it touches."""

    state: Touches = ANYTHING
    paths: Touches = ANYTHING
    outputs: tuple[str, ...] = ()
    """What headway itself writes for it, as a plan writes it."""


class FileUse(Struct, frozen=True):
    """How one task used a path of the folder, from when to when."""

    path: str
    from_s: float
    to_s: float
    use: int

    @property
    def is_write(self) -> bool:
        return bool(self.use & (WRITE | APPEND | REMOVE))


class FinishedAccess(Struct, frozen=True):
    """What one attempt touched whose result holds."""

    group: int
    member: int
    name: str
    access: Access = UNTOUCHED
    files: tuple[FileUse, ...] = ()
    key: bytes = b""
    """Of the task's content, by which other runs know it."""
    inputs: bytes = b""
    calls: int = 0
    is_function: bool = True
    """Rather than a program or a model, whose inputs are not all known."""
    is_timed: bool = False
    """It may have asked when its run was created, which is another time in every run."""


class ObservedTouch(Struct, frozen=True):
    """One thing that a task has touched."""

    group: int
    member: int
    name: str
    room: Room
    what: str
    is_write: bool
    is_addition: bool = False
    is_loose: bool = False
    """Of a program, which reads its own files too."""
    is_early: bool = False
    """It was over before the other one began that comes before it in the plan."""

    @property
    def shown(self) -> str:
        return {"state": SCHEME, "path": "", "effect": ACTS}[self.room] + self.what


Task = tuple[int, int]


class PlanFacts(Struct, frozen=True):
    """What touches are judged by."""

    is_ordered: Callable[[Task, Task], bool]
    declared: Callable[[int, int], DeclaredAccess] = lambda _group, _member: DeclaredAccess()
    rooms: frozenset[tuple[Room, bool]] = frozenset()
    """What the plan has declarations of, to be read and (true) to be written."""
    channels: Channels = field(default_factory=Channels)
    item: Callable[[int, int], str] = lambda _group, _member: ""
    where: Callable[[int, str], str] = lambda _group, _key: ""
    place: Callable[[int, int], int] = lambda group, member: (group << 32) + member
    """Of a task in the serial run."""


def touches_of(done: FinishedAccess, channels: Channels) -> Iterator[ObservedTouch]:
    who = (done.group, done.member, done.name)
    for seen in done.access.reads:
        yield ObservedTouch(*who, "state", seen.what, is_write=False)
    for key in dict.fromkeys(put.key for put in done.access.writes):
        yield ObservedTouch(*who, "state", key, True, channels.of(key).kind != "value")
    for channel in dict.fromkeys(act.channel for act in done.access.acts):
        yield ObservedTouch(*who, "effect", channel, True, True)
    for one in done.files:
        if one.path.endswith(DATABASE):
            continue
        if one.use & READ:
            yield ObservedTouch(*who, "path", one.path, False, is_loose=not done.is_function)
        if one.is_write and not one.use & DRAFT:
            yield ObservedTouch(*who, "path", one.path, is_write=True)


def said_of(declared: DeclaredAccess, touch: ObservedTouch) -> Prefixes:
    """What a task declares of the kind that a touch is of; None if it declares nothing."""
    if touch.room == "effect":
        return declared.state.acts
    touches = declared.state if touch.room == "state" else declared.paths
    said = touches.writes if touch.is_write else touches.reads
    # A list of keys only declares nothing about paths.
    return (said or None) if touch.room == "path" else said


def is_said(declared: DeclaredAccess, touch: ObservedTouch) -> bool:
    """Whether a task declares a touch; drafts of a path that it may write are part of that."""
    if touch.is_write and touch.shown in declared.outputs:
        return True
    said = said_of(declared, touch)
    if said is None:
        return False
    what = prefix_of(touch.what)
    if covers(said, what):
        return True
    return touch.room == "path" and touch.is_write and any(_is_draft(what, path) for path in said)


def is_allowed(declared: DeclaredAccess, touch: ObservedTouch) -> bool:
    """Whether a task keeps to what it declares; one that declares nothing may do anything."""
    return said_of(declared, touch) is None or is_said(declared, touch)


def findings(
    dones: Sequence[FinishedAccess], ground: PlanFacts, others: Iterable[FinishedAccess] = ()
) -> tuple[Finding, ...]:
    """What went wrong, what is undeclared, and what is in no order, in the order of the tasks.

    `others` are attempts that gave no result: what they did to files counts all the same.
    """
    touches = [touch for done in dones for touch in touches_of(done, ground.channels)]
    judge = _Judge(ground, touches)
    wrong = [*conflicts((*dones, *others), ground.place, ground.is_ordered)]
    raised = [*judge.undeclared(touches)]
    judge.known = {(touch.group, touch.room, touch.what) for _, touch, _ in (*raised, *wrong)}
    return tuple(_told([*wrong, *raised, *judge.hazards()], ground))


_Raised = tuple[FindingKind, ObservedTouch, ObservedTouch | None]
"""A touch that something is wrong with, and the one that it comes between."""

# Files that two tasks used at the same time, or against the order of the plan.


class _Used(Struct):
    """How one task used one path in all of its attempts."""

    done: FinishedAccess
    place: int
    """Of the task in the serial run."""
    from_s: float
    to_s: float
    use: int

    def clashes(self, other: _Used) -> bool:
        """Whether one of them writes what the other uses; two that only append do not clash."""
        both = self.use & WRITING, other.use & WRITING
        return bool(both[0] or both[1]) and not (
            self.use & ~MADE == APPEND and other.use & ~MADE == APPEND
        )


WRITING: Final = WRITE | APPEND | REMOVE
_KINDS: Final = (WRITE | REMOVE, APPEND, READ)
DATABASE: Final = ("-journal", "-wal", "-shm")
"""Of a file beside which there is one of these, SQLite keeps the updates apart."""


def conflicts(
    dones: Iterable[FinishedAccess], place: Callable[[int, int], int],
    is_ordered: Callable[[Task, Task], bool],
) -> Iterator[_Raised]:  # fmt: skip
    """Lost updates and stale reads, one for each task that comes second in one."""
    paths: dict[str, dict[Task, _Used]] = {}
    for done in dones:
        for one in done.files:
            by_task = paths.setdefault(one.path, {})
            known = by_task.get((done.group, done.member))
            if known is None:
                where = place(done.group, done.member)
                used = _Used(done, where, one.from_s, one.to_s, one.use)
                by_task[done.group, done.member] = used
            else:
                known.from_s = min(known.from_s, one.from_s)
                known.to_s, known.use = max(known.to_s, one.to_s), known.use | one.use
    for path, by_task in paths.items():
        if path.endswith(DATABASE) or any(path + end in paths for end in DATABASE):
            continue
        if len(by_task) == 1 and not any(one.use & (MADE | REMOVE) for one in by_task.values()):
            continue
        every = list(by_task.values())
        if any((one.use & MADE and not one.use & DRAFT) or one.use & REMOVE for one in every):
            listing = f"{path.rpartition('/')[0]}/*".removeprefix("/")
            every += [one for task, one in paths.get(listing, {}).items() if task not in by_task]
        if any(one.use & WRITING for one in every):
            yield from _clashes(path, every, is_ordered)


def _clashes(
    path: str, every: list[_Used], is_ordered: Callable[[Task, Task], bool]
) -> Iterator[_Raised]:
    """Each use with the one before it, if there is one, that ended too late or is declared later.

    Of those before it only the last to end and the last declared count, of each kind.
    """
    last: dict[tuple[int, bool], _Used] = {}
    for one in sorted(every, key=lambda used: (used.from_s, used.place)):
        for other in last.values():
            is_clash = one.clashes(other) and (other.to_s > one.from_s or other.place > one.place)
            tasks = (one.done.group, one.done.member), (other.done.group, other.done.member)
            if is_clash and not is_ordered(*tasks):
                yield _clash(path, *((other, one) if other.place < one.place else (one, other)))
                break
        for kind in _KINDS:
            if one.use & kind:
                for is_end in (True, False):
                    best = last.get((kind, is_end), one)
                    is_later = one.to_s > best.to_s if is_end else one.place > best.place
                    last[kind, is_end] = one if is_later else best


def _clash(path: str, first: _Used, second: _Used) -> _Raised:
    """Two tasks in declared order that used a path in another one, or at the same time."""
    both = first.use & WRITING, second.use & WRITING
    kind: FindingKind = "lost-update" if all(both) else "stale-read"
    is_early = second.to_s <= first.from_s
    touches = [
        ObservedTouch(one.done.group, one.done.member, one.done.name, "path", path,
                      bool(one.use & WRITING), is_early=is_early)
        for one in (second, first)
    ]  # fmt: skip
    return kind, touches[0], touches[1]


class _Judge:
    """Looks at all touches of a run."""

    def __init__(self, ground: PlanFacts, touches: Iterable[ObservedTouch]) -> None:
        self.ground = ground
        self.known: set[tuple[int, Room, str]] = set()
        """What something was found about: of which group, where, and what."""
        self.pairs = 0
        self._readers: dict[tuple[Room, str], list[ObservedTouch]] = {}
        self._writers: dict[tuple[Room, str], list[ObservedTouch]] = {}
        for touch in touches:
            by = self._writers if touch.is_write else self._readers
            by.setdefault((touch.room, touch.what), []).append(touch)
        self._keys = sorted(self._writers)

    def undeclared(self, touches: Iterable[ObservedTouch]) -> Iterator[_Raised]:
        """Touches that their tasks do not declare and should."""
        for touch in touches:
            declared = self.ground.declared(touch.group, touch.member)
            if is_said(declared, touch) or _is_hidden(touch):
                continue
            is_silent = said_of(declared, touch) is None
            if is_silent and (touch.room, touch.is_write) not in self.ground.rooms:
                continue
            other = self._other(touch)
            if other is None and touch.is_loose:
                continue
            kind: FindingKind = "undeclared-write" if touch.is_write else "undeclared-read"
            yield "undeclared-effect" if touch.room == "effect" else kind, touch, other

    def hazards(self) -> Iterator[_Raised]:
        """Pairs in no order, of things about which nothing was found yet."""
        for thing, writers in self._writers.items():
            some = _some(writers)
            for place, one in enumerate(some):
                for other in some[place + 1 :]:
                    is_sum = one.is_addition and other.is_addition
                    if not is_sum and self._is_hazard(one, other):
                        yield "hazard", other, one
            yield from self._read_hazards(self._readers.get(thing, []), some)
        for (room, what), readers in self._readers.items():
            if is_pattern(what):
                for thing in self._written(room, what):
                    yield from self._read_hazards(readers, _some(self._writers[thing]))

    def _read_hazards(
        self, readers: Sequence[ObservedTouch], writers: Sequence[ObservedTouch]
    ) -> Iterator[_Raised]:
        for reader in _some(readers):
            for writer in writers:
                if self._is_hazard(writer, reader):
                    yield "hazard", reader, writer

    def _is_hazard(self, one: ObservedTouch, other: ObservedTouch) -> bool:
        """Whether nothing orders two touches, and nothing was found about either of them."""
        who, whom = (one.group, one.member), (other.group, other.member)
        if who == whom or self.pairs >= PAIRS_MAX:
            return False
        self.pairs += 1
        if any((each.group, each.room, each.what) in self.known for each in (one, other)):
            return False
        are_said = all(
            is_said(self.ground.declared(touch.group, touch.member), touch)
            for touch in (one, other)
        )
        return not are_said and not self.ground.is_ordered(who, whom)

    def _written(self, room: Room, what: str) -> list[tuple[Room, str]]:
        if not is_pattern(what):
            return [(room, what)] if (room, what) in self._writers else []
        folder = prefix_of(what)
        first = bisect_left(self._keys, (room, folder))
        last = bisect_right(self._keys, (room, folder + "/\U0010ffff" if folder else "\U0010ffff"))
        return [key for key in self._keys[first:last] if matches(what, key[1])]

    def _other(self, touch: ObservedTouch) -> ObservedTouch | None:
        found: list[ObservedTouch] = []
        for thing in self._written(touch.room, touch.what):
            found += _some(self._writers[thing])
        if touch.is_write:
            found += _some(self._readers.get((touch.room, touch.what), []))
        for one in found:
            is_self = (one.group, one.member) == (touch.group, touch.member)
            if not is_self and not (one.is_addition and touch.is_addition):
                return one
        return None


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


def _some(touches: Sequence[ObservedTouch]) -> list[ObservedTouch]:
    """Of each group a few members: the order of two of them is that of all."""
    counts: dict[int, int] = {}
    some: list[ObservedTouch] = []
    for touch in touches:
        counts[touch.group] = counts.get(touch.group, 0) + 1
        if counts[touch.group] <= ALIKE:
            some.append(touch)
    return some


def _is_hidden(touch: ObservedTouch) -> bool:
    """Whether a path is hidden, or not in the folder: nothing that a plan declares."""
    return touch.room == "path" and (touch.what[:1] in "./" or "/." in touch.what)


def _is_draft(path: str, written: str) -> bool:
    """Whether a path is what a file is called until it is complete: beside it, its name inside."""
    folder, _, name = path.rpartition("/")
    home, _, final = written.rpartition("/")
    return folder == home and len(final) > 0 and final in name


def _told(raised: Iterable[_Raised], ground: PlanFacts) -> Iterator[Finding]:
    """Findings, each once for all members of a group and for all things that are alike."""
    buckets: dict[tuple[FindingKind, int, int], dict[str, list[_Raised]]] = {}
    for one in raised:
        kind, touch, other = one
        shown = general(touch.shown, ground.item(touch.group, touch.member))
        is_pair = other is not None and (kind == "hazard" or kind in ERRORS)
        pair = other.group if is_pair and other is not None else -1
        key = (kind, touch.group, pair)
        buckets.setdefault(key, {}).setdefault(shown, []).append(one)
    for by_thing in buckets.values():
        patterns: dict[str, list[_Raised]] = {name: [] for name in condensed(by_thing)}
        for shown, every in by_thing.items():
            fits = (p for p in patterns if p.endswith("*") and shown.startswith(p.rstrip("*")))
            patterns[shown if shown in patterns else next(fits)] += every
        for pattern, every in patterns.items():
            yield _finding(pattern, every, ground)


def _finding(shown: str, every: Sequence[_Raised], ground: PlanFacts) -> Finding:
    kind, touch, other = next((one for one in every if one[2] is not None), every[0])
    count = len({one.member for _, one, _ in every})
    whom = "" if other is None else other.name
    key = "writes" if touch.is_write else "reads"
    where = ground.where(touch.group, key)
    verb = "asks for" if touch.room == "effect" else key
    if kind in ERRORS and other is not None:
        what = f"`{touch.what}`"
        if kind == "lost-update" and touch.is_early:
            words = f"`{touch.name}` wrote {what} before `{whom}`, which comes first in the plan, "
            words += "wrote over it"
        elif kind == "lost-update":
            words = f"`{whom}` and `{touch.name}` wrote {what} at the same time: what one of them "
            words += "wrote may be lost"
        elif touch.is_early and touch.is_write:
            words = f"`{whom}` read {what} after `{touch.name}` wrote it, which comes later in "
            words += "the plan"
        elif touch.is_early:
            words = f"`{touch.name}` read {what} before `{whom}` wrote it, which comes first in "
            words += "the plan"
        else:
            writer, reader = (touch.name, whom) if touch.is_write else (whom, touch.name)
            words = f"`{reader}` read {what} while `{writer}` wrote it: it may be stale or half "
            words += "written"
    elif kind != "hazard":
        words = f"`{touch.name}` {verb} `{touch.shown}` and does not declare it"
        if other is not None:
            words += f"; `{whom}` {'writes' if other.is_write else 'reads'} it"
        is_silent = said_of(ground.declared(touch.group, touch.member), touch) is None
        fix = f"{key}: {_quoted(shown)}" if is_silent else f"add {_quoted(shown)} to `{key}`"
        return Finding(kind, touch.name, touch.shown, whom, words, fix, where, count)
    elif touch.is_write:
        words = f"`{whom}` and `{touch.name}` both write `{touch.shown}`, and nothing orders them"
    else:
        words = f"`{touch.name}` reads `{touch.shown}`, which `{whom}` writes, "
        words += "and nothing orders them"
    if kind in ERRORS:
        count += kind == "lost-update" and other is not None and other.group == touch.group
    elif touch.room == "path":
        words += RIGHT
    else:
        words += ": headway kept the declared order, and may have to run tasks again for it"
    # Members of one group cannot need each other, but they can take turns.
    remedy = "queue" if other is not None and other.group == touch.group else "needs"
    fix = f"{remedy}: {whom.partition('[')[0]}"
    return Finding(kind, touch.name, touch.shown, whom, words, fix, where, count)


def _quoted(entry: str) -> str:
    """An entry of a list in a plan, which YAML must not read as something else."""
    return f'"{entry}"' if "{{" in entry or "*" in entry else entry


# What a task does to itself: values changed in place, and other deeds under the same conditions.


def unsteady(
    earlier: Iterable[FinishedAccess], later: Iterable[FinishedAccess]
) -> tuple[Finding, ...]:
    """Tasks that did something else although they were given and have read the same.

    What a model answered is a part of what its task was given: only the first prompt is compared,
    and writes only where no model was asked.
    """
    known: dict[tuple[bytes, bytes, bytes], FinishedAccess] = {}
    for done in earlier:
        known.setdefault((done.key, done.inputs, done.access.inputs), done)
    found: dict[int, Finding] = {}
    for done in later:
        before = known.setdefault((done.key, done.inputs, done.access.inputs), done)
        differs = _difference(before, done)
        if differs is None:
            continue
        what, words = differs
        if first := found.get(done.group):
            found[done.group] = replace(first, count=first.count + 1)
            continue
        found[done.group] = Finding(
            "nondeterminism", done.name, what,
            words=f"`{done.name}` was given and has read the same, and {words}",
            fix="take time and chance from `ctx.time_s` and `ctx.random`; sort what has no order",
        )  # fmt: skip
    return tuple(found.values())


def across(
    earlier: Iterable[FinishedAccess], later: Sequence[FinishedAccess]
) -> tuple[Finding, ...]:
    """The same, where the earlier ones are of another run, created at another time: tasks that may
    depend on that are compared within their own run only."""
    timed = [done for done in later if done.is_timed]
    others = [done for done in later if not done.is_timed]
    return (*unsteady(earlier, others), *unsteady((), timed))


class Handed(Struct, frozen=True):
    """A value that a task was given by the shared state, or gave to it."""

    key: str
    before: bytes
    after: bytes | None
    """Its bytes at the end of the attempt; None if it is no JSON any more."""
    is_given: bool


def aliased(
    name: str, item: str, handed: Iterable[Handed], puts: Sequence[bytes] = (),
    others: Sequence[bytes] = (),
) -> tuple[Finding, ...]:  # fmt: skip
    """Values that were changed in place: the shared state has copies, and the change is lost.

    `puts` is what the attempt gave to the shared state at last, `others` its result and what its
    effects are given: what was passed on is found there, byte by byte.
    """
    found: dict[str, Finding] = {}
    for one in handed:
        places = puts if one.is_given else (*puts, *others)
        if one.after == one.before or any(one.after in place for place in places if one.after):
            continue
        verb = "put under" if one.is_given else "read from"
        found.setdefault(one.key, Finding(
            "aliasing", name, general(SCHEME + one.key, item),
            words=f"`{name}` changed, in place, what it had {verb} `{one.key}`: no task sees that",
            fix="put it after the change; if it is meant for this task alone, change a copy",
        ))  # fmt: skip
    return tuple(found.values())


def merged(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same of several members of a group, or of several attempts, as one finding."""
    by: dict[tuple[str, str, str], Finding] = {}
    names: dict[tuple[str, str, str], set[str]] = {}
    for one in found:
        key = (one.kind, one.task.partition("[")[0], one.what)
        by.setdefault(key, one)
        names.setdefault(key, set()).add(one.task)
    return tuple(replace(one, count=max(one.count, len(names[key]))) for key, one in by.items())


def _difference(before: FinishedAccess, done: FinishedAccess) -> tuple[str, str] | None:
    """What a task did differently the second time; None if that proves nothing."""
    if before is done or before.calls > 1 or done.calls > 1:
        return None
    if before.access.prompts != done.access.prompts:
        return "prompt", "its prompt was another one"
    if done.access.prompts or done.calls or before.calls or not done.is_function:
        return None
    was, now = _by_key(before.access), _by_key(done.access)
    if was == now:
        return None
    key = min(key for key in {*was, *now} if was.get(key) != now.get(key))
    return SCHEME + key, f"it wrote something else under `{key}`"


def _by_key(access: Access) -> dict[str, list[bytes | None]]:
    by: dict[str, list[bytes | None]] = {}
    for put in access.writes:
        by.setdefault(put.key, []).append(put.data)
    return by


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


def declarations(dones: Sequence[FinishedAccess], ground: PlanFacts) -> tuple[Learned, ...]:
    """What to declare, task by task in declared order.

    Of the files that a task reads those that another one writes, and those that it lists already:
    others are there before the run and after it, and order nothing. An `output` declares itself.
    """
    touches = [touch for done in dones for touch in touches_of(done, ground.channels)]
    written = {touch.what for touch in touches if touch.room == "path" and touch.is_write}
    by_group: dict[int, list[ObservedTouch]] = {done.group: [] for done in dones}
    names = {done.group: done.name.partition("[")[0] for done in dones}
    for touch in touches:
        declared = ground.declared(touch.group, touch.member)
        is_listed = bool(said_of(declared, touch)) and not touch.is_loose
        is_written = touch.what in written or (
            is_pattern(touch.what) and any(matches(touch.what, one) for one in written)
        )
        is_input = touch.room == "path" and not touch.is_write and not is_written
        is_output = touch.is_write and touch.shown in declared.outputs
        if _is_hidden(touch):
            continue
        if (is_listed or not is_input) and not is_output:
            by_group[touch.group].append(touch)
    return tuple(
        Learned(
            names[group],
            _entries((one for one in by_group[group] if not one.is_write), ground),
            _entries((one for one in by_group[group] if one.is_write), ground),
        )
        for group in sorted(by_group)
    )


def _entries(touches: Iterable[ObservedTouch], ground: PlanFacts) -> tuple[str, ...]:
    """A list that has everything, with the item in place of what differs from member to member."""
    return condensed(
        general(touch.shown, ground.item(touch.group, touch.member)) for touch in touches
    )
