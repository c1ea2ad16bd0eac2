"""What the journal stores of a run: events, and each task's current row.

Laws:
- A row is a fold of its task's events: `fold` gives, event by event, what the journal holds.
- Tasks are named by their content key: what was asked of whom. The same work in an edited plan
  has the same key, and so finds its row.
- What a task has cost never becomes less: an attempt that began again without an end is charged
  with all that was set aside for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import Final, Literal, get_args

from msgspec import MsgspecError, Struct, convert, to_builtins
from msgspec.json import decode as from_json
from msgspec.json import encode as to_json
from msgspec.structs import replace

from headway.engine.events import (
    NOTHING,
    VERSION,
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
from headway.errors import JournalError

TaskState = Literal["started", "delayed", "proposed", "stale", "finished", "failed", "skipped"]
"""A task without a row has not been started yet. What is proposed has a result, or a failure, that
is not committed; what is stale has one that will never be."""


class MoneyReserved(Struct, frozen=True, omit_defaults=True):
    """All that the attempt may take from now on is set aside; the engine need not know."""

    task: int
    attempt: int
    at_s: float
    microusd: int
    """In all for this attempt: what was set aside before is part of it."""
    tokens: int = 0


class ReplyKept(Struct, frozen=True):
    """A provider's reply is durable, in the middle of an attempt; the engine need not know."""

    task: int
    attempt: int
    at_s: float
    body: bytes


class EffectIntended(Struct, frozen=True, omit_defaults=True):
    """An effect on the world is about to be performed: from now on it may have happened."""

    task: int
    at_s: float
    channel: str
    ordinal: int
    key: str
    """By which a receiver recognises an effect that it gets twice."""
    is_now: bool = False
    """Before its task was committed: outside the guarantee."""


class EffectDone(Struct, frozen=True, omit_defaults=True):
    """An effect on the world has happened."""

    task: int
    at_s: float
    ordinal: int
    key: str
    receipt: bytes = b""


class LimitUse(Struct, frozen=True, omit_defaults=True):
    """How much of a limit, or of a usage window, was used by all."""

    account: str
    name: str
    used: float
    allowed: float
    resets_s: float = 0.0
    """Of a usage window: when it resets, by the clock."""


class LimitsSeen(Struct, frozen=True, omit_defaults=True):
    """What the accounts of the run stood at; the engine need not know."""

    at_s: float
    limits: tuple[LimitUse, ...]


Fact = Event | MoneyReserved | ReplyKept | EffectIntended | EffectDone | LimitsSeen
AttemptEnd = TaskFinished | TaskProposed | TaskStale | TaskDelayed | TaskFailed


class TaskRow(Struct, frozen=True):
    """Where a task is."""

    key: bytes
    name: str
    """As people read it: `review[security]`."""
    state: TaskState
    attempt: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    """When an attempt last ended; earlier than `started_s` while one is in flight."""
    ending: Ending = NOTHING
    fault: str = ""
    reserved_microusd: int = 0
    """What the attempt in flight may cost at most: the budget has no room for it until it ends."""
    spent_microusd: int = 0
    kept: tuple[bytes, ...] = ()
    """Digests of replies, in order, that are not to be paid again by the next attempt."""
    reserved_tokens: int = 0
    spent_tokens: int = 0
    """The same in tokens, as budgets count them: what is in doubt is part of it."""
    unpriced: int = 0

    @property
    def unpriced_in_flight(self) -> int:
        """Whether the attempt in flight calls a model without a price: no money is set aside."""
        return int(self.reserved_tokens > 0 and not self.reserved_microusd)


class JournalEntry(Struct, frozen=True):
    """One event to be written, with all that belongs to it, in one transaction."""

    event: Fact
    key: bytes = b""
    """Of the task that the event is about; empty if it is about the run."""
    row: TaskRow | None = None
    bodies: tuple[tuple[bytes, bytes], ...] = ()
    """Texts that the event refers to by their digest: digest and text of each."""


class Header(Struct, frozen=True):
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


def fold(row: TaskRow | None, event: Fact, key: bytes, name: str) -> TaskRow:
    """The task's row after the event; its key and name are the caller's to know."""
    if row is None:
        if isinstance(event, TaskStarted):  # The usual case, once per task.
            return TaskRow(key, name, "started", event.attempt, event.at_s)
        row = TaskRow(key, name, "started")
    match event:
        case TaskFinished() | TaskProposed() | TaskStale() | TaskDelayed() | TaskFailed():
            return _ended(row, name, event)
        case TaskStarted():
            return _started(row, name, event)
        case MoneyReserved():
            return replace(row, reserved_microusd=event.microusd, reserved_tokens=event.tokens)
        case ReplyKept():
            return replace(row, kept=(*row.kept, event.body))
        case TaskReused() | TaskSkipped():
            return _settled(row, name, event)
        case _:
            return row  # It says nothing of where the task is.


def without_lost(row: TaskRow, has: Callable[[bytes], bool]) -> TaskRow:
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


def _started(old: TaskRow, name: str, event: TaskStarted) -> TaskRow:
    """What the attempt before left behind stays until this one ends: it may be taken instead."""
    return TaskRow(
        old.key, name, "started", event.attempt, event.at_s, old.ended_s, old.ending, old.fault, 0,
        old.spent_microusd + old.reserved_microusd, old.kept, 0,
        old.spent_tokens + old.reserved_tokens, old.unpriced + old.unpriced_in_flight,
    )  # fmt: skip


def _ended(old: TaskRow, name: str, event: AttemptEnd) -> TaskRow:
    state = _ENDS[type(event)]
    # What was proposed has been paid for: that it is committed, or not, costs nothing.
    is_paid = old.state == "proposed" and old.attempt == event.attempt
    cost = NOTHING if is_paid else event.ending
    return TaskRow(
        old.key, name, state, event.attempt, old.started_s, event.at_s, event.ending, _why(event),
        0, old.spent_microusd + cost.spend_microusd,
        # After a delay the replies that were paid are still good; a new beginning has none.
        old.kept if state == "delayed" else (), 0,
        old.spent_tokens + cost.spend_tokens, old.unpriced + cost.unpriced,
    )  # fmt: skip


def _settled(old: TaskRow, name: str, event: TaskReused | TaskSkipped) -> TaskRow:
    is_reused = isinstance(event, TaskReused)
    return TaskRow(
        old.key, name, "finished" if is_reused else "skipped", old.attempt, old.started_s,
        old.ended_s if is_reused else event.at_s, old.ending,
        spent_microusd=old.spent_microusd + old.reserved_microusd,
        spent_tokens=old.spent_tokens + old.reserved_tokens,
        unpriced=old.unpriced + old.unpriced_in_flight,
    )  # fmt: skip


def _why(event: AttemptEnd) -> str:
    if isinstance(event, TaskFinished):
        return ""
    if isinstance(event, TaskStale):
        return f"stale: {event.what}"
    fault = event.fault
    return "" if fault is None else ": ".join(filter(None, (fault.kind, fault.detail)))


# Events as a journal keeps them: a kind, a version, a time and JSON.

KINDS: Final[dict[str, type[Fact]]] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(Fact)
}

EFFECTS: Final = ("effect_intended", "effect_done")


_WORDS: Final = {kind: word for word, kind in KINDS.items()}


def encode(event: Fact) -> tuple[str, str]:
    """The kind of the event, and the event as a JSON object."""
    try:
        text = to_json(event).decode()
    except UnicodeEncodeError:  # Names of files may hold what UTF-8 cannot say.
        text = "null"
    if "null" in text:  # Instead of an infinity, which msgspec does not write.
        text = json.dumps(to_builtins(event), separators=(",", ":"))
    return _WORDS[type(event)], text


def decode(kind: str, version: int, text: str) -> Fact:
    """The event that was written; JournalError if it was not one that is known here."""
    if version > VERSION or kind not in KINDS:
        raise JournalError(
            f"an event `{kind}` of version {version} was written by a newer headway",
            detail=f"this one reads versions up to {VERSION}",
            hint="use the headway that wrote it, or a newer one",
        )
    with suppress(MsgspecError, UnicodeEncodeError, RecursionError):
        return from_json(text, type=KINDS[kind])
    try:  # With an infinity, or what UTF-8 cannot say.
        return convert(json.loads(text), KINDS[kind])
    except (MsgspecError, ValueError, TypeError, RecursionError) as fault:
        raise JournalError(
            f"an event `{kind}` cannot be read", detail=f"{type(fault).__name__}: {fault}"[:200]
        ) from None
