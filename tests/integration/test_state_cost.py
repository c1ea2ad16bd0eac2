"""What the shared state costs: a slice of its bench, with bounds for a machine that is busy."""

from __future__ import annotations

import pytest

from bench.coherence_cost import (
    ACCESS_US_MAX,
    COMMIT_US_MAX,
    WALL_SHARE_MAX,
    access,
    commits,
    main,
    processes,
    walls,
)

pytestmark = pytest.mark.soak

BUSY = 3
"""So much slower may a machine be that others use."""


def test_reading_and_writing_take_microseconds() -> None:
    for line in access(rounds=20):
        assert line.own_us <= ACCESS_US_MAX * BUSY, line


def test_a_commit_takes_a_fraction_of_a_millisecond() -> None:
    *lines, _ = commits(tasks=1_000)
    for line in lines:
        assert 0 < line.own_us <= COMMIT_US_MAX * BUSY, line


def test_tasks_of_a_tenth_of_a_second_hardly_take_longer() -> None:
    assert walls(tasks=1_000).share <= WALL_SHARE_MAX * BUSY


def test_a_process_asks_within_a_millisecond() -> None:
    for line in processes(count=200):
        assert line.own_us <= 1_000, line


def test_the_page_says_what_was_measured(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--tasks", "300", "--output", f"{tmp_path}/cost.md"]) == 0
    said = capsys.readouterr().out
    assert "| get | " in said
    assert "Manager().dict()" in said
