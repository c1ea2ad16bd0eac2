"""Saves from a spoilt journal all that can still be read, into a new one; the old one is kept.

Laws:
- Nothing is taken that does not fit its check, and nothing that does is left behind.
- A row is brought up to date by the events that are newer than it.
- A task whose result is lost is not finished: it runs again, or the shim's log has its end.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

from headway.core.digest import digest
from headway.core.engine.events import RunFinished
from headway.core.engine.record import LOST, Fact, Header, Row, fold, without_lost
from headway.errors import JournalError
from headway.runtime import owner
from headway.runtime.journal_file import (
    MARK,
    body_path,
    connect,
    header_of,
    is_body,
    make,
    path_of,
    read_header_copy,
    read_mark,
    say,
    synced,
)
from headway.runtime.journal_pages import Found, read_pages, records
from headway.runtime.journal_rows import (
    BODY_COLUMNS,
    EVENT_COLUMNS,
    ROW_COLUMNS,
    RowValues,
    event_values,
    read_event,
    read_row,
    row_values,
)

DRAFT: Final = "salvage"
ASIDE_MAX: Final = 1000
"""Spoilt files that are kept side by side."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was saved."""

    rows: int
    events: int
    bodies: int
    missing_events: int
    """So many more are known to have been there."""
    lost_results: int
    """Tasks that had finished and run again."""
    kept_as: str
    """The old file."""


class Wreck:
    """What has been found in a spoilt file so far."""

    def __init__(self) -> None:
        self.meta: dict[str, object] = {}
        self.rows: dict[int, Row] = {}
        self.events: set[tuple[int, bytes, Fact]] = set()
        """Two with one number are both kept: the log may hold what a killed process began to
        write, behind what its successor wrote."""
        self.bodies: dict[bytes, bytes] = {}

    def __repr__(self) -> str:
        return f"<Wreck {self.statistics()}>"

    def statistics(self) -> tuple[int, int, int]:
        """Rows, events and bodies."""
        return len(self.rows), len(self.events), len(self.bodies)

    def take(self, found: Found) -> None:
        """Keep a record if it is one of ours and whole."""
        match found.record:
            case (None, bytes(name), bytes(data)) if digest(data) == name:
                self.bodies[name] = data
            case (None, int() | float() as at_s, version, kind, bytes(key), text, crc):
                values = (found.number, float(at_s), version, kind, key, text, crc)
                self.events.add((found.number, key, read_event(values)))
            case (None, bytes(key), name, state, *_, data) if len(found.record) == len(ROW_COLUMNS):
                row = read_row(cast(RowValues, (found.number, key, name, state, data)))
                old = self.rows.get(found.number)
                if old is None or _age(row) >= _age(old):
                    self.rows[found.number] = row
            case ("epoch", int(epoch)):
                self.meta["epoch"] = max(epoch, cast(int, self.meta.get("epoch", 0)))
            case (str(name), value):
                self.meta[name] = value

    def brought_up_to_date(self) -> list[Row]:
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
        """Events as they happened."""
        return sorted(self.events, key=lambda one: (one[0], one[2].at_s))


def salvage(folder: str) -> Salvaged:
    """Save what can be read. JournalError if a process owns the run, or nothing is left of it."""
    lock = owner.take(folder)
    try:
        return _salvage(folder)
    except (OSError, sqlite3.Error) as fault:
        raise JournalError(f"{path_of(folder)} cannot be saved: {fault}") from None
    finally:
        owner.drop(lock)


def _salvage(folder: str) -> Salvaged:
    path = path_of(folder)
    wreck = Wreck()
    for found in records(read_pages(path, f"{path}-wal")):
        try:
            wreck.take(found)
        except JournalError:
            continue  # Its check does not fit: a page that was read as what it is not.
    header = _header(folder, wreck)
    had, bodies = wreck.brought_up_to_date(), list(wreck.bodies.items())
    has = partial(_has, folder, wreck) if header.keeps_bodies else lambda _: True
    rows = [without_lost(row, has) for row in had]
    lost = sum(row.fault == LOST for row in rows)
    events = wreck.in_order()
    numbers = {number for number, _, _ in events}
    missing = max(max(numbers, default=0), read_mark(folder)) - len(numbers)
    if missing or lost:
        # The run is not over: a task of it runs again, or is not known to have ended.
        events = [one for one in events if not isinstance(one[2], RunFinished)]
    epoch = wreck.meta.get("epoch")
    # Made beside the old one, which stays in its place until the new one is whole.
    draft = os.path.join(folder, DRAFT)
    shutil.rmtree(draft, ignore_errors=True)
    make(draft, header)
    with closing(connect(path_of(draft))) as database:
        database.execute("BEGIN IMMEDIATE")
        # Numbers have no gaps, so what is there is counted anew.
        _fill(database, "events", EVENT_COLUMNS, [
            event_values(seq, key, event) for seq, (_, key, event) in enumerate(events, 1)
        ])  # fmt: skip
        _fill(database, "tasks", ROW_COLUMNS, [
            row_values(number, row) for number, row in enumerate(rows, 1)
        ])  # fmt: skip
        _fill(database, "bodies", BODY_COLUMNS[1:], bodies)
        say(database, epoch=epoch if isinstance(epoch, int) else 0)
        say(database, tasks=len(rows), events=len(events))
        database.execute("COMMIT")
    kept_as = _move_aside(folder)
    os.rename(path_of(draft), path)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, MARK))
    shutil.rmtree(draft)
    synced(folder)
    return Salvaged(len(rows), len(events), len(bodies), missing, lost, kept_as)


def _has(folder: str, wreck: Wreck, name: bytes) -> bool:
    """Whether a text was saved, or is whole in a file of its own."""
    return name in wreck.bodies or is_body(body_path(folder, name), name)


def _header(folder: str, wreck: Wreck) -> Header:
    try:
        return header_of(wreck.meta)
    except JournalError:
        return read_header_copy(folder)


def _fill(
    database: sqlite3.Connection, table: str, columns: tuple[str, ...],
    values: Sequence[tuple[object, ...]],
) -> None:  # fmt: skip
    places = ",".join("?" * len(columns))
    database.executemany(f"INSERT INTO {table}({','.join(columns)}) VALUES({places})", values)


def _move_aside(folder: str) -> str:
    path = path_of(folder)
    for number in range(1, ASIDE_MAX + 1):
        aside = f"{path}.spoilt-{number}"
        if not os.path.exists(aside):
            os.rename(path, aside)
            for tail in ("-wal", "-shm"):
                if os.path.exists(f"{path}{tail}"):
                    os.rename(f"{path}{tail}", f"{aside}{tail}")
            return aside
    raise JournalError(f"{path} is spoilt, and so are {ASIDE_MAX:,} files beside it")


def _age(row: Row) -> tuple[float, int, int]:
    return max(row.started_s, row.ended_s), len(row.kept), row.reserved_microusd
