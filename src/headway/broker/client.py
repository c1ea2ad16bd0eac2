"""One process's side of admission: its waiting calls, its permits, its line to the broker.

Laws:
- A call that asked ends in exactly one of: a ticket, an error, gone. A ticket that meets nobody
  is settled as unused at once.
- A permit is settled exactly once, by the caller or the garbage collector, whichever is first.
- That an answer is to be ended is left where its caller looks; nobody is called or waited for. Who
  has settled by then is not told.
- Nothing of a call blocks. `settle` may run in the middle of anything on any thread, this module
  included: so there are no locks, and every step is one operation on a dict, list or deque.
"""

from __future__ import annotations

import logging
import os
import random
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from itertools import count
from threading import Lock, Thread
from time import monotonic
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from headway import errors
from headway.base.folders import Folders
from headway.base.values import Amounts, Demand, Permit, Reading, Sketch
from headway.broker import protocol
from headway.pacing.admission import CallOutcome, Denied, Granted
from headway.pacing.budget import Cut
from headway.pacing.lane import Request
from headway.pacing.memory import AccountTerms

UNUSED: Final = CallOutcome("unused")
FORGOTTEN: Final = CallOutcome("used")
"""A ticket that was never settled: its call was probably sent, and not counted."""
DETAIL_MAX: Final = 500
"""Characters of a provider's own words that are worth sending along."""

_ERRORS: Final[dict[str, type[errors.HeadwayError]]] = {
    kind.code: kind
    for kind in (
        errors.DemandTooLargeError,
        errors.BudgetReachedError,
        errors.AccountClosedError,
        errors.StateFileError,
    )
}


class CallRequest(Struct, frozen=True):
    account: str
    dialect: str
    sketch: Sketch
    path: tuple[str, ...] = ()
    is_resent: bool = False
    is_soft: bool = False
    """It may be ended in the middle of its answer, and claims of the budgets as it grows."""


class InUse(Struct, frozen=True):
    request: Request
    since_s: float
    cuts: list[errors.HeadwayError] = field(default_factory=list)
    """Why its answer is to be ended; shared with its ticket, which it must not keep alive."""

    def adopt(self) -> protocol.Adopt:
        return protocol.Adopt(self.request, monotonic() - self.since_s)


Said = tuple[protocol.FromClient, InUse | None]
"""A message, and the permit that it ends if it ends one."""


class MessageLine(Protocol):
    def send(self, message: protocol.FromClient, permit: InUse | None = None, /) -> None:
        """Say something. Never blocks; `permit` is the one that the message ends."""

    def open(self) -> None:
        """Start to listen: a call is about to wait."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent, without a word or a lock."""


class WaitingCall(Struct, eq=False):
    """One call in line, and where its caller is woken."""

    request: Request
    ring: Callable[[], None]
    answer: Ticket | errors.HeadwayError | str | None = None
    """The string is what it waited for until it left."""
    is_gone: bool = False

    def resolve(self, answer: Ticket | errors.HeadwayError | str) -> None:
        """Hand over the answer; a ticket whose caller has left is given back unused."""
        self.answer = answer
        try:
            self.ring()
        except RuntimeError:  # The loop that the caller waited in has been closed.
            self.is_gone = True
        if self.is_gone and isinstance(answer, Ticket):
            answer.settle(UNUSED)


class Ticket:
    """A permit in use. Every method may be called from anywhere at any time, and never blocks."""

    __slots__ = ("_client", "_cuts", "_number", "_open", "permit")

    def __init__(
        self, client: AdmissionClient, number: int, permit: Permit, cuts: list[errors.HeadwayError]
    ) -> None:
        self.permit = permit
        self._client = client
        self._number = number
        self._cuts = cuts
        # The first to settle takes it out: to pop a list is one step, whatever the thread.
        self._open = [True]

    def __del__(self) -> None:
        if self._open:
            self.settle(FORGOTTEN)

    @property
    def cut(self) -> errors.HeadwayError | None:
        """Why the answer is to be ended here and now, if it is: it outgrew the budget."""
        return self._cuts[0] if self._cuts else None

    def began(self, reading: Reading, dialect: str) -> None:
        if self._open:
            self._client.tell(protocol.BeganMessage(self._number, reading, dialect))

    def progressed(self, output_tokens: float) -> None:
        if self._open:
            self._client.tell(protocol.Progressed(self._number, output_tokens))

    def still_alive(self) -> None:
        if self._open:
            self._client.tell(protocol.Alive(self._number))

    def settle(self, outcome: CallOutcome) -> None:
        """The call ended. Only the first settlement counts."""
        try:
            self._open.pop()
        except IndexError:
            return
        try:
            self._client.settled(self._number, outcome)
        except BaseException:
            # Ctrl-C, in the middle of it. What is said twice is said once.
            self._client.settled(self._number, outcome)
            raise


class ClientStatistics(Struct, frozen=True):
    id: str
    asked: int
    waiting: int
    in_use: int


class AdmissionClient:
    def __init__(
        self,
        dial: Callable[[AdmissionClient], MessageLine],
        may_go: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`may_go` says whether calls of an account may be made without an admission."""
        self.id = f"{os.getpid()}-{os.urandom(4).hex()}"
        self.is_stale = False
        self._may_go = may_go
        self._numbers = count(1)
        self._asked = 0
        self._waiting: dict[int, WaitingCall] = {}
        self._leaving: dict[int, WaitingCall] = {}
        self._in_use: dict[int, InUse] = {}
        self._views: dict[int, Callable[[protocol.Described], None]] = {}
        self.line = dial(self)

    def ask(self, call: CallRequest, ring: Callable[[], None]) -> WaitingCall:
        """Join the line; `ring` is called, on any thread, when there is an answer."""
        number = self._asked = next(self._numbers)
        request = Request(
            (self.id, number), call.account, call.dialect, call.sketch, call.path,
            call.is_resent, call.is_soft,
        )  # fmt: skip
        place = self._waiting[number] = WaitingCall(request, ring)
        try:
            self.line.send(protocol.AskMessage(request))
            if place.answer is None:
                self.line.open()
        except BaseException:  # Whatever it was, the caller no longer waits here.
            self.abandon(place)
            raise
        return place

    def leave(self, place: WaitingCall) -> bool:
        """Stop waiting, to be told why it took so long. False if there is an answer already."""
        number = place.request.id[1]
        if self._waiting.pop(number, None) is None:
            return False
        self._leaving[number] = place
        self.line.send(protocol.Leave(number))
        return True

    def abandon(self, place: WaitingCall) -> None:
        """Stop waiting, whatever the answer is or will be."""
        number = place.request.id[1]
        self._leaving.pop(number, None)
        place.is_gone = True
        if self._waiting.pop(number, None) is not None:
            self.line.send(protocol.Leave(number))
        elif isinstance(place.answer, Ticket):
            place.answer.settle(UNUSED)

    def tell(self, message: protocol.FromClient) -> None:
        """Send a message that has no answer. One that is too long is dropped without an error."""
        if not self.is_stale:
            try:
                self.line.send(message)
            except errors.WireError:
                return

    def settled(self, number: int, outcome: CallOutcome) -> None:
        """A permit ended. A forked child does not settle what its parent holds."""
        if self.is_stale:
            return
        permit = self._in_use.get(number)
        # Said first and forgotten after: in between, an heir of the broker may ask for both.
        try:
            self.line.send(protocol.Settled(number, _shorter(outcome)), permit)
        except errors.WireError:
            brief = CallOutcome(outcome.how, outcome.tally)
            self.line.send(protocol.Settled(number, brief), permit)
        self._in_use.pop(number, None)

    def configure(self, account: str, terms: AccountTerms) -> None:
        """What the user set. The broker writes it down, and its heirs read it there."""
        self.line.send(protocol.Configure(account, terms))
        self.line.open()

    def watch(self, seen: Callable[[protocol.Described], None]) -> int:
        number = next(self._numbers)
        self._views[number] = seen
        return number

    def receive(self, message: protocol.Message) -> None:
        """Hear an answer. Called by one thread at a time."""
        match message:
            case Granted(call, permit):
                self._granted(call[1], permit)
            case Denied(call, code, text, hint):
                place = self._waiting.pop(call[1], None)
                if place is not None:
                    kind = _ERRORS.get(code, errors.InternalError)
                    place.resolve(kind(text, hint=hint or None))
            case Cut(call, text, hint):
                held = self._in_use.get(call[1])
                if held is not None:
                    held.cuts.append(errors.BudgetReachedError(text, hint=hint or None))
            case protocol.Left(number, reason):
                place = self._leaving.pop(number, None)
                if place is not None:
                    place.resolve(reason)
            case protocol.Described(number):
                seen = self._views.get(number)
                if seen is not None:
                    seen(message)
                    if message.about is not None:
                        self._views.pop(number, None)
            case protocol.Error(text):
                self.lost(errors.BrokerUnavailableError(f"the broker refused this process: {text}"))

    def hello(self) -> protocol.Hello:
        name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
        return protocol.Hello(protocol.VERSION, self.id, os.getpid(), name[:100])

    def story(self, unsent: Iterable[Said]) -> list[Said]:
        """All that the next broker is told, in order. `unsent` is read after the copies."""
        in_use, waiting = self._in_use.copy(), self._waiting.copy()
        told: list[Said] = [(self.hello(), None)]
        told += [(permit.adopt(), None) for permit in in_use.values()]
        for message, permit in unsent:
            if isinstance(message, protocol.Settled):
                if permit is not None and message.number not in in_use:
                    told.append((permit.adopt(), None))
                told.append((message, permit))
            elif isinstance(message, protocol.Leave | protocol.Describe | protocol.Configure):
                told.append((message, None))
        told += [(protocol.AskMessage(place.request), None) for place in waiting.values()]
        return told

    def lost(self, error: errors.HeadwayError) -> None:
        """There is no broker: calls that wait fail, or go if they may."""
        for number, place in self._waiting.copy().items():
            if self._may_go(place.request.account):
                nothing = Amounts()
                flow = (place.request.path or (self.id,))[0]
                demand = Demand(nothing, nothing, place.request.sketch.kind)
                self._granted(number, Permit(0, flow, demand, 0.0, "unpaced: there is no broker"))
            elif self._waiting.pop(number, None) is not None:
                # Each its own: an error that several threads raise has a mixed traceback.
                place.resolve(copy(error))

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(self.id, self._asked, len(self._waiting), len(self._in_use))

    def _granted(self, number: int, permit: Permit) -> None:
        place = self._waiting.pop(number, None)
        if place is None:
            # Its caller left while the grant was on its way.
            if number not in self._in_use:
                self.line.send(protocol.Settled(number, UNUSED))
            return
        held = self._in_use[number] = InUse(place.request, monotonic())
        place.resolve(Ticket(self, number, permit, held.cuts))


def _shorter(outcome: CallOutcome) -> CallOutcome:
    fault = outcome.fault
    if fault is None or len(fault.detail) <= DETAIL_MAX:
        return outcome
    return replace(outcome, fault=replace(fault, detail=fault.detail[:DETAIL_MAX]))


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
    def __init__(self, place: Folders, start: Start, nobody_s: float = NOBODY_S) -> None:
        self._place = place
        self._start = start
        self._nobody_s = self._patience_s = nobody_s
        self._give_up_s = 0.0
        self._start_s = 0.0
        self._deaths = 0
        self._fault = ""

    def connect(
        self, is_needed: Callable[[], bool], lost: Callable[[errors.HeadwayError], None]
    ) -> socket.socket | None:
        """A connection, or None if no call needs one any more. `lost` is called if none comes."""
        self._give_up_s = monotonic() + self._patience_s
        if self._deaths > 1:
            # The thread that ends these calls must not wait for this one.
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
                self._begin()
            return None
        sock.setblocking(False)
        return sock

    def _begin(self) -> None:
        try:
            self._fault = self._start(self._place)
        except errors.HeadwayError as error:
            self._fault = error.message
        if self._fault:
            self._start_s = monotonic() + START_AGAIN_S


_LOG: Final = logging.getLogger("headway")

BATCH_MAX: Final = 200

READ_BYTES: Final = 64 * 1024

CLOSE_S_MAX: Final = 5.0
"""How long hanging up may take: no longer than a broker that is being started."""

Unsent = tuple[bytes, Said]


class BrokerLine:
    """A client's line to the broker: a socket, a reader thread, reconnection.

    A sender writes to the socket itself, unless another thread is writing: that one goes on with
    it. No sender waits for a lock. Only the reader thread connects, listens and tells the next
    broker how this process stands.
    """

    def __init__(self, client: AdmissionClient, search: Search) -> None:
        self._client = client
        self._search = search
        self._outbox: deque[Unsent] = deque()
        # Only the thread that holds the lock uses these three.
        self._sending: list[Said] = []
        self._data = b""
        self._sock: socket.socket | None = None
        self._lock = Lock()
        self._starting = Lock()
        self._thread: Thread | None = None
        self._bell = socket.socketpair()
        self._bell[1].setblocking(False)
        self._is_closed = False

    def send(self, message: protocol.FromClient, permit: InUse | None = None, /) -> None:
        if self._sock is None and isinstance(message, protocol.Passing):
            return
        self._outbox.append((protocol.line_of(message), (message, permit)))
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
                # A call that needs a broker came before this lock, or will start a new thread.
                if not self._is_needed():
                    self._thread = None
                    return

    def _is_needed(self) -> bool:
        known = self._client.statistics()
        return not self._is_closed and bool(known.waiting or known.in_use or self._outbox)

    def _introduce(self, sock: socket.socket) -> None:
        with self._lock:
            told = self._client.story(_taken(self._sending, self._outbox))
            self._sending = told
            self._data = b"".join(protocol.line_of(message) for message, _ in told)
            self._sock = sock
            self._write()
        self._flush()

    def _listen(self, sock: socket.socket) -> None:
        lines = protocol.MessageSplitter()
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

    def _hear(self, sock: socket.socket, lines: protocol.MessageSplitter) -> bool:
        """False when the broker is gone, or is none."""
        try:
            data = sock.recv(READ_BYTES)
            for message in lines.feed(data):
                self._client.receive(message)
        except BlockingIOError:
            return True
        except errors.WireError as fault:
            self._client.receive(protocol.Error(f"it is not understood: {fault.message}"))
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
