"""Starts the broker: the process that gets the file lock passes it on to the new broker.

Laws:
- The lock is held from before the broker starts until after it ends: there is never a second
  one, and a crowd that finds none starts exactly one.
- The new process has no parent here and none of the starter's secrets: it gets those
  variables that say where things are, and no others.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import headway
from headway.base.folders import RUNTIME_DIR, STATE_DIR, Folders
from headway.errors import StateFileError

# The socket where clients look for the broker: there before anything else of it is.

BACKLOG: Final = 128
"""Clients that connect in the same instant: all of a large run when its broker was killed."""


class BrokerSocket:
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

    def is_found(self) -> bool:
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def close(self, is_awaited: bool) -> None:
        """The file stays if clients will come back, as a sign to the heir."""
        if not is_awaited and self.is_found():
            os.unlink(self._path)
        self.listener.close()


START_S_MAX: Final = 10.0
"""How long a new process may take until it is on its own."""
_PASSED: Final = frozenset(
    ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SYSTEMROOT", "TMPDIR", "TZ", "USER")
)
_PASSED_BEGINNINGS: Final = ("HEADWAY_", "LC_", "PYTHON", "XDG_")
"""What a program needs to find its files and itself; keys of providers are not among them."""
_HELD: Final[set[int]] = set()
"""Lock files that are open here just now. A child that is forked meanwhile must not keep them."""


def take_lock(place: Folders) -> int | None:
    """The lock, or None while another process has it. It is free when all holders have ended."""
    try:
        handle = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StateFileError(f"{place.lock} cannot be opened: {fault.strerror}") from None
    _HELD.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        drop_lock(handle)
        return None
    return handle


def drop_lock(handle: int) -> None:
    _HELD.discard(handle)
    os.close(handle)


def start(place: Folders) -> str:
    """Start a broker unless one runs or is being started; what went wrong, or nothing."""
    handle = take_lock(place)
    if handle is None:
        return ""
    # -P: a file in the current folder is not a module of ours.
    command = [sys.executable, "-P", "-m", "headway.broker.process", "--lock", str(handle)]
    null = subprocess.DEVNULL
    try:
        # The process forks and its first half ends at once, so that no parent has to wait for it.
        ended = subprocess.run(
            command, stdin=null, stdout=null, stderr=subprocess.PIPE, pass_fds=(handle,), cwd="/",
            env=environment(place, os.environ), start_new_session=True, timeout=START_S_MAX,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as fault:
        return f"{sys.executable} could not be started: {fault}"
    finally:
        drop_lock(handle)
    if ended.returncode != 0:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"a new broker ended at once: {' '.join(last)[:200] or ended.returncode}"
    return ""


def environment(place: Folders, environ: Mapping[str, str]) -> dict[str, str]:
    passed = {
        name: value
        for name, value in environ.items()
        if name in _PASSED or name.startswith(_PASSED_BEGINNINGS)
    }
    root = os.path.dirname(os.path.dirname(os.path.abspath(headway.__file__)))
    path = passed.get("PYTHONPATH")
    passed["PYTHONPATH"] = f"{root}{os.pathsep}{path}" if path else root
    passed[RUNTIME_DIR] = place.runtime
    passed[STATE_DIR] = place.state
    return passed


def _after_fork() -> None:
    for handle in list(_HELD):
        drop_lock(handle)


os.register_at_fork(after_in_child=_after_fork)


# The broker's log: a file that stays small.

BYTES_MAX: Final = 1024 * 1024
"""Then the file becomes `broker.log.1`, and a new one begins."""
LINE_MAX: Final = 1000
"""Characters of one entry."""


class BrokerLog:
    def __init__(self, path: str) -> None:
        """Takes over the standard streams of the process."""
        self._path = path
        self._open()

    def say(self, text: str) -> None:
        """Write it down. A log that cannot be written is no reason to stop."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} [{os.getpid()}] {text}"
        try:
            if os.fstat(1).st_size > BYTES_MAX:
                os.replace(self._path, f"{self._path}.1")
                self._open()
            os.write(1, line.replace("\n", " ")[:LINE_MAX].encode("utf-8", "replace") + b"\n")
        except OSError:
            return

    def _open(self) -> None:
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:
            handle = os.open(os.devnull, os.O_WRONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(nothing)
        os.close(handle)
