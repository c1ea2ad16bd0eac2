"""The line to the broker of a process that lives in one event loop: heard there, not in a thread.

Laws, beside those of `link.py`:
- What one turn of the loop has to say is sent in one go, at its end: the broker hears it in one
  round and decides once.
- Answers are taken in the loop itself. No thread has to be woken for a call that is admitted at
  once; the thread only connects, and sends what a full socket did not take.
- Where the loop is not running, everything is as without it.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
from collections.abc import Callable
from threading import Event, get_ident
from typing import Final

from headway.runtime.access import dial_best, obstacle
from headway.runtime.client import Client, InUse, Line
from headway.runtime.election import start
from headway.runtime.folders import folders
from headway.runtime.link import READ_BYTES, BrokerLine
from headway.runtime.protocol import Alive, Began, FromClient, Lines, Progressed, line_of
from headway.runtime.search import Search

UNHEARD_S_MAX: Final = 1.0
"""When a line is closed, its loop has so long to let go of the socket."""


def dial_here(client: Client) -> Line:
    """The best line for whoever asks first within an event loop, and from then on only there."""
    place = folders(os.environ)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return dial_best(client)
    if obstacle(place):
        return dial_best(client)
    return LoopLine(client, Search(place, start), loop)


class LoopLine(BrokerLine):
    """A client's line to the broker, within one event loop."""

    __slots__ = ("_heard", "_is_due", "_is_over", "_lines", "_loop", "_owner")

    def __init__(self, client: Client, search: Search, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the thread that the loop runs in."""
        super().__init__(client, search)
        self._loop = loop
        self._owner = get_ident()
        self._is_due = False
        self._is_over = False
        self._heard: socket.socket | None = None
        self._lines = Lines()

    def send(self, message: FromClient, permit: InUse | None = None, /) -> None:
        """Say something with this turn of the loop, or as soon as there is a broker."""
        if self._sock is None and isinstance(message, Began | Progressed | Alive):
            return
        self._outbox.append((line_of(message), (message, permit)))
        if get_ident() != self._owner or self._loop.is_closed():
            self._flush()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush_due)

    def close(self) -> None:
        """Hang up, after what can be sent without waiting."""
        if get_ident() == self._owner:
            self._is_closed = True
            self._unhear()
        super().close()

    def _flush_due(self) -> None:
        self._is_due = False
        self._flush()

    def _listen(self, sock: socket.socket) -> None:
        """The thread: have the loop hear the broker, and see to what could not be sent."""
        self._is_over = False
        if not self._in_loop(lambda: self._hear_here(sock)):
            super()._listen(sock)
            return
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell[0], selectors.EVENT_READ)
            while not (self._is_closed or self._is_over):
                if self._data and sock not in selector.get_map():
                    selector.register(sock, selectors.EVENT_WRITE)
                elif not self._data and sock in selector.get_map():
                    selector.unregister(sock)
                for key, _ in selector.select():
                    if key.fileobj is sock:
                        with self._lock:
                            self._write()
                        self._flush()
                    else:
                        self._bell[0].recv(READ_BYTES)
        if self._heard is not None:
            self._in_loop(self._unhear)

    def _hear_here(self, sock: socket.socket) -> None:
        """In the loop: take what the broker says from now on."""
        if not self._is_closed:
            self._lines, self._heard = Lines(), sock
            self._loop.add_reader(sock.fileno(), self._readable, sock)

    def _readable(self, sock: socket.socket) -> None:
        if not self._hear(sock, self._lines):
            self._unhear()
            self._is_over = True
            self._ring()

    def _unhear(self) -> None:
        """In the loop: before the socket is closed."""
        sock, self._heard = self._heard, None
        if sock is not None and sock.fileno() >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(sock.fileno())

    def _in_loop(self, act: Callable[[], None]) -> bool:
        """Whether the loop is there to do it."""
        done = Event()

        def acted() -> None:
            act()
            done.set()

        try:
            self._loop.call_soon_threadsafe(acted)
        except RuntimeError:
            return False
        while not done.wait(UNHEARD_S_MAX) and not (self._is_closed or self._loop.is_closed()):
            continue
        return not self._loop.is_closed()
