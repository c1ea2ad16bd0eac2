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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import floor
from typing import Final, NamedTuple

from headway.sim.supply import Layout, LimitRule

# What is wrong with a set of start times, and every way in which a schedule can avoid it.

ORIGIN: Final = -1
"""Stands for the time 0 where a call is expected."""

TICK_S: Final = 1e-9
"""Strictly after is this much after."""

SLACK: Final = 1e-9
"""Relative rounding slack on amounts."""

COARSE: Final = 5e-3
"""Where several calls can trade time against each other, a conflict that is worth less than this
share of the whole time is let be: the search ends, and its result is lower by no more."""


class Gap(NamedTuple):
    """Call `later` starts at least `least_s` after call `earlier` started; may be negative."""

    earlier: int
    later: int
    least_s: float


@dataclass(frozen=True, slots=True)
class PlacedCalls:
    """Calls in the order of their starts, and the start time of each call by its place."""

    order: tuple[int, ...]
    starts: Sequence[float]
    layout: Layout

    def at(self, edge: ConflictEdge) -> float:
        """The time of a moment."""
        return edge.after_s + (0.0 if edge.call == ORIGIN else self.starts[edge.call])

    def reach_s(self) -> float:
        """When the last of the calls ends."""
        return max(self.starts[call] + self.layout.durations[call] for call in self.order)


class ConflictEdge(NamedTuple):
    """A moment: so long after a call's start, or after 0. At a start the `need` must be left."""

    call: int
    after_s: float
    need: float = 0.0
    is_start: bool = False


class LoadSource(NamedTuple):
    """A way to take load out of an interval: widening this gap by `pace_s` takes one unit."""

    gap: Gap
    pace_s: float


def alternatives(rule: LimitRule, placed: PlacedCalls) -> list[Gap] | None:
    """The ways out of a conflict with this limit, or None if there is no conflict."""
    if not any(rule.flows):
        return _refund_conflict(rule, placed)
    found = (_flow_conflict(rule, placed, begin, end) for begin, end in _intervals(rule, placed))
    worst = max((one for one in found if one is not None), key=lambda one: one[0], default=None)
    return None if worst is None else worst[1]


def _refund_conflict(rule: LimitRule, placed: PlacedCalls) -> list[Gap] | None:
    """At a start, all charges since some earlier start, less what came back, must fit."""
    for place, call in enumerate(placed.order):
        taken = rule.needs[call]
        for since in range(place - 1, -1, -1):
            first = placed.order[since]
            taken += rule.charges[first]
            back, ways = _refunded(rule, placed, since, place)
            excess = taken - back - rule.capacity
            if excess <= SLACK * rule.capacity:
                continue
            apart = _apart(rule, excess, first, call, placed)
            begin_s = 0.0 if apart.earlier == ORIGIN else placed.starts[first]
            if placed.starts[call] < begin_s + apart.least_s - TICK_S / 2:
                return [apart, *ways]
    return None


def _refunded(
    rule: LimitRule, placed: PlacedCalls, since: int, place: int
) -> tuple[float, list[Gap]]:
    """What came back between two starts, and how what did not could: before both it is lost."""
    layout = placed.layout
    first, call = placed.order[since], placed.order[place]
    back = 0.0
    ways = []
    for spot, other in enumerate(placed.order[:place]):
        end = placed.starts[other] + layout.durations[other]
        if rule.refunds[other] <= 0:
            continue
        if end > placed.starts[call] + TICK_S / 2:
            ways.append(Gap(other, call, layout.durations[other]))
        elif spot < since and end <= placed.starts[first] + TICK_S / 2:
            ways.append(Gap(first, other, TICK_S - layout.durations[other]))
        else:
            back += rule.refunds[other]
    return back, ways


def _apart(rule: LimitRule, excess: float, first: int, call: int, placed: PlacedCalls) -> Gap:
    """How far two starts must be apart for the limit to have made up for the excess."""
    if rule.kind == "bucket":
        return Gap(first, call, excess / rule.rate_per_s)
    if rule.kind == "sliding":
        return Gap(first, call, rule.period_s)
    window = floor(placed.starts[first] / rule.period_s + SLACK)
    return Gap(ORIGIN, call, (window + 1) * rule.period_s)


def _intervals(rule: LimitRule, placed: PlacedCalls) -> Iterator[tuple[ConflictEdge, ConflictEdge]]:
    """Where the load of a limit is greatest: at the corners of what flows and is charged."""
    layout, period = placed.layout, rule.period_s
    begins = [ConflictEdge(call, layout.first_bytes[call]) for call in placed.order]
    begins += [ConflictEdge(call, 0.0) for call in placed.order if rule.charges[call] > 0]
    ends = [ConflictEdge(call, layout.durations[call]) for call in placed.order]
    ends += [ConflictEdge(call, 0.0, rule.needs[call], True) for call in placed.order]
    if rule.kind == "bucket":
        yield from product(begins, ends)
    elif rule.kind == "sliding":
        yield from ((ConflictEdge(end.call, end.after_s - period), end) for end in ends)
        yield from ((begin, ConflictEdge(begin.call, begin.after_s + period)) for begin in begins)
    else:
        latest = max((placed.at(end) for end in ends), default=0.0)
        for window in range(floor(latest / period) + 1):
            boundary = ConflictEdge(ORIGIN, window * period)
            yield boundary, ConflictEdge(ORIGIN, boundary.after_s + period)
        for end in (end for end in ends if end.is_start):
            yield ConflictEdge(ORIGIN, floor(placed.at(end) / period + SLACK) * period), end


def _flow_conflict(
    rule: LimitRule, placed: PlacedCalls, begin: ConflictEdge, end: ConflictEdge
) -> tuple[float, list[Gap]] | None:
    """By how much an interval holds more than it may, and the ways out.

    Parts that are cut already share the excess: one of them must give at least its share. Parts
    that lie within must stick out a little first. None of this fails to name a schedule's way.
    """
    lasts_s = placed.at(end) - placed.at(begin)
    if lasts_s < 0:
        return None
    # Debt may be left by an oversized call; a call is admitted only when it has been made up for.
    room = rule.capacity + (0.0 if end.is_start else rule.debt)
    load, cut, whole = _load(rule, placed, begin, end)
    slack = SLACK * rule.capacity
    if any(source.gap.earlier != source.gap.later for source in cut):
        slack = max(slack, COARSE * placed.reach_s() / max(source.pace_s for source in cut))
    if rule.kind == "bucket":
        room += rule.rate_per_s * lasts_s
        apart = Gap(begin.call, end.call, lasts_s + begin.after_s - end.after_s)
        cut.append(LoadSource(apart, 1.0 / rule.rate_per_s))
    excess = load - room
    if excess <= slack:
        return None
    # A gap between a call and itself never widens, and nothing moves the time 0.
    cut = [source for source in cut
           if source.gap.later not in (ORIGIN, source.gap.earlier)]  # fmt: skip
    ways = [gap for gap in whole if gap.later not in (ORIGIN, gap.earlier)]
    if rule.kind == "fixed" and end.is_start:
        ways.append(Gap(ORIGIN, end.call, begin.after_s + rule.period_s))
    share = excess / max(1, len(cut))
    ways += [gap._replace(least_s=gap.least_s + max(TICK_S, share * pace_s)) for gap, pace_s in cut]
    return excess, ways


def _load(
    rule: LimitRule, placed: PlacedCalls, begin: ConflictEdge, end: ConflictEdge
) -> tuple[float, list[LoadSource], list[Gap]]:
    """What is charged and flows within an interval; what widens its cuts, or cuts what is whole."""
    layout = placed.layout
    from_s, to_s = placed.at(begin), placed.at(end)
    load, is_past = end.need, False
    cut: list[LoadSource] = []
    whole: list[Gap] = []
    for call in placed.order:
        start, first_byte = placed.starts[call], layout.first_bytes[call]
        duration, flow = layout.durations[call], rule.flows[call]
        is_past = is_past or (end.is_start and call == end.call)
        if rule.charges[call] > 0 and not is_past and _is_within(start, from_s, to_s, rule, end):
            load += rule.charges[call]
            whole.append(Gap(call, begin.call, TICK_S - begin.after_s))
            if not end.is_start:
                whole.append(Gap(end.call, call, end.after_s + TICK_S))
        left_s = max(0.0, from_s - start - first_byte)
        right_s = max(0.0, start + duration - to_s)
        streams_s = duration - first_byte
        if flow <= 0 or left_s + right_s >= streams_s:
            continue
        load += flow * (streams_s - left_s - right_s) / streams_s
        for gap, cut_s in (
            (Gap(call, begin.call, first_byte - begin.after_s), left_s),
            (Gap(end.call, call, end.after_s - duration), right_s),
        ):
            if cut_s > TICK_S / 2:
                cut.append(LoadSource(gap._replace(least_s=gap.least_s + cut_s), streams_s / flow))
            else:
                whole.append(gap._replace(least_s=gap.least_s + TICK_S))
    return load, cut, whole


def _is_within(
    start: float, from_s: float, to_s: float, rule: LimitRule, end: ConflictEdge
) -> bool:
    """A charge at the end of a window falls into the next one; a bucket has no next one."""
    is_open = rule.kind != "bucket" and not end.is_start
    last_s = to_s - TICK_S / 2 if is_open else to_s + TICK_S / 2
    return from_s - TICK_S / 2 <= start <= last_s


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
    steady: tuple[LimitRule, ...]
    """Limits for which the order of starts decides everything."""
    delicate: tuple[LimitRule, ...]
    """Limits with refunds or flows."""
    width: int
    has_twins: bool
    """Whether two calls that start at the same instant are one schedule in either order."""


@dataclass(frozen=True, slots=True)
class SearchNode:
    """Some calls, in the order of their starts, under some decisions."""

    order: tuple[int, ...]
    starts: tuple[float, ...]
    gaps: tuple[Gap, ...] = ()
    is_settled: bool = True
    """Whether the starts keep all gaps already; if not, they are still too early, not too late."""


def optimum(
    layout: Layout, rules: Sequence[LimitRule], width: int | None, floor_s: float
) -> Optimum:
    """The least time in which the calls can end; `floor_s` is a bound that is known already."""
    count = len(layout.calls)
    delicate = tuple(rule for rule in rules if any(rule.refunds) or any(rule.flows))
    steady = tuple(rule for rule in rules if rule not in delicate)
    # An oversized call goes into debt, so it matters whether it or its twin comes first.
    has_twins = not delicate and all(rule.needs == rule.charges for rule in steady)
    case = Case(layout, steady, delicate, count if width is None else width, has_twins)
    waiting = [(floor_s, 0, 0, SearchNode((), (0.0,) * count))]
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


def _reach(case: Case, node: SearchNode) -> float:
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


def _extend(case: Case, node: SearchNode) -> list[SearchNode]:
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
        children.append(SearchNode(order, tuple(starts), node.gaps))
    return children


def _is_second_twin(case: Case, node: SearchNode, call: int, starts: Sequence[float]) -> bool:
    """Whether the same schedule is also found with this call before the last one."""
    last = node.order[-1]
    return call < last and starts[call] == starts[last] and last not in case.layout.before[call]


def _resolve(case: Case, node: SearchNode) -> list[SearchNode] | None:
    """The nodes that settle a conflict, or None if the earliest times keep every limit."""
    if not node.is_settled:
        return _settle(case, node)
    placed = PlacedCalls(node.order, node.starts, case.layout)
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


def _is_absurd(case: Case, node: SearchNode, way: Gap) -> bool:
    """Whether a decision contradicts a single other one, as most contradictions do."""
    if way.earlier == ORIGIN:
        return False
    back_s = [gap.least_s for gap in node.gaps if gap[:2] == (way.later, way.earlier)]
    if node.order.index(way.later) < node.order.index(way.earlier):
        back_s.append(0.0)
    if way.later in case.layout.before[way.earlier]:
        back_s.append(case.layout.durations[way.later])
    return way.least_s + max(back_s, default=-way.least_s) > 0


def _decided(node: SearchNode, way: Gap) -> SearchNode:
    """A node with one more decision, which replaces a smaller gap between the same calls."""
    others = (gap for gap in node.gaps if gap[:2] != way[:2])
    return replace(node, gaps=(*others, way))


def _settle(case: Case, node: SearchNode) -> list[SearchNode]:
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


def _filled(rule: LimitRule, call: int, earlier: Sequence[int], starts: Sequence[float]) -> float:
    """When a bucket holds what a call needs."""
    level, at = rule.capacity, 0.0
    for other in earlier:
        level = min(rule.capacity, level + rule.rate_per_s * (starts[other] - at))
        level -= rule.charges[other]
        at = starts[other]
    missing = rule.needs[call] - level
    return at + missing / rule.rate_per_s if missing > SLACK * rule.capacity else at


def _forgotten(
    rule: LimitRule, call: int, earlier: Sequence[int], starts: Sequence[float]
) -> float:
    """When a sliding window has forgotten enough."""
    used = rule.needs[call]
    for other in reversed(earlier):
        used += rule.charges[other]
        if used > rule.capacity * (1.0 + SLACK):
            return starts[other] + rule.period_s
    return 0.0


def _renewed(
    rule: LimitRule, call: int, earlier: Sequence[int], starts: Sequence[float], start: float
) -> float:
    """The first time from `start` on at which a fixed window has room."""
    window = floor(start / rule.period_s + SLACK)
    used = rule.needs[call]
    for other in earlier:
        if floor(starts[other] / rule.period_s + SLACK) == window:
            used += rule.charges[other]
    return (window + 1) * rule.period_s if used > rule.capacity * (1.0 + SLACK) else start
