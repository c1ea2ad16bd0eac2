"""Tasks that touch one path in no fixed order: the hazard in words, and the fix."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from headway.errors import Fix, HazardError, PlanError
from headway.plans.accesses import (
    ANYONE,
    StateTouched,
    TaskOrder,
    Touched,
    Who,
    order_of,
    paths,
    state_touched,
    touched_by,
)
from headway.plans.expand import ExpandedPlan, GroupPlan, NeedEdge
from headway.plans.resources import SCHEME
from headway.plans.rounds import loops_of
from headway.plans.section import PlanFaults, shown, where

# What `headway check` remarks on in a plan that can be run: what is odd, where, and the fix.

Severity = Literal["warning", "note"]
"""It will hardly give what is meant; or it can be meant, and a reader should know."""

Kind = Literal[
    "undeclared", "never written", "read too early", "never read", "carries nothing",
    "runs again", "outside workspaces", "unused variable", "no model", "not judged",
]  # fmt: skip


class Remark(Struct, frozen=True):
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
    other: str = ""
    """The other task that it is about."""


def listed(names: Sequence[str], most: int = 3) -> str:
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
        found_writers = state.keys.overlapping(prefix, True)
        writers = [one for groups in found_writers for one in groups.items()]
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
        NeedEdge(writer, is_own and is_few and expanded.groups[writer].count == count, "reads")
        for writer, is_own in sorted(needs.items())
    ]


def runs_again(expanded: ExpandedPlan, state: StateTouched, order: TaskOrder) -> Iterator[Remark]:
    """Notes on tasks that may read too early, because they or others do not say what they touch."""
    before = order.entirely
    groups = expanded.groups
    readers = {group for groups in state.keys.reads.values() for group in groups}
    for index in sorted({*state.readers, *readers}):
        group = groups[index]
        is_free = index in state.readers
        writers = set(state.writers)
        if is_free:
            writers.update(*state.keys.writes.values())
        early = [
            other
            for other in sorted(writers)
            if other < index and not (before[index] >> other & 1 or before[other] >> index & 1)
        ]
        if early:
            yield _note(expanded, group, [groups[one] for one in early], is_free)
        elif not group.task.queue and (key := _shared_by_members(group, state)):
            yield _siblings(expanded, group, key)


def _shared_by_members(group: GroupPlan, state: StateTouched) -> str:
    """A key that members of one group read and others of them write; empty if there is none."""
    if group.count == 1:
        return ""
    for prefix in state.keys.of_group(group.index)[0]:
        reader = state.keys.reads[prefix][group.index]
        for writers in state.keys.overlapping(prefix, True):
            if group.index in writers and not writers[group.index] == reader != ANYONE:
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
    place = where(expanded.spec.file, silent.task.place)
    return Remark("note", "runs again", silent.name, message, detail, hint, (), place)


def _siblings(expanded: ExpandedPlan, group: GroupPlan, key: str) -> Remark:
    task, name = group.task, group.name
    message = f"members of `{name}` read `{SCHEME}{shown(key)}`, which others of them write"
    detail = "those that read too early run again, until each has seen what those before it wrote"
    hint = f"add `queue: {name}`, so that they run one at a time and no attempt is paid twice"
    fixes = (Fix("add", task.body, "queue", name),)
    place = where(expanded.spec.file, task.spot("reads").value)
    return Remark("note", "runs again", name, message, detail, hint, fixes, place)


_Touch = tuple[int, str, str]
"""A member (-1: any, of a group that is not known yet), a path that it touches, and the key."""


def filled(group: GroupPlan, text: str) -> Iterator[tuple[int, str]]:
    """The paths of a declared text with a member that touches each; two if all members do."""
    for path, who, _ in paths(group, text):
        if who == ANYONE:
            yield from ((member, path or "") for member in range(min(2, group.count or 0)) or (-1,))
        else:
            yield who if isinstance(who, int) else -1, path or ""


def _touches(group: GroupPlan, is_read: bool, path: str) -> list[_Touch]:
    """Two members that touch a path itself, and two that touch something in it or around it.

    Among so many of each side there are two that are not the same member, if there are any.
    """
    task = group.task
    texts = [("reads", text) for text in task.paths_read]
    if not is_read:
        texts = [("writes", text) for text in task.paths_written]
        texts += [("output", task.output)] if task.output else []
    exact: dict[int, _Touch] = {}
    others: dict[int, _Touch] = {}
    for key, text in texts:
        for member, one in filled(group, text):
            some = exact if one == path else others
            if len(some) < 2 and _overlap(one, path):
                some.setdefault(member, (member, one, key))
    return [*exact.values(), *others.values()]


def _overlap(one: str, other: str) -> bool:
    return one == other or _is_around(one, other) or _is_around(other, one)


def _is_around(outer: str, inner: str) -> bool:
    return inner != outer and (not outer or inner.startswith(outer + "/"))


# What if B runs before A? Orders tasks by what they declare to read and write, or refuses.


class Survey(Struct, frozen=True):
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
    """The same for a plan that is tried all the same, and why a run of it would be refused."""
    faults = PlanFaults(expanded.spec.file)
    touched = touched_by(expanded, faults)
    order = order_of(expanded, faults)
    faults.check()
    if new := _edges_by_reads(touched, order):
        expanded = _with_edges(expanded, new)
        order = order_of(expanded, faults)
    _judge(expanded, touched, order, faults)
    refusal = faults.error() if faults.found else None
    state = state_touched(expanded)
    if keys := edges_by_keys(expanded, state, order):
        expanded = _with_edges(expanded, keys)
        order = order_of(expanded, faults)
    loops_of(expanded)  # Which refuses those that cannot be.
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
            one = _nearest(reader, who, declared, writers, order)
            if one is not None:
                found.setdefault(reader, {})[one] = NeedEdge(one, False, "reads")
            touched.count(sum(map(len, others)))
            for groups in others:
                for writer, other in groups.items():
                    if writer < reader and not order.has(writer, reader, other, who):
                        found.setdefault(reader, {})[writer] = NeedEdge(writer, False, "reads")
    return {reader: [edges[one] for one in sorted(edges)] for reader, edges in found.items()}


def _nearest(
    reader: int, who: Who, declared: list[int], writers: dict[int, Who], order: TaskOrder
) -> int | None:
    """The last writer of a path before a reader that it must wait for: it waits for the others."""
    for writer in reversed(declared[: bisect_left(declared, reader)]):
        if not order.has(writer, reader, writers[writer], who):
            return writer
        if not order.precedes(reader, writer):
            return None
    return None


def _judge(expanded: ExpandedPlan, touched: Touched, order: TaskOrder, faults: PlanFaults) -> None:
    """Note every hazard of a plan whose order is final, one for each pair of tasks."""
    told: set[tuple[int, int]] = set()
    position = order.position.__getitem__

    def judge(path: str, one: int, first: Who, two: int, second: Who, is_read: bool) -> None:
        """Compare a member that writes with another one that reads or writes."""
        pair = (min(one, two), max(one, two))
        if pair in told:
            return
        if one == two:
            is_hazard = first != second or first == ANYONE
            is_hazard = is_hazard and not expanded.groups[one].task.queue
        else:
            is_hazard = not order.has(one, two, first, second)
        if is_hazard:
            told.add(pair)
            is_paced = one == two or order.precedes(one, two) or order.precedes(two, one)
            _tell(expanded, path, one, two, is_read, is_paced, faults)

    def judge_all(
        path: str, writers: dict[int, Who], others: dict[int, Who], is_read: bool
    ) -> None:
        touched.count(len(writers) * len(others))
        for writer, who in writers.items():
            for other, member in others.items():
                judge(path, writer, who, other, member, is_read)

    for path, writers in touched.writes.items():
        for writer, who in writers.items():
            if who == ANYONE:
                judge(path, writer, who, writer, who, False)
        # Writers of one path form a chain, so only neighbours in it are compared.
        if len(writers) == 1 and path not in touched.reads and not any(touched.below(path)):
            continue
        chain = sorted(writers, key=position)
        places = [position(writer) for writer in chain]
        for one, two in pairwise(chain):
            judge(path, one, writers[one], two, writers[two], False)
        for reader, who in touched.reads.get(path, {}).items():
            place = bisect_left(places, position(reader))
            for writer in chain[max(place - 1, 0) : place + 2]:
                judge(path, writer, writers[writer], reader, who, True)
        inner_reads, inner_writes = touched.below(path)
        if inner_reads or inner_writes:
            judge_all(path, writers, inner_writes, False)
            judge_all(path, writers, inner_reads, True)
    for path, readers in touched.reads.items():
        if inner_writes := touched.below(path)[1]:
            judge_all(path, inner_writes, readers, True)


def _tell(
    expanded: ExpandedPlan,
    path: str,
    writer: int,
    other: int,
    is_read: bool,
    is_paced: bool,
    faults: PlanFaults,
) -> None:
    """Note two groups that touch a path in no fixed order; `is_paced`: only other members clash."""
    groups = (expanded.groups[writer], expanded.groups[other])
    what = next(
        (one, two)
        for one in _touches(groups[0], False, path)
        for two in _touches(groups[1], is_read, path)
        if not is_paced or one[0] != two[0] or one[0] < 0
        if _overlap(one[1], two[1])
    )
    if not is_read and writer > other:
        groups, what = groups[::-1], what[::-1]
    both = (_called(groups[0], what[0]), _called(groups[1], what[1]))
    first, task = groups[0].name, groups[1].task
    if writer == other and what[0][0] < 0:
        both = (f"one member of `{first}`", "another one")
    message = _words(both, what, is_read)
    if writer == other:
        hint = f"add `queue: {first}`, so that they run one at a time"
        place, fix = task.spot(what[0][2]).value, Fix("add", task.body, "queue", first)
    else:
        hint = f"add `needs: {first}` to `{task.name}`"
        place, fix = task.spot(what[1][2]).value, task.extend("needs", first)
        if is_read:
            message += f", but does not need `{first}`"
            hint += f"; or, if it is to read that version, `needs: {task.name}` to `{first}`"
        else:
            message += f"{'' if what[0][1] == what[1][1] else ','} in no fixed order"
    detail = f"if {both[1]} runs first, {both[0]} overwrites it"
    if is_read:
        detail = f"if {both[1]} runs first, it reads the version from before the run (stale)"
    faults.add(HazardError, place, message, hint, fix, detail=detail)


def _words(both: tuple[str, str], what: tuple[_Touch, _Touch], is_read: bool) -> str:
    """Which of two members touches which path, in a sentence without its end."""
    one, two = (f"`{shown(path) or '.'}`" for _, path, _ in what)
    lies = "within" if _is_around(what[0][1], what[1][1]) else "around"
    if is_read:
        path = two if one == two else f"{two}, which lies {lies} {one}"
        return f"{both[1]} reads {path}, which {both[0]} writes"
    if one == two:
        return f"{both[0]} and {both[1]} both write {one}"
    return f"{both[0]} and {both[1]} write {one} and {two}, which lies {lies} it"


def _called(group: GroupPlan, touch: _Touch) -> str:
    """A member by its label; of a group that is not known yet, one of its members."""
    known = f"`{group.label(touch[0])}`" if touch[0] >= 0 else ""
    return known or f"a member of `{group.name}`"
