"""The tasks that are being attempted, and the row of each as its events change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.engine.budget import Cost
from headway.core.engine.engine import State
from headway.core.engine.events import (
    CallAdmitted,
    CallWaited,
    Event,
    TaskDelayed,
    TaskFailed,
    TaskProposed,
    TaskStale,
    TaskStarted,
)
from headway.core.engine.record import Entry, Row, fold
from headway.core.values import Fault
from headway.runtime.active import Active
from headway.runtime.takeover import Saved
from headway.runtime.work import Work


@dataclass(frozen=True, slots=True)
class RosterStatistics:
    """How many attempts go on, tasks wait for another one, and tasks failed."""

    active: int
    delayed: int
    failed: int


class Roster:
    """A task is on it from its start to its end."""

    __slots__ = ("_rows", "_saved", "_state", "_works", "active", "failures")

    def __init__(self, state: State, works: Sequence[Work], saved: Saved) -> None:
        self._state = state
        self._works = works
        self._saved = saved
        self.active: dict[int, Active] = {}
        self.failures: dict[int, Fault] = {}
        """Why tasks have no result, of those that failed here."""
        self._rows: dict[int, Row] = {}
        """Of tasks that wait for another attempt."""

    def __repr__(self) -> str:
        return f"<Roster {self.statistics()}>"

    def statistics(self) -> RosterStatistics:
        return RosterStatistics(len(self.active), len(self._rows), len(self.failures))

    def entry(self, event: Event) -> Entry:
        """An event with its task's row."""
        if isinstance(event, TaskStarted):  # The usual case, once per attempt.
            active = self.active[event.task] = self._known(event.task)
            active.number = event.attempt
            active.row = fold(active.row, event, active.key, active.name)
            return Entry(event, active.key, active.row)
        task: int | None = getattr(event, "task", None)
        if task is None:
            return Entry(event)
        active = self.active.get(task) or self._known(task)
        if isinstance(event, (CallWaited, CallAdmitted)):
            return Entry(event, active.key)
        active.row = fold(active.row, event, active.key, active.name)
        if isinstance(event, (TaskDelayed, TaskStale, TaskProposed)):
            self._rows[event.task] = active.row
            self.active.pop(event.task, None)
        elif isinstance(event, TaskFailed):
            self.failures[event.task] = event.fault
            self.active.pop(event.task, None)
        return Entry(event, active.key, active.row)

    def keep(self, active: Active) -> None:
        """An attempt has ended, but not its task: its row is wanted again."""
        if active.row is not None:
            self._rows[active.task] = active.row
        self.active.pop(active.task, None)

    def _known(self, task: int) -> Active:
        group, member = self._state.place(task)
        work = self._works[group]
        key = work.key(member)
        row = self._rows.pop(task, None) or self._saved.rows.get(key)
        active = Active(task, group, member, key, work.label(member), row)
        if row is not None:
            active.journalled = row.attempt - (row.state == "started")
            active.charged = Cost(row.reserved_microusd, row.reserved_tokens)
        return active
