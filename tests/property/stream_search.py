"""A search for the shortest schedule where output is charged as it is produced.

There the best start of a call can be anywhere, so this search is no enumeration: each order is
started as early as possible, then pushed late and pulled early in turn. Whether a schedule is
allowed is decided by following every limit forwards in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor

from headway.base.values import Limit
from tests.property.second_search import TINY, Instance, orders

ROUNDS = 6
HALVINGS = 30
"""How finely one order is improved."""

Triples = Sequence[tuple[float, float, float]]


def best_with_streams(instance: Instance) -> dict[int, float]:
    """The best schedule found."""
    prompts = [improved(instance, prompt(instance, order)) for order in orders(instance)]
    return min(prompts, key=instance.end)


def prompt(instance: Instance, order: Sequence[int]) -> dict[int, float]:
    """Every call as early as its order allows."""
    starts: dict[int, float] = {}
    for call in order:
        least = max((0.0, *starts.values(), instance.ready(call, starts)))
        starts[call] = pulled(instance, starts, call, least)
    return starts


def improved(instance: Instance, starts: dict[int, float]) -> dict[int, float]:
    """Pushing makes room for others, pulling uses it."""
    best = dict(starts)
    for _ in range(ROUNDS):
        end_s = instance.end(starts)
        for call in sorted(starts, key=lambda call: -starts[call]):
            starts[call] = pushed(instance, starts, call, end_s)
        pull_all(instance, starts)
        if instance.end(starts) > instance.end(best) - TINY:
            break
        best = dict(starts)
    return best


def pull_all(instance: Instance, starts: dict[int, float]) -> None:
    for call in sorted(starts, key=lambda call: starts[call]):
        starts[call] = pulled(instance, starts, call, instance.ready(call, starts))


def pulled(instance: Instance, starts: Mapping[int, float], call: int, least: float) -> float:
    """The earliest start from `least` on that keeps every limit, the others staying."""
    corners = _corners(instance, starts, call, least)
    at = _edge(instance, starts, call, sorted(at for at in corners if at >= least))
    assert at is not None, "a call fits when all others are over"
    return at


def pushed(instance: Instance, starts: Mapping[int, float], call: int, end_s: float) -> float:
    """The latest start that keeps every limit and the end of all, the others staying."""
    followers = [starts[other] for other in starts if call in instance.before[other]]
    most = min((end_s, *followers)) - instance.lengths[call]
    corners = {*_corners(instance, starts, call, most), starts[call]}
    later = sorted((at for at in corners if starts[call] <= at <= most), reverse=True)
    at = _edge(instance, starts, call, later)
    return starts[call] if at is None else at


def _edge(
    instance: Instance, starts: Mapping[int, float], call: int, tries: Sequence[float]
) -> float | None:
    """The first of the tries that keeps every limit, moved back towards the one before it."""
    for place, at in enumerate(tries):
        if keeps(instance, {**starts, call: at}):
            low, high = tries[max(0, place - 1)], at
            for _ in range(HALVINGS if place else 0):
                middle = (low + high) / 2
                if keeps(instance, {**starts, call: middle}):
                    high = middle
                else:
                    low = middle
            return high
    return None


def _corners(
    instance: Instance, starts: Mapping[int, float], call: int, least: float
) -> set[float]:
    """Starts at which something about a call changes."""
    latency = instance.spec.latency
    own = (0.0, latency.first_byte_s * instance.calls[call].luck, instance.lengths[call])
    times = {least, 0.0}
    for other, at in starts.items():
        if other != call:
            first = at + latency.first_byte_s * instance.calls[other].luck
            times |= {at, first, at + instance.lengths[other]}
    for limit in instance.limits:
        if limit.kind == "sliding":
            times |= {at + limit.period_s for at in times}
        elif limit.kind == "fixed":
            times |= {
                place * limit.period_s for place in range(int(max(times) / limit.period_s) + 2)
            }
    latest = max(times)
    times |= {latest + 4.0**place for place in range(6)}
    return {least, *(at - part for at in times for part in own)}


def keeps(instance: Instance, starts: Mapping[int, float]) -> bool:
    """Whether a schedule keeps the width and every limit, without debt at any time."""
    order = sorted(starts, key=lambda call: starts[call])
    for place, call in enumerate(order):
        others = (starts[other] + instance.lengths[other] for other in order[:place])
        if sum(end > starts[call] + TINY for end in others) >= instance.width:
            return False
    return all(keeps_limit(instance, limit, order, starts) for limit in instance.limits)


def keeps_limit(
    instance: Instance, limit: Limit, order: Sequence[int], starts: Mapping[int, float]
) -> bool:
    """Charges are (when, what must be left, what is taken), streams (from, to, tokens per s)."""
    pace = instance.spec.latency.per_output_token_s
    flows = limit.resource in ("output", "tokens")
    charges, streams = [], []
    for call in order:
        one, at = instance.calls[call], starts[call]
        taken = one.input_tokens if limit.resource in ("input", "tokens") else 0.0
        taken = 1.0 if limit.resource == "requests" else taken
        charges.append((at, min(taken + flows, limit.capacity), taken))
        if flows:
            end = at + instance.lengths[call]
            streams.append((end - pace * one.output_tokens, end, 1.0 / pace))
    if limit.kind == "bucket":
        return _keeps_bucket(limit, charges, streams)
    return _keeps_window(limit, charges, streams)


def _keeps_bucket(limit: Limit, charges: Triples, streams: Triples) -> bool:
    times = sorted({*(one[0] for one in charges), *(at for one in streams for at in one[:2])})
    level, now, slack = limit.capacity, 0.0, TINY * limit.capacity
    for at in times:
        flow = sum(rate for begin, end, rate in streams if begin <= now and end >= at)
        level = min(limit.capacity, level + (limit.rate_per_s - flow) * (at - now))
        for when, need, taken in charges:
            if when == at:
                if level < need - slack:
                    return False
                level -= taken
        if level < -slack:
            return False
        now = at
    return True


def _keeps_window(limit: Limit, charges: Triples, streams: Triples) -> bool:
    period = limit.period_s
    times = [one[0] for one in charges] + [at for one in streams for at in one[:2]]
    if limit.kind == "sliding":
        begins = [at - back for at in times for back in (0.0, period)]
    else:
        begins = [floor(at / period + slack) * period for at in times for slack in (0.0, TINY)]
    most = limit.amount * (1.0 + TINY)
    if any(_held(charges, streams, begin, begin + period) > most for begin in begins):
        return False
    for place, (at, need, _) in enumerate(charges):
        begin = at - period if limit.kind == "sliding" else floor(at / period + TINY) * period
        # What was charged exactly a period ago is forgotten.
        begin += 2 * TINY if limit.kind == "sliding" else 0.0
        if _held(charges[:place], streams, begin, at + 2 * TINY) + need > most + 1e-6:
            return False
    return True


def _held(charges: Triples, streams: Triples, begin: float, end: float) -> float:
    held = sum(taken for at, _, taken in charges if begin - TINY <= at < end - TINY)
    for first, last, rate in streams:
        held += rate * max(0.0, min(last, end) - max(first, begin))
    return held
