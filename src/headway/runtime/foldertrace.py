"""What commands do to the files of a plan's folder, seen from outside.

Laws:
- The kernel says what was touched, not by whom. With one command active it was that one, with
  members of one group it was one of them. With several groups it counts for whoever declares it;
  if nobody does, it counts for nobody, and is told as that of one of them.
- What this process does meanwhile for other tasks is not a command's.
- Where the kernel tells nothing, files are compared: writes are seen, reads are not, and that is
  said once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from headway.core.detect import Declared, Touch, is_said
from headway.core.general import general
from headway.runtime.filewatch import FileLog, folders_of, path_of_interest
from headway.runtime.inotify import Inotify, InotifyError

FILES_MAX: Final = 50_000
"""Files that are compared where the kernel does not tell."""

Deed = Literal["read", "write", "remove", "make"]


@dataclass(frozen=True, slots=True)
class Trail:
    """What a command has touched."""

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


@dataclass(slots=True)
class _Walker:
    """A command that goes on."""

    group: int
    name: str
    may: Declared
    log: FileLog


class Source(Protocol):
    """Where it is seen what becomes of files."""

    def poll(self) -> list[tuple[str, Deed]]:
        """What was done since the last time, by paths within the folder."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FolderTraceStatistics:
    """How many commands are active, and how many deeds were nobody's."""

    active: int
    unclear: int


class FolderTrace:
    """Watches a folder for the commands of one run."""

    def __init__(self, folder: str, ignored: str = "") -> None:
        self._folders = folders_of(folder)
        self._ignored = ignored
        self._active: dict[int, _Walker] = {}
        self._source: Source | None = None
        self._reader: int | None = None
        self.problem = ""
        """Why reads are not seen, if they are not."""
        self.unclear: dict[str, tuple[str, ...]] = {}
        """Files that were written by one of these commands, none of which declares that."""
        self.is_ours: Callable[[str], bool] = _never
        """Whether this process has touched a file itself."""

    def __repr__(self) -> str:
        return f"<FolderTrace {self.statistics()}>"

    def statistics(self) -> FolderTraceStatistics:
        return FolderTraceStatistics(len(self._active), len(self.unclear))

    def begin(self, task: int, group: int, name: str, may: Declared) -> None:
        """A command is about to start."""
        if self._source is None:
            self._open()
        self._drain()
        self._active[task] = _Walker(group, name, may, FileLog(self._folders, self._ignored))

    def end(self, task: int) -> Trail:
        """A command has ended: what it has touched."""
        self._drain()
        walker = self._active.pop(task, None)
        if walker is None:
            return Trail()
        return Trail(tuple(walker.log.read), tuple(walker.log.written))

    async def aclose(self) -> None:
        """Watch no more."""
        if self._reader is not None:
            asyncio.get_running_loop().remove_reader(self._reader)
            self._reader = None
        if self._source is not None:
            self._source.close()
            self._source = None

    def _open(self) -> None:
        folder = self._folders[-1]
        try:
            source = Inotify(folder, lambda path: path_of_interest(path) is not None)
        except InotifyError as error:
            self.problem = str(error)
            self._source = Compared(folder)
            return
        self._source, self._reader = source, source.handle
        # The kernel keeps only so many: they are taken as they come.
        asyncio.get_running_loop().add_reader(source.handle, self._drain)

    def _drain(self) -> None:
        if self._source is None:
            return
        for path, deed in self._source.poll():
            if self._active and path_of_interest(path) and not self._is_own(path):
                self._count(path, deed)

    def _is_own(self, path: str) -> bool:
        whole = self._folders[-1] + path
        is_ignored = bool(self._ignored) and whole.startswith(self._ignored)
        return is_ignored or path.endswith(".draft") or self.is_ours(path)

    def _count(self, path: str, deed: Deed) -> None:
        """Find out whose it was."""
        walkers = list(self._active.values())
        if len({walker.group for walker in walkers}) == 1:
            walkers = [_likely(walkers, path)]
        else:
            is_write = deed != "read"
            touch = Touch(-1, -1, "", "path", path, is_write)
            saying = [one for one in walkers if is_said(one.may, touch)]
            if not saying:
                said = [
                    one.may.paths.writes if is_write else one.may.paths.reads for one in walkers
                ]
                if is_write and deed != "make" and all(said):
                    self.unclear.setdefault(path, tuple(one.name for one in walkers))
                return
            walkers = [_likely(saying, path)]
        for walker in walkers:
            log = walker.log
            does = {"read": log.reads, "write": log.writes, "remove": log.removes,
                    "make": log.makes}  # fmt: skip
            does[deed](path)


def _likely(walkers: list[_Walker], path: str) -> _Walker:
    """Of several that may do it, the one whose item is in the path; no verdict depends on that."""
    for walker in walkers:
        item = walker.name.partition("[")[2].removesuffix("]")
        if general(path, item) != path:
            return walker
    return walkers[0]


@dataclass(slots=True)
class Compared:
    """Files as they were the last time, where the kernel does not tell what becomes of them."""

    folder: str
    was: dict[str, tuple[int, int, int]] | None = None

    def poll(self) -> list[tuple[str, Deed]]:
        """What is new, different or gone."""
        now = dict(_files(self.folder))
        was, self.was = self.was, now
        if was is None:
            return []
        deeds: list[tuple[str, Deed]] = [
            (path, "write") for path, marks in now.items() if was.get(path) != marks
        ]
        return deeds + [(path, "remove") for path in was if path not in now]

    def close(self) -> None:
        """There is nothing to give back."""


def _files(folder: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    count = 0
    for place, folders, names in os.walk(folder):
        inner = place.removeprefix(folder).lstrip("/")
        folders[:] = [one for one in folders if path_of_interest(one)]
        for name in names:
            path = f"{inner}/{name}" if inner else name
            if path_of_interest(path) is None:
                continue
            count += 1
            if count > FILES_MAX:
                return
            try:
                found = os.stat(os.path.join(place, name), follow_symlinks=False)
            except OSError:
                continue
            yield path, (found.st_mtime_ns, found.st_size, found.st_ino)


def _never(_path: str) -> bool:
    return False
