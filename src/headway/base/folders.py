"""The folders of headway's state on this machine.

Laws:
- The runtime folder belongs to the user alone (0700): another user who can write there could
  answer in the broker's name. A folder that does not is refused, never mended.
- Nothing is written anywhere else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from headway.errors import StateFileError

RUNTIME_DIR: Final = "HEADWAY_RUNTIME_DIR"
STATE_DIR: Final = "HEADWAY_STATE_DIR"
CONFIG_DIR: Final = "HEADWAY_CONFIG_DIR"
XDG_RUNTIME: Final = "XDG_RUNTIME_DIR"
TEMPORARY: Final = ("TMPDIR", "TEMP", "TMP")
DEFAULT: Final = "the default"

SOCKET_PATH_BYTES_MAX: Final = 103
"""The shortest limit of a socket's path among systems: macOS has 104 bytes with the zero."""


class Folders(Struct, frozen=True):
    """The runtime and the state folder, and the files in them."""

    runtime: str
    state: str
    runtime_by: str = ""
    state_by: str = ""
    """The variables by which they were chosen, or `the default`."""

    @property
    def socket(self) -> str:
        return os.path.join(self.runtime, "broker.sock")

    @property
    def lock(self) -> str:
        return os.path.join(self.runtime, "broker.lock")

    @property
    def log(self) -> str:
        return os.path.join(self.state, "broker.log")

    @property
    def memory(self) -> str:
        return os.path.join(self.state, "memory.dat")


def folders(environ: Mapping[str, str]) -> Folders:
    """Where they are for this user; nothing is made or looked at yet."""
    runtime, runtime_by = _runtime(environ)
    state, state_by = _chosen(environ, STATE_DIR, "XDG_STATE_HOME", "~/.local/state")
    return Folders(runtime, state, runtime_by, state_by)


def config_folder(environ: Mapping[str, str]) -> tuple[str, str]:
    """The folder of the configuration, and the variable that it is chosen by."""
    return _chosen(environ, CONFIG_DIR, "XDG_CONFIG_HOME", "~/.config")


def prepare(place: Folders) -> None:
    """Make what is missing, the state folder if possible: pacing needs no disk; `StateFileError` if
    the runtime folder is not ours alone."""
    _make(place.runtime)
    _check(place.runtime)
    if len(os.fsencode(place.socket)) > SOCKET_PATH_BYTES_MAX:
        raise StateFileError(
            f"{place.socket} is too long for the path of a socket",
            hint=f"set {RUNTIME_DIR} to a folder with a shorter name",
        )
    if not os.access(place.runtime, os.W_OK | os.X_OK):
        raise _refused(place.runtime, "cannot be written to")
    try:
        _make(place.state)
    except StateFileError:
        return


def _runtime(environ: Mapping[str, str]) -> tuple[str, str]:
    """The folder and the variable that chose it; the last resort is named by the user's id."""
    if environ.get(RUNTIME_DIR) or environ.get(XDG_RUNTIME):
        return _chosen(environ, RUNTIME_DIR, XDG_RUNTIME, "")
    import tempfile  # Slow to import, and rarely needed.

    temporary = tempfile.gettempdir()
    named_by = (name for name in TEMPORARY if environ.get(name))
    by = next((name for name in named_by if os.path.abspath(environ[name]) == temporary), DEFAULT)
    return os.path.join(temporary, f"headway-{os.getuid()}"), by


def _chosen(environ: Mapping[str, str], own: str, shared: str, usual: str) -> tuple[str, str]:
    if named := environ.get(own):
        return os.path.abspath(named), own
    if named := environ.get(shared):
        return os.path.join(os.path.abspath(named), "headway"), shared
    return os.path.join(os.path.expanduser(usual), "headway"), "HOME"


def _make(path: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.mkdir(path, mode=0o700)
    except FileExistsError:
        if not os.path.lexists(path):
            raise _refused(path, "cannot be made: what it would be in is no folder") from None
    except OSError as fault:
        raise _refused(path, f"cannot be made: {fault.strerror}") from None


def _check(path: str) -> None:
    try:
        found = os.lstat(path)
    except OSError as fault:
        raise _refused(path, f"cannot be looked at: {fault.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(path, "is not a folder")
    if found.st_uid != os.geteuid():
        raise _refused(path, "belongs to another user")
    if found.st_mode & 0o077:
        raise _refused(path, "is open to others", f"chmod 700 {path}")


def _refused(path: str, why: str, hint: str = "") -> StateFileError:
    return StateFileError(
        f"{path} {why}", hint=hint or f"set {RUNTIME_DIR} to a folder of your own"
    )
