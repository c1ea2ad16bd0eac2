"""The record of a run on disk: what happened is durable before anybody acts on it.

Laws:
- One process owns a run (`owner.py`), and every transaction is of its epoch (`journal_file.py`).
- `write` returns at once and `then` is called when it is durable; nothing else is waited for.
- `close` says what is not on the disk; nothing is dropped without a word.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headway.core.engine.record import Entry, Header, Row
from headway.errors import JournalError
from headway.runtime import journal_space, owner
from headway.runtime.journal_check import (
    QUICK_BYTES_MAX,
    UNREADABLE,
    examine,
    placed,
    size_bytes,
    spoilt,
)
from headway.runtime.journal_file import JournalFile, connect, make, path_of
from headway.runtime.journal_reader import JournalReader, verify
from headway.runtime.journal_writer import JournalWriter, WriterStatistics, in_words

NAMED_MAX: Final = 5
"""Tasks that an error names; it says how many more there are."""


class Journal:
    """The one writer of a run, for one event loop; `write` may be called from any thread."""

    __slots__ = (
        "_file", "_flushing", "_lock", "_on_end", "_on_fault", "_told", "_writer", "folder",
        "reader",
    )  # fmt: skip

    def __init__(self, folder: str, lock: int) -> None:
        """By `create` or `open`; the lock is held."""
        self.folder = folder
        self._lock = lock
        database = connect(path_of(folder))
        try:
            self._file = JournalFile(folder, database)
            self.reader = JournalReader(folder)
            """What is durable, for the thread of the event loop."""
        except BaseException:
            database.close()
            raise
        self._writer = JournalWriter(self._file, folder, self._faulted)
        self._told = ""
        self._on_fault: Callable[[str], None] | None = None
        self._on_end: Callable[[JournalError], None] | None = None
        self._flushing: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"<Journal {self.folder}, epoch {self.epoch}{self.fault and ', failing'}>"

    @classmethod
    def create(cls, folder: str, header: Header) -> Journal:
        """Begin the journal of a new run; the folder may be there, a journal in it may not."""
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as fault:
            raise JournalError(f"{folder} cannot be made: {fault.strerror}") from None
        lock = owner.take(folder)
        try:
            make(folder, header)
            return cls(folder, lock)
        except FileExistsError:
            owner.drop(lock)
            raise JournalError(f"{path_of(folder)} is there already") from None
        except (OSError, sqlite3.Error) as fault:
            owner.drop(lock)
            raise JournalError(f"no journal can be made in {folder}: {in_words(fault)}") from None

    @classmethod
    def open(cls, folder: str) -> Journal:
        """Take the journal over, to go on with its run. JournalError: owned, spoilt, not there."""
        if not os.path.exists(path_of(folder)):
            raise JournalError(f"there is no journal in {folder}")
        lock = owner.take(folder)
        try:
            examine(folder)
            if size_bytes(folder) <= QUICK_BYTES_MAX:
                with JournalReader(folder) as reader:
                    verify(reader)
            return cls(folder, lock)
        except JournalError as fault:
            owner.drop(lock)
            raise placed(folder, fault) from None
        except UNREADABLE as fault:
            owner.drop(lock)
            raise spoilt(folder, in_words(fault)) from None

    @property
    def header(self) -> Header:
        return self._file.header

    @property
    def epoch(self) -> int:
        """How many processes have owned the run, this one included."""
        return self._file.epoch

    @property
    def fault(self) -> str:
        """Why entries are not becoming durable, or soon may not; empty when all is well."""
        return self._writer.fault

    def rows(self) -> Iterator[Row]:
        """Where every task is that was ever started, in the order in which they first were."""
        return self.reader.rows()

    def body(self, digest: bytes) -> bytes | None:
        """A durable text; None if it is not kept. Event-loop thread only."""
        return self.reader.body(digest)

    def start(
        self, loop: asyncio.AbstractEventLoop, on_fault: Callable[[str], None] | None = None,
        on_end: Callable[[JournalError], None] | None = None,
    ) -> None:  # fmt: skip
        """Begin to write. `on_fault(reason)` is called in the loop, with "" when it is over;
        `on_end`, if nothing can be written any more."""
        self._on_fault = on_fault
        self._on_end = on_end
        self._writer.start(loop)

    def write(self, entries: Sequence[Entry], then: Callable[[], None] | None = None) -> None:
        """Write these in one transaction; `then` is called in the loop once they are durable."""
        self._writer.put(entries, then)

    async def flush(self) -> None:
        """Return when everything written before is durable; JournalError while it cannot be."""
        done = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if not done.done():
                done.set_result(None)

        self._flushing.add(done)
        try:
            self._writer.put((), settle)
            await done
        finally:
            self._flushing.discard(done)

    def close(self) -> None:
        """Write what is left and let go of the run. JournalError says what is not durable."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        try:
            left = self._writer.stop()
            self.reader.close()
            self._file.close(is_clean=not left)
        except sqlite3.Error:
            pass  # Not marked as clean: the next owner looks closer, and nothing is lost.
        finally:
            journal_space.drop(self.folder)
            owner.drop(lock)
        if left:
            raise _not_durable(self.folder, left, self.fault)

    def statistics(self) -> WriterStatistics:
        return self._writer.statistics()

    def _faulted(self, reason: str, is_stuck: bool) -> None:
        if is_stuck:
            for done in self._flushing:
                if not done.done():
                    done.set_exception(JournalError(f"what happened is not on the disk: {reason}"))
        if self._writer.is_over and self._on_end is not None:
            self._on_end(
                JournalError(
                    f"nothing more can be written to the journal: {reason}",
                    where=path_of(self.folder),
                    hint="`headway doctor` says whether it is spoilt",
                )
            )
        elif self._on_fault is not None and bool(reason) != bool(self._told):
            self._told = reason
            self._on_fault(reason)


def _not_durable(folder: str, left: list[Entry], fault: str) -> JournalError:
    names = list(dict.fromkeys(entry.row.name for entry in left if entry.row is not None))
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return JournalError(
        f"{len(left)} events of this run are not on the disk: {fault}",
        where=path_of(folder),
        detail=f"tasks: {', '.join(names[:NAMED_MAX])}{more}" if names else None,
        hint="make room there, then `headway resume`: ends of commands are in a log of their own; "
        "other tasks that are named here are done again",
    )
