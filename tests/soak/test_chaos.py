"""For minutes: two hundred kills, spread over whole runs and at every boundary of the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import Arm, At, campaign, crash_points, spread_over
from tests.chaos.headway_subject import HeadwayEach, HeadwayRun
from tests.chaos.judge import Verdict
from tests.chaos.subject import Home
from tests.integration.test_chaos import (
    BROKER_POINTS,
    EFFECT_POINTS,
    PROMPT_POINTS,
    WORKSPACE_POINTS,
    must_be_clean,
)

pytestmark = pytest.mark.soak

TASKS = 40
KILLS = 5

NAMES = (*(f"flaky-{n}" for n in range(4)), *(f"t{n}" for n in range(TASKS - 4)))
SUBJECTS = pytest.mark.parametrize("subject", [HeadwayEach(), HeadwayRun()], ids=["each", "run"])
ARMS = pytest.mark.parametrize("arm", ["group", "alone"])


@SUBJECTS
@ARMS
def test_fifty_kills_repeat_only_what_was_in_flight(
    subject: HeadwayEach, arm: Arm, tmp_path: Path
) -> None:
    whole, seed = Verdict(), 0
    while whole.kills < 50:
        seed += 1
        home = Home(tmp_path / str(seed), NAMES, 10 + 10 * (seed % 4))
        told = campaign(subject, home, arm, spread_over(TASKS, KILLS, seed))
        must_be_clean(told, arm)
        whole += told.verdict
    assert whole.durable_repeats == whole.lost == whole.orphans == 0


@SUBJECTS
@ARMS
@pytest.mark.parametrize("count", [2, 7])
def test_every_boundary_is_died_at(
    subject: HeadwayEach, arm: Arm, count: int, tmp_path: Path
) -> None:
    hit: set[str] = set()
    points = set(crash_points()) - PROMPT_POINTS - EFFECT_POINTS - BROKER_POINTS
    points -= WORKSPACE_POINTS
    for number, point in enumerate(sorted(points)):
        # Not every place is passed seven times, but every place is passed.
        kills = [At(point=point), At(point=point, count=count)]
        told = campaign(subject, Home(tmp_path / str(number), NAMES, 10), arm, kills)
        must_be_clean(told, arm)
        hit |= told.points
    assert hit == points
