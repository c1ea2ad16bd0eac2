"""Five tasks in every order, with the engine of real runs, and many programs in many orders."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.explore import KINDS, Kind, measured
from headway.plans.load import load_unrefused
from headway.report.explore import ExploreOptions, explore, subject_of
from headway.report.schedules import ScheduleText, interleavings
from tests.unit.explored_programs import drawn
from tests.unit.test_explore_trials import outcome_of, outcomes_of, serial_of

pytestmark = pytest.mark.soak

SCHEDULES_PER_S_MIN = 2_000


@pytest.mark.wallclock
@pytest.mark.parametrize("is_shared", [False, True])
def test_five_tasks_end_alike_in_all_113400_orders(tmp_path: Path, is_shared: bool) -> None:
    path = tmp_path / "plan.yaml"
    lines = ["headway: 1", "name: five", *(["state: {total: counter}"] if is_shared else [])]
    lines.append("tasks:")
    for name in "abcde":
        touched = f', reads: "state:in/{name}", writes: "state:out/{name}"' if is_shared else ""
        lines.append(f"  {name}: {{run: ./work.sh {name}{touched}}}")
    path.write_text("\n".join(lines))
    loaded, _ = load_unrefused(path)
    began_s = time.process_time()
    found = explore(subject_of(loaded.expanded), ExploreOptions(), lambda *_: None)
    took_s = time.process_time() - began_s
    assert (found.schedules, found.is_complete, found.differs) == (113_400, True, False)
    assert found.schedules / took_s >= SCHEDULES_PER_S_MIN


@pytest.mark.wallclock
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_thousands_of_schedules_are_tried_in_a_second_of_every_kind(kind: Kind) -> None:
    rate, _ = measured(kind)
    assert rate >= SCHEDULES_PER_S_MIN


def test_programs_that_share_a_state_end_alike_in_every_order() -> None:
    for seed in range(120):
        cast = drawn(seed, most=4, has_files=False)
        serial = serial_of(cast)
        for number, trial in enumerate(interleavings(cast)):
            assert trial.outcome() == serial, (seed, trial.path)
            if number > 500:
                break
        for crash in range(1, 40):
            line = ScheduleText("random", seed=seed, crash=crash)
            assert outcome_of(cast, line) == serial, (seed, crash)


def test_reduction_loses_no_outcome_of_many_programs() -> None:
    for seed in range(120):
        cast = drawn(seed, most=3, has_files=True)
        every, _ = outcomes_of(cast, is_reduced=False)
        assert not every or outcomes_of(cast, is_reduced=True)[0] == every, seed
