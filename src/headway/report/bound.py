"""The bound: the least time in which the work can be done, and what sets it.

Laws:
- Hard: no schedule that the provider accepts ends before the bound, as if there were no neighbour
  and no ceiling. Where a proof is missing, the bound is lower.
- Fair: no schedule that leaves no debt, keeps the user's ceiling and leaves a neighbour its fair
  share ends before the fair bound.
- Everything that only makes a provider slower may be forgotten and some of it is: faults, outages,
  charged refusals, the acceleration rule.
- A call that goes into debt even alone on a full limit may do so in the fair bound as well.
- The bound is the largest of several relaxations, each of which no schedule can beat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from heapq import nlargest
from itertools import accumulate
from math import ceil, exp, floor, inf, sqrt
from operator import add
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall
from headway.sim.supply import (
    SLACK,
    Layout,
    LimitRule,
    Season,
    Supply,
    lay_out,
    least_factor,
    rules_of,
    season_of,
    supply_of,
)

# How soon a limit can accept calls that reserve their longest output and give the rest back.

INSTANTS: Final = 80
"""Instants that get a weight; more give a better bound and take longer."""

GROUPS_MAX: Final = 80
"""Above so many groups of calls, latest starts are rounded until there are fewer."""

TRIALS_MAX: Final = 20
"""Sets of weights that are tried before an end is taken to be possible."""

PACE: Final = 1.5
"""How boldly weights are changed from one trial to the next."""

STEPS: Final = (0.16, 0.08, 0.04, 0.02, 0.01)
"""By how much of itself the bound is tried to be raised, again and again while it can be."""


CallKind = tuple[int, int, float]
"""Calls alike: the instants they last, their latest start, what part of them comes back."""


def reserved_end(rule: LimitRule, layout: Layout, season: Season) -> float:
    """The least time in which a limit that reserves can have accepted all calls."""
    order = sorted(range(len(layout.calls)), key=lambda place: -layout.tails[place])
    # The debt that an oversized call leaves in a bucket is no part of what the last call finds.
    debtless = replace(rule, debt=0.0) if rule.kind == "bucket" else rule
    supply = supply_of(debtless, season, 0.0, sum(rule.charges))
    best, running, last = 0.0, 0.0, inf
    for place in order:
        net = rule.charges[place] - rule.refunds[place]
        running += net
        last = min(last, rule.needs[place] - net)
        best = max(best, supply.when(running + last) + layout.tails[place])
    return best


def held_end(rule: LimitRule, layout: Layout, season: Season, known_s: float) -> float:
    """A bound not below `known_s`, raised as far as held reservations prove it."""
    supply = supply_of(rule, season, 0.0, sum(rule.charges))
    best = known_s
    logs = [4.0 * instant / INSTANTS for instant in range(INSTANTS)]
    for step in STEPS:
        while True:
            end_s = best * (1.0 + step)
            grain_s = (end_s - min(layout.tails)) / (INSTANTS - 1)
            supplies = [supply.by(place * grain_s) for place in range(INSTANTS)]
            proof = _proof(_masses(rule, layout, end_s, grain_s), supplies, logs)
            if proof is None:
                break
            best *= 1.0 + step
            logs = proof
    return best


def _masses(rule: LimitRule, layout: Layout, end_s: float, grain_s: float) -> dict[CallKind, float]:
    """Calls by kind if all are to be over at `end_s`, in instants of `grain_s`."""
    coarse = 1
    groups = _groups(rule, layout, end_s, grain_s, coarse)
    while len(groups) > GROUPS_MAX and coarse < INSTANTS:
        coarse *= 2
        groups = _groups(rule, layout, end_s, grain_s, coarse)
    masses: dict[CallKind, float] = {}
    for (span, last), group in groups.items():
        # The price is concave in the ratio: between two ratios it lies above their chord.
        least, most = min(group)[0], max(group)[0]
        wide = most - least
        upper = sum(mass * (ratio - least) / wide if wide > 0 else mass for ratio, mass in group)
        masses[span, last, most] = upper
        if wide > 0:
            masses[span, last, least] = sum(mass for _, mass in group) - upper
    return masses


def _groups(
    rule: LimitRule, layout: Layout, end_s: float, grain_s: float, coarse: int
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """Calls by how many instants they last and their latest start, rounded up: ratio and mass."""
    groups: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for place, charge in enumerate(rule.charges):
        if charge > 0:
            span = min(INSTANTS, floor(layout.durations[place] / grain_s))
            latest = ceil((end_s - layout.tails[place]) / grain_s / coarse) * coarse
            group = groups.setdefault((span, min(INSTANTS - 1, latest)), [])
            group.append((rule.refunds[place] / charge, charge))
    return groups


def _proof(
    masses: dict[CallKind, float], supplies: Sequence[float], logs: list[float]
) -> list[float] | None:
    """The logarithms of weights under which the prices exceed the supply, if any are found."""
    for trial in range(TRIALS_MAX):
        top = max(logs)
        weights = [exp(log - top) for log in logs]
        total = sum(weights)
        rests, running = [0.0], 0.0
        for weight in reversed(weights):
            running += weight / total
            rests.append(running)
        rests.reverse()
        offered = sum(w * supply for w, supply in zip(weights, supplies, strict=True)) / total
        asked, loads = _prices(masses, rests)
        if asked > offered * (1.0 + SLACK):
            return logs
        slopes = [load - supply for load, supply in zip(loads, supplies, strict=True)]
        pace = PACE / sqrt(trial + 20.0) / max(abs(slope) for slope in slopes)
        logs = [log + pace * slope for log, slope in zip(logs, slopes, strict=True)]
    return None


def _prices(masses: dict[CallKind, float], rests: Sequence[float]) -> tuple[float, list[float]]:
    """The sum of all prices, and what the calls take at each instant if they start so cheaply."""
    asked = 0.0
    changes = [0.0] * (2 * INSTANTS + 1)
    padded = [*rests, *([0.0] * INSTANTS)]
    for (span, last, ratio), mass in masses.items():
        costs = [
            rest - ratio * after
            for rest, after in zip(rests[: last + 1], padded[span : span + last + 1], strict=True)
        ]
        price = min(costs)
        start = costs.index(price)
        asked += mass * price
        changes[start] += mass
        changes[start + span] -= ratio * mass
    loads, running = [], 0.0
    for change in changes[:INSTANTS]:
        running += change
        loads.append(running)
    return asked, loads


# Times that no schedule can beat, one relaxation at a time.

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


def rule_end(rule: LimitRule, layout: Layout, season: Season) -> float:
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
    best = least_end(parcels, partial(supply_of, rule, season))
    if rule.kind == "bucket" or any(rule.flows) or max(season.factors) > 1.0:
        return best
    return max(best, _indivisible_end(rule, layout))


def least_end(parcels: Sequence[Parcel], supply_from: Callable[[float, float], Supply]) -> float:
    """The largest bound over the beginnings and the tails of an interval."""
    by_lag = sorted((parcel for parcel in parcels if parcel.amount > 0), key=lambda p: -p.lag_s)
    best = 0.0
    heads = sorted({parcel.early_s for parcel in by_lag})
    for begin in heads[:: ceil(len(heads) / HEADS_MAX) or 1]:
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


def _indivisible_end(rule: LimitRule, layout: Layout) -> float:
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
        best = max(best, least_end(parcels, partial(supply_of, counted, steady)))
    return best


class Bound(Struct, frozen=True):
    """The hard and the fair bound, and the term that each comes from."""

    time_s: float
    binding: str
    fair_s: float
    fair_binding: str


def bound(
    spec: ProviderSpec,
    tasks: Sequence[Sequence[SimulatedCall]],
    needs: Sequence[Sequence[int]],
    share: float = 1.0,
) -> Bound:
    """How soon the tasks can all be done.

    Task i makes tasks[i], one call after another, once all tasks in needs[i] are done. `share` is
    the user's ceiling: at most this share of each limit in any of its periods, and of the width.
    """
    layout = lay_out(spec.latency, tasks, needs)
    alone = replace(spec, terms=replace(spec.terms, neighbour=None))
    width, rules = width_of(alone), rules_of(alone, layout.calls, 1.0)
    indebted = _with_debt(alone, rules, layout, min(len(tasks), width or len(tasks)))
    fair = hard = _largest(alone, indebted, layout, width)
    if share < 1.0 or spec != alone or indebted != rules:
        rules, width = rules_of(spec, layout.calls, share), width_of(spec, share)
        fair = max(hard, _largest(spec, rules, layout, width), key=lambda term: term[0])
    return Bound(*hard, *fair)


def _largest(
    spec: ProviderSpec, rules: Sequence[LimitRule], layout: Layout, width: int | None
) -> tuple[float, str]:
    # By then the slowest limit has let everything through, neighbours or not.
    least = least_factor(spec.terms) / 2.0
    ends_s = (rule.period_s + (sum(rule.charges) + sum(rule.flows)) / (rule.rate_per_s * least)
              for rule in rules if rule.amount * least > 0)  # fmt: skip
    season = season_of(spec.terms, max(ends_s, default=0.0))
    terms = [(layout.critical_path_s, "critical path"),
             (width_end(layout, spec.latency, width), "width")]  # fmt: skip
    terms += [(rule_end(rule, layout, season), rule.name) for rule in rules]
    return max(terms, key=lambda term: term[0])


def _with_debt(
    spec: ProviderSpec, rules: Sequence[LimitRule], layout: Layout, most: int
) -> list[LimitRule]:
    """The rules where output is charged as it is produced, for a client that goes into debt.

    A call is accepted while one token is left, whatever those in flight have still to write. So a
    limit is exceeded by what `most` calls write, or as many as any limit accepts while one lasts;
    and when the last call is accepted, all but that is written.
    """
    slower = spec.latency.slowdown(most) / spec.latency.slowdown(1)
    longest_s = slower * max(layout.durations, default=0.0)
    factor = max((1.0, *(factor for _, factor in spec.terms.changes)))
    for rule in rules:
        room = factor * (rule.capacity + rule.rate_per_s * longest_s) + rule.debt
        if rule.kind != "bucket":
            room = (factor * rule.amount + rule.debt) * (floor(longest_s / rule.period_s) + 2)
        most = min(most, bisect_right(list(accumulate(sorted(rule.charges))), room))
    return [
        replace(rule, charges=tuple(map(add, rule.charges, rule.flows)),
                flows=(0.0,) * len(rule.flows), debt=rule.debt + sum(nlargest(most, rule.flows)))
        if any(rule.flows) else rule
        for rule in rules
    ]  # fmt: skip


def width_of(spec: ProviderSpec, share: float = 1.0) -> int | None:
    """How many calls can be in flight at once, or None if nothing limits it."""
    neighbour = spec.terms.neighbour
    is_constant = neighbour is not None and neighbour.on_s == inf and neighbour.start_s <= 0
    held = neighbour.slots if neighbour is not None and is_constant else 0
    widths = [
        max(1, min(int(limit.amount) - held, int(share * limit.amount + 1e-6)))
        for limit in spec.terms.limits + spec.terms.hidden
        if limit.kind == "gauge" and limit.resource == "concurrency"
    ]
    return min(widths, default=None)
