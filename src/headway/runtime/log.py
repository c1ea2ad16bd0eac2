"""What the broker has to say when nobody is there to read it: a file that stays small.

Everything that the process prints goes there too, so that the end of a crash can be read.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

BYTES_MAX: Final = 1024 * 1024
"""Then the file becomes `broker.log.1`, and a new one begins."""

LINE_MAX: Final = 1000
"""Characters of one entry."""


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """A log at an instant."""

    lines: int


class Log:
    """One line per event, with its time."""

    __slots__ = ("_lines", "_path")

    def __init__(self, path: str) -> None:
        """Takes over the standard streams of the process."""
        self._path = path
        self._lines = 0
        self._open()

    def __repr__(self) -> str:
        return f"<Log {self._path}, {self._lines} lines>"

    def say(self, text: str) -> None:
        """Write it down. A log that cannot be written is no reason to stop."""
        self._lines += 1
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} [{os.getpid()}] {text}"
        try:
            if os.fstat(1).st_size > BYTES_MAX:
                os.replace(self._path, f"{self._path}.1")
                self._open()
            os.write(1, line.replace("\n", " ")[:LINE_MAX].encode("utf-8", "replace") + b"\n")
        except OSError:
            return

    def statistics(self) -> LogStatistics:
        return LogStatistics(self._lines)

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
