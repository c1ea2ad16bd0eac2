"""The broker's memory on disk: one file, replaced as a whole.

Laws:
- A file that cannot be understood is moved aside, not overwritten: nothing is lost.
- A disk that is full or gone is logged and survived; the return value tells the caller.
- The file is the owner's alone (0600). It holds no keys: accounts are named by digests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.clock import hour, today
from headway.base.codec import decode, encode
from headway.errors import WireError
from headway.journal.shim_log import sync_folder, write_file
from headway.pacing.admission import Admission
from headway.pacing.estimate import Price
from headway.pacing.memory import MEMORY_VERSION, PacingMemory

BYTES_MAX: Final = 32 * 1024 * 1024
"""A thousand accounts, all busy within the hour, take 15 megabytes."""
ASIDE_MAX: Final = 1000
"""Spoilt files that are kept side by side."""


class StoredMemory(Struct, frozen=True, omit_defaults=True):
    memory: PacingMemory
    age_s: float = 0.0
    """Since it was written: not in the file."""
    clients: tuple[str, ...] = ()
    """Those who were connected: they come back if they live."""
    notice: str = ""
    written_s: float = 0.0


class Store:
    def __init__(self, path: str, wall: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall = wall
        self._stuck = ""
        """Why the file must not be replaced: it is spoilt and could not be moved aside."""

    def load(self) -> StoredMemory:
        """What the file says; an empty memory and a notice if it says nothing that we know."""
        try:
            return self.look()
        except (FileNotFoundError, NotADirectoryError):
            return StoredMemory(PacingMemory())
        except (OSError, WireError) as fault:
            why = fault.message if isinstance(fault, WireError) else str(fault.strerror)
            return StoredMemory(PacingMemory(), notice=self._move_aside(why))

    def look(self) -> StoredMemory:
        """Read and change nothing; `OSError` or `WireError` if there is nothing to read."""
        with open(self._path, "rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise WireError(f"it has more than {BYTES_MAX:,} bytes")
        kept = decode(StoredMemory, data)
        if kept.memory.version != MEMORY_VERSION:
            raise WireError(f"it was written in version {kept.memory.version}")
        if not all(one.chronicle.is_whole for one in kept.memory.accounts):
            raise WireError("its history has other columns")
        return replace(kept, age_s=max(0.0, self._wall() - kept.written_s))

    def save(
        self, memory: PacingMemory, clients: tuple[str, ...] = (), *, is_durable: bool = False
    ) -> str:
        """Replace the file, and if asked wait for the disk. Why that failed, or nothing."""
        data = encode(StoredMemory(memory, clients=clients, written_s=self._wall()))
        if self._stuck:
            return self._stuck
        try:
            write_file(self._path, data, is_synced=is_durable)
            if is_durable:
                sync_folder(os.path.dirname(self._path))
        except OSError as fault:
            return f"{self._path}: {fault.strerror}"
        return ""

    def _move_aside(self, why: str) -> str:
        for number in range(1, ASIDE_MAX + 1):
            aside = f"{self._path}.corrupt-{number}"
            if not os.path.exists(aside):
                try:
                    os.rename(self._path, aside)
                except OSError as fault:
                    self._stuck = f"{self._path} is spoilt and stays: {fault.strerror}"
                    return self._stuck
                return f"{self._path} could not be used ({why}); it is kept as {aside}"
        self._stuck = f"{self._path} is spoilt, and so are {ASIDE_MAX:,} files beside it"
        return self._stuck


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
