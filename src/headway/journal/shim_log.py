"""The shim's log of finished commands, durable before they are reported.

A line for each attempt, with a checksum: a torn one is no line. A command starts only if the log
has room for its end, whatever happens to the disk meanwhile: zeros that are there already.

Imports only what is imported anyway, like `shim.py`, and for its reason.
"""

from __future__ import annotations

import binascii
import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.agents.shim import Stream

ROOM_BYTES = 4 * 1024 * 1024
"""Set aside for the ends of what runs: a hundred usual answers of agents."""
LOG_NAME = "shim.log"
OUT_NAME = "out"
LOG_VERSION = b"1"
IN_FILE = b"."

EXIT, TIMEOUT, STUCK, CANCELLED = "exit", "timeout", "stuck", "cancelled"
ORPHANED, REFUSED = "orphaned", "refused"
"""Why a command ended: by itself, or what ended it; or the system did not start it."""


def sealed(fields: list[bytes]) -> bytes:
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


class StartedCommand:
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
        self.streams: list[Stream] = []
        self.ends: list[tuple[int, bytes | None]] = []
        """Of stdout and stderr: the size, and the text unless a file has it."""


class ShimLog:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        path = f"{folder}/{LOG_NAME}"
        os.makedirs(f"{folder}/{OUT_NAME}", mode=0o700, exist_ok=True)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.at = written_bytes(self.fd)
        self.room_end = 0
        self.is_torn = self.at > 0 and os.pread(self.fd, 1, self.at - 1) != b"\n"
        sync_folder(folder)

    def must_have_room(self) -> None:
        """OSError if the disk has no room for the ends of commands."""
        if self.room_end - self.at >= ROOM_BYTES // 2:
            return
        try:
            set_aside(self.fd, self.at, ROOM_BYTES)
        except OSError as fault:
            if fault.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
        self.room_end = self.at + ROOM_BYTES

    def keep(self, ended: list[StartedCommand]) -> list[tuple[Any, ...]]:
        """Make durable what these gave; the messages that may be sent now."""
        lines: list[bytes] = []
        messages: list[tuple[Any, ...]] = []
        is_long = False
        for command in ended:
            sizes, texts = [end[0] for end in command.ends], [end[1] for end in command.ends]
            is_long = is_long or None in texts
            facts = self._facts(command)
            lines.append(self._line(command, facts, sizes, texts))
            messages.append(("ended", command.id, *facts, *sizes, *texts))
        try:
            if is_long:
                sync_folder(f"{self.folder}/{OUT_NAME}")
            self._append(b"".join(lines))
        except OSError:
            # No room was left in the log either: headway's journal gets the end all the same.
            self.is_torn = True
        return messages

    def close(self) -> None:
        """Give back the room that was not used."""
        try:
            os.ftruncate(self.fd, self.at)
        except OSError:
            return

    def _facts(self, command: StartedCommand) -> tuple[str, int, int, int, int, int]:
        wall_ms = int((time.monotonic() - command.started_s) * 1000)
        status = command.status
        code = -9 if status is None else os.waitstatus_to_exitcode(status)
        return (command.reason, code, *command.usage, command.started_ms, wall_ms)

    def _line(
        self, command: StartedCommand, facts: tuple[str, int, int, int, int, int], sizes: list[int],
        texts: list[bytes | None],
    ) -> bytes:  # fmt: skip
        fields = [LOG_VERSION, command.key.encode(), b"%d" % command.attempt]
        fields += [str(fact).encode() for fact in (*facts, *sizes)]
        for text in texts:
            kept = IN_FILE if text is None else b"=" + binascii.b2a_base64(text, newline=False)
            fields.append(kept)
        return sealed(fields)

    def _append(self, lines: bytes) -> None:
        if self.is_torn:
            lines = b"\n" + lines
        at = self.at
        while lines:
            written = os.pwrite(self.fd, lines, at)
            at, lines = at + written, lines[written:]
        os.fsync(self.fd)
        self.at, self.is_torn = at, False


def written_bytes(fd: int) -> int:
    """The size of a log without the zeros that were set aside at its end."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - 65_536)
        text = os.pread(fd, end - start, start).rstrip(b"\0")
        if text:
            return start + len(text)
        end = start
    return 0


def set_aside(fd: int, start: int, size: int) -> None:
    """Take room on the disk for a part of a file; what it has is kept."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, size)
        return
    # Where room cannot be asked for, zeros are written after the end.
    end = os.fstat(fd).st_size
    while end < start + size:
        end += os.pwrite(fd, b"\0" * min(65_536, start + size - end), end)


def unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def sync_folder(path: str) -> None:
    """Make the names in a folder durable, or the content of a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: str, data: bytes, is_synced: bool = True) -> None:
    """For its user alone; whole and on the disk, or not there."""
    draft = f"{path}.draft"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        write_all(handle, data)
        if is_synced:
            os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(draft, path)


def write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
