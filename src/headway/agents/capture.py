"""Reads what commands write to their pipes, for the shim.

Laws:
- A command never meets a full disk by writing to stdout or stderr: it is the shim that writes. What
  the disk does not take stays in memory, up to a limit; after that the command waits.
- What a command wrote before it ended is its output. What its background processes write later is
  read and dropped, so that they do not die of it.

Imports only what is imported anyway, like `shim.py`, and for its reason.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
import termios

INLINE_BYTES_MAX = 16_384
"""Output up to this size needs no file: it is kept in the log itself."""
HELD_BYTES_MAX = 1_048_576
"""Of one output, what is held in memory while the disk takes nothing: an agent's whole answer."""
READ_BYTES = 262_144


class Stream:
    """One output of a command: in memory while it is short, else in a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd, self.theirs = os.pipe()
        os.set_blocking(self.fd, False)
        self.text = bytearray()
        self.file = -1
        self.size = 0
        self.is_over = False

    @property
    def is_full(self) -> bool:
        return len(self.text) > HELD_BYTES_MAX

    def read(self) -> bool:
        """Read what the pipe holds; False if its writing end is closed."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return True
        if not self.is_over:
            self.text += data
            self.spill()
        return bool(data)

    def read_rest(self) -> None:
        """Take what the pipe holds now, and not what background processes add meanwhile."""
        left = int.from_bytes(fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        while left:
            data = os.read(self.fd, left)
            left -= len(data)
            self.text += data
        self.spill()

    def spill(self) -> None:
        """Write a long output to its file, as far as the disk takes it."""
        if self.file < 0 and len(self.text) <= INLINE_BYTES_MAX:
            return
        try:
            if self.file < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self.file = os.open(self.path, flags, 0o600)
            while self.text:
                written = os.write(self.file, self.text)
                self.size += written
                del self.text[:written]
        except OSError:
            return

    def end(self) -> tuple[int, bytes | None]:
        """The command has ended: the size of its output, and the output unless a file has it."""
        self.is_over = True
        if self.file < 0:
            return len(self.text), bytes(self.text)
        try:
            self.spill()
            if not self.text:
                os.fsync(self.file)
                return self.size, None
        except OSError:
            pass
        finally:
            whole = b"" if not self.text else os.pread(self.file, self.size, 0) + self.text
            os.close(self.file)
            self.file = -1
            self.text.clear()
        return len(whole), whole


class Capture:
    def __init__(self, poll: select.poll) -> None:
        self.poll = poll
        self.streams: dict[int, Stream] = {}
        self.waiting: list[Stream] = []
        """Not read for now: the disk does not take what they have."""
        self.limits: tuple[int, int] | None = None
        """Of open files, as commands are to have them."""

    def open(self, paths: list[str]) -> list[Stream]:
        made: list[Stream] = []
        try:
            for path in paths:
                made.append(self._opened(path))
        except OSError:
            for stream in made:
                self.drop(stream)
            raise
        return made

    def _opened(self, path: str) -> Stream:
        try:
            stream = Stream(path)
        except OSError as fault:
            if fault.errno != errno.EMFILE or self.limits is not None:
                raise
            import resource

            self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.limits[1], self.limits[1]))
            stream = Stream(path)
        self.streams[stream.fd] = stream
        self.poll.register(stream.fd, select.POLLIN)
        return stream

    def started(self, pid: int, streams: list[Stream]) -> None:
        for stream in streams:
            os.close(stream.theirs)
            stream.theirs = -1
        if self.limits is not None:
            import resource

            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self.limits)
            except OSError:
                return

    def hear(self, fd: int) -> None:
        stream = self.streams.get(fd)
        if stream is None:
            return  # Its command has ended in this very round.
        if not stream.read():
            self.drop(stream)
        elif stream.is_full:
            self.poll.unregister(fd)
            self.waiting.append(stream)

    def retry(self) -> None:
        waiting, self.waiting = self.waiting, []
        for stream in waiting:
            stream.spill()
            if stream.is_full:
                self.waiting.append(stream)
            else:
                self.poll.register(stream.fd, select.POLLIN)

    def end(self, stream: Stream) -> tuple[int, bytes | None]:
        if stream.fd in self.streams:
            stream.read_rest()
        output = stream.end()
        if stream in self.waiting:
            self.waiting.remove(stream)
            self.poll.register(stream.fd, select.POLLIN)
        if stream.fd in self.streams and not stream.read():
            self.drop(stream)
        return output

    def drop(self, stream: Stream) -> None:
        if self.streams.pop(stream.fd, None) is None:
            return  # It was dropped before.
        if stream in self.waiting:
            self.waiting.remove(stream)
        else:
            self.poll.unregister(stream.fd)
        os.close(stream.fd)
        # The next pipe may have its number: a stream that is over must not meet it again.
        stream.fd = -1
        if stream.theirs >= 0:
            os.close(stream.theirs)
