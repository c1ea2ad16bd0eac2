"""The shortest schedule of a handful of calls, found by search over the order of their starts.

Laws:
- Given an order of starts, the earliest start of every call is best. Let g be the schedule that
  starts each call, in this order, as early as precedence, the width, the limits and the start
  before it allow, and s any other that keeps them. Then g(i) <= s(i) for all i, by induction:
  - precedence and width: what ended by s(i) in s ended no later in g, so the place is free;
  - a bucket: charges that come earlier leave it at least as full later, since it refills sooner
    and overflows no more; a sliding window forgets them sooner;
  - a fixed window: a call of g in the window of s(i) lies between g(j) <= s(j) <= s(i), so s has
    it in the same window, and g's use of the window is part of that of s.
- Two rules break the induction: refunds and output charged as it is produced. There a decision
  "so long after that start" is added until the earliest times break no limit; `conflict.py` names
  the decisions. Given the order and the decisions, the earliest times are best again.
- The search takes the most promising node first. Whenever it stops, no schedule ends before the
  node that it would have looked at next.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Final

from headway.core.foresight.conflict import ORIGIN, SLACK, TICK_S, Gap, Placed, alternatives
from headway.core.foresight.layout import Layout, Rule

NODES_MAX: Final = 2_000
"""Nodes that are looked at before the search says what it has: six calls have 1,957 at most where
the order of starts decides everything."""

DELICATE_NODES_MAX: Final = 1_000
"""The same where decisions are added, each of which is tried on all calls."""

ROUNDS_MAX: Final = 12
"""Rounds of raising start times before a node goes back into the queue: decisions that contradict
each other raise them for ever, and such a node soon has no promise left."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least time found, and whether the search ran to its end."""

    time_s: float
    is_complete: bool
    nodes: int


@dataclass(frozen=True, slots=True)
class Case:
    """What is searched: the calls, the limits by how they are met, and how many run at once."""

    layout: Layout
    steady: tuple[Rule, ...]
    """Limits for which the order of starts decides everything."""
    delicate: tuple[Rule, ...]
    """Limits with refunds or flows."""
    width: int
    has_twins: bool
    """Whether two calls that start at the same instant are one schedule in either order."""


@dataclass(frozen=True, slots=True)
class Node:
    """Some calls, in the order of their starts, under some decisions."""

    order: tuple[int, ...]
    starts: tuple[float, ...]
    gaps: tuple[Gap, ...] = ()
    is_settled: bool = True
    """Whether the starts keep all gaps already; if not, they are still too early, not too late."""


def optimum(layout: Layout, rules: Sequence[Rule], width: int | None, floor_s: float) -> Optimum:
    """The least time in which the calls can end; `floor_s` is a bound that is known already."""
    count = len(layout.calls)
    delicate = tuple(rule for rule in rules if any(rule.refunds) or any(rule.flows))
    steady = tuple(rule for rule in rules if rule not in delicate)
    # An oversized call goes into debt, so it matters whether it or its twin comes first.
    has_twins = not delicate and all(rule.needs == rule.charges for rule in steady)
    case = Case(layout, steady, delicate, count if width is None else width, has_twins)
    waiting = [(floor_s, 0, 0, Node((), (0.0,) * count))]
    serial = 0
    nodes_max = DELICATE_NODES_MAX if delicate else NODES_MAX
    for nodes in range(1, nodes_max + 1):
        bound_s, _, _, node = heapq.heappop(waiting)
        following = _resolve(case, node)
        if following is None:
            if len(node.order) == count:
                return Optimum(max(floor_s, bound_s - count * TICK_S), True, nodes)
            following = _extend(case, node)
        for child in following:
            serial += 1
            reach_s = max(bound_s, _reach(case, child))
            heapq.heappush(waiting, (reach_s, -len(child.order), -serial, child))
    return Optimum(max(floor_s, waiting[0][0] - count * TICK_S), False, nodes_max)


def _reach(case: Case, node: Node) -> float:
    """No schedule that goes on from a node ends before this."""
    layout, starts = case.layout, node.starts
    latest = starts[node.order[-1]]
    ends = 0.0
    for call, tail in enumerate(layout.tails):
        start = starts[call]
        if call not in node.order:
            start = max(latest, layout.heads[call])
            for other in layout.before[call]:
                if other in node.order:
                    start = max(start, starts[other] + layout.durations[other])
        ends = max(ends, start + tail)
    return ends


def _extend(case: Case, node: Node) -> list[Node]:
    """Every call that could start next, at its earliest time."""
    children = []
    chosen = set(node.order)
    for call, before in enumerate(case.layout.before):
        if call in chosen or not before <= chosen:
            continue
        order = (*node.order, call)
        starts = list(node.starts)
        starts[call] = _earliest(case, order, len(node.order), starts)
        if case.has_twins and node.order and _is_second_twin(case, node, call, starts):
            continue
        children.append(Node(order, tuple(starts), node.gaps))
    return children


def _is_second_twin(case: Case, node: Node, call: int, starts: Sequence[float]) -> bool:
    """Whether the same schedule is also found with this call before the last one."""
    last = node.order[-1]
    return call < last and starts[call] == starts[last] and last not in case.layout.before[call]


def _resolve(case: Case, node: Node) -> list[Node] | None:
    """The nodes that settle a conflict, or None if the earliest times keep every limit."""
    if not node.is_settled:
        return _settle(case, node)
    placed = Placed(node.order, node.starts, case.layout)
    for rule in case.delicate:
        ways = alternatives(rule, placed)
        if ways is not None:
            return [
                child
                for way in ways
                if not _is_absurd(case, node, way)
                for child in _settle(case, _decided(node, way))
            ]
    return None


def _is_absurd(case: Case, node: Node, way: Gap) -> bool:
    """Whether a decision contradicts a single other one, as most contradictions do."""
    if way.earlier == ORIGIN:
        return False
    back_s = [gap.least_s for gap in node.gaps if gap[:2] == (way.later, way.earlier)]
    if node.order.index(way.later) < node.order.index(way.earlier):
        back_s.append(0.0)
    if way.later in case.layout.before[way.earlier]:
        back_s.append(case.layout.durations[way.later])
    return way.least_s + max(back_s, default=-way.least_s) > 0


def _decided(node: Node, way: Gap) -> Node:
    """A node with one more decision, which replaces a smaller gap between the same calls."""
    others = (gap for gap in node.gaps if gap[:2] != way[:2])
    return replace(node, gaps=(*others, way))


def _settle(case: Case, node: Node) -> list[Node]:
    """The earliest times under a node's decisions; nothing if these contradict each other."""
    starts = list(node.starts)
    in_circles = 0
    for _ in range(ROUNDS_MAX):
        moved = 0.0
        for place, call in enumerate(node.order):
            least = _earliest(case, node.order, place, starts)
            for gap in node.gaps:
                if gap.later == call:
                    begin = 0.0 if gap.earlier == ORIGIN else starts[gap.earlier]
                    least = max(least, begin + gap.least_s)
            moved = max(moved, least - starts[call])
            starts[call] = max(starts[call], least)
        if moved <= 0:
            return [replace(node, starts=tuple(starts), is_settled=True)]
        # Times that move by ticks for longer than a chain of calls is go round in a circle.
        in_circles = in_circles + 1 if moved < TICK_S * 100 else 0
        if in_circles > len(node.order):
            return []
    return [replace(node, starts=tuple(starts), is_settled=False)]


def _earliest(case: Case, order: Sequence[int], place: int, starts: Sequence[float]) -> float:
    """When a call can start at the earliest, given the starts before it."""
    call = order[place]
    layout = case.layout
    earlier = order[:place]
    start = starts[earlier[-1]] if earlier else 0.0
    for other in layout.before[call]:
        start = max(start, starts[other] + layout.durations[other])
    if place >= case.width:
        ends = sorted(starts[other] + layout.durations[other] for other in earlier)
        start = max(start, ends[place - case.width])
    for rule in case.steady:
        if rule.kind == "bucket":
            start = max(start, _filled(rule, call, earlier, starts))
        elif rule.kind == "sliding":
            start = max(start, _forgotten(rule, call, earlier, starts))
        else:
            start = _renewed(rule, call, earlier, starts, start)
    return start


def _filled(rule: Rule, call: int, earlier: Sequence[int], starts: Sequence[float]) -> float:
    """When a bucket holds what a call needs."""
    level, at = rule.capacity, 0.0
    for other in earlier:
        level = min(rule.capacity, level + rule.rate_per_s * (starts[other] - at))
        level -= rule.charges[other]
        at = starts[other]
    missing = rule.needs[call] - level
    return at + missing / rule.rate_per_s if missing > SLACK * rule.capacity else at


def _forgotten(rule: Rule, call: int, earlier: Sequence[int], starts: Sequence[float]) -> float:
    """When a sliding window has forgotten enough."""
    used = rule.needs[call]
    for other in reversed(earlier):
        used += rule.charges[other]
        if used > rule.capacity * (1.0 + SLACK):
            return starts[other] + rule.period_s
    return 0.0


def _renewed(
    rule: Rule, call: int, earlier: Sequence[int], starts: Sequence[float], start: float
) -> float:
    """The first time from `start` on at which a fixed window has room."""
    window = floor(start / rule.period_s + SLACK)
    used = rule.needs[call]
    for other in earlier:
        if floor(starts[other] / rule.period_s + SLACK) == window:
            used += rule.charges[other]
    return (window + 1) * rule.period_s if used > rule.capacity * (1.0 + SLACK) else start
