"""Two tasks that touch one path in no fixed order, in words: who, what would go wrong, the fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headway.core.plan.expand import Expanded, GroupPlan
from headway.core.plan.links import with_need
from headway.core.plan.paths import fixed_part, inside
from headway.core.plan.section import Faults, shown
from headway.core.plan.template import Template, parse_template
from headway.errors import Fix, HazardError

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
class Touch:
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


def touches(group: GroupPlan, is_read: bool, path: str) -> Iterator[Touch]:
    """What members of a group touch in, at or around a path."""
    task = group.task
    texts = [("reads", text) for text in task.paths_read]
    if not is_read:
        texts = [("writes", text) for text in task.paths_written]
        texts += [("output", task.output)] if task.output else []
    for key, text in texts:
        for member, one in filled(group, text):
            if overlap(one, path):
                yield Touch(member, one, key)


def overlap(one: str, other: str) -> bool:
    """Whether two paths are the same or one lies within the other."""
    return one == other or is_around(one, other) or is_around(other, one)


def is_around(outer: str, inner: str) -> bool:
    """Whether one path lies within another one."""
    return inner != outer and (not outer or inner.startswith(outer + "/"))


def culprits(expanded: Expanded, clash: Clash) -> tuple[Touch, Touch]:
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


def _two(found: Iterator[Touch], path: str) -> list[Touch]:
    """Two members that touch a path itself, and two that touch something in it or around it.

    Among so many of each side there are two that are not the same member, if there are any.
    """
    exact: dict[int, Touch] = {}
    others: dict[int, Touch] = {}
    for touch in found:
        some = exact if touch.path == path else others
        if len(some) < PAIR:
            some.setdefault(touch.member, touch)
    return [*exact.values(), *others.values()]


def tell_siblings(expanded: Expanded, clash: Clash, faults: Faults) -> None:
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


def tell_unordered(expanded: Expanded, clash: Clash, faults: Faults) -> None:
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


def _reading(both: tuple[str, str], what: tuple[Touch, Touch]) -> str:
    """A writer and a reader."""
    writer, reader = both
    written, read = _path(what[0]), _path(what[1])
    if written == read:
        return f"{reader} reads {read}, which {writer} writes"
    lies = "within" if is_around(what[0].path, what[1].path) else "around"
    return f"{reader} reads {read}, which lies {lies} {written}, which {writer} writes"


def _writing(both: tuple[str, str], what: tuple[Touch, Touch]) -> str:
    """Two writers."""
    first, second = _path(what[0]), _path(what[1])
    if first == second:
        return f"{both[0]} and {both[1]} both write {first}"
    lies = "within" if is_around(what[0].path, what[1].path) else "around"
    return f"{both[0]} and {both[1]} write {first} and {second}, which lies {lies} it"


def _path(touch: Touch) -> str:
    return f"`{shown(touch.path) or '.'}`"


def _called(group: GroupPlan, touch: Touch) -> str:
    """A member by its label; of a group that is not known yet, one of its members."""
    known = f"`{group.label(touch.member)}`" if touch.member >= 0 else ""
    return known or f"a member of `{group.name}`"
