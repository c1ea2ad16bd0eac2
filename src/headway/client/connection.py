"""How a process reaches admission: a connection to the broker if there can be one, else its own."""

from __future__ import annotations

import logging
import os
import random
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from headway import errors
from headway.base.clock import now_s
from headway.base.folders import Folders, folders, prepare
from headway.broker import protocol
from headway.broker.election import start
from headway.broker.service import AdmissionService, counts_towards
from headway.broker.store import Store, StoredMemory, open_admission, recall
from headway.pacing.admission import Admission
from headway.pacing.budget import MonthlyBudgets
from headway.pacing.memory import PacingMemory, account_of

if TYPE_CHECKING:
    from headway.client.admission import AdmissionPort

NOBODY_S: Final = 10.0
"""How long calls wait for a broker when there is none: many times what starting one takes."""
AGAIN_S: Final = 0.5
"""How long later calls wait as long as there is still none, and between two tries to start one:
without a pause, one that cannot start keeps a core busy."""
RETRY_S: Final = 0.01
"""Between two tries to connect, lengthened by chance, so that a crowd does not come at once."""
DEATHS_MAX: Final = 10
"""Brokers that may die right after each other: then what they are told is what kills them."""
STEADY_S: Final = 1.0
"""A broker that has lived for so long was not killed by what it was told first."""
CLOSE_S_MAX: Final = 5.0
"""How long hanging up may take: no longer than a broker that is being started."""
LINGER_S: Final = 1.0
"""The thread that lets time pass stays for so long after the last call that waited."""
Start = Callable[[Folders], str]
"""Starts a broker unless there is one; what went wrong, or nothing."""
Said = tuple[protocol.FromClient, protocol.Ask | None]
"""A message; of a settlement also what the next broker has to know of the call."""
Unsent = tuple[bytes, Said]
_LOG: Final = logging.getLogger("headway")


class Connection(Protocol):
    def send(self, message: protocol.FromClient, sent: protocol.Ask | None = None, /) -> None:
        """Say something. Never blocks; `sent` is the call in flight that the message ends."""

    def open(self) -> None:
        """Start to listen: a call is about to wait."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent, without a word or a lock."""


class BrokerConnection:
    """A socket, a reader thread, reconnection.

    A sender writes to the socket itself, unless another thread is writing: that one goes on with
    it. No sender waits for a lock. Only the reader thread connects, has a broker started where
    there is none, listens, and tells the next broker how this process stands.
    """

    def __init__(
        self, port: AdmissionPort, place: Folders, start: Start, nobody_s: float = NOBODY_S
    ) -> None:
        self._port, self._place, self._start = port, place, start
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
                if not self._outbox:
                    return True
                self._data, said = self._outbox.popleft()
                self._sending.append(said)
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
                self._patience_s = min(self._patience_s, AGAIN_S)
                give_up_s = monotonic() + self._patience_s
                self._port.lost(
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
                    self._start_s = monotonic() + AGAIN_S
            return None
        sock.setblocking(False)
        return sock

    def _is_needed(self) -> bool:
        port = self._port
        return not self._is_closed and bool(port.waiting or port.in_use or self._outbox)

    def _introduce(self, sock: socket.socket) -> None:
        with self._lock:
            self._sending = self._port.introduction(_taken(self._sending, self._outbox))
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
                        self._bell[0].recv(protocol.MESSAGE_BYTES_MAX)
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
            data = sock.recv(protocol.MESSAGE_BYTES_MAX)
            for message in self._messages.feed(data):
                self._port.receive(message)
        except BlockingIOError:
            return True
        except errors.WireError as fault:
            self._port.receive(protocol.Rejected(f"it is not understood: {fault.message}"))
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


class LocalConnection:
    """Admission within one process: no second process, nothing shared."""

    def __init__(
        self,
        port: AdmissionPort,
        admission: Admission,
        keep: Callable[[], str] = lambda: "",
        now: Callable[[], float] = now_s,
    ) -> None:
        self._port, self._admission, self._now = port, admission, now
        self._inbox: deque[protocol.FromClient | None] = deque()
        self._lock = Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._starting = Lock()
        self._ticker: Thread | None = None
        self._nap_s = inf
        self._service = AdmissionService(
            admission, lambda _, message: port.receive(message), keep, _LOG.warning, now
        )
        self._service.handle(port.id, port.hello())

    def send(self, message: protocol.FromClient | None, _sent: object = None, /) -> None:
        """Leave the message, or that time has passed, and serve unless another thread does."""
        self._inbox.append(message)
        # Looks again after each release of the lock: a message may have come just before.
        while self._inbox and self._lock.acquire(blocking=False):
            try:
                while self._inbox:
                    said = self._inbox.popleft()
                    if said is None:
                        self._service.is_due = True
                    else:
                        self._service.handle(self._port.id, said)
                if self._service.is_due:
                    self._service.decide()
            except errors.WireError as fault:
                self._port.receive(protocol.Rejected(fault.message))
            except Exception as fault:
                # The boundary: this runs on whatever thread came first, which has probably
                # nothing to do with it. Calls that wait get the error.
                _LOG.exception("headway cannot admit calls")
                self._port.receive(protocol.Rejected(f"{type(fault).__name__}: {fault}"))
            finally:
                if self._ticker is not None and self._service.wake_s < self._nap_s:
                    self._bell.put(None)
                self._lock.release()

    def memory(self) -> PacingMemory:
        """What was learned here: no file has it."""
        with self._lock:
            return self._admission.memory(self._now())

    def open(self) -> None:
        """Let time pass. Never called by a finalizer: it starts a thread."""
        with self._starting:
            if self._ticker is None:
                self._ticker = Thread(target=self._tick, name="headway-ticks", daemon=True)
                self._ticker.start()

    def close(self) -> None:
        """There is nothing to close: the thread ends by itself."""

    abandon = close

    def _tick(self) -> None:
        idle_s = monotonic()
        while True:
            self._nap_s = self._service.wake_s
            nap_s = max(self._nap_s - self._now(), 0.0)
            try:
                self._bell.get(timeout=min(nap_s, LINGER_S))
            except Empty:
                self.send(None)
            if self._port.waiting:
                idle_s = monotonic()
            elif monotonic() - idle_s >= LINGER_S:
                with self._starting:
                    # A call that waits came before this lock, or will start a new thread.
                    if not self._port.waiting:
                        self._ticker = None
                        return


_SAID: Final[set[str]] = set()


def dial_best(port: AdmissionPort) -> Connection:
    place = folders(os.environ)
    why = obstacle(place)
    if not why:
        return BrokerConnection(port, place, start)
    say_once(
        f"headway paces this process alone, because there can be no broker: {why}."
        " Other processes on the same account are not counted."
    )
    return dial_alone(port, recall(place.memory))


def dial_alone(port: AdmissionPort, kept: StoredMemory | None = None) -> Connection:
    """Admission in this process: knows what is given, writes nothing, spends no budget."""
    own = open_admission(kept or StoredMemory(PacingMemory()), now_s())
    return LocalConnection(port, own, lambda: "budgets need a broker, and there is none")


def obstacle(place: Folders) -> str:
    """Why there can be no broker on this machine, or nothing."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "register_at_fork"):
        return "this system has no local sockets"
    if not sys.executable or getattr(sys, "frozen", False):
        return "this program cannot start another Python"
    try:
        prepare(place)
    except errors.StateFileError as error:
        return error.message
    return ""


def without_budget(account: str) -> bool:
    """Whether calls of this account may be made uncounted; says so once."""
    try:
        memory = Store(folders(os.environ).memory).look().memory
    except FileNotFoundError:
        memory = PacingMemory()
    except (OSError, errors.WireError):
        return False
    account = account_of(dict(memory.names), dict(memory.owners), account)
    if counts_towards(account, MonthlyBudgets(memory, now_s()).keys):
        return False
    say_once(
        "headway found no broker and lets calls go UNPACED, as you asked: refusals are to be"
        " expected."
    )
    return True


def say_once(text: str) -> None:
    """The same sentence once per process, on standard error unless logging is set up."""
    if text not in _SAID:
        _SAID.add(text)
        _LOG.warning(text)
