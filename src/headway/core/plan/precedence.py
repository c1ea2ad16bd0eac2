"""Who comes before whom in a plan: by needs, by what is read, and by turns in a queue.

An order is total (all of A before all of B) or by members (each member of A before the same one
of B, the others in any order).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from headway.core.plan.expand import Edge, Expanded
from headway.core.plan.links import Link, told_circle, without
from headway.core.plan.order import circle, reversed_edges, serial
from headway.core.plan.section import Faults
from headway.core.plan.touched import ANYONE, Who
from headway.errors import CycleError, Fix, QueueOrderError


@dataclass(frozen=True, slots=True)
class Order:
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


def order_of(expanded: Expanded, faults: Faults) -> Order:
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
