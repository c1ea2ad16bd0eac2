"""The goals of pacing, each written so that it can be missed. It is met on every seed or not."""

from __future__ import annotations

from typing import Final, Literal

from bench.cells import KEPT_MIN, OURS, THEFT, Cell, Measured
from bench.scenes import is_hidden, is_sole
from headway.sim.provider import ProviderSpec

SLOWER_MAX: Final = 1.05

FACTORS: Final = {"known": 1.02, "profile": 1.02, "cold": 1.05}
FACTORS_COARSE: Final = {"known": 1.05, "profile": 1.05, "cold": 1.10}
"""Where output is reserved or a window has edges, one call more or less costs a whole step."""

Goal = Literal["bound", "refusals", "neighbour", "baseline"]

GOALS: Final[dict[Goal, str]] = {
    "bound": "at most 1.02 x bound + the p95 latency of a call with a profile, 1.05 cold; 1.05 and "
    "1.10 where output is reserved or windows are fixed; where the provider sends headers",
    "refusals": "sole user, with headers: 0 with a profile, one per limit cold, and one more per "
    "decrease of the limits",
    "neighbour": f"a neighbour keeps at least {KEPT_MIN:.0%} of its fair share, and no ratio is "
    f"below {THEFT}",
    "baseline": f"at most {SLOWER_MAX - 1:.0%} slower than the best baseline of that seed that "
    "loses no task and steals from nobody, sizes in hindsight included",
}


def verdicts(cell: Cell) -> dict[Goal, bool]:
    """The goals that apply to a cell, and whether each is met on every seed."""
    found: dict[Goal, bool] = {}
    for goal in GOALS:
        met = [judge(goal, cell.column, seed) for seed in cell.seeds]
        if met[0] is not None:
            found[goal] = all(met)
    return found


def judge(goal: Goal, column: str, seed: Measured) -> bool | None:
    """Whether one seed meets a goal; None where the goal does not apply."""
    spec, outcome = seed.scene.spec, seed.outcome
    if goal == "neighbour":
        owed = column in OURS and not is_sole(spec)
        return outcome.kept >= KEPT_MIN and seed.ratio >= THEFT if owed else None
    if goal == "baseline":
        fast = outcome.failed == 0 and seed.against_best <= SLOWER_MAX
        return fast if column in OURS else None
    if column not in FACTORS or (is_hidden(spec) and column != "known"):
        return None
    if goal == "bound":
        return outcome.makespan_s <= bound_allowed_s(column, seed)
    return outcome.refused <= refusals_allowed(column, seed) if is_sole(spec) else None


def bound_allowed_s(column: str, seed: Measured) -> float:
    """The bound and a little, and one call's latency: the last call starts when it may."""
    factor = (FACTORS_COARSE if _is_coarse(seed.scene.spec) else FACTORS)[column]
    return factor * seed.bound_s + seed.outcome.latency_p95_s


def refusals_allowed(column: str, seed: Measured) -> int:
    """One for each decrease; and when nothing is known, one for each limit."""
    terms = seed.scene.spec.terms
    factor, decreases = 1.0, 0
    for at_s, after in terms.changes:
        decreases += after < factor and at_s < seed.outcome.makespan_s
        factor = after
    return decreases + (len(terms.limits + terms.hidden) if column == "cold" else 0)


def _is_coarse(spec: ProviderSpec) -> bool:
    reserved = spec.terms.charging == "reserved"
    return reserved or any(limit.kind == "fixed" for limit in spec.terms.limits)
