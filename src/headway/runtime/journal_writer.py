"""The thread that makes entries durable: it commits at once when idle, and whatever came meanwhile
is the next batch.

A result wakes it at once; what nobody waits for does so a turn of the loop later, because what
starts now may also end now, and then both are one commit.

Laws:
- Entries become durable in the order in which they were given, and nobody is told before.
- Nothing is dropped: what cannot be written is kept and tried again, and said at the end.
- A failure gives reserved room back, step by step, so that what is in flight still has a place.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headway.core.engine.record import Entry
from headway.core.records import quick
from headway.errors import JournalError
from headway.runtime import journal_space as space
from headway.runtime.journal_file import JournalFile, settle

RETRY_S: Final = 1.0
"""How often a full disk is looked at again."""
PASSING: Final = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip
"""Faults of SQLite that may pass."""
BATCH_ENTRIES_MAX: Final = 4096
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""A transaction is no larger, so that the first in it need not wait for a long one."""
WAITING_MAX: Final = 1_000_000
"""Writings that are kept while the disk does not take them; nothing starts meanwhile, so what is
in flight is far less."""

Then = Callable[[], None]


@quick
class Writing:
    """Entries that belong together, and whom to tell."""

    entries: Sequence[Entry]
    then: Then | None


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """A writer at an instant."""

    entries: int
    """Written and synced by this process."""
    commits: int
    waiting: int
    """Writings that are not durable yet."""
    fault: str


class JournalWriter:
    """One thread, one queue, one file."""

    def __init__(
        self, file: JournalFile, folder: str, on_fault: Callable[[str, bool], None]
    ) -> None:
        """`on_fault(reason, is_stuck)` is called in the loop: stuck is what could not be written,
        and no reason means that all is well again."""
        self._file = file
        self._folder = folder
        self._on_fault = on_fault
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0
        """The loop's thread."""
        self._queue: deque[Writing] = deque()
        self._calls = threading.Semaphore(0)
        self._is_called = False
        self._is_due = False
        """Whether the loop will call."""
        self._is_ending = False
        self._waiting: deque[Writing] = deque()
        self._fault = ""
        self.is_over = False
        """Something is wrong that trying again does not help."""
        self._entries = 0
        self._commits = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def __repr__(self) -> str:
        return f"<JournalWriter {self._entries} entries in {self._commits} commits{self._fault}>"

    @property
    def fault(self) -> str:
        """Why entries are not becoming durable, or soon may not; empty when all is well."""
        return self._fault

    def put(self, entries: Sequence[Entry], then: Then | None) -> None:
        """Give entries to the thread, from any other."""
        if self._fault and len(self._queue) + len(self._waiting) > WAITING_MAX:
            raise JournalError(f"too much waits for the disk: {self._fault}")
        self._queue.append(Writing(entries, then))
        if self._is_called:
            return
        loop = self._loop
        is_there = loop is not None and not loop.is_closed()
        if then is not None or not is_there or threading.get_ident() != self._owner:
            self._call()
        elif loop is not None and not self._is_due:
            self._is_due = True
            loop.call_soon(self._call)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to write, and to tell the loop."""
        self._loop = loop
        self._owner = threading.get_ident()
        if not space.hold(self._folder):
            self._failed(space.full_words(self._folder), is_stuck=False)
        self._thread.start()

    def stop(self) -> list[Entry]:
        """Write what is left, once more if need be, and end; what is not durable."""
        if self._thread.ident is not None:
            self._is_ending = True
            self._calls.release()
            self._thread.join()
        return [entry for writing in self._waiting for entry in writing.entries]

    def statistics(self) -> WriterStatistics:
        waiting = len(self._queue) + len(self._waiting)
        return WriterStatistics(self._entries, self._commits, waiting, self._fault)

    def _run(self) -> None:
        is_last = False
        try:
            settle(self._folder)
        except OSError as fault:
            self._failed(_disk_words(self._folder, fault), is_stuck=True)
        while not is_last:
            is_last = self._collect()
            while self._waiting and not self.is_over:
                if not self._write(self._batch()):
                    break
            if self._fault and not self._waiting and space.hold(self._folder):
                self._fault = ""
                self._tell(self._on_fault, "", False)

    def _collect(self) -> bool:
        """Take all that has come, waiting for the first; whether it is the end."""
        self._calls.acquire(timeout=RETRY_S if self._fault else None)
        # In this order: who comes after it calls again, and who came before it is taken.
        self._is_called = False
        is_last = self._is_ending
        queue, waiting = self._queue, self._waiting
        while queue:
            waiting.append(queue.popleft())
        return is_last

    def _call(self) -> None:
        """Wake the thread, unless it has all or will look anyhow."""
        self._is_due = False
        if self._queue and not self._is_called:
            self._is_called = True
            self._calls.release()

    def _batch(self) -> list[Writing]:
        batch: list[Writing] = []
        entries = size = 0
        for writing in self._waiting:
            batch.append(writing)
            entries += len(writing.entries)
            for entry in writing.entries:
                if entry.bodies:
                    size += sum(map(len, entry.bodies))
            if entries >= BATCH_ENTRIES_MAX or size >= BATCH_BYTES_MAX:
                break
        return batch

    def _write(self, batch: list[Writing]) -> bool:
        entries = [entry for writing in batch for entry in writing.entries]
        while True:
            try:
                if entries:
                    self._file.commit(entries)
                    self._commits += 1
            except Exception as fault:
                # The thread's boundary: whatever it is, its entries are kept and it is said.
                self.is_over = not may_pass(fault)
                has_room = not self.is_over and space.give(self._folder)
                self._failed(_disk_words(self._folder, fault), is_stuck=not has_room)
                if has_room:
                    continue
                return False
            break
        self._entries += len(entries)
        for _ in batch:
            self._waiting.popleft()
        thens = [writing.then for writing in batch if writing.then is not None]
        if thens:
            self._tell(self._settle, thens)
        return True

    def _failed(self, reason: str, is_stuck: bool) -> None:
        self._fault = reason
        self._tell(self._on_fault, reason, is_stuck)

    def _settle(self, thens: list[Then]) -> None:
        """In the loop: one that raises does not keep the others from being told."""
        for at, then in enumerate(thens):
            try:
                then()
            except BaseException:
                self._tell(self._settle, thens[at + 1 :])
                raise

    def _tell(self, what: Callable[..., None], *args: object) -> None:
        if self._loop is not None:
            # The loop may be closed by now: then nobody is left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(what, *args)


def may_pass(fault: Exception) -> bool:
    """Whether the same may be written later: the disk is full, say, and the file is not spoilt."""
    if isinstance(fault, sqlite3.Error):
        return getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in PASSING
    return isinstance(fault, OSError)


def _disk_words(folder: str, fault: Exception) -> str:
    """Why the disk did not take it; of a full disk, which one."""
    is_full = isinstance(fault, OSError) and fault.errno in space.FULL
    is_full = is_full or getattr(fault, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return space.full_words(folder) if is_full else in_words(fault)


def in_words(fault: Exception) -> str:
    """Why the disk did not take it."""
    if isinstance(fault, OSError):
        return fault.strerror or str(fault)
    return str(fault)
