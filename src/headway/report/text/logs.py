"""Shows the events of a run and the output of its attempts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from headway.base.codec import as_dict
from headway.base.numbers import short
from headway.base.values import Fault
from headway.engine.events import (
    NOTHING,
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
from headway.engine.record import (
    EffectDone,
    EffectIntended,
    Fact,
    MoneyReserved,
    ReplyKept,
    TaskRow,
)
from headway.errors import BadValueError, did_you_mean
from headway.journal.reader import JournalReader, RecordedEvent
from headway.report.text.results import NAMES_HINTED_MAX, json_line
from headway.report.text.runs import (
    count_words,
    find_row,
    look,
    state_words,
    status_lines,
)
from headway.report.text.terminal import clean
from headway.report.text.words import (
    clock,
    cost,
    count,
    duration,
    fault_line,
    finite,
    one_line,
    usd,
)

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import Console


# Each fact of a run as one line of words, for logs and for places where nothing can be drawn.

DETAIL_MAX: Final = 300
"""Characters of a provider's or a program's words in one line."""


def told(event: Fact, name: str) -> str:
    """What happened, in words; `name` is its task's."""
    match event:
        case TaskStarted() | CallWaited() | CallAdmitted() | MoneyReserved() | ReplyKept():
            return f"{name}  {_going(event)}"
        case EffectIntended(channel=channel, key=key, is_now=is_now):
            words = ", at once" if is_now else ""
            return f"{name}  effect {shortened(channel)} is performed{words}, key {key}"
        case EffectDone(key=key):
            return f"{name}  effect {key} is done"
        case TaskFinished() | TaskReused() | TaskDelayed() | TaskFailed() | TaskSkipped():
            return f"{name}  {_ended(event)}"
        case TaskProposed() | TaskStale():
            return f"{name}  {_judged(event)}"
        case _:
            return _run(event)


def _going(
    event: TaskStarted | CallWaited | CallAdmitted | MoneyReserved | ReplyKept,
) -> str:
    match event:
        case TaskStarted(attempt=1, reason=reason):
            return f"started: {reason}"
        case TaskStarted(attempt=attempt, reason=reason):
            return f"started, attempt {attempt}: {reason}"
        case CallWaited():
            return "waits for a permit"
        case CallAdmitted():
            return "has its permit"
        case MoneyReserved(microusd=microusd, tokens=tokens):
            words = [f"{tokens:,} tokens"] if tokens else []
            return f"may take up to {', '.join([*words, *([usd(microusd)] if microusd else [])])}"
        case ReplyKept():
            return "a reply is kept"


def _ended(event: TaskFinished | TaskReused | TaskDelayed | TaskFailed | TaskSkipped) -> str:
    match event:
        case TaskFinished(ending=ending):
            return f"finished{_took(ending)}"
        case TaskReused():
            return "finished before: its result still holds"
        case TaskDelayed(attempt=attempt, fault=fault):
            words = _fault(fault)
            if event.again_s == inf:
                return f"not sent: {words}"
            again = duration(max(0.0, event.again_s - event.at_s))
            return f"attempt {attempt} failed, again in {again}: {words}"
        case TaskFailed(attempt=attempt, fault=fault):
            words = _fault(fault)
            return f"failed after {count(attempt, 'attempt')}: {words}"
        case TaskSkipped():
            return "skipped: something that it needs has failed"


def _judged(event: TaskProposed | TaskStale) -> str:
    match event:
        case TaskProposed(ending=ending, fault=None):
            return f"has a result{_took(ending)}, and waits for those before it"
        case TaskProposed(fault=Fault() as fault):
            return f"failed, unless those before it change what it read: {_fault(fault)}"
        case TaskStale(what=what, ending=ending) if what:
            return f"runs again: `{shortened(what)}`, which it had read, has changed{_took(ending)}"
    return f"runs again: what it had read has changed{_took(event.ending)}"


def _run(event: Fact) -> str:
    words = type(event).__name__
    match event:
        case RunBegan(strategy=strategy):
            words = f"the run begins, {strategy}"
        case GroupExpanded(count=number):
            words = f"a group has {count(number, 'task')}"
        case WaveBegan(number=number, of=of):
            words = f"wave {number} of {of}"
        case RunHeld(until_s=until_s, reason=reason) if until_s == inf:
            words = f"held: {shortened(reason)}"
        case RunHeld(until_s=until_s, reason=reason):
            words = f"waits until {clock(until_s, event.at_s)}: {shortened(reason)}"
        case RunContinued():
            words = "goes on"
        case RunStopping(reason=reason, is_now=is_now):
            words = f"stops{' now' if is_now else ''}: {shortened(reason)}"
        case RunFinished():
            words = over(event)
        case _:
            pass
    return words


def over(event: RunFinished) -> str:
    """`over: 20 finished, 1 failed, 1 skipped`."""
    words = [f"{event.finished:,} finished"]
    for number, word in (
        (event.failed, "failed"), (event.skipped, "skipped"), (event.left, "not started"),
        (event.effects, "effects not performed"),
    ):  # fmt: skip
        if number:
            words.append(f"{number:,} {word}")
    return f"over: {', '.join(words)}"


def shortened(text: str) -> str:
    """Other people's words on one line."""
    line = " ".join(clean(text).split())
    return line if len(line) <= DETAIL_MAX else f"{line[:DETAIL_MAX]}…"


def _fault(fault: Fault) -> str:
    return shortened(fault_line(f"{fault.kind}: {fault.detail}" if fault.detail else fault.kind))


def _took(ending: Ending) -> str:
    words = []
    if ending.input_tokens or ending.output_tokens:
        words.append(f"{short(ending.input_tokens)} tokens in, {short(ending.output_tokens)} out")
    if ending.spend_microusd or ending.unpriced:
        words.append(cost(ending.spend_microusd, ending.unpriced))
    return f": {', '.join(words)}" if words else ""


# Watching a run of another process: its journal is looked at again and again until it is over.

LOOK_S: Final = 0.5
"""How often somebody who watches is shown something new."""

LINE_S: Final = 30.0
"""How often a line is written where nothing can be drawn."""


def watch_status(reader: JournalReader, console: Console) -> None:
    """Show a run until no process performs it."""
    if console.is_terminal and not console.is_dumb_terminal:
        _draw(reader, console)
    else:
        _write(reader, console)


def facts(reader: JournalReader, key: bytes | None, is_followed: bool) -> Iterator[RecordedEvent]:
    """What happened, in order; followed, also what happens, until the run is over."""
    last = 0
    while True:
        is_over = not is_followed or not look(reader).verdict.is_live
        for recorded in reader.events(last, key):
            last = recorded.seq
            yield recorded
        if is_over:
            return
        time.sleep(LOOK_S)


def _draw(reader: JournalReader, console: Console) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            glance = look(reader)
            if not glance.verdict.is_live:
                return
            lines = status_lines(glance, reader, console.width)
            live.update(Group(*lines), refresh=True)
            _wait(reader)


def _write(reader: JournalReader, console: Console) -> None:
    said, said_s = "", 0.0
    while (glance := look(reader)).verdict.is_live:
        name = one_line(glance.header.name, 40)
        words = f"{name}: {state_words(glance)}, {count_words(glance)}"
        if words != said and time.monotonic() - said_s >= LINE_S:
            console.print(words, soft_wrap=True)
            said, said_s = words, time.monotonic()
        _wait(reader)


def _wait(reader: JournalReader) -> None:
    """Until something was written, or long enough that times have changed."""
    until_s = time.monotonic() + 2 * LOOK_S
    time.sleep(LOOK_S)
    while not reader.has_changed() and time.monotonic() < until_s:
        time.sleep(LOOK_S / 5)


NAME_CELLS_MAX: Final = 60

OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Of one attempt's output: its end, where errors are; all of a result is in `headway results`."""


def find_task(reader: JournalReader, name: str) -> TaskRow:
    """The task of this name; `BadValueError` with the nearest if none has it."""
    found = find_row(reader, name)
    if found is not None:
        return found
    known = [row.name for row in islice(reader.rows(), NAMES_HINTED_MAX)]
    if not known:
        raise BadValueError("no task has started in this run yet", hint="headway status")
    raise BadValueError(
        f"no task `{one_line(name, NAME_CELLS_MAX)}` has started in this run",
        hint=did_you_mean(name, known),
    )


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
    key = None if task is None else find_task(reader, task).key
    names = {b"": ""}
    for recorded in facts(reader, key, is_followed):
        name = names.get(recorded.key)
        if name is None:
            row = reader.row(recorded.key)
            name = recorded.key.hex()[:8] if row is None else row.name
            names[recorded.key] = name
        line = _as_json(recorded, name) if is_json else _line(recorded, name)
        stream.write(line + "\n")
        if is_followed:
            stream.flush()
    if key is not None and not is_json:
        _write_output(stream, reader, folder, key)


def _line(recorded: RecordedEvent, name: str) -> str:
    event = recorded.event
    return f"{clock(event.at_s, event.at_s)}  {told(event, one_line(name, NAME_CELLS_MAX))}"


def _as_json(recorded: RecordedEvent, name: str) -> str:
    event = recorded.event
    shown: dict[str, object] = {"seq": recorded.seq, "event": type(event).__name__}
    if recorded.key:
        shown |= {"name": name, "key": recorded.key.hex()}
    return json_line(finite(_plain(shown | as_dict(event))))


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def _write_output(stream: TextIO, reader: JournalReader, folder: str, key: bytes) -> None:
    """What a command's attempts wrote, each to where it wrote it; of any other task, its result."""
    from headway.agents.command import shim_name
    from headway.agents.shell import read_shim_log

    endings = (getattr(recorded.event, "ending", NOTHING) for recorded in reader.events(key=key))
    names = {shim_name(key, ending.inputs) for ending in endings}
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
