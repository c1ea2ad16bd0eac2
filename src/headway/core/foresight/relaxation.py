"""Times that no schedule can beat, one relaxation at a time.

Each function forgets all rules but one and says how soon the work can end under that one. What it
proves for a part of the calls it proves for all: those that must start early enough to leave a
given tail, or cannot start before a given head, must pass the limit within what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor, inf
from typing import Final, NamedTuple

from headway.core.foresight.account import Terms
from headway.core.foresight.layout import Layout, Rule
from headway.core.foresight.provider import Latency
from headway.core.foresight.reservation import held_end, reserved_end
from headway.core.foresight.supply import Season, Supply, season_of, supply_of

HEADS_MAX: Final = 16
"""Beginnings of the interval that are tried; any subset of them gives a true bound."""

HELD_CALLS_MIN: Final = 8
"""From so many calls on it is worth the time to ask what held reservations prove."""


class Parcel(NamedTuple):
    """An amount that must pass a limit not before `early_s` and `lag_s` before the end of all."""

    amount: float
    early_s: float
    lag_s: float


def width_end(layout: Layout, latency: Latency, width: int | None) -> float:
    """Work over the best width, and the classical bounds for `width` calls at a time.

    Of the k x width + 1 longest calls some k + 1 run one after another, at least the shortest of
    them (Graham, 1969; congestion only lengthens them).
    """
    count = len(layout.calls)
    alone = latency.slowdown(1)
    most = count if width is None else min(width, count)
    rate = max((n / latency.slowdown(n) for n in range(1, most + 1)), default=1.0)
    parcels = [
        Parcel(duration / alone, head, down)
        for duration, head, down in zip(layout.durations, layout.heads, layout.downs, strict=True)
    ]
    best = least_end(parcels, lambda from_s, _: Supply((from_s,), (0.0,), (rate,)))
    if width is None:
        return best
    longest = sorted(layout.durations, reverse=True)
    for in_row in range(1, (count - 1) // width + 1):
        last = in_row * width + 1
        best = max(best, sum(longest[last - in_row - 1 : last]))
    return best


def rule_end(rule: Rule, layout: Layout, season: Season) -> float:
    """The least time in which one limit can accept all calls, with what must follow each."""
    if any(rule.refunds):
        best = reserved_end(rule, layout, season)
        is_asked = len(layout.calls) >= HELD_CALLS_MIN and 0.0 < best < inf
        return held_end(rule, layout, season, best) if is_asked else best
    parcels = [
        Parcel(charge, head, tail)
        for charge, head, tail in zip(rule.charges, layout.heads, layout.tails, strict=True)
    ]
    for place, flow in enumerate(rule.flows):
        if flow > 0:
            begins_s = layout.heads[place] + layout.first_bytes[place]
            parcels.append(Parcel(flow, begins_s, layout.downs[place]))
    best = least_end(parcels, _supplier(rule, season))
    if rule.kind == "bucket" or any(rule.flows) or max(season.factors) > 1.0:
        return best
    return max(best, _indivisible_end(rule, layout))


def least_end(parcels: Sequence[Parcel], supply_from: Callable[[float, float], Supply]) -> float:
    """The largest bound over the beginnings and the tails of an interval."""
    by_lag = sorted((parcel for parcel in parcels if parcel.amount > 0), key=lambda p: -p.lag_s)
    best = 0.0
    for begin in _spread(sorted({parcel.early_s for parcel in by_lag}), HEADS_MAX):
        chosen = [parcel for parcel in by_lag if parcel.early_s >= begin]
        total = sum(parcel.amount for parcel in chosen)
        supply = supply_from(begin, total)
        latest = supply.when(total)
        running = 0.0
        for parcel in chosen:
            if latest + parcel.lag_s <= best:
                break
            running += parcel.amount
            best = max(best, supply.when(running) + parcel.lag_s)
    return best


def _spread(values: Sequence[float], count: int) -> Sequence[float]:
    """At most `count` of the sorted values, the first among them."""
    if len(values) <= count:
        return values
    return [values[len(values) * place // count] for place in range(count)]


def _indivisible_end(rule: Rule, layout: Layout) -> float:
    """Calls do not split: of those larger than 1/(k + 1) of a window only k fit into one."""
    needs = sorted(need for need in rule.needs if need > 0)
    if not needs:
        return 0.0
    best = 0.0
    steady = season_of(Terms(), 0.0)
    for need in {needs[0], needs[len(needs) // 2], needs[-1]}:
        fit = floor(rule.amount / need)
        least = rule.amount / (fit + 1) * (1.0 + 1e-9)
        parcels = [
            Parcel(1.0, head, tail)
            for own, head, tail in zip(rule.needs, layout.heads, layout.tails, strict=True)
            if own > least
        ]
        counted = replace(rule, amount=float(fit), capacity=float(fit), is_ceiling=True)
        best = max(best, least_end(parcels, _supplier(counted, steady)))
    return best


def _supplier(rule: Rule, season: Season) -> Callable[[float, float], Supply]:
    return lambda from_s, total: supply_of(rule, season, from_s, total)
