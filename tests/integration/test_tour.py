"""What `make run` claims: every figure is computed from what ran, and the claims hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from examples import tour


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    names = {"RUNTIME": "r", "STATE": "s", "CONFIG": "c"}
    folders = {f"HEADWAY_{name}_DIR": str(tmp_path / short) for name, short in names.items()}
    return {**os.environ, **folders}


@pytest.fixture(scope="module")
def found() -> list[tour.Scene]:
    return tour.scenes()


def test_no_pool_is_as_fast_in_every_situation_without_more_refusals(
    found: list[tour.Scene],
) -> None:
    assert len(found) == 3
    for scene in found:
        assert scene.headway.failed == 0
        for pool in scene.pools.values():
            is_faster = pool.makespan_s < scene.headway.makespan_s
            assert not is_faster or pool.refused > scene.headway.refused
    lines = [*tour.table_lines(found), tour.verdict(found)]
    assert max(map(len, lines)) <= 100


def test_a_kill_pays_at_most_what_was_in_flight_again(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    run = tour.killed_run(_project(tmp_path), environment)
    assert run.in_order
    assert run.rows / 2 <= run.before_kill <= run.rows
    assert run.rows <= run.paid <= run.rows + tour.WIDTH


def test_all_edits_of_one_file_land(tmp_path: Path, environment: dict[str, str]) -> None:
    edits = tour.edits(_project(tmp_path), environment)
    assert edits.with_headway == edits.editors == tour.EDITORS


def test_the_words_are_computed_from_what_ran_and_fit_on_a_screen(
    found: list[tour.Scene],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tour, "scenes", lambda: found)
    monkeypatch.setattr(tour, "killed_run", lambda *_: tour.KilledRun(71, 37, 73, False))
    monkeypatch.setattr(tour, "edits", lambda *_: tour.Edits(9, 2, 5))
    tour.main()
    said = capsys.readouterr().out
    assert "after 37 of 71 rows" in said
    assert "NOT in order, 2 paid twice" in said
    assert "2 without workspaces, 5 with them" in said
    assert len(said.splitlines()) <= 24


def _project(root: Path) -> Path:
    folder = root / "p"
    folder.mkdir()
    return folder
