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
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headway.base.clock import now_s
from headway.broker import protocol
from headway.broker.store import turn
from headway.errors import StateFileError, WireError
from headway.pacing.admission import Admission
from headway.pacing.call import CallId, Denied, Granted, Outcome
from headway.pacing.memory import EVERY_ACCOUNT
from headway.pacing.view import describe

STALL_S: Final = 600.0
"""The SDKs' own timeout of a call: a call that shows nothing for longer has been given up."""
WAITING_MAX: Final = 100_000
"""Calls of one client in the queue. A plan of this size waits in its own process, not here."""
NOTICES_MAX: Final = 20
"""Notices that are kept to be shown."""


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
        """`keep` saves what is known and returns why it failed; `say` writes the log."""
        self._admission = admission
        self._send, self._keep, self._say, self._now = send, keep, say, now
        self._stall_s = stall_s
        self._born_s = now()
        self._clients: dict[str, protocol.Hello] = {}
        self._alive: OrderedDict[CallId, float] = OrderedDict()
        """When each call in flight last showed that it lives; the longest silent comes first."""
        self._must_keep = False
        self._wake_s = self._born_s
        self.is_due = False
        """Whether something happened since the last decision, and calls wait."""
        self.notices: tuple[str, ...] = ()

    @property
    def wake_s(self) -> float:
        """When to decide again if no message comes; inf when nothing can change by itself."""
        for seen_s in self._alive.values():
            return min(self._wake_s, seen_s + self._stall_s)
        return self._wake_s

    def handle(self, client: str, message: protocol.FromClient) -> None:
        """Take one message; `WireError` if it is wrong."""
        now, admission = self._now(), self._admission
        # Patterns with fields are slow, and every call sends two or three messages.
        match message:
            case protocol.Ask():
                if message.sent_s is not None:
                    sent_s, id = message.sent_s, (client, message.number)
                    if admission.adopt(id, message.request, max(0.0, now - sent_s), now):
                        self._alive[id] = now
                else:
                    if admission.unsent >= WAITING_MAX:
                        self._must_have_room(client)
                    admission.ask((client, message.number), message.request, now)
            case protocol.Settle():
                self._settle((client, message.number), message.outcome, now)
            case protocol.AnswerBegan(number, reading, dialect):
                self._seen((client, number), now)
                admission.first_byte((client, number), reading, dialect, now)
            case protocol.Progressed(number, output_tokens):
                self._seen((client, number), now)
                if admission.progress((client, number), output_tokens, now):
                    self._keep_money(admission.account_of((client, number)))
            case protocol.Reached(number):
                self._seen((client, number), now)
                admission.reached((client, number))
            case protocol.Why(number):
                self._send(client, protocol.Waits(number, admission.why((client, number))))
                return
            case protocol.Leave(number):
                admission.leave((client, number))
            # What a user sets is on the disk at once, not within a quarter of a second.
            case protocol.Configure() | protocol.Name() | protocol.Forget():
                self._set(message, now)
            case protocol.Refresh(account):
                admission.refresh(account)
            case protocol.Describe(number):
                self._describe(client, number, now)
                return
            case protocol.Hello():
                self._clients[client] = message
                return
        self.is_due = self.is_due or admission.unsent > 0

    def _must_have_room(self, client: str) -> None:
        """Counting the calls of one client is slow, and rarely needed."""
        mine = len(self._admission.calls_of(client))
        if mine >= WAITING_MAX:
            raise WireError(f"{mine:,} calls of one process are waiting: no more can")

    def _set(
        self, message: protocol.Configure | protocol.Name | protocol.Forget, now: float
    ) -> None:
        """What a user sets is on the disk at once, not within a quarter of a second."""
        match message:
            case protocol.Configure(account, terms):
                self._admission.configure(account, terms, now)
            case protocol.Name(account, name):
                self._admission.name(account, name, now)
            case protocol.Forget(account):
                self._admission.forget(account)
        self._must_keep = self.is_due = True

    def left(self, client: str) -> None:
        """A client is gone: everything that it held ends."""
        self._clients.pop(client, None)
        held = [call for call in self._alive if call[0] == client]
        for call in held:
            del self._alive[call]
            self._keep_money(self._admission.account_of(call))
        self._admission.gone(client, self._now())
        self.is_due = True
        if held:
            self._say(f"{client} left with {len(held)} calls in flight")

    def turn(self) -> None:
        """Look at the clock on the wall: budgets are for months, habits for hours."""
        turn(self._admission, self._now())
        self.is_due = self.is_due or self._admission.unsent > 0

    def decide(self) -> None:
        """Decide once for all that was heard, and tell those whom it concerns."""
        now, admission, unkept = self._now(), self._admission, ""
        while self._alive:
            call, seen_s = next(iter(self._alive.items()))
            if now < seen_s + self._stall_s:
                break
            self._settle(call, Outcome("used"), now)
            self._say(f"call {call[1]} of {call[0]} was silent for {self._stall_s:g} s")
        decision = admission.decide(now)
        self._wake_s, self.is_due = decision.wake_s, False
        budgeted: set[CallId] = set()
        if names := admission.budgets.keys:
            ids = [grant.id for grant in decision.grants]
            budgeted = {id for id in ids if counts_towards(admission.account_of(id), names)}
        if self._must_keep or budgeted:
            unkept = self._keep()
            self._must_keep = bool(unkept)
        for grant in decision.grants:
            if unkept and grant.id in budgeted:
                self._take_back(grant, unkept, now)
            else:
                self._alive[grant.id] = now
                self._send(grant.id[0], grant)
        for denied in decision.denials:
            self._send(denied.id[0], denied)

    def notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices = (*self.notices, text)[-NOTICES_MAX:]
            self._say(text)

    def _seen(self, call: CallId, now: float) -> None:
        """A call in flight has shown that it lives."""
        if self._alive.pop(call, None) is not None:
            self._alive[call] = now

    def _settle(self, call: CallId, outcome: Outcome, now: float) -> None:
        self._alive.pop(call, None)
        has_budgets = bool(self._admission.budgets.keys)
        account = self._admission.account_of(call) if has_budgets else ""
        if self._admission.settle(call, outcome, now) and has_budgets:
            self._keep_money(account)

    def _keep_money(self, account: str) -> None:
        """What a budget of the account has spent is to be on the disk."""
        if counts_towards(account, self._admission.budgets.keys):
            self._must_keep = self.is_due = True

    def _describe(self, client: str, number: int, now: float) -> None:
        names = tuple((who, f"{it.name} [{it.pid}]") for who, it in self._clients.items())
        turn(self._admission, now)
        about = protocol.About(os.getpid(), now - self._born_s, names, self.notices)
        self._send(client, protocol.Described(number, describe(self._admission, now), about))

    def _take_back(self, grant: Granted, why: str, now: float) -> None:
        self._admission.settle(grant.id, Outcome("unused"), now)
        self._wake_s = now
        message = f"what this account spends cannot be written down: {why}"
        hint = "make room on the disk, or remove the account's budget"
        self._send(grant.id[0], Denied(grant.id, StateFileError.code, message, hint))


def counts_towards(account: str, names: frozenset[str]) -> bool:
    """Whether a call of the account may count towards one of the budgets of these names."""
    return any(name in (EVERY_ACCOUNT, account) or name.startswith(f"{account}/") for name in names)
