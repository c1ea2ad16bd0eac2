"""Two tasks that touch one path in no fixed order, in words: who, what would go wrong, the fix."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal

from headway.errors import Fix, HazardError, Place, PlanError
from headway.plans.accesses import (
    ANYONE,
    StateTouched,
    TaskOrder,
    Touched,
    Who,
    order_of,
    state_touched,
    touched_by,
)
from headway.plans.expand import ExpandedPlan, GroupPlan, NeedEdge
from headway.plans.links import with_need
from headway.plans.resources import SCHEME, above, fixed_part, inside
from headway.plans.section import PlanFaults, shown
from headway.plans.spec import TaskSpec
from headway.plans.template import Template, parse_template

# What `headway check` remarks on in a plan that can be run: what is odd, where, and the fix.

Severity = Literal["warning", "note"]
"""It will hardly give what is meant; or it can be meant, and whoever reads it knows."""

Kind = Literal[
    "undeclared", "nobody writes", "read too early", "nobody reads", "carries nothing",
    "runs again", "unused variable", "no model", "not judged",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that looks odd."""

    severity: Severity
    kind: Kind
    task: str
    """The declared task; empty if it is about the plan."""
    message: str
    detail: str = ""
    """What would go wrong."""
    hint: str = ""
    fixes: tuple[Fix, ...] = ()
    """What the hint says, as edits of the plan."""
    where: str = ""
    """File, line and column."""
    what: str = ""
    """The path or key that it is about, as declared."""


def where(file: str, place: Place) -> str:
    """A place as people read it."""
    return f"{file}:{place.line}:{place.column}" if place.line else file


def with_entry(task: TaskSpec, key: Literal["reads", "writes"], entry: str) -> Fix:
    """The edit that adds an entry to what a task declares."""
    entries = task.reads if key == "reads" else task.writes
    if any(name == key for name, _ in task.spots):
        value = (*entries, entry) if entries else entry
        return Fix("replace", task.spot(key).value, value=value)
    return Fix("add", task.body, key, entry)


def listed(names: list[str], most: int = 3) -> str:
    """Names in a sentence: `a`, `b` and 7 more."""
    shown = [f"`{name}`" for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


# Who would read the shared state too early: edges where tasks say what they touch, else notes.

EDGES_MAX: Final = 100_000
"""Edges by keys of the state. A plan with more starts its tasks at once and runs some again."""

MEMBERWISE_EDGES_MAX: Final = 100
"""Of one group; the engine counts them in a byte."""

NOTES_MAX: Final = 20


def edges_by_keys(
    expanded: ExpandedPlan, state: StateTouched, order: TaskOrder
) -> dict[int, list[NeedEdge]]:
    """For every reader of keys, those before it in the serial run that declare to write them."""
    found: dict[int, dict[int, bool]] = {}
    count = 0
    for prefix, readers in state.keys.reads.items():
        writers = list(_writers(state, prefix))
        count += len(readers) * len(writers)
        if count > EDGES_MAX:
            return {}
        for reader, who in readers.items():
            for writer, other in writers:
                is_before = order.position[writer] < order.position[reader]
                if is_before and not order.has(writer, reader, other, who):
                    is_own = who == other != ANYONE
                    needs = found.setdefault(reader, {})
                    needs[writer] = is_own and needs.get(writer, True)
    return {reader: _edges(expanded, reader, needs) for reader, needs in found.items()}


def _edges(expanded: ExpandedPlan, reader: int, needs: Mapping[int, bool]) -> list[NeedEdge]:
    """Members that read what the same members wrote need not wait for the others."""
    count = expanded.groups[reader].count or 0
    is_few = count > 1 and sum(needs.values()) <= MEMBERWISE_EDGES_MAX
    return [
        NeedEdge(
            writer,
            is_own and is_few and expanded.groups[writer].count == count,
            "reads",
        )
        for writer, is_own in sorted(needs.items())
    ]


def _writers(state: StateTouched, prefix: str) -> Iterator[tuple[int, Who]]:
    """Who writes a key, something in it or something around it."""
    for one in (prefix, *above(prefix)):
        yield from state.keys.writes.get(one, {}).items()
    yield from state.keys.below(prefix)[1].items()


def runs_again(expanded: ExpandedPlan, state: StateTouched, order: TaskOrder) -> Iterator[Remark]:
    """Notes on tasks that may read too early, because they or others do not say what they touch."""
    before = order.entirely
    groups = expanded.groups
    told = 0
    for index in sorted({*state.readers, *_readers(state)}):
        if told >= NOTES_MAX:
            return
        group = groups[index]
        is_free = index in state.readers
        early = [
            other
            for other in _early(group, state, is_free)
            if not before[index] >> other & 1 and not before[other] >> index & 1
        ]
        if early:
            told += 1
            yield _note(expanded, group, [groups[one] for one in early], is_free)
        elif not group.task.queue and (key := _shared_by_members(group, state)):
            told += 1
            yield _siblings(expanded, group, key)


def _readers(state: StateTouched) -> set[int]:
    return {group for groups in state.keys.reads.values() for group in groups}


def _early(group: GroupPlan, state: StateTouched, is_free: bool) -> list[int]:
    """Those declared before a reader that may write what it reads."""
    found = set(state.writers)
    if is_free:
        found |= {one for groups in state.keys.writes.values() for one in groups}
    return sorted(one for one in found if one < group.index)


def _shared_by_members(group: GroupPlan, state: StateTouched) -> str:
    """A key that members of one group read and others of them write; empty if there is none."""
    if group.count == 1:
        return ""
    for prefix, readers in state.keys.reads.items():
        if group.index in readers:
            for writer, who in _writers(state, prefix):
                is_own = who == readers[group.index] != ANYONE
                if writer == group.index and not is_own:
                    return prefix or "everything"
    return ""


def _note(
    expanded: ExpandedPlan, group: GroupPlan, early: list[GroupPlan], is_free: bool
) -> Remark:
    names = listed([one.name for one in early])
    have, needs = "has", early[0].name
    if len(early) > 1:
        have, needs = "have", f"[{', '.join(one.name for one in early)}]"
    silent = early[0] if not is_free else group
    key = "reads" if is_free else "writes"
    message = f"`{silent.name}` does not say what it {key} of the shared state"
    detail = f"if `{group.name}` reads before {names} {have} written, it runs again"
    hint = f"add `{key}: {SCHEME}KEY` to `{silent.name}`, or `needs: {needs}` to "
    hint += f"`{group.name}`, and no attempt is paid twice"
    return Remark(
        "note", "runs again", silent.name, message, detail, hint, (),
        where(expanded.spec.file, silent.task.place),
    )  # fmt: skip


def _siblings(expanded: ExpandedPlan, group: GroupPlan, key: str) -> Remark:
    task = group.task
    return Remark(
        "note",
        "runs again",
        group.name,
        f"members of `{group.name}` read `{SCHEME}{shown(key)}`, which others of them write",
        "those that read too early run again, until each has seen what those before it wrote",
        f"add `queue: {group.name}`, so that they run one at a time and no attempt is paid twice",
        (Fix("add", task.body, "queue", group.name),),
        where(expanded.spec.file, task.spot("reads").value),
    )


PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class Clash:
    """One of them writes what the other touches."""

    path: str
    """The outer one of both paths."""
    writer: int
    other: int
    is_read: bool
    """The other one reads it rather than writes it."""
    is_paced: bool = False
    """Same members come one after the other: only different ones are in no order."""


@dataclass(frozen=True, slots=True)
class MemberPath:
    """A member, and a path that it touches; -1 is any member of a group that is not known yet."""

    member: int
    path: str
    key: str
    """`reads`, `writes` or `output`."""


def filled(group: GroupPlan, text: str) -> Iterator[tuple[int, str]]:
    """The paths that a declared text stands for, each with the member that touches it."""
    template = parse_template(text) if "{{" in text else None
    count = group.count
    if not isinstance(template, Template) or not template.refs:
        plain = template.render(str) if isinstance(template, Template) else text
        path = fixed_part(inside(plain) or "")
        for member in range(count) if count else (-1,):
            yield member, path
    elif count is None:
        yield -1, inside(fixed_part(text, "*?[{")) or ""
    else:
        for member in range(count):
            value = group.fill(template, group.known.member(member))
            yield member, fixed_part(inside(value) or "")


def touches(group: GroupPlan, is_read: bool, path: str) -> Iterator[MemberPath]:
    """What members of a group touch in, at or around a path."""
    task = group.task
    texts = [("reads", text) for text in task.paths_read]
    if not is_read:
        texts = [("writes", text) for text in task.paths_written]
        texts += [("output", task.output)] if task.output else []
    for key, text in texts:
        for member, one in filled(group, text):
            if overlap(one, path):
                yield MemberPath(member, one, key)


def overlap(one: str, other: str) -> bool:
    """Whether two paths are the same or one lies within the other."""
    return one == other or is_around(one, other) or is_around(other, one)


def is_around(outer: str, inner: str) -> bool:
    """Whether one path lies within another one."""
    return inner != outer and (not outer or inner.startswith(outer + "/"))


def culprits(expanded: ExpandedPlan, clash: Clash) -> tuple[MemberPath, MemberPath]:
    """A member that writes, and another one that touches what it writes."""
    written = _two(touches(expanded.groups[clash.writer], False, clash.path), clash.path)
    touched = _two(touches(expanded.groups[clash.other], clash.is_read, clash.path), clash.path)
    pairs = (
        (one, other)
        for one in written
        for other in touched
        if not clash.is_paced or one.member != other.member or one.member < 0
        if overlap(one.path, other.path)
    )
    return next(pairs)


def _two(found: Iterator[MemberPath], path: str) -> list[MemberPath]:
    """Two members that touch a path itself, and two that touch something in it or around it.

    Among so many of each side there are two that are not the same member, if there are any.
    """
    exact: dict[int, MemberPath] = {}
    others: dict[int, MemberPath] = {}
    for touch in found:
        some = exact if touch.path == path else others
        if len(some) < PAIR:
            some.setdefault(touch.member, touch)
    return [*exact.values(), *others.values()]


def tell_siblings(expanded: ExpandedPlan, clash: Clash, faults: PlanFaults) -> None:
    """Two members of one group."""
    group = expanded.groups[clash.writer]
    task = group.task
    what = culprits(expanded, clash)
    both = (_called(group, what[0]), _called(group, what[1]))
    if what[0].member < 0:
        both = (f"one member of `{group.name}`", "another one")
    message = _reading(both, what) if clash.is_read else _writing(both, what)
    hint = f"add `queue: {task.name}`, so that they run one at a time"
    fix = Fix("add", task.body, "queue", task.name)
    place = task.spot(what[0].key).value
    faults.add(HazardError, place, message, hint, fix, detail=_wrong(both, clash))


def tell_unordered(expanded: ExpandedPlan, clash: Clash, faults: PlanFaults) -> None:
    """Members of two groups."""
    groups = (expanded.groups[clash.writer], expanded.groups[clash.other])
    what = culprits(expanded, clash)
    if not clash.is_read and clash.writer > clash.other:
        groups, what = groups[::-1], what[::-1]
    both = (_called(groups[0], what[0]), _called(groups[1], what[1]))
    task, needed = groups[1].task, groups[0].name
    hint = f"add `needs: {needed}` to `{task.name}`"
    if clash.is_read:
        message = f"{_reading(both, what)}, but does not need `{needed}`"
        hint += f"; or, if it is to read that version, `needs: {task.name}` to `{needed}`"
    else:
        comma = "" if what[0].path == what[1].path else ","
        message = f"{_writing(both, what)}{comma} in no fixed order"
    place = task.spot(what[1].key).value
    fix = with_need(task, needed)
    faults.add(HazardError, place, message, hint, fix, detail=_wrong(both, clash))


def _wrong(both: tuple[str, str], clash: Clash) -> str:
    """What happens if the second one runs before the first one, which comes before it."""
    if clash.is_read:
        return f"if {both[1]} runs first, it reads the version from before the run (stale)"
    return f"if {both[1]} runs first, {both[0]} overwrites it"


def _reading(both: tuple[str, str], what: tuple[MemberPath, MemberPath]) -> str:
    """A writer and a reader."""
    writer, reader = both
    written, read = _path(what[0]), _path(what[1])
    if written == read:
        return f"{reader} reads {read}, which {writer} writes"
    lies = "within" if is_around(what[0].path, what[1].path) else "around"
    return f"{reader} reads {read}, which lies {lies} {written}, which {writer} writes"


def _writing(both: tuple[str, str], what: tuple[MemberPath, MemberPath]) -> str:
    """Two writers."""
    first, second = _path(what[0]), _path(what[1])
    if first == second:
        return f"{both[0]} and {both[1]} both write {first}"
    lies = "within" if is_around(what[0].path, what[1].path) else "around"
    return f"{both[0]} and {both[1]} write {first} and {second}, which lies {lies} it"


def _path(touch: MemberPath) -> str:
    return f"`{shown(touch.path) or '.'}`"


def _called(group: GroupPlan, touch: MemberPath) -> str:
    """A member by its label; of a group that is not known yet, one of its members."""
    known = f"`{group.label(touch.member)}`" if touch.member >= 0 else ""
    return known or f"a member of `{group.name}`"


# What if B runs before A? Orders tasks by what they declare to read and write, or refuses.


@dataclass(frozen=True, slots=True)
class Survey:
    """A plan that was ordered, who touches what in it, and who comes before whom."""

    expanded: ExpandedPlan
    touched: Touched
    """Paths."""
    state: StateTouched
    """Keys of the shared state."""
    order: TaskOrder


def examined(expanded: ExpandedPlan) -> Survey:
    """The plan with an edge wherever a task reads what an earlier one writes, or all hazards."""
    survey, refusal = tried(expanded)
    if refusal is not None:
        raise refusal
    return survey


def tried(expanded: ExpandedPlan) -> tuple[Survey, PlanError | None]:
    """The same for a plan that is tried all the same, and why a run of it would be refused.

    To show what a hazard does one has to have it. What has no order at all is refused here too.
    """
    faults = PlanFaults(expanded.spec.file)
    touched = touched_by(expanded, faults)
    order = order_of(expanded, faults)
    faults.check()
    if new := _edges_by_reads(touched, order):
        expanded = _with_edges(expanded, new)
        order = order_of(expanded, faults)
    _Judge(expanded, touched, order, faults).judge()
    refusal = faults.error() if faults.statistics().faults else None
    state = state_touched(expanded)
    if keys := edges_by_keys(expanded, state, order):
        expanded = _with_edges(expanded, keys)
        order = order_of(expanded, faults)
    return Survey(expanded, touched, state, order), refusal


def _with_edges(expanded: ExpandedPlan, new: Mapping[int, list[NeedEdge]]) -> ExpandedPlan:
    groups = tuple(
        replace(group, edges=(*group.edges, *new[group.index])) if group.index in new else group
        for group in expanded.groups
    )
    return replace(expanded, groups=groups)


def _edges_by_reads(touched: Touched, order: TaskOrder) -> dict[int, list[NeedEdge]]:
    """For every reader, the writers before it that it is not ordered with yet."""
    found: dict[int, dict[int, NeedEdge]] = {}
    for path, readers in touched.reads.items():
        writers = touched.writes.get(path, {})
        around = touched.around(path)
        others = [touched.writes[outer] for outer in around if outer in touched.writes]
        if inner := touched.below(path)[1]:
            others.append(inner)
        if not writers and not others:
            continue
        declared = sorted(writers)
        for reader, who in readers.items():
            one = _nearest(reader, who, (declared, writers), order)
            if one is not None:
                found.setdefault(reader, {})[one] = NeedEdge(one, False, "reads")
            touched.count(sum(map(len, others)))
            for groups in others:
                for writer, other in groups.items():
                    if writer < reader and not order.has(writer, reader, other, who):
                        found.setdefault(reader, {})[writer] = NeedEdge(writer, False, "reads")
    return {reader: [edges[one] for one in sorted(edges)] for reader, edges in found.items()}


def _nearest(
    reader: int, who: Who, writers: tuple[list[int], dict[int, Who]], order: TaskOrder
) -> int | None:
    """The last writer of a path before a reader that it must wait for: it waits for the others."""
    declared, members = writers
    place = bisect_left(declared, reader) - 1
    while place >= 0:
        writer = declared[place]
        if not order.has(writer, reader, members[writer], who):
            return writer
        if not order.precedes(reader, writer):
            return None
        place -= 1
    return None


@dataclass(slots=True)
class _Judge:
    """Looks at every overlap of a plan whose order is final."""

    expanded: ExpandedPlan
    touched: Touched
    order: TaskOrder
    faults: PlanFaults
    told: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of groups that were refused already."""

    def judge(self) -> None:
        """Note every hazard, one for each pair of tasks."""
        writes, reads = self.touched.writes, self.touched.reads
        for path, writers in writes.items():
            self._judge_path(path, writers, reads.get(path, {}))
            inner_reads, inner_writes = self.touched.below(path)
            if inner_reads or inner_writes:
                self._judge_pairs(path, writers, inner_writes, False)
                self._judge_pairs(path, writers, inner_reads, True)
        for path, readers in reads.items():
            if inner_writes := self.touched.below(path)[1]:
                self._judge_pairs(path, inner_writes, readers, True)

    def _judge_path(self, path: str, writers: dict[int, Who], readers: dict[int, Who]) -> None:
        """Writers of one path form a chain, so only neighbours in it are compared."""
        for one in writers.items():
            if one[1] == ANYONE:
                self._judge_pair(path, one, one, False)
        if len(writers) == 1 and not readers:
            return
        position = self.order.position.__getitem__
        chain = sorted(writers, key=position)
        places = [position(writer) for writer in chain]
        for before, after in pairwise(chain):
            self._judge_pair(path, (before, writers[before]), (after, writers[after]), False)
        for reader, who in readers.items():
            place = bisect_left(places, position(reader))
            for writer in chain[max(place - 1, 0) : place + 2]:
                self._judge_pair(path, (writer, writers[writer]), (reader, who), True)

    def _judge_pairs(
        self, path: str, writers: dict[int, Who], others: dict[int, Who], is_read: bool
    ) -> None:
        self.touched.count(len(writers) * len(others))
        for writer, who in writers.items():
            for other, member in others.items():
                self._judge_pair(path, (writer, who), (other, member), is_read)

    def _judge_pair(
        self, path: str, writer: tuple[int, Who], other: tuple[int, Who], is_read: bool
    ) -> None:
        one, two = writer[0], other[0]
        pair = (min(one, two), max(one, two))
        if pair in self.told:
            return
        if one == two:
            is_other = writer[1] != other[1] or writer[1] == ANYONE
            if is_other and not self.expanded.groups[one].task.queue:
                self.told.add(pair)
                tell_siblings(self.expanded, Clash(path, one, two, is_read, True), self.faults)
        elif not self.order.has(one, two, writer[1], other[1]):
            self.told.add(pair)
            is_paced = self.order.precedes(one, two) or self.order.precedes(two, one)
            tell_unordered(self.expanded, Clash(path, one, two, is_read, is_paced), self.faults)
