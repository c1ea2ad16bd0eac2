"""Attempts as asyncio tasks: how each begins and ends.

Laws:
- Every attempt ends in exactly one way: finished, reused, failed, put back. Permits and process
  groups end with it: its work is cancelled and waited for, never abandoned.
- A result is durable before the engine hears of it; a failure need not be. Results that become
  durable together are heard of together: the engine takes them in one step.
- A call that was sent, and of which nobody knows what became, costs all that was set aside for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.crash import crash_point
from headway.base.digest import digest
from headway.base.values import Fault, FaultKind
from headway.engine.budget import Cost
from headway.engine.engine import is_current
from headway.engine.events import (
    NOTHING,
    Abandoned,
    Ending,
    Event,
    Failed,
    Finished,
    Reused,
    TaskFinished,
    TaskProposed,
)
from headway.engine.record import JournalEntry, TaskRow, fold
from headway.run.active import ActiveAttempt, Roster, Supplies
from headway.run.commits import Commits
from headway.work import AttemptError, OverBudgetError, Result, WindowEmptyError, Work

if TYPE_CHECKING:
    from headway.run.driver import Driver, RunSetup

NO_RESULT: Final = Result(b"")
LOCAL: Final[frozenset[FaultKind]] = frozenset(
    ("command", "function", "request", "broken", "timeout")
)
"""Faults that a full disk may cause."""
OUTDATED: Final = Fault("broken", detail="what it has read has changed")


class Attempts:
    """Begins attempts for a driver, and tells it how they end."""

    def __init__(self, driver: Driver, setup: RunSetup, roster: Roster) -> None:
        self._driver = driver
        self._setup = setup
        self._state = driver.state
        self._results = driver.results
        self._roster = roster
        self.supplies = Supplies(setup.graph, setup.works, self._results, setup.purse, setup.record)
        self.commits = Commits(driver, setup, roster, self.supplies.lock)
        self.ending = 0
        """Results that are being written."""
        self._durables: list[tuple[ActiveAttempt, TaskFinished | TaskProposed, Result]] = []
        """Results that have become durable, of which the engine has not heard yet."""

    def start(self, active: ActiveAttempt) -> None:
        """Begin the attempt, unless its result is there already."""
        crash_point("started")
        work = self._setup.works[active.group]
        needs = self._setup.graph.groups[active.group].needs
        if needs:
            numbers = self._state.ready_set.numbers
            active.inputs = self._results.inputs(needs, active.member, numbers)
        saved = self._setup.saved
        if saved.rows:
            row = saved.result_of(active.key, active.inputs)
            is_there = saved.keeps_bodies or not self._results.is_needed(active.group)
            again = self.commits.take_again(active, row) if row is not None and is_there else "no"
            if row is not None and again == "reused":
                self._reuse(active, row)
            if again != "no":
                return
        self.commits.begin(active)
        loop = asyncio.get_running_loop()
        active.runner = loop.create_task(self._attempt(active, work))

    def cancel_all(self) -> None:
        for active in self._roster.active.values():
            # Once: a second time would end the cleanup that the first one began.
            if active.runner is not None and not active.runner.cancelling():
                active.runner.cancel()

    async def end_all(self) -> None:
        """Wait until every attempt has given back what it holds."""
        self.cancel_all()
        every = self._roster.active.values()
        runners = [active.runner for active in every if active.runner is not None]
        await asyncio.gather(*runners, return_exceptions=True)

    def _reuse(self, active: ActiveAttempt, row: TaskRow) -> None:
        """What was paid for once is not asked for again."""
        publishes = self._setup.works[active.group].publishes
        body = self._setup.saved.body(row) if publishes else None
        if problem := self._driver.publish(active.group, active.member, body):
            self._driver.feed(_unshown(active, row.ending, problem))
            return
        self._results.put(active.group, active.member, row.ending.body, None)
        self._driver.feed(Reused(active.task, active.number))
        asyncio.get_running_loop().call_soon(self._leave, active)

    def _leave(self, active: ActiveAttempt) -> None:
        self._roster.active.pop(active.task, None)
        self._driver.ended(active.group)

    async def _attempt(self, active: ActiveAttempt, work: Work) -> None:
        """Perform one attempt and report how it ended."""
        attempt = self.supplies.attempt(active, self._state, self._driver.feed, self._setup.clock)
        try:
            if work.timeout_s is None:
                result = await work.perform(attempt)
            else:
                async with attempt.clock.limit(work.timeout_s):
                    result = await work.perform(attempt)
        except AttemptError as lost:
            self._lost(active, lost.fault, lost.result or NO_RESULT, lost.is_in_doubt)
        except TimeoutError:
            detail = f"it took more than {work.timeout_s} s"
            self._lost(active, Fault("timeout", detail=detail), NO_RESULT, active.is_sent)
        except asyncio.CancelledError:
            if active.called_back and not self._state.over:
                self._put_back(active, active.called_back)
                return
            if active.is_abandoned and not self._state.over:
                self._lost(active, OUTDATED, NO_RESULT, active.is_sent)
                return
            if _is_cancelled():
                raise
            fault = Fault("broken", detail="it was cancelled from inside")
            self._lost(active, fault, NO_RESULT, active.is_sent)
        except WindowEmptyError as empty:
            self._driver.window_empty(empty.resets_at_s, empty.detail)
            self._put_back(active, empty.detail, empty.result)
        except OverBudgetError as over:
            self._driver.stop("budget", str(over))
            self._put_back(active, str(over), over.result)
        except Exception as bug:
            # The boundary: what a work lets through ends this attempt, not the run.
            detail = f"a bug in headway: {type(bug).__name__}: {bug}"
            self._lost(active, Fault("request", detail=detail), NO_RESULT, active.is_sent)
        else:
            self._finished(active, result)

    def _finished(self, active: ActiveAttempt, result: Result) -> None:
        """Make a result durable; the engine hears of it then."""
        crash_point("result")
        active.runner = None  # It ends with this call; what it holds is let go without a collector.
        ending = _ending(result, digest(result.body), active.inputs)
        now = self._setup.clock()
        done = TaskFinished(active.task, active.number, now, ending)
        event: TaskFinished | TaskProposed = done
        # What the run has taken back and still has a result keeps it: it is not paid again.
        is_heard = is_current(self._state, active.task, active.number)
        bodies: tuple[bytes, ...] = (result.body,)
        if touched := self.commits.note(active):
            judged = self.commits.judge(done, touched, is_heard)
            if judged is None:
                self.supplies.settle(active, result)
                ending = _ending(result, b"", active.inputs)
                self._driver.feed(Finished(active.task, active.number, ending))
                return
            event, bodies = judged, (result.body, touched)
        active.row = fold(active.row, event, active.key, active.name)
        entry = JournalEntry(event, active.key, active.row, bodies)
        self.ending += is_heard
        then = partial(self._durable, active, event, result) if is_heard else None
        self._setup.record.write((entry,), then)
        crash_point("written")

    def _durable(
        self, active: ActiveAttempt, event: TaskFinished | TaskProposed, result: Result
    ) -> None:
        """A result is durable: others may know, together with those that became so with it."""
        crash_point("durable")
        if not self._durables:
            asyncio.get_running_loop().call_soon(self._tell)
        self._durables.append((active, event, result))

    def _tell(self) -> None:
        try:
            self._tell_of(self._durables)
        except Exception as error:
            # The boundary: a callback's error is heard by nobody, and its run would wait for ever.
            self._driver.break_off(error)

    def _tell_of(
        self, durables: list[tuple[ActiveAttempt, TaskFinished | TaskProposed, Result]]
    ) -> None:
        self._durables = []
        driver, active_tasks = self._driver, self._roster.active
        events: list[Event] = []
        unshown: list[Failed] = []
        groups: dict[int, None] = {}
        for active, event, result in durables:
            group = active.group
            self.supplies.settle(active, result)
            is_held = isinstance(event, TaskProposed)
            if problem := driver.publish(group, active.member, None if is_held else result.body):
                unshown.append(_unshown(active, event.ending, problem))
                continue
            events.append(event)
            if is_held:
                self.commits.hold(active, result.body)
                continue
            self._results.put(group, active.member, event.ending.body, result.body)
            del active_tasks[active.task]
            groups[group] = None
        self.ending -= len(durables)
        if events and self._setup.watch is not None:
            driver.tell(events)
        driver.feed(events)
        for failed in unshown:
            driver.feed(failed)
        for group in groups:
            driver.ended(group)

    def _lost(self, active: ActiveAttempt, fault: Fault, result: Result, is_in_doubt: bool) -> None:
        crash_point("lost")
        if fault.retry_after_s == inf:
            self._driver.stop("account", fault.detail)
        if fault.kind in LOCAL and (full := self._setup.full_disk()):
            fault = Fault("disk", detail=f"{full}; {fault.detail}")
        if is_in_doubt and active.is_sent and not result.calls:
            # Its work could not say how many it sent. Without a price no money was set aside.
            result = replace(result, calls=1, unpriced=int(not active.reserved.microusd))
        spent = self.supplies.settle(active, result, is_in_doubt=is_in_doubt)
        ending = _ending(result, b"", active.inputs, spent, is_in_doubt)
        self.commits.note(active)
        if active.is_abandoned:
            self._driver.feed(Abandoned(active.task, active.number, ending))
        else:
            self._driver.feed(Failed(active.task, active.number, fault, ending))

    def _put_back(self, active: ActiveAttempt, why: str, taken: Result | None = None) -> None:
        """Not the task's fault: it waits for another time, and no attempt counts."""
        result = taken or NO_RESULT
        spent = self.supplies.settle(active, result)
        ending = _ending(result, b"", active.inputs, spent) if result.calls else NOTHING
        self._driver.feed(Failed(active.task, active.number, Fault("rate", detail=why), ending))


def _unshown(active: ActiveAttempt, ending: Ending, problem: str) -> Failed:
    """A task whose result is paid for and kept, and cannot be shown: a resume shows it."""
    kept = Ending(ending.body, ending.inputs, exit_code=ending.exit_code, access=ending.access)
    return Failed(active.task, active.number, Fault("request", detail=problem), kept)


def abandon(roster: Roster, task: int) -> None:
    active = roster.active.get(task)
    if active is not None and active.runner is not None and not active.runner.cancelling():
        active.is_abandoned = True
        active.runner.cancel()


def call_back(roster: Roster, works: Sequence[Work], why: str) -> None:
    """What only waits for its first permit need not be waited for: it goes back as it was."""
    for active in roster.active.values():
        is_idle = works[active.group].is_idle_until_sent and not active.is_sent
        if is_idle and active.runner is not None and not active.runner.cancelling():
            active.called_back = why
            active.runner.cancel()


def _is_cancelled() -> bool:
    """Whether somebody outside wants the attempt that runs here to end."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _ending(
    result: Result, body: bytes, inputs: bytes, spent: Cost | None = None, is_in_doubt: bool = False
) -> Ending:
    money, extra = result.spend_microusd, result.extra_tokens
    if spent is not None:
        money, counted = spent.microusd, round(result.input_tokens + result.output_tokens)
        extra = spent.tokens - counted
    return Ending(
        body, inputs, result.input_tokens, result.output_tokens, money, result.calls,
        result.exit_code, is_in_doubt, extra_tokens=extra, unpriced=result.unpriced,
    )  # fmt: skip
