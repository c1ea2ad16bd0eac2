"""Serves the messages of clients: asks admission, replies; in one process or in the broker.

Laws:
- Nothing is decided while a batch of messages is taken; after it, one decision for all clients, and
  only if calls wait.
- Saying something twice is saying it once.
- Money is on the disk before the call that may spend it is granted; if it cannot be, the call
  is denied. Pacing needs no disk and goes on. So does an answer for which more is claimed: what it
  has produced is owed, on the disk or not.
- A permit whose call shows nothing for long is settled: no calls wait for a call that hangs.
- A service is not safe for threads by itself: what is in front of it lets one message in at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from math import inf
from typing import Final

from msgspec.structs import replace

from headway.base.clock import now_s
from headway.broker import protocol
from headway.errors import StateFileError, WireError
from headway.pacing.admission import Admission
from headway.pacing.call import CallId, Denied, Granted, Outcome, Request
from headway.pacing.memory import EVERY_ACCOUNT, AccountTerms
from headway.pacing.views import AdmissionView, describe

STALL_S: Final = 600.0
"""The SDKs' own timeout of a call: a call that shows nothing for longer has been given up."""
WAITING_MAX: Final = 100_000
"""Calls of one client in the queue. A plan of this size waits in its own process, not here."""
NOTICES_MAX: Final = 20
"""Notices that are kept to be shown."""
PART: Final = 50
"""Budgets, or terms, that are described in one message."""
DIARIES: Final = 10
"""Accounts whose days are described in one message."""


class AdmissionService:
    def __init__(
        self,
        admission: Admission,
        send: Callable[[str, protocol.FromBroker], None],
        keep: Callable[[], str] = lambda: "",
        say: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = now_s,
        stall_s: float = STALL_S,
    ) -> None:
        """`keep` puts what is known on the disk and returns why that failed, or nothing; `say`
        writes into the log."""
        self._admission = admission
        self._send, self._keep, self._say, self._now = send, keep, say, now
        self._stall_s = stall_s
        self._born_s = now()
        self._clients: dict[str, protocol.Hello] = {}
        self._waiting: dict[CallId, str] = {}
        """The account of each call that waits."""
        self._in_flight: dict[CallId, tuple[str, float]] = {}
        """The account of each call in flight, and when it last showed that it lives; the one
        that has not for longest comes first."""
        self._budgets = budgets(admission.terms())
        self._must_keep = False
        self._wake_s = inf
        self.notices: tuple[str, ...] = ()

    @property
    def wake_s(self) -> float:
        """When to decide again if no message comes; inf when nothing can change by itself."""
        for _, seen_s in self._in_flight.values():
            return min(self._wake_s, seen_s + self._stall_s)
        return self._wake_s

    def handle(self, client: str, message: protocol.FromClient) -> None:
        """Take one message; `WireError` if it is wrong."""
        now = self._now()
        match message:
            case protocol.Ask(number, request):
                self._ask((client, number), request, now)
            case protocol.Progressed(number, output_tokens):
                account = self._alive((client, number), now)
                grew = self._admission.progress((client, number), output_tokens, now)
                self._must_keep |= grew and self.has_budget(account)
            case protocol.Began(number, reading, dialect):
                self._alive((client, number), now)
                self._admission.first_byte((client, number), reading, dialect, now)
            case protocol.Reached(number):
                self._alive((client, number), now)
                self._admission.reached((client, number))
            case protocol.Settle(number, outcome):
                self._settle((client, number), outcome, now)
            case protocol.Alive(number):
                self._alive((client, number), now)
            case protocol.Why(number):
                self._send(client, protocol.Waits(number, self._admission.why((client, number))))
            case protocol.Leave(number):
                self._waiting.pop((client, number), None)
                wait = self._admission.leave((client, number))
                self._send(client, protocol.Left(number, wait))
            case protocol.Adopt(number, request, age_s):
                if not self._is_known((client, number)):
                    self._in_flight[client, number] = (request.account, now)
                    self._admission.adopt((client, number), request, age_s, now)
            case protocol.Configure(account, terms):
                self._admission.configure(account, terms, now)
                self._budgets = (self._budgets - {account}) | budgets([(account, terms)])
                # What a user sets is set: on the disk, and not within a quarter of a second.
                self._must_keep = True
            case protocol.Describe(number):
                self._describe(client, number, now)
            case protocol.Hello():
                self._clients[client] = message

    def left(self, client: str) -> None:
        """A client is gone: everything that it held ends."""
        self._clients.pop(client, None)
        held = [call for call in self._in_flight if call[0] == client]
        for call in held:
            self._must_keep |= self.has_budget(self._in_flight.pop(call)[0])
        for call in self._waiting_of(client):
            del self._waiting[call]
        self._admission.gone(client, self._now())
        if held:
            self._say(f"{client} left with {len(held)} calls in flight")

    def decide(self) -> None:
        """Decide once for all that was heard, and tell those whom it concerns."""
        now = self._now()
        self._settle_stalled(now)
        decision = self._admission.decide(now)
        self._wake_s = decision.wake_s
        accounts = [self._waiting.pop(grant.id, "") for grant in decision.grants]
        unkept = ""
        if self._must_keep or (self._budgets and any(map(self.has_budget, accounts))):
            unkept = self._keep()
            self._must_keep = bool(unkept)
        for grant, account in zip(decision.grants, accounts, strict=True):
            if unkept and self.has_budget(account):
                self._take_back(grant, unkept, now)
            else:
                self._in_flight[grant.id] = (account, now)
                self._send(grant.id[0], grant)
        for denied in decision.denials:
            self._waiting.pop(denied.id, None)
            self._send(denied.id[0], denied)
        for cut in decision.cuts:
            self._send(cut.id[0], cut)

    def has_budget(self, account: str) -> bool:
        return counts_towards(account, self._budgets)

    def notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices = (*self.notices, text)[-NOTICES_MAX:]
            self._say(text)

    def _is_known(self, call: CallId) -> bool:
        return call in self._waiting or call in self._in_flight

    def _waiting_of(self, client: str) -> list[CallId]:
        return [call for call in self._waiting if call[0] == client]

    def _alive(self, call: CallId, now: float) -> str:
        """A call in flight has shown that it lives; its account, if it is in flight."""
        held = self._in_flight.pop(call, None)
        if held is None:
            return ""
        self._in_flight[call] = (held[0], now)
        return held[0]

    def _ask(self, call: CallId, request: Request, now: float) -> None:
        if self._is_known(call):
            return
        # The whole queue is counted first: counting one client's calls is slow and rarely needed.
        if len(self._waiting) >= WAITING_MAX:
            mine = len(self._waiting_of(call[0]))
            if mine >= WAITING_MAX:
                raise WireError(f"{mine:,} calls of one process are waiting: no more can")
        self._waiting[call] = request.account
        self._admission.ask(call, request, now)

    def _settle(self, call: CallId, outcome: Outcome, now: float) -> None:
        account, _ = self._in_flight.pop(call, ("", now))
        if self._admission.settle(call, outcome, now):
            self._must_keep |= self.has_budget(account)

    def _describe(self, client: str, number: int, now: float) -> None:
        names = tuple((who, f"{it.name} [{it.pid}]") for who, it in self._clients.items())
        for part in parts(describe(self._admission, now)):
            self._send(client, protocol.Described(number, part))
        about = protocol.About(os.getpid(), now - self._born_s, names, self.notices)
        self._send(client, protocol.Described(number, about=about))

    def _settle_stalled(self, now: float) -> None:
        silent = takewhile(lambda one: now >= one[1][1] + self._stall_s, self._in_flight.items())
        for call, _ in list(silent):
            self._settle(call, Outcome("used"), now)
            self._say(f"call {call[1]} of {call[0]} was silent for {self._stall_s:g} s")

    def _take_back(self, grant: Granted, why: str, now: float) -> None:
        self._admission.settle(grant.id, Outcome("unused"), now)
        self._wake_s = now
        message = f"what this account spends cannot be written down: {why}"
        hint = "make room on the disk, or remove the account's budget"
        self._send(grant.id[0], Denied(grant.id, StateFileError.code, message, hint))


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


def parts(view: AdmissionView) -> Iterator[AdmissionView]:
    """The same in pieces, so that no message grows with the number of accounts."""
    empty = AdmissionView(view.month, (), (), (), view.date, view.hour)
    yield empty
    for account in view.accounts:
        yield replace(empty, accounts=(account,))
    for at in range(0, len(view.ledgers), PART):
        yield replace(empty, ledgers=view.ledgers[at : at + PART])
    for at in range(0, len(view.terms), PART):
        yield replace(empty, terms=view.terms[at : at + PART])
    for at in range(0, len(view.days), DIARIES):
        yield replace(empty, days=view.days[at : at + DIARIES])
