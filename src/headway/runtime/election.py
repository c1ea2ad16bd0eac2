"""Starts the broker: whoever gets the file lock hands it, held, to the new process.

Laws:
- The lock is held from before the broker starts until after it ends: there is never a second
  one, and a crowd that finds none starts exactly one.
- The new process is nobody's child and has none of the starter's secrets: it gets those
  variables that say where things are, and no others.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import headway
from headway.errors import StateFileError
from headway.runtime.folders import RUNTIME_DIR, STATE_DIR, Folders

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
    """The lock, or None while somebody has it. It is free again when all holders have ended."""
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
    """This process is no longer a holder."""
    _HELD.discard(handle)
    os.close(handle)


def start(place: Folders) -> str:
    """Start a broker unless there is one or somebody is at it; what went wrong, or nothing."""
    handle = take_lock(place)
    if handle is None:
        return ""
    try:
        return _launch(place, handle)
    finally:
        drop_lock(handle)


def environment(place: Folders, environ: Mapping[str, str]) -> dict[str, str]:
    """What the broker gets to see of its starter's variables."""
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


def _launch(place: Folders, handle: int) -> str:
    # -P: a file in the current folder is not a module of ours.
    command = [sys.executable, "-P", "-m", "headway.runtime.broker", "--lock", str(handle)]
    try:
        # The process forks and its first half ends at once, so that nobody has to wait for it.
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(handle,),
            cwd="/",
            env=environment(place, os.environ),
            start_new_session=True,
            timeout=START_S_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as fault:
        return f"{sys.executable} could not be started: {fault}"
    if ended.returncode != 0:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"a new broker ended at once: {' '.join(last)[:200] or ended.returncode}"
    return ""


def _after_fork() -> None:
    for handle in list(_HELD):
        drop_lock(handle)


os.register_at_fork(after_in_child=_after_fork)
