"""One process's side of admission: its waiting calls, its permits, its connection.

Laws:
- A call that asked ends in exactly one of: a ticket, an error, gone. A ticket whose caller has left
  is settled as unused at once.
- A permit is settled exactly once, by the caller or the garbage collector, whichever is first.
- That an answer is to be ended is left where its caller looks; no thread is called or waited for.
- Nothing of a call blocks. `settle` may run in the middle of anything on any thread, this module
  included: so there are no locks, and every step is one operation on a dict, list or deque.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy
from itertools import count
from time import monotonic
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from headway import errors
from headway.base.values import Amounts, Reading, Wait
from headway.broker import protocol
from headway.pacing.call import Cut, Denied, Granted, Outcome, Request

UNUSED: Final = Outcome("unused")
FORGOTTEN: Final = Outcome("used")
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


class ClientCall(Struct, eq=False):
    """A call of this process, from its request to its settlement."""

    number: int
    request: Request
    ring: Callable[[], None]
    """Wakes its caller, on any thread."""
    answer: Ticket | errors.HeadwayError | None = None
    """Taken from here when the caller has it: nothing else may keep a ticket alive."""
    wait: Wait | None = None
    """What it waits for, as far as the broker was asked."""
    is_gone: bool = False
    """Its caller wants no answer any more."""
    granted_s: float = 0.0
    cut: errors.HeadwayError | None = None
    """Why its answer is to be ended."""

    def resolve(self, answer: Ticket | errors.HeadwayError | None) -> None:
        """Hand over the answer; a ticket whose caller has left is given back unused."""
        self.answer = answer
        try:
            self.ring()
        except RuntimeError:  # The loop that the caller waited in has been closed.
            self.is_gone = True
        if self.is_gone and isinstance(answer, Ticket):
            answer.settle(UNUSED)

    def take(self) -> Ticket:
        """The ticket, or raises the error."""
        answer, self.answer = self.answer, None
        if isinstance(answer, Ticket):
            return answer
        raise answer or errors.InternalError("a call was taken before its answer came")

    def adopt(self) -> protocol.Adopt:
        return protocol.Adopt(self.number, self.request, monotonic() - self.granted_s)


Said = tuple[protocol.FromClient, ClientCall | None]
"""A message, and the call in flight that it ends if it ends one."""


class Connection(Protocol):
    def send(self, message: protocol.FromClient, call: ClientCall | None = None, /) -> None:
        """Say something. Never blocks; `call` is the one that the message ends."""

    def open(self) -> None:
        """Start to listen: a call is about to wait."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent, without a word or a lock."""


class Ticket:
    """A permit in use. Every method may be called from anywhere at any time, and never blocks."""

    __slots__ = ("_call", "_client", "_open", "expected", "waited_for")

    def __init__(self, client: AdmissionClient, call: ClientCall, granted: Granted) -> None:
        self.waited_for = granted.waited_for
        self.expected = granted.expected
        self._client = client
        self._call = call
        # The first to settle takes it out: to pop a list is one step, whatever the thread.
        self._open = [True]

    def __del__(self) -> None:
        if self._open:
            self.settle(FORGOTTEN)

    @property
    def cut(self) -> errors.HeadwayError | None:
        """Why the answer is to be ended here and now, if it is: it outgrew the budget."""
        return self._call.cut

    def reached(self) -> None:
        self._tell(protocol.Reached(self._call.number))

    def began(self, reading: Reading, dialect: str) -> None:
        self._tell(protocol.AnswerBegan(self._call.number, reading, dialect))

    def progressed(self, output_tokens: float) -> None:
        self._tell(protocol.Progressed(self._call.number, output_tokens))

    def still_alive(self) -> None:
        self._tell(protocol.Alive(self._call.number))

    def _tell(self, message: protocol.FromClient) -> None:
        """Send a message that has no answer. One that is too long is dropped without an error."""
        if self._open and not self._client.is_stale:
            with suppress(errors.WireError):
                self._client.connection.send(message)

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
        client, call = self._client, self._call
        if client.is_stale:
            return  # A forked child does not settle what its parent holds.
        fault = outcome.fault
        if fault is not None and len(fault.detail) > DETAIL_MAX:
            outcome = replace(outcome, fault=replace(fault, detail=fault.detail[:DETAIL_MAX]))
        # Said first and forgotten after: in between, the next broker may be told both.
        try:
            client.connection.send(protocol.Settle(call.number, outcome), call)
        except errors.WireError:
            brief = Outcome(outcome.how, outcome.tally)
            client.connection.send(protocol.Settle(call.number, brief), call)
        client.in_use.pop(call.number, None)


class ClientStatistics(Struct, frozen=True):
    id: str
    asked: int
    waiting: int
    in_use: int


class AdmissionClient:
    def __init__(
        self,
        dial: Callable[[AdmissionClient], Connection],
        may_go: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`may_go` says whether calls of an account may be made without an admission."""
        self.id = f"{os.getpid()}-{os.urandom(4).hex()}"
        self.is_stale = False
        self._may_go = may_go
        self._numbers = count(1)
        self._asked = 0
        self.waiting: dict[int, ClientCall] = {}
        self.leaving: dict[int, ClientCall] = {}
        """Calls that gave up and have not been told what they waited for."""
        self.in_use: dict[int, ClientCall] = {}
        self._views: dict[int, Callable[[protocol.Described], None]] = {}
        self.connection = dial(self)

    def enter(self, request: Request, ring: Callable[[], None]) -> ClientCall:
        """A call that is about to ask; `ring` is called, on any thread, when there is an answer."""
        number = self._asked = next(self._numbers)
        call = self.waiting[number] = ClientCall(number, request, ring)
        return call

    def leave(self, call: ClientCall) -> bool:
        """Stop waiting, to be told why it took so long. False if there is an answer already."""
        if self.waiting.pop(call.number, None) is None:
            return False
        self.leaving[call.number] = call
        self.connection.send(protocol.Leave(call.number))
        return True

    def abandon(self, call: ClientCall) -> None:
        """Stop waiting, whatever the answer is or will be."""
        self.leaving.pop(call.number, None)
        call.is_gone = True
        if self.waiting.pop(call.number, None) is not None:
            self.connection.send(protocol.Leave(call.number))
        elif isinstance(call.answer, Ticket):
            call.answer.settle(UNUSED)

    def describe(self, seen: Callable[[protocol.Described], None]) -> None:
        """Ask for all that is known; it comes in parts."""
        number = next(self._numbers)
        self._views[number] = seen
        self.connection.send(protocol.Describe(number))
        self.connection.open()

    def receive(self, message: protocol.FromBroker) -> None:
        """Take an answer. Called by one thread at a time."""
        match message:
            case Granted(id):
                self._granted(id[1], message)
            case Denied(id, code, text, hint):
                call = self.waiting.pop(id[1], None)
                if call is not None:
                    kind = _ERRORS.get(code, errors.InternalError)
                    call.resolve(kind(text, hint=hint or None))
            case Cut(id, text, hint):
                call = self.in_use.get(id[1])
                if call is not None:
                    call.cut = errors.BudgetReachedError(text, hint=hint or None)
            case protocol.Waits(number, wait):
                call = self.waiting.get(number) or self.leaving.pop(number, None)
                if call is not None:
                    call.wait = wait
                    call.resolve(None)
            case protocol.Described(number):
                seen = self._views.get(number)
                if seen is not None:
                    seen(message)
                    if message.about is not None:
                        self._views.pop(number, None)
            case protocol.Rejected(text):
                self.lost(errors.BrokerUnavailableError(f"the broker refused this process: {text}"))

    def hello(self) -> protocol.Hello:
        name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
        return protocol.Hello(protocol.VERSION, self.id, os.getpid(), name[:100])

    def introduction(self, unsent: Iterable[Said]) -> list[Said]:
        """All that the next broker is told, in order. `unsent` is read after the copies."""
        in_use, waiting = self.in_use.copy(), self.waiting.copy()
        told: list[Said] = [(self.hello(), None)]
        told += [(call.adopt(), None) for call in in_use.values()]
        for message, call in unsent:
            if isinstance(message, protocol.Settle):
                if call is not None and message.number not in in_use:
                    told.append((call.adopt(), None))
                told.append((message, call))
            elif isinstance(message, protocol.OUTLASTS):
                told.append((message, None))
        told += [(protocol.Ask(call.number, call.request), None) for call in waiting.values()]
        return told

    def lost(self, error: errors.HeadwayError) -> None:
        """There is no broker: calls that wait fail, or go if they may."""
        for number, call in self.waiting.copy().items():
            if self._may_go(call.request.account):
                self._granted(number, Granted((self.id, number), "", Amounts()))
            elif self.waiting.pop(number, None) is not None:
                # Each its own: an error that several threads raise has a mixed traceback.
                call.resolve(copy(error))

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(self.id, self._asked, len(self.waiting), len(self.in_use))

    def _granted(self, number: int, granted: Granted) -> None:
        call = self.waiting.pop(number, None)
        if call is None:
            # Its caller left while the grant was on its way.
            if number not in self.in_use:
                self.connection.send(protocol.Settle(number, UNUSED))
            return
        call.granted_s = monotonic()
        self.in_use[number] = call
        call.resolve(Ticket(self, call, granted))
