"""What tasks touched without having said so, and what only luck has put in order.

Laws:
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
from dataclasses import dataclass, field
from typing import Final, Literal

from headway.core.engine.access import UNTOUCHED, Access
from headway.core.engine.channels import Channels
from headway.core.general import condensed, general
from headway.core.plan.resources import ACTS, SCHEME, is_pattern, matches, prefix_of
from headway.core.plan.touches import ANYTHING, Prefixes, Touches, covers
from headway.core.records import quick

FindingKind = Literal[
    "undeclared-read", "undeclared-write", "undeclared-effect", "hazard", "aliasing",
    "nondeterminism",
]  # fmt: skip
Room = Literal["state", "path", "effect"]
"""Where something is that can be touched."""

PAIRS_MAX: Final = 500_000
"""Overlaps between tasks that are looked at: as many as take about a second."""
ALIKE: Final = 2
"""Members of a group that are compared for one thing: with two of them all others are alike."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a plan does not say, or that a task should not do."""

    kind: FindingKind
    task: str
    what: str
    """As a plan writes it: a path, `state:KEY`, `effect:CHANNEL`."""
    other: str = ""
    """The task that it comes between, if there is one."""
    words: str = ""
    fix: str = ""
    """A line of the plan, or of the task's code."""
    where: str = ""
    """The place in the plan's file, if there is one."""
    count: int = 1
    """Of how many tasks of the group the same is true."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a task says that it touches."""

    state: Touches = ANYTHING
    paths: Touches = ANYTHING
    outputs: tuple[str, ...] = ()
    """What headway itself writes for it, as a plan writes it."""


@quick
class Done:
    """What one attempt touched whose result holds."""

    group: int
    member: int
    name: str
    access: Access = UNTOUCHED
    paths_read: tuple[str, ...] = ()
    paths_written: tuple[str, ...] = ()
    key: bytes = b""
    """Of the task's content, by which other runs know it."""
    inputs: bytes = b""
    """The digest of the results that it was given."""
    calls: int = 0
    is_function: bool = True
    """Rather than a program or a model, of which nobody knows what they depend on."""
    is_timed: bool = False
    """It may have asked when its run was created, which is another time in every run."""


@quick
class Touch:
    """One thing that a task has touched."""

    group: int
    member: int
    name: str
    room: Room
    what: str
    is_write: bool
    is_addition: bool = False
    """It combines with what others add."""
    is_loose: bool = False
    """Of a program, which reads its own files too."""

    @property
    def shown(self) -> str:
        """As a plan writes it."""
        return {"state": SCHEME, "path": "", "effect": ACTS}[self.room] + self.what


Task = tuple[int, int]
"""A group, and a member of it."""


def _nothing_declared(_group: int, _member: int) -> Declared:
    return Declared()


def _no_item(_group: int, _member: int) -> str:
    return ""


def _nowhere(_group: int, _key: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Ground:
    """What touches are judged by."""

    is_ordered: Callable[[Task, Task], bool]
    declared: Callable[[int, int], Declared] = _nothing_declared
    rooms: frozenset[tuple[Room, bool]] = frozenset()
    """What the plan has declarations of, to be read and (true) to be written."""
    channels: Channels = field(default_factory=Channels)
    item: Callable[[int, int], str] = _no_item
    """What a member of a group works on, as text."""
    where: Callable[[int, str], str] = _nowhere
    """The place of a group's key in the plan's file."""


def touches_of(done: Done, channels: Channels) -> Iterator[Touch]:
    """All that a task has touched, one by one."""
    who = (done.group, done.member, done.name)
    for seen in done.access.reads:
        yield Touch(*who, "state", seen.what, is_write=False)
    for key in dict.fromkeys(put.key for put in done.access.writes):
        yield Touch(*who, "state", key, True, channels.of(key).kind != "value")
    for channel in dict.fromkeys(act.channel for act in done.access.acts):
        yield Touch(*who, "effect", channel, True, True)
    for path in done.paths_read:
        yield Touch(*who, "path", path, is_write=False, is_loose=not done.is_function)
    for path in done.paths_written:
        yield Touch(*who, "path", path, is_write=True)


def said_of(declared: Declared, touch: Touch) -> Prefixes:
    """What a task declares of the kind that a touch is of; None if it declares nothing."""
    if touch.room == "effect":
        return declared.state.acts
    touches = declared.state if touch.room == "state" else declared.paths
    said = touches.writes if touch.is_write else touches.reads
    # Whoever lists keys only says nothing of paths.
    return (said or None) if touch.room == "path" else said


def is_said(declared: Declared, touch: Touch) -> bool:
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


def is_allowed(declared: Declared, touch: Touch) -> bool:
    """Whether a task keeps to what it declares; one that declares nothing may do anything."""
    return said_of(declared, touch) is None or is_said(declared, touch)


def findings(dones: Sequence[Done], ground: Ground) -> tuple[Finding, ...]:
    """What is undeclared, and what is in no order, in the order of the tasks."""
    touches = [touch for done in dones for touch in touches_of(done, ground.channels)]
    index = _Index(touches)
    judge = _Judge(ground, index)
    raised = [*judge.undeclared(touches)]
    known = {(one.touch.group, one.touch.room, one.touch.what) for one in raised}
    raised += judge.hazards(known)
    return tuple(_told(raised, ground))


@quick
class _Raised:
    """A touch that something is wrong with."""

    kind: FindingKind
    touch: Touch
    other: Touch | None


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """How many things are read and written."""

    read: int
    written: int


class _Index:
    """Who touched what."""

    __slots__ = ("keys", "readers", "writers")

    def __init__(self, touches: Iterable[Touch]) -> None:
        self.readers: dict[tuple[Room, str], list[Touch]] = {}
        self.writers: dict[tuple[Room, str], list[Touch]] = {}
        for touch in touches:
            by = self.writers if touch.is_write else self.readers
            by.setdefault((touch.room, touch.what), []).append(touch)
        self.keys = sorted(self.writers)

    def __repr__(self) -> str:
        return f"<_Index {self.statistics()}>"

    def statistics(self) -> IndexStatistics:
        return IndexStatistics(len(self.readers), len(self.writers))

    def written(self, room: Room, what: str) -> list[tuple[Room, str]]:
        """The written things that one, or a pattern, stands for."""
        if not is_pattern(what):
            return [(room, what)] if (room, what) in self.writers else []
        folder = prefix_of(what)
        first = bisect_left(self.keys, (room, folder))
        last = bisect_right(self.keys, (room, folder + "/\U0010ffff" if folder else "\U0010ffff"))
        return [key for key in self.keys[first:last] if matches(what, key[1])]


@dataclass(slots=True)
class _Judge:
    """Looks at all touches of a run."""

    ground: Ground
    index: _Index
    pairs: int = 0

    def undeclared(self, touches: Iterable[Touch]) -> Iterator[_Raised]:
        """Touches that their tasks do not declare and should."""
        for touch in touches:
            declared = self.ground.declared(touch.group, touch.member)
            if is_said(declared, touch):
                continue
            is_silent = said_of(declared, touch) is None
            if is_silent and (touch.room, touch.is_write) not in self.ground.rooms:
                continue
            other = self._other(touch)
            is_file_read = touch.room == "path" and not touch.is_write
            if is_file_read and other is None and touch.is_loose:
                continue
            verb = "effect" if touch.room == "effect" else "write" if touch.is_write else "read"
            kinds: dict[str, FindingKind] = {
                "effect": "undeclared-effect", "write": "undeclared-write",
                "read": "undeclared-read",
            }  # fmt: skip
            yield _Raised(kinds[verb], touch, other)

    def hazards(self, known: set[tuple[int, Room, str]]) -> Iterator[_Raised]:
        """Pairs in no order, of things about which nothing was found yet."""
        for thing, writers in self.index.writers.items():
            some = _some(writers)
            for place, one in enumerate(some):
                for other in some[place + 1 :]:
                    is_sum = one.is_addition and other.is_addition
                    if not is_sum and self._is_hazard(one, other, known):
                        yield _Raised("hazard", other, one)
            for reader in _some(self.index.readers.get(thing, [])):
                yield from self._read_hazards(reader, some, known)
        for (room, what), readers in self.index.readers.items():
            if is_pattern(what):
                for thing in self.index.written(room, what):
                    for reader in _some(readers):
                        yield from self._read_hazards(
                            reader, _some(self.index.writers[thing]), known
                        )

    def _read_hazards(
        self, reader: Touch, writers: Sequence[Touch], known: set[tuple[int, Room, str]]
    ) -> Iterator[_Raised]:
        for writer in writers:
            if self._is_hazard(writer, reader, known):
                yield _Raised("hazard", reader, writer)

    def _is_hazard(self, one: Touch, other: Touch, known: set[tuple[int, Room, str]]) -> bool:
        """Whether nothing orders two touches, and nothing was said of either of them."""
        who, whom = (one.group, one.member), (other.group, other.member)
        if who == whom or self.pairs >= PAIRS_MAX:
            return False
        self.pairs += 1
        if {(one.group, one.room, one.what), (other.group, other.room, other.what)} & known:
            return False
        are_said = all(
            is_said(self.ground.declared(touch.group, touch.member), touch)
            for touch in (one, other)
        )
        return not are_said and not self.ground.is_ordered(who, whom)

    def _other(self, touch: Touch) -> Touch | None:
        """Another task that touches the same, and with which it is in conflict."""
        found: list[Touch] = []
        for thing in self.index.written(touch.room, touch.what):
            found += _some(self.index.writers[thing])
        if touch.is_write:
            found += _some(self.index.readers.get((touch.room, touch.what), []))
        for one in found:
            is_self = (one.group, one.member) == (touch.group, touch.member)
            if not is_self and not (one.is_addition and touch.is_addition):
                return one
        return None


def order_by(
    needs: Sequence[Sequence[tuple[int, int]]], queues: Iterable[Sequence[int]]
) -> Callable[[Task, Task], bool]:
    """Whether a plan orders two tasks: by needs (a group, and blocks of how many, 0 for all of it),
    by queues.

    What comes before a group is found when it is asked for, and kept.
    """
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
    kept: dict[int, dict[int, int]] = {}

    def all_before(group: int) -> dict[int, int]:
        if group not in kept:
            kept[group] = _ancestors(before, group)
        return kept[group]

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


def _some(touches: Sequence[Touch]) -> list[Touch]:
    """Of each group a few members: the order of two of them is that of all."""
    counts: dict[int, int] = {}
    some: list[Touch] = []
    for touch in touches:
        counts[touch.group] = counts.get(touch.group, 0) + 1
        if counts[touch.group] <= ALIKE:
            some.append(touch)
    return some


def _is_draft(path: str, written: str) -> bool:
    """Whether a path is what a file is called until it is complete: beside it, its name inside."""
    folder, _, name = path.rpartition("/")
    home, _, final = written.rpartition("/")
    return folder == home and len(final) > 0 and final in name


def _told(raised: Iterable[_Raised], ground: Ground) -> Iterator[Finding]:
    """Findings, each once for all members of a group and for all things that are alike."""
    buckets: dict[tuple[FindingKind, int, int], dict[str, list[_Raised]]] = {}
    for one in raised:
        touch, other = one.touch, one.other
        shown = general(touch.shown, ground.item(touch.group, touch.member))
        pair = -1 if other is None or one.kind != "hazard" else other.group
        key = (one.kind, touch.group, pair)
        buckets.setdefault(key, {}).setdefault(shown, []).append(one)
    for by_thing in buckets.values():
        patterns: dict[str, list[_Raised]] = {name: [] for name in condensed(by_thing)}
        for shown, every in by_thing.items():
            patterns[_covering(patterns, shown)] += every
        for pattern, every in patterns.items():
            yield _finding(pattern, every, ground)


def _covering(patterns: Iterable[str], shown: str) -> str:
    """What stands for a thing among those that things were condensed to."""
    fits = (one for one in patterns if one.endswith("*") and shown.startswith(one.rstrip("*")))
    return shown if shown in patterns else next(fits)


def _finding(shown: str, every: Sequence[_Raised], ground: Ground) -> Finding:
    first = next((one for one in every if one.other is not None), every[0])
    touch, other = first.touch, first.other
    count = len({one.touch.member for one in every})
    whom = "" if other is None else other.name
    key = "writes" if touch.is_write else "reads"
    where = ground.where(touch.group, key)
    verb = "asks for" if touch.room == "effect" else key
    if first.kind != "hazard":
        words = f"`{touch.name}` {verb} `{touch.shown}` and does not declare it"
        if other is not None:
            words += f"; `{whom}` {'writes' if other.is_write else 'reads'} it"
        is_silent = said_of(ground.declared(touch.group, touch.member), touch) is None
        fix = f"{key}: {_quoted(shown)}" if is_silent else f"add {_quoted(shown)} to `{key}`"
        return Finding(first.kind, touch.name, touch.shown, whom, words, fix, where, count)
    if touch.is_write:
        words = f"`{whom}` and `{touch.name}` both write `{touch.shown}`, and nothing orders them"
    else:
        words = f"`{touch.name}` reads `{touch.shown}`, which `{whom}` writes, "
        words += "and nothing orders them"
    words += ": this run came out right by luck" if touch.room == "path" else _KEPT
    # Members of one group cannot need each other, but they can take turns.
    remedy = "queue" if other is not None and other.group == touch.group else "needs"
    fix = f"{remedy}: {whom.partition('[')[0]}"
    return Finding("hazard", touch.name, touch.shown, whom, words, fix, where, count)


_KEPT: Final = ": headway kept the declared order, and may have to run tasks again for it"


def _quoted(entry: str) -> str:
    """An entry of a list in a plan, which YAML must not read as something else."""
    return f'"{entry}"' if "{{" in entry or "*" in entry else entry
