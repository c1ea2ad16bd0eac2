"""A client's connection to the broker: finds it or has it started, sends, listens, reconnects."""

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

from headway import errors
from headway.base.folders import Folders
from headway.broker import protocol
from headway.broker.calls import AdmissionClient, Said

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


BATCH_MAX: Final = 200

READ_BYTES: Final = 64 * 1024

CLOSE_S_MAX: Final = 5.0
"""How long hanging up may take: no longer than a broker that is being started."""

Unsent = tuple[bytes, Said]

_LOG: Final = logging.getLogger("headway")


class BrokerConnection:
    """A socket, a reader thread, reconnection.

    A sender writes to the socket itself, unless another thread is writing: that one goes on with
    it. No sender waits for a lock. Only the reader thread connects, has a broker started where
    there is none, listens, and tells the next broker how this process stands.
    """

    def __init__(
        self, client: AdmissionClient, place: Folders, start: Start, nobody_s: float = NOBODY_S
    ) -> None:
        self._client, self._place, self._start = client, place, start
        self._nobody_s = self._patience_s = nobody_s
        self._start_s = 0.0
        self._deaths = 0
        self._fault = ""
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

    def send(self, message: protocol.FromClient, sent: protocol.Ask | None = None, /) -> None:
        if self._sock is None and isinstance(message, protocol.Passing):
            return
        self._outbox.append((protocol.packed(message), (message, sent)))
        self._flush()

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
            sock = self._connect()
            if sock is not None:
                began_s = monotonic()
                self._introduce(sock)
                self._listen(sock)
                with self._lock:
                    self._sock = None
                    sock.close()
                self._patience_s = self._nobody_s
                self._deaths = 0 if monotonic() - began_s > STEADY_S else self._deaths + 1
            with self._starting:
                # A call that needs a broker came before this lock, or will start a new thread.
                if not self._is_needed():
                    self._thread = None
                    return

    def _connect(self) -> socket.socket | None:
        """A connection, or None if no call needs one any more. Calls that wait too long fail."""
        give_up_s = monotonic() + self._patience_s
        if self._deaths > 1:
            # The thread that ends these calls must not wait for this one.
            time.sleep(RETRY_S * self._deaths)
        while self._is_needed():
            if self._deaths >= DEATHS_MAX:
                self._fault = f"{self._deaths} brokers in a row ended at once"
                give_up_s, self._deaths = 0.0, 0
            elif (sock := self._dial()) is not None:
                return sock
            if monotonic() >= give_up_s:
                self._patience_s = min(self._patience_s, NOBODY_AGAIN_S)
                give_up_s = monotonic() + self._patience_s
                self._client.lost(
                    errors.BrokerUnavailableError(
                        "there is no broker and none could be started",
                        detail=self._fault or f"no broker answers at {self._place.socket}",
                        hint=f"see {self._place.log}; HEADWAY_UNPACED=1 lets calls go without one",
                    )
                )
            time.sleep(RETRY_S * (1.0 + random.random()))
        return None

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

    def _is_needed(self) -> bool:
        client = self._client
        return not self._is_closed and bool(client.waiting or client.in_use or self._outbox)

    def _introduce(self, sock: socket.socket) -> None:
        with self._lock:
            self._sending = self._client.introduction(_taken(self._sending, self._outbox))
            self._data = b"".join(protocol.packed(message) for message, _ in self._sending)
            self._sock, self._messages = sock, protocol.BrokerMessages()
            self._write()
        self._flush()

    def _listen(self, sock: socket.socket) -> None:
        """Until the broker is gone: take its answers, and send what could not be sent at once."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell[0], selectors.EVENT_READ)
            watched = selectors.EVENT_READ
            selector.register(sock, watched)
            while not self._is_closed:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._data else 0)
                if watched != events:
                    selector.modify(sock, events)
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
                        return

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
