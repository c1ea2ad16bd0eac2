"""What if B runs before A? Orders tasks by what they declare to read and write, or refuses.

Laws:
- Two tasks of which one writes what the other touches run in an order that the plan fixes.
- A reader that is declared after a writer waits for it. A reader that is declared before one that
  it does not need would read what was there before the run: refused. So are two writers without
  an order, and members of one group that write what another of them touches.
- One path overlaps another if it is the same or lies within it; a pattern stands for the folder
  before its first wildcard.
- Keys of the shared state are judged like paths, and nothing is refused for them: see `rerun.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from headway.core.plan.clash import Clash, tell_siblings, tell_unordered
from headway.core.plan.expand import Edge, Expanded
from headway.core.plan.precedence import Order, order_of
from headway.core.plan.rerun import edges_by_keys
from headway.core.plan.section import Faults
from headway.core.plan.touched import ANYONE, StateTouched, Touched, Who, state_touched, touched_by
from headway.errors import PlanError


@dataclass(frozen=True, slots=True)
class Survey:
    """A plan that was ordered, who touches what in it, and who comes before whom."""

    expanded: Expanded
    touched: Touched
    """Paths."""
    state: StateTouched
    """Keys of the shared state."""
    order: Order


def examined(expanded: Expanded) -> Survey:
    """The plan with an edge wherever a task reads what an earlier one writes, or all hazards."""
    survey, refusal = tried(expanded)
    if refusal is not None:
        raise refusal
    return survey


def tried(expanded: Expanded) -> tuple[Survey, PlanError | None]:
    """The same for a plan that is tried all the same, and why a run of it would be refused.

    To show what a hazard does one has to have it. What has no order at all is refused here too.
    """
    faults = Faults(expanded.spec.file)
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


def _with_edges(expanded: Expanded, new: Mapping[int, list[Edge]]) -> Expanded:
    groups = tuple(
        replace(group, edges=(*group.edges, *new[group.index])) if group.index in new else group
        for group in expanded.groups
    )
    return replace(expanded, groups=groups)


def _edges_by_reads(touched: Touched, order: Order) -> dict[int, list[Edge]]:
    """For every reader, the writers before it that it is not ordered with yet."""
    found: dict[int, dict[int, Edge]] = {}
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
