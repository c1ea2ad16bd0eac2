"""A copy of a folder is brought to states that it was seen in."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from headway.report.explore import FileEntry
from headway.run.scratch import ScratchFolder

NAMES = ("a", "b", "d/x", "d/y", "d/e/z", "f")


def content(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Everything that there is, with modes, and dates of files."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        is_file = path.is_file() and not path.is_symlink()
        text = os.readlink(path) if path.is_symlink() else path.read_text() if is_file else ""
        date = status.st_mtime_ns if is_file else 0
        found[str(path.relative_to(folder))] = (text, status.st_mode, date)
    return found


def change(chance: random.Random, folder: Path) -> None:
    place = folder / chance.choice(NAMES)
    kind = chance.choice(("write", "write", "remove", "link", "mode", "folder", "touch"))
    if kind == "remove" or place.is_dir() or place.is_symlink():
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif os.path.lexists(place):
            place.unlink()
        return
    if not place.parent.is_dir():
        if os.path.lexists(place.parent):
            place.parent.unlink()
        place.parent.mkdir(parents=True)
    if kind == "write":
        place.write_text(str(chance.randint(0, 3)))
    elif kind == "mode" and place.exists():
        place.chmod(chance.choice((0o600, 0o755)))
    elif kind == "touch":
        place.touch()
    elif not place.exists():
        if kind == "folder":
            place.mkdir()
        else:
            place.symlink_to(chance.choice(NAMES))


@pytest.mark.parametrize("seed", range(20))
def test_every_state_is_restored_as_it_was(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    original = tmp_path / "original"
    (original / "d").mkdir(parents=True)
    (original / "a").write_text("first")
    (original / "d" / "x").write_text("x")
    scratch = ScratchFolder(str(original), str(tmp_path / "copy"))
    copy = tmp_path / "copy"
    begun = content(original)
    states: list[tuple[dict[str, FileEntry | None], dict[str, tuple[str, int, int]]]] = []
    files: dict[str, FileEntry | None] = {}
    for _ in range(12):
        for _ in range(chance.randint(1, 4)):
            change(chance, copy)
        files = files | scratch.scan()
        states.append((files, content(copy)))
    for _ in range(20):
        files, seen = chance.choice(states)
        scratch.restore(files)
        assert content(copy) == seen
        assert scratch.scan() == {}
    scratch.restore({})
    assert content(copy) == begun == content(original)


def test_a_file_that_is_written_back_has_not_changed_but_its_date(tmp_path: Path) -> None:
    original = tmp_path / "original"
    original.mkdir()
    (original / "a").write_text("one")
    scratch = ScratchFolder(str(original), str(tmp_path / "copy"))
    place = tmp_path / "copy" / "a"
    date = place.stat().st_mtime_ns
    place.write_text("two")
    place.write_text("one")
    os.utime(place, ns=(date, date))
    assert scratch.scan() == {}
