"""One process's side of admission: its waiting calls and its permits.

Laws:
- A call that asked ends in exactly one of: a ticket, an error, gone. A ticket that meets nobody
  is settled as unused at once.
- A permit is settled exactly once, by whoever is first: the caller, or the garbage collector.
- That an answer is to be ended is left where its caller looks; nobody is called or waited for. Who
  has settled by then is not told.
- Nothing here blocks. `settle` may run in the middle of anything on any thread, this module
  included: so there are no locks, and every step is one operation on a dict, list or deque.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from copy import copy
from itertools import count
from time import monotonic
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Permit, Reading, Sketch
from headway.broker.protocol import (
    VERSION,
    Adopt,
    Alive,
    AskMessage,
    BeganMessage,
    Configure,
    Describe,
    Described,
    Error,
    FromClient,
    Hello,
    Leave,
    Left,
    Message,
    Progressed,
    Settled,
)
from headway.errors import (
    AccountClosedError,
    BrokerUnavailableError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
    InternalError,
    StateFileError,
    WireError,
)
from headway.pacing.admission import CallOutcome, Denied, Granted
from headway.pacing.budget import Cut
from headway.pacing.lane import Request
from headway.pacing.memory import AccountTerms

UNUSED: Final = CallOutcome("unused")
FORGOTTEN: Final = CallOutcome("used")
"""A ticket that nobody settled: its call was probably sent, and nobody counted."""

DETAIL_MAX: Final = 500
"""Characters of a provider's own words that are worth sending along."""

_ERRORS: Final[dict[str, type[HeadwayError]]] = {
    kind.code: kind
    for kind in (DemandTooLargeError, BudgetReachedError, AccountClosedError, StateFileError)
}


class CallRequest(Struct, frozen=True):
    """A call that wants a permit, in its caller's words."""

    account: str
    dialect: str
    sketch: Sketch
    path: tuple[str, ...] = ()
    is_resent: bool = False
    is_soft: bool = False
    """It may be ended in the middle of its answer, and claims of the budgets as it grows."""


class InUse(Struct, frozen=True):
    """A permit that was granted here and has not ended."""

    request: Request
    since_s: float
    cuts: list[HeadwayError] = field(default_factory=list)
    """Why its answer is to be ended; shared with its ticket, which it must not keep alive."""

    def adopt(self) -> Adopt:
        """What an heir of the broker has to know."""
        return Adopt(self.request, monotonic() - self.since_s)


Said = tuple[FromClient, InUse | None]
"""A message, and the permit that it ends if it ends one."""


class MessageLine(Protocol):
    """Where a client's messages go, and its answers come from."""

    def send(self, message: FromClient, permit: InUse | None = None, /) -> None:
        """Say something. Never blocks; `permit` is the one that the message ends."""

    def open(self) -> None:
        """Somebody is about to wait: see to it that answers come."""

    def close(self) -> None:
        """Nothing more will be said."""

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent, without a word or a lock."""


class WaitingCall(Struct, eq=False):
    """One call in line, and where its caller is woken."""

    request: Request
    ring: Callable[[], None]
    answer: Ticket | HeadwayError | str | None = None
    """The string is what it waited for until it left."""
    is_gone: bool = False

    def resolve(self, answer: Ticket | HeadwayError | str) -> None:
        """Hand over the answer; a ticket for which nobody is there any more is not used."""
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
        self, client: AdmissionClient, number: int, permit: Permit, cuts: list[HeadwayError]
    ) -> None:
        self.permit = permit
        self._client = client
        self._number = number
        self._cuts = cuts
        # Taken out by whoever settles first: to pop a list is one step, whatever the thread.
        self._open = [True]

    def __del__(self) -> None:
        if self._open:
            self.settle(FORGOTTEN)

    @property
    def is_settled(self) -> bool:
        return not self._open

    @property
    def cut(self) -> HeadwayError | None:
        """Why the answer is to be ended here and now, if it is: it outgrew the budget."""
        return self._cuts[0] if self._cuts else None

    def began(self, reading: Reading, dialect: str) -> None:
        """The first byte of the answer came, with these headers."""
        if self._open:
            self._client.tell(BeganMessage(self._number, reading, dialect))

    def progressed(self, output_tokens: float) -> None:
        """The answer has so many tokens by now."""
        if self._open:
            self._client.tell(Progressed(self._number, output_tokens))

    def still_alive(self) -> None:
        """The call is in flight, though there is nothing to show for it."""
        if self._open:
            self._client.tell(Alive(self._number))

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
    """A client at an instant."""

    id: str
    asked: int
    waiting: int
    in_use: int


class AdmissionClient:
    """The calls of this process, between those who make them and the line."""

    __slots__ = ("_asked", "_in_use", "_leaving", "_may_go", "_numbers", "_views",
                 "_waiting", "id", "is_stale", "line")  # fmt: skip

    def __init__(
        self,
        dial: Callable[[AdmissionClient], MessageLine],
        may_go: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`may_go` says whether calls of an account may be made when nobody can admit them."""
        self.id = f"{os.getpid()}-{os.urandom(4).hex()}"
        self.is_stale = False
        self._may_go = may_go
        self._numbers = count(1)
        self._asked = 0
        self._waiting: dict[int, WaitingCall] = {}
        self._leaving: dict[int, WaitingCall] = {}
        self._in_use: dict[int, InUse] = {}
        self._views: dict[int, Callable[[Described], None]] = {}
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
            self.line.send(AskMessage(request))
            if place.answer is None:
                self.line.open()
        except BaseException:  # Whatever it was, nobody will wait here.
            self.abandon(place)
            raise
        return place

    def leave(self, place: WaitingCall) -> bool:
        """Stop waiting, to be told why it took so long. False if there is an answer already."""
        number = place.request.id[1]
        if self._waiting.pop(number, None) is None:
            return False
        self._leaving[number] = place
        self.line.send(Leave(number))
        return True

    def abandon(self, place: WaitingCall) -> None:
        """Nobody waits any more, whatever the answer is or will be."""
        number = place.request.id[1]
        self._leaving.pop(number, None)
        place.is_gone = True
        if self._waiting.pop(number, None) is not None:
            self.line.send(Leave(number))
        elif isinstance(place.answer, Ticket):
            place.answer.settle(UNUSED)

    def tell(self, message: FromClient) -> None:
        """Say something that nobody waits for. Too long a message is not worth an error."""
        if not self.is_stale:
            try:
                self.line.send(message)
            except WireError:
                return

    def settled(self, number: int, outcome: CallOutcome) -> None:
        """A permit ended. A forked child does not settle what its parent holds."""
        if self.is_stale:
            return
        permit = self._in_use.get(number)
        # Said first and forgotten after: in between, an heir of the broker may ask for both.
        try:
            self.line.send(Settled(number, _shorter(outcome)), permit)
        except WireError:
            brief = CallOutcome(outcome.how, outcome.tally)
            self.line.send(Settled(number, brief), permit)
        self._in_use.pop(number, None)

    def configure(self, account: str, terms: AccountTerms) -> None:
        """What the user set. The broker writes it down, and its heirs read it there."""
        self.line.send(Configure(account, terms))
        self.line.open()

    def watch(self, seen: Callable[[Described], None]) -> int:
        """Have descriptions with the returned number handed over."""
        number = next(self._numbers)
        self._views[number] = seen
        return number

    def receive(self, message: Message) -> None:
        """Hear an answer. Called by one thread at a time."""
        match message:
            case Granted(call, permit):
                self._granted(call[1], permit)
            case Denied(call, code, text, hint):
                place = self._waiting.pop(call[1], None)
                if place is not None:
                    kind = _ERRORS.get(code, InternalError)
                    place.resolve(kind(text, hint=hint or None))
            case Cut(call, text, hint):
                held = self._in_use.get(call[1])
                if held is not None:
                    held.cuts.append(BudgetReachedError(text, hint=hint or None))
            case Left(number, reason):
                place = self._leaving.pop(number, None)
                if place is not None:
                    place.resolve(reason)
            case Described(number):
                seen = self._views.get(number)
                if seen is not None:
                    seen(message)
                    if message.about is not None:
                        self._views.pop(number, None)
            case Error(text):
                self.lost(BrokerUnavailableError(f"the broker refused this process: {text}"))

    def hello(self) -> Hello:
        """Who this is."""
        name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
        return Hello(VERSION, self.id, os.getpid(), name[:100])

    def story(self, unsent: Iterable[Said]) -> list[Said]:
        """All that an heir of the broker has to be told, in order.

        `unsent` is taken after the copies: a permit that has left the table by then has its end
        among what was not sent.
        """
        in_use, waiting = self._in_use.copy(), self._waiting.copy()
        told: list[Said] = [(self.hello(), None)]
        told += [(permit.adopt(), None) for permit in in_use.values()]
        for message, permit in unsent:
            if isinstance(message, Settled):
                if permit is not None and message.number not in in_use:
                    told.append((permit.adopt(), None))
                told.append((message, permit))
            elif isinstance(message, Leave | Describe | Configure):
                told.append((message, None))
        told += [(AskMessage(place.request), None) for place in waiting.values()]
        return told

    def lost(self, error: HeadwayError) -> None:
        """Nobody can admit anything: those who wait are told, or go if they may."""
        for number, place in self._waiting.copy().items():
            if self._may_go(place.request.account):
                nothing = Amounts()
                flow = (place.request.path or (self.id,))[0]
                demand = Demand(nothing, nothing, place.request.sketch.kind)
                self._granted(number, Permit(0, flow, demand, 0.0, "unpaced: there is no broker"))
            elif self._waiting.pop(number, None) is not None:
                # Each its own: an error that is raised in several threads tells nobody's story.
                place.resolve(copy(error))

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(self.id, self._asked, len(self._waiting), len(self._in_use))

    def _granted(self, number: int, permit: Permit) -> None:
        place = self._waiting.pop(number, None)
        if place is None:
            # Whoever asked has left while the grant was on its way.
            if number not in self._in_use:
                self.line.send(Settled(number, UNUSED))
            return
        held = self._in_use[number] = InUse(place.request, monotonic())
        place.resolve(Ticket(self, number, permit, held.cuts))


def _shorter(outcome: CallOutcome) -> CallOutcome:
    fault = outcome.fault
    if fault is None or len(fault.detail) <= DETAIL_MAX:
        return outcome
    return replace(outcome, fault=replace(fault, detail=fault.detail[:DETAIL_MAX]))
