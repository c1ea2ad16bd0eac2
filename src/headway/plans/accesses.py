"""Who touches which path and which key of the shared state: what a plan declares, by member."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headway.errors import (
    CycleError,
    Fix,
    PlanTooLargeError,
    PlanValueError,
    QueueOrderError,
    SourceError,
)
from headway.plans.expand import ExpandedPlan, GroupPlan, NeedEdge, stakes_of
from headway.plans.links import Link, circle, reversed_edges, serial, told_circle, without
from headway.plans.resources import WILD, Channel, above, fixed_part, inside, led_back
from headway.plans.section import PlanFaults, shown
from headway.plans.sharing import entries_of, flaw_of, folder_of, prefix_in
from headway.plans.template import Template, parse_template

PAIRS_MAX: Final = 1_000_000
"""Overlaps between groups that are looked at: as many as take about a second."""

Who = int | str
"""A member by number; by the text of a path that every member fills differently; or anyone."""

ANYONE: Final = -1

Entries = dict[str, dict[int, Who]]
"""By path, who touches it: groups, and the member of each."""

Both = tuple[dict[int, Who], dict[int, Who]]
"""Who reads, and who writes."""

_NOBODY: Final[Both] = ({}, {})
"""Of most paths. Whoever asks does not change what is told."""


@dataclass(frozen=True, slots=True)
class TouchedStatistics:
    """How many paths are read and written, and how many overlaps were looked at."""

    read: int
    written: int
    pairs: int


class Touched:
    """All paths that a plan declares, and who touches them."""

    __slots__ = ("_around", "_below", "_file", "_pairs", "reads", "writes")

    def __init__(self, file: str = "") -> None:
        self._file = file
        self.reads: Final[Entries] = {}
        self.writes: Final[Entries] = {}
        self._pairs = 0
        self._around: dict[str, tuple[str, ...]] = {}
        self._below: dict[str, Both] | None = None

    def __repr__(self) -> str:
        return f"<Touched {len(self.reads)} read, {len(self.writes)} written>"

    def statistics(self) -> TouchedStatistics:
        """Counts so far."""
        return TouchedStatistics(len(self.reads), len(self.writes), self._pairs)

    def count(self, pairs: int) -> None:
        """So many overlaps are looked at."""
        self._pairs += pairs
        if self._pairs > PAIRS_MAX:
            message = f"more than {PAIRS_MAX:,} overlaps between `reads` and `writes`"
            raise PlanTooLargeError(message, where=self._file)

    def put(self, entries: Entries, path: str, group: int, who: Who) -> None:
        """A member touches a path."""
        groups = entries.get(path)
        if groups is None:
            entries[path] = {group: who}
        else:
            _merge(groups, group, who)

    def around(self, path: str) -> tuple[str, ...]:
        """Every declared folder that a path lies in, the nearest first. Ask when all are put."""
        if not path:
            return ()
        folder = path.rpartition("/")[0]
        found = self._around.get(folder)
        if found is None:
            every = (folder, *above(folder))
            found = tuple(one for one in every if one in self.reads or one in self.writes)
            self._around[folder] = found
        return found

    def below(self, path: str) -> Both:
        """Who reads and who writes something within a declared path."""
        if self._below is None:
            self._below = {}
            for place, entries in enumerate((self.reads, self.writes)):
                for inner, groups in entries.items():
                    # Whoever touches a path touches something in every declared folder above it.
                    for outer in self.around(inner):
                        merged = self._below.setdefault(outer, ({}, {}))[place]
                        for group, who in groups.items():
                            _merge(merged, group, who)
        return self._below.get(path, _NOBODY)


def _merge(groups: dict[int, Who], group: int, who: Who) -> None:
    """One member of a group, or with a second one of it: anyone."""
    before = groups.get(group, who)
    is_one = before == who or (isinstance(before, str) and isinstance(who, str))
    groups[group] = before if is_one else ANYONE


@dataclass(frozen=True, slots=True)
class StateTouched:
    """Who may touch which keys of the shared state. Groups that may touch any are not in `keys`."""

    keys: Touched
    """By prefix, as overlaps are judged: a key by itself, a pattern by its folder, any by ""."""
    exact: Touched
    """By key or pattern, its holes filled."""
    acts: Entries
    """By effect channel."""
    readers: tuple[int, ...]
    """Groups that do not say what they read: they may read anything."""
    writers: tuple[int, ...]
    """Groups that do not say what they write."""
    actors: tuple[int, ...]
    """Groups that do not say which effects they ask for."""


def state_touched(expanded: ExpandedPlan) -> StateTouched:
    """All keys of the shared state that a plan names, and who touches them.

    A prompt's `{{ state.KEY }}` is a read, an `output` is a write. What tasks do to the state is
    put in order when they run: an overlap here is no hazard, and couples tasks.
    """
    keys, exact, acts = (Touched(expanded.spec.file) for _ in range(3))
    free: tuple[list[int], list[int], list[int]] = ([], [], [])
    for group, stake in zip(expanded.groups, stakes_of(expanded), strict=True):
        if stake is None:
            continue
        for number, whats in enumerate((stake.reads, stake.writes, stake.acts)):
            if whats is None:
                free[number].append(group.index)
                continue
            for template in whats:
                for what, prefix, who in _keys(group, template):
                    if number == 2:
                        acts.put(acts.writes, prefix, group.index, who)
                        continue
                    for touched, one in ((keys, prefix), (exact, what)):
                        entries = touched.writes if number else touched.reads
                        touched.put(entries, one, group.index, who)
    readers, writers, actors = (tuple(groups) for groups in free)
    return StateTouched(keys, exact, acts.writes, readers, writers, actors)


def _keys(group: GroupPlan, template: Template) -> Iterator[tuple[str, str, Who]]:
    """The keys or patterns that one text stands for, each with its prefix, and who touches it."""
    if not template.refs:
        what = template.render(str)
        yield what, prefix_in(what), _anyone(group)
        return
    if group.members is None:
        has_vars = any(ref.var for ref in template.refs)
        who = f"{group.index}:{template.source}" if has_vars else template.source
        yield template.source, folder_of(template), who
        return
    for index in range(group.members.count):
        what = group.fill(template, group.members.member(index))
        yield what, prefix_in(what), index


def touched_by(expanded: ExpandedPlan, faults: PlanFaults) -> Touched:
    """All paths of a plan; notes those that lead out of its folder, and keys that are none."""
    touched = Touched(expanded.spec.file)
    channels = expanded.spec.channels
    for group in expanded.groups:
        task = group.task
        index, who = group.index, _anyone(group)
        if "{{" in "".join((*task.reads, *task.writes, task.output_key)):
            _check_keys(group, channels, faults)
        for key, texts, entries in (
            ("reads", task.paths_read, touched.reads),
            ("writes", task.paths_written, touched.writes),
            ("output", (task.output,) if task.output else (), touched.writes),
        ):
            for text in texts:
                if "{{" in text:
                    for filled, member in _paths(group, key, text, faults):
                        touched.put(entries, filled, index, member)
                elif (path := inside(text)) is not None:
                    touched.put(entries, fixed_part(path), index, who)
                else:
                    _leads_out(group, key, text, faults)
    return touched


def _anyone(group: GroupPlan) -> Who:
    """Who touches what all members of a group touch."""
    return 0 if group.count == 1 else ANYONE


def _paths(group: GroupPlan, key: str, text: str, faults: PlanFaults) -> Iterator[tuple[str, Who]]:
    """The paths that a text with braces stands for, and who touches each."""
    template = parse_template(text)
    if not isinstance(template, Template) or not template.refs:
        plain = template.render(str) if isinstance(template, Template) else text
        path = inside(plain)
        if path is None:
            _leads_out(group, key, text, faults)
        else:
            yield fixed_part(path), _anyone(group)
        return
    if group.members is None:
        path = inside(fixed_part(text, WILD + "{"))
        if path is None:
            _leads_out(group, key, text, faults)
            return
        has_vars = any(ref.var for ref in template.refs)
        yield path, f"{group.index}:{text}" if has_vars else text
        return
    is_wild = any(char in part for part in template.parts if isinstance(part, str) for char in WILD)
    for index in range(group.members.count):
        filled = group.fill(template, group.members.member(index))
        path = inside(filled)
        if path is None:
            message = f"`{shown(filled)}` in `{key}` of `{group.label(index)}`"
            faults.add(
                SourceError, group.task.spot(key).value, f"{message} leads out of the plan's folder"
            )
            return
        yield fixed_part(path) if is_wild else path, index


def _check_keys(group: GroupPlan, channels: dict[str, Channel], faults: PlanFaults) -> None:
    """Note the first member for whom an entry with holes does not name a key or an effect."""
    for key, texts in entries_of(group.task):
        for text in texts:
            template = parse_template(text)
            if not isinstance(template, Template) or not template.refs or group.members is None:
                continue
            for index in range(group.members.count):
                filled = group.fill(template, group.members.member(index))
                flaw = flaw_of(channels, key, filled)
                if flaw is not None:
                    message = f"`{shown(filled)}` in `{key}` of `{group.label(index)}`"
                    place = group.task.spot(key).value
                    faults.add(PlanValueError, place, f"{message}: {flaw.message}")
                    break


def _leads_out(group: GroupPlan, key: str, text: str, faults: PlanFaults) -> None:
    task = group.task
    texts: Sequence[str] = {"reads": task.reads, "writes": task.writes}.get(key, (text,))
    better = tuple(led_back(other) if other == text else other for other in texts)
    place = task.spot(key).value
    message = f"`{shown(text)}` in `{key}` of `{task.name}` leads out of the plan's folder"
    value = better if len(better) > 1 else better[0]
    hint = f"write `{shown(led_back(text))}`"
    faults.add(SourceError, place, message, hint, Fix("replace", place, value=value))


# Who comes before whom in a plan: by needs, by what is read, and by turns in a queue.


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """Who comes before whom: for each group those before it, as bits."""

    entirely: tuple[int, ...]
    """All of them before all of it."""
    somehow: tuple[int, ...]
    """Those too of which each member comes before the same member."""
    position: tuple[int, ...]
    """The place in the serial run: as declared, but never before what it waits for."""

    def has(self, one: int, other: int, first: Who, second: Who) -> bool:
        """Whether what two groups' members do is in a fixed order, one way or the other."""
        if self.entirely[other] >> one & 1 or self.entirely[one] >> other & 1:
            return True
        is_same = first == second and first != ANYONE
        return is_same and bool(self.somehow[other] >> one & 1 or self.somehow[one] >> other & 1)

    def precedes(self, one: int, other: int) -> bool:
        """Whether a member of one comes before a member of the other."""
        return bool(self.somehow[other] >> one & 1)


def order_of(expanded: ExpandedPlan, faults: PlanFaults) -> TaskOrder:
    """Who comes before whom, by edges and by queues. Raises if that goes in a circle."""
    count = len(expanded.groups)
    before: list[dict[int, bool]] = [{} for _ in range(count)]
    last: dict[str, int] = {}
    for group in expanded.groups:
        needs = before[group.index]
        for edge in group.edges:
            needs[edge.group] = needs.get(edge.group, False) or not edge.memberwise
        if queue := group.task.queue:
            if queue in last:
                needs[last[queue]] = True
            last[queue] = group.index
    edges = tuple(tuple(sorted(needs)) for needs in before)
    sequence = serial(edges, reversed_edges(edges))
    if len(sequence) < count:
        _circle_fault(expanded, circle(edges, sequence), faults)
        raise faults.error()
    entirely, somehow, position = [0] * count, [0] * count, [0] * count
    for place, one in enumerate(sequence):
        position[one] = place
        for need, is_total in before[one].items():
            somehow[one] |= somehow[need] | 1 << need
            entirely[one] |= somehow[need] | 1 << need if is_total else entirely[need]
    return TaskOrder(tuple(entirely), tuple(somehow), tuple(position))


def _circle_fault(expanded: ExpandedPlan, path: list[int], faults: PlanFaults) -> None:
    """A circle that the declared needs alone do not have: a queue or a read closes it."""
    groups = expanded.groups
    message = told_circle([groups[one].name for one in path[:-1]])
    steps: list[tuple[int, NeedEdge]] = []
    for one, other in pairwise(path):
        edges = [edge for edge in groups[one].edges if edge.group == other]
        if not edges:
            task = groups[one].task
            hint = f"take `{task.name}` out of its queue, or declare it earlier"
            fix = Fix("remove", task.spot("queue").key)
            message = message.replace("need each other", "wait for each other")
            faults.add(QueueOrderError, task.spot("queue").key, message, hint, fix)
            return
        steps += ((one, edge) for edge in edges)
    declared = [step for step in steps if step[1].key != "reads"]
    one, edge = min(declared, key=lambda step: step[1].key != "needs")
    task, needed = groups[one].task, groups[edge.group].name
    fixes = [
        without(task, Link(needed, other.key))
        for other in groups[one].edges
        if other.group == edge.group and other.key != "reads"
    ]
    place = task.spot(edge.key).value
    faults.add(CycleError, place, message, f"remove `{needed}` from `{task.name}`", *fixes)
