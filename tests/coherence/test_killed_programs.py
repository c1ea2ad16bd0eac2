"""Random programs as durable runs, killed with SIGKILL where it hurts: the serial result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from tests.coherence.killed import SENT, TIMES, programs_of
from tests.coherence.programs import serial

ROOT = Path(headway.__file__).resolve().parents[2]
POINTS = ("started", "result", "written", "durable", "intended", "performed", "receipted")
KILLS = 4
AT_ONCE = 10


def process(folder: Path, first: int, crash: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "HEADWAY_STATE_DIR": str(folder / "state"),
        **({"HEADWAY_CRASH_AT": crash} if crash else {}),
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.coherence.killed", str(first), str(AT_ONCE)], cwd=folder,
        env=environment, check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def killed(first: int, folder: Path) -> int:
    """One run to its end, through several deaths; how many there were."""
    rng = random.Random(first)
    deaths = redone = 0
    for _ in range(KILLS):
        point = rng.choice(POINTS)
        most = 25 if point in POINTS[:4] else 3
        ended = process(folder, first, f"{point}:{rng.randint(1, most)}")
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        deaths += 1
        redone += point == "performed"
    ended = process(folder, first, "")
    assert ended.returncode == 0, ended.stderr
    sent = (folder / SENT).read_text().splitlines() if (folder / SENT).exists() else []
    must_be_serial(first, json.loads(ended.stdout), [json.loads(line) for line in sent], redone)
    times = (folder / TIMES).read_text().split()
    assert len(set(times)) == 1, "the run was created once"
    again = process(folder, first, "")
    assert json.loads(again.stdout) == json.loads(ended.stdout)
    assert (folder / TIMES).read_text().split() == times, "nothing is performed again"
    return deaths


def must_be_serial(
    first: int, told: dict[str, Any], sent: list[tuple[str, str]], redone: int
) -> None:
    """Results, state and effects are those of one who works alone."""
    effects: list[str] = []
    state: dict[str, object] = {}
    for seed in range(first, first + AT_ONCE):
        programs = programs_of(seed)
        wanted = serial(programs)
        state |= {f"{seed}/{key}": json.loads(data) for key, data in wanted.state}
        effects += [json.loads(data) for _, data in wanted.effects]
        for group, end in wanted.ends.items():
            name = f"{seed}-{programs.named(group)}"
            how, _, seen = end.partition(" ")
            if how == "done":
                assert told["results"][name] == [seen], name
            else:
                assert seen in told["errors"][f"{name}[0]"], name
    assert told["state"] == state
    assert list(dict(sent).values()) == effects
    # Only what was being done when it died, and of which nobody knows, is done again.
    assert len(sent) <= len(effects) + redone


def test_programs_that_are_killed_go_on_to_the_serial_result(tmp_path: Path) -> None:
    assert killed(0, tmp_path) >= 2


@pytest.mark.soak
@pytest.mark.parametrize("first", range(AT_ONCE, 1010, 10 * AT_ONCE))
def test_a_thousand_programs_that_are_killed_leave_what_the_serial_run_leaves(
    first: int, tmp_path: Path
) -> None:
    deaths = 0
    for one in range(first, first + 10 * AT_ONCE, AT_ONCE):
        (tmp_path / str(one)).mkdir()
        deaths += killed(one, tmp_path / str(one))
    assert deaths >= 15
