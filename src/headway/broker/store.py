"""The broker's memory on disk: a snapshot and, behind it in the same file, a log of changes.

Laws:
- A save writes what changed since the last one. When the log would outgrow the snapshot, or
  accounts have other names or terms, a new snapshot replaces the file.
- A record is whole or it does not count, and neither does anything behind it. The file is replaced
  only by one that is on the disk: a crash at any moment leaves the last save, or the one before.
- What cannot be understood is moved aside, not overwritten: nothing is lost.
- A disk that is full or gone is logged and survived; the next save writes a new snapshot.
- The file is the owner's alone (0600). It holds no keys: accounts are named by digests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count
from struct import Struct as Packing
from typing import Final
from zlib import crc32

from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from headway.base.clock import hour, today
from headway.base.crash import crash_point
from headway.base.values import Spend
from headway.errors import WireError
from headway.journal.shim_log import sync_folder, unlink, write_all, write_file
from headway.pacing.admission import Admission
from headway.pacing.budget import DAYS_KEPT, Claim
from headway.pacing.estimate import Price
from headway.pacing.memory import AccountMemory, PacingMemory

HEAD: Final = b"headway memory "
VERSION: Final = b"4"
"""Of the file; one of another version is moved aside."""
BYTES_MAX: Final = 32 * 1024 * 1024
"""A thousand accounts, all busy within the hour, take 5 megabytes, and their log as much again."""
LOG_BYTES: Final = 1024 * 1024
"""A log may be so long beside a smaller snapshot: reading it takes 5 ms."""
_FRAME: Final = Packing(">II")
"""The length of a record, and its checksum."""


class StoredMemory(Struct, frozen=True, omit_defaults=True):
    """One record: the whole memory, or what changed of it; and what all records together say."""

    memory: PacingMemory
    age_s: float = 0.0
    """Since it was written: not in the file."""
    clients: tuple[str, ...] = ()
    """Those who were connected: they come back if they live. In a change, the new ones..."""
    left: tuple[str, ...] = ()
    """...and those who are gone."""
    notice: str = ""
    written_s: float = 0.0


_encode: Final = Encoder().encode
_decode: Final = Decoder(StoredMemory).decode


class Store:
    def __init__(self, path: str, wall: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall = wall
        self._clients: Collection[str] = ()
        """As they were written."""
        self._file: int | None = None
        """Where changes are appended; None if the next save is a snapshot."""
        self._bytes = 0
        self._bytes_max = 0
        self._stuck = ""
        """Why the file must not be replaced: it is spoilt and could not be moved aside."""

    def load(self) -> StoredMemory:
        """What the file says; what of it is spoilt is moved aside, with a notice."""
        self._stuck = ""
        try:
            kept, rest, at = self._read()
        except (FileNotFoundError, NotADirectoryError):
            return StoredMemory(PacingMemory())
        except (OSError, WireError) as fault:
            why = fault.message if isinstance(fault, WireError) else str(fault.strerror)
            return StoredMemory(PacingMemory(), notice=self._move_aside(why))
        if rest:
            kept = replace(kept, notice=self._move_aside("no whole record", rest, at))
        return kept

    def look(self) -> StoredMemory:
        """Read and change nothing; `OSError` or `WireError` if there is nothing to read."""
        return self._read()[0]

    def save(
        self, admission: Admission, now: float, clients: Collection[str] = (), *,
        is_money: bool = False, is_durable: bool = False,
    ) -> str:  # fmt: skip
        """Write what changed, or only money; wait for the disk if asked. Why it failed."""
        if self._file is not None and not admission.is_rearranged:
            data = self._packed(
                admission.memory(now, "money" if is_money else "changes"),
                tuple([client for client in clients if client not in self._clients]),
                tuple([client for client in self._clients if client not in clients]),
            )
            self._clients = clients
            # A file that was removed takes writes all the same.
            is_there = os.fstat(self._file).st_nlink > 0
            if is_there and self._bytes + len(data) <= self._bytes_max:
                return self._append(self._file, data, is_durable)
        return self.write(admission.memory(now), clients)

    def write(self, memory: PacingMemory, clients: Collection[str] = ()) -> str:
        """Replace the file by a snapshot that is on the disk. Why that failed, or nothing."""
        self._close()
        self._clients = clients
        if self._stuck:
            self.load()  # The disk may have room by now.
        if self._stuck:
            return self._stuck
        data = HEAD + VERSION + b"\n" + self._packed(memory, tuple(clients))
        if len(data) > BYTES_MAX:
            return f"{self._path}: it would have more than {BYTES_MAX:,} bytes"
        try:
            write_file(self._path, data)
            crash_point("snapshot")
            sync_folder(os.path.dirname(self._path))
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as fault:
            unlink(f"{self._path}.draft")
            return f"{self._path}: {fault.strerror}"
        self._bytes = len(data)
        self._bytes_max = min(BYTES_MAX, len(data) + max(len(data), LOG_BYTES))
        return ""

    def _append(self, file: int, data: bytes, is_durable: bool) -> str:
        try:
            write_all(file, data)
            crash_point("appended")
            if is_durable:
                os.fsync(file)
        except OSError as fault:
            self._close()
            return f"{self._path}: {fault.strerror}"
        self._bytes += len(data)
        return ""

    def _close(self) -> None:
        """Append no more, and cut off what a failed write left behind."""
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, self._bytes)
            os.close(self._file)
            self._file = None

    def _packed(
        self, memory: PacingMemory, clients: tuple[str, ...], left: tuple[str, ...] = ()
    ) -> bytes:
        record = StoredMemory(memory, clients=clients, left=left, written_s=self._wall())
        data = _encode(record)
        return _FRAME.pack(len(data), crc32(data)) + data

    def _read(self) -> tuple[StoredMemory, bytes, int]:
        """What all whole records say; the bytes behind them, and where those begin."""
        with open(self._path, "rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise WireError(f"it has more than {BYTES_MAX:,} bytes")
        head, _, _ = data[:64].partition(b"\n")
        if not head.startswith(HEAD):
            raise WireError("it is not a memory of headway")
        if head != HEAD + VERSION:
            version = head.removeprefix(HEAD).decode("ascii", "replace")
            raise WireError(f"it was written in version {version}")
        records, at = list[StoredMemory](), len(head) + 1
        while len(data) >= (start := at + _FRAME.size):
            length, checksum = _FRAME.unpack_from(data, at)
            body = data[start : start + length]
            if len(body) < length or crc32(body) != checksum:
                break
            try:
                records.append(_decode(body))
            except (DecodeError, RecursionError, ValueError):
                break
            at = start + length
        if not records:
            raise WireError("its snapshot is spoilt")
        kept = _fold(records)
        return replace(kept, age_s=max(0.0, self._wall() - kept.written_s)), data[at:], at

    def _move_aside(self, why: str, rest: bytes = b"", at: int = 0) -> str:
        """The whole file, or the rest of it that begins at `at`. Returns the notice."""
        what = f"the last {len(rest):,} bytes of {self._path}" if rest else self._path
        places = (f"{self._path}.corrupt-{number}" for number in count(1))
        aside = next(place for place in places if not os.path.exists(place))
        try:
            if rest:
                write_file(aside, rest)
                sync_folder(os.path.dirname(aside))
                os.truncate(self._path, at)
            else:
                os.rename(self._path, aside)
        except OSError as fault:
            self._stuck = f"{self._path} is spoilt and stays: {fault.strerror}"
            return self._stuck
        return f"{what} could not be used ({why}); kept as {aside}"


def _fold(records: list[StoredMemory]) -> StoredMemory:
    """What a snapshot and the changes behind it say together."""
    last, clients = records[-1], dict[str, None]()
    accounts: dict[tuple[str, str], tuple[AccountMemory, float]] = {}
    claims: dict[tuple[str, int], Claim] = {}
    days: dict[str, dict[str, Spend]] = {}
    for record in records:
        memory = record.memory
        for one in memory.accounts:
            before, _ = accounts.pop((one.account, one.group), (one, 0.0))
            chronicle = one.chronicle
            if chronicle.is_rest_same:
                minutes = (*before.chronicle.minutes[:-1], *chronicle.minutes)
                chronicle = replace(before.chronicle, minutes=minutes)
            known = replace(one, chronicle=chronicle)
            accounts[one.account, one.group] = known, record.written_s
        claims |= {claim.id: claim for claim in memory.claims}
        clients |= dict.fromkeys(record.clients)
        for key, some in memory.days:
            dates = days.setdefault(key, {})
            dates |= dict(some)
            if len(dates) > DAYS_KEPT:
                del dates[min(dates)]
        for id in memory.ended:
            claims.pop(id, None)
        for client in record.left:
            clients.pop(client, None)
    memory = PacingMemory(
        last.memory.month,
        terms=records[0].memory.terms,
        accounts=tuple([
            replace(one, age_s=max(0.0, last.written_s - written_s))
            for one, written_s in accounts.values()
        ]),
        claims=tuple(claims.values()),
        days=tuple([(key, tuple(sorted(dates.items()))) for key, dates in days.items()]),
        names=records[0].memory.names,
        owners=records[0].memory.owners,
    )  # fmt: skip
    return StoredMemory(memory, clients=tuple(clients), written_s=last.written_s)


def recall(path: str) -> StoredMemory | None:
    """What a file says, unchanged; None if there is nothing that can be read."""
    try:
        return Store(path).look()
    except (OSError, WireError):
        return None


# Opens admission where the last process left it: its memory, its prices, its month.


def open_admission(kept: StoredMemory, now: float) -> Admission:
    def price_at(model: str, input_tokens: int) -> Price | None:
        """Prices take half a second to import, and are needed only with a money budget."""
        if not admission.budgets.in_money:
            return None
        from headway.wire import prices

        return prices.price_at(model, input_tokens)

    admission = Admission(kept.memory, price_at, now, kept.age_s)
    turn(admission, now)
    return admission


def turn(admission: Admission, now: float) -> None:
    """Say what the clock on the wall shows: budgets are for months, habits for hours."""
    admission.budgets.turn(today())
    admission.turn(hour(), now)
