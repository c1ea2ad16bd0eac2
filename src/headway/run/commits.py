"""Commits results that touched the shared state, in declared order.

Laws:
- What an attempt touched is durable together with its result, in one transaction.
- A result that waits is durable; so whether it is committed can be found out again after a crash.
- What was paid for once is taken again, if the shared state is as it was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from headway.base.digest import digest
from headway.engine.engine import outcome
from headway.engine.events import (
    Ending,
    Event,
    Finished,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskStale,
)
from headway.engine.record import JournalEntry, TaskRow, fold
from headway.run.active import ActiveAttempt, Roster
from headway.state.coherence import Breach
from headway.state.shared import Change, decode, encode

if TYPE_CHECKING:
    from threading import RLock

    from headway.run.driver import Driver, RunSetup

Again = Literal["reused", "proposed", "no"]
"""What becomes of an earlier result: it is taken, it waits, or its task has to run."""


class Commits:
    __slots__ = ("_coherence", "_driver", "_groups", "_lock", "_proposed", "_roster", "_setup")

    def __init__(self, driver: Driver, setup: RunSetup, roster: Roster, lock: RLock) -> None:
        self._driver = driver
        self._setup = setup
        self._roster = roster
        self._lock = lock
        self._coherence = driver.state.coherence
        self._proposed: dict[int, tuple[ActiveAttempt, bytes | None]] = {}
        self._groups: list[int] = []
        """Of results that were committed, of which the run has not heard yet."""

    def begin(self, active: ActiveAttempt) -> None:
        if self._coherence is not None:
            active.snapshot = self._coherence.snapshot(active.task)

    def note(self, active: ActiveAttempt) -> bytes:
        """An attempt has ended: what it touched, which the shared state hears of."""
        if self._coherence is None or active.snapshot is None:
            return b""
        with self._lock:
            access, active.snapshot = active.snapshot.access(), None
            if self._coherence.has(active.task):
                self._coherence.note(active.task, access)
        return encode(access)

    def judge(
        self, event: TaskFinished, touched: bytes, is_heard: bool
    ) -> TaskFinished | TaskProposed | None:
        """What a result is that has touched this; None if it is to be forgotten.

        What the run does not hear of any more may be proposed again by another process.
        """
        ending = _with_access(event.ending, digest(touched))
        if not is_heard:
            return TaskProposed(event.task, event.attempt, event.at_s, ending)
        end = Finished(event.task, event.attempt, ending)
        with self._lock:
            found = outcome(self._driver.state, end, event.at_s)
        return found if isinstance(found, (TaskFinished, TaskProposed)) else None

    def take_again(self, active: ActiveAttempt, row: TaskRow) -> Again:
        """Whether what an earlier attempt gave is taken: if the state is as it saw it."""
        coherence, saved = self._coherence, self._setup.saved
        if coherence is None or not coherence.has(active.task):
            return "reused"
        touched = saved.fetch(row.ending.access) if saved.fetch and row.ending.access else None
        if touched is None:
            return "no"  # Nobody knows what it saw.
        access = decode(touched)
        coherence.note(active.task, access, is_patient=True)
        verdict = coherence.judge(active.task, access)
        if isinstance(verdict, (Change, Breach)):
            return "no"
        if verdict is None:
            return "reused"
        if self._driver.publish(active.group, active.member, None):
            return "no"  # Its output cannot be written: the new attempt says so.
        # Paid for once: that it waits again costs nothing.
        ending = Ending(row.ending.body, row.ending.inputs, access=row.ending.access)
        event: Event = TaskProposed(active.task, active.number, self._setup.clock(), ending)
        active.row = fold(active.row, event, active.key, active.name)
        self._setup.record.write((JournalEntry(event, active.key, active.row),))
        self.hold(active, saved.body(row))
        self._driver.feed([event])
        return "proposed"

    def hold(self, active: ActiveAttempt, body: bytes | None) -> None:
        self._proposed[active.task] = active, body
        self._roster.keep(active)

    def hear(self, events: Sequence[Event]) -> None:
        """Results that waited are committed, or will never be."""
        for event in events:
            if isinstance(event, (TaskFinished, TaskStale, TaskFailed)):
                held = self._proposed.pop(event.task, None)
                if held is not None and isinstance(event, TaskFinished):
                    self._commit(*held)

    def _commit(self, active: ActiveAttempt, body: bytes | None) -> None:
        row = active.row
        name = b"" if row is None else row.ending.body
        self._driver.results.put(active.group, active.member, name, body)
        if problem := self._driver.publish(active.group, active.member, body):
            # It is committed, and others go by it: a resume tries again, and it fails there.
            self._driver.stop("journal", f"{active.name}: {problem}")
        if not self._groups:
            asyncio.get_running_loop().call_soon(self._tell)
        self._groups.append(active.group)

    def _tell(self) -> None:
        groups, self._groups = dict.fromkeys(self._groups), []
        for group in groups:
            self._driver.ended(group)


def _with_access(end: Ending, access: bytes) -> Ending:
    """By hand: this is done once per task."""
    return Ending(
        end.body, end.inputs, end.input_tokens, end.output_tokens, end.spend_microusd, end.calls,
        end.exit_code, end.is_in_doubt, access, end.extra_tokens, end.unpriced,
    )  # fmt: skip
