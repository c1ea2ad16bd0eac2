"""The bound: the least time in which the work can be done, and what makes it so long.

Laws:
- Honest: no schedule that leaves no debt, keeps the user's ceiling and leaves a neighbour its
  fair share ends before the bound. Where a proof is missing, the bound is lower.
- Everything that only makes a provider slower may be forgotten and some of it is: faults, outages,
  charged refusals, the acceleration rule.
- A call that goes into debt even alone on a full limit may do so in the bound as well.
- Small work is searched exactly; the term is called `exact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.foresight.layout import Rule, lay_out, least_factor, rules_of
from headway.core.foresight.optimum import optimum
from headway.core.foresight.provider import Call, ProviderSpec
from headway.core.foresight.relaxation import rule_end, width_end
from headway.core.foresight.supply import season_of

EXACT_CALLS_MAX: Final = 7
"""Up to so many calls are searched: 5,040 orders at most."""

CLOSE: Final = 1e-6
"""A relaxation that reaches the exact time to within this share names what binds."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time, the term that it comes from, and all terms."""

    time_s: float
    binding: str
    terms: tuple[tuple[str, float], ...]


def bound(
    spec: ProviderSpec,
    tasks: Sequence[Sequence[Call]],
    needs: Sequence[Sequence[int]],
    share: float = 1.0,
    exact_calls_max: int = EXACT_CALLS_MAX,
) -> Bound:
    """How soon the tasks can all be done.

    Task i makes tasks[i], one call after another, once all tasks in needs[i] are done. `share` is
    the user's ceiling: at most this share of each limit in any of its periods, and of the width.
    """
    layout = lay_out(spec.latency, tasks, needs)
    width = width_of(spec, share)
    rules = rules_of(spec, layout.calls, share)
    season = season_of(spec.terms, _horizon_s(spec, rules))
    terms = [("critical path", layout.critical_path_s),
             ("width", width_end(layout, spec.latency, width))]  # fmt: skip
    terms += [(rule.name, rule_end(rule, layout, season)) for rule in rules]
    binding, time_s = max(terms, key=lambda term: term[1])
    if len(layout.calls) <= exact_calls_max and _is_plain(spec, rules):
        found = optimum(layout, rules, width, time_s)
        terms.append(("exact", found.time_s))
        if found.time_s > time_s * (1.0 + CLOSE):
            binding = "exact"
        time_s = found.time_s
    return Bound(time_s, binding, tuple(terms))


def width_of(spec: ProviderSpec, share: float = 1.0) -> int | None:
    """How many calls can be in flight at once, or None if nothing limits it."""
    neighbour = spec.terms.neighbour
    is_constant = neighbour is not None and neighbour.on_s == inf and neighbour.start_s <= 0
    held = neighbour.slots if neighbour is not None and is_constant else 0
    widths = [
        max(1, min(int(limit.amount) - held, int(share * limit.amount + CLOSE)))
        for limit in spec.terms.limits + spec.terms.hidden
        if limit.kind == "gauge" and limit.resource == "concurrency"
    ]
    return min(widths, default=None)


def _is_plain(spec: ProviderSpec, rules: Sequence[Rule]) -> bool:
    """Whether the exact search knows every rule of this provider."""
    latency, terms = spec.latency, spec.terms
    is_crowded = latency.sigma > 0 or latency.kappa > 0 or terms.neighbour is not None
    return not is_crowded and not terms.changes and all(rule.amount > 0 for rule in rules)


def _horizon_s(spec: ProviderSpec, rules: Sequence[Rule]) -> float:
    """A time by which the slowest limit has let everything through, neighbours or not."""
    least = least_factor(spec.terms) / 2.0
    return max((rule.period_s + (sum(rule.charges) + sum(rule.flows)) / (rule.rate_per_s * least)
                for rule in rules if rule.amount * least > 0), default=0.0)  # fmt: skip
