"""A cell of the table: one provider, one workload, one column, over several seeds.

Which trials a cell needs, and what they come to. The columns of headway carry beside their own
time the best that was reached without it on the same seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from statistics import median
from typing import Final

from msgspec import Struct

from bench.results import PROCESSES, Store, complete
from bench.scenes import Scene, Set, hide, scene
from bench.trial import Outcome, Trial

OURS: Final = ("cold", "profile", "hidden")
BASELINES: Final = ("waves:4", "fixed:5", "fixed:best", "aimd", "cubic", "sdk")
COLUMNS: Final = OURS + BASELINES
EXTRA: Final = ("known", "smooth")
"""Columns of their own tables: the limits configured; the steady flow that a user can ask for."""

WIDTHS: Final = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
WIDEST: Final = 128
WIDER_WITHIN: Final = 1.02
"""The sizes of `fixed` among which hindsight chooses. The widest is tried only where the one before
comes this close to the fastest: far beyond the best width, time is spent on refusals alone."""

MANY: Final = 500
LEAST_OF_MANY: Final = 5
"""With so many tasks smaller sizes are not tried: none of the providers is that narrow, and the
slowest runs are the longest to compute."""

KEPT_MIN: Final = 0.95
"""A neighbour that keeps less of its fair share was robbed."""

THEFT: Final = 0.995
"""A ratio below this is not speed: somebody else's share was used, or a debt was left."""


class Choice(Struct, frozen=True):
    """Which cell, on which seeds, and whether to compare it with what others reach."""

    which: Set
    provider: str
    workload: str
    column: str
    seeds: tuple[int, ...]
    compared: bool = True

    def scenes(self) -> list[Scene]:
        return [scene(self.which, self.provider, self.workload, seed) for seed in self.seeds]


class Measured(Struct, frozen=True):
    """One seed of a cell: the outcome beside the least time, and the best that others reached."""

    scene: Scene
    outcome: Outcome
    bound_s: float
    binding: str
    best: str = ""
    """The best way without a quota that loses no task and steals from nobody."""
    best_s: float = inf

    @property
    def ratio(self) -> float:
        return self.outcome.makespan_s / self.bound_s

    @property
    def against_best(self) -> float:
        return self.outcome.makespan_s / self.best_s if self.best else 0.0


class Cell(Struct, frozen=True):
    """All seeds of one provider, workload and column."""

    provider: str
    workload: str
    column: str
    seeds: tuple[Measured, ...]

    @property
    def ratio(self) -> float:
        return median(seed.ratio for seed in self.seeds)

    @property
    def ratio_worst(self) -> float:
        return max(seed.ratio for seed in self.seeds)

    @property
    def refused(self) -> float:
        return median(seed.outcome.refused for seed in self.seeds)

    @property
    def failed(self) -> int:
        """Tasks lost on the worst seed."""
        return max(seed.outcome.failed for seed in self.seeds)

    @property
    def kept(self) -> float:
        """The neighbour's part of its fair share on the worst seed."""
        return min(seed.outcome.kept for seed in self.seeds)

    @property
    def latency_p95_s(self) -> float:
        return median(seed.outcome.latency_p95_s for seed in self.seeds)


def measure(choices: Sequence[Choice], store: Store, processes: int = PROCESSES) -> list[Cell]:
    """Run what is missing, in two steps: the second is the widest `fixed` where it may be best."""
    wanted = [trial for choice in choices for trial in _needed(choice)]
    outcomes = complete(wanted, store, processes)
    wider = [trial for choice in choices for trial in _wider(choice, outcomes)]
    if wider:
        outcomes |= complete(wider, store, processes)
    return [_fold(choice, outcomes) for choice in choices]


def _needed(choice: Choice) -> list[Trial]:
    found = []
    for at in choice.scenes():
        found += [_bound(at), *_own(choice, at), *_others(choice, at)]
    return found


def _wider(choice: Choice, outcomes: Mapping[Trial, Outcome]) -> list[Trial]:
    found = []
    for at in choice.scenes():
        fixed = [t for t in (*_own(choice, at), *_others(choice, at)) if "fixed" in t.way]
        last = f"fixed:{WIDTHS[-1]}"
        if len(fixed) > 1 and fixed[-1].way == last:
            fastest_s = min(outcomes[trial].makespan_s for trial in fixed)
            if outcomes[fixed[-1]].makespan_s <= WIDER_WITHIN * fastest_s:
                found.append(_widest(fixed[-1]))
    return found


def _bound(at: Scene) -> Trial:
    return Trial(at.spec, at.work, at.seed, "bound")


def _own(choice: Choice, at: Scene) -> list[Trial]:
    """The trials that the column itself consists of."""
    spec = hide(at.spec) if choice.column == "hidden" else at.spec
    ways: Sequence[str] = ("cold" if choice.column == "hidden" else choice.column,)
    if choice.column == "fixed:best":
        ways = _fixed_ways(at.work.tasks)
    return [Trial(spec, at.work, at.seed, way) for way in ways]


def _others(choice: Choice, at: Scene) -> list[Trial]:
    """What a column of ours is compared with: others that hear as much and as little."""
    if choice.column not in OURS or not choice.compared:
        return []
    spec = hide(at.spec) if choice.column == "hidden" else at.spec
    ways = (*_fixed_ways(at.work.tasks), "waves:4", "aimd", "cubic", "sdk")
    return [Trial(spec, at.work, at.seed, way) for way in ways]


def _fixed_ways(tasks: int) -> list[str]:
    """Sizes beyond the first that holds every task do what that one does."""
    enough = next((width for width in WIDTHS if width >= tasks), WIDTHS[-1])
    least = LEAST_OF_MANY if tasks >= MANY else WIDTHS[0]
    return [f"fixed:{width}" for width in WIDTHS if least <= width <= enough]


def _widest(trial: Trial) -> Trial:
    return Trial(trial.spec, trial.work, trial.seed, f"fixed:{WIDEST}")


def _fold(choice: Choice, outcomes: Mapping[Trial, Outcome]) -> Cell:
    seeds = []
    for at in choice.scenes():
        least = outcomes[_bound(at)]
        tried = _tried(_own(choice, at), outcomes)
        outcome = min(tried.values(), key=lambda one: (one.failed > 0, one.makespan_s))
        others = _tried(_others(choice, at), outcomes)
        best, best_s = _best(others, THEFT * least.makespan_s)
        seeds.append(Measured(at, outcome, least.makespan_s, least.binding, best, best_s))
    return Cell(choice.provider, choice.workload, choice.column, tuple(seeds))


def _tried(trials: Sequence[Trial], outcomes: Mapping[Trial, Outcome]) -> dict[str, Outcome]:
    """Outcomes by way, with that of the widest size where it was tried."""
    found = {trial.way: outcomes[trial] for trial in trials}
    for trial in trials:
        if len(found) > 1 and _widest(trial) in outcomes:
            found[f"fixed:{WIDEST}"] = outcomes[_widest(trial)]
    return found


def _best(others: Mapping[str, Outcome], honest_s: float) -> tuple[str, float]:
    """The fastest that lost no task, left the neighbour its share and did not beat the bound."""
    best, best_s = "", inf
    for way, one in others.items():
        fair = one.failed == 0 and one.kept >= KEPT_MIN and one.makespan_s >= honest_s
        if fair and one.makespan_s < best_s:
            best, best_s = way, one.makespan_s
    return best, best_s
