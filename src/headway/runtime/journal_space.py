"""Room on the disk that is set aside, so that results in flight can be written when it is full."""

from __future__ import annotations

import os
from typing import Final

NAME: Final = "reserve"
RESERVE_BYTES: Final = 4 * 1024 * 1024
"""A thousand results of usual size; what is in flight when the disk is full is a few hundred."""


def hold(folder: str) -> bool:
    """Set the room aside; False if there is none, or less than twice as much is left."""
    path = os.path.join(folder, NAME)
    try:
        if os.path.exists(path) and os.stat(path).st_blocks * 512 >= RESERVE_BYTES:
            return True
        found = os.statvfs(folder)
        if found.f_bavail * found.f_frsize < 2 * RESERVE_BYTES:
            return False
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _fill(handle)
        finally:
            os.close(handle)
    except OSError:
        give(folder)
        return False
    return True


def give(folder: str) -> bool:
    """Let go of it; False if there was none."""
    try:
        os.unlink(os.path.join(folder, NAME))
    except OSError:
        return False
    return True


def _fill(handle: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, RESERVE_BYTES)
        return
    # Where space cannot be asked for it must be written; zeros might be left out.
    piece = b"\xa5" * (64 * 1024)
    for _ in range(RESERVE_BYTES // len(piece)):
        os.write(handle, piece)
