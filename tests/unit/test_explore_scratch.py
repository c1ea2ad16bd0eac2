"""The copy of a folder in which functions are tried, and what their modules hold."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from headway.errors import InternalError
from headway.run.explore import ConfinedError, Confines, Globals, Scratch, confined


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    return tmp_path


def test_everything_is_put_back_as_it_was(folder: Path) -> None:
    scratch = Scratch(str(folder))
    try:
        here = Path(scratch.folder)
        assert not (here / ".git").exists()
        (here / "b.txt").write_text("other")
        (here / "data" / "a.txt").unlink()
        (here / "data").rmdir()
        (here / "new" / "inner").mkdir(parents=True)
        (here / "new" / "inner" / "c.txt").write_text("c" * 10_000)
        changes = scratch.changes()
        assert changes["b.txt"] == "other"
        assert changes["data/a.txt"] is None
        assert str(changes["new/inner/c.txt"]).startswith("10,000 bytes ")
        scratch.reset()
        assert scratch.changes() == {}
        assert (here / "b.txt").read_text() == "b"
        assert (here / "data" / "a.txt").read_text() == "a"
        assert not (here / "new").exists()
        assert (folder / "b.txt").read_text() == "b"
    finally:
        scratch.close()
    assert not os.path.exists(scratch.folder)


def test_a_file_is_written_where_a_file_can_be(folder: Path) -> None:
    scratch = Scratch(str(folder))
    try:
        assert scratch.write("deep/er/x.txt", "x")
        assert not scratch.write("data", "a folder")
        assert not scratch.write("b.txt/inner", "below a file")
        assert not scratch.write("", "the folder itself")
    finally:
        scratch.close()


def test_a_link_is_copied_as_what_it_leads_to(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder / "b.txt")
    (folder / "broken").symlink_to(folder / "nowhere")
    scratch = Scratch(str(folder))
    try:
        (Path(scratch.folder) / "link.txt").write_text("changed")
        assert (folder / "b.txt").read_text() == "b"
        assert not os.path.lexists(os.path.join(scratch.folder, "broken"))
    finally:
        scratch.close()


def test_values_of_modules_are_seen_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "held_values.py").write_text(
        "CACHE = {}\nLIMIT = 3\nimport os\n"
        "def helper():\n    return CACHE\n"
        "def function():\n    return [helper() for _ in range(LIMIT)]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import held_values  # type: ignore[import-not-found]

    held = Globals(str(tmp_path))
    assert held.changed() == []
    held_values.CACHE["x"] = 1
    assert held.changed() == ["held_values.CACHE"]
    assert held.named_by(held_values.function) == ["held_values.LIMIT", "held_values.CACHE"]
    assert held.named_by(len) == []
    held.forget()
    assert "held_values" not in sys.modules


def test_whoever_is_confined_writes_only_where_he_may(tmp_path: Path) -> None:
    inside, told, refused = tmp_path / "in", [], []
    inside.mkdir()

    def act() -> None:
        (inside / "a.txt").write_text("a")
        (inside / "a.txt").read_text()
        for harm in (
            lambda: (tmp_path / "b.txt").write_text("b"),
            lambda: os.rename(inside / "a.txt", tmp_path / "c.txt"),
            lambda: os.chdir(tmp_path),
            lambda: os.system("true"),
        ):
            try:
                harm()
            except ConfinedError as error:
                refused.append(str(error))

    confines = Confines(
        (str(inside.resolve()),), lambda name, is_write: told.append((name, is_write))
    )
    with confined(confines):
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
        (tmp_path / "mine.txt").write_text("whoever tries is not confined")
        with pytest.raises(InternalError, match="at once"), confined(confines):
            pass
    assert told[:2] == [("a.txt", True), ("a.txt", False)]
    assert len(refused) == 4
    assert not (tmp_path / "b.txt").exists()


def test_a_folder_that_is_open_is_no_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, refused = tmp_path / "in", []
    (inside / "deep" / "er").mkdir(parents=True)
    (inside / "deep" / "er" / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    monkeypatch.chdir(inside)
    outer = os.open(tmp_path, os.O_RDONLY)

    def act() -> None:
        for harm in (
            lambda: os.remove("b.txt", dir_fd=outer),
            lambda: os.rename("deep", "moved", dst_dir_fd=outer),
            lambda: os.mkdir("made", dir_fd=outer),
            lambda: os.mkdir("made", dir_fd=10_000),
            lambda: os.setxattr(tmp_path / "b.txt", "user.x", b"1"),
            lambda: sqlite3.connect(tmp_path / "c.db"),
        ):
            try:
                harm()
            except ConfinedError as error:
                refused.append(str(error))
        # It walks with open folders, and may: all of them are inside.
        shutil.rmtree("deep")

    try:
        with confined(Confines((str(inside.resolve()),), lambda name, is_write: None)):
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
    finally:
        os.close(outer)
    assert len(refused) == 6
    assert [one.name for one in tmp_path.iterdir() if one.name != "in"] == ["b.txt"]
    assert list(inside.iterdir()) == []
