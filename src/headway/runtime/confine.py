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
_NONE: Final = 1 << 10
"""Where no argument is."""
_PROGRAMS: Final = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
     "os.forkpty", "pty.spawn", "os.startfile")
)  # fmt: skip
_PATHS: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "os.remove": ((0, 1),), "os.rename": ((0, 2), (1, 3)), "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),), "os.chmod": ((0, 2),), "os.chown": ((0, 3),),
    "os.link": ((0, 2), (1, 3)), "os.symlink": ((0, 2), (1, 2)), "os.truncate": ((0, _NONE),),
    "os.utime": ((0, 3),), "os.setxattr": ((0, _NONE),), "os.removexattr": ((0, _NONE),),
    "shutil.rmtree": ((0, 1),), "sqlite3.connect": ((0, _NONE),),
}  # fmt: skip
"""Events about paths: which of their arguments are some, and which is the folder of each."""

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
            for at, folder_at in _PATHS[event]:
                path = arguments[at]
                if isinstance(path, (str, bytes, os.PathLike)) and path not in (":memory:", ""):
                    self._change(_within(os.fsdecode(path), arguments[folder_at : folder_at + 1]))

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


def _within(path: str, folder: tuple[object, ...]) -> str:
    """A path from the folder that an open descriptor stands for, if there is one."""
    if folder in ((), (None,), (-1,)) or os.path.isabs(path):
        return path
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder[0]}"), path)
    except OSError:
        raise ConfinedError(f"`headway explore` cannot tell where {path} is: dir_fd") from None


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
