"""Opens a run: journal, purse, signals and driver come together here and nowhere else."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final
from uuid import uuid4

from headway.core.engine.access import Act
from headway.core.engine.budget import Cost, Purse
from headway.core.engine.codec import EFFECTS
from headway.core.engine.coherence import Coherence
from headway.core.engine.effects import Asker
from headway.core.engine.engine import Rules
from headway.core.engine.events import Event
from headway.core.engine.local import Resting
from headway.core.engine.record import Row
from headway.core.plan.graph import Graph
from headway.core.plan.spec import Budget
from headway.runtime.clock import wall_s
from headway.runtime.context import Commons, Watch
from headway.runtime.driver import Driver, RunOutcome, Setup
from headway.runtime.effects import Outbox
from headway.runtime.journal import Journal
from headway.runtime.keeping import Memory, Record
from headway.runtime.machine import own_overhead
from headway.runtime.senders import Send
from headway.runtime.shapes import keep_shape
from headway.runtime.takeover import Saved
from headway.runtime.work import Attempt, Work

EXIT_FAILED: Final = 1
EXITS: Final = {"budget": 4, "window": 75, "interrupted": 130, "halt": 1, "journal": 2}
"""By why a run ended early. The first three can be resumed as they are."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The state that the tasks of a run share, and what is done to the world for them."""

    coherence: Coherence
    find: Callable[[str], Send | None] | None = None
    """Who performs the effects of a channel."""
    watch: Callable[[Attempt], Watch | None] | None = None
    """Who is told what an attempt touches, before it does."""
    lends: tuple[Callable[[Commons], None], ...] = ()
    """Who gives tasks their contexts: told what those have in common."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that is about to begin."""

    graph: Graph
    works: Sequence[Work]
    rules: Rules = Rules()
    budget: Budget | None = None
    group_budgets: Mapping[str, Budget] = field(default_factory=dict)
    waits_until_s: float = inf
    watch: Callable[[Sequence[Event]], None] | None = None
    meets: tuple[Callable[[Driver], None], ...] = ()
    """Who wants to know the driver before anything starts."""
    closes: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Who performs tasks and must be let go at the end, in this order."""
    resting: Callable[[], Resting] = Resting
    """Who of those that use this machine only waits for a model."""
    heeds_signals: bool = False
    """Whether an interrupt drains the run instead of ending the process."""
    sharing: Sharing | None = None
    """The state that its tasks share, if they share any."""

    @property
    def sees_calls(self) -> bool:
        """Whether calls to models go through this process: its own, or those of its commands."""
        return self.resting is not Resting or any(not work.is_local for work in self.works)


@dataclass(frozen=True, slots=True)
class Launched:
    """A run that is over, with what it left in this process."""

    outcome: RunOutcome
    driver: Driver
    saved: Saved
    outbox: Outbox | None = None
    """What was done to the world, if its tasks could ask for that."""

    @property
    def exit_code(self) -> int:
        """As the shell is told."""
        finished, cause = self.outcome.finished, self.outcome.cause
        if cause:
            return EXITS[cause]
        is_whole = not (finished.failed or finished.skipped or finished.left or finished.effects)
        return 0 if is_whole else EXIT_FAILED


async def launch(
    run: Launch, journal: Journal | None = None, began: Callable[[Driver], None] | None = None
) -> Launched:
    """Perform a run to its end. The journal, if there is one, is closed by whoever opened it.

    `began` is told the driver before anything starts.
    """
    rows = {row.key: row for row in journal.rows()} if journal is not None else {}
    saved = Saved()
    if journal is not None:
        saved = Saved(rows, journal.body, journal.header.keeps_bodies, journal.reader.bodies)
    record = journal or Memory()
    outbox = _outbox(run.sharing, journal, record)
    driver = Driver(
        Setup(
            run.graph, run.works, run.rules, record, wall_s, saved,
            _purse(run, rows.values()), run.waits_until_s, run.watch, run.resting,
            None if run.sharing is None else run.sharing.coherence, outbox,
            None if journal is None else own_overhead(),
        )
    )  # fmt: skip
    if journal is not None:
        keep_shape(journal.folder, run.graph, run.works, run.rules.ceiling)
        journal.start(asyncio.get_running_loop(), lambda reason: _disk(driver, reason))
    for meet in (*run.meets, *([began] if began is not None else [])):
        meet(driver)
    try:
        with _signals(driver, outbox, run.heeds_signals):
            return Launched(await driver.run(), driver, saved, outbox)
    finally:
        for close in (*run.closes, *([outbox.aclose] if outbox is not None else [])):
            await close()


def _outbox(sharing: Sharing | None, journal: Journal | None, record: Record) -> Outbox | None:
    """Whoever performs effects for a run, knowing what was done before; contexts are told of it."""
    if sharing is None:
        return None
    outbox: Outbox | None = None
    if sharing.find is not None:
        # Without a journal nobody goes on with the run: no other one has its keys.
        run = uuid4().hex if journal is None else journal.header.run
        outbox = Outbox(run, sharing.find, record, wall_s)
        if journal is not None:
            outbox.recall(journal.reader.events(kinds=EFFECTS))
    created_s = wall_s() if journal is None else journal.header.created_s
    perform = None if outbox is None else partial(_now, outbox)
    for lend in sharing.lends:
        lend(Commons(created_s, sharing.watch, perform))
    return outbox


def _now(outbox: Outbox, attempt: Attempt, act: Act, number: int) -> None:
    outbox.now(Asker(attempt.task, attempt.key, attempt.name), number, act)


def _purse(run: Launch, rows: Iterable[Row]) -> Purse | None:
    """What may be spent, less what was; what was in flight at an end is charged as if all used."""
    if run.budget is None and not run.group_budgets:
        return None
    purse = Purse(run.budget or Budget(), run.group_budgets)
    for row in rows:
        spent = Cost(row.spent_microusd, row.spent_tokens)
        in_doubt = Cost(row.reserved_microusd, row.reserved_tokens)
        purse.restore(spent, in_doubt, row.name.partition("[")[0])
    return purse


def _disk(driver: Driver, reason: str) -> None:
    """A disk that takes nothing more holds the run: what cannot be kept must not be bought."""
    if reason:
        driver.hold(f"the journal cannot be written: {reason}")
    else:
        driver.go_on()


@contextmanager
def _signals(driver: Driver, outbox: Outbox | None, heeds: bool) -> Iterator[None]:
    """One interrupt drains, two stop now; a run can be paused from elsewhere."""
    if not heeds or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    interrupts = 0

    def stop(why: str, is_now: bool) -> None:
        driver.stop("interrupted", why, is_now=is_now)
        if outbox is not None:
            (outbox.end_now if is_now else outbox.halt)()

    def interrupted() -> None:
        nonlocal interrupts
        interrupts += 1
        stop("interrupted", interrupts > 1)

    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: interrupted,
        signal.SIGTERM: lambda: stop("terminated", True),
        signal.SIGHUP: lambda: stop("the terminal is gone", True),
        signal.SIGUSR1: lambda: driver.hold("paused by the user"),
        signal.SIGUSR2: driver.go_on,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
