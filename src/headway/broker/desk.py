"""Handles messages of clients: admits, settles, replies; in one process or in the broker.

Laws:
- Nothing is decided while a batch is heard; after it, one decision for everybody.
- Saying something twice is saying it once.
- Money is on the disk before the call that may spend it is granted; if it cannot be, the call
  is denied. Pacing needs no disk and goes on. So does an answer for which more is claimed: what it
  has produced is owed, on the disk or not.
- A permit from which nothing was heard for long is settled: nobody's calls wait for a call that
  hangs.
- A desk is not safe for threads by itself: the line in front of it lets one message in at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from math import inf
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Reading
from headway.broker import protocol
from headway.errors import StateFileError, WireError
from headway.pacing.admission import AdmissionDecision, BookView, CallOutcome, Denied, Granted
from headway.pacing.lane import Request
from headway.pacing.memory import EVERY_ACCOUNT, AccountTerms, CallId, PacingMemory

STALL_S: Final = 600.0
"""The SDKs' own timeout of a call: a call that shows nothing for longer has been given up."""
WAITING_MAX: Final = 100_000
"""Calls of one client in line. A plan of this size waits in its own process, not here."""
NOTICES_MAX: Final = 20
"""Notices that are kept to be shown."""
PART: Final = 50
"""Budgets, or terms, that are described in one message."""
DIARIES: Final = 10
"""Accounts whose days are described in one message."""


class AdmissionBook(Protocol):
    def ask(self, request: Request, now: float, /) -> None: ...
    def leave(self, call: CallId, now: float, /) -> str: ...
    def decide(self, now: float, /) -> AdmissionDecision: ...
    def first_byte(self, call: CallId, reading: Reading, dialect: str, now: float, /) -> None: ...
    def progress(self, call: CallId, output_tokens: float, now: float, /) -> bool: ...
    def settle(self, call: CallId, outcome: CallOutcome, now: float, /) -> bool: ...
    def gone(self, client: str, now: float, /) -> int: ...
    def adopt(self, request: Request, age_s: float, now: float, /) -> None: ...
    def configure(self, key: str, terms: AccountTerms, now: float, /) -> None: ...
    def memory(self, now: float, /) -> PacingMemory: ...


class Ways(Struct, frozen=True):
    """How a desk reaches the world: its clock, its clients, the disk, the log."""

    now: Callable[[], float]
    send: Callable[[str, protocol.FromBroker], None]
    keep: Callable[[], str] = lambda: ""
    """Puts the book on the disk; why that failed, in words, or nothing."""
    say: Callable[[str], None] = lambda _: None
    describe: Callable[[], BookView] = lambda: BookView("", (), (), ())


class Desk:
    def __init__(self, book: AdmissionBook, ways: Ways, stall_s: float = STALL_S) -> None:
        self._book = book
        self._ways = ways
        self._stall_s = stall_s
        self._born_s = ways.now()
        self._clients: dict[str, protocol.Hello] = {}
        self._waiting: dict[CallId, str] = {}
        """The account of each call that waits."""
        self._held: dict[CallId, tuple[str, float]] = {}
        """The account of each call in flight, and when it last showed that it lives; the one
        that has not for longest comes first."""
        self._budgets = budgets(book.memory(self._born_s).terms)
        self._must_keep = False
        self._verdict_s = inf
        self.notices: tuple[str, ...] = ()

    @property
    def wake_s(self) -> float:
        """When to tick again if nothing is heard; inf when nothing can change by itself."""
        for _, heard_s in self._held.values():
            return min(self._verdict_s, heard_s + self._stall_s)
        return self._verdict_s

    def handle(self, client: str, message: protocol.Message) -> None:
        """Hear one message; `WireError` if it is not a client's to say."""
        now = self._ways.now()
        match message:
            case protocol.AskMessage(request):
                self._ask(client, request, now)
            case protocol.Progressed(number, output_tokens):
                account = self._heard((client, number), now)
                grew = self._book.progress((client, number), output_tokens, now)
                self._must_keep |= grew and self.has_budget(account)
            case protocol.BeganMessage(number, reading, dialect):
                self._heard((client, number), now)
                self._book.first_byte((client, number), reading, dialect, now)
            case protocol.Settled(number, outcome):
                self._settle((client, number), outcome, now)
            case protocol.Alive(number):
                self._heard((client, number), now)
            case protocol.Leave(number):
                self._waiting.pop((client, number), None)
                reason = self._book.leave((client, number), now)
                self._ways.send(client, protocol.Left(number, reason))
            case protocol.Adopt(request, age_s):
                _check(client, request)
                if not self._is_known(request.id):
                    self._held[request.id] = (request.account, now)
                    self._book.adopt(request, age_s, now)
            case protocol.Configure(account, terms):
                self._book.configure(account, terms, now)
                self._budgets = (self._budgets - {account}) | budgets([(account, terms)])
                # What a user sets is set: on the disk, and not within a quarter of a second.
                self._must_keep = True
            case protocol.Describe(number):
                self._describe(client, number, now)
            case protocol.Hello():
                self._clients[client] = message
            case _:
                raise WireError(f"a client does not say {type(message).__name__}")

    def left(self, client: str) -> None:
        self._clients.pop(client, None)
        held = [call for call in self._held if call[0] == client]
        for call in held:
            self._must_keep |= self.has_budget(self._held.pop(call)[0])
        for call in self._waiting_of(client):
            del self._waiting[call]
        self._book.gone(client, self._ways.now())
        if held:
            self._ways.say(f"{client} left with {len(held)} calls in flight")

    def tick(self) -> None:
        """Decide once for all that was heard, and tell those whom it concerns."""
        now = self._ways.now()
        self._settle_stalled(now)
        verdict = self._book.decide(now)
        self._verdict_s = verdict.wake_s
        accounts = [self._waiting.pop(grant.id, "") for grant in verdict.grants]
        unkept = ""
        if self._must_keep or any(map(self.has_budget, accounts)):
            unkept = self._ways.keep()
            self._must_keep = bool(unkept)
        for grant, account in zip(verdict.grants, accounts, strict=True):
            if unkept and self.has_budget(account):
                self._take_back(grant, unkept, now)
            else:
                self._held[grant.id] = (account, now)
                self._ways.send(grant.id[0], grant)
        for denial in verdict.denials:
            self._waiting.pop(denial.id, None)
            self._ways.send(denial.id[0], denial)
        for cut in verdict.cuts:
            self._ways.send(cut.id[0], cut)

    def has_budget(self, account: str) -> bool:
        return counts_towards(account, self._budgets)

    def notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices = (*self.notices, text)[-NOTICES_MAX:]
            self._ways.say(text)

    def _is_known(self, call: CallId) -> bool:
        return call in self._waiting or call in self._held

    def _waiting_of(self, client: str) -> list[CallId]:
        return [call for call in self._waiting if call[0] == client]

    def _heard(self, call: CallId, now: float) -> str:
        """A call in flight has shown that it lives; its account, if it is in flight."""
        held = self._held.pop(call, None)
        if held is None:
            return ""
        self._held[call] = (held[0], now)
        return held[0]

    def _ask(self, client: str, request: Request, now: float) -> None:
        _check(client, request)
        if self._is_known(request.id):
            return
        # The whole line is counted first: counting one client's calls is slow, and rarely needed.
        if len(self._waiting) >= WAITING_MAX:
            mine = len(self._waiting_of(client))
            if mine >= WAITING_MAX:
                raise WireError(f"{mine:,} calls of one process are waiting: no more can")
        self._waiting[request.id] = request.account
        self._book.ask(request, now)

    def _settle(self, call: CallId, outcome: CallOutcome, now: float) -> None:
        account, _ = self._held.pop(call, ("", now))
        if self._book.settle(call, outcome, now):
            self._must_keep |= self.has_budget(account)

    def _describe(self, client: str, number: int, now: float) -> None:
        names = tuple((who, f"{it.name} [{it.pid}]") for who, it in self._clients.items())
        for part in parts(self._ways.describe()):
            self._ways.send(client, protocol.Described(number, part))
        about = protocol.About(os.getpid(), now - self._born_s, names, self.notices)
        self._ways.send(client, protocol.Described(number, about=about))

    def _settle_stalled(self, now: float) -> None:
        silent = takewhile(lambda one: now >= one[1][1] + self._stall_s, self._held.items())
        for call, _ in list(silent):
            self._settle(call, CallOutcome("used"), now)
            self._ways.say(f"call {call[1]} of {call[0]} was silent for {self._stall_s:g} s")

    def _take_back(self, grant: Granted, why: str, now: float) -> None:
        self._book.settle(grant.id, CallOutcome("unused"), now)
        self._verdict_s = now
        message = f"what this account spends cannot be written down: {why}"
        hint = "make room on the disk, or remove the account's budget"
        self._ways.send(grant.id[0], Denied(grant.id, StateFileError.code, message, hint))


def budgets(terms: Iterable[tuple[str, AccountTerms]]) -> frozenset[str]:
    return frozenset(
        name
        for name, set_by_user in terms
        if set_by_user.budget.tokens is not None or set_by_user.budget.microusd is not None
    )


def counts_towards(account: str, names: frozenset[str]) -> bool:
    """Whether a call of the account may count towards one of the budgets of these names."""
    if not names:
        return False
    return any(name in (EVERY_ACCOUNT, account) or name.startswith(f"{account}/") for name in names)


def parts(view: BookView) -> Iterator[BookView]:
    """The same in pieces, so that no message grows with the number of accounts."""
    empty = BookView(view.month, (), (), (), view.date, view.hour)
    yield empty
    for lane in view.lanes:
        yield replace(empty, lanes=(lane,))
    for at in range(0, len(view.ledgers), PART):
        yield replace(empty, ledgers=view.ledgers[at : at + PART])
    for at in range(0, len(view.terms), PART):
        yield replace(empty, terms=view.terms[at : at + PART])
    for at in range(0, len(view.days), DIARIES):
        yield replace(empty, days=view.days[at : at + DIARIES])


def _check(client: str, request: Request) -> None:
    if request.id[0] != client:
        raise WireError("a client asks for itself", detail=f"{client} for {request.id[0]}")
