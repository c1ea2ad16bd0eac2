"""Runs are found by what people type, in the order in which they began."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from headway.engine.record import Header
from headway.errors import JournalError, UsageError
from headway.journal.folder import RunPlace, find_run, list_runs, new_run, prune
from headway.journal.journal import Journal

NOON_S = 1_794_830_400.0
"""2026-11-16 12:00 UTC."""


def begun(state: Path, now_s: float) -> RunPlace:
    place = new_run(str(state), now_s)
    header = Header(place.id, "review", "plan", "", "/", 1, now_s)
    Journal.create(place.folder, header).close()
    return place


def test_an_id_says_when_and_sorts_as_runs_began(tmp_path: Path) -> None:
    times = [NOON_S, NOON_S + 0.5, NOON_S + 59.99, NOON_S + 60.0, NOON_S + 86400.0]
    places = [new_run(str(tmp_path), now_s) for now_s in times]
    ids = [place.id for place in places]
    assert ids[0] == "20261116-1200-222"
    assert ids == sorted(ids)
    for place, now_s in zip(places, times, strict=True):
        assert place.created_s == pytest.approx(now_s, abs=2.1)


def test_runs_of_the_same_instant_have_folders_of_their_own(tmp_path: Path) -> None:
    places = [new_run(str(tmp_path), NOON_S) for _ in range(50)]
    assert len({place.folder for place in places}) == 50
    assert stat.S_IMODE(os.stat(places[0].folder).st_mode) == 0o700


def test_runs_are_listed_newest_first_and_only_if_they_began(tmp_path: Path) -> None:
    first, second = begun(tmp_path, NOON_S), begun(tmp_path, NOON_S + 1)
    new_run(str(tmp_path), NOON_S + 2)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "20269916-1200-222").mkdir()
    assert list_runs(str(tmp_path)) == [second, first]
    assert list_runs(str(tmp_path), limit=1) == [second]
    assert list_runs(str(tmp_path / "nowhere")) == []


def test_a_run_is_found_by_its_id_its_beginning_its_end_or_last(tmp_path: Path) -> None:
    first, second = begun(tmp_path, NOON_S), begun(tmp_path, NOON_S + 86400.0)
    state = str(tmp_path)
    assert find_run(state, "last") == second
    assert find_run(state, first.id) == first
    assert find_run(state, "20261116") == first
    assert find_run(state, "20261117-12") == second
    third = begun(tmp_path, NOON_S + 5.0)
    assert find_run(state, third.id[-3:]) == third


def test_a_run_that_is_not_there_is_a_usage_error_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no runs yet"):
        find_run(str(tmp_path), "last")
    first, _ = begun(tmp_path, NOON_S), begun(tmp_path, NOON_S + 86400.0)
    with pytest.raises(UsageError) as caught:
        find_run(str(tmp_path), "20261116-1200-223")
    assert caught.value.hint == f"did you mean `{first.id}`?"
    with pytest.raises(UsageError, match="any of 2 runs"):
        find_run(str(tmp_path), "2026")


def test_old_runs_that_nobody_owns_are_removed(tmp_path: Path) -> None:
    state = str(tmp_path)
    first, second, third = (begun(tmp_path, NOON_S + day * 86400.0) for day in range(3))
    owned = Journal.open(second.folder)
    assert prune(state, before_s=NOON_S + 86401.0) == [first]
    owned.close()
    assert prune(state, before_s=NOON_S) == []
    assert prune(state, before_s=NOON_S + 86401.0) == [second]
    assert list_runs(state) == [third]


def test_a_state_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    with pytest.raises(JournalError, match="no folder for a run"):
        new_run(str(file), NOON_S)
    with pytest.raises(JournalError, match="cannot be read"):
        list_runs(str(file))
