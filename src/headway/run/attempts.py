"""Attempts as asyncio tasks: what each is given, how it begins and ends, what is committed.

Laws:
- Every attempt ends in exactly one way: finished, reused, failed, put back. Permits and process
  groups end with it: its work is cancelled and waited for, never abandoned.
- A result is durable before the engine hears of it; a failure need not be. Results that become
  durable together are heard of together: the engine takes them in one step.
- A call that was sent and whose end is unknown costs all that was set aside for it.
- What an attempt touched of the shared state is durable together with its result, in one
  transaction. A result that waits for its commit is durable, so that a resume can judge it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from math import ceil, inf
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from headway.base.crash import crash_point
from headway.base.digest import digest
from headway.base.values import NOTHING, Fault, FaultKind, Spend
from headway.engine import events as ev
from headway.engine.engine import NOTICES, is_current, is_last, outcome
from headway.engine.record import JournalEntry, MoneyReserved, ReplyKept, TaskRow, fold
from headway.pacing.budget import ALL
from headway.plans.ready import DONE
from headway.run.results import needed_members
from headway.state.coherence import Breach
from headway.state.outbox import fulfil, is_cancelled
from headway.state.shared import Change, decode, encode
from headway.work import (
    Attempt,
    AttemptClock,
    AttemptError,
    Needed,
    OverBudgetError,
    Result,
    WindowEmptyError,
    Work,
)

if TYPE_CHECKING:
    from headway.pacing.budget import Budgets
    from headway.run.driver import Driver

NO_RESULT: Final = Result(b"")
LOCAL: Final[frozenset[FaultKind]] = frozenset(
    ("command", "function", "request", "broken", "timeout", "stuck")
)
"""Faults that a full disk may cause."""
OUTDATED: Final = Fault("broken", detail="what it has read has changed")

HasResult = ev.TaskFinished | ev.TaskProposed
Durable = tuple["ActiveAttempt", HasResult, Result]
"""A result that is on the disk."""
Again = Literal["reused", "proposed", "no"]
"""What becomes of an earlier result: it is taken, it waits, or its task has to run."""


class ActiveAttempt(Attempt):
    """An attempt that has started and not ended. Its verbs are methods: most attempts use none."""

    __slots__ = (
        "_attempts", "_clock", "called_back", "durable", "group", "is_abandoned", "is_sent",
        "reserved", "row", "runner", "wanted",
    )  # fmt: skip

    def __init__(self, attempts: Attempts, task: int, group: int, member: int) -> None:
        work = attempts.works[group]
        self._attempts = attempts
        self._clock: AttemptClock | None = None
        self.task, self.group, self.member, self.number = task, group, member, 0
        self.key, self.name = work.key(member), work.label(member)
        self.row = attempts.rows.pop(task, None) or attempts.saved.rows.get(self.key)
        """None until its first event is written."""
        self.inputs, self.journalled, self.kept = b"", 0, ()
        self.charged = self.reserved = self.wanted = NOTHING
        """`reserved`: what the journal has of its claims; `wanted`: what its calls need."""
        self.durable: asyncio.Future[None] | None = None
        """When the journal has it."""
        if self.row is not None:
            self.journalled = self.row.attempt - (self.row.state == "started")
            self.charged = Spend(self.row.reserved_tokens, self.row.reserved_microusd)
        self.snapshot, self.lock = None, attempts.lock
        self.runner: asyncio.Task[None] | None = None
        self.called_back = ""
        """Why it was taken back before it had sent anything."""
        self.is_sent = False
        """Whether a call of it had its permit: what became of that, its work alone knows."""
        self.is_abandoned = False

    @property
    def clock(self) -> AttemptClock:  # type: ignore[override] # Only its driver sets it.
        """Made when first used: most attempts have neither a timeout nor a call."""
        if self._clock is None:
            self._clock = AttemptClock()
        return self._clock

    @property
    def is_last(self) -> bool:  # type: ignore[override] # It is never set.
        return is_last(self._attempts.driver.state, self.task, self.number)

    def needed(self, name: str) -> list[Needed]:
        return self._attempts.needed(self.group, self.member, name)

    def missing(self, name: str) -> list[str]:
        every = self._attempts.asked(self.group, self.member, name)
        return [work.label(one) for work, _, one, is_done in every if not is_done]

    def waits(self, why: str = "", /) -> None:
        driver = self._attempts.driver
        driver.feed(ev.CallWaited(self.task, driver.clock(), why))

    def goes(self, why: str = "", /) -> None:
        self.is_sent = True
        driver = self._attempts.driver
        driver.feed(ev.CallAdmitted(self.task, driver.clock(), why))

    def reserve(self, more: Spend) -> Awaitable[None]:
        return self._attempts.reserve(self, more)

    def spare(self, left: Spend) -> None:
        self.wanted = self.wanted.minus(left)

    def keep(self, reply: bytes) -> Awaitable[None]:
        return self._attempts.keep_reply(self, reply)

    def folded(
        self, event: ev.Event | MoneyReserved | ReplyKept, *bodies: tuple[bytes, bytes]
    ) -> JournalEntry:
        self.row = fold(self.row, event, self.key, self.name)
        return JournalEntry(event, self.key, self.row, bodies)

    def cancel(self) -> bool:
        """End it, unless it is being ended: a second time would end the cleanup of the first."""
        if self.runner is None or self.runner.cancelling():
            return False
        return self.runner.cancel()


class Attempts:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.works, self.saved = driver.setup.works, driver.saved
        self._graph = driver.setup.graph
        self._state = driver.state
        self._coherence = driver.state.coherence
        self._results = driver.results
        self.lock = RLock()
        """Held while the shared state is used: by attempts in threads, and by the loop."""
        self.active: dict[int, ActiveAttempt] = {}
        self.failures: dict[int, Fault] = {}
        self.rows: dict[int, TaskRow] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self.ending = 0
        self._durables: list[Durable] = []
        """Results that have become durable, of which the engine has not heard yet."""
        self._proposed: dict[int, tuple[ActiveAttempt, bytes | None]] = {}
        self._committed: list[int] = []
        """Groups of results that were committed, of which the run has not heard yet."""

    def entry(self, event: ev.Event) -> JournalEntry:
        if isinstance(event, ev.TaskStarted):  # The usual case, once per attempt.
            active = self.active[event.task] = self._known(event.task)
            active.number = event.attempt
            return active.folded(event)
        task: int | None = getattr(event, "task", None)
        if task is None:
            return JournalEntry(event)
        active = self.active.get(task) or self._known(task)
        if isinstance(event, NOTICES):
            return JournalEntry(event, active.key)
        entry = active.folded(event)
        if isinstance(event, (ev.TaskDelayed, ev.TaskStale, ev.TaskProposed)):
            self._set_aside(active)
        elif isinstance(event, ev.TaskFailed):
            self.failures[task] = event.fault
            self.active.pop(task, None)
        return entry

    def _known(self, task: int) -> ActiveAttempt:
        return ActiveAttempt(self, task, *self._state.place(task))

    def _set_aside(self, active: ActiveAttempt) -> None:
        """An attempt has ended, but not its task: its row is needed again."""
        if active.row is not None:
            self.rows[active.task] = active.row
        self.active.pop(active.task, None)

    def start(self, task: int) -> None:
        crash_point("started")
        active = self.active[task]
        needs = self._graph.groups[active.group].needs
        if needs:
            numbers = self._state.ready_set.numbers
            active.inputs = self._results.inputs(needs, active.member, numbers)
        saved = self.saved
        if saved.rows:
            row = saved.result_of(active.key, active.inputs)
            is_there = saved.keeps_bodies or not self._results.is_needed(active.group)
            again = self._take_again(active, row) if row is not None and is_there else "no"
            if row is not None and again == "reused":
                self._reuse(active, row)
            if again != "no":
                return
        if self._coherence is not None:
            active.snapshot = self._coherence.snapshot(task)
        work = self.works[active.group]
        active.runner = asyncio.get_running_loop().create_task(self._attempt(active, work))

    def cancel_all(self) -> None:
        for active in self.active.values():
            active.cancel()

    async def end_all(self) -> None:
        """Wait until every attempt has given back what it holds."""
        self.cancel_all()
        runners = [one.runner for one in self.active.values() if one.runner is not None]
        await asyncio.gather(*runners, return_exceptions=True)

    def abandon(self, task: int) -> None:
        active = self.active.get(task)
        if active is not None and active.cancel():
            active.is_abandoned = True

    def call_back(self, why: str) -> None:
        """What only waits for its first permit need not be waited for: it goes back as it was."""
        for active in self.active.values():
            is_idle = self.works[active.group].is_idle_until_sent and not active.is_sent
            if is_idle and active.cancel():
                active.called_back = why

    # What an attempt is given: results that it needs, money, durability.

    def needed(self, group: int, member: int, name: str) -> list[Needed]:
        """The results of a group that a task needs, in declared order: of those that finished."""
        results = self._results
        return [
            Needed(name, one, work.label(one), results.get(index, one))
            for work, index, one, is_done in self.asked(group, member, name)
            if is_done
        ]

    def asked(self, group: int, member: int, name: str) -> Iterator[tuple[Work, int, int, bool]]:
        """Of the group of this name, the members that a task needs, and whether they finished."""
        groups, ready_set = self._graph.groups, self._state.ready_set
        needs = groups[group].needs
        need = next((one for one in needs if groups[one.group].name == name), None)
        if need is None:
            # Of a task that has rounds, the one that this task belongs to.
            named = (one for one in needs if groups[one.group].name.partition("@")[0] == name)
            if (need := next(named, None)) is None:
                return
        states, first = ready_set.states, ready_set.numbers.firsts[need.group]
        for one in needed_members(need, member, ready_set.numbers):
            yield self.works[need.group], need.group, one, states[first + one] == DONE

    async def reserve(self, active: ActiveAttempt, more: Spend) -> None:
        """Set money aside, and make that durable before it can be spent.

        Without a budget it is noted all the same: the run may be resumed with one.
        """
        budgets, task = self.driver.budgets, active.task
        names = pots_of(budgets, self._graph.groups[active.group].name)
        active.wanted = active.wanted.plus(more)
        try:
            while (room := budgets.claim(task, active.wanted, names)) == "later":
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                with active.clock.stopped():
                    await waiter
            held = budgets.held(task)
            if room == "never":
                why = f"the budget has no room for a call of up to {more}"
                before = active.wanted.minus(more)
                if before.tokens > 0 or before.microusd > 0:
                    why += f", beside {before} for its calls before"
                raise OverBudgetError(f"{why}: it is {budgets.describe(names)}")
            if held != active.reserved:
                active.reserved, now = held, self.driver.clock()
                tokens = ceil(held.tokens)
                fact = MoneyReserved(task, active.number, now, held.microusd, tokens)
                active.durable = self._written(active, fact)
            if budgets.keys and active.durable is not None:
                await asyncio.shield(active.durable)
        except BaseException:
            active.wanted = active.wanted.minus(more)
            if budgets.leave(task):
                self._wake()
            raise
        crash_point("reserved")

    async def keep_reply(self, active: ActiveAttempt, reply: bytes) -> None:
        """Make a reply durable in the middle of an attempt, with what it is a reply to."""
        body = active.inputs + reply
        fact = ReplyKept(active.task, active.number, self.driver.clock(), digest(body))
        await self._written(active, fact, (fact.body, body))
        crash_point("kept")

    def _written(
        self, active: ActiveAttempt, fact: MoneyReserved | ReplyKept, *bodies: tuple[bytes, bytes]
    ) -> asyncio.Future[None]:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.driver.record.write((active.folded(fact, *bodies),), partial(fulfil, durable))
        return durable

    def _settle(self, active: ActiveAttempt, result: Result, is_in_doubt: bool = False) -> Spend:
        """An attempt has ended: what it cost, and others may have the rest of its money."""
        spent = result.spend.at_least(active.reserved) if is_in_doubt else result.spend
        if self.driver.budgets.settle(active.task, spent):
            self._wake()
        return spent

    def _wake(self) -> None:
        """Attempts that wait for the budget ask again, in order."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            fulfil(waiter)

    # How an attempt goes and ends.

    def _reuse(self, active: ActiveAttempt, row: TaskRow) -> None:
        publishes = self.works[active.group].publishes
        body = self.saved.body(row) if publishes else None
        if problem := self.driver.publish(active.group, active.member, body):
            self.driver.feed(_unshown(active, row.ending, problem))
            return
        self._results.put(active.group, active.member, row.ending.body, None)
        self.driver.feed(ev.Reused(active.task, active.number))
        asyncio.get_running_loop().call_soon(self._leave, active)

    def _leave(self, active: ActiveAttempt) -> None:
        self.active.pop(active.task, None)
        self.driver.ended(active.group)

    async def _attempt(self, active: ActiveAttempt, work: Work) -> None:
        if active.row is not None and active.row.kept:
            active.kept = self._kept(active.row.kept, active.inputs)
        try:
            if work.timeout_s is None:
                result = await work.perform(active)
            else:
                async with active.clock.limit(work.timeout_s):
                    result = await work.perform(active)
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
            if is_cancelled():
                raise
            fault = Fault("broken", detail="it was cancelled from inside")
            self._lost(active, fault, NO_RESULT, active.is_sent)
        except WindowEmptyError as empty:
            self.driver.window_empty(empty.resets_at_s, empty.detail)
            self._put_back(active, empty.detail, empty.result)
        except OverBudgetError as over:
            self.driver.stop("budget", str(over))
            self._put_back(active, str(over), over.result)
        except Exception as bug:
            # The boundary: what a work lets through ends this attempt, not the run.
            detail = f"a bug in headway: {type(bug).__name__}: {bug}"
            self._lost(active, Fault("request", detail=detail), NO_RESULT, active.is_sent)
        else:
            self._finished(active, result)

    def _kept(self, names: tuple[bytes, ...], given: bytes) -> tuple[bytes, ...]:
        replies = map(self._results.find, names)
        return tuple(one[len(given) :] for one in replies if one and one.startswith(given))

    def _finished(self, active: ActiveAttempt, result: Result) -> None:
        crash_point("result")
        active.runner = None  # It ends with this call; what it holds is let go without a collector.
        ending = _ending(result, digest(result.body), active.inputs)
        now = self.driver.clock()
        done = ev.TaskFinished(active.task, active.number, now, ending)
        event: HasResult = done
        # What the run has taken back and still has a result keeps it: it is not paid again.
        is_heard = is_current(self._state, active.task, active.number)
        bodies: tuple[tuple[bytes, bytes], ...] = ((ending.body, result.body),)
        if touched := self._note(active):
            judged = self._judge(done, touched, is_heard)
            if judged is None:
                self._settle(active, result)
                ending = _ending(result, b"", active.inputs)
                self.driver.feed(ev.Finished(active.task, active.number, ending))
                return
            event = judged
            bodies += ((event.ending.access, touched),)
        entry = active.folded(event, *bodies)
        self.ending += is_heard
        then = partial(self._durable, active, event, result) if is_heard else None
        self.driver.record.write((entry,), then)
        crash_point("written")

    def _durable(self, active: ActiveAttempt, event: HasResult, result: Result) -> None:
        crash_point("durable")
        if not self._durables:
            asyncio.get_running_loop().call_soon(self._tell)
        self._durables.append((active, event, result))

    def _tell(self) -> None:
        try:
            self._tell_of(self._durables)
        except Exception as error:
            # The boundary: a callback's error would be lost, and its run would wait for ever.
            self.driver.break_off(error)

    def _tell_of(self, durables: list[Durable]) -> None:
        self._durables = []
        driver, works, active_tasks = self.driver, self.works, self.active
        events: list[ev.Event] = []
        unshown: list[ev.Failed] = []
        groups: dict[int, None] = {}
        for active, event, result in durables:
            group = active.group
            self._settle(active, result)
            is_held = isinstance(event, ev.TaskProposed)
            body = None if is_held else result.body
            if works[group].publishes and (problem := driver.publish(group, active.member, body)):
                unshown.append(_unshown(active, event.ending, problem))
                continue
            events.append(event)
            if is_held:
                self._hold(active, result.body)
                continue
            self._results.put(group, active.member, event.ending.body, result.body)
            del active_tasks[active.task]
            groups[group] = None
        self.ending -= len(durables)
        if events:
            driver.tell(events)
        driver.feed(events)
        for failed in unshown:
            driver.feed(failed)
        for group in groups:
            driver.ended(group)

    def _lost(self, active: ActiveAttempt, fault: Fault, result: Result, is_in_doubt: bool) -> None:
        crash_point("lost")
        if fault.retry_after_s == inf:
            self.driver.stop("account", fault.detail)
        if fault.kind in LOCAL and (full := self.driver.full_disk()):
            fault = Fault("disk", detail=f"{full}; {fault.detail}")
        if is_in_doubt and active.is_sent and not result.calls:
            # Its work could not say how many it sent. Without a price no money was set aside.
            result = replace(result, calls=1, unpriced=int(not active.reserved.microusd))
        spent = self._settle(active, result, is_in_doubt)
        ending = _ending(result, b"", active.inputs, spent, is_in_doubt)
        self._note(active)
        if active.is_abandoned:
            self.driver.feed(ev.Abandoned(active.task, active.number, ending))
        else:
            self.driver.feed(ev.Failed(active.task, active.number, fault, ending))

    def _put_back(self, active: ActiveAttempt, why: str, taken: Result | None = None) -> None:
        """Not the task's fault: it waits for another time, and no attempt counts."""
        result = taken or NO_RESULT
        spent = self._settle(active, result)
        ending = _ending(result, b"", active.inputs, spent) if result.calls else ev.NOTHING
        self.driver.feed(ev.Failed(active.task, active.number, Fault("rate", detail=why), ending))

    # Results that touched the shared state are committed in declared order.

    def _note(self, active: ActiveAttempt) -> bytes:
        """An attempt has ended: what it touched, which the shared state hears of."""
        if self._coherence is None or active.snapshot is None:
            return b""
        with self.lock:
            access, active.snapshot = active.snapshot.access(), None
            if self._coherence.has(active.task):
                self._coherence.note(active.task, access)
        return encode(access)

    def _judge(self, event: ev.TaskFinished, touched: bytes, is_heard: bool) -> HasResult | None:
        """What a result is that has touched this; None if it is to be forgotten.

        What the run does not hear of any more may be proposed again by another process.
        """
        ending = replace(event.ending, access=digest(touched))
        if not is_heard:
            return ev.TaskProposed(event.task, event.attempt, event.at_s, ending)
        end = ev.Finished(event.task, event.attempt, ending)
        with self.lock:
            found = outcome(self._state, end, event.at_s)
        return found if isinstance(found, (ev.TaskFinished, ev.TaskProposed)) else None

    def _take_again(self, active: ActiveAttempt, row: TaskRow) -> Again:
        """Whether what an earlier attempt gave is taken: if the state is as it saw it."""
        coherence, saved = self._coherence, self.saved
        if coherence is None or not coherence.has(active.task):
            return "reused"
        touched = saved.fetch(row.ending.access) if saved.fetch and row.ending.access else None
        if touched is None:
            return "no"  # What it saw is unknown.
        access = decode(touched)
        coherence.note(active.task, access, is_patient=True)
        verdict = coherence.judge(active.task, access)
        if isinstance(verdict, (Change, Breach)):
            return "no"
        if verdict is None:
            return "reused"
        if self.driver.publish(active.group, active.member, None):
            return "no"  # Its output cannot be written: the new attempt says so.
        # Paid for once: that it waits again costs nothing.
        ending = ev.Ending(
            row.ending.body, row.ending.inputs, access=row.ending.access, is_renewed=True
        )
        event: ev.Event = ev.TaskProposed(active.task, active.number, self.driver.clock(), ending)
        self.driver.record.write((active.folded(event),))
        self._hold(active, saved.body(row))
        self.driver.feed([event])
        return "proposed"

    def _hold(self, active: ActiveAttempt, body: bytes | None) -> None:
        self._proposed[active.task] = active, body
        self._set_aside(active)

    def hear(self, events: Sequence[ev.Event]) -> None:
        """Results that waited are committed, or will never be."""
        for event in events:
            if isinstance(event, (ev.TaskFinished, ev.TaskStale, ev.TaskFailed)):
                held = self._proposed.pop(event.task, None)
                if held is not None and isinstance(event, ev.TaskFinished):
                    self._commit(*held)

    def _commit(self, active: ActiveAttempt, body: bytes | None) -> None:
        row = active.row
        name = b"" if row is None else row.ending.body
        self._results.put(active.group, active.member, name, body)
        if problem := self.driver.publish(active.group, active.member, body):
            # It is committed, and others go by it: a resume tries again, and it fails there.
            self.driver.stop("journal", f"{active.name}: {problem}")
        if not self._committed:
            asyncio.get_running_loop().call_soon(self._tell_committed)
        self._committed.append(active.group)

    def _tell_committed(self) -> None:
        groups, self._committed = dict.fromkeys(self._committed), []
        for group in groups:
            self.driver.ended(group)


def pots_of(budgets: Budgets[int], group: str) -> tuple[str, ...]:
    """The budgets that a group counts towards; `verdict/1`, which brings results together for
    `verdict`, counts towards that one."""
    name = group if group in budgets.keys else group.partition("/")[0].partition("@")[0]
    return (ALL, name) if name in budgets.keys else (ALL,)


def _unshown(active: ActiveAttempt, ending: ev.Ending, problem: str) -> ev.Failed:
    """A task whose result is paid for and kept, and cannot be shown: a resume shows it."""
    kept = ev.Ending(ending.body, ending.inputs, exit_code=ending.exit_code, access=ending.access)
    return ev.Failed(active.task, active.number, Fault("request", detail=problem), kept)


def _ending(
    result: Result,
    body: bytes,
    inputs: bytes,
    spent: Spend | None = None,
    is_in_doubt: bool = False,
) -> ev.Ending:
    money, extra = result.spend_microusd, result.extra_tokens
    if spent is not None:
        money, counted = spent.microusd, round(result.input_tokens + result.output_tokens)
        extra = ceil(spent.tokens) - counted
    return ev.Ending(
        body, inputs, result.input_tokens, result.output_tokens, money, result.calls,
        result.exit_code, is_in_doubt, extra_tokens=extra, unpriced=result.unpriced,
        cache=result.cache, is_renewed=result.is_renewed,
    )  # fmt: skip
