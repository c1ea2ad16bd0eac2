"""Fakes of headway's interfaces, for tests."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar, TypeVarTuple

from msgspec import Struct, field

from headway.base.values import Amounts, Reading, Wait
from headway.errors import HeadwayError, QueueDeadlineError
from headway.pacing.call import Outcome, Request

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

REAL_WAIT_S: Final = 0.01
"""How long a virtual loop waits for another thread before it looks whether it still has to."""


class FakePermit(Struct, eq=False):
    """A permit in use that writes down everything it is told."""

    call: Request
    waited_for: str = ""
    expected: Amounts = Amounts()
    beginnings: list[tuple[Reading, str]] = field(default_factory=list)
    progress: list[float] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    """How it ended; more than one means that it was settled again."""
    cut: HeadwayError | None = None
    """Set it to have the answer ended."""

    def reached(self) -> None:
        """There is a connection."""

    def began(self, reading: Reading, dialect: str) -> None:
        self.beginnings.append((reading, dialect))

    def progressed(self, output_tokens: float) -> None:
        self.progress.append(output_tokens)

    def settle(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    @property
    def outcome(self) -> Outcome:
        """The one way in which it ended."""
        (outcome,) = self.outcomes
        return outcome


class FakeAdmissionStatistics(Struct, frozen=True):
    """What happened so far."""

    asked: int
    waiting: int
    left: int
    granted: int
    unsettled: int


class FakeAdmission:
    """Admits every call at once, or when told to; every call and ticket is kept to be looked at.

    admission = FakeAdmission()
    client = headway.pace(openai.OpenAI(...), admission=admission)
    """

    def __init__(self, *, holds: bool = False) -> None:
        """`holds` keeps calls waiting until `grant` is called."""
        self.holds = holds
        self.calls: list[Request] = []
        self.deadlines_s: list[float | None] = []
        self.tickets: list[FakePermit] = []
        self.left: list[Request] = []
        """Calls that gave up waiting: at their deadline, or because they were cancelled."""
        self._errors: deque[HeadwayError | Wait] = deque()
        self._waiting: deque[tuple[Request, Future[FakePermit]]] = deque()
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return f"<FakeAdmission {self.statistics()}>"

    def admit(
        self, call: Request, deadline_s: float | None, heard: Callable[[Wait], None] | None = None
    ) -> FakePermit:
        """A ticket, as soon as there is one. Blocks."""
        future = self._ask(call, deadline_s, heard)
        try:
            return future.result(deadline_s)
        except TimeoutError:
            self._leave(call, future)
            raise QueueDeadlineError(detail=f"it waited {deadline_s} s for a fake") from None
        except BaseException:
            self._leave(call, future)
            raise

    async def admit_async(
        self, call: Request, deadline_s: float | None, heard: Callable[[Wait], None] | None = None
    ) -> FakePermit:
        """A ticket, as soon as there is one."""
        future = self._ask(call, deadline_s, heard)
        if future.done():
            return future.result()
        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            self._leave(call, future)
            raise QueueDeadlineError(detail=f"it waited {deadline_s} s for a fake") from None
        except BaseException:
            self._leave(call, future)
            raise

    def refuse(self, *errors: HeadwayError | Wait) -> None:
        """Answer the next calls with these errors; a wait is reported, and the call goes on."""
        self._errors.extend(errors)

    def grant(self, calls: int = 1) -> None:
        """Admit so many of those who wait, in the order in which they came."""
        for _ in range(calls):
            call, future = self._waiting.popleft()
            future.set_result(self._ticket(call))

    def wait_for_calls(self, count: int, timeout_s: float = 10.0) -> None:
        """Block until so many calls have asked."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.calls) >= count, timeout_s):
                raise TimeoutError(f"{len(self.calls)} calls of {count} asked in {timeout_s} s")

    @property
    def outcomes(self) -> list[Outcome]:
        """How all tickets ended, in the order in which they were granted."""
        return [outcome for ticket in self.tickets for outcome in ticket.outcomes]

    def statistics(self) -> FakeAdmissionStatistics:
        unsettled = sum(not ticket.outcomes for ticket in self.tickets)
        return FakeAdmissionStatistics(
            len(self.calls), len(self._waiting), len(self.left), len(self.tickets), unsettled
        )

    def _ask(
        self, call: Request, deadline_s: float | None, heard: Callable[[Wait], None] | None
    ) -> Future[FakePermit]:
        future: Future[FakePermit] = Future()
        with self._changed:
            self.calls.append(call)
            self.deadlines_s.append(deadline_s)
            error = self._errors.popleft() if self._errors else None
            if isinstance(error, Wait) and heard is not None:
                heard(error)
            if isinstance(error, HeadwayError):
                future.set_exception(error)
            elif self.holds:
                self._waiting.append((call, future))
            else:
                future.set_result(self._ticket(call))
            self._changed.notify_all()
        return future

    def _leave(self, call: Request, future: Future[FakePermit]) -> None:
        if (call, future) in self._waiting:
            self._waiting.remove((call, future))
            self.left.append(call)
        elif future.done() and not future.cancelled() and future.exception() is None:
            # It was granted while its caller was leaving: it will not be sent.
            future.result().settle(Outcome("unused"))

    def _ticket(self, call: Request) -> FakePermit:
        ticket = FakePermit(call)
        self.tickets.append(ticket)
        return ticket


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer as soon as there is nothing else to do.

    Five hours of waiting take milliseconds. What happens in other threads takes real time: while
    a function that the loop itself has put into a thread runs, and while anything that was given
    to `waits_for` says that it is busy, the clock stands still. Sockets to other processes and
    threads that the loop does not know of are not waited for: a test that needs a journal uses one
    in memory, or `waits_for(lambda: journal.is_busy)`.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self.jumps = 0
        """How often the clock jumped."""
        self._in_threads = 0
        self._busy: list[Callable[[], bool]] = []
        super().__init__(_JumpingSelector(self))

    def __repr__(self) -> str:
        return f"<VirtualLoop at {self._now_s:.3f} s, {self.jumps} jumps>"

    def time(self) -> float:
        """Virtual seconds; a clock of the wall can be made of it by adding a date."""
        return self._now_s

    def waits_for(self, is_busy: Callable[[], bool]) -> None:
        """Let no time pass while this is so."""
        self._busy.append(is_busy)

    def jump(self, by_s: float) -> None:
        """Let time pass."""
        self._now_s += by_s
        self.jumps += 1

    @property
    def is_busy(self) -> bool:
        """Whether something runs in real time that the loop has to wait for."""
        return self._in_threads > 0 or any(is_busy() for is_busy in self._busy)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """As every loop, and counted."""
        running = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        running.add_done_callback(self._came_back)
        return running

    def _came_back(self, _: object) -> None:
        self._in_threads -= 1


class _JumpingSelector(selectors.DefaultSelector):
    """Looks for what is ready, and lets time pass instead of waiting for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        while not ready and (timeout is None or timeout > 0):
            if self._loop.is_busy or timeout is None:
                # With no timer at all, only another thread can wake the loop.
                ready = super().select(REAL_WAIT_S)
            else:
                self._loop.jump(timeout)
                break
        return list(ready)


def run_virtual(main: Coroutine[Any, Any, T], start_s: float = 0.0) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start_s)) as runner:
        return runner.run(main)
