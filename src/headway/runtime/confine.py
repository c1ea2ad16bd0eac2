"""Keeps functions that are only tried from the user's files, from the network and from programs.

Python tells of what a process is about to do by audit events; here they are refused for every
thread but the one that tries. This is against accidents: code in C need not tell.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from headway.errors import InternalError

_NETWORK: Final = frozenset(
    ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
     "socket.gethostbyname", "socket.gethostbyaddr")
)  # fmt: skip
_PROGRAMS: Final = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
     "os.forkpty", "pty.spawn", "os.startfile")
)  # fmt: skip
_PATHS: Final = {
    "os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.chmod": 1, "os.chown": 1,
    "os.link": 2, "os.symlink": 2, "os.truncate": 1, "os.utime": 1, "shutil.rmtree": 1,
    "sqlite3.connect": 1,
}  # fmt: skip
"""Events about paths, and how many of their arguments are some."""

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CODE: Final = (".py", ".pyc", ".so", ".pyd")


class ConfinedError(PermissionError):
    """A function that is only tried may not do this."""


@dataclass(slots=True)
class Confines:
    """What functions may touch, and who is told of it."""

    folders: tuple[str, ...]
    """Where they may write: absolute, without links."""
    opens: Callable[[str, bool], None]
    """Told of a file within the first folder before it is opened, and whether to be written."""
    owner: int = field(default_factory=threading.get_ident)

    def judge(self, event: str, arguments: tuple[object, ...]) -> None:
        """Refuse what a function must not do; tell of the files that it opens."""
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, (str, bytes)):
                self._open(os.fsdecode(path), str(mode or ""), flags)
        elif event in ("os.listdir", "os.scandir"):
            if isinstance(arguments[0], (str, bytes)):
                self._tell(os.path.realpath(os.fsdecode(arguments[0])), False)
        elif event in _NETWORK:
            raise ConfinedError("`headway explore` has no network: pass --no-python")
        elif event in _PROGRAMS:
            raise ConfinedError("`headway explore` starts no programs: pass --no-python")
        elif event == "os.chdir":
            raise ConfinedError("`headway explore` stays in its folder: pass --no-python")
        elif event in _PATHS:
            for path in arguments[: _PATHS[event]]:
                if isinstance(path, (str, bytes)) and path not in (":memory:", ""):
                    self._change(os.fsdecode(path))

    def _open(self, path: str, mode: str, flags: object) -> None:
        is_write = bool(isinstance(flags, int) and flags & _WRITES) or any(
            letter in mode for letter in "wax+"
        )
        if is_write:
            self._change(path)
        elif not path.endswith(_CODE):
            self._tell(os.path.realpath(path), False)

    def _change(self, path: str) -> None:
        real = os.path.realpath(path)
        if real == os.devnull or "__pycache__" in real:
            return
        if not any(real.startswith(folder + os.sep) for folder in self.folders):
            raise ConfinedError(f"`headway explore` does not write {path}: outside of its copy")
        self._tell(real, True)

    def _tell(self, real: str, is_write: bool) -> None:
        folder = self.folders[0] + os.sep
        if real.startswith(folder) and "__pycache__" not in real:
            self.opens(real[len(folder) :], is_write)


_now: list[Confines] = []
_is_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _now and threading.get_ident() != _now[0].owner:
        _now[0].judge(event, arguments)


@contextmanager
def confined(confines: Confines) -> Iterator[None]:
    """All other threads keep to this, for a while."""
    if _now:
        raise InternalError("two plans are explored at once")
    if not _is_hooked:
        # A hook cannot be taken away again: it does nothing while nobody is confined.
        sys.addaudithook(_hook)
        _is_hooked.append(True)
    _now.append(confines)
    try:
        yield
    finally:
        _now.clear()
