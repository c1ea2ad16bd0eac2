"""What happened in a run, line by line, and what a task's attempts have put out."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from headway.core.engine.events import NOTHING
from headway.core.engine.record import Row
from headway.errors import BadValueError, did_you_mean
from headway.runtime.adoption import shim_name
from headway.runtime.journal_reader import JournalReader, Recorded
from headway.runtime.shell import read_shim_log
from headway.watch.follow import facts
from headway.watch.glance import find_row, finite
from headway.watch.harvest import NAMES_HINTED_MAX, json_line
from headway.watch.telling import told
from headway.watch.words import clock, one_line

if TYPE_CHECKING:
    from typing import TextIO

NAME_CELLS_MAX: Final = 60

OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Of one attempt's output: its end, where errors are; all of a result is in `headway results`."""


class Names:
    """Tasks by key, read from the journal when one is met that is not known yet."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._known: dict[bytes, str] = {}

    def __repr__(self) -> str:
        return f"<Names of {len(self._known)} tasks>"

    def statistics(self) -> int:
        """How many are known."""
        return len(self._known)

    def of(self, key: bytes) -> str:
        """A task's name."""
        if not key:
            return ""
        name = self._known.get(key)
        if name is None:
            row = self._reader.row(key)
            name = self._known[key] = key.hex()[:8] if row is None else row.name
        return name


def find_task(reader: JournalReader, name: str) -> Row:
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants to read of a run."""

    task: str | None = None
    is_json: bool = False
    is_followed: bool = False


def write_logs(stream: TextIO, reader: JournalReader, folder: str, wanted: Wanted) -> None:
    """Write every fact, of the run or of one task; then, of a task, what it put out."""
    key = None if wanted.task is None else find_task(reader, wanted.task).key
    names = Names(reader)
    for recorded in facts(reader, key, wanted.is_followed):
        name = names.of(recorded.key)
        line = _as_json(recorded, name) if wanted.is_json else _line(recorded, name)
        stream.write(line + "\n")
        if wanted.is_followed:
            stream.flush()
    if key is not None and not wanted.is_json:
        _write_output(stream, reader, folder, key)


def _line(recorded: Recorded, name: str) -> str:
    event = recorded.event
    return f"{clock(event.at_s, event.at_s)}  {told(event, one_line(name, NAME_CELLS_MAX))}"


def _as_json(recorded: Recorded, name: str) -> str:
    event = recorded.event
    shown: dict[str, object] = {"seq": recorded.seq, "event": type(event).__name__}
    if recorded.key:
        shown |= {"name": name, "key": recorded.key.hex()}
    return json_line(finite(_plain(shown | asdict(event))))


def _plain(value: object) -> object:
    """Digests as people write them."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def _write_output(stream: TextIO, reader: JournalReader, folder: str, key: bytes) -> None:
    """What a command's attempts wrote, each to where it wrote it; of any other task, its result."""
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
