"""What becomes of the files in a folder, as the kernel of Linux tells it (inotify, by ctypes)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

FOLDERS_MAX: Final = 4_096
"""Folders that are watched at once; the kernel allows 8,192 to a user by default."""

ACCESS: Final = 0x1
MODIFY: Final = 0x2
CLOSE_WRITE: Final = 0x8
CLOSE_NOWRITE: Final = 0x10
MOVED_FROM: Final = 0x40
MOVED_TO: Final = 0x80
CREATE: Final = 0x100
DELETE: Final = 0x200
OVERFLOW: Final = 0x4000
IS_FOLDER: Final = 0x40000000
ONLY_FOLDERS: Final = 0x01000000
MASK: Final = (
    ACCESS | MODIFY | CLOSE_WRITE | CLOSE_NOWRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
)
_HEAD: Final = struct.Struct("iIII")
_CHUNK: Final = 1 << 16

Deed = Literal["read", "write", "remove", "make"]


class InotifyError(Exception):
    """The kernel does not tell."""


@dataclass(frozen=True, slots=True)
class InotifyStatistics:
    """Folders that are watched, and how often the kernel had more to tell than it could keep."""

    folders: int
    overflows: int


class Inotify:
    """Watches a folder and all within it, as far as they are of interest."""

    def __init__(self, folder: str, is_wanted: Callable[[str], bool]) -> None:
        self._folder = folder.rstrip("/")
        self._is_wanted = is_wanted
        self._names: dict[int, str] = {}
        """By watch: the folder, as seen from the first one."""
        self._overflows = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise InotifyError("this system has no inotify: what commands read is not seen")
        self.handle: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.handle < 0:
            raise InotifyError(f"inotify: {os.strerror(ctypes.get_errno())}")
        try:
            self._add("")
        except InotifyError:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Inotify {self._folder}, {self.statistics()}>"

    def statistics(self) -> InotifyStatistics:
        return InotifyStatistics(len(self._names), self._overflows)

    def poll(self) -> list[tuple[str, Deed]]:
        """What was done since the last time."""
        deeds: list[tuple[str, Deed]] = []
        while self.handle >= 0:
            try:
                data = os.read(self.handle, _CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            place = 0
            while place < len(data):
                watch, mask, _, size = _HEAD.unpack_from(data, place)
                place += _HEAD.size + size
                name = os.fsdecode(data[place - size : place].rstrip(b"\0"))
                self._overflows += bool(mask & OVERFLOW)
                if name and watch in self._names:
                    folder = self._names[watch]
                    self._take(f"{folder}/{name}" if folder else name, mask, deeds)
        return deeds

    def close(self) -> None:
        """Watch no more."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)

    def _take(self, path: str, mask: int, deeds: list[tuple[str, Deed]]) -> None:
        if mask & IS_FOLDER:
            if mask & (CREATE | MOVED_TO):
                with suppress(InotifyError):
                    # What was made in it before it was watched is there now.
                    deeds += self._add(path)
            elif mask & (DELETE | MOVED_FROM):
                deeds.append((path, "remove"))
            elif mask & ACCESS:
                deeds.append((f"{path}/*", "read"))
        elif mask & (DELETE | MOVED_FROM):
            deeds.append((path, "remove"))
        elif mask & (MODIFY | CLOSE_WRITE | CREATE | MOVED_TO):
            deeds.append((path, "write"))
        elif mask & (ACCESS | CLOSE_NOWRITE):
            deeds.append((path, "read"))

    def _add(self, first: str) -> list[tuple[str, Deed]]:
        """Watch a folder and those in it; as if all that is there were made now."""
        made: list[tuple[str, Deed]] = []
        waiting = [first]
        while waiting:
            folder = waiting.pop()
            whole = f"{self._folder}/{folder}" if folder else self._folder
            if len(self._names) >= FOLDERS_MAX:
                raise InotifyError(f"the plan's folder has more than {FOLDERS_MAX:,} folders")
            watch = self._libc.inotify_add_watch(
                self.handle, os.fsencode(whole), MASK | ONLY_FOLDERS
            )
            if watch < 0:
                if folder == first == "":
                    raise InotifyError(f"inotify: {os.strerror(ctypes.get_errno())}")
                continue  # It was there a moment ago.
            self._names[watch] = folder
            made.append((folder, "make"))
            with suppress(OSError), os.scandir(whole) as entries:
                for entry in entries:
                    inner = f"{folder}/{entry.name}" if folder else entry.name
                    if not self._is_wanted(inner):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(inner)
                    else:
                        made.append((inner, "write"))
        return made
