"""Whether a journal can be trusted before a process goes on with it.

SQLite takes a log of changes up to its first bad frame and forgets the rest without a word. Each
commit is on the disk before the next one begins, so a kill or a loss of power can spoil the last
one only: two commits behind a bad frame are proof of damage.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing, suppress
from typing import Final

from headway.errors import JournalError
from headway.runtime.journal_file import (
    BODIES,
    connect,
    number_in,
    path_of,
    read_mark,
    read_meta,
)

QUICK_BYTES_MAX: Final = 32 * 1024 * 1024
"""A larger journal is not read to its end before a resume, which is to take two seconds: each of
its results is checked when it is read."""

UNREADABLE: Final = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What reading a spoilt file raises; SQLite's own messages can hold bytes of it."""

WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
_MAGIC: Final = (0x377F0682, 0x377F0683)


def examine(folder: str) -> None:
    """JournalError if something is missing that was on the disk; nothing is changed then."""
    path = path_of(folder)
    log, kept = f"{path}-wal", f"{path}-wal-kept"
    # Whoever closes a file last removes its log. Under a second name it stays until it is judged.
    with suppress(OSError):
        os.unlink(kept)
    with suppress(OSError):
        os.link(log, kept)
    has_log = os.path.exists(kept) and os.path.getsize(kept) > WAL_HEADER_BYTES
    try:
        with closing(connect(path)) as database:
            _examine(folder, database, kept if has_log else "")
    except (JournalError, *UNREADABLE):
        if has_log:
            os.replace(kept, log)
        raise
    with suppress(OSError):
        os.unlink(kept)


def spoilt(folder: str, what: str) -> JournalError:
    """The error that says what is wrong, where, and what to do."""
    run = os.path.basename(os.path.abspath(folder))
    return JournalError(
        f"the journal of run {run} is spoilt: {what}",
        where=path_of(folder),
        hint=f"`headway doctor --salvage {run}` saves what can be read and keeps this file",
    )


def placed(folder: str, error: JournalError) -> JournalError:
    """An error from within a journal, with the place, and a way out if it names none itself."""
    if error.where is not None:
        return error
    if error.hint is None:
        return spoilt(folder, error.message)
    return JournalError(error.message, where=path_of(folder), detail=error.detail, hint=error.hint)


def wal_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite can spoil a file with several writers: 3.7.0 to 3.51.2."""
    return (3, 7, 0) <= tuple(version) < (3, 51, 3)


def _examine(folder: str, database: sqlite3.Connection, log: str) -> None:
    meta = read_meta(database)
    if log:
        if not _has_header(log):
            raise spoilt(folder, "the header of its log of changes cannot be read")
        _, frames, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        lost = commits_after(log, frames)
        if lost > 1:
            raise spoilt(folder, f"{lost} commits lie behind a bad place in its log of changes")
    if size_bytes(folder) <= QUICK_BYTES_MAX:
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise spoilt(folder, str(found).replace("\n", " "))
    # At a clean end both are counted; before it, events are at every commit.
    least = {"events": read_mark(folder)}
    if meta.get("is_clean"):
        least = {table: number_in(meta, table) for table in ("tasks", "events")}
    for table, count in least.items():
        column = "id" if table == "tasks" else "seq"
        (last,) = database.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()
        if last < count:
            raise spoilt(folder, f"it had {count} {table} and has {last}")


def size_bytes(folder: str) -> int:
    """How much a journal is on disk, with its log of changes and its large results."""
    paths = [path_of(folder), f"{path_of(folder)}-wal"]
    with suppress(OSError):
        paths += (entry.path for entry in os.scandir(os.path.join(folder, BODIES)))
    return sum(os.path.getsize(path) for path in paths if os.path.exists(path))


def commits_after(log: str, frames: int) -> int:
    """Commits in the log's present round that lie behind so many frames."""
    with open(log, "rb") as file:
        page_bytes, _, salts = struct.unpack(">II8s", file.read(WAL_HEADER_BYTES)[8:24])
        count = 0
        at = WAL_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_bytes)
        while True:
            file.seek(at)
            header = file.read(16)
            if len(header) < 16:
                return count
            _, size, found = struct.unpack(">II8s", header)
            count += size != 0 and found == salts
            at += FRAME_HEADER_BYTES + page_bytes


def _has_header(log: str) -> bool:
    with open(log, "rb") as file:
        header = file.read(WAL_HEADER_BYTES)
    magic, *_ = struct.unpack(">I", header[:4])
    if magic not in _MAGIC:
        return False
    order = ">" if magic & 1 else "<"
    return checksum(header[:24], order) == struct.unpack(">II", header[24:32])


def checksum(data: bytes, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """As SQLite's file format has it."""
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return first, second
