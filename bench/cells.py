"""A cell of the table: one provider, one workload, one column, over several seeds.

Which trials a cell needs, and what they come to. A column is a way to send, or `hidden`: cold, and
the provider sends no headers and no advice. Cells of drawn providers carry beside their own time
the best that was reached without headway on the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, inf, log
from statistics import median
from typing import Final

from msgspec import Struct

from bench.results import PROCESSES, Store, complete
from bench.scenes import Scene, Set, hide, is_sole, scene
from bench.trial import FIRST, Outcome, Trial

OURS: Final = ("cold", "profile", "known", "hidden")
FIRST_OURS: Final = tuple(FIRST + way for way in OURS)

POOLS: Final = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)
MANY: Final = 4000
POOLS_OF_MANY: Final = (3, 5, 10, 20, 50)
"""The sizes among which hindsight chooses. With many tasks each takes minutes to compute."""

OTHERS: Final = ("waves:4", "aimd", "cubic", "sdk")

COLUMNS: Final = OURS + FIRST_OURS + tuple(f"fixed:{size}" for size in POOLS) + OTHERS
EXTRA: Final = ("smooth",)
"""The steady flow that a user can ask for."""

KEPT_MIN: Final = 0.95
"""A neighbour that keeps less of its fair share was robbed."""

THEFT: Final = 0.995
"""A baseline that is faster than this part of the bound leaves a debt."""


class Choice(Struct, frozen=True):
    """Which cell, and on which seeds."""

    which: Set
    provider: str
    workload: str
    column: str
    seeds: tuple[int, ...]

    def scenes(self) -> list[Scene]:
        return [scene(self.which, self.provider, self.workload, seed) for seed in self.seeds]


class Measured(Struct, frozen=True):
    """One seed of a cell: the outcome beside the least time, and the best that others reached."""

    scene: Scene
    outcome: Outcome
    bound_s: float
    """The least time, whatever becomes of a neighbour."""
    fair_s: float
    """The least time that leaves a neighbour its share."""
    binding: str
    best: str = ""
    """The best way without headway that loses no task and leaves a neighbour its share."""
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
    def name(self) -> str:
        return f"{self.provider} x {self.workload}"

    @property
    def first(self) -> Measured:
        return self.seeds[0]

    @property
    def ratio(self) -> float:
        """Time to the bound, median over seeds."""
        return median(seed.ratio for seed in self.seeds)

    @property
    def against_best(self) -> float:
        """Time to the best in hindsight, median over seeds; 0 where no baseline came through."""
        return median(seed.against_best for seed in self.seeds)

    @property
    def failed(self) -> int:
        """Tasks lost on the worst seed."""
        return max(seed.outcome.failed for seed in self.seeds)

    @property
    def kept(self) -> float:
        """The neighbour's part of its fair share on the worst seed."""
        return min(seed.outcome.kept for seed in self.seeds)

    @property
    def refused(self) -> float:
        return self.median_of(lambda one: one.refused)

    def median_of(self, figure: Callable[[Outcome], float]) -> float:
        return median(figure(seed.outcome) for seed in self.seeds)

    def against(self, other: Cell) -> float:
        """Time to that of another cell of the same provider and workload, median over seeds."""
        pairs = zip(self.seeds, other.seeds, strict=True)
        return median(own.outcome.makespan_s / its.outcome.makespan_s for own, its in pairs)


def line_of(one: Cell) -> str:
    """A cell on one line, for tuning."""
    at = one.first
    parts = [
        f"{one.provider:>5} {at.scene.told:8} {one.workload:>4} {one.column:12}",
        f"{one.median_of(lambda found: found.makespan_s):8.1f} s",
        f"x{one.against_best:.3f} of {at.best or 'none'}",
        f"x{one.ratio:.3f} of bound ({at.binding})",
        f"refused {one.refused:g}",
        f"first {one.median_of(lambda found: found.first_s):.1f} s",
        f"p95 {one.median_of(lambda found: found.task_p95_s):.1f} s",
    ]
    if one.failed:
        parts.append(f"LOST {one.failed}")
    if one.kept < 1.0:
        parts.append(f"neighbour kept {one.kept:.2f}")
    return " | ".join(parts)


def geometric_mean(values: Iterable[float]) -> float:
    """Of ratios; those that are not positive are left out."""
    logs = [inf if value == inf else log(value) for value in values if value > 0]
    return exp(sum(logs) / len(logs)) if logs else 0.0


def pools_of(tasks: int) -> list[str]:
    """Sizes beyond the first that holds every task do what that one does."""
    sizes = POOLS_OF_MANY if tasks >= MANY else POOLS
    enough = next((size for size in sizes if size >= tasks), sizes[-1])
    return [f"fixed:{size}" for size in sizes if size <= enough]


def measure(choices: Sequence[Choice], store: Store, processes: int = PROCESSES) -> list[Cell]:
    """Run what is missing."""
    wanted = [trial for choice in choices for at in choice.scenes() for trial in _all(choice, at)]
    outcomes = complete(wanted, store, processes)
    return [_fold(choice, outcomes) for choice in choices]


def _all(choice: Choice, at: Scene) -> list[Trial]:
    return [_own(choice, at), _trial(at, "bound"), _fair(at), *_others(at)]


def _trial(at: Scene, way: str) -> Trial:
    return Trial(at.spec, at.work, at.seed, way)


def _own(choice: Choice, at: Scene) -> Trial:
    way = choice.column
    if way.endswith("hidden"):
        return Trial(hide(at.spec), at.work, at.seed, way.replace("hidden", "cold"))
    return _trial(at, way)


def _fair(at: Scene) -> Trial:
    return _trial(at, "bound" if is_sole(at.spec) else "fair")


def _others(at: Scene) -> list[Trial]:
    """What a cell of a drawn provider is compared with."""
    if at.which == "twelve":
        return []
    return [_trial(at, way) for way in (*pools_of(at.work.tasks), *OTHERS)]


def _fold(choice: Choice, outcomes: Mapping[Trial, Outcome]) -> Cell:
    seeds = []
    for at in choice.scenes():
        least, fair = outcomes[_trial(at, "bound")], outcomes[_fair(at)]
        others = {trial.way: outcomes[trial] for trial in _others(at)}
        best, best_s = best_of(others, THEFT * least.makespan_s)
        seeds.append(Measured(at, outcomes[_own(choice, at)], least.makespan_s, fair.makespan_s,
                              least.binding, best, best_s))  # fmt: skip
    return Cell(choice.provider, choice.workload, choice.column, tuple(seeds))


def best_of(others: Mapping[str, Outcome], honest_s: float) -> tuple[str, float]:
    """The fastest that lost no task, left the neighbour its share and did not beat the bound."""
    best, best_s = "", inf
    for way, one in others.items():
        fair = one.failed == 0 and one.kept >= KEPT_MIN and one.makespan_s >= honest_s
        if fair and one.makespan_s < best_s:
            best, best_s = way, one.makespan_s
    return best, best_s
