"""How soon a limit can accept calls that reserve their longest output and give the rest back.

Let m be what a call reserves, o what it uses, r = m - o what comes back when it ends, after d
seconds. With x(t) = 1 from its start on, every limit obeys at every time t

    sum of  m x(t) - r x(t - d)   <=   supply(t).

Two arguments follow.
- Net use. When the last of some calls is admitted it finds its whole reservation, and each of
  the others has cost at least o by then.
- Reservations held. Add the same inequality at t, t - step, t - 2 step, ... with falling weights
  w. A call of age a then counts m W(a) - r W(a - d), W being the sum of the weights up to an age,
  and that is never less than its price, the least of m, m W(d) - r and o W(end). A short call
  that came early has given back everything and counts little; none counts less than its price.
  Many long reservations on a small limit raise the bound by about d r / o: they wait for each
  other's refunds, not for the refill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, inf
from typing import Final, NamedTuple

from headway.core.foresight.layout import Layout, Rule
from headway.core.foresight.supply import SLACK, Season, Supply, supply_of

STEPS_MAX: Final = 64
"""Instants at which one argument looks at the limit; fewer give a weaker bound, still true."""

RATIOS: Final = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
"""How the weights of these instants fall; any choice gives a true bound."""

PARTS: Final = (8, 7, 6, 4, 2)
"""Eighths of the calls, longest tail first, for which the second argument is made."""

DOUBLINGS_MAX: Final = 60
HALVINGS: Final = 40
"""Steps of the search for the least time: from nothing to ages, then finer than any clock."""

TIME_SLACK_S: Final = 1e-9
"""An instant that misses the beginning by less lies on it."""


class Stairs(NamedTuple):
    """The instants of one argument: how far apart, their weights, and the sums of these."""

    step_s: float
    weights: tuple[float, ...]
    sums: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """Calls whose prices must all have been paid when the last of them is admitted."""

    price: float
    tail_s: float


def reserved_end(rule: Rule, layout: Layout, season: Season) -> float:
    """The least time in which a limit that reserves can have accepted all calls."""
    order = sorted(range(len(layout.calls)), key=lambda place: -layout.tails[place])
    # The debt that an oversized call leaves in a bucket is no part of what the last call finds.
    debtless = replace(rule, debt=0.0) if rule.kind == "bucket" else rule
    supply = supply_of(debtless, season, 0.0, sum(rule.charges))
    nets = [rule.charges[place] - rule.refunds[place] for place in order]
    best = max(supply.when(claim.price) + claim.tail_s
               for claim in _claims(rule, layout, order, nets))  # fmt: skip
    count = len(order)
    lengths = sorted(layout.durations)
    ends = {max(1, count * part // PARTS[0]) for part in PARTS}
    steps = {lengths[count * part // 4] / cut for part in range(4) for cut in (1, 3)}
    for step_s in steps - {0.0}:
        # How many instants lie within each call's duration.
        spans = [min(floor(layout.durations[place] / step_s), STEPS_MAX - 1) for place in order]
        for ratio in RATIOS:
            stairs = _stairs(step_s, ratio)
            claims = _claims(rule, layout, order, _prices(rule, order, spans, stairs))
            for claim in (claims[end - 1] for end in ends):
                best = _held_end(claim, supply, stairs, rule.debt, best)
    return best


def _claims(
    rule: Rule, layout: Layout, order: Sequence[int], prices: Sequence[float]
) -> list[Claim]:
    """For each tail, what the calls with at least this tail must have paid."""
    claims = []
    running, last = 0.0, inf
    for place, price in zip(order, prices, strict=True):
        running += price
        last = min(last, rule.needs[place] - price)
        claims.append(Claim((running + last) * (1.0 - SLACK), layout.tails[place]))
    return claims


def _stairs(step_s: float, ratio: float) -> Stairs:
    weights = tuple(ratio**step for step in range(STEPS_MAX))
    sums, running = [], 0.0
    for weight in weights:
        running += weight
        sums.append(running)
    return Stairs(step_s, weights, tuple(sums))


def _prices(rule: Rule, order: Sequence[int], spans: Sequence[int], stairs: Stairs) -> list[float]:
    """What each call counts at least, however long ago it started."""
    sums, top = stairs.sums, stairs.sums[-1]
    charges, refunds = rule.charges, rule.refunds
    return [
        min(charge := charges[place], charge * sums[span] - refunds[place],
            (charge - refunds[place]) * top)
        for place, span in zip(order, spans, strict=True)
    ]  # fmt: skip


def _held_end(claim: Claim, supply: Supply, stairs: Stairs, debt: float, best: float) -> float:
    """The least time at which the claim can be paid, if it is later than `best` allows."""
    low = best - claim.tail_s
    if _offer(supply, stairs, debt, low) >= claim.price:
        return best
    step_s = stairs.step_s
    for _ in range(DOUBLINGS_MAX):
        if _offer(supply, stairs, debt, low + step_s) >= claim.price:
            break
        low += step_s
        step_s *= 2.0
    for _ in range(HALVINGS):
        step_s /= 2.0
        if _offer(supply, stairs, debt, low + step_s) < claim.price:
            low += step_s
    return low + claim.tail_s


def _offer(supply: Supply, stairs: Stairs, debt: float, now: float) -> float:
    """The weighted supply at the instants up to `now`; an oversized call may owe at each."""
    total = supply.by(now)
    for step in range(1, STEPS_MAX):
        at = now - step * stairs.step_s
        if at < -TIME_SLACK_S:
            break
        total += stairs.weights[step] * (supply.by(max(0.0, at)) + debt)
    return total
