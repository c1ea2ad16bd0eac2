"""What a journal keeps of a run: events as facts, and beside them each task's current row.

Laws:
- A row is a fold of its task's events: `fold` gives, event by event, what the journal holds.
- Tasks are named by their content key: what was asked of whom. The same work in an edited plan
  has the same key, and so finds its row.
- What a task has cost never becomes less: an attempt that began again without an end is charged
  with all that was set aside for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final, Literal

from headway.core.engine.events import (
    NOTHING,
    Ending,
    Event,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskSkipped,
    TaskStale,
    TaskStarted,
)
from headway.core.records import quick
from headway.core.values import Fault

TaskState = Literal["started", "delayed", "proposed", "stale", "finished", "failed", "skipped"]
"""A task without a row has not been started yet. What is proposed has a result, or a failure, that
is not committed; what is stale has one that will never be."""


@dataclass(frozen=True, slots=True)
class MoneyReserved:
    """All that the attempt may take from now on is set aside; the engine need not know."""

    task: int
    attempt: int
    at_s: float
    microusd: int
    """In all for this attempt: what was set aside before is part of it."""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReplyKept:
    """A provider's reply is durable, in the middle of an attempt; the engine need not know."""

    task: int
    attempt: int
    at_s: float
    body: bytes
    """Its digest."""


@dataclass(frozen=True, slots=True)
class EffectIntended:
    """An effect on the world is about to be performed: from now on it may have happened."""

    task: int
    at_s: float
    channel: str
    ordinal: int
    """Its number among the effects that the task asked for."""
    key: str
    """By which whoever receives it twice knows it again."""
    is_now: bool = False
    """Before its task was committed: outside the guarantee."""


@dataclass(frozen=True, slots=True)
class EffectDone:
    """An effect on the world has happened."""

    task: int
    at_s: float
    ordinal: int
    key: str
    receipt: bytes = b""
    """The digest of what whoever performed it answered; empty if that was nothing."""


Fact = Event | MoneyReserved | ReplyKept | EffectIntended | EffectDone
"""Everything that is written down."""


@quick
class Row:
    """Where a task is."""

    key: bytes
    name: str
    """As people read it: `review[security]`."""
    state: TaskState
    attempt: int = 0
    started_s: float = 0.0
    """When its last attempt began."""
    ended_s: float = 0.0
    """When an attempt last ended; earlier than `started_s` while one is in flight."""
    ending: Ending = NOTHING
    """Of the last attempt that ended."""
    fault: str = ""
    """Kind and detail of why that one failed."""
    reserved_microusd: int = 0
    """What the attempt in flight may cost at most: the budget has no room for it until it ends."""
    spent_microusd: int = 0
    """By all attempts."""
    kept: tuple[bytes, ...] = ()
    """Digests of replies, in order, that are not to be paid again by the next attempt."""
    reserved_tokens: int = 0
    spent_tokens: int = 0
    """The same in tokens, as budgets count them: what is in doubt is part of it."""
    unpriced: int = 0
    """Calls of all attempts that ended whose price is unknown."""

    @property
    def unpriced_in_flight(self) -> int:
        """Whether the attempt in flight calls a model without a price: no money is set aside."""
        return int(self.reserved_tokens > 0 and not self.reserved_microusd)


@quick
class Entry:
    """One event to be written, with all that belongs to it, in one transaction."""

    event: Fact
    key: bytes = b""
    """Of the task that the event is about; empty if it is about the run."""
    row: Row | None = None
    bodies: tuple[bytes, ...] = ()
    """Texts that the event refers to by their digest."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a run is, written once when it begins."""

    run: str
    """Its id: sortable by time, short enough to type."""
    name: str
    kind: Literal["plan", "each", "python"]
    source: str
    """The text of the plan, or the command line as JSON: all that a resume needs."""
    folder: str
    """Where it was started; paths in the plan are relative to it."""
    tasks: int
    """How many there are, as far as was known when it began."""
    created_s: float
    keeps_bodies: bool = True
    """Off: results are not kept, only that they were there."""


LOST: Final = "lost: its result cannot be read"
"""Why a task that had finished runs again."""

_ENDS: Final[dict[type, TaskState]] = {
    TaskFinished: "finished",
    TaskProposed: "proposed",
    TaskStale: "stale",
    TaskDelayed: "delayed",
    TaskFailed: "failed",
}


def fold(row: Row | None, event: Fact, key: bytes, name: str) -> Row:
    """The task's row after the event; its key and name are the caller's to know."""
    if row is None:
        if isinstance(event, TaskStarted):  # The usual case, once per task.
            return Row(key, name, "started", event.attempt, event.at_s)
        row = Row(key, name, "started")
    match event:
        case TaskStarted():
            return _started(row, name, event)
        case TaskFinished() | TaskProposed() | TaskStale() | TaskDelayed() | TaskFailed():
            return _ended(row, name, event)
        case MoneyReserved():
            return replace(row, reserved_microusd=event.microusd, reserved_tokens=event.tokens)
        case ReplyKept():
            return replace(row, kept=(*row.kept, event.body))
        case TaskReused() | TaskSkipped():
            return _settled(row, name, event)
        case _:
            return row  # It says nothing of where the task is.


def without_lost(row: Row, has: Callable[[bytes], bool]) -> Row:
    """The row without references to texts that are lost. A task without its result runs again.

    A task that touched the shared state also runs again if the record of what it touched is lost.
    """
    end = row.ending
    kept = tuple(takewhile(has, row.kept))
    is_whole = has(end.body) and (not end.access or has(end.access)) if end.body else False
    if is_whole or (not end.body and row.state != "finished"):
        return row if len(kept) == len(row.kept) else replace(row, kept=kept)
    has_ended = row.state in ("finished", "proposed")
    return replace(
        row, kept=kept, ending=replace(end, body=b"", access=b""),
        state="delayed" if has_ended else row.state,
        fault=LOST if has_ended else row.fault,
    )  # fmt: skip


def _started(old: Row, name: str, event: TaskStarted) -> Row:
    """What the attempt before left behind stays until this one ends: it may be taken instead."""
    return Row(
        old.key, name, "started", event.attempt, event.at_s, old.ended_s, old.ending, old.fault, 0,
        old.spent_microusd + old.reserved_microusd, old.kept, 0,
        old.spent_tokens + old.reserved_tokens, old.unpriced + old.unpriced_in_flight,
    )  # fmt: skip


def _ended(
    old: Row, name: str, event: TaskFinished | TaskProposed | TaskStale | TaskDelayed | TaskFailed
) -> Row:
    state = _ENDS[type(event)]
    ending = event.ending
    # What was proposed has been paid for: that it is committed, or not, costs nothing.
    is_paid = old.state == "proposed" and old.attempt == event.attempt
    return Row(
        old.key, name, state, event.attempt, old.started_s, event.at_s, ending, _why(event), 0,
        old.spent_microusd + (0 if is_paid else ending.spend_microusd),
        # After a delay the replies that were paid are still good; a new beginning has none.
        old.kept if state == "delayed" else (), 0,
        old.spent_tokens + (0 if is_paid else ending.spend_tokens),
        old.unpriced + (0 if is_paid else ending.unpriced),
    )  # fmt: skip


def _settled(old: Row, name: str, event: TaskReused | TaskSkipped) -> Row:
    """Without an attempt: the result of an earlier one is taken, or there is none to be had."""
    is_reused = isinstance(event, TaskReused)
    return Row(
        old.key, name, "finished" if is_reused else "skipped", old.attempt, old.started_s,
        old.ended_s if is_reused else event.at_s, old.ending,
        spent_microusd=old.spent_microusd + old.reserved_microusd,
        spent_tokens=old.spent_tokens + old.reserved_tokens,
        unpriced=old.unpriced + old.unpriced_in_flight,
    )  # fmt: skip


def _why(event: TaskFinished | TaskProposed | TaskStale | TaskDelayed | TaskFailed) -> str:
    if isinstance(event, TaskFinished):
        return ""
    if isinstance(event, TaskStale):
        return f"stale: {event.what}"
    return "" if event.fault is None else _in_words(event.fault)


def _in_words(fault: Fault) -> str:
    return f"{fault.kind}: {fault.detail}" if fault.detail else fault.kind
