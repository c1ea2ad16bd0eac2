"""Copies what is readable of a damaged journal into a new one.

Laws:
- Nothing is taken that does not fit its check, and nothing that does is left behind.
- A row is brought up to date by the events that are newer than it.
- A task whose result is lost is not finished: it runs again, or the shim's log has its end.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from headway.base import locks as owner
from headway.base.digest import digest
from headway.engine.events import RunFinished
from headway.engine.record import LOST, Fact, TaskRow, fold, without_lost
from headway.errors import JournalError
from headway.journal import file as db
from headway.journal.shim_log import sync_folder

# Records in the pages of a spoilt SQLite file, read without SQLite and without its trees.

Record = tuple[object, ...]

WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
TABLE_LEAF: Final = 0x0D
INDEX_LEAF: Final = 0x0A
RECORD_BYTES_MAX: Final = 1_000_000_000
"""SQLite holds no larger one."""
_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)


def read_pages(path: str, log: str) -> list[tuple[int, bytes]]:
    """The images of all pages, in the order in which they were written as far as is known.

    The file or its log may be missing or cut short.

    Frames of an earlier round of the log, which lie behind those of the present one, are older
    than the file. Frames behind the last commit count too: their records have their own checks.
    """
    data, frames = _whole(path), _whole(log)
    size = db.PAGE_BYTES
    file = [(at // size + 1, data[at : at + size]) for at in range(0, len(data), size)]
    older: list[tuple[int, bytes]] = []
    newer: list[tuple[int, bytes]] = []
    salts = frames[WAL_HEADER_BYTES + 8 : WAL_HEADER_BYTES + 16]
    step = FRAME_HEADER_BYTES + size
    for at in range(WAL_HEADER_BYTES, len(frames) - step + 1, step):
        (number,) = struct.unpack_from(">I", frames, at)
        image = (number, frames[at + FRAME_HEADER_BYTES : at + step])
        (newer if frames[at + 8 : at + 16] == salts else older).append(image)
    return [*older, *file, *newer]


def records(images: list[tuple[int, bytes]]) -> Iterator[tuple[int, Record]]:
    """Everything that can be read as a record of a table or an index, with its number."""
    pages = dict(images)
    for number, image in images:
        start = 100 if number == 1 else 0
        if len(image) != db.PAGE_BYTES or image[start] not in (TABLE_LEAF, INDEX_LEAF):
            continue
        has_number = image[start] == TABLE_LEAF
        (cells,) = struct.unpack_from(">H", image, start + 3)
        for cell in range(min(cells, (db.PAGE_BYTES - start - 8) // 2)):
            try:
                (at,) = struct.unpack_from(">H", image, start + 8 + 2 * cell)
                yield _found(pages, image, at, has_number)
            except (ValueError, IndexError, struct.error):
                continue


def _found(pages: dict[int, bytes], image: bytes, at: int, has_number: bool) -> tuple[int, Record]:
    size, at = _varint(image, at)
    if size > RECORD_BYTES_MAX:
        raise ValueError("too long for a record of ours")
    number = 0
    if has_number:
        number, at = _varint(image, at)
    return number, _record(_payload(pages, image, at, size, has_number))


def _payload(pages: dict[int, bytes], image: bytes, at: int, size: int, has_number: bool) -> bytes:
    """The bytes of a record, gathered from the pages that it runs over into."""
    usable = db.PAGE_BYTES
    most = usable - 35 if has_number else (usable - 12) * 64 // 255 - 23
    if size <= most:
        return image[at : at + size]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    pieces = [image[at : at + local]]
    (follows,) = struct.unpack_from(">I", image, at + local)
    left = size - local
    while left > 0:
        page = pages.get(follows, b"")
        (follows,) = struct.unpack_from(">I", page)
        piece = page[4 : 4 + min(left, usable - 4)]
        if not piece:
            raise ValueError("the rest of a record is missing")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _record(data: bytes) -> Record:
    size, at = _varint(data, 0)
    kinds = []
    while at < size:
        kind, at = _varint(data, at)
        kinds.append(kind)
    values: list[object] = []
    for kind in kinds:
        value, at = _value(data, at, kind)
        values.append(value)
    return tuple(values)


def _value(data: bytes, at: int, kind: int) -> tuple[object, int]:
    if kind == 0:
        return None, at
    if kind <= 6:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(_cut(data, at, end), "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", data, at)[0], at + 8
    if kind <= 9:
        return kind - 8, at
    if kind < 12:
        raise ValueError("a kind of value that is not in use")
    end = at + (kind - 12) // 2
    piece = _cut(data, at, end)
    return (piece.decode() if kind & 1 else piece), end


def _cut(data: bytes, at: int, end: int) -> bytes:
    if end > len(data):
        raise ValueError("a value is cut short")
    return data[at:end]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    value = value << 8 | data[at]
    return (value - (1 << 64) if value >> 63 else value), at + 1


def _whole(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


DRAFT: Final = "salvage"
ASIDE_MAX: Final = 1000


class Salvaged(Struct, frozen=True):
    rows: int
    events: int
    bodies: int
    missing_events: int
    """Events that are known to have been there and were not found."""
    lost_results: int
    kept_as: str


class Wreck:
    """What has been found in a spoilt file so far."""

    def __init__(self) -> None:
        self.meta: dict[str, object] = {}
        self.rows: dict[int, TaskRow] = {}
        self.events: set[tuple[int, bytes, Fact]] = set()
        """Two with one number are both kept: the log may hold what a killed process began to
        write, behind what its successor wrote."""
        self.bodies: dict[bytes, bytes] = {}
        self.documents: dict[tuple[str, int], tuple[str, bytes, bytes]] = {}

    def take(self, number: int, record: Record) -> None:
        """Keep a record if it is one of ours and whole."""
        match record:
            case (None, bytes(name), bytes(data)) if digest(data) == name:
                self.bodies[name] = data
            case (None, str(name), bytes(check), bytes(data)):
                if db.document_values(name, data)[1] == check:
                    self.documents[db.table_of(name), number] = (name, check, data)
            case (None, int(), _, bytes(key), _, _):
                self.events.add((number, key, db.read_event((number, *record[1:]))))
            case (None, bytes(key), name, state, data, crc):
                row = db.read_row(cast(db.RowValues, (number, key, name, state, data, crc)))
                old = self.rows.get(number)
                if old is None or _age(row) >= _age(old):
                    self.rows[number] = row
            case ("epoch", int(epoch)):
                self.meta["epoch"] = max(epoch, cast(int, self.meta.get("epoch", 0)))
            case (str(name), value):
                self.meta[name] = value

    def brought_up_to_date(self) -> list[TaskRow]:
        """Rows by number, with the events that are newer than they are."""
        rows = {row.key: row for _, row in sorted(self.rows.items())}
        named = set(rows)
        for _, key, event in self.in_order():
            old = rows.get(key)
            if key and (old is None or event.at_s > max(old.started_s, old.ended_s)):
                rows[key] = fold(old, event, key, old.name if old else f"task {key.hex()[:8]}")
        # No event has the name of its task. The next attempt gives it back, and takes the result.
        return [
            row if row.key in named or row.state != "finished" else replace(row, state="delayed")
            for row in rows.values()
        ]

    def in_order(self) -> list[tuple[int, bytes, Fact]]:
        return sorted(self.events, key=lambda one: (one[0], one[2].at_s))


def salvage(folder: str) -> Salvaged:
    """Save what can be read. JournalError if a process owns the run, or nothing is left of it."""
    lock = owner.take(folder)
    try:
        return _salvage(folder)
    except (OSError, sqlite3.Error) as fault:
        raise JournalError(f"{db.path_of(folder)} cannot be saved: {fault}") from None
    finally:
        owner.drop(lock)


def _salvage(folder: str) -> Salvaged:
    path = db.path_of(folder)
    wreck = Wreck()
    for number, record in records(read_pages(path, f"{path}-wal")):
        try:
            wreck.take(number, record)
        except JournalError:
            continue  # Its check does not fit: a page that was read as what it is not.
    try:
        header = db.header_of(wreck.meta)
    except JournalError:
        header = db.read_copy(folder)
    had, bodies = wreck.brought_up_to_date(), list(wreck.bodies.items())
    has = wreck.bodies.__contains__ if header.keeps_bodies else lambda _: True
    rows = [without_lost(row, has) for row in had]
    lost = sum(row.fault == LOST for row in rows)
    events = wreck.in_order()
    numbers = {number for number, _, _ in events}
    missing = max(max(numbers, default=0), db.read_mark(folder)) - len(numbers)
    if missing or lost:
        # The run is not over: a task of it runs again, or is not known to have ended.
        events = [one for one in events if not isinstance(one[2], RunFinished)]
    epoch = wreck.meta.get("epoch")
    # Made beside the old one, which stays in its place until the new one is whole.
    draft = os.path.join(folder, DRAFT)
    shutil.rmtree(draft, ignore_errors=True)
    db.make(draft, header)
    with closing(db.connect(db.path_of(draft))) as database:
        database.execute("BEGIN IMMEDIATE")
        # Numbers have no gaps, so what is there is counted anew.
        _fill(database, "events", db.EVENT_COLUMNS, [
            db.event_values(seq, key, event) for seq, (_, key, event) in enumerate(events, 1)
        ])  # fmt: skip
        _fill(database, "tasks", db.ROW_COLUMNS, [
            db.row_values(number, row) for number, row in enumerate(rows, 1)
        ])  # fmt: skip
        _fill(database, "bodies", db.BODY_COLUMNS[1:], bodies)
        for (table, _), values in sorted(wreck.documents.items()):
            _fill(database, table, db.DOCUMENT_COLUMNS[1:], [values])
        db.say(database, epoch=epoch if isinstance(epoch, int) else 0)
        db.say(database, tasks=len(rows), events=len(events))
        database.execute("COMMIT")
    kept_as = _move_aside(folder)
    os.rename(db.path_of(draft), path)
    db.write_copy(folder, header)
    with open(os.path.join(folder, owner.LOCK), "rb+") as file:
        db.write_mark(file.fileno(), len(events))
    shutil.rmtree(draft)
    sync_folder(folder)
    return Salvaged(len(rows), len(events), len(bodies), missing, lost, kept_as)


def _fill(
    database: sqlite3.Connection, table: str, columns: tuple[str, ...],
    values: Sequence[tuple[object, ...]],
) -> None:  # fmt: skip
    places = ",".join("?" * len(columns))
    database.executemany(f"INSERT INTO {table}({','.join(columns)}) VALUES({places})", values)


def _move_aside(folder: str) -> str:
    path = db.path_of(folder)
    for number in range(1, ASIDE_MAX + 1):
        aside = f"{path}.spoilt-{number}"
        if not os.path.exists(aside):
            os.rename(path, aside)
            for tail in ("-wal", "-shm"):
                if os.path.exists(f"{path}{tail}"):
                    os.rename(f"{path}{tail}", f"{aside}{tail}")
            return aside
    raise JournalError(f"{path} is spoilt, and so are {ASIDE_MAX:,} files beside it")


def _age(row: TaskRow) -> tuple[float, int, int]:
    return max(row.started_s, row.ended_s), len(row.kept), row.reserved_microusd
