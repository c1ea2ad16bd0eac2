"""A client's connection to the broker: finds it or has it started, sends, listens, reconnects."""

from __future__ import annotations

import asyncio
import logging
import random
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Lock, Thread, get_ident
from time import monotonic
from typing import Final

from headway import errors
from headway.base.folders import Folders
from headway.broker import protocol
from headway.broker.calls import AdmissionClient, ClientCall, Said

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


class Dialer:
    """Finds the broker's socket, and has a broker started where there is none."""

    def __init__(self, place: Folders, start: Start, nobody_s: float = NOBODY_S) -> None:
        self._place = place
        self._start = start
        self._nobody_s = self._patience_s = nobody_s
        self._start_s = 0.0
        self._deaths = 0
        self._fault = ""

    def connect(
        self, is_needed: Callable[[], bool], lost: Callable[[errors.HeadwayError], None]
    ) -> socket.socket | None:
        """A connection, or None if no call needs one any more. `lost` is called if none comes."""
        give_up_s = monotonic() + self._patience_s
        if self._deaths > 1:
            # The thread that ends these calls must not wait for this one.
            time.sleep(RETRY_S * self._deaths)
        while is_needed():
            if self._deaths >= DEATHS_MAX:
                self._fault = f"{self._deaths} brokers in a row ended at once"
                give_up_s, self._deaths = 0.0, 0
            else:
                sock = self._dial()
                if sock is not None:
                    return sock
            if monotonic() >= give_up_s:
                self._patience_s = min(self._patience_s, NOBODY_AGAIN_S)
                give_up_s = monotonic() + self._patience_s
                lost(
                    errors.BrokerUnavailableError(
                        "there is no broker and none could be started",
                        detail=self._fault or f"no broker answers at {self._place.socket}",
                        hint=f"see {self._place.log}; HEADWAY_UNPACED=1 lets calls go without one",
                    )
                )
            time.sleep(RETRY_S * (1.0 + random.random()))
        return None

    def ended(self, lived_s: float) -> None:
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
                try:
                    self._fault = self._start(self._place)
                except errors.HeadwayError as error:
                    self._fault = error.message
                if self._fault:
                    self._start_s = monotonic() + START_AGAIN_S
            return None
        sock.setblocking(False)
        return sock


BATCH_MAX: Final = 200

READ_BYTES: Final = 64 * 1024

CLOSE_S_MAX: Final = 5.0
"""How long hanging up may take: no longer than a broker that is being started."""

Unsent = tuple[bytes, Said]

_LOG: Final = logging.getLogger("headway")


class BrokerConnection:
    """A socket, a reader thread, reconnection.

    A sender writes to the socket itself, unless another thread is writing: that one goes on with
    it. No sender waits for a lock. Only the reader thread connects, listens and tells the next
    broker how this process stands.
    """

    def __init__(self, client: AdmissionClient, dialer: Dialer) -> None:
        self._client = client
        self._dialer = dialer
        self._outbox: deque[Unsent] = deque()
        # Only the thread that holds the lock uses these three.
        self._sending: list[Said] = []
        self._data = b""
        self._sock: socket.socket | None = None
        self._messages = protocol.BrokerMessages()
        self._lock = Lock()
        self._starting = Lock()
        self._thread: Thread | None = None
        self._bell = socket.socketpair()
        self._bell[1].setblocking(False)
        self._is_closed = False
        self._is_over = False
        """Whether the broker is gone."""

    def send(self, message: protocol.FromClient, call: ClientCall | None = None, /) -> None:
        if self._sock is None and isinstance(message, protocol.Passing):
            return
        self._outbox.append((protocol.packed(message), (message, call)))
        self._flush_soon()

    def open(self) -> None:
        """Start the thread. Never called by a finalizer."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="headway-listens", daemon=True)
                    self._thread.start()

    def close(self) -> None:
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
        """Looks again after each release of the lock: a message may have come just before."""
        while self._outbox and self._lock.acquire(blocking=False):
            try:
                is_sent = self._write()
            finally:
                self._lock.release()
            if not is_sent:
                return

    _flush_soon = _flush

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
        while True:
            sock = self._dialer.connect(self._is_needed, self._client.lost)
            if sock is not None:
                began_s = monotonic()
                self._introduce(sock)
                self._listen(sock)
                with self._lock:
                    self._sock = None
                    sock.close()
                self._dialer.ended(monotonic() - began_s)
            with self._starting:
                # A call that needs a broker came before this lock, or will start a new thread.
                if not self._is_needed():
                    self._thread = None
                    return

    def _is_needed(self) -> bool:
        client = self._client
        return not self._is_closed and bool(client.waiting or client.in_use or self._outbox)

    def _introduce(self, sock: socket.socket) -> None:
        with self._lock:
            self._sending = self._client.introduction(_taken(self._sending, self._outbox))
            self._data = b"".join(protocol.packed(message) for message, _ in self._sending)
            self._sock, self._messages, self._is_over = sock, protocol.BrokerMessages(), False
            self._write()
        self._flush()

    def _listen(self, sock: socket.socket, reading: int = selectors.EVENT_READ) -> None:
        """Hear the broker, if `reading`, and send what could not be sent at once."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell[0], selectors.EVENT_READ)
            watched = 0
            while not (self._is_closed or self._is_over):
                events = reading | (selectors.EVENT_WRITE if self._data else 0)
                if watched != events:
                    if watched:
                        selector.unregister(sock)
                    if events:
                        selector.register(sock, events)
                    watched = events
                for key, ready in selector.select():
                    if key.fileobj is not sock:
                        self._bell[0].recv(READ_BYTES)
                        continue
                    if ready & selectors.EVENT_WRITE:
                        with self._lock:
                            self._write()
                        self._flush()
                    if ready & selectors.EVENT_READ and not self._hear(sock):
                        self._is_over = True

    def _hear(self, sock: socket.socket) -> bool:
        """False when the broker is gone, or is none."""
        try:
            data = sock.recv(READ_BYTES)
            for message in self._messages.feed(data):
                self._client.receive(message)
        except BlockingIOError:
            return True
        except errors.WireError as fault:
            self._client.receive(protocol.Rejected(f"it is not understood: {fault.message}"))
            return False
        except OSError:
            return False
        except Exception:
            # The boundary: without this thread no answer of the broker would be read again.
            _LOG.exception("headway could not take an answer of the broker")
            return False
        return bool(data)


def _taken(sending: list[Said], outbox: deque[Unsent]) -> Iterator[Said]:
    yield from sending
    while outbox:
        yield outbox.popleft()[1]


UNHEARD_S_MAX: Final = 1.0
"""When a connection is closed, its loop has so long to let go of the socket."""


class LoopConnection(BrokerConnection):
    """For a process that lives in one event loop: the broker is heard there, not in a thread."""

    def __init__(
        self, client: AdmissionClient, dialer: Dialer, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Called in the thread that the loop runs in."""
        super().__init__(client, dialer)
        self._loop = loop
        self._owner = get_ident()
        self._is_due = False
        self._heard: socket.socket | None = None

    def _flush_soon(self) -> None:
        """At the end of this turn of the loop: all that is said in one turn is sent at once."""
        if get_ident() != self._owner or self._loop.is_closed():
            self._flush()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush_due)

    def close(self) -> None:
        if get_ident() == self._owner:
            self._is_closed = True
            self._unhear()
        super().close()

    def _flush_due(self) -> None:
        self._is_due = False
        self._flush()

    def _listen(self, sock: socket.socket, _reading: int = selectors.EVENT_READ) -> None:
        """The thread: have the loop hear the broker, and see to what could not be sent."""
        is_heard = self._in_loop(lambda: self._hear_here(sock))
        super()._listen(sock, 0 if is_heard else selectors.EVENT_READ)
        if self._heard is not None:
            self._in_loop(self._unhear)

    def _hear_here(self, sock: socket.socket) -> None:
        """In the loop: take what the broker says from now on."""
        if not self._is_closed:
            self._heard = sock
            self._loop.add_reader(sock.fileno(), self._readable, sock)

    def _readable(self, sock: socket.socket) -> None:
        if not self._hear(sock):
            self._unhear()
            self._is_over = True
            self._ring()

    def _unhear(self) -> None:
        """In the loop: before the socket is closed."""
        sock, self._heard = self._heard, None
        if sock is not None and sock.fileno() >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(sock.fileno())

    def _in_loop(self, act: Callable[[], None]) -> bool:
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
