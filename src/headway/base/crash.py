"""Dies at a named place, so that tests can see what a crash there leaves behind.

`HEADWAY_CRASH_AT=NAME:COUNT` kills this process when it comes to that place for the COUNT-th time;
`NAME:COUNT:group` kills its whole process group. Without the variable a place costs a comparison.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "HEADWAY_CRASH_AT"


class Fuse:
    """Counts how often a place was passed, up to the last time."""

    def __init__(self, said: str) -> None:
        self._name, _, rest = said.partition(":")
        count, _, whom = rest.partition(":")
        self._left = int(count or 1)
        self._takes_group = whom == "group"

    def __repr__(self) -> str:
        return f"<Fuse at {self._name}, {self._left} left>"

    def passed(self, name: str) -> None:
        if name != self._name:
            return
        self._left -= 1
        if self._left == 0:
            # Nothing may run after this: no handler, no buffer, no goodbye.
            if self._takes_group:
                os.killpg(0, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


def _read() -> Fuse | None:
    """Taken out of the environment: what this process starts shall not die with it."""
    said = os.environ.pop(VARIABLE, None)
    return Fuse(said) if said else None


_fuse: Final = _read()


def crash_point(name: str) -> None:
    """The place of this name."""
    if _fuse is not None:
        _fuse.passed(name)
