"""What is wrong with a set of start times, and every way in which a schedule can avoid it.

The search in `optimum.py` keeps start times as small as the decisions made so far allow. Where
such times break a limit whose count depends on more than the order of starts, this file names the
broken inequality as a disjunction: the calls of the interval are further apart, or one of the
facts that put them into the interval is false. Every schedule that keeps the limit satisfies one
of the alternatives, so trying all of them loses nothing.

Two kinds of limit need this, because there an earlier start is not always better:
- Reservations. A refund that comes to a full bucket or an unused window is lost; a call that ends
  a little later, after the next one has been charged, gives more back.
- Output as it is produced. A call that starts later leaves its share of the refill to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor
from typing import Final, NamedTuple

from headway.core.foresight.layout import Layout, Rule

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
class Placed:
    """Calls in the order of their starts, and the start time of each call by its place."""

    order: tuple[int, ...]
    starts: Sequence[float]
    layout: Layout

    def at(self, edge: Edge) -> float:
        """The time of a moment."""
        return edge.after_s + (0.0 if edge.call == ORIGIN else self.starts[edge.call])

    def reach_s(self) -> float:
        """When the last of the calls ends."""
        return max(self.starts[call] + self.layout.durations[call] for call in self.order)


class Edge(NamedTuple):
    """A moment: so long after a call's start, or after 0. At a start the `need` must be left."""

    call: int
    after_s: float
    need: float = 0.0
    is_start: bool = False


class Source(NamedTuple):
    """A way to take load out of an interval: widening this gap by `pace_s` takes one unit."""

    gap: Gap
    pace_s: float


def alternatives(rule: Rule, placed: Placed) -> list[Gap] | None:
    """The ways out of a conflict with this limit, or None if there is no conflict."""
    if not any(rule.flows):
        return _refund_conflict(rule, placed)
    found = (_flow_conflict(rule, placed, begin, end) for begin, end in _intervals(rule, placed))
    worst = max((one for one in found if one is not None), key=lambda one: one[0], default=None)
    return None if worst is None else worst[1]


def _refund_conflict(rule: Rule, placed: Placed) -> list[Gap] | None:
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


def _refunded(rule: Rule, placed: Placed, since: int, place: int) -> tuple[float, list[Gap]]:
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


def _apart(rule: Rule, excess: float, first: int, call: int, placed: Placed) -> Gap:
    """How far two starts must be apart for the limit to have made up for the excess."""
    if rule.kind == "bucket":
        return Gap(first, call, excess / rule.rate_per_s)
    if rule.kind == "sliding":
        return Gap(first, call, rule.period_s)
    window = floor(placed.starts[first] / rule.period_s + SLACK)
    return Gap(ORIGIN, call, (window + 1) * rule.period_s)


def _intervals(rule: Rule, placed: Placed) -> Iterator[tuple[Edge, Edge]]:
    """Where the load of a limit is greatest: at the corners of what flows and is charged."""
    layout, period = placed.layout, rule.period_s
    begins = [Edge(call, layout.first_bytes[call]) for call in placed.order]
    begins += [Edge(call, 0.0) for call in placed.order if rule.charges[call] > 0]
    ends = [Edge(call, layout.durations[call]) for call in placed.order]
    ends += [Edge(call, 0.0, rule.needs[call], True) for call in placed.order]
    if rule.kind == "bucket":
        yield from product(begins, ends)
    elif rule.kind == "sliding":
        yield from ((Edge(end.call, end.after_s - period), end) for end in ends)
        yield from ((begin, Edge(begin.call, begin.after_s + period)) for begin in begins)
    else:
        latest = max((placed.at(end) for end in ends), default=0.0)
        for window in range(floor(latest / period) + 1):
            boundary = Edge(ORIGIN, window * period)
            yield boundary, Edge(ORIGIN, boundary.after_s + period)
        for end in (end for end in ends if end.is_start):
            yield Edge(ORIGIN, floor(placed.at(end) / period + SLACK) * period), end


def _flow_conflict(
    rule: Rule, placed: Placed, begin: Edge, end: Edge
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
        cut.append(Source(apart, 1.0 / rule.rate_per_s))
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
    rule: Rule, placed: Placed, begin: Edge, end: Edge
) -> tuple[float, list[Source], list[Gap]]:
    """What is charged and flows within an interval; what widens its cuts, or cuts what is whole."""
    layout = placed.layout
    from_s, to_s = placed.at(begin), placed.at(end)
    load, is_past = end.need, False
    cut: list[Source] = []
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
                cut.append(Source(gap._replace(least_s=gap.least_s + cut_s), streams_s / flow))
            else:
                whole.append(gap._replace(least_s=gap.least_s + TICK_S))
    return load, cut, whole


def _is_within(start: float, from_s: float, to_s: float, rule: Rule, end: Edge) -> bool:
    """A charge at the end of a window falls into the next one; a bucket has no next one."""
    is_open = rule.kind != "bucket" and not end.is_start
    last_s = to_s - TICK_S / 2 if is_open else to_s + TICK_S / 2
    return from_s - TICK_S / 2 <= start <= last_s
