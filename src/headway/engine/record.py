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
from binascii import b2a_base64
from collections.abc import Callable
from itertools import takewhile
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from typing import Final, Literal, get_args

from msgspec import MsgspecError, Struct, convert
from msgspec.structs import fields, replace

from headway.base.values import Fault
from headway.engine.events import (
    NOTHING,
    VERSION,
    CallAdmitted,
    CallWaited,
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


class MoneyReserved(Struct, frozen=True):
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


class EffectIntended(Struct, frozen=True):
    """An effect on the world is about to be performed: from now on it may have happened."""

    task: int
    at_s: float
    channel: str
    ordinal: int
    """Its number among the effects that the task asked for."""
    key: str
    """By which a receiver recognises an effect that it gets twice."""
    is_now: bool = False
    """Before its task was committed: outside the guarantee."""


class EffectDone(Struct, frozen=True):
    """An effect on the world has happened."""

    task: int
    at_s: float
    ordinal: int
    key: str
    receipt: bytes = b""
    """The digest of the receipt; empty if there was none."""


Fact = Event | MoneyReserved | ReplyKept | EffectIntended | EffectDone
"""Everything that is written down."""


class TaskRow(Struct, frozen=True):
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


class JournalEntry(Struct, frozen=True):
    """One event to be written, with all that belongs to it, in one transaction."""

    event: Fact
    key: bytes = b""
    """Of the task that the event is about; empty if it is about the run."""
    row: TaskRow | None = None
    bodies: tuple[bytes, ...] = ()
    """Texts that the event refers to by their digest."""


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


def fold(row: TaskRow | None, event: Fact, key: bytes, name: str) -> TaskRow:
    """The task's row after the event; its key and name are the caller's to know."""
    if row is None:
        if isinstance(event, TaskStarted):  # The usual case, once per task.
            return TaskRow(key, name, "started", event.attempt, event.at_s)
        row = TaskRow(key, name, "started")
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


def _ended(
    old: TaskRow,
    name: str,
    event: TaskFinished | TaskProposed | TaskStale | TaskDelayed | TaskFailed,
) -> TaskRow:
    state = _ENDS[type(event)]
    ending = event.ending
    # What was proposed has been paid for: that it is committed, or not, costs nothing.
    is_paid = old.state == "proposed" and old.attempt == event.attempt
    return TaskRow(
        old.key, name, state, event.attempt, old.started_s, event.at_s, ending, _why(event), 0,
        old.spent_microusd + (0 if is_paid else ending.spend_microusd),
        # After a delay the replies that were paid are still good; a new beginning has none.
        old.kept if state == "delayed" else (), 0,
        old.spent_tokens + (0 if is_paid else ending.spend_tokens),
        old.unpriced + (0 if is_paid else ending.unpriced),
    )  # fmt: skip


def _settled(old: TaskRow, name: str, event: TaskReused | TaskSkipped) -> TaskRow:
    """Without an attempt: the result of an earlier one is taken, or there is none to be had."""
    is_reused = isinstance(event, TaskReused)
    return TaskRow(
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


# Events as a journal keeps them: a kind, a version, a time and JSON.

Values = dict[str, object]

KINDS: Final[dict[str, type[Fact]]] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(Fact)
}
"""By the word on disk: `task_started`."""

EFFECTS: Final = ("effect_intended", "effect_done")
"""The kinds that say what was done to the world."""


def encode(event: Fact) -> tuple[str, str]:
    """The kind of the event, and all that it says except its time as a JSON object."""
    if isinstance(event, TaskStarted):
        reason = _quoted(event.reason)
        said = f'{{"task":{event.task},"attempt":{event.attempt},"reason":{reason}}}'
        return "task_started", said
    if isinstance(event, TaskFinished):
        said = f'{{"task":{event.task},"attempt":{event.attempt}{_ending(event.ending)}}}'
        return "task_finished", said
    if isinstance(event, CallWaited) and not event.refused:
        return "call_waited", f'{{"task":{event.task}}}'
    if isinstance(event, CallAdmitted) and not event.waited_for:
        return "call_admitted", f'{{"task":{event.task}}}'
    return _WORDS[type(event)], _dumps(_said(event))


def decode(kind: str, version: int, at_s: float, text: str) -> Fact:
    """The event that was written; JournalError if it was not one that is known here."""
    if version > VERSION or kind not in KINDS:
        raise JournalError(
            f"an event `{kind}` of version {version} was written by a newer headway",
            detail=f"this one reads versions up to {VERSION}",
            hint="use the headway that wrote it, or a newer one",
        )
    try:
        said = _loads(text)
        said["at_s"] = at_s
        event: Fact = convert(said, KINDS[kind])
    except (MsgspecError, ValueError, TypeError, RecursionError) as fault:
        raise JournalError(
            f"an event `{kind}` cannot be read", detail=f"{type(fault).__name__}: {fault}"[:200]
        ) from None
    return event


def _ending(ending: Ending) -> str:
    """By hand: this is written once per task."""
    if not ending.body and ending == NOTHING:
        return ""
    said = f',"ending":{{"body":"{_text(ending.body)}"'
    if ending.inputs:
        said += f',"inputs":"{_text(ending.inputs)}"'
    if ending.calls or ending.spend_microusd or ending.input_tokens or ending.output_tokens:
        said += (
            f',"input_tokens":{_number(ending.input_tokens)}'
            f',"output_tokens":{_number(ending.output_tokens)}'
            f',"spend_microusd":{ending.spend_microusd},"calls":{ending.calls}'
        )
    if ending.unpriced:
        said += f',"unpriced":{ending.unpriced}'
    if ending.exit_code is not None:
        said += f',"exit_code":{ending.exit_code}'
    if ending.extra_tokens:
        said += f',"extra_tokens":{ending.extra_tokens}'
    if ending.access:
        said += f',"access":"{_text(ending.access)}"'
    return said + (',"is_in_doubt":true}' if ending.is_in_doubt else "}")


def _text(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


def _number(value: float) -> str:
    return repr(value) if isfinite(value) else _dumps(value)


def _said(record: object) -> Values:
    said: Values = {}
    for name, default in _FIELDS[type(record)]:
        value = getattr(record, name)
        if value == default or name == "at_s":
            continue
        if isinstance(value, bytes):
            said[name] = _text(value)
        elif isinstance(value, (Ending, Fault)):
            said[name] = _said(value)
        else:
            said[name] = value
    return said


_WORDS: Final = {kind: word for word, kind in KINDS.items()}
_FIELDS: Final[dict[type, tuple[tuple[str, object], ...]]] = {
    kind: tuple((each.name, each.default) for each in fields(kind))
    for kind in (*KINDS.values(), Ending, Fault)
}
_loads: Final = json.JSONDecoder().decode
_dumps: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
