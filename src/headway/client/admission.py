"""The admission port: ask for a permit, wait, call, settle.

Laws:
- Thread-safe, for any number of threads and event loops at once.
- A call that asked ends in exactly one of: a permit, an error, gone. A permit whose caller has left
  is settled as unused at once.
- A permit is settled exactly once, by the caller or the garbage collector, whichever is first.
- That an answer is to be ended is left where its caller looks; no thread is called or waited for.
- Nothing of a call blocks. `settle` may run in the middle of anything on any thread, this module
  included: so there are no locks, and every step is one operation on a dict, list or deque.
- A forked child neither uses nor settles what its parent holds.
- Waiting is bounded by the caller's deadline and says, when it ends, what it was for; what a call
  waits for can be looked at while it keeps its place.
- Without a broker no call is sent, unless the user said so, and never where money counts.
"""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import count
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import Final

from headway import errors
from headway.base.clock import now_s
from headway.base.values import Amounts, Reading, Wait
from headway.broker import protocol
from headway.client.connection import (
    Connection,
    LocalConnection,
    Said,
    dial_alone,
    dial_best,
    without_budget,
)
from headway.client.exchange import Heard
from headway.pacing.call import Denied, Granted, Outcome, Request
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.pacing.view import AdmissionView

UNUSED: Final = Outcome("unused")
UNTOLD: Final = Wait("", inf, "the broker did not say what for")
FORGOTTEN: Final = Outcome("used")
"""A permit that was never settled: its call was probably sent, and not counted."""
WAIT_S_MAX: Final = 30 * 86400.0
"""The longest wait that is timed; the clocks below do not count further."""
REASON_S_MAX: Final = 1.0
"""How long a call waits to be told what it waits for, before it gives up or goes on to wait."""
LOOK_S: Final = (2.0, 10.0)
"""A caller that wants to know what it waits for is told after so long, then so often."""
DESCRIBE_S_MAX: Final = 10.0
"""How long an answer about everything may take."""
_ERRORS: Final[dict[str, type[errors.HeadwayError]]] = {
    kind.code: kind
    for kind in (
        errors.DemandTooLargeError,
        errors.BudgetReachedError,
        errors.AccountClosedError,
        errors.StateFileError,
    )
}


class ClientCall:
    """A call of this process, from its request to its settlement; once it is granted, its permit.

    Only its caller, and while it waits its port, keep it alive. Every method may be called from
    anywhere at any time, and never blocks.
    """

    __slots__ = (
        "_open", "_port", "error", "expected", "is_answered", "is_gone", "number", "request",
        "ring", "wait", "waited_for",
    )  # fmt: skip

    def __init__(self, port: AdmissionPort, number: int, request: Request) -> None:
        self._port, self.number, self.request = port, number, request
        self.ring: Callable[[], object] | None = None
        """Wakes its caller, on any thread; set before the caller looks for an answer and waits."""
        self.is_answered = self.is_gone = False
        """Whether its caller wants no answer any more."""
        self.error: errors.HeadwayError | None = None
        self.wait: Wait | None = UNTOLD
        """What the broker said that it waits for; None if only for its turn."""
        # One entry while it is in use. The first to settle takes it out: to pop a list is one step.
        self._open: list[Granted] = []

    def __del__(self) -> None:
        if self._open:
            self.settle(FORGOTTEN)

    def answer(self, granted: Granted | None, error: errors.HeadwayError | None = None) -> None:
        """It is granted or denied. A permit whose caller has left is given back unused."""
        if granted is not None:
            self.waited_for, self.expected = granted.waited_for, granted.expected
            self._open.append(granted)
        self.error, self.is_answered = error, True
        if self.ring is not None:
            self.wake()
        if self.is_gone:
            self.settle(UNUSED)

    def wake(self) -> None:
        """Have its caller look, if it waits."""
        try:
            if self.ring is not None:
                self.ring()
        except RuntimeError:  # The loop that the caller waited in has been closed.
            self.is_gone = True

    def abandon(self) -> None:
        """Stop waiting, whatever the answer is or will be."""
        self.is_gone = True
        if self._port.waiting.pop(self.number, None) is not None:
            self._port.send(protocol.Leave(self.number))
        self.settle(UNUSED)

    @property
    def cut(self) -> errors.HeadwayError | None:
        """Why the answer is to be ended here and now, if it is: it outgrew the budget."""
        return self.error or self._port.cuts.get(self.number)

    def reached(self) -> None:
        self._tell(protocol.Reached(self.number))

    def began(self, reading: Reading, dialect: str) -> None:
        self._tell(protocol.AnswerBegan(self.number, reading, dialect))

    def progressed(self, output_tokens: float) -> None:
        self._tell(protocol.Progressed(self.number, output_tokens))

    def _tell(self, message: protocol.FromClient) -> None:
        """Send a message that has no answer. One that is too long is dropped without an error."""
        if self._open and self.number in self._port.in_use:
            with suppress(errors.WireError):
                self._port.send(message)

    def settle(self, outcome: Outcome) -> None:
        """The call ended. Only the first settlement counts."""
        try:
            self._open.pop()
        except IndexError:
            return
        try:
            self._settle(outcome)
        except BaseException:
            # Ctrl-C, in the middle of it. What is said twice is said once.
            self._settle(outcome)
            raise

    def _settle(self, outcome: Outcome) -> None:
        port, number = self._port, self.number
        sent = port.in_use.get(number)
        if sent is None:
            return  # A forked child does not settle what its parent holds.
        # Said first and forgotten after: in between, the next broker may be told both.
        try:
            port.send(protocol.Settle(number, outcome), sent)
        except errors.WireError:
            port.send(protocol.Settle(number, Outcome(outcome.how, outcome.tally)), sent)
        port.in_use.pop(number, None)
        self.error = port.cuts.pop(number, None)


Dial = Callable[["AdmissionPort"], Connection]


class AdmissionPort:
    """The calls of this process that wait or are in flight, and the connection to admission."""

    def __init__(self, dial: Dial | None = None, *, unpaced: bool = False) -> None:
        """`unpaced`, or HEADWAY_UNPACED: calls without a budget go when there is no broker."""
        self._dial = dial or dial_best
        self._is_unpaced = unpaced or os.environ.get("HEADWAY_UNPACED", "") not in ("", "0")
        self._numbers = count(1)
        self._lock = Lock()
        self._begin_anew()
        _PORTS.add(self)

    def _begin_anew(self) -> None:
        self.id = f"{os.getpid()}-{os.urandom(4).hex()}"
        self.waiting: dict[int, ClientCall] = {}
        self.in_use: dict[int, protocol.Ask] = {}
        """Calls in flight, as the next broker is told of them."""
        self.cuts: dict[int, errors.HeadwayError] = {}
        """Calls in flight whose answers are to be ended, and why."""
        self._views: dict[int, Callable[[protocol.Described], None]] = {}
        self.connection: Connection | None = None
        """None until it is first needed."""

    def admit(
        self, request: Request, deadline_s: float | None = None, heard: Heard | None = None
    ) -> ClientCall:
        connection, call = self.connection or self.connected(), self.enter(request)
        try:
            connection.send(protocol.Ask(call.number, request))
            if not call.is_answered:
                connection.open()
                bell: SimpleQueue[None] = SimpleQueue()
                call.ring = partial(bell.put, None)
                for timeout_s in self._waits(call, deadline_s, heard):
                    with suppress(Empty):
                        bell.get(timeout=timeout_s)
        except BaseException:  # Interrupts too: the caller has left, a grant would be unused.
            call.abandon()
            raise
        if call.error is not None:
            raise call.error
        return call

    async def admit_async(
        self, request: Request, deadline_s: float | None = None, heard: Heard | None = None
    ) -> ClientCall:
        connection, call = self.connection or self.connected(), self.enter(request)
        try:
            connection.send(protocol.Ask(call.number, request))
            if not call.is_answered:
                connection.open()
                bell = asyncio.Event()
                call.ring = partial(asyncio.get_running_loop().call_soon_threadsafe, bell.set)
                for timeout_s in self._waits(call, deadline_s, heard):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(timeout_s):
                            await bell.wait()
                    bell.clear()
        except BaseException:  # Cancellation too: the caller has left, a grant would be unused.
            call.abandon()
            raise
        if call.error is not None:
            raise call.error
        return call

    def enter(self, request: Request) -> ClientCall:
        """A call that is about to ask."""
        number = next(self._numbers)
        call = self.waiting[number] = ClientCall(self, number, request)
        return call

    def send(self, message: protocol.FromClient, sent: protocol.Ask | None = None) -> None:
        (self.connection or self.connected()).send(message, sent)

    def tell(self, message: protocol.FromClient) -> None:
        """Send what is not about a call: what the user set, or that usage windows may be filled."""
        self.send(message)
        self.connected().open()

    def configure(self, account: str, terms: AccountTerms) -> None:
        """What the user set. The broker writes it down, and the next one reads it there."""
        self.tell(protocol.Configure(account, terms))

    def describe(self) -> tuple[AdmissionView, protocol.About]:
        """What is known of every account, who waits and why, and who says so. Blocks."""
        told: SimpleQueue[protocol.Described] = SimpleQueue()
        number = next(self._numbers)
        self._views[number] = told.put
        self.tell(protocol.Describe(number))
        try:
            said = told.get(timeout=DESCRIBE_S_MAX)
        except Empty:
            raise errors.BrokerUnavailableError("the broker does not answer") from None
        return said.view, said.about

    def connected(self) -> Connection:
        """The connection, made if there is none."""
        with self._lock:
            if self.connection is None:
                self.connection = self._dial(self)
            return self.connection

    def close(self) -> None:
        """Hang up. The next call makes a new connection, as another client."""
        with self._lock:
            if self.connection is not None:
                self.connection.close()
            self._begin_anew()

    def forked(self) -> None:
        """In the child: the parent's calls, its locks and its threads are not here."""
        connection = self.connection
        self._lock = Lock()
        self._begin_anew()
        if connection is not None:
            connection.abandon()

    # What the connection says, on one thread at a time, and what the next broker is told.

    def receive(self, message: protocol.FromBroker) -> None:
        match message:
            case Granted():
                self._granted(message.id[1], message)
            case Denied(id, code, text, hint):
                error = _ERRORS.get(code, errors.InternalError)(text, hint=hint or None)
                call = self.waiting.pop(id[1], None)
                if call is not None:
                    call.answer(None, error)
                elif id[1] in self.in_use:
                    self.cuts[id[1]] = error
            case protocol.Waits(number, wait):
                call = self.waiting.get(number)
                if call is not None:
                    call.wait = wait
                    call.wake()
            case protocol.Described(number):
                seen = self._views.pop(number, None)
                if seen is not None:
                    seen(message)
            case protocol.Rejected(text):
                self.lost(errors.BrokerUnavailableError(f"the broker refused this process: {text}"))

    def hello(self) -> protocol.Hello:
        name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
        return protocol.Hello(protocol.VERSION, self.id, os.getpid(), name[:100])

    def introduction(self, unsent: Iterable[Said]) -> list[Said]:
        """All that the next broker is told, in order. `unsent` is read after the copies."""
        in_use, waiting = self.in_use.copy(), self.waiting.copy()
        told: list[Said] = [(self.hello(), None)]
        told += [(sent, None) for sent in in_use.values()]
        for message, sent in unsent:
            if isinstance(message, protocol.Settle):
                if sent is not None and message.number not in in_use:
                    told.append((sent, None))
                told.append((message, sent))
            elif isinstance(message, protocol.OUTLASTS):
                told.append((message, None))
        told += [(protocol.Ask(call.number, call.request), None) for call in waiting.values()]
        return told

    def lost(self, error: errors.HeadwayError) -> None:
        """There is no broker: calls that wait fail, or go if they may."""
        for number, call in self.waiting.copy().items():
            if self._is_unpaced and without_budget(call.request.account):
                self._granted(number, Granted((self.id, number), "", Amounts()))
            elif self.waiting.pop(number, None) is not None:
                # Each its own: an error that several threads raise has a mixed traceback.
                call.answer(None, copy(error))

    def _granted(self, number: int, granted: Granted) -> None:
        call = self.waiting.pop(number, None)
        if call is not None:
            self.in_use[number] = protocol.Ask(number, call.request, now_s())
            call.answer(granted)
        elif number not in self.in_use:
            # Its caller left while the grant was on its way.
            self.send(protocol.Settle(number, UNUSED))

    def _waits(
        self, call: ClientCall, deadline_s: float | None, heard: Heard | None
    ) -> Iterator[float | None]:
        """How long to wait for the bell, each time, until there is an answer."""
        ends_s = inf if deadline_s is None else monotonic() + min(max(deadline_s, 0.0), WAIT_S_MAX)
        look_s = inf if heard is None else monotonic() + LOOK_S[0]
        while not call.is_answered:
            now, due_s = monotonic(), min(ends_s, look_s)
            if now < due_s:
                yield None if due_s == inf else due_s - now
                continue
            yield from self._reason(call)
            wait, look_s = call.wait, now + LOOK_S[1]
            if call.number in self.waiting:
                if wait is not None and wait is not UNTOLD and heard is not None:
                    heard(wait)
                if now >= ends_s:
                    raise _too_late(call, deadline_s or 0.0)

    def _reason(self, call: ClientCall) -> Iterator[float]:
        """Until the broker has said what a call waits for; the call keeps its place."""
        call.wait = UNTOLD
        self.send(protocol.Why(call.number))
        late_s = monotonic() + REASON_S_MAX
        while call.wait is UNTOLD and not call.is_answered and (left_s := late_s - monotonic()) > 0:
            yield left_s


def _too_late(call: ClientCall, deadline_s: float) -> errors.QueueDeadlineError:
    wait, what = call.wait, "it was only not its turn"
    if wait is UNTOLD:
        what = wait.reason
    elif wait is not None:
        left = "" if wait.until_s == inf else f", {max(0.0, wait.until_s - now_s()):.1f} s more"
        what = f"waited for {wait.resource} ({wait.reason}{left})"
    return errors.QueueDeadlineError(
        f"a call to {call.request.account} waited for {deadline_s:g} s and was not sent",
        detail=what,
        hint="allow a longer wait, or send less at once",
    )


def admission(unpaced: bool = False) -> AdmissionPort:
    port = _OWN.get(unpaced)
    # Of two threads that find none, the port of one is never used.
    return port or _OWN.setdefault(unpaced, AdmissionPort(unpaced=unpaced))


def own_memory() -> PacingMemory | None:
    """What this process has learned of its accounts; None where a broker writes it down."""
    connection = admission().connection
    return connection.memory() if isinstance(connection, LocalConnection) else None


def keep_apart() -> None:
    """Let this process admit its calls by itself: what it calls is simulated."""
    _OWN.update(dict.fromkeys((False, True), AdmissionPort(dial_alone)))


_OWN: Final[dict[bool, AdmissionPort]] = {}
"""The ports of this process, by whether they let calls go unpaced."""
_PORTS: Final[weakref.WeakSet[AdmissionPort]] = weakref.WeakSet()


def _after_fork() -> None:
    for port in list(_PORTS):
        port.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
