"""The clients that are connected to the broker.

Invariant: whoever is connected is of the same user. The folder sees to that; the kernel is asked
once more where it can tell.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Final

from headway.broker.election import BrokerSocket
from headway.broker.protocol import Error, FromBroker, Hello, Message, MessageSplitter, line_of
from headway.errors import WireError

# One client's connection as the broker sees it: bytes in, messages out, all of it bounded.

READ_BYTES: Final = 64 * 1024
"""Read of one client before the next one's turn comes."""

UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Answers that a client has not fetched. Ten thousand grants; one that stopped reading has more."""

HELLO_S_MAX: Final = 10.0
"""A client says who it is as soon as it is connected."""


class Peer:
    """A connection to one client."""

    __slots__ = ("_lines", "_unsent", "hello", "is_closing", "is_held_up", "since_s", "sock")

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock = sock
        self.since_s = now
        self.hello: Hello | None = None
        self.is_closing = False
        self.is_held_up = False
        self._lines = MessageSplitter()
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


PEERS_MAX: Final = 512
"""Processes of one user at once; more files than that cannot be open on some systems."""


class Peers:
    """Connections to clients, and the door through which more of them come."""

    __slots__ = (
        "_bell", "_door", "_peers", "_selector", "_touched",
    )  # fmt: skip

    def __init__(self, door: BrokerSocket) -> None:
        self._door = door
        self._peers: set[Peer] = set()
        self._touched: set[Peer] = set()
        self._bell = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(door.listener, selectors.EVENT_READ)
        self._selector.register(self._bell[0], selectors.EVENT_READ)

    def __len__(self) -> int:
        return len(self._peers)

    def bell(self) -> int:
        """Whatever is written to this file ends the next wait for good."""
        self._bell[1].setblocking(False)
        return self._bell[1].fileno()

    def wait(self, timeout_s: float, now: Callable[[], float]) -> tuple[list[Peer], bool]:
        """Everybody who has something to say, and whether the bell rang."""
        speaking, has_rung = [], False
        for key, events in self._selector.select(timeout_s):
            if isinstance(key.data, Peer):
                self._touched.add(key.data)
                if events & selectors.EVENT_READ:
                    speaking.append(key.data)
            elif key.fileobj is self._door.listener:
                self._accept(now())
            else:
                has_rung = True
        return speaking, has_rung

    def touch(self, peer: Peer) -> None:
        """There is something to send to this one, or it is to be closed."""
        self._touched.add(peer)

    def flush(self) -> Iterator[Peer]:
        """Send what there is to send; yields those to whom nothing can be sent any more."""
        touched, self._touched = self._touched, set()
        for peer in touched & self._peers:
            if not peer.flush() or peer.is_closing:
                yield peer
            elif peer.is_held_up != peer.has_unsent:
                peer.is_held_up = peer.has_unsent
                writing = selectors.EVENT_WRITE if peer.has_unsent else 0
                self._selector.modify(peer.sock, selectors.EVENT_READ | writing, peer)

    def silent(self, now: float) -> list[Peer]:
        """Those who are connected and do not say who they are."""
        return [
            peer for peer in self._peers if peer.hello is None and now - peer.since_s > HELLO_S_MAX
        ]

    def drop(self, peer: Peer) -> None:
        """Hang up."""
        if peer in self._peers:
            self._peers.remove(peer)
            self._selector.unregister(peer.sock)
            peer.sock.close()

    def close(self) -> None:
        """Nobody is served any more."""
        self._door.close(is_awaited=bool(self._peers))
        for peer in list(self._peers):
            self.drop(peer)
        self._selector.close()
        for end in self._bell:
            end.close()

    def _accept(self, now: float) -> None:
        try:
            sock, _ = self._door.listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        if not _is_same_user(sock):
            sock.close()
            return
        peer = Peer(sock, now)
        self._peers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)
        if len(self._peers) > PEERS_MAX:
            peer.refuse(f"{PEERS_MAX} processes are connected: no more can be")
            self._touched.add(peer)


def _is_same_user(sock: socket.socket) -> bool:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    told = sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", told)
    return bool(uid == os.geteuid())
