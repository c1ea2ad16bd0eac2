"""How soon a limit can accept calls that reserve their longest output and give the rest back.

Let m be what a call reserves, o what it uses, r = m - o what comes back when it ends, after d
seconds. With x(t) = 1 from its start on and 0 before, every limit obeys at every time t

    sum over the calls of  m x(t) - r x(t - d)   <=   supply(t).

Two arguments follow.
- Net use. When the last of some calls is admitted it finds its whole reservation, and each of the
  others has cost at least o by then.
- Reservations held. Give each of some instants a weight and add the inequalities, so weighted.
  With W(s) the weight of the instants from s on, a call that starts at s adds m W(s) - r W(s + d),
  so whenever it starts it adds at least its price, the least of these. If the prices of all calls
  exceed the weighted supply, no schedule ends in time. Every choice of weights gives a true bound
  (weak duality of linear programs); good ones are found by making instants heavier where the
  calls crowd (multiplicative weights; Arora, Hazan and Kale, 2012). Long reservations on a small
  limit raise the bound by up to d r / o: they wait for each other's refunds, not for the refill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, floor, inf, sqrt
from typing import Final, NamedTuple

from headway.core.foresight.layout import Layout, Rule
from headway.core.foresight.supply import SLACK, Season, Supply, supply_of

INSTANTS: Final = 96
"""Instants that get a weight; more give a better bound and take longer."""

LAST_STARTS: Final = 12
"""Into so many groups the latest starts of calls are rounded, to the later side."""

TRIALS_MAX: Final = 60
"""Sets of weights that are tried before an end is taken to be possible."""

STEPS: Final = (0.16, 0.08, 0.04, 0.02, 0.01)
"""By how much of itself the bound is tried to be raised, again and again while it can be."""


class Kind(NamedTuple):
    """Calls alike: the instants they last, their latest start, what part of them comes back."""

    span: int
    last: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Question:
    """Can calls of these kinds, with these masses, pass instants with these supplies?"""

    masses: dict[Kind, float]
    supplies: tuple[float, ...]


def reserved_end(rule: Rule, layout: Layout, season: Season) -> float:
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


def held_end(rule: Rule, layout: Layout, season: Season, known_s: float) -> float:
    """A bound not below `known_s`, raised as far as held reservations prove it."""
    supply = supply_of(rule, season, 0.0, sum(rule.charges))
    best = known_s
    for step in STEPS:
        while _is_impossible(_question(rule, layout, supply, best * (1.0 + step))):
            best *= 1.0 + step
    return best


def _question(rule: Rule, layout: Layout, supply: Supply, end_s: float) -> Question:
    """Whether all can be over at `end_s`: the instants are spread over the possible starts."""
    grain_s = (end_s - min(layout.tails)) / (INSTANTS - 1)
    coarse = ceil(INSTANTS / LAST_STARTS)
    ratios = _nodes([back / charge for charge, back in zip(rule.charges, rule.refunds, strict=True)
                     if charge > 0])  # fmt: skip
    masses: dict[Kind, float] = {}
    for place, charge in enumerate(rule.charges):
        if charge <= 0:
            continue
        span = min(INSTANTS, floor(layout.durations[place] / grain_s))
        latest = ceil((end_s - layout.tails[place]) / grain_s)
        last = min(INSTANTS - 1, ceil(latest / coarse) * coarse)
        # The price is concave in the ratio: between two nodes it lies above their chord.
        ratio = rule.refunds[place] / charge
        upper = next(node for node in ratios if node >= ratio)
        lower = max((node for node in ratios if node <= ratio), default=upper)
        part = (ratio - lower) / (upper - lower) if upper > lower else 1.0
        for node, share in ((upper, part), (lower, 1.0 - part)):
            kind = Kind(span, last, node)
            masses[kind] = masses.get(kind, 0.0) + share * charge
    supplies = tuple(supply.by(instant * grain_s) for instant in range(INSTANTS))
    return Question({kind: mass for kind, mass in masses.items() if mass > 0}, supplies)


def _nodes(values: Sequence[float]) -> list[float]:
    """A few of the values, the least and the largest among them."""
    ordered = sorted(values)
    return sorted({ordered[(len(ordered) - 1) * part // 4] for part in range(5)})


def _is_impossible(question: Question) -> bool:
    """Whether weights are found under which the prices exceed the supply."""
    supplies = question.supplies
    logs = [0.02 * instant for instant in range(INSTANTS)]
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
        asked, loads = _prices(question.masses, rests)
        if asked > offered * (1.0 + SLACK):
            return True
        slopes = [load - supply for load, supply in zip(loads, supplies, strict=True)]
        pace = 8.0 / sqrt(trial + 20.0) / max(abs(slope) for slope in slopes)
        logs = [log + pace * slope for log, slope in zip(logs, slopes, strict=True)]
    return False


def _prices(masses: dict[Kind, float], rests: Sequence[float]) -> tuple[float, list[float]]:
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
