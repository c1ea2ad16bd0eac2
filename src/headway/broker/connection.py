"""The connection to the broker: a socket, a reader thread, reconnection.

Laws:
- Whoever has something to say writes it to the socket itself, unless somebody is writing: then
  it is left for that one. Nobody waits for a lock to send.
- Only the thread connects, listens and tells an heir of the broker how this process stands. It
  exists while somebody waits or holds a permit, and as long as the broker lives.
- What was said to a broker that died is told to the next one: permits in use, permits that
  ended meanwhile, everybody who waits, in order.
- Nobody waits for a broker without end: see `search.py`.
"""

from __future__ import annotations

import logging
import random
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Final

from headway.base.folders import Folders
from headway.broker.client import AdmissionClient, InUse, Said
from headway.broker.protocol import (
    Alive,
    BeganMessage,
    Error,
    FromClient,
    MessageSplitter,
    Progressed,
    line_of,
)
from headway.errors import BrokerUnavailableError, HeadwayError, WireError

# Finds the broker's socket, and has a broker started where there is none.

NOBODY_S: Final = 10.0
"""How long calls wait for a broker when there is none: many times what starting one takes."""

NOBODY_AGAIN_S: Final = 0.5
"""How long later calls wait as long as there is still none."""

RETRY_S: Final = 0.01
"""Between two tries to connect, lengthened by chance, so that a crowd does not come at once."""

START_AGAIN_S: Final = 0.5
"""Between two tries to start a broker that did not come up."""

DEATHS_MAX: Final = 10
"""Brokers that may die right after each other: then what they are told is what kills them."""

STEADY_S: Final = 1.0
"""A broker that has lived for so long was not killed by what it was told first."""

Start = Callable[[Folders], str]
"""Starts a broker unless there is one; what went wrong, or nothing."""


class Search:
    """One process's search for a broker, again and again if need be."""

    __slots__ = (
        "_deaths", "_fault", "_give_up_s", "_nobody_s", "_patience_s", "_place",
        "_start", "_start_s",
    )  # fmt: skip

    def __init__(self, place: Folders, start: Start, nobody_s: float = NOBODY_S) -> None:
        self._place = place
        self._start = start
        self._nobody_s = self._patience_s = nobody_s
        self._give_up_s = 0.0
        self._start_s = 0.0
        self._deaths = 0
        self._fault = ""

    def connect(
        self, is_needed: Callable[[], bool], lost: Callable[[HeadwayError], None]
    ) -> socket.socket | None:
        """A connection, or None when nobody needs one any more. `lost` is told when none comes."""
        self._give_up_s = monotonic() + self._patience_s
        if self._deaths > 1:
            # Whoever ends them should not be kept busy by us.
            time.sleep(RETRY_S * self._deaths)
        while is_needed():
            if self._deaths >= DEATHS_MAX:
                self._fault = f"{self._deaths} brokers in a row ended at once"
                self._give_up_s, self._deaths = 0.0, 0
            else:
                sock = self._dial()
                if sock is not None:
                    return sock
            if monotonic() >= self._give_up_s:
                self._patience_s = min(self._patience_s, NOBODY_AGAIN_S)
                self._give_up_s = monotonic() + self._patience_s
                lost(self._unavailable())
            time.sleep(RETRY_S * (1.0 + random.random()))
        return None

    def ended(self, lived_s: float) -> None:
        """The broker that was found is gone."""
        self._patience_s = self._nobody_s
        self._deaths = 0 if lived_s > STEADY_S else self._deaths + 1

    def _dial(self) -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._place.socket)
        except OSError as fault:
            sock.close()
            is_nobody_there = isinstance(fault, FileNotFoundError | ConnectionRefusedError)
            if is_nobody_there and monotonic() >= self._start_s:
                self._begin()
            return None
        sock.setblocking(False)
        return sock

    def _begin(self) -> None:
        try:
            self._fault = self._start(self._place)
        except HeadwayError as error:
            self._fault = error.message
        if self._fault:
            self._start_s = monotonic() + START_AGAIN_S

    def _unavailable(self) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            "there is no broker and none could be started",
            detail=self._fault or f"nobody answers at {self._place.socket}",
            hint=f"see {self._place.log}; HEADWAY_UNPACED=1 lets calls go without one",
        )


_LOG: Final = logging.getLogger("headway")

BATCH_MAX: Final = 200
"""Messages that are sent in one go."""

READ_BYTES: Final = 64 * 1024

CLOSE_S_MAX: Final = 5.0
"""How long hanging up may take: no longer than a broker that is being started."""

Unsent = tuple[bytes, Said]


class BrokerLine:
    """A client's line to the broker."""

    __slots__ = (
        "_bell", "_client", "_data", "_is_closed", "_lock", "_outbox", "_search", "_sending",
        "_sock", "_starting", "_thread",
    )  # fmt: skip

    def __init__(self, client: AdmissionClient, search: Search) -> None:
        self._client = client
        self._search = search
        self._outbox: deque[Unsent] = deque()
        # These three belong to whoever holds the lock.
        self._sending: list[Said] = []
        self._data = b""
        self._sock: socket.socket | None = None
        self._lock = Lock()
        self._starting = Lock()
        self._thread: Thread | None = None
        self._bell = socket.socketpair()
        self._bell[1].setblocking(False)
        self._is_closed = False

    def send(self, message: FromClient, permit: InUse | None = None, /) -> None:
        """Say something now, or as soon as there is a broker."""
        if self._sock is None and isinstance(message, BeganMessage | Progressed | Alive):
            return
        self._outbox.append((line_of(message), (message, permit)))
        self._flush()

    def open(self) -> None:
        """See to it that there is somebody to hear. Never called by a finalizer."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="headway-listens", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Hang up, after what can be sent without waiting."""
        self._flush()
        self._is_closed = True
        self._ring()
        thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S_MAX)
        self.abandon()

    def abandon(self) -> None:
        """Let go. If a child kept its parent's socket, the parent's death would not be seen."""
        sock = self._sock
        if sock is not None:
            sock.close()
        for end in self._bell:
            end.close()

    def _flush(self) -> None:
        """Whoever leaves the lock looks again: a message may have come just before."""
        while self._outbox and self._lock.acquire(blocking=False):
            try:
                is_sent = self._write()
            finally:
                self._lock.release()
            if not is_sent:
                return

    def _write(self) -> bool:
        """Send all there is. False if the socket is full or gone: the thread goes on with it."""
        sock = self._sock
        while sock is not None:
            if not self._data:
                self._sending.clear()
                lines: list[bytes] = []
                while self._outbox and len(lines) < BATCH_MAX:
                    line, said = self._outbox.popleft()
                    lines.append(line)
                    self._sending.append(said)
                self._data = b"".join(lines)
            if not self._data:
                return True
            try:
                self._data = self._data[sock.send(self._data) :]
            except BlockingIOError:
                self._ring()
                return False
            except OSError:
                return False
        return False

    def _ring(self) -> None:
        """Have the thread look. A bell that takes no more has rung already."""
        with suppress(OSError):
            self._bell[1].send(b".")

    def _run(self) -> None:
        """The thread: as long as there is a broker, or somebody who needs one."""
        while True:
            sock = self._search.connect(self._is_needed, self._client.lost)
            if sock is not None:
                began_s = monotonic()
                self._introduce(sock)
                self._listen(sock)
                with self._lock:
                    self._sock = None
                    sock.close()
                self._search.ended(monotonic() - began_s)
            with self._starting:
                # Whoever needs a broker by now was here before the lock, or will find no thread.
                if not self._is_needed():
                    self._thread = None
                    return

    def _is_needed(self) -> bool:
        known = self._client.statistics()
        return not self._is_closed and bool(known.waiting or known.in_use or self._outbox)

    def _introduce(self, sock: socket.socket) -> None:
        """Tell a new broker who this is and how it stands, before anything else is said."""
        with self._lock:
            told = self._client.story(_taken(self._sending, self._outbox))
            self._sending = told
            self._data = b"".join(line_of(message) for message, _ in told)
            self._sock = sock
            self._write()
        self._flush()

    def _listen(self, sock: socket.socket) -> None:
        """Hand over what the broker says, until it ends."""
        lines = MessageSplitter()
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            selector.register(self._bell[0], selectors.EVENT_READ)
            while not self._is_closed:
                writing = selectors.EVENT_WRITE if self._data else 0
                selector.modify(sock, selectors.EVENT_READ | writing)
                for key, events in selector.select():
                    if key.fileobj is not sock:
                        self._bell[0].recv(READ_BYTES)
                        continue
                    if events & selectors.EVENT_WRITE:
                        with self._lock:
                            self._write()
                        self._flush()
                    if events & selectors.EVENT_READ and not self._hear(sock, lines):
                        return

    def _hear(self, sock: socket.socket, lines: MessageSplitter) -> bool:
        """False when the broker is gone, or is none."""
        try:
            data = sock.recv(READ_BYTES)
            for message in lines.feed(data):
                self._client.receive(message)
        except BlockingIOError:
            return True
        except WireError as fault:
            self._client.receive(Error(f"it is not understood: {fault.message}"))
            return False
        except OSError:
            return False
        except Exception:
            # The boundary: without this thread nobody here would ever hear anything again.
            _LOG.exception("headway could not take an answer of the broker")
            return False
        return bool(data)


def _taken(sending: list[Said], outbox: deque[Unsent]) -> Iterator[Said]:
    """Takes out what no broker has got as a whole."""
    yield from sending
    while outbox:
        yield outbox.popleft()[1]
