"""For minutes: every provider, many seeds, with and without headers. No task is ever lost."""

from __future__ import annotations

import pytest

from headway.sim.compare import Experiment, compare, parse_contenders
from headway.sim.presets import PROVIDERS, WORKLOADS

SEEDS = tuple(range(1, 21))

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("workload", ["agents-22", "graph"])
@pytest.mark.parametrize("way", ["headway", "headway+profile", "headway+hidden"])
@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_no_task_is_lost_on_any_provider(provider: str, way: str, workload: str) -> None:
    experiment = Experiment(PROVIDERS[provider].spec, WORKLOADS[workload], SEEDS)
    (row,) = compare(experiment, parse_contenders(way)).rows
    assert row.failed == 0
    assert row.makespan_s < 1e5


@pytest.mark.parametrize("preset", ["trap", "slots"])
@pytest.mark.parametrize("block", range(20))
def test_known_limits_are_never_slower_than_what_loses_nothing(preset: str, block: int) -> None:
    seeds = tuple(range(1 + 5 * block, 6 + 5 * block))
    provider = PROVIDERS[preset]
    experiment = Experiment(provider.spec, WORKLOADS[provider.workload], seeds)
    names = ("headway+known", "waves:4", "fixed:5", "all-at-once+aggressive", "headway")
    contenders = [contender for name in names for contender in parse_contenders(name)]
    known, *others = compare(experiment, contenders).rows
    assert known.refused == known.failed == 0
    for other in others:
        assert other.failed > 0 or known.makespan_s <= other.makespan_s * 1.001, other.strategy
