"""Which files a task's own Python code touches.

Laws:
- Exact: an access counts for the task whose code made it, in whatever thread the task runs.
- Only the plan's folder counts. What tools keep for themselves (hidden folders, compiled modules,
  installed packages) and what is imported is nobody's business.
- What a task wrote and took away again was never there.
- An audit hook cannot be removed: there is one for the whole process, made when it is first needed,
  and it does nothing for code that is no task's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Final, Literal

from msgspec import Struct

from headway.report.detect import DeclaredAccess, ObservedTouch, general, is_said

# What becomes of the files in a folder, as the kernel of Linux tells it (inotify, by ctypes).

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


class Inotify:
    def __init__(self, folder: str, is_wanted: Callable[[str], bool]) -> None:
        self._folder = folder.rstrip("/")
        self._is_wanted = is_wanted
        self._names: dict[int, str] = {}
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

    def poll(self) -> list[tuple[str, Deed]]:
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
                if name and watch in self._names:
                    folder = self._names[watch]
                    self._take(f"{folder}/{name}" if folder else name, mask, deeds)
        return deeds

    def close(self) -> None:
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


# What commands do to the files of a plan's folder, seen from outside.

FILES_MAX: Final = 50_000
"""Files that are compared where the kernel does not tell."""


class _Walker(Struct):
    group: int
    name: str
    may: DeclaredAccess
    log: FileLog


class FolderTrace:
    def __init__(self, folder: str, ignored: str = "") -> None:
        self._folders = folders_of(folder)
        self._ignored = ignored
        self._active: dict[int, _Walker] = {}
        self._source: Inotify | FolderComparison | None = None
        self._reader: int | None = None
        self.problem = ""
        self.unclear: dict[str, tuple[str, ...]] = {}
        """Files that were written by one of these commands, none of which declares that."""
        self.is_ours: Callable[[str], bool] = lambda _: False

    def begin(self, task: int, group: int, name: str, may: DeclaredAccess) -> None:
        if self._source is None:
            self._open()
        self._drain()
        self._active[task] = _Walker(group, name, may, FileLog(self._folders, self._ignored))

    def end(self, task: int) -> FileLog | None:
        self._drain()
        walker = self._active.pop(task, None)
        return None if walker is None else walker.log

    async def aclose(self) -> None:
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
            self._source = FolderComparison(folder)
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
        walkers = list(self._active.values())
        if len({walker.group for walker in walkers}) > 1:
            is_write = deed != "read"
            touch = ObservedTouch(-1, -1, "", "path", path, is_write)
            saying = [one for one in walkers if is_said(one.may, touch)]
            if not saying:
                said = [
                    one.may.paths.writes if is_write else one.may.paths.reads for one in walkers
                ]
                if is_write and deed != "make" and all(said):
                    self.unclear.setdefault(path, tuple(one.name for one in walkers))
                return
            walkers = saying
        log = _likely(walkers, path).log
        does = {"read": log.reads, "write": log.writes, "remove": log.removes, "make": log.makes}
        does[deed](path)


def _likely(walkers: list[_Walker], path: str) -> _Walker:
    """Of several that may do it, the one whose item is in the path; no verdict depends on that."""
    for walker in walkers:
        item = walker.name.partition("[")[2].removesuffix("]")
        if general(path, item) != path:
            return walker
    return walkers[0]


class FolderComparison(Struct):
    """Files as they were the last time, where the kernel does not tell what becomes of them."""

    folder: str
    was: dict[str, tuple[int, int, int]] | None = None

    def poll(self) -> list[tuple[str, Deed]]:
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


PATHS_MAX: Final = 10_000
"""Paths of one attempt that are kept: one that touches more walks through folders."""

_OWN: Final = frozenset({"__pycache__", "site-packages", "node_modules"})
_MODULES: Final = (".py", ".so", ".pyd")
_READERS: Final = ("importlib._bootstrap_external>", "/linecache.py", "/tokenize.py")
_FRAMES_MAX: Final = 3
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Judge = Callable[[str, bool], None]
"""Told a path and whether it is written, before that happens; may raise."""


class FileLog:
    __slots__ = ("_drafts", "_folders", "_ignored", "_judge", "read", "written")

    def __init__(self, folders: tuple[str, ...], ignored: str = "", judge: Judge | None = None):
        """`folders` are the names of the plan's folder; what lies under `ignored` is not seen."""
        self._folders = folders
        self._ignored = ignored
        self._judge = judge
        self.read: dict[str, None] = {}
        self.written: dict[str, None] = {}
        self._drafts: set[str] = set()

    def within(self, path: object, handle: object = -1) -> str | None:
        """A path as seen from the plan's folder; None if it is not watched."""
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str | os.PathLike):
            return None  # A file that is open already.
        text = os.fspath(path)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        if isinstance(handle, int) and handle >= 0 and not text.startswith("/"):
            text = os.path.join(_folder_of(handle), text)
        whole = os.path.abspath(text)
        for folder in self._folders:
            if whole.startswith(folder):
                is_ignored = self._ignored and whole.startswith(self._ignored)
                return None if is_ignored else path_of_interest(whole[len(folder) :])
        return None

    def reads(self, path: str) -> None:
        """A file is read, or (with `/*`) a folder is listed."""
        is_own = path.removesuffix("/*") in self._drafts
        if is_own or path in self.read or len(self.read) >= PATHS_MAX:
            return
        if self._judge is not None:
            self._judge(path, False)
        self.read[path] = None

    def writes(self, path: str) -> None:
        if path in self.written or len(self.written) >= PATHS_MAX:
            return
        if self._judge is not None:
            self._judge(path, True)
        self.written[path] = None
        self._drafts.add(path)

    def makes(self, path: str) -> None:
        self._drafts.add(path)

    def removes(self, path: str) -> None:
        """A file is taken away; if it was this attempt's own, nothing is left of it."""
        if path in self._drafts:
            self._drafts.discard(path)
            self.written.pop(path, None)
            return
        self.writes(path)


CURRENT: Final[ContextVar[FileLog | None]] = ContextVar("file_log", default=None)


def folders_of(folder: str) -> tuple[str, ...]:
    """The names that a folder goes by, each with a slash at its end."""
    names = (os.path.abspath(folder), os.path.realpath(folder))
    return tuple(dict.fromkeys(name.rstrip("/") + "/" for name in names))


def path_of_interest(path: str) -> str | None:
    """A path within the folder; None if it is what tools keep for themselves."""
    parts = path.split("/")
    is_own = any(part[:1] == "." or part in _OWN for part in parts)
    return None if is_own or not path or path.endswith(".pyc") else path


def watch_files() -> None:
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)


_installed: Final[list[bool]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _EVENTS and event not in _PATHS:
        return
    log = CURRENT.get()
    if log is None:
        return
    if event in _EVENTS:
        _EVENTS[event](log, arguments)
        return
    for at, handle_at, does in _PATHS[event]:
        name = log.within(arguments[at], arguments[handle_at] if handle_at else -1)
        if name is not None:
            does(log, name)


def _opened(log: FileLog, arguments: tuple[object, ...]) -> None:
    path, mode, flags = arguments
    name = log.within(path)
    if name is None or (name.endswith(_MODULES) and _is_interpreter()):
        return
    how = flags if isinstance(flags, int) else 0
    if isinstance(mode, str):
        is_write, is_read = any(char in mode for char in "wax+"), "r" in mode or "+" in mode
    else:
        is_write, is_read = bool(how & _WRITING), how & os.O_ACCMODE != os.O_WRONLY
    if is_read and not how & getattr(os, "O_DIRECTORY", 0):
        log.reads(name)
    if is_write:
        log.writes(name)


def _is_interpreter() -> bool:
    """Whether a module is read to be imported, or for a traceback: no deed of the task's code."""
    frame = sys._getframe(3)  # The caller of `open`.
    for _ in range(_FRAMES_MAX):
        if frame.f_code.co_filename.endswith(_READERS):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _made(log: FileLog, arguments: tuple[object, ...]) -> None:
    path, _, handle = arguments
    name = log.within(path, handle)
    if name is not None and isinstance(path, str) and not os.path.isdir(path):
        log.makes(name)


def _listed(log: FileLog, arguments: tuple[object, ...]) -> None:
    path = arguments[0]
    name = log.within("." if path is None else path)
    if name is not None:
        log.reads(name + "/*")


def _connected(log: FileLog, arguments: tuple[object, ...]) -> None:
    """SQLite opens its file by itself."""
    path = arguments[0]
    is_readable = isinstance(path, str) and path.startswith("file:") and "mode=ro" in path
    if isinstance(path, str) and path.startswith("file:"):
        path = path.removeprefix("file:").partition("?")[0]
    name = None if path in (":memory:", "") else log.within(path)
    if name is not None:
        log.reads(name)
        if not is_readable:
            log.writes(name)


def _folder_of(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return "/"  # Unknown: then it counts for no task.


_EVENTS: Final[dict[str, Callable[[FileLog, tuple[object, ...]], None]]] = {
    "open": _opened, "os.mkdir": _made, "os.listdir": _listed, "os.scandir": _listed,
    "sqlite3.connect": _connected,
}  # fmt: skip
_PATHS: Final[dict[str, tuple[tuple[int, int, Callable[[FileLog, str], None]], ...]]] = {
    "os.remove": ((0, 1, FileLog.removes),), "os.rmdir": ((0, 1, FileLog.removes),),
    "os.rename": ((0, 2, FileLog.removes), (1, 3, FileLog.writes)),
    "os.link": ((1, -1, FileLog.writes),), "os.symlink": ((1, -1, FileLog.writes),),
    "os.truncate": ((0, 0, FileLog.writes),),
}  # fmt: skip
"""By event: the place of a path, that of the folder it is seen from (0: none), and what is done."""
