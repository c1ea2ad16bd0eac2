"""The record of what commands gave, kept by the shim: durable before anybody hears of it.

A line for each attempt, with a checksum: a torn one is no line. Imports only what is imported
anyway, like `shim.py`, and for its reason.
"""

from __future__ import annotations

import binascii
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INLINE_BYTES_MAX = 16_384
"""Output up to this size is kept in the log itself: one sync for all that ended together."""
LOG_NAME = "shim.log"
OUT_NAME = "out"
LOG_VERSION = b"1"
IN_FILE = b"."

EXIT, TIMEOUT, CANCELLED, ORPHANED, REFUSED = "exit", "timeout", "cancelled", "orphaned", "refused"
"""Why a command ended: by itself, or who ended it; or the system would not start it."""


def sealed(fields: list[bytes]) -> bytes:
    """A line of the log: a checksum, then the fields."""
    line = b" ".join(fields)
    return b"%08x %s\n" % (binascii.crc32(line), line)


def unsealed(line: bytes) -> list[bytes] | None:
    """The fields of a line; None if it is torn, damaged, or of another version."""
    checksum, _, rest = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % binascii.crc32(rest):
        return None
    fields = rest.split(b" ")
    return fields[1:] if fields[0] == LOG_VERSION else None


def output_path(folder: str, key: str, attempt: int, stream: str) -> str:
    """Where an attempt's `out` or `err` goes while it runs, and stays if it is long."""
    return f"{folder}/{OUT_NAME}/{key}.{attempt}.{stream}"


class Running:
    """A command that was started."""

    def __init__(self, id: int, key: str, attempt: int) -> None:
        self.id = id
        self.key = key
        self.attempt = attempt
        self.pid = 0
        self.place = 0
        self.started_s = time.monotonic()
        self.started_ms = time.time_ns() // 1_000_000
        self.reason = EXIT
        self.kill_s = float("inf")
        self.family: dict[int, int] = {}
        self.status: int | None = None
        self.usage = (0, 0)

    def __repr__(self) -> str:
        return f"Running({self.key}.{self.attempt}, pid {self.pid}, {self.reason})"


class Log:
    """The record of what ended."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        path = f"{folder}/{LOG_NAME}"
        os.makedirs(f"{folder}/{OUT_NAME}", mode=0o700, exist_ok=True)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self.fd).st_size
        self.is_torn = size > 0 and os.pread(self.fd, 1, size - 1) != b"\n"
        sync_folder(folder)

    def keep(self, ended: list[Running]) -> list[tuple[Any, ...]]:
        """Make durable what these gave; the messages that may be sent now."""
        lines: list[bytes] = []
        messages: list[tuple[Any, ...]] = []
        paths: list[str] = []
        is_long = False
        for command in ended:
            texts: list[bytes | None] = []
            sizes: list[int] = []
            for stream in ("out", "err"):
                path = output_path(self.folder, command.key, command.attempt, stream)
                size, text = take(path)
                sizes.append(size)
                texts.append(text)
                if text is None:
                    is_long = True
                else:
                    paths.append(path)
            facts = self._facts(command)
            lines.append(self._line(command, facts, sizes, texts))
            messages.append(("ended", command.id, *facts, *sizes, *texts))
        try:
            if is_long:
                sync_folder(f"{self.folder}/{OUT_NAME}")
            self._append(b"".join(lines))
        except OSError:
            # A full disk: the outputs stay as files, and headway's journal is told all the same.
            self.is_torn = True
            return messages
        for path in paths:
            unlink(path)
        return messages

    def _facts(self, command: Running) -> tuple[str, int, int, int, int, int]:
        wall_ms = int((time.monotonic() - command.started_s) * 1000)
        status = command.status
        code = -9 if status is None else os.waitstatus_to_exitcode(status)
        return (command.reason, code, *command.usage, command.started_ms, wall_ms)

    def _line(
        self,
        command: Running,
        facts: tuple[str, int, int, int, int, int],
        sizes: list[int],
        texts: list[bytes | None],
    ) -> bytes:
        fields = [LOG_VERSION, command.key.encode(), b"%d" % command.attempt]
        fields += [str(fact).encode() for fact in (*facts, *sizes)]
        for text in texts:
            kept = IN_FILE if text is None else b"=" + binascii.b2a_base64(text, newline=False)
            fields.append(kept)
        return sealed(fields)

    def _append(self, lines: bytes) -> None:
        if self.is_torn:
            lines = b"\n" + lines
        while lines:
            lines = lines[os.write(self.fd, lines) :]
        os.fsync(self.fd)
        self.is_torn = False


def take(path: str) -> tuple[int, bytes | None]:
    """The size of an output and, if it is short, the output; a long one is synced where it is."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return 0, b""
    try:
        text = os.read(fd, INLINE_BYTES_MAX + 1)
        if len(text) <= INLINE_BYTES_MAX:
            return len(text), text
        os.fsync(fd)
        return os.fstat(fd).st_size, None
    finally:
        os.close(fd)


def unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
