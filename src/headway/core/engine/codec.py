"""Events as a journal keeps them: a kind, a time and JSON, in a version that outlives this one.

Laws:
- What was written is read back equal.
- An event of an older version is brought up to date when it is read; one of a newer version is
  refused, never guessed at.
- A field that is missing takes its default, so what is usual is not written at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from types import NoneType
from typing import Final, TypeVar, get_args, get_type_hints

from headway.core.engine.events import (
    NOTHING,
    VERSION,
    CallAdmitted,
    CallWaited,
    Ending,
    GroupExpanded,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskSkipped,
    TaskStale,
    TaskStarted,
    WaveBegan,
)
from headway.core.engine.record import (
    EffectDone,
    EffectIntended,
    Fact,
    MoneyReserved,
    ReplyKept,
)
from headway.core.values import Fault, FaultKind, Resource
from headway.errors import JournalError

Values = dict[str, object]
Upcast = Callable[[Values], Values]
Read = Callable[[object], object]
Shape = tuple[tuple[str, object, Read], ...]
"""Name, default and reader of each field of a record."""
T = TypeVar("T")

KINDS: Final[dict[str, type[Fact]]] = {
    "run_began": RunBegan,
    "group_expanded": GroupExpanded,
    "wave_began": WaveBegan,
    "task_started": TaskStarted,
    "task_finished": TaskFinished,
    "task_proposed": TaskProposed,
    "task_stale": TaskStale,
    "task_reused": TaskReused,
    "task_delayed": TaskDelayed,
    "task_failed": TaskFailed,
    "task_skipped": TaskSkipped,
    "call_waited": CallWaited,
    "call_admitted": CallAdmitted,
    "run_held": RunHeld,
    "run_continued": RunContinued,
    "run_stopping": RunStopping,
    "run_finished": RunFinished,
    "money_reserved": MoneyReserved,
    "reply_kept": ReplyKept,
    "effect_intended": EffectIntended,
    "effect_done": EffectDone,
}
"""The words are on disk: a class may be renamed, its word may not."""

EFFECTS: Final = ("effect_intended", "effect_done")
"""The kinds that say what was done to the world."""

UPCASTS: Final[dict[tuple[str, int], Upcast]] = {}
"""By kind and version: what an event of that version says in the next one. Kinds that are not
here have not changed."""


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
        for old in range(version, VERSION):
            said = UPCASTS.get((kind, old), _unchanged)(said)
        said["at_s"] = at_s
        return _rebuilt(KINDS[kind], said)
    except (ValueError, TypeError, KeyError, RecursionError) as fault:
        raise JournalError(
            f"an event `{kind}` cannot be read", detail=f"{type(fault).__name__}: {fault}"[:200]
        ) from None


def _ending(ending: Ending) -> str:
    """By hand: this is written once per task."""
    if not ending.body and ending == NOTHING:
        return ""
    said = f',"ending":{{"body":"{ending.body.hex()}"'
    if ending.inputs:
        said += f',"inputs":"{ending.inputs.hex()}"'
    if ending.calls or ending.spend_microusd or ending.input_tokens or ending.output_tokens:
        said += (
            f',"input_tokens":{_number(ending.input_tokens)}'
            f',"output_tokens":{_number(ending.output_tokens)}'
            f',"spend_microusd":{ending.spend_microusd},"calls":{ending.calls}'
        )
    if ending.exit_code is not None:
        said += f',"exit_code":{ending.exit_code}'
    if ending.extra_tokens:
        said += f',"extra_tokens":{ending.extra_tokens}'
    if ending.access:
        said += f',"access":"{ending.access.hex()}"'
    return said + (',"is_in_doubt":true}' if ending.is_in_doubt else "}")


def _number(value: float) -> str:
    return repr(value) if isfinite(value) else _dumps(value)


def _said(record: object) -> Values:
    """A record's fields that are not at their default, as JSON values."""
    said: Values = {}
    for name, default, _ in _shape(type(record)):
        value = getattr(record, name)
        if value == default or name == "at_s":
            continue
        if isinstance(value, bytes):
            said[name] = value.hex()
        elif isinstance(value, (Ending, Fault)):
            said[name] = _said(value)
        else:
            said[name] = value
    return said


def _rebuilt(kind: type[T], said: object) -> T:
    if not isinstance(said, dict):
        raise TypeError(f"{kind.__name__} is an object")
    found: list[object] = []
    for name, default, read in _SHAPES.get(kind) or _shape(kind):
        value = said.get(name, MISSING)
        if value is not MISSING:
            found.append(read(value))
        elif default is MISSING:
            raise KeyError(name)
        else:
            found.append(default)
    return kind(*found)


def _shape(kind: type) -> Shape:
    known = _SHAPES.get(kind)
    if known is None:
        hints = get_type_hints(kind)
        known = _SHAPES[kind] = tuple(
            (each.name, each.default, _READERS[hints[each.name]]) for each in fields(kind)
        )
    return known


def _plain(*kinds: type) -> Read:
    first = kinds[0]

    def read(value: object) -> object:
        if type(value) is not first and type(value) not in kinds:
            raise TypeError(f"{value!r:.40} is not of type {kinds[0].__name__}")
        return value

    return read


def _one_of(words: tuple[object, ...]) -> Read:
    def read(value: object) -> object:
        if value not in words:
            raise ValueError(f"{value!r:.40} is not a word that is known here")
        return value

    return read


def _bytes(value: object) -> object:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a string")
    return bytes.fromhex(value)


def _unchanged(said: Values) -> Values:
    return said


_WORDS: Final = {kind: word for word, kind in KINDS.items()}
_READERS: Final[dict[object, Read]] = {
    int: _plain(int),
    float: _plain(float, int),
    str: _plain(str),
    bool: _plain(bool),
    bytes: _bytes,
    int | None: _plain(int, NoneType),
    float | None: _plain(float, int, NoneType),
    FaultKind: _one_of(get_args(FaultKind)),
    Resource | None: _one_of((None, *get_args(Resource))),
    Ending: lambda said: _rebuilt(Ending, said),
    Fault: lambda said: _rebuilt(Fault, said),
    Fault | None: lambda said: None if said is None else _rebuilt(Fault, said),
}
_SHAPES: Final[dict[type, Shape]] = {}
_loads: Final = json.JSONDecoder().decode
_dumps: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
