"""Which files of a plan's folder a task's own Python code touches, told by the interpreter itself.

Laws:
- Exact: an access counts for the task whose code made it, in whatever thread the task runs.
- Only the plan's folder counts. What tools keep for themselves (hidden folders, compiled modules,
  installed packages) and what is imported is nobody's business.
- What a task wrote and took away again was never there.
- An audit hook cannot be removed: there is one for the whole process, made when it is first needed,
  and it does nothing for code that is no task's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

PATHS_MAX: Final = 10_000
"""Paths of one attempt that are kept: whoever touches more walks through folders."""

_OWN: Final = frozenset({"__pycache__", "site-packages", "node_modules"})
_MODULES: Final = (".py", ".so", ".pyd")
_READERS: Final = ("importlib._bootstrap_external>", "/linecache.py", "/tokenize.py")
_FRAMES_MAX: Final = 3
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Judge = Callable[[str, bool], None]
"""Told a path and whether it is written, before that happens; may raise."""


@dataclass(frozen=True, slots=True)
class FileLogStatistics:
    """How many paths were read and written."""

    read: int
    written: int


class FileLog:
    """The files that one attempt has touched."""

    __slots__ = ("_drafts", "_folders", "_ignored", "_judge", "read", "written")

    def __init__(self, folders: tuple[str, ...], ignored: str = "", judge: Judge | None = None):
        """`folders` are the names of the plan's folder; what lies under `ignored` is not seen."""
        self._folders = folders
        self._ignored = ignored
        self._judge = judge
        self.read: dict[str, None] = {}
        self.written: dict[str, None] = {}
        self._drafts: set[str] = set()
        """What this attempt has made itself."""

    def __repr__(self) -> str:
        return f"<FileLog {self.statistics()}>"

    def statistics(self) -> FileLogStatistics:
        return FileLogStatistics(len(self.read), len(self.written))

    def within(self, path: object, handle: object = -1) -> str | None:
        """A path as seen from the plan's folder; None if it is nobody's business."""
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
                return None if self._is_ignored(whole) else path_of_interest(whole[len(folder) :])
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
        """A file is made or changed."""
        if path in self.written or len(self.written) >= PATHS_MAX:
            return
        if self._judge is not None:
            self._judge(path, True)
        self.written[path] = None
        self._drafts.add(path)

    def makes(self, path: str) -> None:
        """A folder is made: what is in it counts, not the folder."""
        self._drafts.add(path)

    def removes(self, path: str) -> None:
        """A file is taken away; if it was this attempt's own, nothing is left of it."""
        if path in self._drafts:
            self._drafts.discard(path)
            self.written.pop(path, None)
            return
        self.writes(path)

    def _is_ignored(self, whole: str) -> bool:
        return bool(self._ignored) and whole.startswith(self._ignored)


CURRENT: Final[ContextVar[FileLog | None]] = ContextVar("file_log", default=None)
"""Of the attempt whose code runs here."""


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
    """Make the hook, if it is not there yet."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)


_installed: Final[list[bool]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    told = _EVENTS.get(event)
    if told is not None:
        log = CURRENT.get()
        if log is not None:
            told(log, arguments)


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
    frame = sys._getframe(3)  # Whoever called `open`.
    for _ in range(_FRAMES_MAX):
        if frame.f_code.co_filename.endswith(_READERS):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _removed(log: FileLog, arguments: tuple[object, ...]) -> None:
    name = log.within(*arguments[:2])
    if name is not None:
        log.removes(name)


def _made(log: FileLog, arguments: tuple[object, ...]) -> None:
    path, _, handle = arguments
    name = log.within(path, handle)
    if name is not None and isinstance(path, str) and not os.path.isdir(path):
        log.makes(name)


def _renamed(log: FileLog, arguments: tuple[object, ...]) -> None:
    old, new, old_handle, new_handle = arguments
    for path, handle, told in ((old, old_handle, log.removes), (new, new_handle, log.writes)):
        name = log.within(path, handle)
        if name is not None:
            told(name)


def _linked(log: FileLog, arguments: tuple[object, ...]) -> None:
    name = log.within(arguments[1], arguments[-1])
    if name is not None:
        log.writes(name)


def _cut(log: FileLog, arguments: tuple[object, ...]) -> None:
    name = log.within(arguments[0])
    if name is not None:
        log.writes(name)


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
        return "/"  # Nobody can tell: then it counts for nobody.


_EVENTS: Final[dict[str, Callable[[FileLog, tuple[object, ...]], None]]] = {
    "open": _opened,
    "os.remove": _removed,
    "os.rmdir": _removed,
    "os.mkdir": _made,
    "os.rename": _renamed,
    "os.link": _linked,
    "os.symlink": _linked,
    "os.truncate": _cut,
    "os.listdir": _listed,
    "os.scandir": _listed,
    "sqlite3.connect": _connected,
}
