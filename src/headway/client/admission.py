"""The admission port: ask for a permit, wait, call, settle.

Laws:
- Thread-safe, for any number of threads and event loops at once.
- A forked child gets a port of its own: it neither uses nor settles what its parent holds.
- Waiting is bounded by the caller's deadline and says, when it ends, what it was for.
- Without a broker no call is sent, unless the user said so, and never where money counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import socket
import sys
import weakref
from collections import deque
from collections.abc import Callable
from math import inf
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, get_ident
from time import monotonic
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway import errors
from headway.base.clock import now_s
from headway.base.folders import Folders, folders, prepare
from headway.broker import client as broker
from headway.broker import protocol
from headway.broker.desk import AdmissionBook, Desk, Ways, budgets, counts_towards
from headway.broker.election import start
from headway.broker.store import Store, StoredMemory, open_book, recall, turn
from headway.pacing.admission import BookView, describe
from headway.pacing.memory import AccountTerms, PacingMemory

# Admission within one process: a desk of its own, no second process, nothing shared.

_LOG: Final = logging.getLogger("headway")

LINGER_S: Final = 1.0
"""The thread that ticks stays for so long after the last one who waited: others come soon."""


class DeskLine:
    def __init__(
        self, client: broker.AdmissionClient, book: AdmissionBook, ways: Ways | None = None
    ) -> None:
        """`ways` are the desk's, but for the one to its client, which is this line's."""
        ways = ways or Ways(monotonic, self._answer)
        self._client = client
        self._now = ways.now
        self._inbox: deque[protocol.FromClient | None] = deque()
        self._lock = Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._starting = Lock()
        self._ticker: Thread | None = None
        self._nap_s = inf
        self._desk = Desk(book, replace(ways, send=self._answer))
        self._desk.handle(client.id, client.hello())

    def send(self, message: protocol.FromClient, _permit: broker.InUse | None = None, /) -> None:
        """Leave the message, and serve the desk unless another thread does."""
        self._inbox.append(message)
        self._serve()

    def open(self) -> None:
        """Let time pass. Never called by a finalizer: it starts a thread."""
        with self._starting:
            if self._ticker is None:
                self._ticker = Thread(target=self._tick, name="headway-ticks", daemon=True)
                self._ticker.start()

    def close(self) -> None:
        """There is nothing to close: the thread ends by itself."""

    def abandon(self) -> None:
        """The desk is the parent's; the child makes its own."""

    def _answer(self, _client: str, message: protocol.FromBroker) -> None:
        self._client.receive(message)

    def _serve(self) -> None:
        """Looks again after each release of the lock: a message may have come just before."""
        while self._inbox and self._lock.acquire(blocking=False):
            try:
                self._hear()
            finally:
                self._lock.release()

    def _hear(self) -> None:
        try:
            while self._inbox:
                message = self._inbox.popleft()
                if message is not None:
                    self._desk.handle(self._client.id, message)
            self._desk.tick()
        except errors.WireError as fault:
            self._client.receive(protocol.Error(fault.message))
        except Exception as fault:
            # The boundary: this runs on whatever thread came first, which has probably nothing
            # to do with it. Those who wait are told.
            _LOG.exception("headway cannot admit calls")
            self._client.receive(protocol.Error(f"{type(fault).__name__}: {fault}"))
        if self._ticker is not None and self._desk.wake_s < self._nap_s:
            self._bell.put(None)

    def _tick(self) -> None:
        idle_s = monotonic()
        while True:
            self._nap_s = self._desk.wake_s
            nap_s = max(self._nap_s - self._now(), 0.0)
            try:
                self._bell.get(timeout=min(nap_s, LINGER_S))
            except Empty:
                self._inbox.append(None)
                self._serve()
            if self._client.statistics().waiting:
                idle_s = monotonic()
            elif monotonic() - idle_s >= LINGER_S:
                with self._starting:
                    # A call that waits came before this lock, or will start a new thread.
                    if not self._client.statistics().waiting:
                        self._ticker = None
                        return


WAIT_S_MAX: Final = 30 * 86400.0
"""The longest wait that is timed; the clocks below do not count further."""
REASON_S_MAX: Final = 1.0
"""How long a call that gives up waits to be told what it waited for."""
DESCRIBE_S_MAX: Final = 10.0
"""How long an answer about everything may take."""

Dial = Callable[[broker.AdmissionClient], broker.MessageLine]


class Admission:
    def __init__(self, dial: Dial | None = None, *, unpaced: bool = False) -> None:
        """`unpaced` lets calls go without a broker, except those that count towards a budget."""
        self._dial = dial or dial_best
        self._may_go: Callable[[str], bool] = without_budget if unpaced else lambda _: False
        self._lock = Lock()
        self._client: broker.AdmissionClient | None = None
        _ADMISSIONS.add(self)

    def admit(self, call: broker.CallRequest, deadline_s: float | None = None) -> broker.Ticket:
        bell = _Bell()
        client = self._present()
        place = client.ask(call, bell.ring)
        try:
            if not bell.wait(deadline_s) and client.leave(place):
                bell.wait(REASON_S_MAX)
                return _ticket(place, deadline_s)
            while place.answer is None:
                bell.wait(REASON_S_MAX)
            return _ticket(place, deadline_s)
        except BaseException:  # Interrupts too: the caller has left, a grant would be unused.
            client.abandon(place)
            raise

    async def admit_async(
        self, call: broker.CallRequest, deadline_s: float | None = None
    ) -> broker.Ticket:
        bell = _AsyncBell()
        client = self._present()
        place = client.ask(call, bell.ring)
        try:
            if not await bell.wait(deadline_s) and client.leave(place):
                await bell.wait(REASON_S_MAX)
                return _ticket(place, deadline_s)
            while place.answer is None:
                await bell.wait(REASON_S_MAX)
            return _ticket(place, deadline_s)
        except BaseException:  # Cancellation too: the caller has left, a grant would be unused.
            client.abandon(place)
            raise

    def configure(self, account: str, terms: AccountTerms) -> None:
        self._present().configure(account, terms)

    def describe(self) -> tuple[BookView, protocol.About]:
        """What is known of every account, who waits and why, and who says so. Blocks."""
        told: SimpleQueue[protocol.Described] = SimpleQueue()
        client = self._present()
        client.line.send(protocol.Describe(client.watch(told.put)))
        client.line.open()
        view = BookView("", (), (), ())
        while True:
            try:
                said = told.get(timeout=DESCRIBE_S_MAX)
            except Empty:
                raise errors.BrokerUnavailableError("the broker does not answer") from None
            part = said.part
            if part is not None:
                view = BookView(
                    part.month, view.lanes + part.lanes, view.ledgers + part.ledgers,
                    view.terms + part.terms, part.date, part.hour, view.days + part.days,
                )  # fmt: skip
            if said.about is not None:
                return view, said.about

    def close(self) -> None:
        """Hang up. The next call makes a new line."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.line.close()

    def statistics(self) -> broker.ClientStatistics:
        client = self._client
        return broker.ClientStatistics("", 0, 0, 0) if client is None else client.statistics()

    def _present(self) -> broker.AdmissionClient:
        client = self._client
        if client is not None:
            return client
        with self._lock:
            if self._client is None:
                self._client = broker.AdmissionClient(self._dial, self._may_go)
            return self._client

    def _forked(self) -> None:
        """In the child: the parent's client, its locks and its threads are not here."""
        self._lock = Lock()
        client, self._client = self._client, None
        if client is not None:
            client.is_stale = True
            client.line.abandon()


class _Bell:
    """Wakes one thread. Safe to ring from a finalizer: the queue is made for that."""

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        self._rung.put(None)

    def wait(self, timeout_s: float | None) -> bool:
        try:
            self._rung.get(timeout=None if timeout_s is None else _seconds(timeout_s))
        except Empty:
            return False
        return True


class _AsyncBell:
    """Wakes one coroutine of one loop, from any thread."""

    __slots__ = ("_loop", "_rung")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung: asyncio.Future[bool] = self._loop.create_future()

    def ring(self) -> None:
        """`RuntimeError` when the loop is closed."""
        if asyncio._get_running_loop() is self._loop:
            self._set()
        else:
            self._loop.call_soon_threadsafe(self._set)

    async def wait(self, timeout_s: float | None) -> bool:
        timer = None
        if timeout_s is not None and not self._rung.done():
            timer = self._loop.call_later(_seconds(timeout_s), self._set, False)
        try:
            has_rung = await self._rung
        finally:
            if timer is not None:
                timer.cancel()
        self._rung = self._loop.create_future()
        return has_rung

    def _set(self, has_rung: bool = True) -> None:
        if not self._rung.done():
            self._rung.set_result(has_rung)


def admission() -> Admission:
    with _PORT.lock:
        if _PORT.port is None:
            _PORT.port = Admission(unpaced=is_unpaced())
        return _PORT.port


def is_unpaced() -> bool:
    return os.environ.get("HEADWAY_UNPACED", "") not in ("", "0")


def keep_apart() -> None:
    """Let this process admit its calls by itself: what it calls is simulated."""
    with _PORT.lock:
        _PORT.port = Admission(dial_alone)


class _Port(Struct):
    lock: Lock
    port: Admission | None = None


_PORT: Final = _Port(Lock())
_ADMISSIONS: Final[weakref.WeakSet[Admission]] = weakref.WeakSet()


def _ticket(place: broker.WaitingCall, deadline_s: float | None) -> broker.Ticket:
    answer = place.answer
    if isinstance(answer, broker.Ticket):
        return answer
    if isinstance(answer, errors.HeadwayError):
        raise answer
    what = f"waited for {answer}" if answer else "nobody said what for"
    raise errors.QueueDeadlineError(
        f"a call to {place.request.account} waited for {deadline_s:g} s and was not sent",
        detail=what,
        hint="allow a longer wait, or send less at once",
    )


def _seconds(timeout_s: float) -> float:
    return min(max(timeout_s, 0.0), WAIT_S_MAX)


def _after_fork() -> None:
    _PORT.lock = Lock()
    for port in list(_ADMISSIONS):
        port._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Which way a process reaches admission: the broker if there can be one, else a desk of its own.

_SAID: Final[set[str]] = set()


def dial_best(client: broker.AdmissionClient) -> broker.MessageLine:
    place = folders(os.environ)
    why = obstacle(place)
    if not why:
        return broker.BrokerLine(client, broker.Search(place, start))
    say_once(
        f"headway paces this process alone, because there can be no broker: {why}."
        " Other processes on the same account are not counted."
    )
    return dial_own(client, place)


def dial_own(client: broker.AdmissionClient, place: Folders) -> broker.MessageLine:
    """A desk in this process: knows what the last broker knew, writes nothing, spends no budget."""
    return dial_alone(client, recall(place.memory))


def dial_alone(
    client: broker.AdmissionClient, kept: StoredMemory | None = None
) -> broker.MessageLine:
    """A desk in this process, for providers of our own: knows what is given, remembers nothing."""
    book = open_book(kept or StoredMemory(PacingMemory()), now_s())

    def view() -> BookView:
        """This book has no broker that tells it the time."""
        turn(book, now_s())
        return describe(book, now_s())

    why = "budgets need a broker, and there is none"
    return DeskLine(client, book, Ways(now_s, lambda _, __: None, lambda: why, _LOG.warning, view))


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
        terms = Store(folders(os.environ).memory).look().memory.terms
    except FileNotFoundError:
        terms = ()
    except (OSError, errors.WireError):
        return False
    if counts_towards(account, budgets(terms)):
        return False
    say_once(
        "headway found no broker and lets calls go UNPACED, as HEADWAY_UNPACED asks:"
        " refusals are to be expected."
    )
    return True


def say_once(text: str) -> None:
    """The same sentence once per process, on standard error unless logging is set up."""
    if text not in _SAID:
        _SAID.add(text)
        _LOG.warning(text)


# The line to the broker of a process that lives in one event loop: heard there, not in a thread.

UNHEARD_S_MAX: Final = 1.0
"""When a line is closed, its loop has so long to let go of the socket."""


def dial_here(client: broker.AdmissionClient) -> broker.MessageLine:
    """The best line for the event loop that asks first; from then on only for that one."""
    place = folders(os.environ)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return dial_best(client)
    if obstacle(place):
        return dial_best(client)
    return LoopLine(client, broker.Search(place, start), loop)


class LoopLine(broker.BrokerLine):
    def __init__(
        self, client: broker.AdmissionClient, search: broker.Search, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Called in the thread that the loop runs in."""
        super().__init__(client, search)
        self._loop = loop
        self._owner = get_ident()
        self._is_due = False
        self._is_over = False
        self._heard: socket.socket | None = None
        self._lines = protocol.MessageSplitter()

    def send(self, message: protocol.FromClient, permit: broker.InUse | None = None, /) -> None:
        if self._sock is None and isinstance(message, protocol.Passing):
            return
        self._outbox.append((protocol.line_of(message), (message, permit)))
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
                        self._bell[0].recv(broker.READ_BYTES)
        if self._heard is not None:
            self._in_loop(self._unhear)

    def _hear_here(self, sock: socket.socket) -> None:
        """In the loop: take what the broker says from now on."""
        if not self._is_closed:
            self._lines, self._heard = protocol.MessageSplitter(), sock
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
