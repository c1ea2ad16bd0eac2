"""An attempt in flight: results it needs, money, durability."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from threading import RLock

from msgspec import Struct

from headway.base.crash import crash_point
from headway.base.digest import digest
from headway.base.values import Fault
from headway.engine.budget import NOTHING as UNPAID
from headway.engine.budget import Cost, Later, Never, RunBudget
from headway.engine.engine import is_last
from headway.engine.events import (
    NOTHING,
    Admitted,
    CallAdmitted,
    CallWaited,
    Ending,
    Event,
    Input,
    TaskDelayed,
    TaskFailed,
    TaskProposed,
    TaskStale,
    TaskStarted,
    Waiting,
)
from headway.engine.record import JournalEntry, MoneyReserved, ReplyKept, TaskRow, fold
from headway.engine.state import State
from headway.journal.memory import Record
from headway.plans.graph import Graph
from headway.plans.ready import DONE
from headway.run.results import Results, needed_members
from headway.run.takeover import Saved
from headway.state.shared import Snapshot
from headway.work import Attempt, AttemptClock, Needed, OverBudgetError, Result, Work


class ActiveAttempt(Struct):
    """An attempt that has started and not ended."""

    task: int
    group: int
    member: int
    key: bytes
    name: str
    row: TaskRow | None
    """None until its first event is written."""
    number: int = 0
    inputs: bytes = b""
    journalled: int = 0
    """The last attempt of this task whose end the journal knows."""
    charged: Cost = UNPAID
    """What an interrupted attempt had set aside: it counts as spent from now on."""
    runner: asyncio.Task[None] | None = None
    reserved: Cost = UNPAID
    called_back: str = ""
    """Why it was taken back before it had sent anything."""
    is_sent: bool = False
    """Whether a call of it had its permit: what became of that, its work alone knows."""
    snapshot: Snapshot | None = None
    """The shared state as it sees it."""
    is_abandoned: bool = False
    """Ended because what it has read has changed."""

    @property
    def ending(self) -> Ending:
        return self.row.ending if self.row is not None else NOTHING


class Supplies:
    __slots__ = (
        "_graph", "_holders", "_purse", "_record", "_results", "_waiters", "_works", "lock",
    )  # fmt: skip

    def __init__(
        self, graph: Graph, works: Sequence[Work], results: Results, purse: RunBudget | None,
        record: Record,
    ) -> None:  # fmt: skip
        self._graph = graph
        self._works = works
        self._results = results
        self._purse = purse
        self._record = record
        self.lock = RLock()
        """Held by whoever uses the shared state: attempts in threads, and the loop."""
        self._holders: set[int] = set()
        self._waiters: list[asyncio.Future[None]] = []

    def attempt(
        self, active: ActiveAttempt, state: State, feed: Callable[[Input], None],
        now: Callable[[], float],
    ) -> Attempt:  # fmt: skip
        attempt = _Attempt(self, active, state, feed, now)
        if active.row is not None and active.row.kept:
            given = active.inputs
            replies = map(self._results.find, active.row.kept)
            attempt.kept = tuple(
                reply[len(given) :] for reply in replies if reply and reply.startswith(given)
            )
        return attempt

    def needed(self, state: State, group: int, member: int, name: str) -> list[Needed]:
        """The results of a group that a task needs, in declared order: of those that finished."""
        results = self._results
        return [
            Needed(name, one, work.label(one), results.get(index, one))
            for work, index, one, is_done in self._asked(state, group, member, name)
            if is_done
        ]

    def missing(self, state: State, group: int, member: int, name: str) -> list[str]:
        """The labels of those of a group that a task needs and that ended without a result."""
        every = self._asked(state, group, member, name)
        return [work.label(one) for work, _, one, is_done in every if not is_done]

    def _asked(
        self, state: State, group: int, member: int, name: str
    ) -> Iterator[tuple[Work, int, int, bool]]:
        """Of the group of this name, the members that a task needs, and whether they finished."""
        groups, numbers = self._graph.groups, state.ready_set.numbers
        need = next((one for one in groups[group].needs if groups[one.group].name == name), None)
        if need is None:
            return
        states, first = state.ready_set.states, numbers.firsts[need.group]
        for one in needed_members(need, member, numbers):
            yield self._works[need.group], need.group, one, states[first + one] == DONE

    def settle(self, active: ActiveAttempt, result: Result, *, is_in_doubt: bool = False) -> Cost:
        """An attempt has ended: what it cost, and others may have the rest of its money."""
        tokens = round(result.input_tokens + result.output_tokens) + result.extra_tokens
        spent = Cost(result.spend_microusd, tokens)
        if is_in_doubt:
            reserved = active.reserved
            spent = Cost(max(spent.microusd, reserved.microusd), max(tokens, reserved.tokens))
        if self._purse is None or active.task not in self._holders:
            return spent
        self._holders.discard(active.task)
        self._purse.settle(active.task, spent.microusd, spent.tokens)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _fulfil(waiter)
        return spent

    async def reserve(
        self,
        active: ActiveAttempt,
        clock: AttemptClock,
        now: Callable[[], float],
        microusd: int,
        tokens: int,
    ) -> None:
        """Set money aside, and make that durable before it can be spent.

        Without a budget it is noted all the same: the run may be resumed with one.
        """
        purse = self._purse
        if purse is not None:
            self._holders.add(active.task)
            name = self._graph.groups[active.group].name
            while isinstance(answer := purse.reserve(active.task, microusd, tokens, name), Later):
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                with clock.stopped():
                    await waiter
            if isinstance(answer, Never):
                raise OverBudgetError(answer.reason)
        reserved = active.reserved = active.reserved.plus(Cost(microusd, tokens))
        fact = MoneyReserved(active.task, active.number, now(), reserved.microusd, reserved.tokens)
        durable = self._written(active, fact)
        if purse is not None:
            await durable
        crash_point("reserved")

    async def keep(self, active: ActiveAttempt, now: Callable[[], float], reply: bytes) -> None:
        """Make a reply durable in the middle of an attempt, with what it is a reply to."""
        body = active.inputs + reply
        fact = ReplyKept(active.task, active.number, now(), digest(body))
        await self._written(active, fact, body)
        crash_point("kept")

    def _written(
        self, active: ActiveAttempt, fact: MoneyReserved | ReplyKept, *bodies: bytes
    ) -> asyncio.Future[None]:
        """Write a fact; the future is done when it is durable."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        active.row = fold(active.row, fact, active.key, active.name)
        entry = JournalEntry(fact, active.key, active.row, bodies)
        self._record.write((entry,), partial(_fulfil, durable))
        return durable


class _Attempt(Attempt):
    """Its verbs are methods: one is made for every attempt, and most use none of them."""

    __slots__ = ("_active", "_feed", "_now", "_state", "_supplies")

    def __init__(
        self,
        supplies: Supplies,
        active: ActiveAttempt,
        state: State,
        feed: Callable[[Input], None],
        now: Callable[[], float],
    ) -> None:
        self.task = active.task
        self.member = active.member
        self.number = active.number
        self.is_last = is_last(state, active.task, active.number)
        self.key = active.key
        self.name = active.name
        self.inputs = active.inputs
        self.journalled = active.journalled
        self.charged = active.charged
        self.kept = ()
        self.snapshot = active.snapshot
        self.clock = AttemptClock()
        self.lock = supplies.lock
        self._supplies = supplies
        self._active = active
        self._state = state
        self._feed = feed
        self._now = now

    def needed(self, name: str) -> list[Needed]:
        return self._supplies.needed(self._state, self._active.group, self.member, name)

    def missing(self, name: str) -> list[str]:
        return self._supplies.missing(self._state, self._active.group, self.member, name)

    def waits(self, why: str = "", /) -> None:
        self._feed(Waiting(self.task, why))

    def goes(self, why: str = "", /) -> None:
        self._active.is_sent = True
        self._feed(Admitted(self.task, why))

    def reserve(self, microusd: int, tokens: int = 0, /) -> Awaitable[None]:
        return self._supplies.reserve(self._active, self.clock, self._now, microusd, tokens)

    def keep(self, reply: bytes) -> Awaitable[None]:
        return self._supplies.keep(self._active, self._now, reply)


def _fulfil(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# The tasks that are being attempted, and the row of each as its events change it.


class Roster:
    __slots__ = ("_rows", "_saved", "_state", "_works", "active", "failures")

    def __init__(self, state: State, works: Sequence[Work], saved: Saved) -> None:
        self._state = state
        self._works = works
        self._saved = saved
        self.active: dict[int, ActiveAttempt] = {}
        self.failures: dict[int, Fault] = {}
        """Why tasks have no result, of those that failed here."""
        self._rows: dict[int, TaskRow] = {}
        """Of tasks that wait for another attempt."""

    def entry(self, event: Event) -> JournalEntry:
        if isinstance(event, TaskStarted):  # The usual case, once per attempt.
            active = self.active[event.task] = self._known(event.task)
            active.number = event.attempt
            active.row = fold(active.row, event, active.key, active.name)
            return JournalEntry(event, active.key, active.row)
        task: int | None = getattr(event, "task", None)
        if task is None:
            return JournalEntry(event)
        active = self.active.get(task) or self._known(task)
        if isinstance(event, (CallWaited, CallAdmitted)):
            return JournalEntry(event, active.key)
        active.row = fold(active.row, event, active.key, active.name)
        if isinstance(event, (TaskDelayed, TaskStale, TaskProposed)):
            self._rows[event.task] = active.row
            self.active.pop(event.task, None)
        elif isinstance(event, TaskFailed):
            self.failures[event.task] = event.fault
            self.active.pop(event.task, None)
        return JournalEntry(event, active.key, active.row)

    def keep(self, active: ActiveAttempt) -> None:
        """An attempt has ended, but not its task: its row is wanted again."""
        if active.row is not None:
            self._rows[active.task] = active.row
        self.active.pop(active.task, None)

    def _known(self, task: int) -> ActiveAttempt:
        group, member = self._state.place(task)
        work = self._works[group]
        key = work.key(member)
        row = self._rows.pop(task, None) or self._saved.rows.get(key)
        active = ActiveAttempt(task, group, member, key, work.label(member), row)
        if row is not None:
            active.journalled = row.attempt - (row.state == "started")
            active.charged = Cost(row.reserved_microusd, row.reserved_tokens)
        return active
