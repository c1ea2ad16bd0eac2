"""The loop around the engine: performs its effects, and reports to it what happened.

Laws:
- Whoever has a result makes it durable before anything else: the engine hears of it after.
- Writing never waits for the limiter, and nothing but durability waits for writing.
- A task that has not started is a number in the engine; only attempts are asyncio tasks.
- Inputs are taken one after another, and nothing here recurses into the engine.
- A run that cannot go on ends with an error; it never hangs, and never goes on in silence.
- The driver decides nothing: which task, when, whether again are the engine's business.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final, Literal, Protocol

from headway.core.engine.access import Act
from headway.core.engine.budget import Purse
from headway.core.engine.coherence import Coherence
from headway.core.engine.engine import Rules, State, Step, advance, begin, step
from headway.core.engine.events import (
    Abandon,
    Began,
    Continued,
    Event,
    Held,
    Input,
    LocalRoom,
    Release,
    RunFinished,
    RunStopping,
    Start,
    Stopping,
    TaskFailed,
    Ticked,
    WakeAt,
)
from headway.core.engine.local import Load, LocalLaw, Resting
from headway.core.engine.record import Entry
from headway.core.engine.strategy import Fixed, Waves
from headway.core.plan.graph import Graph
from headway.errors import HeadwayError, InternalError, JournalError
from headway.runtime.alarm import Alarm
from headway.runtime.attempts import Attempts, abandon, call_back
from headway.runtime.keeping import Record
from headway.runtime.machine import Overhead, cores, memory_available
from headway.runtime.results import Results
from headway.runtime.roster import Roster
from headway.runtime.spread import Spread
from headway.runtime.takeover import Saved, Takeover
from headway.runtime.work import Work

LOOK_S: Final = 0.5
"""How often the machine is looked at while tasks use it."""

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""A disk takes nothing more."""

RESET_S: Final = 1.0
"""A usage window is tried this long after its reset: clocks differ."""

Cause = Literal["", "budget", "window", "interrupted", "halt", "journal", "account"]
"""Why a run ended before everything was done; empty if it did not."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One run: what, how, and who is told."""

    graph: Graph
    works: Sequence[Work]
    rules: Rules
    record: Record
    clock: Callable[[], float]
    saved: Saved = Saved()
    purse: Purse | None = None
    waits_until_s: float = inf
    """How long the run may wait for a usage window, by the clock: `-inf` is not at all."""
    watch: Callable[[Sequence[Event]], None] | None = None
    """Told of every event, after the engine."""
    resting: Callable[[], Resting] = Resting
    """Who of those that use this machine only waits for a model; nobody, where nobody can tell."""
    coherence: Coherence | None = None
    """The shared state and the order of its commits, for plans whose tasks touch it."""
    outbox: Outbox | None = None
    """Performs effects on the world; without one they are asked for in vain."""
    full_disk: Callable[[], str] = str
    """Which disk of the run is full, in words; while one is, nothing starts."""
    overhead: Callable[[], Overhead] | None = None
    """What headway itself takes of the machine, for whoever wants to know when the run ends."""


class Outbox(Protocol):
    """Performs the effects of committed tasks, each channel in the order of their release."""

    def release(self, task: int, key: bytes, name: str, acts: tuple[Act, ...]) -> None:
        """Perform these after those that were released before; a task's key is its content key."""

    async def drained(self) -> int | None:
        """When everything that was released is done, or cannot be: how many are left, if any."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended."""

    finished: RunFinished
    cause: Cause = ""
    detail: str = ""
    until_s: float = 0.0
    """When the usage window resets that it did not wait for."""


@dataclass(frozen=True, slots=True)
class DriverStatistics:
    """What is going on."""

    active: int
    ending: int
    in_doubt: int


class Driver:
    """One run, from its first start to its last end."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.state: State = begin(setup.graph, setup.rules, setup.coherence)
        self.saved = setup.saved
        self.clock = setup.clock
        self.resting = setup.resting
        # Without kept bodies nothing can be fetched: all that is needed stays in memory.
        fetch = setup.saved.fetch if setup.saved.keeps_bodies else None
        self.results = Results(setup.graph, fetch)
        self._roster = Roster(self.state, setup.works, setup.saved)
        self.failures = self._roster.failures
        self._attempts = Attempts(self, setup, self._roster)
        self._spread = Spread(setup.graph, setup.works)
        self.alarm = Alarm(setup.clock, partial(_ticked, self))
        self._outcome: tuple[Cause, str, float] = ("", "", 0.0)
        self._is_stopping_now = False
        self._is_over = False
        self._is_put_off = False
        self._done: asyncio.Future[RunFinished] | None = None
        self._inbox: deque[Input | list[Event]] = deque()
        """What happened, and facts that are durable."""
        self._is_feeding = False
        self.error: Exception | None = None
        """Why the run ends with an exception, once everything that was started has ended."""

    def __repr__(self) -> str:
        return f"<Driver {self.statistics()}>"

    def statistics(self) -> DriverStatistics:
        attempts = self._attempts.statistics()
        return DriverStatistics(len(self._roster.active), attempts.ending, attempts.in_doubt)

    async def run(self) -> RunOutcome:
        """Perform everything, or as much as may be."""
        setup = self._setup
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        # Whoever asks for waves of 4 or a pool of 8 gets them, whatever the machine.
        is_sized = isinstance(setup.rules.strategy, Waves | Fixed)
        is_local = not is_sized and any(work.is_local for work in setup.works)
        looker = loop.create_task(_look(self)) if is_local else None
        try:
            takeover = Takeover(setup.graph, setup.works, setup.saved, self.results, self.publish)
            takeover.apply_to(self.state)
            if is_local:
                self.feed(LocalRoom(LocalLaw(cores()).places))
            self.feed(Began())
            self._expand(range(len(setup.graph.groups)))
            finished = await self._done
        finally:
            self._is_over = True
            self.alarm.cancel()
            if looker is not None:
                looker.cancel()
            await self._attempts.end_all()
        if setup.outbox is not None:
            left = await setup.outbox.drained() or 0
            finished = replace(finished, at_s=setup.clock(), effects=left)
            setup.record.write((Entry(finished),))
            self.tell((finished,))
        try:
            await setup.record.flush()
        except JournalError:
            # Closing the journal says what is not on the disk; the user wants to leave now.
            if self._outcome[0] != "interrupted":
                raise
        if self.error is not None:
            raise self.error
        return RunOutcome(finished, *self._outcome)

    def stop(
        self, cause: Cause, detail: str, *, is_now: bool = False, until_s: float = 0.0
    ) -> None:
        """Start nothing more; with `is_now` end what is started, but never what has a result.

        For the cause `account`, tasks that do not need the account still start.
        """
        before = self._outcome[0]
        # What stops the whole run replaces what stopped the use of an account.
        if not before or (before == "account" and cause != "account"):
            self._outcome = (cause, detail, until_s)
        if cause == "account":
            self._is_put_off = True
            return
        self._is_stopping_now = self._is_stopping_now or is_now
        reason = f"{cause}: {detail}" if cause in ("budget", "window") else detail
        was_over = self.state.over
        self.feed(Stopping(reason, is_now and not self._attempts.ending))
        if was_over:
            # Effects are still being performed: the journal has its end, the user a word.
            self.tell((RunStopping(self.clock(), reason, is_now),))
        if not is_now and cause != "budget":
            # What holds a part of the budget may use it; what waits for a window would wait long.
            call_back(self._roster, self._setup.works, detail)

    def hold(self, reason: str, until_s: float = inf) -> None:
        """Start nothing more for now."""
        self.feed(Held(until_s, reason))

    def go_on(self) -> None:
        """Start tasks again."""
        self.feed(Continued())

    def window_empty(self, resets_at_s: float, detail: str) -> bool:
        """The account is empty for hours: nothing starts before its reset, if it may wait.

        Whether the run waits for that.
        """
        until_s = resets_at_s + RESET_S
        if until_s > self._setup.waits_until_s:
            self.stop("window", detail, until_s=resets_at_s)
            return False
        if until_s > max(self._setup.clock(), self.state.held_until_s):
            self.feed(Held(until_s, detail))
        return True

    def feed(self, happened: Input | list[Event]) -> None:
        """Report what need not be durable before it is acted upon, or facts that are."""
        if self._is_over:
            return  # The run ended, or was cancelled: nothing may start any more.
        self._inbox.append(happened)
        if self._is_feeding:
            return  # Whoever feeds now comes to it.
        self._is_feeding = True
        state, inbox, clock = self.state, self._inbox, self._setup.clock
        try:
            # Attempts in threads look at the shared state, which this may change.
            with self._attempts.supplies.lock:
                while inbox:
                    one = inbox.popleft()
                    if isinstance(one, list):
                        self._perform(advance(state, one, clock()))
                    else:
                        self._perform(step(state, one, clock()))
        except Exception as error:
            # The boundary: most callers are callbacks, whose errors nobody would ever hear of.
            inbox.clear()
            self.break_off(error)
        finally:
            self._is_feeding = False
        if self._is_put_off and not state.active and not isinstance(happened, Ticked):
            # After groups were expanded that have just become known.
            asyncio.get_running_loop().call_soon(self.feed, Ticked())

    def break_off(self, error: Exception) -> None:
        """Something is wrong with headway itself: the run ends here, with this error."""
        if self._done is None:
            raise error
        if not self._done.done():
            self._done.set_exception(error)

    def ended(self, group: int) -> None:
        """A task of this group has its result."""
        self._expand(self._spread.after(group))
        if self._is_stopping_now and not self._attempts.ending:
            self.feed(Stopping(self._outcome[1], is_now=True))

    def publish(self, group: int, member: int, body: bytes | None) -> str:
        """Show a result, or look whether it could be shown; why it cannot, if it cannot.

        A full disk is not the task's fault: the run stops, and a resume shows the result.
        """
        work = self._setup.works[group]
        try:
            if work.publishes:
                work.publish(member, body)
        except OSError as fault:
            if fault.errno not in FULL:
                return fault.strerror or str(fault)
            name, why = work.label(member), self._setup.full_disk() or fault.strerror
            self.stop("journal", f"the output of {name} cannot be written: {why}")
        except HeadwayError as error:
            return error.message
        return ""

    def tell(self, events: Sequence[Event]) -> None:
        """Whoever watches must not be able to break what is being watched in the middle."""
        if self._setup.watch is None or self.error is not None:
            return
        try:
            self._setup.watch(events)
        except Exception as error:
            # The boundary: a view that fails, a pipe that is closed. It is told at the end.
            _end_with(self, error)

    def _perform(self, taken: Step) -> None:
        """Write down what happened and do what is asked for."""
        events = _measured(taken.events, self._setup.overhead)
        if events:
            entry = self._roster.entry
            # A run has not ended before its effects have: a crash in between leaves it open.
            is_late = isinstance(events[-1], RunFinished) and self._setup.outbox is not None
            known = events[:-1] if is_late else events
            self._setup.record.write([entry(event) for event in known])
            if self._setup.watch is not None and known:
                self.tell(known)
            if self.state.coherence is not None:
                self._attempts.commits.hear(events)
        for effect in taken.effects:
            if isinstance(effect, Start):
                self._attempts.start(self._roster.active[effect.task])
            elif isinstance(effect, WakeAt):
                self.alarm.set_to(effect.at_s)
            elif isinstance(effect, Abandon):
                abandon(self._roster, effect.task)
            elif isinstance(effect, Release):
                _release(self, self._setup, effect)
            else:
                self._attempts.cancel_all()
        if self._spread.lenient and any(isinstance(event, TaskFailed) for event in events):
            asyncio.get_running_loop().call_soon(self._expand, self._spread.lenient)
        if self.state.over and self._done is not None and not self._done.done():
            self._done.set_result(_last(events))

    def _expand(self, groups: Sequence[int]) -> None:
        """Groups whose size is found at run time, once their needs are there."""
        later: list[int] = []
        try:
            for happened in self._spread.found(groups, self.state, self._attempts.supplies):
                self.feed(happened)
                # An empty group has no result that would make others known.
                later += self._spread.after(happened.group)
        except HeadwayError as error:
            _end_with(self, error)
            return
        if later:
            self._expand(later)


def _release(driver: Driver, setup: Setup, effect: Release) -> None:
    """Effects of a committed task may be performed."""
    if setup.outbox is not None:
        group, member = driver.state.place(effect.task)
        work = setup.works[group]
        setup.outbox.release(effect.task, work.key(member), work.label(member), effect.acts)


def _end_with(driver: Driver, error: Exception) -> None:
    """Start nothing more, and raise this when what is started has ended."""
    if driver.error is None:
        driver.error = error
        driver.stop("halt", str(error))


def _ticked(driver: Driver) -> None:
    """A time has come that was asked for; there may be further ones."""
    driver.feed(Ticked())
    state = driver.state
    if state.over:
        return
    if state.wakes:
        driver.alarm.set_to(state.wakes[0][0])
    if state.held_until_s > driver.clock():
        driver.alarm.set_to(state.held_until_s)


async def _look(driver: Driver) -> None:
    """Tell the engine what the machine has room for."""
    law, state = LocalLaw(cores()), driver.state
    while True:
        await asyncio.sleep(LOOK_S)
        load = Load(memory_available(), state.local, state.local_ended, driver.resting())
        law.observe(load, driver.clock())
        driver.feed(LocalRoom(law.room))


def _measured(
    events: tuple[Event, ...], overhead: Callable[[], Overhead] | None
) -> tuple[Event, ...]:
    """The end of a run says what headway itself has taken."""
    if overhead is None or not events or not isinstance(events[-1], RunFinished):
        return events
    took = overhead()
    over = replace(events[-1], cpu_s=took.cpu_s, memory_bytes=took.memory_bytes)
    return (*events[:-1], over)


def _last(events: Sequence[Event]) -> RunFinished:
    for event in reversed(events):
        if isinstance(event, RunFinished):
            return event
    raise InternalError("a run is over without an end")
