"""Room on disks: what is set aside for results in flight, which disk is full, and in which words.

The room is given back in steps: what becomes free may be taken by what filled the disk, and then
the next step is tried.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Final

from headway.runtime.shimlog import set_aside

NAME: Final = "reserve"
RESERVE_BYTES: Final = 4 * 1024 * 1024
"""A thousand results of usual size; what is in flight when the disk is full is a few hundred."""
STEP_BYTES: Final = 256 * 1024
"""Given back at a time: more than a commit of usual size needs."""
LEAST_BYTES: Final = 1024 * 1024
"""A disk with less room is full: programs write temporary files of this size."""

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk is called by the system."""


def hold(folder: str) -> bool:
    """Set the room aside; False if there is none, or less than twice as much is left."""
    path = os.path.join(folder, NAME)
    try:
        if os.path.exists(path) and os.stat(path).st_blocks * 512 >= RESERVE_BYTES:
            return True
        if free_bytes(folder) < 2 * RESERVE_BYTES:
            return False
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            set_aside(handle, 0, RESERVE_BYTES)
        finally:
            os.close(handle)
    except OSError:
        while give(folder):
            continue
        return False
    return True


def give(folder: str) -> bool:
    """Let go of a part of it; False if there was none."""
    path = os.path.join(folder, NAME)
    try:
        left = os.stat(path).st_size - STEP_BYTES
        if left > 0:
            os.truncate(path, left)
        else:
            os.unlink(path)
    except OSError:
        return False
    return True


def drop(folder: str) -> None:
    """Let go of all of it."""
    try:
        os.unlink(os.path.join(folder, NAME))
    except OSError:
        return


def free_bytes(folder: str) -> int:
    """What this user may still write to the disk of a folder; nothing without a free inode."""
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


class Disks:
    """The disks that a run writes to: those that had room when it began."""

    __slots__ = ("_folders",)

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = tuple(one for one in dict.fromkeys(folders) if not _is_full(one))

    def __repr__(self) -> str:
        return f"<Disks of {', '.join(self._folders)}>"

    def statistics(self) -> tuple[str, ...]:
        """The folders whose disks are full."""
        return tuple(filter(_is_full, self._folders))

    def full(self) -> str:
        """Which of them has become full, in words; empty if none has."""
        return next((full_words(one, LEAST_BYTES) for one in self.statistics()), "")


def _is_full(folder: str) -> bool:
    try:
        return free_bytes(folder) < LEAST_BYTES
    except OSError:
        return False
