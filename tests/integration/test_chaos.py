"""A slice of the campaigns: headway is killed, and what it had is not done again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from headway.sim.server import launched
from tests.chaos.campaign import (
    QUIET_S_MAX,
    Arm,
    At,
    Told,
    campaign,
    crash_points,
    processes,
    spread_over,
)
from tests.chaos.headway_subject import HeadwayEach, HeadwayRun
from tests.chaos.prompt_subject import SCRIPT, HeadwayPrompts, HeadwayReduction
from tests.chaos.subject import WIDTH, Home

SEED = 20
TASKS = 20
KILLS = 3
"""By campaign."""

PROMPT_POINTS = {"kept", "reserved"}
"""Boundaries that only prompts have."""
EFFECT_POINTS = {"intended", "performed", "receipted"}
"""Boundaries of effects on the world, which have tests of their own."""
BROKER_POINTS = {"appended", "snapshot"}
"""Boundaries of the broker, which is another process."""
LAUNCH_POINTS = {"making", "made", "opened", "documents"}
"""Boundaries of a start and a resume: `test_run_cli.py`."""
WORKSPACE_POINTS = {name for name in crash_points() if name.startswith("workspace-")}
"""Boundaries of files: `tests/workspaces/test_kills.py`."""

NAMES = ("flaky-1", "flaky-2", *(f"t{number}" for number in range(TASKS - 2)))


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("provider") / "script.yaml"
    script.write_text(SCRIPT)
    with launched("--script", str(script), "--first-byte-s", "0.02") as url:
        yield url


def must_be_clean(told: Told, arm: Arm) -> None:
    """What is promised of both arms, and of headway's own death alone."""
    verdict = told.verdict
    assert told.exit_code == 0, told.complaints
    found = (verdict.durable_repeats, verdict.doubles, verdict.lost, verdict.orphans)
    assert found == (0, 0, 0, 0), (verdict, told.complaints)
    assert verdict.repeats_most <= WIDTH, (verdict, told.complaints)
    if arm == "alone":
        assert verdict.outside_repeats == 0, (verdict, told.complaints)


@pytest.mark.parametrize(
    ("subject", "arm"), [(HeadwayEach(), "alone"), (HeadwayRun(), "group")], ids=["each", "run"]
)
def test_a_kill_at_any_time_repeats_only_what_was_in_flight(
    subject: HeadwayEach, arm: Arm, tmp_path: Path
) -> None:
    told = campaign(subject, Home(tmp_path, NAMES, 20), arm, spread_over(TASKS, KILLS, SEED))
    assert told.verdict.kills > 0
    must_be_clean(told, arm)


def test_a_death_at_every_boundary_of_commands_repeats_only_what_was_in_flight(
    tmp_path: Path,
) -> None:
    missed = set(crash_points()) - PROMPT_POINTS - EFFECT_POINTS - BROKER_POINTS
    missed -= LAUNCH_POINTS | WORKSPACE_POINTS
    for number, count in enumerate((2, 1, 1)):
        kills = [At(point=point, count=count) for point in sorted(missed)]
        told = campaign(HeadwayEach(), Home(tmp_path / str(number), NAMES, 10), "alone", kills)
        must_be_clean(told, "alone")
        missed -= told.points
        if not missed:
            break
    assert not missed


def test_a_death_at_every_boundary_of_prompts_pays_for_no_reply_twice(
    provider: str, tmp_path: Path
) -> None:
    names = tuple(f"t{number}" for number in range(16))
    kills = [At(point=point) for point in sorted({*PROMPT_POINTS, "result", "written", "durable"})]
    home = Home(tmp_path, names, 0)
    told = campaign(HeadwayPrompts(url=provider), home, "group", kills)
    must_be_clean(told, "group")
    assert told.verdict.outside_repeats == 0
    assert told.points >= PROMPT_POINTS


def test_when_headway_dies_its_commands_end_too(tmp_path: Path) -> None:
    home = Home(tmp_path, ("t1", "t2", "t3"), 60_000)
    command = HeadwayEach().command(home, True)
    with subprocess.Popen(command, env=home.environment(), cwd=tmp_path, start_new_session=True,
                          stdout=subprocess.DEVNULL) as process:  # fmt: skip
        until_s = monotonic() + 30.0
        while len(home.lines()) < 2 and monotonic() < until_s:
            sleep(0.01)
        process.send_signal(signal.SIGKILL)
    until_s = monotonic() + QUIET_S_MAX
    while processes(home.mark) and monotonic() < until_s:
        sleep(0.01)
    assert processes(home.mark) == []
    assert {line.split()[0] for line in home.lines()} == {"start"}


def test_a_reduction_that_is_killed_reads_every_result_and_is_paid_once(
    provider: str, tmp_path: Path
) -> None:
    names = (*(f"t{number}" for number in range(6)), "whole")
    kills = [At(point=point, count=2) for point in ("kept", "reserved", "durable")]
    home = Home(tmp_path, names, 0)
    told = campaign(HeadwayReduction(url=provider), home, "group", kills)
    must_be_clean(told, "group")
    assert told.verdict.kills > 0
