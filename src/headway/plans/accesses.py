"""Which task touches which path and which key, as the plan declares it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from msgspec import Struct

from headway.errors import Fix, PlanTooLargeError, PlanValueError, QueueOrderError, SourceError
from headway.plans.expand import ExpandedPlan, GroupPlan, stakes_of
from headway.plans.links import circle, note_circle, path_words, reversed_edges, serial
from headway.plans.resources import WILD, Channel, above, fixed_part, inside, led_back
from headway.plans.section import PlanFaults, shown
from headway.plans.sharing import entries_of, flaw_of, folder_of, prefix_in
from headway.plans.template import Template, template_of

PAIRS_MAX: Final = 1_000_000
"""Overlaps between groups that are looked at: as many as take about a second."""

Who = int | str
"""A member by number; by the text of a path that every member fills differently; or anyone."""

ANYONE: Final = -1

Entries = dict[str, dict[int, Who]]
"""By path, who touches it: groups, and the member of each."""

Both = tuple[dict[int, Who], dict[int, Who]]
"""Who reads, and who writes."""

COMPARED_MAX: Final = 1_000
"""Paths of a group that are compared with those of another: its members' are alike."""


class Touched:
    """All paths that a plan declares, and who touches them."""

    def __init__(self, file: str = "") -> None:
        self._file = file
        self.reads: Final[Entries] = {}
        self.writes: Final[Entries] = {}
        self._pairs = 0
        self._around: dict[str, tuple[str, ...]] = {}
        self._below: tuple[Entries, Entries] | None = None
        self._by_group: dict[int, tuple[list[str], list[str]]] | None = None

    def count(self, pairs: int) -> None:
        """So many overlaps are looked at."""
        self._pairs += pairs
        if self._pairs > PAIRS_MAX:
            message = f"more than {PAIRS_MAX:,} overlaps between `reads` and `writes`"
            raise PlanTooLargeError(message, where=self._file)

    def put(self, entries: Entries, path: str, group: int, who: Who) -> None:
        """A member touches a path; with a second one of its group it is anyone."""
        groups = entries.setdefault(path, {})
        before = groups.get(group, who)
        is_one = before == who or (isinstance(before, str) and isinstance(who, str))
        groups[group] = before if is_one else ANYONE

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
            self._below = ({}, {})
            for below, entries in zip(self._below, (self.reads, self.writes), strict=True):
                for inner, groups in entries.items():
                    # To touch a path is to touch something in every declared folder above it.
                    for outer in self.around(inner):
                        for group, who in groups.items():
                            self.put(below, outer, group, who)
        reads, writes = self._below
        return reads.get(path, {}), writes.get(path, {})

    def overlapping(self, path: str, is_write: bool) -> Iterator[dict[int, Who]]:
        """Who writes, or reads, a declared path, something around it and something within it."""
        entries = self.writes if is_write else self.reads
        yield from (entries[one] for one in (path, *self.around(path)) if one in entries)
        yield self.below(path)[is_write]

    def of_group(self, group: int) -> tuple[list[str], list[str]]:
        """What a group reads, and what it writes."""
        if self._by_group is None:
            self._by_group = {}
            for place, entries in enumerate((self.reads, self.writes)):
                for path, groups in entries.items():
                    for one in groups:
                        self._by_group.setdefault(one, ([], []))[place].append(path)
        return self._by_group.get(group) or ([], [])

    def common(self, before: int, after: int) -> str | None:
        """The path by which two groups are coupled: one writes what the other touches."""
        reads, writes = self.of_group(before)
        for paths, is_read in ((writes, True), (reads, False)):
            for path in paths[:COMPARED_MAX]:
                for one in (path, *self.around(path)):
                    if after in self.writes.get(one, ()):
                        return one
                    if is_read and after in self.reads.get(one, ()):
                        return one
                inner_reads, inner_writes = self.below(path)
                if after in inner_writes or (is_read and after in inner_reads):
                    return path
        return None


class StateTouched(Struct, frozen=True):
    """Who may touch which keys of the shared state. Groups that may touch any are not in `keys`."""

    keys: Touched
    """By prefix, as overlaps are judged: a key by itself, a pattern by its folder, any by ""."""
    readers: tuple[int, ...]
    """Groups that do not say what they read: they may read anything."""
    writers: tuple[int, ...]
    """Groups that do not say what they write."""


def state_touched(expanded: ExpandedPlan) -> StateTouched:
    """All keys of the shared state that a plan names, and who touches them.

    A prompt's `{{ state.KEY }}` is a read, an `output` is a write. What tasks do to the state is
    put in order when they run: an overlap here is no hazard, and couples tasks.
    """
    keys = Touched(expanded.spec.file)
    free: tuple[list[int], list[int]] = ([], [])
    for group, stake in zip(expanded.groups, stakes_of(expanded), strict=True):
        if stake is None:
            continue
        for silent, entries, whats in zip(
            free, (keys.reads, keys.writes), (stake.reads, stake.writes), strict=True
        ):
            if whats is None:
                silent.append(group.index)
            for template in whats or ():
                for what, who in filled(group, template):
                    prefix = folder_of(template) if isinstance(who, str) else prefix_in(what)
                    keys.put(entries, prefix, group.index, who)
    return StateTouched(keys, tuple(free[0]), tuple(free[1]))


def filled(group: GroupPlan, template: Template) -> Iterator[tuple[str, Who]]:
    """The texts that a template stands for, and who has each; unfilled if no member is known."""
    if not template.refs:
        yield template.render(str), 0 if group.count == 1 else ANYONE
    elif group.members is None:
        has_vars = any(ref.var for ref in template.refs)
        yield template.source, f"{group.index}:{template.source}" if has_vars else template.source
    else:
        for index in range(group.members.count):
            yield group.fill(template, group.members.member(index)), index


def touched_by(expanded: ExpandedPlan, faults: PlanFaults) -> Touched:
    """All paths of a plan; notes those that lead out of its folder, and keys that are none."""
    touched = Touched(expanded.spec.file)
    channels = expanded.spec.channels
    for group in expanded.groups:
        task = group.task
        if "{{" in "".join((*task.reads, *task.writes, task.output_key)):
            _check_keys(group, channels, faults)
        for key, texts, entries in (
            ("reads", task.paths_read, touched.reads),
            ("writes", task.paths_written, touched.writes),
            ("output", (task.output,) if task.output else (), touched.writes),
        ):
            for text in texts:
                for path, who, one in paths(group, text):
                    if path is None:
                        _leads_out(group, key, text, _of_member(group, key, one, who), faults)
                        break
                    touched.put(entries, path, group.index, who)
    return touched


def paths(group: GroupPlan, text: str) -> Iterator[tuple[str | None, Who, str]]:
    """The paths of a declared text (None if one leads out), who touches each, and its text."""
    template = template_of(text)
    if not template.refs:
        path = inside(template.render(str))
        yield path and fixed_part(path), 0 if group.count == 1 else ANYONE, text
        return
    fixed = "".join(part for part in template.parts if isinstance(part, str))
    is_wild = any(char in fixed for char in WILD)
    for one, who in filled(group, template):
        path = inside(fixed_part(one, WILD + "{") if isinstance(who, str) else one)
        yield fixed_part(path) if path and is_wild else path, who, one


def _check_keys(group: GroupPlan, channels: dict[str, Channel], faults: PlanFaults) -> None:
    """Note the first member for whom an entry with holes does not name a key or an effect."""
    for key, texts in entries_of(group.task):
        for template in map(template_of, texts):
            if not template.refs or group.members is None:
                continue
            for text, index in filled(group, template):
                flaw = flaw_of(channels, key, text)
                if flaw is not None:
                    message = f"{_of_member(group, key, text, index)}: {flaw[0]}"
                    faults.add(PlanValueError, group.task.spot(key).value, message)
                    break


def _of_member(group: GroupPlan, key: str, text: str, member: Who) -> str:
    name = group.label(member) if isinstance(member, int) and member >= 0 else group.name
    return f"`{shown(text)}` in `{key}` of `{name}`"


def _leads_out(group: GroupPlan, key: str, text: str, what: str, faults: PlanFaults) -> None:
    task, better = group.task, led_back(text)
    place, message = task.spot(key).value, f"{what} leads out of the plan's folder"
    if better == text:
        faults.add(SourceError, place, message)
    else:
        fix = task.exchange(key, text, better)
        faults.add(SourceError, place, message, f"write `{shown(better)}`", fix)


# Who comes before whom in a plan: by needs, by what is read, and by turns in a queue.


class TaskOrder(Struct, frozen=True):
    """Who comes before whom: for each group those before it, as bits."""

    entirely: tuple[int, ...]
    """All of them before all of it."""
    somehow: tuple[int, ...]
    """Those too of which each member comes before the same member."""
    position: tuple[int, ...]
    """The place in the serial run: as declared, but never before what it waits for."""
    direct: tuple[tuple[int, ...], ...]
    """For each group those that it waits for itself, turns in a queue included."""

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
    direct = tuple(map(tuple, before))
    return TaskOrder(tuple(entirely), tuple(somehow), tuple(position), direct)


def _circle_fault(expanded: ExpandedPlan, path: list[int], faults: PlanFaults) -> None:
    """A circle that the declared needs alone do not have: a queue or a read closes it."""
    tasks = [group.task for group in expanded.groups]
    links = [[(edge.group, edge.key) for edge in group.edges] for group in expanded.groups]
    for one, other in pairwise(path):
        if all(need != other for need, _ in links[one]):
            words, place = path_words([tasks[n].name for n in path]), tasks[one].spot("queue").key
            message = f"tasks wait for each other in a circle: {words}"
            hint = f"take `{tasks[one].name}` out of its queue, or declare it earlier"
            faults.add(QueueOrderError, place, message, hint, Fix("remove", place))
            return
    note_circle(tasks, path, links, faults)
