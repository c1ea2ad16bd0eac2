"""Which files a task's code touches, as the interpreter and the kernel tell it."""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headway.plans.resources import Touches
from headway.report.detect import DeclaredAccess
from headway.run import file_watch as foldertrace
from headway.run.file_watch import (
    CURRENT,
    FileLog,
    FolderComparison,
    FolderTrace,
    Inotify,
    InotifyError,
    folders_of,
    watch_files,
)


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
    return sorted(log.read), sorted(log.written)


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
    assert seen(log) == ([], [])


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
    assert seen(log) == (["ro.db", "x.db"], ["a", "h", "l", "x.db"])


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


def test_whoever_judges_can_prevent_it(tmp_path: Path) -> None:
    def judge(path: str, is_write: bool) -> None:
        raise PermissionError(path)

    watch_files()
    token = CURRENT.set(FileLog(folders_of(str(tmp_path)), judge=judge))
    try:
        with pytest.raises(PermissionError, match="a"):
            (tmp_path / "a").write_text("1")
    finally:
        CURRENT.reset(token)
    assert not (tmp_path / "a").exists()


def test_code_that_is_no_tasks_is_not_seen(tmp_path: Path) -> None:
    watch_files()
    assert CURRENT.get() is None
    (tmp_path / "a").write_text("1")


def test_the_kernel_tells_of_files_and_new_folders(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_text("1")
    source = Inotify(str(tmp_path), lambda path: not path.startswith("."))
    with closing(source):
        source.poll()
        (tmp_path / "in" / "x").read_text()
        (tmp_path / "new" / "deep").mkdir(parents=True)
        source.poll()
        (tmp_path / "new" / "deep" / "y").write_text("1")
        (tmp_path / "in" / "x").unlink()
        deeds = source.poll()
    assert {("new/deep/y", "write"), ("in/x", "remove")} <= set(deeds)
    assert source.poll() == []


def test_a_folder_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(InotifyError):
        Inotify(str(tmp_path / "none"), lambda _: True)


def test_where_the_kernel_tells_nothing_files_are_compared(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    (tmp_path / ".git").mkdir()
    source = FolderComparison(str(tmp_path) + "/")
    assert source.poll() == []
    (tmp_path / "a").write_text("22")
    (tmp_path / "b").unlink()
    (tmp_path / "c").write_text("3")
    (tmp_path / ".git" / "x").write_text("3")
    assert sorted(source.poll()) == [("a", "write"), ("b", "remove"), ("c", "write")]


def written(traced: FolderTrace, task: int) -> list[str]:
    log = traced.end(task)
    return [] if log is None else list(log.written)


def test_a_trace_says_once_that_it_cannot_see_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: str, is_wanted: object) -> None:
        raise InotifyError("there is no inotify here")

    monkeypatch.setattr(foldertrace, "Inotify", refuse)

    async def trace() -> list[str]:
        traced = FolderTrace(str(tmp_path))
        traced.begin(1, 0, "make", DeclaredAccess())
        (tmp_path / "a").write_text("1")
        found = written(traced, 1)
        await traced.aclose()
        assert traced.problem == "there is no inotify here"
        return found

    assert asyncio.run(trace()) == ["a"]


def test_deeds_of_several_commands_count_for_whoever_declares_them(tmp_path: Path) -> None:
    async def trace() -> None:
        traced = FolderTrace(str(tmp_path))
        traced.begin(1, 0, "one", DeclaredAccess(paths=Touches((), ("a",))))
        traced.begin(2, 1, "two", DeclaredAccess(paths=Touches((), ("b",))))
        (tmp_path / "a").write_text("1")
        (tmp_path / "b").write_text("1")
        (tmp_path / "c").write_text("1")
        assert (written(traced, 1), written(traced, 2)) == (["a"], ["b"])
        assert traced.unclear == {"c": ("one", "two")}
        assert traced.end(3) is None
        await traced.aclose()

    asyncio.run(trace())


def test_members_of_one_group_are_told_apart_by_their_items(tmp_path: Path) -> None:
    async def trace() -> None:
        traced = FolderTrace(str(tmp_path))
        traced.begin(1, 0, "make[x]", DeclaredAccess())
        traced.begin(2, 0, "make[y]", DeclaredAccess())
        (tmp_path / "y.txt").write_text("1")
        (tmp_path / "z.txt").write_text("1")
        assert (written(traced, 1), written(traced, 2)) == (["z.txt"], ["y.txt"])
        await traced.aclose()

    asyncio.run(trace())
