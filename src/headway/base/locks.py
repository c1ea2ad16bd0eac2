"""The lock on a run's folder: one process owns a run.

Laws:
- The lock ends with its holder, however that ends; a kill leaves nothing to clean up.
- A process that the owner forks does not become a holder.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Final

from msgspec import Struct

from headway.errors import JournalError

LOCK: Final = "owner.lock"

TRIES_MAX: Final = 20
TRY_S: Final = 0.01
"""A reader that asks who the owner is holds the lock for microseconds: worth a second look."""

_HELD: Final[set[int]] = set()


class Owner(Struct, frozen=True):
    """The process that the run belongs to, or last belonged to."""

    pid: int
    is_alive: bool
    """It holds the lock."""


def take(folder: str) -> int:
    """The lock, held by this process; JournalError names the holder if there is one."""
    path = os.path.join(folder, LOCK)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise JournalError(f"{path} cannot be opened: {fault.strerror}") from None
    for _ in range(TRIES_MAX):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(TRY_S)
        else:
            return _signed(handle, path)
    pid = _pid(handle)
    os.close(handle)
    run = os.path.basename(os.path.abspath(folder))
    raise JournalError(
        f"run {run} is owned by process {pid}, which is at work on it",
        where=path,
        hint=f"wait for it, or end it with `headway stop {run}`",
    )


def drop(handle: int) -> None:
    """This process is no longer the owner."""
    _HELD.discard(handle)
    os.close(handle)


def look(folder: str) -> Owner | None:
    """Who owns the run, or did last; None if no process ever has."""
    try:
        handle = os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pid = _pid(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return Owner(pid, True)
        return Owner(pid, False)
    finally:
        os.close(handle)


def _signed(handle: int, path: str) -> int:
    _HELD.add(handle)
    try:
        os.fchmod(handle, 0o600)
        os.pwrite(handle, b"%-31d\n" % os.getpid(), 0)
    except OSError as fault:
        drop(handle)
        raise JournalError(f"{path} cannot be written: {fault.strerror}") from None
    return handle


def _pid(handle: int) -> int:
    said = os.pread(handle, 32, 0).strip()
    return int(said) if said.isdigit() else 0


def _after_fork() -> None:
    for handle in list(_HELD):
        drop(handle)


os.register_at_fork(after_in_child=_after_fork)
