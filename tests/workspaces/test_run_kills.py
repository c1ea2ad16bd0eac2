"""A run in workspaces that is killed again and again ends as the serial run, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

from tests.workspaces.killing import killed


def test_a_run_killed_three_times_ends_as_the_serial_run(tmp_path: Path) -> None:
    killed(tmp_path, 3, 3)
