"""The journal of a run: events are durable before they are acted on.

Laws:
- One process owns a run (`base/locks.py`), and every transaction is of its epoch (`file.py`).
- `write` returns at once and `then` is called when it is durable; nothing else is waited for.
- `close` raises an error that names what is not on the disk; nothing is dropped silently.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal, Protocol

from headway.base import locks as owner
from headway.engine.record import Header, JournalEntry
from headway.errors import JournalError
from headway.journal import file as db
from headway.journal import reader as reading
from headway.journal.folder import new_run

# The thread that makes entries durable. It commits at once when idle; the entries that arrive
# meanwhile form the next batch.

RETRY_S: Final = 1.0
PASSING: Final = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip
BATCH_ENTRIES_MAX: Final = 4096
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""A transaction is no larger, so that the first in it need not wait for a long one."""
WAITING_MAX: Final = 1_000_000
"""Writings that are kept while the disk does not take them; nothing starts meanwhile, so what is
in flight is far less."""

Then = Callable[[], None]
Writing = tuple[Sequence[JournalEntry], Then | None, Sequence[db.RunDocument]]
"""What belongs together, and the callback for when it is durable."""


class Record(Protocol):
    """Takes down what happens. Writing returns at once and never fails; durability comes later."""

    def write(self, entries: Sequence[JournalEntry], then: Then | None = None) -> None:
        """Keep these, in one transaction; `then` is called on the loop when they are durable."""

    async def flush(self) -> None:
        """Wait until everything written so far is durable."""


class NullJournal:
    """For runs that need no file: keeps nothing, and calls back in the next turn of the loop."""

    def __init__(self) -> None:
        self._thens: list[Then] = []

    def write(self, entries: Sequence[JournalEntry], then: Then | None = None) -> None:
        del entries
        if then is None:
            return
        if not self._thens:
            asyncio.get_running_loop().call_soon(self._tell)
        self._thens.append(then)

    async def flush(self) -> None:
        while self._thens:
            await asyncio.sleep(0)

    def _tell(self) -> None:
        thens, self._thens = self._thens, []
        for then in thens:
            then()


class Journal:
    """The one writer of a run, for one event loop; `write` may be called from any thread."""

    def __init__(self, folder: str, lock: int) -> None:
        self.folder = folder
        self._lock = lock
        database = db.connect(db.path_of(folder))
        try:
            self._file = db.JournalFile(folder, database)
            self.reader = reading.JournalReader(folder)
            """What is durable, for the thread of the event loop."""
        except BaseException:
            database.close()
            raise
        self.header: Header = self._file.header
        self.epoch: int = self._file.epoch
        self.fault = ""
        """Why entries are not becoming durable, or soon may not; empty when all is well."""
        self.is_stuck = False
        """Whether nothing is written until there is room."""
        self._told = ""
        self._on_fault: Callable[[str], None] | None = None
        self._on_end: Callable[[JournalError], None] | None = None
        self._flushing: set[asyncio.Future[None]] = set()
        self._recording: set[asyncio.Future[bool]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0
        self._queue: deque[Writing] = deque()
        self._calls = threading.Semaphore(0)
        self._is_called = False
        self._is_due = False
        self._is_ending = False
        self._waiting: deque[Writing] = deque()
        self._is_over = False
        """Something is wrong that trying again does not help."""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    @classmethod
    def begin(
        cls, state: str, name: str, kind: Literal["plan", "each", "python"], source: str,
        folder: str, tasks: int, keeps_bodies: bool = True,
    ) -> Journal:  # fmt: skip
        """The journal of a new run, in a folder of its own; `state` is the folder of all state."""
        now_s = time.time()
        try:
            place = new_run(state, now_s)
            header = Header(place.id, name, kind, source, folder, tasks, now_s, keeps_bodies)
            return cls.create(place.folder, header)
        except JournalError as fault:
            if os.path.isdir(state) and db.free_bytes(state) < db.LEAST_BYTES:
                fault.hint = db.full_words(state)
            raise

    @classmethod
    def create(cls, folder: str, header: Header) -> Journal:
        """Begin the journal of a new run; the folder may be there, a journal in it may not."""
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as fault:
            raise JournalError(f"{folder} cannot be made: {fault.strerror}") from None
        lock = owner.take(folder)
        try:
            db.make(folder, header)
            return cls(folder, lock)
        except FileExistsError:
            owner.drop(lock)
            raise JournalError(f"{db.path_of(folder)} is there already") from None
        except (OSError, sqlite3.Error) as fault:
            owner.drop(lock)
            raise JournalError(f"no journal can be made in {folder}: {in_words(fault)}") from None

    @classmethod
    def open(cls, folder: str) -> Journal:
        """Take the journal over, to go on with its run. JournalError: owned, spoilt, not there."""
        if not os.path.exists(db.path_of(folder)):
            raise JournalError(f"there is no journal in {folder}")
        lock = owner.take(folder)
        try:
            reading.examine(folder)
            return cls(folder, lock)
        except JournalError as fault:
            owner.drop(lock)
            raise reading.placed(folder, fault) from None
        except reading.UNREADABLE as fault:
            owner.drop(lock)
            raise reading.unreadable(folder, fault) from None

    def start(
        self, loop: asyncio.AbstractEventLoop, on_fault: Callable[[str], None] | None = None,
        on_end: Callable[[JournalError], None] | None = None,
    ) -> None:  # fmt: skip
        """Begin to write. `on_fault(reason)` is called in the loop, with "" when it is over;
        `on_end`, if nothing can be written any more."""
        self._on_fault, self._on_end = on_fault, on_end
        self._loop, self._owner = loop, threading.get_ident()
        if not db.hold(self.folder):
            self._failed(db.full_words(self.folder), is_stuck=False)
        self._thread.start()

    def write(self, entries: Sequence[JournalEntry], then: Then | None = None) -> None:
        """Write these in one transaction; `then` is called in the loop once they are durable."""
        self._put((entries, then, ()))

    def keep(self, name: str, data: bytes, then: Then | None = None) -> None:
        """The same for what is kept of the run under a name; before `start`, it waits for that."""
        self._put(((), then, (db.RunDocument(name, data),)))

    def record(self, lines: Sequence[bytes], waiting: Sequence[asyncio.Future[bool]]) -> None:
        """Keep lines of recorded answers to agents' calls. In the loop; `waiting` are set to
        whether they are on the disk: no answer waits for a disk that is full."""
        if self.fault:
            settle(waiting, False)
            return
        self._recording.update(waiting)
        documents = tuple(db.RunDocument(db.CALL, line) for line in lines)
        self._put(((), partial(self._recorded, waiting), documents))

    def _recorded(self, waiting: Sequence[asyncio.Future[bool]]) -> None:
        self._recording.difference_update(waiting)
        settle(waiting, True)

    def _put(self, writing: Writing) -> None:
        if self.fault and len(self._queue) + len(self._waiting) > WAITING_MAX:
            raise JournalError(f"too much waits for the disk: {self.fault}")
        self._queue.append(writing)
        if self._is_called:
            return
        loop = self._loop
        is_there = loop is not None and not loop.is_closed()
        if writing[1] is not None or not is_there or threading.get_ident() != self._owner:
            self._call()
        elif loop is not None and not self._is_due:
            self._is_due = True
            loop.call_soon(self._call)

    async def flush(self) -> None:
        """Return when everything written before is durable; JournalError while it cannot be."""
        done = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if not done.done():
                done.set_result(None)

        self._flushing.add(done)
        try:
            self.write((), settle)
            await done
        finally:
            self._flushing.discard(done)

    def close(self) -> None:
        """Write what is left and let go of the run. JournalError names what is not durable."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        try:
            if self._thread.ident is not None:
                self._is_ending = True
                self._calls.release()
                self._thread.join()
            left = [entry for entries, *_ in self._waiting for entry in entries]
            self.reader.close()
            self._file.close(is_clean=not left)
        except sqlite3.Error:
            pass  # Not marked as clean: the next owner looks closer, and nothing is lost.
        finally:
            db.drop(self.folder)
            owner.drop(lock)
        if left:
            raise _not_durable(self.folder, left, self.fault)

    def _run(self) -> None:
        is_last = False
        try:
            db.settle(self.folder)
        except OSError as fault:
            self._failed(_disk_words(self.folder, fault), is_stuck=True)
        while not is_last:
            is_last = self._collect()
            while self._waiting and not self._is_over:
                if not self._write(self._batch()):
                    break
            if self.fault and not self._waiting and db.hold(self.folder):
                self.fault, self.is_stuck = "", False
                self._tell(self._faulted, "", False)

    def _collect(self) -> bool:
        """Take all that has come, waiting for the first; whether it is the end."""
        self._calls.acquire(timeout=RETRY_S if self.fault else None)
        # In this order: a writing that comes later calls again, and one that came before is taken.
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
            entries += len(writing[0])
            for entry in writing[0]:
                for _, body in entry.bodies:
                    size += len(body)
            for document in writing[2]:
                size += len(document.data)
            if entries >= BATCH_ENTRIES_MAX or size >= BATCH_BYTES_MAX:
                break
        return batch

    def _write(self, batch: list[Writing]) -> bool:
        entries = [entry for written, *_ in batch for entry in written]
        documents = [one for *_, some in batch for one in some]
        while True:
            try:
                if entries or documents:
                    self._file.commit(entries, documents)
            except Exception as fault:
                # The thread's boundary: whatever it is, its entries are kept and it is reported.
                self._is_over = not may_pass(fault)
                has_room = not self._is_over and db.give(self.folder)
                self._failed(_disk_words(self.folder, fault), is_stuck=not has_room)
                if has_room:
                    continue
                return False
            break
        for _ in batch:
            self._waiting.popleft()
        thens = [then for _, then, _ in batch if then is not None]
        if thens:
            self._tell(self._settle, thens)
        return True

    def _failed(self, reason: str, is_stuck: bool) -> None:
        self.fault, self.is_stuck = reason, is_stuck
        self._tell(self._faulted, reason, is_stuck)

    def _settle(self, thens: list[Then]) -> None:
        """In the loop: one that raises does not keep the others from being called."""
        for at, then in enumerate(thens):
            try:
                then()
            except BaseException:
                self._tell(self._settle, thens[at + 1 :])
                raise

    def _tell(self, what: Callable[..., None], *args: object) -> None:
        if self._loop is not None:
            # The loop may be closed by now: then no one waits for it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(what, *args)

    def _faulted(self, reason: str, is_stuck: bool) -> None:
        if is_stuck:
            settle(self._recording, False)
            self._recording.clear()
            for done in self._flushing:
                if not done.done():
                    done.set_exception(JournalError(f"what happened is not on the disk: {reason}"))
        if self._is_over and self._on_end is not None:
            self._on_end(
                JournalError(
                    f"nothing more can be written to the journal: {reason}",
                    where=db.path_of(self.folder),
                    hint="`headway doctor` checks whether it is spoilt",
                )
            )
        elif self._on_fault is not None and bool(reason) != bool(self._told):
            self._told = reason
            self._on_fault(reason)


def settle(waiting: Iterable[asyncio.Future[bool]], is_durable: bool) -> None:
    for one in waiting:
        if not one.done():
            one.set_result(is_durable)


def may_pass(fault: Exception) -> bool:
    """Whether the same may be written later: the disk is full, say, and the file is not spoilt."""
    if isinstance(fault, sqlite3.Error):
        return getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in PASSING
    return isinstance(fault, OSError)


def _disk_words(folder: str, fault: Exception) -> str:
    is_full = isinstance(fault, OSError) and fault.errno in db.FULL
    is_full = is_full or getattr(fault, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return db.full_words(folder) if is_full else in_words(fault)


def in_words(fault: Exception) -> str:
    if isinstance(fault, OSError):
        return fault.strerror or str(fault)
    return str(fault)


NAMED_MAX: Final = 5
"""Tasks that an error names; of others it has the number."""


def _not_durable(folder: str, left: list[JournalEntry], fault: str) -> JournalError:
    names = list(dict.fromkeys(entry.row.name for entry in left if entry.row is not None))
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return JournalError(
        f"{len(left)} events of this run are not on the disk: {fault}",
        where=db.path_of(folder),
        detail=f"tasks: {', '.join(names[:NAMED_MAX])}{more}" if names else None,
        hint="make room there, then `headway resume`: ends of commands are in a log of their own; "
        "other tasks that are named here are done again",
    )
