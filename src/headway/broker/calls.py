"""One process's side of admission: its waiting calls, its permits, its connection.

Laws:
- A call that asked ends in exactly one of: a permit, an error, gone. A permit whose caller has left
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
from math import inf
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from headway import errors
from headway.base.clock import now_s
from headway.base.values import Amounts, Reading, Wait
from headway.broker import protocol
from headway.pacing.call import Denied, Granted, Outcome, Request

UNUSED: Final = Outcome("unused")
UNTOLD: Final = Wait("", inf, "the broker did not say what for")
FORGOTTEN: Final = Outcome("used")
"""A permit that was never settled: its call was probably sent, and not counted."""
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


class ClientCall:
    """A call of this process, from its request to its settlement; once it is granted, its permit.

    Only its caller, and while it waits its client, keep it alive. Every method may be called from
    anywhere at any time, and never blocks.
    """

    __slots__ = (
        "_client", "_open", "error", "expected", "is_answered", "is_gone", "number", "request",
        "ring", "wait", "waited_for",
    )  # fmt: skip

    def __init__(self, client: AdmissionClient, number: int, request: Request) -> None:
        self._client, self.number, self.request = client, number, request
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

    @property
    def cut(self) -> errors.HeadwayError | None:
        """Why the answer is to be ended here and now, if it is: it outgrew the budget."""
        return self.error or self._client.cuts.get(self.number)

    def reached(self) -> None:
        self._tell(protocol.Reached(self.number))

    def began(self, reading: Reading, dialect: str) -> None:
        self._tell(protocol.AnswerBegan(self.number, reading, dialect))

    def progressed(self, output_tokens: float) -> None:
        self._tell(protocol.Progressed(self.number, output_tokens))

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
        client, number = self._client, self.number
        if client.is_stale:
            return  # A forked child does not settle what its parent holds.
        fault, sent = outcome.fault, client.in_use.get(number)
        if fault is not None and len(fault.detail) > DETAIL_MAX:
            outcome = replace(outcome, fault=replace(fault, detail=fault.detail[:DETAIL_MAX]))
        # Said first and forgotten after: in between, the next broker may be told both.
        try:
            client.connection.send(protocol.Settle(number, outcome), sent)
        except errors.WireError:
            brief = Outcome(outcome.how, outcome.tally)
            client.connection.send(protocol.Settle(number, brief), sent)
        client.in_use.pop(number, None)
        self.error = client.cuts.pop(number, None)


Said = tuple[protocol.FromClient, protocol.Ask | None]
"""A message; of a settlement also what the next broker has to know of the call."""


class Connection(Protocol):
    def send(self, message: protocol.FromClient, sent: protocol.Ask | None = None, /) -> None:
        """Say something. Never blocks; `sent` is the call in flight that the message ends."""

    def open(self) -> None:
        """Start to listen: a call is about to wait."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent, without a word or a lock."""


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
        self.in_use: dict[int, protocol.Ask] = {}
        """Calls in flight, as the next broker is told of them."""
        self.cuts: dict[int, errors.HeadwayError] = {}
        """Calls in flight whose answers are to be ended, and why."""
        self._views: dict[int, Callable[[protocol.Described], None]] = {}
        self.connection = dial(self)

    def enter(self, request: Request) -> ClientCall:
        """A call that is about to ask."""
        number = self._asked = next(self._numbers)
        call = self.waiting[number] = ClientCall(self, number, request)
        return call

    def abandon(self, call: ClientCall) -> None:
        """Stop waiting, whatever the answer is or will be."""
        call.is_gone = True
        if self.waiting.pop(call.number, None) is not None:
            self.connection.send(protocol.Leave(call.number))
        call.settle(UNUSED)

    def describe(self, seen: Callable[[protocol.Described], None]) -> None:
        """Ask for all that is known."""
        number = next(self._numbers)
        self._views[number] = seen
        self.tell(protocol.Describe(number))

    def tell(self, message: protocol.FromClient) -> None:
        """Send what is not about a call."""
        self.connection.send(message)
        self.connection.open()

    def receive(self, message: protocol.FromBroker) -> None:
        """Take an answer. Called by one thread at a time."""
        match message:
            case Granted(id):
                self._granted(id[1], message)
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
            if self._may_go(call.request.account):
                self._granted(number, Granted((self.id, number), "", Amounts()))
            elif self.waiting.pop(number, None) is not None:
                # Each its own: an error that several threads raise has a mixed traceback.
                call.answer(None, copy(error))

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(self.id, self._asked, len(self.waiting), len(self.in_use))

    def _granted(self, number: int, granted: Granted) -> None:
        call = self.waiting.pop(number, None)
        if call is not None:
            self.in_use[number] = protocol.Ask(number, call.request, now_s())
            call.answer(granted)
        elif number not in self.in_use:
            # Its caller left while the grant was on its way.
            self.connection.send(protocol.Settle(number, UNUSED))
