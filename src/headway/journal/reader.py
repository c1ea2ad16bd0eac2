"""Reads a run's journal, also while another process writes it.

Laws:
- What is read is what was written, or a JournalError: rows, events and bodies carry their checks.
- A reader never writes and never checkpoints: SQLite is exact with one writer only.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from headway.base.digest import digest as digest_of
from headway.engine.record import Fact, Header, TaskRow, TaskState
from headway.errors import JournalError
from headway.journal import file as db
from headway.journal.folder import RunPlace

QUICK_BYTES_MAX: Final = 32 * 1024 * 1024
"""A larger journal is not read to its end before a resume, which is to take two seconds: each of
its results is checked when it is read."""

UNREADABLE: Final = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What reading a spoilt file raises; SQLite's own messages can hold bytes of it."""


def spoilt(folder: str, what: str) -> JournalError:
    run = os.path.basename(os.path.abspath(folder))
    return JournalError(
        f"the journal of run {run} is spoilt: {what}",
        where=db.path_of(folder),
        hint=f"`headway doctor --salvage {run}` saves what can be read and keeps this file",
    )


def unreadable(folder: str, fault: Exception) -> JournalError:
    """What a journal is that one of `UNREADABLE` was met in: on a full disk SQLite has no room for
    its index of the log, and the file is whole."""
    if isinstance(fault, sqlite3.OperationalError) and db.is_full(folder):
        words = db.full_words(folder, db.LEAST_BYTES)
        return JournalError(f"the journal cannot be read: {words}", where=db.path_of(folder))
    return spoilt(folder, str(fault))


def placed(folder: str, error: JournalError) -> JournalError:
    """An error from within a journal, with the place, and a way out if it names none itself."""
    if error.where is not None:
        return error
    if error.hint is None:
        return spoilt(folder, error.message)
    return JournalError(
        error.message, where=db.path_of(folder), detail=error.detail, hint=error.hint
    )


def size_bytes(folder: str) -> int:
    """How much a journal is on disk, with its log of changes."""
    paths = (db.path_of(folder), f"{db.path_of(folder)}-wal")
    return sum(os.path.getsize(path) for path in paths if os.path.exists(path))


BULK_MIN: Final = 64
"""From this many texts on, reading all is faster than reading one by one."""

_ROWS: Final = f"SELECT {','.join(db.ROW_COLUMNS)} FROM tasks"
_KEYS: Final = "SELECT id, key FROM tasks WHERE id>? ORDER BY id"
_PLACES: Final = "SELECT id, digest FROM bodies WHERE id>?"
_EVENTS: Final = f"SELECT {','.join(db.EVENT_COLUMNS)} FROM events WHERE seq>?"


class RecordedEvent(Struct, frozen=True):
    seq: int
    key: bytes
    event: Fact


class JournalReader:
    """A context manager over one connection that only reads."""

    def __init__(self, folder: str) -> None:
        """JournalError if there is no journal, or none that can be read."""
        self.folder: Final = folder
        path = os.path.abspath(db.path_of(folder))
        if not os.path.exists(path):
            raise JournalError(f"there is no journal in {folder}")
        with self._guarded():
            self._database = sqlite3.connect(
                f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, timeout=5.0,
                check_same_thread=False,
            )  # fmt: skip
        self._numbers: dict[bytes, int] = {}
        self._numbers_to = 0
        self._bodies: dict[bytes, int] = {}
        self._bodies_to = 0
        self._seen = -1
        try:
            with self._guarded():
                self.header: Header = db.header_of(db.read_meta(self._database))
        except JournalError:
            self._database.close()
            raise

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, state: TaskState | None = None, name: str | None = None) -> Iterator[TaskRow]:
        """Tasks in the order in which they first started; all, or those in a state or of a name."""
        wanted = {"state=?": state, "name=?": name}
        given = {test: value for test, value in wanted.items() if value is not None}
        where = f" WHERE {' AND '.join(given)}" if given else ""
        last = 0
        with self._guarded():
            for values in self._database.execute(
                f"{_ROWS}{where} ORDER BY id", tuple(given.values())
            ):
                if not given and values[0] != last + 1:
                    raise JournalError(f"between tasks {last} and {values[0]} something is missing")
                last = values[0]
                yield db.read_row(values)

    def names(self, after: int = 0) -> Iterator[tuple[int, bytes, str]]:
        """Number, key and name of each task whose number is above `after`: of those that came
        since a reader last looked."""
        with self._guarded():
            yield from self._database.execute(
                "SELECT id, key, name FROM tasks WHERE id>? ORDER BY id", (after,)
            )

    def row(self, key: bytes) -> TaskRow | None:
        with self._guarded():
            if key not in self._numbers:
                # Those that came since last time: an index would cost a page per task.
                new = self._database.execute(_KEYS, (self._numbers_to,))
                for self._numbers_to, name in new:
                    self._numbers[name] = self._numbers_to
            number = self._numbers.get(key)
            if number is None:
                return None
            return db.read_row(self._database.execute(f"{_ROWS} WHERE id=?", (number,)).fetchone())

    def events(
        self, after: int = 0, key: bytes | None = None, kinds: Sequence[str] = ()
    ) -> Iterator[RecordedEvent]:
        """Events with a number above `after`, in order; of one task, or some kinds, if asked."""
        only, values = ("", [after]) if key is None else (" AND key=?", [after, key])
        if kinds:
            only += f" AND kind IN ({','.join('?' * len(kinds))})"
        with self._guarded():
            for found in self._database.execute(f"{_EVENTS}{only} ORDER BY seq", (*values, *kinds)):
                if not only and found[0] != after + 1:
                    raise JournalError(f"between events {after} and {found[0]} one is missing")
                after = found[0]
                yield RecordedEvent(after, found[3], db.read_event(found))

    def has_changed(self) -> bool:
        """Whether anything was written since this was last asked, or it is asked first.

        Cheap enough for ten times a second: a run is followed by asking, then reading
        `events(after=...)` from where one was."""
        # The number of the last event, not `data_version`, which a checkpoint changes too.
        before, self._seen = self._seen, self.last_event()
        return before != self._seen

    def places(self) -> Mapping[bytes, int]:
        """The digests of all texts in the file, with their numbers."""
        with self._guarded():
            # Those that came since last time: an index would cost a page per body.
            for place, name in self._database.execute(_PLACES, (self._bodies_to,)):
                self._bodies[name] = self._bodies_to = place
        return self._bodies

    def body(self, digest: bytes) -> bytes | None:
        """A text by its digest; None if the run keeps no results, JournalError if it is lost."""
        number = self._bodies.get(digest) or self.places().get(digest)
        with self._guarded():
            if number is not None:
                row = self._database.execute("SELECT data FROM bodies WHERE id=?", (number,))
                return _checked(digest, *(row.fetchone() or (None,)))
            if not self.header.keeps_bodies:
                return None
            raise JournalError(
                f"the result {digest.hex()} is missing",
                hint=f"headway resume {self.header.run}: what is missing is done again",
            )

    def bodies(self, digests: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """These texts with their digests, as far as they are kept, in no order; many at once."""
        left = set(digests)
        if len(left) >= BULK_MIN:
            with self._guarded():
                for name, data in self._database.execute("SELECT digest, data FROM bodies"):
                    if name in left:
                        left.discard(name)
                        yield name, _checked(name, data)
        for name in left & self.places().keys():
            yield name, self.body(name) or b""

    def documents(self, name: str, which: str = "ORDER BY id") -> Iterator[tuple[int, bytes]]:
        """What is kept of the run under a name, numbered, in the order in which it was written."""
        query = f"SELECT id, digest, data FROM {db.table_of(name)} WHERE name=? {which}"
        with self._guarded():
            for number, digest, data in self._database.execute(query, (name,)):
                if not isinstance(data, bytes) or db.document_values(name, data)[1] != digest:
                    raise JournalError(f"its {name} is spoilt: the digest does not fit")
                yield number, data

    def document(self, name: str, number: int | None = None) -> bytes | None:
        """The last of them, or that of a number."""
        which = "ORDER BY id DESC LIMIT 1" if number is None else f"AND id={number:d}"
        return next((data for _, data in self.documents(name, which)), None)

    def states(self) -> dict[TaskState, int]:
        """How many tasks are in each state."""
        with self._guarded():
            query = "SELECT state, count(*) FROM tasks GROUP BY state"
            return dict(self._database.execute(query).fetchall())

    def last_event(self) -> int:
        """The number of the last event; 0 before the first."""
        with self._guarded():
            return int(self._database.execute("SELECT max(seq) FROM events").fetchone()[0] or 0)

    def count(self, is_checked: bool = True) -> None:
        """JournalError if there are fewer tasks or events than were on the disk, or, where it
        `is_checked`, the file is no whole database."""
        with self._guarded():
            meta = db.read_meta(self._database)
            if is_checked:
                (found,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise JournalError(str(found).replace("\n", " "))
            # At a clean end both are counted; before it, events are at every commit.
            names = {"events": "seq", "tasks": "id"} if meta.get("is_clean") else {}
            least = {name: db.number_in(meta, name) for name in names}
            least["events"] = max(least.get("events", 0), db.read_mark(self.folder))
            for name, count in least.items():
                column = names.get(name, "seq")
                (last,) = self._database.execute(f"SELECT max({column}) FROM {name}").fetchone()
                if (last or 0) < count:
                    raise JournalError(f"it had {count} {name} and has {last or 0}")

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except JournalError as fault:
            raise placed(self.folder, fault) from None
        except UNREADABLE as fault:
            raise unreadable(self.folder, fault) from None


def examine(folder: str) -> None:
    """JournalError if something is spoilt, or is missing that was on the disk.

    Nothing is changed: the last writer to close a file removes its log of changes, from which a
    spoilt journal is saved.
    """
    with JournalReader(folder) as reader:
        is_small = size_bytes(folder) <= QUICK_BYTES_MAX
        reader.count(is_checked=is_small)
        if is_small:
            verify(reader)


def verify(reader: JournalReader) -> None:
    """Read everything once with its check; JournalError if something is spoilt.

    A result that is missing is no error here: its task runs again.
    """
    texts = {row.ending.body for row in reader.rows() if row.ending.body}
    for _ in reader.events():
        pass
    for _ in reader.bodies(texts.union(reader.places())):
        pass


def _checked(name: object, data: object) -> bytes:
    if not isinstance(data, bytes) or digest_of(data) != name:
        shown = name.hex() if isinstance(name, bytes) else name
        raise JournalError(f"the result {shown} is spoilt: its digest does not fit")
    return data


def latest(places: Iterable[RunPlace], is_it: Callable[[Header], bool]) -> RunPlace | None:
    """The first of these runs whose header fits; spoilt ones are passed over: `doctor` tells."""
    for place in places:
        try:
            with JournalReader(place.folder) as reader:
                header = reader.header
        except JournalError:
            continue
        if is_it(header):
            return place
    return None
