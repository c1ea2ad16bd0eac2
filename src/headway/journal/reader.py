"""Reads a run's journal, also while another process writes it.

Laws:
- What is read is what was written, or a JournalError: rows, events and bodies carry their checks.
- A reader never writes and never checkpoints: SQLite is exact with one writer only.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from headway.base.digest import digest as digest_of
from headway.engine.record import Fact, Header, TaskRow, TaskState
from headway.errors import JournalError
from headway.journal import file as db
from headway.journal.folder import RunPlace

# Whether a journal can be trusted before a process goes on with it.

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
    path = db.path_of(folder)
    log, kept = f"{path}-wal", f"{path}-wal-kept"
    # The last process to close a file removes its log. Under a second name it stays.
    with suppress(OSError):
        os.unlink(kept)
    with suppress(OSError):
        os.link(log, kept)
    has_log = os.path.exists(kept) and os.path.getsize(kept) > WAL_HEADER_BYTES
    try:
        with closing(db.connect(path)) as database:
            _examine(folder, database, kept if has_log else "")
    except (JournalError, *UNREADABLE):
        if has_log:
            os.replace(kept, log)
        raise
    with suppress(OSError):
        os.unlink(kept)


def spoilt(folder: str, what: str) -> JournalError:
    run = os.path.basename(os.path.abspath(folder))
    return JournalError(
        f"the journal of run {run} is spoilt: {what}",
        where=db.path_of(folder),
        hint=f"`headway doctor --salvage {run}` saves what can be read and keeps this file",
    )


def placed(folder: str, error: JournalError) -> JournalError:
    """An error from within a journal, with the place, and a way out if it names none itself."""
    if error.where is not None:
        return error
    if error.hint is None:
        return spoilt(folder, error.message)
    return JournalError(
        error.message, where=db.path_of(folder), detail=error.detail, hint=error.hint
    )


def _examine(folder: str, database: sqlite3.Connection, log: str) -> None:
    meta = db.read_meta(database)
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
    least = {"events": db.read_mark(folder)}
    if meta.get("is_clean"):
        least = {table: db.number_in(meta, table) for table in ("tasks", "events")}
    for table, count in least.items():
        column = "id" if table == "tasks" else "seq"
        (last,) = database.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()
        if last < count:
            raise spoilt(folder, f"it had {count} {table} and has {last}")


def size_bytes(folder: str) -> int:
    """How much a journal is on disk, with its log of changes and its large results."""
    paths = [db.path_of(folder), f"{db.path_of(folder)}-wal"]
    with suppress(OSError):
        paths += (entry.path for entry in os.scandir(os.path.join(folder, db.BODIES)))
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
    # The checksum of SQLite's file format.
    first = second = 0
    words = struct.unpack(f"{'>' if magic & 1 else '<'}6I", header[:24])
    for at in range(0, 6, 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack(">II", header[24:32])


BULK_MIN: Final = 64
"""So many texts are found sooner by reading them all than one by one."""

_ROWS: Final = f"SELECT {','.join(db.ROW_READ_COLUMNS)} FROM tasks"
_PLACES: Final = "SELECT id, digest FROM bodies WHERE id>?"
_EVENTS: Final = f"SELECT {','.join(db.EVENT_COLUMNS)} FROM events WHERE seq>?"


class RecordedEvent(Struct, frozen=True):
    seq: int
    key: bytes
    event: Fact


class RunSummary(Struct, frozen=True):
    counts: dict[TaskState, int]
    input_tokens: float
    output_tokens: float
    spent_microusd: int
    reserved_microusd: int
    first_s: float
    last_s: float
    events: int
    unpriced: int = 0
    """Calls whose price is unknown, also in flight: neither sum of money contains their cost."""


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
                f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, timeout=5.0
            )
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

    def row(self, key: bytes) -> TaskRow | None:
        with self._guarded():
            found = self._database.execute(f"{_ROWS} WHERE key=?", (key,)).fetchone()
            return None if found is None else db.read_row(found)

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
                yield RecordedEvent(after, found[4], db.read_event(found))

    def has_changed(self) -> bool:
        """Whether anything was written since this was last asked, or it is asked first.

        Cheap enough for ten times a second: a run is followed by asking, then reading
        `events(after=...)` from where one was."""
        with self._guarded():
            # The number of the last event, not `data_version`, which a checkpoint changes too.
            (last,) = self._database.execute("SELECT max(seq) FROM events").fetchone()
        before, self._seen = self._seen, int(last or 0)
        return before != self._seen

    def places(self) -> Mapping[bytes, int]:
        """The digests of all texts in the file, with their numbers; large ones are files."""
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
            try:
                with open(db.body_path(self.folder, digest), "rb") as file:
                    return _checked(digest, file.read())
            except FileNotFoundError:
                if not self.header.keeps_bodies:
                    return None
                raise JournalError(
                    f"the result {digest.hex()} is missing",
                    hint=f"headway resume {self.header.run}: what is missing is done again",
                ) from None

    def bodies(self, digests: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """These texts with their digests, as far as they are kept, in no order; many at once."""
        left = set(digests)
        if len(left) >= BULK_MIN:
            with self._guarded():
                for name, data in self._database.execute("SELECT digest, data FROM bodies"):
                    if name in left:
                        left.discard(name)
                        yield name, _checked(name, data)
        # Few, or large ones that are files.
        places = self.places()
        for name in left:
            if name in places or os.path.exists(db.body_path(self.folder, name)):
                yield name, self.body(name) or b""

    def summary(self) -> RunSummary:
        with self._guarded():
            states = self._database.execute(
                "SELECT state, count(*), sum(input_tokens), sum(output_tokens),"
                " sum(spent_microusd), sum(reserved_microusd), sum(unpriced)"
                " FROM tasks GROUP BY state"
            ).fetchall()
            first, last, events = self._database.execute(
                "SELECT (SELECT at_s FROM events ORDER BY seq LIMIT 1),"
                " (SELECT at_s FROM events ORDER BY seq DESC LIMIT 1), max(seq) FROM events"
            ).fetchone()
            try:
                columns = list(zip(*states, strict=True))[2:]
                totals = [sum(map(float, column)) for column in columns] or [0.0] * 5
                return RunSummary(
                    {found[0]: found[1] for found in states}, totals[0], totals[1], int(totals[2]),
                    int(totals[3]), float(first or 0.0), float(last or 0.0), events or 0,
                    int(totals[4]),
                )  # fmt: skip
            except (TypeError, ValueError):
                raise JournalError("a number in its tables cannot be read") from None

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except JournalError as fault:
            raise placed(self.folder, fault) from None
        except UNREADABLE as fault:
            raise spoilt(self.folder, str(fault)) from None


def verify(reader: JournalReader) -> None:
    """Read everything once with its check; JournalError if something is spoilt, or events are gone.

    A result that is missing is no error here: its task runs again.
    """
    texts = {row.ending.body for row in reader.rows() if row.ending.body}
    events = sum(1 for _ in reader.events())
    for _ in reader.bodies(texts.union(reader.places())):
        pass
    known = db.read_mark(reader.folder)
    if events < known:
        raise spoilt(reader.folder, f"it had {known} events and has {events}")


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
