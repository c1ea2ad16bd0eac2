"""One client's connection as the broker sees it: bytes in, messages out, all of it bounded."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headway.errors import WireError
from headway.runtime.protocol import Error, FromBroker, Hello, Lines, Message, line_of

READ_BYTES: Final = 64 * 1024
"""Read of one client before the next one's turn comes."""

UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Answers that a client has not fetched. Ten thousand grants; one that stopped reading has more."""

HELLO_S_MAX: Final = 10.0
"""A client says who it is as soon as it is connected."""


@dataclass(frozen=True, slots=True)
class PeerStatistics:
    """A peer at an instant."""

    client: str
    unsent_bytes: int


class Peer:
    """A connection to one client."""

    __slots__ = ("_lines", "_unsent", "hello", "is_closing", "is_held_up", "since_s", "sock")

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock = sock
        self.since_s = now
        self.hello: Hello | None = None
        self.is_closing = False
        self.is_held_up = False
        self._lines = Lines()
        self._unsent = bytearray()

    def __repr__(self) -> str:
        return f"<Peer {self.hello.client if self.hello else '?'}>"

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def read(self) -> Iterator[Message]:
        """The messages that are there; `EOFError` when the client is gone, `WireError` if bad."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise EOFError
        yield from self._lines.feed(data)

    def put(self, message: FromBroker) -> None:
        """Have a message sent with the next `flush`."""
        if self.is_closing:
            return
        try:
            self._unsent += line_of(message)
        except WireError as fault:
            self._unsent += line_of(Error(fault.message))
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self._unsent.clear()
            self.is_closing = True

    def refuse(self, why: str) -> None:
        """Say what is wrong, and nothing after that."""
        self.put(Error(why[:500]))
        self.is_closing = True

    def flush(self) -> bool:
        """Send what fits. False when the client is gone."""
        try:
            while self._unsent:
                del self._unsent[: self.sock.send(self._unsent)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def statistics(self) -> PeerStatistics:
        return PeerStatistics(self.hello.client if self.hello else "", len(self._unsent))
