"""The port of calls that headway makes itself: an attempt says when it waits, and hears the end.

Laws:
- Every call is asked for under the path of its own attempt, whichever connection it goes through.
- Whoever waits behind an empty usage window learns that within seconds, and does not go on waiting.
- What admission says for good becomes the attempt's own error; nothing here makes a response of it.
- After `FATAL_MAX` answers in a row that say the same of all calls to a model (a wrong key, name
  or address, no credit), no more calls are sent to it in this run. Neither are they after as many
  tasks in a row that no connection was made for in the last of their attempts.

The transport asks for a permit inside the task of the attempt, so that a context variable says
whose call it is. A wait is cut into slices: after each, admission says what the call waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from headway.base.values import Fault, FaultKind, Permit, Reading
from headway.errors import (
    AccountClosedError,
    BrokerUnavailableError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
    InternalError,
    QueueDeadlineError,
)
from headway.work import Attempt, AttemptError, OverBudgetError, WindowEmptyError

if TYPE_CHECKING:
    from headway.broker.client import CallRequest
    from headway.client.exchange import HeldPermit, Port
    from headway.pacing.admission import CallOutcome

# Several calls of one attempt at a time, told as one: it waits for a permit if all of them do.


class ParallelCalls:
    """Calls of one attempt at the same time: it waits if all of them do."""

    def __init__(self) -> None:
        self.waiting = self.going = 0

    def __repr__(self) -> str:
        return f"<Voices {self.waiting} waiting, {self.going} going>"

    def statistics(self) -> tuple[int, int]:
        """How many wait for a permit, and how many have theirs."""
        return self.waiting, self.going

    @contextmanager
    def joined(self, attempt: Attempt) -> Iterator[Voice]:
        """Around one call."""
        voice = Voice(self, attempt)
        try:
            yield voice
        finally:
            voice.become("")


class Voice:
    """What one call says of itself."""

    def __init__(self, voices: ParallelCalls, attempt: Attempt) -> None:
        self._voices = voices
        self._attempt = attempt
        self._state = ""

    def waits(self, why: str = "", /) -> None:
        self.become("waiting", why)

    def goes(self, why: str = "", /) -> None:
        self.become("going", why)

    def become(self, state: str, why: str = "") -> None:
        voices, before = self._voices, self._voices.going
        voices.waiting += (state == "waiting") - (self._state == "waiting")
        voices.going += (state == "going") - (self._state == "going")
        self._state = state
        if voices.going and not before:
            self._attempt.goes(why)
        elif voices.waiting and not voices.going and (before or state == "waiting"):
            self._attempt.waits(why)


FIRST_SLICE_S: Final = 2.0
SLICE_S: Final = 60.0
"""A call that leaves the line to ask what it waits for loses its place: soon once, then rarely."""

USAGE: Final = "usage/"
"""How the resource of a usage window begins."""

FATAL: Final[tuple[FaultKind, ...]] = ("access", "billing", "spend_cap")
FATAL_MAX: Final = 3
"""One answer may be an accident of the provider, as a 404 while a model is being deployed is."""

MENDS: Final = {
    "access": "check {key}, {url} and the model's name",
    "billing": "the account has no credit: pay",
    "spend_cap": "the account's own spending limit is reached: raise it",
    "connection": "check the address ({url}) and whether a server listens there",
}

FULL: Final = 1.0
"""The share of a usage window at which its provider answers nothing more."""

Use = tuple[str, str]
"""The account, which is an address and a key, and the model."""

Window = Callable[[float, str], object]
"""Told at once that a usage window is empty: until when by the wall clock, and in words."""


@dataclass(slots=True)
class Calling:
    """One call of an attempt, from the first permit that it asks for to its end."""

    attempt: Attempt
    path: tuple[str, ...]
    key_variable: str
    """The environment variable of its key: named in the message that asks to correct it."""
    outcome: CallOutcome | None = None
    """How the exchange with the provider ended, as it told admission."""
    sent: int = 0
    """How often it got a permit."""


CALLING: Final[ContextVar[Calling]] = ContextVar("headway calling")


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """What went through."""

    admitted: int
    windows: int


class Fatal:
    """Counts answers in a row that are not about one call alone, by account and model."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[Use, list[Fault]] = {}

    def __repr__(self) -> str:
        return f"<Fatal of {self.statistics()} uses>"

    def statistics(self) -> int:
        """How many accounts and models were last answered so."""
        return len(self._rows)

    def last(self, use: Use) -> Fault | None:
        """What every call is answered with; None while that is not certain."""
        row = self._rows.get(use, ())
        return row[-1] if len(row) >= FATAL_MAX else None

    def ended(self, use: Use, outcome: CallOutcome, *, is_last: bool = False) -> None:
        """A call ended: whether its answer is about all calls like it, and how many were so.

        That no connection was made may pass: it counts in the last attempt of a task only.
        """
        fault = outcome.fault
        if fault is None or fault.kind == "request":
            self._rows.pop(use, None)
        elif fault.kind in FATAL or (fault.kind == "connection" and is_last):
            row = self._rows.setdefault(use, [])
            if row and row[-1].kind != fault.kind:
                row.clear()
            row.append(fault)


class Gate:
    """Stands between the transport and whoever admits."""

    __slots__ = ("_admitted", "_inner", "_wall", "_window", "_windows", "fatal")

    def __init__(
        self, inner: Port | None, window: Window | None, wall: Callable[[], float] = time.time
    ) -> None:
        """`inner` admits; without it, the process's own port."""
        self._inner = inner
        self._window = window
        self._wall = wall
        self._admitted = self._windows = 0
        self.fatal: Final = Fatal()

    def __repr__(self) -> str:
        return f"<Gate to {self._inner!r}, {self._admitted} admitted>"

    def admit(self, call: CallRequest, deadline_s: float | None) -> HeldPermit:  # noqa: ARG002 - a port
        raise InternalError("a call of an attempt is made on its loop")

    async def admit_async(self, call: CallRequest, deadline_s: float | None) -> HeldPermit:  # noqa: ARG002 - attempts have timeouts of their own
        """A permit for the call of the attempt that runs here."""
        from headway.client.exchange import refusal_words
        from headway.pacing.admission import CallOutcome

        calling, use = CALLING.get(), (call.account, call.sketch.model)
        self._must_be_open(use, calling)
        before = calling.outcome.fault if calling.outcome is not None else None
        calling.attempt.waits("" if before is None else refusal_words(before))
        with calling.attempt.clock.stopped(is_refused=before is not None):
            held, waited = await self._asked(replace(call, path=calling.path))
        try:
            self._must_be_open(use, calling)
            calling.attempt.goes(waited)
        except BaseException:
            # Whoever is told may be ending everything: the permit is not for them to keep.
            held.settle(CallOutcome("unused"))
            raise
        calling.outcome = None
        calling.sent += 1
        self._admitted += 1
        return _Watched(held, calling, self, use)

    def read(self, reading: Reading) -> None:
        """A response spoke of limits: a usage window that is used up is everybody's business."""
        if reading.limits:
            for empty in emptied(reading, self._wall()):
                self._closed(empty.resets_at_s, empty.detail)

    def _must_be_open(self, use: Use, calling: Calling) -> None:
        """Raises AttemptError, for this run, once every call is answered with the same fault."""
        last = self.fatal.last(use)
        if last is not None:
            account, model = use
            host, key = account.partition("#")[0], calling.key_variable
            mend = MENDS[last.kind].format(key=key, url=key.replace("API_KEY", "BASE_URL"))
            does = f"refuses every call to `{model}`"
            if last.kind == "connection":
                does = "cannot be reached"
            why = f"{host} {does}: {last.detail}; {mend}"
            raise put_off(last.kind, why)

    def statistics(self) -> GateStatistics:
        return GateStatistics(self._admitted, self._windows)

    async def _asked(self, call: CallRequest) -> tuple[HeldPermit, str]:
        """The permit, and what it was waited for, in all slices."""
        from headway.pacing.quota import waited_for

        port, slice_s, waited = self._port(), FIRST_SLICE_S, ""
        while True:
            try:
                held = await port.admit_async(call, slice_s)
                return held, waited_for(held.permit.reason) or waited
            except QueueDeadlineError as error:
                waited = limit_in(error) or waited
                empty = window_of(error, self._wall())
                if empty is not None:
                    self._closed(empty.resets_at_s, empty.detail)
                    raise empty from None
            except HeadwayError as error:
                raise _in_attempts_words(error) from error
            call, slice_s = replace(call, is_resent=True), SLICE_S

    def _port(self) -> Port:
        if self._inner is not None:
            return self._inner
        from headway.client.admission import admission

        return admission()

    def _closed(self, until_wall_s: float, detail: str) -> None:
        self._windows += 1
        if self._window is not None:
            self._window(until_wall_s, detail)


class _Watched:
    """A permit in use, of which the attempt wants to know how it ends."""

    __slots__ = ("_calling", "_gate", "_held", "_use")

    def __init__(self, held: HeldPermit, calling: Calling, gate: Gate, use: Use) -> None:
        self._held = held
        self._use = use
        self._calling = calling
        self._gate = gate

    def __repr__(self) -> str:
        return f"<_Watched {self._held!r}>"

    @property
    def permit(self) -> Permit:
        return self._held.permit

    @property
    def cut(self) -> HeadwayError | None:
        return self._held.cut

    def began(self, reading: Reading, dialect: str) -> None:
        self._held.began(reading, dialect)
        self._gate.read(reading)

    def progressed(self, output_tokens: float) -> None:
        self._held.progressed(output_tokens)

    def still_alive(self) -> None:
        self._held.still_alive()

    def settle(self, outcome: CallOutcome) -> None:
        self._calling.outcome = outcome
        self._held.settle(outcome)
        self._gate.read(outcome.reading)
        self._gate.fatal.ended(self._use, outcome, is_last=self._calling.attempt.is_last)

    def statistics(self) -> CallOutcome | None:
        """How it ended."""
        return self._calling.outcome


def emptied(reading: Reading, now_s: float) -> Iterator[WindowEmptyError]:
    """The usage windows that a response shows to be used up, by the wall clock."""
    for told in reading.limits:
        if told.utilization is None or told.period_s is None or told.utilization < FULL:
            continue
        lasts_s = told.period_s if told.reset_s is None else told.reset_s
        yield WindowEmptyError(now_s + lasts_s, f"usage window is {told.utilization:.0%} used")


def window_of(error: QueueDeadlineError, now_s: float) -> WindowEmptyError | None:
    """The empty usage window that a call waited for in vain, if that is what it waited for."""
    from headway.pacing.admission import wait_in

    wait = wait_in(error.detail or "", now_s)
    if wait is None or not wait.resource.startswith(USAGE):
        return None
    return WindowEmptyError(wait.until_s, wait.reason)


def limit_in(error: QueueDeadlineError) -> str:
    """What a call waited for that left the line: `input/60s` of `waited for input/60s (...)`."""
    from headway.pacing.quota import waited_for

    return waited_for(error.detail or "").partition(" (")[0]


def put_off(kind: FaultKind, why: str) -> AttemptError:
    """Nothing was sent, and nothing will be in this run: no fault of the task."""
    return AttemptError(Fault(kind, retry_after_s=inf, detail=why))


def _in_attempts_words(error: HeadwayError) -> AttemptError | OverBudgetError:
    """What admission refuses for good, as what it means for the attempt."""
    said = "; ".join(part for part in (f"[{error.code}] {error.message}", error.hint) if part)
    if isinstance(error, BudgetReachedError):
        return OverBudgetError(said)
    if isinstance(error, AccountClosedError):
        return put_off("billing", said)
    if isinstance(error, DemandTooLargeError):
        return AttemptError(Fault("request", detail=said))
    if isinstance(error, BrokerUnavailableError):
        # Nothing was sent, and the next attempt may find a broker.
        return AttemptError(Fault("connection", detail=said))
    return AttemptError(Fault("request", detail=said))
