"""The admission port: ask for a permit, wait, call, settle.

Laws:
- Thread-safe, for any number of threads and event loops at once.
- A forked child gets a port of its own: it neither uses nor settles what its parent holds.
- Waiting is bounded by the caller's deadline and says, when it ends, what it was for; what a call
  waits for can be looked at while it keeps its place.
- Without a broker no call is sent, unless the user said so, and never where money counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Final

from headway import errors
from headway.base.clock import now_s
from headway.base.folders import Folders, folders, prepare
from headway.broker import protocol
from headway.broker.calls import (
    UNTOLD,
    AdmissionClient,
    ClientCall,
    ClientStatistics,
    Connection,
)
from headway.broker.connection import BrokerConnection
from headway.broker.election import start
from headway.broker.service import AdmissionService, counts_towards
from headway.broker.store import Store, StoredMemory, open_admission, recall
from headway.client.exchange import Heard
from headway.pacing.admission import Admission
from headway.pacing.budget import MonthlyBudgets
from headway.pacing.call import Request
from headway.pacing.memory import AccountTerms, PacingMemory, account_of
from headway.pacing.view import AdmissionView

_LOG: Final = logging.getLogger("headway")

LINGER_S: Final = 1.0
"""The thread that lets time pass stays for so long after the last call that waited."""


class LocalConnection:
    """Admission within one process: no second process, nothing shared."""

    def __init__(
        self,
        client: AdmissionClient,
        admission: Admission,
        keep: Callable[[], str] = lambda: "",
        now: Callable[[], float] = now_s,
    ) -> None:
        self._client, self._admission, self._now = client, admission, now
        self._inbox: deque[protocol.FromClient | None] = deque()
        self._lock = Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._starting = Lock()
        self._ticker: Thread | None = None
        self._nap_s = inf
        self._service = AdmissionService(
            admission, lambda _, message: client.receive(message), keep, _LOG.warning, now
        )
        self._service.handle(client.id, client.hello())

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
                        self._service.handle(self._client.id, said)
                if self._service.is_due:
                    self._service.decide()
            except errors.WireError as fault:
                self._client.receive(protocol.Rejected(fault.message))
            except Exception as fault:
                # The boundary: this runs on whatever thread came first, which has probably
                # nothing to do with it. Calls that wait get the error.
                _LOG.exception("headway cannot admit calls")
                self._client.receive(protocol.Rejected(f"{type(fault).__name__}: {fault}"))
            finally:
                if self._ticker is not None and self._service.wake_s < self._nap_s:
                    self._bell.put(None)
                self._lock.release()

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
            if self._client.waiting:
                idle_s = monotonic()
            elif monotonic() - idle_s >= LINGER_S:
                with self._starting:
                    # A call that waits came before this lock, or will start a new thread.
                    if not self._client.waiting:
                        self._ticker = None
                        return


WAIT_S_MAX: Final = 30 * 86400.0
"""The longest wait that is timed; the clocks below do not count further."""
REASON_S_MAX: Final = 1.0
"""How long a call waits to be told what it waits for, before it gives up or goes on to wait."""
LOOK_S: Final = (2.0, 10.0)
"""A caller that wants to know what it waits for is told after so long, then so often."""
DESCRIBE_S_MAX: Final = 10.0
"""How long an answer about everything may take."""

Dial = Callable[[AdmissionClient], Connection]


class AdmissionPort:
    def __init__(self, dial: Dial | None = None, *, unpaced: bool = False) -> None:
        """`unpaced`, or HEADWAY_UNPACED, lets calls go without a broker, except those that count
        towards a budget."""
        self._dial = dial or dial_best
        is_unpaced = unpaced or os.environ.get("HEADWAY_UNPACED", "") not in ("", "0")
        self._may_go: Callable[[str], bool] = without_budget if is_unpaced else lambda _: False
        self._lock = Lock()
        self._client: AdmissionClient | None = None
        _PORTS.add(self)

    def admit(
        self, request: Request, deadline_s: float | None = None, heard: Heard | None = None
    ) -> ClientCall:
        client = self._client or self._present()
        call = client.enter(request)
        try:
            client.connection.send(protocol.Ask(call.number, request))
            if not call.is_answered:
                client.connection.open()
                bell: SimpleQueue[None] = SimpleQueue()
                call.ring = partial(bell.put, None)
                for timeout_s in _waits(client, call, deadline_s, heard):
                    with suppress(Empty):
                        bell.get(timeout=timeout_s)
        except BaseException:  # Interrupts too: the caller has left, a grant would be unused.
            client.abandon(call)
            raise
        if call.error is not None:
            raise call.error
        return call

    async def admit_async(
        self, request: Request, deadline_s: float | None = None, heard: Heard | None = None
    ) -> ClientCall:
        client = self._client or self._present()
        call = client.enter(request)
        try:
            client.connection.send(protocol.Ask(call.number, request))
            if not call.is_answered:
                client.connection.open()
                bell = asyncio.Event()
                call.ring = partial(asyncio.get_running_loop().call_soon_threadsafe, bell.set)
                for timeout_s in _waits(client, call, deadline_s, heard):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(timeout_s):
                            await bell.wait()
                    bell.clear()
        except BaseException:  # Cancellation too: the caller has left, a grant would be unused.
            client.abandon(call)
            raise
        if call.error is not None:
            raise call.error
        return call

    def configure(self, account: str, terms: AccountTerms) -> None:
        """What the user set. The broker writes it down, and the next one reads it there."""
        self._present().tell(protocol.Configure(account, terms))

    def refresh(self, account: str) -> None:
        """Usage windows may have been filled: of each that holds calls, one call finds out."""
        self._present().tell(protocol.Refresh(account))

    def forget(self, account: str) -> None:
        """What was learned and set of an account goes, unless a call uses it."""
        connection = self._present().connection
        connection.send(protocol.Forget(account))
        connection.open()

    def name(self, account: str, name: str) -> None:
        """The user's name for an account, or none: several of one name are one account."""
        self._present().tell(protocol.Name(account, name))

    def describe(self) -> tuple[AdmissionView, protocol.About]:
        """What is known of every account, who waits and why, and who says so. Blocks."""
        told: SimpleQueue[protocol.Described] = SimpleQueue()
        self._present().describe(told.put)
        try:
            said = told.get(timeout=DESCRIBE_S_MAX)
        except Empty:
            raise errors.BrokerUnavailableError("the broker does not answer") from None
        return said.view, said.about

    def close(self) -> None:
        """Hang up. The next call makes a new connection."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.connection.close()

    def statistics(self) -> ClientStatistics:
        client = self._client
        return ClientStatistics("", 0, 0, 0) if client is None else client.statistics()

    def _present(self) -> AdmissionClient:
        with self._lock:
            if self._client is None:
                self._client = AdmissionClient(self._dial, self._may_go)
            return self._client

    def _forked(self) -> None:
        """In the child: the parent's client, its locks and its threads are not here."""
        self._lock = Lock()
        client, self._client = self._client, None
        if client is not None:
            client.is_stale = True
            client.connection.abandon()


def _waits(
    client: AdmissionClient, call: ClientCall, deadline_s: float | None, heard: Heard | None
) -> Iterator[float | None]:
    """How long to wait for the bell, each time, until there is an answer. A bell that has rung
    without a reason does no harm."""
    ends_s = inf if deadline_s is None else monotonic() + min(max(deadline_s, 0.0), WAIT_S_MAX)
    look_s = inf if heard is None else monotonic() + LOOK_S[0]
    while not call.is_answered:
        now, due_s = monotonic(), min(ends_s, look_s)
        if now < due_s:
            yield None if due_s == inf else due_s - now
            continue
        yield from _reason(client, call)
        wait, look_s = call.wait, now + LOOK_S[1]
        if call.number in client.waiting:
            if wait is not None and wait is not UNTOLD and heard is not None:
                heard(wait)
            if now >= ends_s:
                raise _too_late(call, deadline_s or 0.0)


def _reason(client: AdmissionClient, call: ClientCall) -> Iterator[float]:
    """Until the broker has said what a call waits for; the call keeps its place."""
    call.wait = UNTOLD
    client.connection.send(protocol.Why(call.number))
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


def keep_apart() -> None:
    """Let this process admit its calls by itself: what it calls is simulated."""
    _OWN.update(dict.fromkeys((False, True), AdmissionPort(dial_alone)))


_OWN: Final[dict[bool, AdmissionPort]] = {}
"""The ports of this process, by whether they let calls go unpaced."""
_PORTS: Final[weakref.WeakSet[AdmissionPort]] = weakref.WeakSet()


def _after_fork() -> None:
    for port in list(_PORTS):
        port._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# How a process reaches admission: the broker if there can be one, else its own.

_SAID: Final[set[str]] = set()


def dial_best(client: AdmissionClient) -> Connection:
    place = folders(os.environ)
    why = obstacle(place)
    if not why:
        return BrokerConnection(client, place, start)
    say_once(
        f"headway paces this process alone, because there can be no broker: {why}."
        " Other processes on the same account are not counted."
    )
    return dial_alone(client, recall(place.memory))


def dial_alone(client: AdmissionClient, kept: StoredMemory | None = None) -> Connection:
    """Admission in this process: knows what is given, writes nothing, spends no budget."""
    own = open_admission(kept or StoredMemory(PacingMemory()), now_s())
    return LocalConnection(client, own, lambda: "budgets need a broker, and there is none")


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
