"""The socket where clients look for the broker: there before anything else of it is.

Those who come while the rest of the broker is being loaded wait inside, not in a loop of tries.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

BACKLOG: Final = 128
"""Clients that connect in the same instant: all of a large run when its broker was killed."""


@dataclass(frozen=True, slots=True)
class DoorStatistics:
    """A door at an instant."""

    is_found: bool
    was_left: bool


class Door:
    """A listening socket of the user alone."""

    __slots__ = ("_inode", "_path", "listener", "was_left")

    def __init__(self, path: str) -> None:
        """Listen at `path`. What is there is stale: the caller holds the lock."""
        self._path = path
        self.was_left = os.path.lexists(path)
        """Whether the last one here ended without a word, or with clients."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        os.chmod(path, 0o600)
        self.listener.listen(BACKLOG)
        self.listener.setblocking(False)
        self._inode = os.stat(path).st_ino

    def __repr__(self) -> str:
        return f"<Door at {self._path}>"

    def is_found(self) -> bool:
        """Whether clients that look for the socket find this one."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def close(self, is_awaited: bool) -> None:
        """The file stays if clients will come back, as a sign to the heir."""
        if not is_awaited and self.is_found():
            os.unlink(self._path)
        self.listener.close()

    def statistics(self) -> DoorStatistics:
        return DoorStatistics(self.is_found(), self.was_left)
