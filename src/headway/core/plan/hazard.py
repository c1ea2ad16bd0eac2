"""What if B runs before A? Orders tasks by what they declare to read and write, or refuses.

Laws:
- Two tasks of which one writes what the other touches run in an order that the plan fixes.
- A reader that is declared after a writer waits for it. A reader that is declared before one that
  it does not need would read what was there before the run: refused. So are two writers without
  an order, and members of one group that write what another of them touches.
- One path overlaps another if it is the same or lies within it; a pattern stands for the folder
  before its first wildcard.

An order is total (all of A before all of B) or by members (each member of A before the same one
of B, the others in any order).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import pairwise

from headway.core.plan.expand import Edge, Expanded
from headway.core.plan.links import Link, told_circle, with_need, without
from headway.core.plan.order import circle, levels, reversed_edges
from headway.core.plan.paths import above
from headway.core.plan.section import Faults
from headway.core.plan.touched import ANYONE, Touched, Who, touched_by
from headway.errors import CycleError, Fix, HazardError, QueueOrderError


@dataclass(frozen=True, slots=True)
class Order:
    """Who comes before whom: for each group those before it, as bits."""

    entirely: tuple[int, ...]
    """All of them before all of it."""
    somehow: tuple[int, ...]
    """Those too of which each member comes before the same member."""
    position: tuple[int, ...]
    """A place in one sequence that keeps the order."""

    def has(self, one: int, other: int, first: Who, second: Who) -> bool:
        """Whether what two groups' members do is in a fixed order, one way or the other."""
        if self.entirely[other] >> one & 1 or self.entirely[one] >> other & 1:
            return True
        is_same = first == second and first != ANYONE
        return is_same and bool(self.somehow[other] >> one & 1 or self.somehow[one] >> other & 1)

    def precedes(self, one: int, other: int) -> bool:
        """Whether a member of one comes before a member of the other."""
        return bool(self.somehow[other] >> one & 1)


def ordered(expanded: Expanded) -> Expanded:
    """The plan with an edge wherever a task reads what an earlier one writes, or all hazards."""
    faults = Faults(expanded.spec.file)
    touched = touched_by(expanded, faults)
    order = _order(expanded, faults)
    faults.check()
    new = _edges_by_reads(touched, order)
    if new:
        groups = tuple(
            replace(group, edges=(*group.edges, *new.get(group.index, ())))
            for group in expanded.groups
        )
        expanded = replace(expanded, groups=groups)
        order = _order(expanded, faults)
    _Judge(expanded, touched, order, faults).judge()
    faults.check()
    return expanded


def _order(expanded: Expanded, faults: Faults) -> Order:
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
    sequence = [one for level in levels(edges, reversed_edges(edges)) for one in level]
    if len(sequence) < count:
        _circle_fault(expanded, circle(edges, sequence), faults)
        raise faults.error()
    entirely, somehow, position = [0] * count, [0] * count, [0] * count
    for place, one in enumerate(sequence):
        position[one] = place
        for need, is_total in before[one].items():
            somehow[one] |= somehow[need] | 1 << need
            entirely[one] |= somehow[need] | 1 << need if is_total else entirely[need]
    return Order(tuple(entirely), tuple(somehow), tuple(position))


def _circle_fault(expanded: Expanded, path: list[int], faults: Faults) -> None:
    """A circle that the declared needs alone do not have: a queue or a read closes it."""
    groups = expanded.groups
    message = told_circle([groups[one].name for one in path[:-1]])
    steps: list[tuple[int, Edge]] = []
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


def _edges_by_reads(touched: Touched, order: Order) -> dict[int, list[Edge]]:
    """For every reader, the writers before it that it is not ordered with yet."""
    found: dict[int, dict[int, Edge]] = {}
    for path, readers in touched.reads.items():
        writers = touched.writes.get(path, {})
        declared = sorted(writers)
        others = [touched.writes[outer] for outer in above(path) if outer in touched.writes]
        others.append(touched.below(path)[1])
        for reader, who in readers.items():
            one = _nearest(reader, who, (declared, writers), order)
            if one is not None:
                found.setdefault(reader, {})[one] = Edge(one, False, "reads")
            touched.count(sum(map(len, others)))
            for groups in others:
                for writer, other in groups.items():
                    if writer < reader and not order.has(writer, reader, other, who):
                        found.setdefault(reader, {})[writer] = Edge(writer, False, "reads")
    return {reader: [edges[one] for one in sorted(edges)] for reader, edges in found.items()}


def _nearest(
    reader: int, who: Who, writers: tuple[list[int], dict[int, Who]], order: Order
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

    expanded: Expanded
    touched: Touched
    order: Order
    faults: Faults
    told: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of groups that were refused already."""

    def judge(self) -> None:
        """Note every hazard, one for each pair of tasks."""
        writes, reads = self.touched.writes, self.touched.reads
        for path, writers in writes.items():
            self._judge_path(path, writers, reads.get(path, {}))
            inner_reads, inner_writes = self.touched.below(path)
            self._judge_pairs(path, writers, inner_writes, False)
            self._judge_pairs(path, writers, inner_reads, True)
        for path, readers in reads.items():
            self._judge_pairs(path, self.touched.below(path)[1], readers, True)

    def _judge_path(self, path: str, writers: dict[int, Who], readers: dict[int, Who]) -> None:
        """Writers of one path form a chain, so only neighbours in it are compared."""
        position = self.order.position.__getitem__
        chain = sorted(writers, key=position)
        places = [position(writer) for writer in chain]
        for writer in chain:
            self._judge_pair(path, (writer, writers[writer]), (writer, writers[writer]), False)
        for one, other in pairwise(chain):
            self._judge_pair(path, (one, writers[one]), (other, writers[other]), False)
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
        pair = (min(writer[0], other[0]), max(writer[0], other[0]))
        if pair in self.told:
            return
        if writer[0] == other[0]:
            task = self.expanded.groups[writer[0]].task
            is_other = writer[1] != other[1] or writer[1] == ANYONE
            if is_other and not task.queue:
                self.told.add(pair)
                self._siblings(path, writer[0], is_read)
        elif not self.order.has(writer[0], other[0], writer[1], other[1]):
            self.told.add(pair)
            self._unordered(path, writer[0], other[0], is_read)

    def _siblings(self, path: str, index: int, is_read: bool) -> None:
        task = self.expanded.groups[index].task
        verb = "reads" if is_read else "writes too"
        message = f"members of `{task.name}` write `{path}`, which another of them {verb}"
        hint = f"add `queue: {task.name}`, so that they run one at a time"
        place = task.spot("writes" if task.writes else "output").value
        self.faults.add(
            HazardError, place, message, hint, Fix("add", task.body, "queue", task.name)
        )

    def _unordered(self, path: str, writer: int, other: int, is_read: bool) -> None:
        groups = self.expanded.groups
        if is_read:
            task, needed = groups[other].task, groups[writer].name
            message = f"`{task.name}` reads `{path}`, which `{needed}` writes, but does not need it"
            message += ": it would read the version from before the run (stale)"
            place = task.spot("reads").value
        else:
            task, needed = groups[max(writer, other)].task, groups[min(writer, other)].name
            message = f"`{needed}` and `{task.name}` both write `{path}` in no fixed order"
            place = task.spot("writes" if task.writes else "output").value
        fix = with_need(task, needed)
        self.faults.add(HazardError, place, message, f"add `needs: {needed}`", fix)
