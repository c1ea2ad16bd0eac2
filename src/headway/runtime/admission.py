"""The port that every call goes through: ask for a permit, wait, make the call, settle.

Laws:
- Thread-safe, for any number of threads and event loops at once.
- A forked child gets a port of its own: it neither uses nor settles what its parent holds.
- Waiting is bounded by the caller's deadline and says, when it ends, what it was for.
- Without a broker nobody is let through, unless the user said so, and never where money counts.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Final

from headway.core.quota.book import Outcome
from headway.core.quota.terms import AccountTerms
from headway.core.quota.view import BookView
from headway.errors import BrokerUnavailableError, HeadwayError, QueueDeadlineError
from headway.runtime.client import CallRequest, Client, ClientStatistics, Line, Place, Ticket
from headway.runtime.protocol import About, Describe, Described

__all__ = ["Admission", "CallRequest", "Outcome", "Ticket", "admission", "keep_apart"]

WAIT_S_MAX: Final = 30 * 86400.0
"""The longest wait that is timed; the clocks below do not count further."""

REASON_S_MAX: Final = 1.0
"""How long a call that gives up waits to be told what it waited for."""

DESCRIBE_S_MAX: Final = 10.0
"""How long an answer about everything may take."""

Dial = Callable[[Client], Line]
"""Makes the line of a new client."""


class Admission:
    """Asks for permits on behalf of everything in this process."""

    __slots__ = ("__weakref__", "_client", "_dial", "_lock", "_may_go")

    def __init__(self, dial: Dial | None = None, *, unpaced: bool = False) -> None:
        """`dial` makes the line; without it, the broker's, or one of this process's own.

        `unpaced` lets calls through when there is no broker, except those that count towards
        a budget.
        """
        if dial is None:
            from headway.runtime.access import dial_best

            dial = dial_best
        from headway.runtime.access import without_budget

        self._dial = dial
        self._may_go: Callable[[str], bool] = without_budget if unpaced else lambda _: False
        self._lock = Lock()
        self._client: Client | None = None
        _ADMISSIONS.add(self)

    def __repr__(self) -> str:
        return f"<Admission of {self._client!r}>"

    def admit(self, call: CallRequest, deadline_s: float | None = None) -> Ticket:
        """Wait, blocking this thread, until the call may be made."""
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
        except BaseException:  # Interrupts too: whatever is granted now is for nobody.
            client.abandon(place)
            raise

    async def admit_async(self, call: CallRequest, deadline_s: float | None = None) -> Ticket:
        """Wait, as a coroutine of any event loop, until the call may be made."""
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
        except BaseException:  # Cancellation too: whatever is granted now is for nobody.
            client.abandon(place)
            raise

    def configure(self, account: str, terms: AccountTerms) -> None:
        """Set what the user wants for an account, a model group of it, or all of them."""
        self._present().configure(account, terms)

    def describe(self) -> tuple[BookView, About]:
        """What is known of every account, who waits and why, and who says so. Blocks."""
        told: SimpleQueue[Described] = SimpleQueue()
        client = self._present()
        client.line.send(Describe(client.watch(told.put)))
        client.line.open()
        view = BookView("", (), (), ())
        while True:
            try:
                said = told.get(timeout=DESCRIBE_S_MAX)
            except Empty:
                raise BrokerUnavailableError("the broker does not answer") from None
            part = said.part
            if part is not None:
                view = BookView(
                    part.month, view.lanes + part.lanes, view.ledgers + part.ledgers,
                    view.terms + part.terms, part.date, part.hour, view.days + part.days,
                )  # fmt: skip
            if said.about is not None:
                return view, said.about

    def close(self) -> None:
        """Hang up. Whoever asks next makes a new line."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.line.close()

    def statistics(self) -> ClientStatistics:
        client = self._client
        return ClientStatistics("", 0, 0, 0) if client is None else client.statistics()

    def _present(self) -> Client:
        """This process as a client, made when first needed."""
        client = self._client
        if client is not None:
            return client
        with self._lock:
            if self._client is None:
                self._client = Client(self._dial, self._may_go)
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
        """Whether it rang in time."""
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
        """Whether it rang in time."""
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
    """The one port of this process."""
    with _PORT.lock:
        if _PORT.port is None:
            _PORT.port = Admission(unpaced=is_unpaced())
        return _PORT.port


def is_unpaced() -> bool:
    """Whether calls may be made when there is no broker."""
    return os.environ.get("HEADWAY_UNPACED", "") not in ("", "0")


def keep_apart() -> None:
    """Let this process admit its calls by itself: what it calls is simulated, and no real account
    shall know of it."""
    from headway.runtime.access import dial_alone

    with _PORT.lock:
        _PORT.port = Admission(dial_alone)


@dataclass(slots=True)
class _Port:
    lock: Lock
    port: Admission | None = None


_PORT: Final = _Port(Lock())
_ADMISSIONS: Final[weakref.WeakSet[Admission]] = weakref.WeakSet()


def _ticket(place: Place, deadline_s: float | None) -> Ticket:
    """What a wait came to."""
    answer = place.answer
    if isinstance(answer, Ticket):
        return answer
    if isinstance(answer, HeadwayError):
        raise answer
    what = f"waited for {answer}" if answer else "nobody said what for"
    raise QueueDeadlineError(
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
