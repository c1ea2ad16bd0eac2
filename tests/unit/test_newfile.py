"""Files that are put where nothing is, and results of plans that somebody else wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.run.filling import publish_new, write_new


def test_a_new_file_is_whole_and_replaces_nothing_unless_it_may(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    (tmp_path / f".a.md.{os.getpid()}").write_text("of a killed process")
    write_new(str(path), b"one")
    with pytest.raises(FileExistsError):
        write_new(str(path), b"two")
    assert path.read_bytes() == b"one"
    write_new(str(path), b"two", may_replace=True)
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.md"]


def test_a_disk_without_links_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    write_new(str(tmp_path / "a.md"), b"one")
    with pytest.raises(FileExistsError):
        write_new(str(tmp_path / "a.md"), b"two")
    assert (tmp_path / "a.md").read_bytes() == b"one"


def test_a_run_replaces_only_what_it_has_shown_itself(tmp_path: Path) -> None:
    here, run, other = (tmp_path / name for name in ("here", "run", "other"))
    for folder in (here, run, other):
        folder.mkdir()
    publish_new(str(here), str(run), "out/a.md", b"first")
    publish_new(str(here), str(run), "out/a.md", b"first")
    publish_new(str(here), str(run), "out/a.md", b"again")
    with pytest.raises(OSError, match="is not this run's"):
        publish_new(str(here), str(other), "out/a.md", b"another run's")
    (here / "out/a.md").write_bytes(b"edited")
    with pytest.raises(OSError, match="is not this run's"):
        publish_new(str(here), str(run), "out/a.md", b"again")
    assert (here / "out/a.md").read_bytes() == b"edited"


def test_no_result_goes_through_a_link_that_came_later(tmp_path: Path) -> None:
    here, run, outside = (tmp_path / name for name in ("here", "run", "outside"))
    for folder in (here, run, outside):
        folder.mkdir()
    (here / "out").symlink_to(outside)
    with pytest.raises(OSError, match="on the way to"):
        publish_new(str(here), str(run), "out/a.md", b"x")
    (here / "b.md").symlink_to(outside / "b.md")
    with pytest.raises(OSError, match="is there already"):
        publish_new(str(here), str(run), "b.md", b"x")
    assert os.listdir(outside) == []
