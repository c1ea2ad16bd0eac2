"""Which files a task uses: its own Python code by audit events, its commands by their observation.

Laws:
- Exact for Python code: a use counts for the task whose code made it, in whatever thread it runs.
- Only the plan's folder counts. What tools keep for themselves (caches, git, installed packages)
  and what is imported does not count.
- An audit hook cannot be removed: there is one for the whole process, made when it is first needed,
  and it does nothing for code that is no task's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final

from headway.base.file_use import APPEND, DRAFT, MADE, READ, REMOVE, WRITE
from headway.report.findings import DATABASE, FileUse

PATHS_MAX: Final = 10_000
"""Paths of one attempt that are kept: one that touches more walks through folders."""

_OWN: Final = frozenset(
    {"__pycache__", "site-packages", "node_modules", ".git", ".hg", ".venv", ".tox", ".nox",
     ".hypothesis", ".cache", ".DS_Store", ".coverage"}
)  # fmt: skip
_GIT: Final = (".git/HEAD", ".git/refs/heads/")
"""The branches of a repository: two tasks that commit to one of them at the same time clash."""
_MODULES: Final = (".py", ".so", ".pyd")
_READERS: Final = ("importlib._bootstrap_external>", "/linecache.py", "/tokenize.py")
_TOOLS: Final = "/agents/tools.py"
_FRAMES_MAX: Final = 3
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND


class FileLog:
    """What one attempt of a task uses."""

    __slots__ = ("_folders", "_ignored", "is_coded", "unseen", "uses")

    def __init__(self, folders: tuple[str, ...], ignored: str = "", is_coded: bool = True) -> None:
        """`folders` are the names of the plan's folder; what lies under `ignored` is not seen."""
        self.is_coded = is_coded
        """Whether Python code in this process is the task's own."""
        self._folders = folders
        self._ignored = ignored
        self.uses: dict[str, list[float]] = {}
        """When a path was first used, how at all, how at first, and until when."""
        self.unseen = ""
        """Why something was not seen, if so."""

    def within(self, path: object, handle: object = -1) -> str | None:
        """A path as seen from the plan's folder; None if it does not count."""
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

    def use(
        self, path: str, use: int, at_s: float = 0.0, at_first: int = 0, to_s: float = 0.0
    ) -> None:
        """A file is used, or (with `/*`) a folder is listed; what is its own is not read."""
        known = self.uses.get(path)
        if known is None:
            if len(self.uses) >= PATHS_MAX:
                self.unseen = f"it used more than {PATHS_MAX:,} files"
                return
            if use != READ and at_s == 0.0 and not os.path.lexists(self._folders[-1] + path):
                use = use & ~READ | MADE
            self.uses[path] = [at_s or time.time(), use, at_first or use, to_s]
            return
        bits, first = int(known[1]), int(known[2])
        if use == READ and first & (READ | WRITE) == WRITE:
            return
        known[1], known[3] = bits | use, max(known[3], to_s)

    def observed(self, uses: Iterable[tuple[str, float, int, int]]) -> None:
        """What a command has used that ends now."""
        now_s = time.time()
        for name, at_s, use, at_first in uses:
            inner = (name[len(one) :] for one in self._folders if name.startswith(one))
            path = next(inner, name)
            is_ignored = self._ignored and path.startswith(self._ignored)
            if not is_ignored and path_of_interest(path):
                self.use(path, use, at_s, at_first, now_s)

    def ended(self) -> tuple[FileUse, ...]:
        """Everything, when the attempt has ended; folders are not files."""
        now_s, every = time.time(), []
        for path, (from_s, use, at_first, to_s) in self.uses.items():
            bits = int(use)
            if bits & ~READ:
                whole = os.path.join(self._folders[-1], path)
                if os.path.isdir(whole):
                    continue
                if int(at_first) & MADE and not os.path.lexists(whole):
                    bits |= DRAFT
            every.append(FileUse(path, from_s, to_s or now_s, bits))
        return tuple(every)


CURRENT: Final[ContextVar[FileLog | None]] = ContextVar("file_log", default=None)


def folders_of(folder: str) -> tuple[str, ...]:
    """The names that a folder goes by, each with a slash at its end."""
    names = (os.path.abspath(folder), os.path.realpath(folder))
    return tuple(dict.fromkeys(name.rstrip("/") + "/" for name in names))


def path_of_interest(path: str) -> str | None:
    """A path within the folder; None if it is what tools keep for themselves."""
    if path.rpartition(".git/")[1] and any(mark in path for mark in _GIT):
        return path
    parts = path.split("/")
    is_own = any(part in _OWN or part.endswith("_cache") for part in parts)
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
    if log is None or not log.is_coded:
        return
    if event in _EVENTS:
        _EVENTS[event](log, arguments)
        return
    for at, handle_at, use in _PATHS[event]:
        name = log.within(arguments[at], arguments[handle_at] if handle_at else -1)
        if name is not None:
            log.use(name, use)


def _opened(log: FileLog, arguments: tuple[object, ...]) -> None:
    path, mode, flags = arguments
    name = log.within(path)
    if name is None or (name.endswith(_MODULES) and _is_called_by(_READERS)):
        return
    how = flags if isinstance(flags, int) else 0
    if mode is None and not os.path.isabs(os.fspath(path)) and _is_called_by((_TOOLS,)):  # type: ignore[call-overload]
        return  # Relative to a folder that is open: the tool says itself what it uses.
    if isinstance(mode, str):
        is_write, is_read = any(char in mode for char in "wax+"), "r" in mode or "+" in mode
        is_read |= "+" in mode and "w" not in mode
        use = APPEND if "a" in mode and "+" not in mode else WRITE
    else:
        is_write = bool(how & _WRITING)
        is_read = not how & (os.O_TRUNC | os.O_APPEND | os.O_EXCL)
        use = APPEND if how & os.O_APPEND and how & os.O_ACCMODE == os.O_WRONLY else WRITE
    if is_write:
        log.use(name, use | READ if is_read else use)
    elif mode is not None or not os.path.isdir(os.fspath(path)):  # type: ignore[call-overload]
        log.use(name, READ)


def _is_called_by(files: tuple[str, ...]) -> bool:
    """Whether a module is read to be imported, or for a traceback: no deed of the task's code."""
    frame = sys._getframe(3)  # The caller of `open`.
    for _ in range(_FRAMES_MAX):
        if frame.f_code.co_filename.endswith(files):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _listed(log: FileLog, arguments: tuple[object, ...]) -> None:
    path = arguments[0]
    name = log.within("." if path is None else path)
    if name is not None:
        log.use(name + "/*", READ)


def _connected(log: FileLog, arguments: tuple[object, ...]) -> None:
    """SQLite opens its file by itself."""
    path = arguments[0]
    is_readable = isinstance(path, str) and path.startswith("file:") and "mode=ro" in path
    if isinstance(path, str) and path.startswith("file:"):
        path = path.removeprefix("file:").partition("?")[0]
    name = None if path in (":memory:", "") else log.within(path)
    if name is not None:
        log.use(name, READ if is_readable else READ | WRITE)
        log.use(name + DATABASE[0], READ)


def _started(log: FileLog, arguments: tuple[object, ...]) -> None:
    """A program that Python code starts by itself is not observed."""
    log.unseen = f"it started {str(arguments[0])[:80]!r}, whose files are not seen"


def _tool_used(log: FileLog, arguments: tuple[object, ...]) -> None:
    path, use = arguments
    if isinstance(path, str) and isinstance(use, int) and path_of_interest(path):
        log.use(path, use)


def _folder_of(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return "/"  # Unknown: then it counts for no task.


_EVENTS: Final[dict[str, Callable[[FileLog, tuple[object, ...]], None]]] = {
    "open": _opened, "os.listdir": _listed, "os.scandir": _listed, "sqlite3.connect": _connected,
    "subprocess.Popen": _started, "os.system": _started, "os.posix_spawn": _started,
    "os.exec": _started, "headway.file": _tool_used,
}  # fmt: skip
_PATHS: Final[dict[str, tuple[tuple[int, int, int], ...]]] = {
    "os.remove": ((0, 1, REMOVE),), "os.rename": ((0, 2, REMOVE), (1, 3, WRITE)),
    "os.link": ((1, -1, WRITE),), "os.symlink": ((1, -1, WRITE),),
    "os.truncate": ((0, 0, WRITE),),
}  # fmt: skip
"""By event: the place of a path, that of the folder it is seen from (0: none), and its use."""
