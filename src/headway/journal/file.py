"""The journal as a SQLite file: its tables, and one transaction at a time.

Laws:
- A transaction belongs to an epoch: when the file has another one, another process has taken over,
  and nothing more is written here.
- Everything is appended in order. Keys and digests are random, and an index over them would write
  a page per task; so a task's row has a number, and bodies are found by reading their digests.
- The numbers of rows and events have no gaps: what is lost is noticed.
- A statement writes many rows. Each one lets go of the interpreter, and gets it back only when
  the event loop pauses.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from array import array
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import chain
from typing import Final, cast
from zlib import crc32

from msgspec import Struct, msgpack

from headway.base import codec
from headway.base.crash import crash_point
from headway.base.digest import digest
from headway.base.locks import LOCK
from headway.engine.events import VERSION, Ending
from headway.engine.record import Fact, Header, JournalEntry, TaskRow, TaskState, decode, encode
from headway.errors import InternalError, JournalError, WireError
from headway.journal.shim_log import set_aside, sync_folder

# Room on disks: what is set aside for results in flight, which disk is full, and in which words.

RESERVE_BYTES: Final = 4 * 1024 * 1024
"""A thousand results of usual size; what is in flight when the disk is full is a few hundred."""
STEP_BYTES: Final = 256 * 1024
"""Given back at a time: more than a commit of usual size needs."""
LEAST_BYTES: Final = 1024 * 1024
"""A disk with less room is full: programs write temporary files of this size."""
MARK_AT: Final = 64
SIZE_AT: Final = 96
COPY_AT: Final = 128
"""In the owner's file: behind the process, how many events are on the disk; the size of a second
copy of what the run is, and that copy; then the room, in pages of its own."""

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def hold(folder: str) -> bool:
    """Set the room aside; False if there is none, or less than twice as much is left."""
    path = os.path.join(folder, LOCK)
    try:
        if os.path.exists(path) and os.stat(path).st_blocks * 512 >= RESERVE_BYTES:
            return True
        if free_bytes(folder) < 2 * RESERVE_BYTES:
            return False
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            set_aside(handle, _room_at(folder), RESERVE_BYTES)
        finally:
            os.close(handle)
    except OSError:
        drop(folder)
        return False
    return True


def give(folder: str) -> bool:
    """Let go of a part of it; False if there was none."""
    path, least = os.path.join(folder, LOCK), _room_at(folder)
    try:
        size = os.stat(path).st_size
        if size > least:
            os.truncate(path, max(least, size - STEP_BYTES))
    except OSError:
        return False
    return size > least


def drop(folder: str) -> None:
    with suppress(OSError):
        os.truncate(os.path.join(folder, LOCK), _room_at(folder))


def _room_at(folder: str) -> int:
    end = COPY_AT + max(0, _number_at(folder, SIZE_AT))
    return end + -end % PAGE_BYTES


def _number_at(folder: str, place: int) -> int:
    """A number in the owner's file; 0 if it cannot be read."""
    try:
        with open(os.path.join(folder, LOCK), "rb") as file:
            file.seek(place)
            return int(file.read(21))
    except (OSError, ValueError):
        return 0


def free_bytes(folder: str) -> int:
    found = os.statvfs(folder)
    if found.f_files and not found.f_favail:
        return 0
    return found.f_bavail * found.f_frsize


def full_words(folder: str, needed_bytes: int = 2 * RESERVE_BYTES) -> str:
    """Which disk is full, how full, and what to do."""
    try:
        room = f"{free_bytes(folder) / 1e6:.1f} MB free, {needed_bytes / 1e6:.1f} MB needed"
    except OSError:
        room = "its free room is unknown"
    return f"the disk of {folder} is full: {room}; make room there"


def is_full(folder: str) -> bool:
    """Whether the disk of a folder has no room for temporary files of programs."""
    try:
        return free_bytes(folder) < LEAST_BYTES
    except OSError:
        return False


# Rows and events as a journal's tables have them, each with a checksum over all of it.

Values = tuple[object, ...]
RowValues = tuple[int, bytes, str | bytes, TaskState, bytes, int]

ROW_COLUMNS: Final = ("id", "key", "name", "state", "data", "crc")
"""`data` has all that is not in the others: a row is read a third as fast column by column."""
EVENT_COLUMNS: Final = ("seq", "version", "kind", "key", "json", "crc")
BODY_COLUMNS: Final = ("id", "digest", "data")
DOCUMENT_COLUMNS: Final = ("id", "name", "digest", "data")

_RowRest = tuple[int, float, float, Ending, bytes, int, int, tuple[bytes, ...], int, int, int]
"""What `data` has of a row: the fields of a TaskRow behind its state."""
_rest_of: Final = msgpack.Decoder(_RowRest)
_pack: Final = msgpack.Encoder().encode
_EventValues = tuple[int, int, str, bytes, str, int]


def row_values(number: int, row: TaskRow) -> Values:
    key, name, state = row.key, _stored(row.name), row.state
    data = _pack((
        row.attempt, row.started_s, row.ended_s, row.ending, _packed(row.fault),
        row.reserved_microusd, row.spent_microusd, row.kept, row.reserved_tokens,
        row.spent_tokens, row.unpriced,
    ))  # fmt: skip
    return number, key, name, state, data, _row_crc(number, key, name, state, data)


def read_row(found: RowValues) -> TaskRow:
    """The row that `ROW_COLUMNS` give; JournalError if it is spoilt."""
    try:
        number, key, name, state, data, crc = found
        if crc != _row_crc(number, key, name, state, data):
            raise ValueError("its check does not fit")
        attempt, started_s, ended_s, ending, fault, *others = _rest_of.decode(data)
        return TaskRow(
            key, name if isinstance(name, str) else _unpacked(name), state, attempt, started_s,
            ended_s, ending, _unpacked(fault), *others,
        )  # fmt: skip
    except (TypeError, ValueError, AttributeError) as why:
        raise JournalError(f"the row of task {found[0]} is spoilt: {why}") from None


def event_values(seq: int, key: bytes, event: Fact) -> Values:
    kind, text = encode(event)
    return seq, VERSION, kind, key, text, _event_crc(seq, kind, key, text)


def read_event(found: Values) -> Fact:
    """The event that the table has; JournalError if it is spoilt or from a newer headway."""
    try:
        seq, version, kind, key, text, crc = cast(_EventValues, found)
        if crc != _event_crc(seq, kind, key, text) or version < 1:
            raise ValueError("its check does not fit")
        return decode(kind, version, text)
    except (TypeError, ValueError, AttributeError) as why:
        raise JournalError(f"event {found[0]} is spoilt: {why}") from None


def _row_crc(number: int, key: bytes, name: str | bytes, state: str, data: bytes) -> int:
    """Begins with the number: a row in the place of another is spoilt, too."""
    named = name if isinstance(name, bytes) else name.encode()
    return crc32(b"\0".join((key, named, state.encode(), data)), number)


def _event_crc(seq: int, kind: str, key: bytes, text: str) -> int:
    return crc32(b"\0".join((key, kind.encode(), text.encode())), seq)


def _stored(text: str) -> str | bytes:
    """Names of files may hold what UTF-8 cannot say; that is kept as bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _packed(text)
    return text


def _packed(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _unpacked(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


JOURNAL_FILE: Final = "journal.db"

SCHEMA: Final = 1
"""Of the tables below. A newer one is refused."""
APPLICATION: Final = 0x68647779
"""`hdwy`: whose file it is."""

CALL: Final = "call"
"""What its agents' calls were answered, a line each: many, and so in a table of their own."""

RECENT_MAX: Final = 4096
"""Digests remembered, so that a result that many tasks give is kept once."""
CHECKPOINT_PAGES: Final = 4096
"""The log of changes is copied into the file when it is so long: 16 MiB."""
PAGE_BYTES: Final = 4096
"""Of the file, whatever the default: so that its pages are found without its header."""
VARIABLES_MAX: Final = 999
"""Of one statement, in the oldest SQLite that is met."""
STEP: Final = 16
"""Statements exist for every number of rows up to this, and for its multiples: so they are few."""

TABLES: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY, key BLOB, name, state TEXT, data BLOB, crc INTEGER
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, version INTEGER, kind TEXT, key BLOB, json TEXT, crc INTEGER
);
CREATE TABLE bodies (id INTEGER PRIMARY KEY, digest BLOB, data BLOB);
CREATE TABLE documents (id INTEGER PRIMARY KEY, name TEXT, digest BLOB, data BLOB);
CREATE TABLE calls (id INTEGER PRIMARY KEY, name TEXT, digest BLOB, data BLOB);
"""
_UPSERT: Final = (
    " ON CONFLICT(id) DO UPDATE SET "
    + ",".join(f"{name}=excluded.{name}" for name in ROW_COLUMNS[2:])
    + " WHERE key=excluded.key"
)


def path_of(folder: str) -> str:
    return os.path.join(folder, JOURNAL_FILE)


def connect(path: str) -> sqlite3.Connection:
    """A connection that writes; what it commits is on the disk."""
    database = sqlite3.connect(
        path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    database.execute("PRAGMA synchronous=FULL")
    database.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    return database


def make(folder: str, header: Header) -> None:
    """A new file with its tables, for its user alone, whatever the umask.

    Nothing waits for the disk here, so that a run begins at once: `settle` does, before anything
    is reported as durable.
    """
    path = path_of(folder)
    os.makedirs(os.path.dirname(os.path.abspath(folder)), mode=0o700, exist_ok=True)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    if os.path.exists(path):
        raise FileExistsError(errno.EEXIST, "it is there already")
    # A process that is killed here has made no run: the file has its name when it is whole.
    draft = f"{path}.draft"
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)  # SQLite gives the files beside it the same mode.
    os.close(handle)
    with closing(connect(draft)) as database:
        database.execute("PRAGMA synchronous=OFF")
        begin(database, header)
    write_copy(folder, header)
    crash_point("making")
    os.rename(draft, path)
    crash_point("made")


def settle(folder: str) -> None:
    parent = os.path.dirname(os.path.abspath(folder))
    for path in (path_of(folder), os.path.join(folder, LOCK), folder, parent):
        sync_folder(path)


def begin(database: sqlite3.Connection, header: Header) -> None:
    text = codec.encode(header).decode()
    database.execute(f"PRAGMA page_size={PAGE_BYTES}")
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(
        f"BEGIN IMMEDIATE;{TABLES}PRAGMA application_id={APPLICATION};PRAGMA user_version={SCHEMA};"
    )
    say(database, header=text, header_digest=digest(text.encode()), epoch=0)
    say(database, is_clean=1, tasks=0, events=0)
    database.execute("COMMIT")


def say(database: sqlite3.Connection, **facts: object) -> None:
    database.executemany("REPLACE INTO meta VALUES(?, ?)", facts.items())


def read_meta(database: sqlite3.Connection) -> dict[str, object]:
    """Facts about the whole file; JournalError if it is not a journal of a known version."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (schema,) = database.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise JournalError("this file is not the journal of a run")
    if schema > SCHEMA:
        raise JournalError(
            f"this journal has version {schema} and was written by a newer headway",
            detail=f"this one reads versions up to {SCHEMA}",
            hint="use the headway that wrote it, or a newer one",
        )
    tables = [f"{sql};" for (sql,) in database.execute("SELECT sql FROM sqlite_master")]
    if "\n".join(tables) != TABLES.strip():
        raise JournalError("the definition of its tables is spoilt")
    return dict(database.execute("SELECT name, value FROM meta"))


def number_in(meta: dict[str, object], name: str) -> int:
    found = meta.get(name)
    if not isinstance(found, int):
        raise JournalError(f"it does not say its number of {name}")
    return found


def header_of(meta: dict[str, object]) -> Header:
    text = meta.get("header")
    if not isinstance(text, str) or digest(text.encode()) != meta.get("header_digest"):
        raise JournalError("the description of the run is spoilt")
    try:
        return codec.decode(Header, text.encode())
    except WireError as fault:
        raise JournalError(f"the description of the run cannot be read: {fault.detail}") from None


def table_of(name: str) -> str:
    return "calls" if name == CALL else "documents"


def document_values(name: str, data: bytes) -> tuple[str, bytes, bytes]:
    """What is kept of a run under a name, with a check over both."""
    return name, digest(name.encode() + b"\0" + data), data


def write_copy(folder: str, header: Header) -> None:
    """What the run is, a second time: without it nothing can be resumed."""
    text = codec.encode(header)
    copy = digest(text).hex().encode() + b"\n" + text
    handle = os.open(os.path.join(folder, LOCK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(handle, copy, COPY_AT)
        os.pwrite(handle, b"%20d\n" % len(copy), SIZE_AT)
    finally:
        os.close(handle)


def read_copy(folder: str) -> Header:
    try:
        with open(os.path.join(folder, LOCK), "rb") as file:
            file.seek(COPY_AT)
            copy = file.read(_number_at(folder, SIZE_AT)).decode()
        name, _, text = copy.partition("\n")
        return header_of({"header": text, "header_digest": bytes.fromhex(name)})
    except (OSError, ValueError, JournalError):
        raise JournalError(
            "no description of the run is left", where=os.path.join(folder, LOCK)
        ) from None


def read_mark(folder: str) -> int:
    """How many events there are at least."""
    return _number_at(folder, MARK_AT)


def write_mark(handle: int, events: int) -> None:
    """How many events are on the disk, as it was after the last commit. Never synced, so it may say
    less than there is, but not more: a file that has fewer has lost some. Always as long, so that
    it needs no room on a full disk."""
    with suppress(OSError):
        os.pwrite(handle, b"%20d\n" % events, MARK_AT)


class RunDocument(Struct, frozen=True):
    """What is kept of a run beside its tasks and events: its shape, its forecast."""

    name: str
    data: bytes


class JournalFile:
    """The writing end of a file whose lock this process holds. Used by one thread at a time."""

    def __init__(self, folder: str, database: sqlite3.Connection) -> None:
        self._folder = folder
        self._database = database
        meta = read_meta(database)
        self.header = header_of(meta)
        self.epoch = number_in(meta, "epoch") + 1
        self._keeps_bodies = self.header.keeps_bodies
        # The first commit that is waited for takes this one to the disk with it.
        database.execute("PRAGMA synchronous=OFF")
        database.execute("BEGIN IMMEDIATE")
        say(database, epoch=self.epoch, is_clean=0)
        database.execute("COMMIT")
        database.execute("PRAGMA synchronous=FULL")
        (self._seq,) = database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        (last,) = database.execute("SELECT coalesce(max(id), 0) FROM tasks").fetchone()
        self._next_id = last + 1
        self._known: dict[bytes, int] | None = None if last else {}
        """Rows that were there when this process came, until their task is met; None before the
        first one is: a run that only reads needs none."""
        self._ids = array("q")
        """By a task's number in this run: eight bytes each, where a table of keys takes 150."""
        self._recent: set[bytes] = set()
        self._older: set[bytes] = set()
        """What was recent before: forgetting one by one would cost more than it is worth."""
        path = os.path.join(folder, LOCK)
        self._mark = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        write_mark(self._mark, self._seq)
        crash_point("opened")

    def commit(
        self, entries: Sequence[JournalEntry], documents: Sequence[RunDocument] = ()
    ) -> None:
        """Write these in one transaction that is on the disk when this returns."""
        events: list[object] = []
        last: dict[int | None, JournalEntry] = {}
        seq = self._seq
        for entry in entries:
            seq += 1
            events += event_values(seq, entry.key, entry.event)
            if entry.row is not None:
                # Of a task that started and ended in one batch, only where it is now is written.
                last[getattr(entry.event, "task", None)] = entry
        rows: list[object] = []
        for task, entry in last.items():
            if entry.row is not None:
                rows += row_values(self._number(task, entry), entry.row)
        bodies = self._new_bodies(entries)
        texts: dict[str, list[object]] = {"documents": [], "calls": []}
        for one in documents:
            texts[table_of(one.name)] += document_values(one.name, one.data)
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            self._check_epoch()
            self._insert("events", EVENT_COLUMNS, events)
            if self._insert("tasks", ROW_COLUMNS, rows, _UPSERT) != len(last):
                raise InternalError("two tasks of this run have the same number")
            self._insert("bodies", BODY_COLUMNS[1:], list(chain.from_iterable(bodies.items())))
            for table, values in texts.items():
                self._insert(table, DOCUMENT_COLUMNS[1:], values)
            if documents:
                crash_point("documents")
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self._seq = seq
        self._recent.update(bodies)
        if len(self._recent) > RECENT_MAX:
            self._recent, self._older = set(), self._recent
        write_mark(self._mark, seq)

    def close(self, is_clean: bool) -> None:
        """Say that everything is there, if it is, and let go of the file."""
        try:
            if is_clean:
                # Closing takes it to the disk; without it the next owner looks closer, no more.
                self._database.execute("PRAGMA synchronous=NORMAL")
                self._database.execute("BEGIN IMMEDIATE")
                self._check_epoch()
                say(self._database, is_clean=1, tasks=self._next_id - 1, events=self._seq)
                self._database.execute("COMMIT")
        finally:
            os.close(self._mark)
            self._database.close()

    def _check_epoch(self) -> None:
        found = self._database.execute("SELECT value FROM meta WHERE name='epoch'").fetchone()
        if found != (self.epoch,):
            raise JournalError(
                "another process has taken this run over",
                where=path_of(self._folder),
                hint="let the other one finish",
            )

    def _number(self, task: int | None, entry: JournalEntry) -> int:
        """The number of the task's row: given once, in the order of first writing."""
        if task is None:
            raise InternalError(f"{type(entry.event).__name__} is about no task, and has a row")
        ids = self._ids
        if task >= len(ids):
            ids.frombytes(bytes(ids.itemsize * (task + 1 - len(ids))))
        number: int = ids[task]
        if not number:
            if self._known is None:
                self._known = dict(self._database.execute("SELECT key, id FROM tasks"))
            known = self._known.pop(entry.key, None)
            number = ids[task] = self._next_id if known is None else known
            self._next_id += known is None
        return number

    def _new_bodies(self, entries: Sequence[JournalEntry]) -> dict[bytes, bytes]:
        """Texts that have not been seen lately."""
        if not self._keeps_bodies:
            return {}
        recent, older = self._recent, self._older
        return {
            name: body
            for entry in entries
            for name, body in entry.bodies
            if name not in recent and name not in older
        }

    def _insert(
        self, table: str, columns: tuple[str, ...], flat: list[object], tail: str = ""
    ) -> int:
        """Rows, one behind the other, in as few statements as there can be: how many they are."""
        width = len(columns)
        left, at, changed = len(flat) // width, 0, 0
        most = VARIABLES_MAX // width // STEP * STEP
        while left:
            count = left if left <= STEP else min(left // STEP * STEP, most)
            end = at + count * width
            changed += self._database.execute(
                _statement(table, columns, count, tail), flat[at:end]
            ).rowcount
            left, at = left - count, end
        return changed


def _statement(table: str, columns: tuple[str, ...], count: int, tail: str) -> str:
    known = _STATEMENTS.get((table, count))
    if known is None:
        places = f"({','.join('?' * len(columns))})"
        known = _STATEMENTS[table, count] = (
            f"INSERT INTO {table}({','.join(columns)}) VALUES{','.join([places] * count)}{tail}"
        )
    return known


_STATEMENTS: Final[dict[tuple[str, int], str]] = {}
