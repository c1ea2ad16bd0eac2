"""Shows the events of a run and the output of its attempts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Final, TextIO

from msgspec.structs import asdict

from headway.base.values import Fault
from headway.journal.reader import JournalReader, RecordedEvent
from headway.plans.resources import is_every_file, shown_key
from headway.report.text.run_view import find_row, is_owned, unknown_task
from headway.report.text.terminal import clean
from headway.report.text.words import (
    clock,
    count,
    counts,
    duration,
    fault_line,
    finite,
    json_line,
    one_line,
    usage_words,
    usd,
)

DETAIL_MAX: Final = 300
"""Characters of a provider's or a program's words in one line."""


def event_words(event: Any, name: str) -> str:
    """What happened, in words; `name` is its task's."""
    kind = type(event).__name__
    if words := TASK_WORDS.get(kind):
        return f"{name}  {words(event)}"
    return RUN_WORDS.get(kind, lambda _: kind)(event)


def _delayed(event: Any) -> str:
    if event.again_s == inf:
        return f"not sent: {_fault(event.fault)}"
    again = duration(max(0.0, event.again_s - event.at_s))
    return f"attempt {event.attempt} failed, again in {again}: {_fault(event.fault)}"


def _proposed(event: Any) -> str:
    if event.fault is None:
        return f"has a result{_took(event.ending)}, and waits for those before it"
    return f"failed, unless those before it change what it read: {_fault(event.fault)}"


def _stale(event: Any) -> str:
    if is_every_file(event.what):
        return f"other work has landed: its searches and checks are repeated{_took(event.ending)}"
    what = f"`{_shortened(shown_key(event.what))}`" if event.what else "what it had read"
    what += ", which it had read," if event.what else ""
    return f"runs again: {what} has changed{_took(event.ending)}"


def _held(event: Any) -> str:
    until = "held" if event.until_s == inf else f"waits until {clock(event.until_s, event.at_s)}"
    return f"{until}: {_shortened(event.reason)}"


def _over(event: Any) -> str:
    words = counts(
        (event.failed, "failed"), (event.skipped, "skipped"), (event.left, "not started"),
        (event.effects, "effects not performed"),
    )  # fmt: skip
    return f"over: {', '.join([f'{event.finished:,} finished', *words])}"


def _reserved(event: Any) -> str:
    tokens = [f"{event.tokens:,} tokens"] if event.tokens else []
    return (
        f"may take up to {', '.join([*tokens, *([usd(event.microusd)] if event.microusd else [])])}"
    )


def stuck_words(quiet_s: float) -> str:
    if not quiet_s:
        return "goes on: it was not stuck"
    return f"may be stuck: no output, no call and no CPU for {duration(quiet_s)}"


# By the names of the events: a line of a log is what was written, and nothing is concluded from it.

TASK_WORDS: Final[dict[str, Callable[[Any], str]]] = {
    "TaskStarted": lambda one: (
        f"started{f', attempt {one.attempt}' if one.attempt > 1 else ''}: {one.reason}"
    ),
    "CallWaited": lambda _: "waits for a limit",
    "CallAdmitted": lambda _: "has its permit",
    "AttemptStuck": lambda one: stuck_words(one.quiet_s),
    "TaskFinished": lambda one: (
        "done: an earlier result holds" if one.ending.is_renewed else f"done{_took(one.ending)}"
    ),
    "TaskReused": lambda _: "reused: its result from before still holds",
    "TaskDelayed": _delayed,
    "TaskFailed": lambda one: f"failed after {count(one.attempt, 'attempt')}: {_fault(one.fault)}",
    "TaskSkipped": lambda _: "skipped: something that it needs has failed",
    "TaskProposed": _proposed,
    "TaskStale": _stale,
    "MoneyReserved": _reserved,
    "ReplyKept": lambda _: "a reply is kept",
    "EffectIntended": lambda one: (
        f"effect {_shortened(one.channel)} is performed{', at once' if one.is_now else ''}, "
        f"key {one.key}"
    ),
    "EffectDone": lambda one: f"effect {one.key} is done",
}
RUN_WORDS: Final[dict[str, Callable[[Any], str]]] = {
    "RunBegan": lambda one: f"the run begins, {one.strategy}",
    "GroupExpanded": lambda one: f"a group has {count(one.count, 'task')}",
    "WaveBegan": lambda one: f"wave {one.number} of {one.of}",
    "RunHeld": _held,
    "RunContinued": lambda _: "goes on",
    "RunStopping": lambda one: f"stops{' now' if one.is_now else ''}: {_shortened(one.reason)}",
    "RunFinished": _over,
    "LimitsSeen": lambda one: f"looked at {count(len(one.limits), 'limit')}",
}


def _shortened(text: str) -> str:
    line = " ".join(clean(text).split())
    return line if len(line) <= DETAIL_MAX else f"{line[:DETAIL_MAX]}…"


def _fault(fault: Fault) -> str:
    return _shortened(fault_line(f"{fault.kind}: {fault.detail}" if fault.detail else fault.kind))


def _took(ending: Any) -> str:
    words = usage_words(
        ending.input_tokens, ending.output_tokens, ending.spend_microusd, ending.unpriced
    )
    return f": {', '.join(words)}" if words else ""


LOOK_S: Final = 0.5


def facts(reader: JournalReader, key: bytes | None, is_followed: bool) -> Iterator[RecordedEvent]:
    """What happened, in order; followed, also what happens, until the run is over."""
    last = 0
    while True:
        is_over = not is_followed or not is_owned(reader.folder)
        for recorded in reader.events(last, key):
            last = recorded.seq
            yield recorded
        if is_over:
            return
        time.sleep(LOOK_S)


OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Of one attempt's output: its end, where errors are; all of a result is in `headway results`."""


def write_logs(
    stream: TextIO,
    reader: JournalReader,
    folder: str,
    task: str | None = None,
    *,
    is_json: bool = False,
    is_followed: bool = False,
) -> None:
    """Write every fact, of the run or of one task; then, of a task, what it put out."""
    key = None
    if task is not None:
        row = find_row(reader, task)
        if row is None:
            raise unknown_task(reader, task)
        key = row.key
    names = {b"": ""}
    for recorded in facts(reader, key, is_followed):
        name = names.get(recorded.key)
        if name is None:
            row = reader.row(recorded.key)
            name = recorded.key.hex()[:8] if row is None else row.name
            names[recorded.key] = name
        event = recorded.event
        if is_json:
            shown: dict[str, object] = {"seq": recorded.seq, "event": type(event).__name__}
            if recorded.key:
                shown |= {"name": name, "key": recorded.key.hex()}
            line = json_line(finite(shown | asdict(event)))
        else:
            words = event_words(event, one_line(name))
            line = f"{clock(event.at_s, event.at_s)}  {words}"
        stream.write(line + "\n")
        if is_followed:
            stream.flush()
    if key is not None and not is_json:
        _write_output(stream, reader, folder, key)


def _write_output(stream: TextIO, reader: JournalReader, folder: str, key: bytes) -> None:
    """What a command's attempts wrote, each to where it wrote it; of any other task, its result."""
    from headway.agents.shell import read_shim_log, shim_name

    endings = (getattr(recorded.event, "ending", None) for recorded in reader.events(key=key))
    names = {shim_name(key, b"" if ending is None else ending.inputs) for ending in endings}
    ended = read_shim_log(folder, lambda name, _: name in names)
    for (_, number), attempt in sorted(ended.items(), key=lambda pair: pair[0][1]):
        stream.write(f"\nattempt {number}: {attempt.reason} {attempt.code}\n")
        _show(stream, attempt.stdout.tail(OUTPUT_BYTES_MAX))
        stream.flush()
        _show(sys.stderr, attempt.stderr.tail(OUTPUT_BYTES_MAX))
    row = reader.row(key)
    if row is None or ended:
        return
    if row.fault:
        print(row.fault, file=sys.stderr)
    body = reader.body(row.ending.body) if row.ending.body else None
    if body is not None:
        stream.write("\n")
        _show(stream, body)


def _show(stream: TextIO, output: bytes) -> None:
    text = output.decode("utf-8", "replace")
    stream.write(text)
    if text and not text.endswith("\n"):
        stream.write("\n")
