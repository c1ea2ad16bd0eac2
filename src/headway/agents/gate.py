"""Admission for the calls that headway makes itself: reports waits and settles each permit.

Laws:
- Every call is admitted under the path of its own run, whichever connection it goes through.
- A call that waits behind an empty usage window is ended within seconds.
- A final refusal of admission becomes the attempt's own error; nothing here makes a response of it.
- After `FATAL_MAX` answers in a row that say the same of all calls to a model (a wrong key, name
  or address, no credit), no more calls are sent to it in this run. Neither are they after as many
  tasks in a row that no connection was made for in the last of their attempts.
- While a call waits, admission says now and then what for; the call keeps its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway import errors
from headway.base.clock import now_s
from headway.base.values import Amounts, Fault, FaultKind, Reading, Wait
from headway.pacing.windows import UNTOLD_S, Shares, binds_all
from headway.work import Attempt, AttemptError, OverBudgetError, WindowEmptyError

if TYPE_CHECKING:
    from headway.client.exchange import HeldPermit, Port
    from headway.pacing.call import Outcome, Request


class ParallelCalls:
    """Calls of one attempt at the same time: it waits if all of them do."""

    def __init__(self) -> None:
        self.waiting = self.going = 0

    @contextmanager
    def joined(self, attempt: Attempt) -> Iterator[Callable[..., None]]:
        """One call more: gives what reports its state, "waiting" or "going", and the reason."""
        state = ""

        def become(now: str, why: str = "", /) -> None:
            nonlocal state
            before = self.going
            self.waiting += (now == "waiting") - (state == "waiting")
            self.going += (now == "going") - (state == "going")
            state = now
            if self.going and not before:
                attempt.goes(why)
            elif self.waiting and not self.going and (before or now == "waiting"):
                attempt.waits(why)

        try:
            yield become
        finally:
            become("")


USAGE: Final = "usage/"
WINDOWS: Final = (USAGE, "one model/")
"""What resources of waits begin with that are usage windows: of all models, and of one."""

FATAL: Final[tuple[FaultKind, ...]] = ("access", "billing", "spend_cap")
FATAL_MAX: Final = 3
"""One answer may be an accident of the provider, as a 404 while a model is being deployed is."""

MENDS: Final = {
    "access": "check {key}, {url} and the model's name",
    "billing": "the account has no credit: pay",
    "spend_cap": "the account's own spending limit is reached: raise it",
    "connection": "check the address ({url}) and whether a server listens there",
}

Use = tuple[str, str]
"""The account of a key, and the model."""

Window = Callable[[float, str], object]
"""Called when a usage window is empty: until when by the wall clock, and a description."""


class Calling(Struct):
    """One call of an attempt, from the first permit that it asks for to its end."""

    attempt: Attempt
    path: tuple[str, ...]
    key_variable: str
    """The environment variable of its key: named in the message that asks to correct it."""
    host: str
    use: Use = ("", "")
    outcome: Outcome | None = None
    sent: int = 0


CALLING: Final[ContextVar[Calling]] = ContextVar("headway calling")


class Fatal:
    """Counts answers in a row that are not about one call alone, by account and model."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[Use, list[Fault]] = {}

    def last(self, use: Use) -> Fault | None:
        """What every call is answered with; None while that is not certain."""
        row = self._rows.get(use, ())
        return row[-1] if len(row) >= FATAL_MAX else None

    def ended(self, use: Use, fault: Fault | None, *, is_lost: bool = False) -> None:
        """Count a failed call. A missing connection counts where a task is lost by it."""
        if fault is None or fault.kind == "request":
            self._rows.pop(use, None)
        elif fault.kind in FATAL or (fault.kind == "connection" and is_lost):
            row = self._rows.setdefault(use, [])
            if row and row[-1].kind != fault.kind:
                row.clear()
            row.append(fault)


class Gate:
    __slots__ = ("_inner", "_shares", "_window", "fatal")

    def __init__(
        self, inner: Port | None, window: Window | None, shares: Shares | None = None
    ) -> None:
        """`shares`: the most that the run takes of each usage window."""
        self._inner = inner
        self._shares = shares
        self._window: Window = window or (lambda *_: None)
        self.fatal: Final = Fatal()

    def admit(self, request: Request, deadline_s: float | None, heard: object = None) -> HeldPermit:  # noqa: ARG002 - a port
        raise errors.InternalError("a call of an attempt is made on its loop")

    async def admit_async(
        self, request: Request, deadline_s: float | None, heard: object = None
    ) -> HeldPermit:
        """Attempts have timeouts of their own."""
        del deadline_s, heard
        from headway.client.exchange import refusal_words
        from headway.pacing.call import Outcome

        calling = CALLING.get()
        use = calling.use = (request.account, request.sketch.model)
        self._must_be_open(use, calling)
        before = calling.outcome.fault if calling.outcome is not None else None
        calling.attempt.waits("" if before is None else refusal_words(before))
        with calling.attempt.clock.stopped(is_refused=before is not None):
            held = await self._asked(
                replace(request, path=calling.path, window_shares=self._shares)
            )
        try:
            self._must_be_open(use, calling)
            calling.attempt.goes(held.waited_for)
        except BaseException:
            # The run may be ending: the permit is given back.
            held.settle(Outcome("unused"))
            raise
        calling.outcome = None
        calling.sent += 1

        def settled(outcome: Outcome) -> None:
            calling.outcome = outcome
            self.fatal.ended(use, outcome.fault)

        return WatchedPermit(held, self.read, settled)

    def read(self, reading: Reading) -> None:
        """The limits of a response: an empty usage window concerns the whole run."""
        if reading.limits:
            for empty in emptied(reading, time.time()):
                self._window(empty.resets_at_s, empty.detail)

    def _must_be_open(self, use: Use, calling: Calling) -> None:
        """Raises AttemptError, for this run, once every call is answered with the same fault."""
        last = self.fatal.last(use)
        if last is not None:
            _, model = use
            key = calling.key_variable
            mend = MENDS[last.kind].format(key=key, url=key.replace("API_KEY", "BASE_URL"))
            does = f"refuses every call to `{model}`"
            if last.kind == "connection":
                does = "cannot be reached"
            why = f"{calling.host} {does}: {last.detail}; {mend}"
            raise put_off(last.kind, why)

    async def _asked(self, request: Request) -> HeldPermit:
        from headway.client.exchange import Pacing

        try:
            port = Pacing(admission=self._inner).port()
            return await port.admit_async(request, None, self._must_not_be_empty)
        except errors.HeadwayError as error:
            raise _in_attempts_words(error) from error

    def _must_not_be_empty(self, wait: Wait) -> None:
        """Raises WindowEmptyError if a call waits for a usage window, which concerns the run."""
        if wait.resource.startswith(USAGE):
            empty = WindowEmptyError(time.time() + wait.until_s - now_s(), wait.reason)
            self._window(empty.resets_at_s, empty.detail)
            raise empty


class WatchedPermit:
    """A permit in use that keeps its outcome and passes on the limits of its response."""

    __slots__ = ("_held", "_read", "_settled", "outcome", "output_tokens")

    def __init__(
        self,
        held: HeldPermit,
        read: Callable[[Reading], None],
        settled: Callable[[Outcome], None] | None = None,
    ) -> None:
        self._held = held
        self._read = read
        self._settled = settled
        self.outcome: Outcome | None = None
        self.output_tokens = 0.0

    @property
    def waited_for(self) -> str:
        return self._held.waited_for

    @property
    def expected(self) -> Amounts:
        return self._held.expected

    @property
    def cut(self) -> errors.HeadwayError | None:
        """Why the answer is to be ended here; one that is over is passed on as it is."""
        return self._held.cut if self.outcome is None else None

    def reached(self) -> None:
        self._held.reached()

    def began(self, reading: Reading, dialect: str) -> None:
        self._held.began(reading, dialect)
        self._read(reading)

    def progressed(self, output_tokens: float) -> None:
        self.output_tokens = output_tokens
        self._held.progressed(output_tokens)

    def settle(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
        self._held.settle(outcome)
        self._read(outcome.reading)
        if self._settled is not None:
            self._settled(outcome)


def emptied(reading: Reading, now_s: float) -> Iterator[WindowEmptyError]:
    """The usage windows of all models that a response shows to be used up, by the wall clock."""
    for one in reading.limits:
        if one.is_empty and binds_all(one.window):
            lasts_s = one.period_s or UNTOLD_S if one.reset_s is None else one.reset_s
            yield WindowEmptyError(now_s + lasts_s, f"usage window {one.window} is used up")


def put_off(kind: FaultKind, why: str) -> AttemptError:
    """Nothing was sent, and nothing will be in this run: no fault of the task."""
    return AttemptError(Fault(kind, retry_after_s=inf, detail=why))


def _in_attempts_words(error: errors.HeadwayError) -> AttemptError | OverBudgetError:
    words = "; ".join(part for part in (f"[{error.code}] {error.message}", error.hint) if part)
    if isinstance(error, errors.BudgetReachedError):
        return OverBudgetError(words)
    if isinstance(error, errors.AccountClosedError):
        return put_off("billing", words)
    # Without a broker nothing was sent, and the next attempt may find one.
    is_missing = isinstance(error, errors.BrokerUnavailableError)
    return AttemptError(Fault("connection" if is_missing else "request", detail=words))
