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
    logs = [4.0 * instant / INSTANTS for instant in range(INSTANTS)]
    for step in STEPS:
        while True:
            proof = _proof(_question(rule, layout, supply, best * (1.0 + step)), logs)
            if proof is None:
                break
            best *= 1.0 + step
            logs = proof
    return best


def _question(rule: Rule, layout: Layout, supply: Supply, end_s: float) -> Question:
    """Whether all can be over at `end_s`: the instants are spread over the possible starts."""
    grain_s = (end_s - min(layout.tails)) / (INSTANTS - 1)
    coarse = 1
    groups = _groups(rule, layout, end_s, grain_s, coarse)
    while len(groups) > GROUPS_MAX and coarse < INSTANTS:
        coarse *= 2
        groups = _groups(rule, layout, end_s, grain_s, coarse)
    masses: dict[Kind, float] = {}
    for (span, last), group in groups.items():
        # The price is concave in the ratio: between two ratios it lies above their chord.
        least, most = min(group)[0], max(group)[0]
        wide = most - least
        upper = sum(mass * (ratio - least) / wide if wide > 0 else mass for ratio, mass in group)
        masses[Kind(span, last, most)] = upper
        if wide > 0:
            masses[Kind(span, last, least)] = sum(mass for _, mass in group) - upper
    return Question(masses, tuple(supply.by(place * grain_s) for place in range(INSTANTS)))


def _groups(
    rule: Rule, layout: Layout, end_s: float, grain_s: float, coarse: int
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


def _proof(question: Question, logs: list[float]) -> list[float] | None:
    """The logarithms of weights under which the prices exceed the supply, if any are found."""
    supplies = question.supplies
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
            return logs
        slopes = [load - supply for load, supply in zip(loads, supplies, strict=True)]
        pace = PACE / sqrt(trial + 20.0) / max(abs(slope) for slope in slopes)
        logs = [log + pace * slope for log, slope in zip(logs, slopes, strict=True)]
    return None


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
