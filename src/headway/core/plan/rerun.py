"""Who would read the shared state too early: edges where tasks say what they touch, else notes.

Laws:
- What tasks do to the state takes effect in declared order, whoever finishes first. A task that has
  read too early runs again: so an overlap is never a hazard, and costs time and tokens at most.
- A task that declares to read what a task before it declares to write waits for it: tasks that
  say what they touch never run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headway.core.plan.expand import Edge, Expanded, GroupPlan
from headway.core.plan.paths import above
from headway.core.plan.precedence import Order
from headway.core.plan.remark import Remark, listed, where
from headway.core.plan.resources import SCHEME
from headway.core.plan.section import shown
from headway.core.plan.touched import ANYONE, StateTouched, Who
from headway.errors import Fix

EDGES_MAX: Final = 100_000
"""Edges by keys of the state. A plan with more starts its tasks at once and runs some again."""

MEMBERWISE_EDGES_MAX: Final = 100
"""Of one group; the engine counts them in a byte."""

NOTES_MAX: Final = 20


def edges_by_keys(expanded: Expanded, state: StateTouched, order: Order) -> dict[int, list[Edge]]:
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


def _edges(expanded: Expanded, reader: int, needs: Mapping[int, bool]) -> list[Edge]:
    """Members that read what the same members wrote need not wait for the others."""
    count = expanded.groups[reader].count or 0
    is_few = count > 1 and sum(needs.values()) <= MEMBERWISE_EDGES_MAX
    return [
        Edge(
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


def runs_again(expanded: Expanded, state: StateTouched, order: Order) -> Iterator[Remark]:
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


def _note(expanded: Expanded, group: GroupPlan, early: list[GroupPlan], is_free: bool) -> Remark:
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


def _siblings(expanded: Expanded, group: GroupPlan, key: str) -> Remark:
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
