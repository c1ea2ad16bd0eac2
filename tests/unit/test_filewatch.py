"""Which files a task's Python code uses, as the interpreter tells it."""

from __future__ import annotations

import importlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headway.base.file_use import DRAFT, READ
from headway.run.file_watch import CURRENT, FileLog, folders_of, watch_files


@contextmanager
def watched(folder: Path, ignored: str = "") -> Iterator[FileLog]:
    """Code in here is a task's."""
    watch_files()
    log = FileLog(folders_of(str(folder)), ignored)
    token = CURRENT.set(log)
    try:
        yield log
    finally:
        CURRENT.reset(token)


def seen(log: FileLog) -> tuple[list[str], list[str]]:
    every = log.ended()
    read = sorted(one.path for one in every if one.use & READ)
    return read, sorted(one.path for one in every if one.is_write and not one.use & DRAFT)


def test_what_is_opened_is_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "both").write_text("1")
    with watched(tmp_path) as log:
        (tmp_path / "a").read_text()
        (tmp_path / "b").write_text("2")
        with open(tmp_path / "c", "a") as file:
            file.write("3")
        with open(os.fsencode(tmp_path / "both"), "r+") as file:
            file.write("3")
        os.close(os.open(tmp_path / "d", os.O_WRONLY | os.O_CREAT))
        os.close(os.open(tmp_path / "a", os.O_RDONLY))
    assert seen(log) == (["a", "both"], ["b", "both", "c", "d"])


def test_what_lies_elsewhere_or_belongs_to_tools_is_nobodys_business(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    (plan / ".cache").mkdir(parents=True)
    (plan / "run").mkdir()
    with watched(plan, str(plan / "run")) as log:
        (tmp_path / "a").write_text("1")
        (plan / ".cache" / "b").write_text("1")
        (plan / "run" / "c").write_text("1")
        with open(os.open(plan / ".d", os.O_WRONLY | os.O_CREAT), "w") as file:
            file.write("by its number")
    assert seen(log) == ([], [".d"]), "a hidden file may be a user's own"


def test_a_draft_that_was_renamed_was_never_there(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    with watched(tmp_path) as log:
        (tmp_path / "a.tmp").write_text("1")
        os.replace(tmp_path / "a.tmp", tmp_path / "a")
        (tmp_path / "a").read_text()
        (tmp_path / "scratch").mkdir()
        (tmp_path / "scratch" / "x").write_text("1")
        shutil.rmtree(tmp_path / "scratch")
        (tmp_path / "old").unlink()
    assert seen(log) == ([], ["a", "old"])


def test_folders_that_are_listed_are_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_text("1")
    with watched(tmp_path) as log:
        os.listdir(tmp_path / "in")
    assert seen(log) == (["in/*"], [])


def test_links_cuts_and_databases_are_writes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("123")
    sqlite3.connect(tmp_path / "ro.db").close()
    with watched(tmp_path) as log:
        os.symlink(tmp_path / "a", tmp_path / "l")
        os.link(tmp_path / "a", tmp_path / "h")
        os.truncate(tmp_path / "a", 1)
        with closing(sqlite3.connect(str(tmp_path / "x.db"))):
            pass
        with closing(sqlite3.connect(f"file:{tmp_path}/ro.db?mode=ro", uri=True)):
            pass
        with closing(sqlite3.connect(":memory:")):
            pass
    assert seen(log) == (
        ["ro.db", "ro.db-journal", "x.db-journal"], ["a", "h", "l", "x.db"],
    )  # fmt: skip


def test_what_is_imported_is_not_read_but_the_same_file_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_once.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with watched(tmp_path) as log:
        importlib.import_module("imported_once")
        assert seen(log) == ([], [])
        (tmp_path / "imported_once.py").read_text()
    assert seen(log) == (["imported_once.py"], [])
    sys.modules.pop("imported_once")


def test_code_that_is_no_tasks_is_not_seen(tmp_path: Path) -> None:
    watch_files()
    assert CURRENT.get() is None
    (tmp_path / "a").write_text("1")
