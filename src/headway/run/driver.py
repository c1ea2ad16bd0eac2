"""The loop around the engine: performs effects, feeds inputs back.

Laws:
- A result is made durable before anything else: the engine hears of it after.
- Writing never waits for the limiter, and nothing but durability waits for writing.
- A task that has not started is a number in the engine; only attempts are asyncio tasks.
- Inputs are taken one after another, and nothing here recurses into the engine.
- A run that cannot go on ends with an error; it never hangs, and never goes on in silence.
- The driver decides nothing: which task, when, whether again are the engine's business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import DAY_S, Budget
from headway.engine import events as ev
from headway.engine.engine import Step, advance, begin, step
from headway.engine.record import JournalEntry
from headway.engine.state import Rules, State
from headway.engine.strategy import LocalWidth
from headway.errors import HeadwayError, JournalError
from headway.journal.file import FULL
from headway.journal.journal import Record
from headway.pacing.budget import Budgets
from headway.plans.graph import Graph
from headway.plans.ready import DONE, FAILED, LOST
from headway.run.attempts import ActiveAttempt, Attempts
from headway.run.machine import Machine, cores, follow_machine
from headway.run.results import Results, Saved, take_over
from headway.state.coherence import Coherence
from headway.state.context import Commons
from headway.state.outbox import Outbox, Send
from headway.work import Work

# Wakes a driver at a time on the wall, also after the machine was suspended.

SLEEP_S_MAX: Final = 5.0
"""The longest sleep towards a time on the wall: a machine that was suspended wakes up late."""


class Alarm:
    """Rings once, at the earliest time that it was set to."""

    def __init__(self, clock: Callable[[], float], ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = inf

    def set_to(self, at_s: float) -> None:
        if at_s < self._at_s:
            self._at_s = at_s
            if self._timer is not None:
                self._timer.cancel()
            self._sleep()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at_s = None, inf

    def _sleep(self) -> None:
        # Never rings within `set_to`: a time in the past rings in the loop's next round.
        left_s = max(0.0, self._at_s - self._clock())
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(left_s, SLEEP_S_MAX), self._look)

    def _look(self) -> None:
        if self._clock() < self._at_s:
            self._sleep()
            return
        self._timer, self._at_s = None, inf
        self._ring()


# Groups whose members are found at run time: one for each line or element of another's result.


class GroupDiscovery:
    """Finds out which groups have become known."""

    def __init__(self, graph: Graph, works: Sequence[Work]) -> None:
        self._graph = graph
        self._works = works
        self._after: dict[int, list[int]] = {}
        self.lenient: list[int] = []
        """Those that the end of others may make known, and not their results alone."""
        for index in reversed(graph.order):
            if graph.groups[index].count is None:
                # A group that becomes known with another may be empty like it, and ends with it.
                behind = self._after.get(index, [])
                is_with = {need.group for need in graph.blocks[index]}
                for source in graph.needs[index]:
                    found = [index, *(behind if source in is_with else ())]
                    self._after.setdefault(source, []).extend(found)
                if graph.lenient[index] - is_with:
                    self.lenient.append(index)

    def after(self, group: int) -> Sequence[int]:
        return self._after.get(group, ())

    def found(
        self, groups: Sequence[int], state: State, attempts: Attempts
    ) -> Iterator[ev.Expanded]:
        if not self._after:
            return
        for index in groups:
            if not state.ready_set.numbers.is_known(index):
                count = self._count(index, state, attempts)
                if count is not None:
                    yield ev.Expanded(index, count)

    def _count(self, index: int, state: State, attempts: Attempts) -> int | None:
        """How many members a group has; None while that cannot be known."""
        numbers, states = state.ready_set.numbers, state.ready_set.states
        for need in self._graph.groups[index].needs:
            # A group that needs blocks of another becomes known with it, by the engine.
            if need.block or not numbers.is_known(need.group):
                return None
            members = numbers.members(need.group)
            ends = (DONE, FAILED, LOST) if need.is_lenient else (DONE,)
            ended = sum(states.count(end, members.start, members.stop) for end in ends)
            if ended < len(members):
                return None
        return self._works[index].count(partial(attempts.needed, index, 0))


RESET_S: Final = 1.0
"""A usage window is tried this long after its reset: clocks differ."""

Cause = Literal["", "budget", "window", "interrupted", "halt", "journal", "account"]
"""Why a run ended before everything was done; empty if it did not."""


class Sharing(Struct, frozen=True):
    """The state that the tasks of a run share, and what is done to the world for them."""

    coherence: Coherence
    find: Callable[[str], Send | None] | None = None
    lends: tuple[Callable[[Commons], None], ...] = ()


class Launch(Struct, frozen=True):
    """What a run is to do, and who takes part in it."""

    graph: Graph
    works: Sequence[Work]
    rules: Rules = Rules()
    budget: Budget | None = None
    group_budgets: Mapping[str, Budget] = field(default_factory=dict)
    waits_until_s: float | None = None
    """Until when the run may wait for a usage window, by the clock: `-inf` is not at all; `None`,
    for one that is filled within a day."""
    starts: tuple[float, str] = (-inf, "")
    """When the first task may start, by the clock, and why not before."""
    watch: Callable[[Sequence[ev.Event]], None] | None = None
    meets: tuple[Callable[[Driver], None], ...] = ()
    """Who wants to know the driver before anything starts."""
    closes: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Who performs tasks and must be let go at the end, in this order."""
    machine: Machine | None = None
    """Shows what the commands of the run do, if it has any."""
    heeds_signals: bool = False
    """Whether an interrupt drains the run instead of ending the process."""
    sharing: Sharing | None = None

    @property
    def sees_calls(self) -> bool:
        """Whether calls to models go through this process: its own, or those of its commands."""
        is_metered = self.machine is not None and self.machine.meter is not None
        return is_metered or any(not work.is_local for work in self.works)


EXIT_FAILED: Final = 1
EXITS: Final = {
    "budget": 4,
    "window": 75,
    "interrupted": 130,
    "halt": 1,
    "journal": 2,
    "account": 1,
}
"""By why a run ended early. The first three can be resumed as they are."""


class RunOutcome(Struct, frozen=True):
    finished: ev.RunFinished
    cause: Cause = ""
    detail: str = ""
    until_s: float = 0.0

    @property
    def exit_code(self) -> int:
        if self.cause:
            return EXITS[self.cause]
        end = self.finished
        return EXIT_FAILED if end.failed or end.skipped or end.left or end.effects else 0


class Driver:
    outcome: RunOutcome
    """How the run ended, when it has."""

    def __init__(
        self, setup: Launch, record: Record, clock: Callable[[], float], saved: Saved | None = None,
        budgets: Budgets[int] | None = None, outbox: Outbox | None = None,
        full_disk: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """`full_disk` says which disk is full, in words; while one is, nothing starts."""
        self.setup = setup
        self.record, self.clock, self.full_disk = record, clock, full_disk
        self.saved = saved = Saved() if saved is None else saved
        self.budgets: Budgets[int] = Budgets({}) if budgets is None else budgets
        self.outbox = outbox
        coherence = None if setup.sharing is None else setup.sharing.coherence
        self.state: State = begin(setup.graph, setup.rules, coherence)
        self.state.held_until_s, self.state.hold_reason = setup.starts
        # Without kept bodies nothing can be fetched: all that is needed stays in memory.
        self.results = Results(setup.graph, saved.fetch if saved.keeps_bodies else None)
        self._attempts = Attempts(self)
        self.failures = self._attempts.failures
        self._spread = GroupDiscovery(setup.graph, setup.works)
        self.alarm = Alarm(clock, partial(_ticked, self))
        self._ends: tuple[Cause, str, float] = ("", "", 0.0)
        self._is_stopping_now = False
        self._is_over = False
        self._is_put_off = False
        self._done: asyncio.Future[ev.RunFinished] | None = None
        self._inbox: deque[ev.Input | list[ev.Event]] = deque()
        self._is_feeding = False
        self.error: Exception | None = None
        """Why the run ends with an exception, once everything that was started has ended."""

    async def run(self) -> RunOutcome:
        setup = self.setup
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        # A user who asks for waves of 4 or a pool of 8 gets them, whatever the machine.
        is_exact, is_local = setup.rules.is_exact, any(work.is_local for work in setup.works)
        looker: asyncio.Task[None] | None = None
        if is_local and setup.machine is not None:
            looker = loop.create_task(follow_machine(self, setup.machine, is_exact))
        try:
            take_over(self.state, setup.graph, setup.works, self.saved, self.results, self.publish)
            if is_local and not is_exact:
                self.feed(ev.LocalRoom(LocalWidth(cores()).places))
            self.feed(ev.Began())
            self._expand(range(len(setup.graph.groups)))
            finished = await self._done
        finally:
            self._is_over = True
            self.alarm.cancel()
            if looker is not None:
                looker.cancel()
            await self._attempts.end_all()
        if self.outbox is not None:
            left = await self.outbox.drained() or 0
            finished = replace(finished, at_s=self.clock(), effects=left)
            self.record.write((JournalEntry(finished),))
            self.tell((finished,))
        try:
            await self.record.flush()
        except JournalError:
            # Closing the journal says what is not on the disk; the user wants to leave now.
            if self._ends[0] != "interrupted":
                raise
        if self.error is not None:
            raise self.error
        self.outcome = RunOutcome(finished, *self._ends)
        return self.outcome

    def stop(
        self, cause: Cause, detail: str, *, is_now: bool = False, until_s: float = 0.0
    ) -> None:
        """Start nothing more; with `is_now` end what is started, but never what has a result.

        For the cause `account`, tasks that do not need the account still start.
        """
        before = self._ends[0]
        # What stops the whole run replaces what stopped the use of an account.
        if not before or (before == "account" and cause != "account"):
            self._ends = (cause, detail, until_s)
        if cause == "account":
            self._is_put_off = True
            return
        self._is_stopping_now = self._is_stopping_now or is_now
        reason = f"{cause}: {detail}" if cause in ("budget", "window") else detail
        was_over, now = self.state.over, self.clock()
        self.feed(ev.RunStopping(now, reason, is_now and not self._attempts.ending))
        if was_over:
            # Effects are still being performed: the journal has its end, the user a word.
            self.tell((ev.RunStopping(now, reason, is_now),))
        if not is_now and cause != "budget":
            # What holds a part of the budget may use it; what waits for a window would wait long.
            self._attempts.call_back(detail)

    def hold(self, reason: str, until_s: float = inf) -> None:
        self.feed(ev.RunHeld(self.clock(), until_s, reason))

    def go_on(self) -> None:
        self.feed(ev.RunContinued(self.clock()))

    def window_empty(self, resets_at_s: float, detail: str) -> bool:
        """The account is empty for hours: nothing starts before its reset, if it may wait.

        Whether the run waits for that.
        """
        until_s = resets_at_s + RESET_S
        latest_s = self.setup.waits_until_s
        if until_s > (self.clock() + DAY_S if latest_s is None else latest_s):
            self.stop("window", detail, until_s=resets_at_s)
            return False
        if until_s > max(self.clock(), self.state.held_until_s):
            self.hold(detail, until_s)
        return True

    def feed(self, happened: ev.Input | list[ev.Event]) -> None:
        """Report what need not be durable before it is acted upon, or facts that are."""
        if self._is_over:
            return  # The run ended, or was cancelled: nothing may start any more.
        self._inbox.append(happened)
        if self._is_feeding:
            return  # The call of `feed` that is active comes to it.
        self._is_feeding = True
        state, inbox, clock = self.state, self._inbox, self.clock
        try:
            # Attempts in threads look at the shared state, which this may change.
            with self._attempts.lock:
                while inbox:
                    one = inbox.popleft()
                    if isinstance(one, list):
                        self._perform(advance(state, one, clock()))
                    else:
                        self._perform(step(state, one, clock()))
        except Exception as error:
            # The boundary: most callers are callbacks, whose errors would be lost.
            inbox.clear()
            self.break_off(error)
        finally:
            self._is_feeding = False
        if self._is_put_off and not state.active and not isinstance(happened, ev.Ticked):
            # After groups were expanded that have just become known.
            asyncio.get_running_loop().call_soon(self.feed, ev.Ticked())

    def break_off(self, error: Exception) -> None:
        """Something is wrong with headway itself: the run ends here, with this error."""
        if self._done is None:
            raise error
        if not self._done.done():
            self._done.set_exception(error)

    def ended(self, group: int) -> None:
        self._expand(self._spread.after(group))
        if self._is_stopping_now and not self._attempts.ending:
            self.cut_short(self._ends[1])

    def active_attempts(self) -> Iterable[ActiveAttempt]:
        return self._attempts.active.values()

    def cut_short(self, why: str) -> None:
        """End what is started, also what has a result that is not durable."""
        self.feed(ev.RunStopping(self.clock(), why, is_now=True))

    def publish(self, group: int, member: int, body: bytes | None) -> str:
        """Show a result, or look whether it could be shown; why it cannot, if it cannot.

        A full disk is not the task's fault: the run stops, and a resume shows the result.
        """
        work = self.setup.works[group]
        try:
            if work.publishes:
                work.publish(member, body)
        except OSError as fault:
            if fault.errno not in FULL:
                return fault.strerror or str(fault)
            name, why = work.label(member), self.full_disk() or fault.strerror
            self.stop("journal", f"the output of {name} cannot be written: {why}")
        except HeadwayError as error:
            return error.message
        return ""

    def tell(self, events: Sequence[ev.Event]) -> None:
        """A watcher must not be able to break what it watches in the middle."""
        if self.setup.watch is None or self.error is not None:
            return
        try:
            self.setup.watch(events)
        except Exception as error:
            # The boundary: a view that fails, a pipe that is closed. It is told at the end.
            _end_with(self, error)

    def _perform(self, taken: Step) -> None:
        events = taken.events
        last = events[-1] if events else None
        if events:
            entry = self._attempts.entry
            # A run has not ended before its effects have: a crash in between leaves it open.
            is_late = isinstance(last, ev.RunFinished) and self.outbox is not None
            known = events[:-1] if is_late else events
            self.record.write([entry(event) for event in known])
            if self.setup.watch is not None and known:
                self.tell(known)
            if self.state.coherence is not None:
                self._attempts.hear(events)
        for effect in taken.effects:
            if isinstance(effect, ev.StartAttempt):
                self._attempts.start(effect.task)
            elif isinstance(effect, ev.WakeAt):
                self.alarm.set_to(effect.at_s)
            elif isinstance(effect, ev.Abandon):
                self._attempts.abandon(effect.task)
            elif isinstance(effect, ev.Release):
                self._release(effect)
            else:
                self._attempts.cancel_all()
        if self._spread.lenient and any(isinstance(event, ev.TaskFailed) for event in events):
            asyncio.get_running_loop().call_soon(self._expand, self._spread.lenient)
        if isinstance(last, ev.RunFinished) and self._done is not None and not self._done.done():
            self._done.set_result(last)

    def _release(self, effect: ev.Release) -> None:
        if self.outbox is not None:
            group, member = self.state.place(effect.task)
            work = self.setup.works[group]
            key, name = work.key(member), work.label(member)
            self.outbox.release(effect.task, key, name, effect.acts)

    def _expand(self, groups: Sequence[int]) -> None:
        later: list[int] = []
        try:
            for happened in self._spread.found(groups, self.state, self._attempts):
                self.feed(happened)
                # An empty group has no result that would make others known.
                later += self._spread.after(happened.group)
        except HeadwayError as error:
            _end_with(self, error)
            return
        if later:
            self._expand(later)


def _end_with(driver: Driver, error: Exception) -> None:
    """Start nothing more, and raise this when what is started has ended."""
    if driver.error is None:
        driver.error = error
        driver.stop("halt", str(error))


def _ticked(driver: Driver) -> None:
    driver.feed(ev.Ticked())
    state = driver.state
    if state.over:
        return
    if state.wakes:
        driver.alarm.set_to(state.wakes[0][0])
    if state.held_until_s > driver.clock():
        driver.alarm.set_to(state.held_until_s)
