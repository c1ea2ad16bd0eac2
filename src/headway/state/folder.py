"""The shared state for commands: a folder with one file per key.

Laws:
- Every key has one file, and every file is one key's: nothing is lost on the way to the folder
  and back, whatever a key is called. `docs/coherence.md` says how names are written.
- What a command left behind is a stranger's: links, pipes and devices are refused, not followed;
  nothing is read that is longer than a value may be.
- All of what it changed is taken, or nothing is.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, TypeVar

from msgspec import Struct

from headway.base import locks as owner
from headway.base.values import Fault
from headway.errors import HeadwayError, StateError
from headway.plans.resources import above, is_pattern, prefix_of
from headway.plans.spec import TaskSpec
from headway.state.context import Lent, Reach
from headway.state.shared import VALUE_BYTES_MAX, Channels, canonical, must_be_key
from headway.work import Attempt, AttemptError, Result

VIEWS: Final = "views"
"""In a run's folder: the folders of the commands that run now."""

NAME_BYTES_MAX: Final = 240
"""Of one name in a path: systems take 255, and the mark of a name that goes on needs two."""

FILES_MAX: Final = 100_000
BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one folder; a task that needs more declares what it reads."""

DEPTH_MAX: Final = 220
"""Folders within each other: a key has at most 400 characters, and so at most 200 names."""

RUNS_MAX: Final = 100
"""The newest runs, among which those are looked for that were killed."""

LINES_MAX: Final = 100_000

OWN: Final = "%"
"""The file with the value of a key that is a folder too."""
ON: Final = "%+"
"""At the end of a name that goes on in the next one."""
_ESCAPED: Final = re.compile(r"%(25|2E|2e)")

Values = Sequence[tuple[str, bytes]]
"""Keys with their values as JSON, in order."""
Changed = tuple[str, object]


class UnfitError(Exception):
    """What a command left behind cannot become a part of the state."""


class StateFolder:
    """The folder of one attempt; there is nothing on disk before `lay_out` and after `remove`."""

    def __init__(self, run_folder: str, name: str, channels: Channels) -> None:
        self._parent = os.path.join(run_folder, VIEWS)
        self._name = name
        self._channels = channels
        self._home = self.state = self.put = ""
        self._shown: dict[str, bytes] = {}

    @property
    def environment(self) -> dict[str, str]:
        return {"HEADWAY_STATE": self.state, "HEADWAY_PUT": self.put}

    def lay_out(self, values: Values) -> None:
        total = sum(len(data) for _, data in values)
        if len(values) > FILES_MAX or total > BYTES_MAX:
            raise StateError(
                f"a command cannot be shown {len(values):,} keys with {total:,} bytes",
                hint="declare the keys that it needs: `reads: state:KEY`",
            )
        try:
            os.makedirs(self._parent, mode=0o700, exist_ok=True)
            self._home = tempfile.mkdtemp(prefix=f"{self._name}.", dir=self._parent)
            self.state = os.path.join(self._home, "state")
            self.put = os.path.join(self._home, "put")
            self._write(values)
        except OSError as fault:
            raise StateError(
                f"the state cannot be written for a command: {fault.strerror}",
                where=str(fault.filename or self._home),
            ) from None

    def changes(self) -> tuple[list[Changed], list[str], list[Changed]]:
        """What differs from what was written: values put, keys removed, what is added to channels.
        UnfitError if the files are not valid."""
        files = _read_all(self.state)
        put: list[Changed] = []
        for key, data in sorted(files.items()):
            shown = self._shown.get(key)
            if shown is not None and data == _as_file(shown):
                continue
            value = _value(key, data, shown)
            if shown is not None and canonical(value) == shown:
                continue
            self._must_be_value(key)
            put.append((key, value))
        removed = [key for key in self._shown if key not in files]
        for key in removed:
            self._must_be_value(key)
        return put, removed, list(self._additions())

    def remove(self) -> None:
        """Nothing is left of it, whatever the command did to its permissions."""
        if self._home:
            _remove(self._home)

    def _write(self, values: Values) -> None:
        self._shown = dict(values)
        folders = {folder for key, _ in values for folder in above(key)}
        os.mkdir(self.state, 0o700)
        os.mkdir(self.put, 0o700)
        made = {self.state}
        for key, data in values:
            path = os.path.join(self.state, *names_of(key, key in folders))
            _make_parents(path, made)
            is_own = self._channels.of(key).kind == "value"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(path, flags, 0o600 if is_own else 0o400), "wb") as file:
                file.write(_as_file(data))
        made = {self.put}
        for key, channel in self._channels.declared.items():
            folder = prefix_of(key) if is_pattern(key) else key.rpartition("/")[0]
            if folder and channel.kind != "value":
                _make_parents(os.path.join(self.put, *names_of(folder), "_"), made)

    def _additions(self) -> Iterator[Changed]:
        for key, data in sorted(_read_all(self.put).items()):
            if self._channels.of(key).kind == "value":
                raise UnfitError(
                    f"`{key}` holds a value: write it to $HEADWAY_STATE/{key}, "
                    f"or declare `{key}: append` under `state:`"
                )
            lines = _text(f"$HEADWAY_PUT/{key}", data).split("\n")
            if len(lines) > LINES_MAX:
                raise UnfitError(f"$HEADWAY_PUT/{key} has more than {LINES_MAX:,} lines")
            for line in lines:
                if line.strip():
                    yield key, _json_or_text(line.removesuffix("\r"))

    def _must_be_value(self, key: str) -> None:
        kind = self._channels.of(key).kind
        if kind != "value":
            raise UnfitError(
                f"`{key}` is a channel of kind `{kind}` and its file is for reading: "
                f"write a line to $HEADWAY_PUT/{key}"
            )


def seen_by(reach: Reach, reads: Sequence[str] | None) -> Values:
    """What a task may see, by the keys and patterns that it declares; all of it without any."""
    if reads is None:
        return reach.scan("**")
    found: dict[str, bytes] = {}
    for what in reads:
        if is_pattern(what):
            found.update(reach.scan(what))
            continue
        if (data := reach.get(what)) is not None:
            found[what] = data
        found.update(reach.scan(f"{what}/**"))  # It may be a folder.
    return sorted(found.items())


def sweep(run_folder: str) -> None:
    """Remove what processes left that were killed: of this run, which we own, and of dead ones."""
    runs = os.path.dirname(run_folder)
    for name in sorted(os.listdir(runs), reverse=True)[:RUNS_MAX]:
        folder = os.path.join(runs, name)
        views = os.path.join(folder, VIEWS)
        if os.path.isdir(views) and not os.path.islink(views):
            found = owner.look(folder)
            # A folder without an owner is not known to be a run.
            if folder == run_folder or (found is not None and not found.is_alive):
                _remove(views)


def write_values(place: str, values: Mapping[str, bytes]) -> None:
    """A new folder with a file for each key, as commands find them."""
    within = {folder for key in values for folder in above(key)}
    os.mkdir(place, 0o700)
    made = {place}
    for key, data in values.items():
        path = os.path.join(place, *names_of(key, key in within))
        _make_parents(path, made)
        with open(path, "wb") as file:
            file.write(_as_file(data))


def names_of(key: str, is_folder: bool = False) -> list[str]:
    names: list[str] = []
    for segment in key.split("/"):
        names += _pieces(segment.replace("%", "%25"))
    return [*names, OWN] if is_folder else names


def key_of(names: Sequence[str]) -> str | None:
    """The key whose file this is; None if no key's file is called like this."""
    segments: list[str] = []
    begun = ""
    *folders, last = names
    for name in folders if folders and last == OWN else names:
        text = name.removesuffix(ON)
        if not text or "%" in _ESCAPED.sub("", text):
            return None
        begun += _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
        if not name.endswith(ON):
            segments.append(begun)
            begun = ""
    return None if begun else "/".join(segments)


def _pieces(word: str) -> list[str]:
    """A name of a path, or several where one would be too long."""
    pieces = [word]
    while len(pieces[-1].encode()) > NAME_BYTES_MAX:
        long = pieces.pop()
        end = len(long.encode()[:NAME_BYTES_MAX].decode(errors="ignore"))
        # An escape stays in one piece.
        end = long.rfind("%", end - 2, end) if "%" in long[end - 2 : end] else end
        pieces += [long[:end] + ON, long[end:]]
    return [piece.replace(".", "%2E") if piece in (".", "..") else piece for piece in pieces]


def _make_parents(path: str, made: set[str]) -> None:
    folder = os.path.dirname(path)
    missing: list[str] = []
    while folder not in made:
        missing.append(folder)
        folder = os.path.dirname(folder)
    for one in reversed(missing):
        os.mkdir(one, 0o700)
        made.add(one)


def _as_file(data: bytes) -> bytes:
    """A text as it is, anything else as JSON; the last line has an end, as in any text file."""
    return (json.loads(data).encode() if data.startswith(b'"') else data) + b"\n"


def _value(key: str, data: bytes, shown: bytes | None) -> object:
    """What a file says: JSON where that was JSON, a text otherwise."""
    where = f"$HEADWAY_STATE/{key}"
    text = _text(where, data).removesuffix("\n")
    if shown is None or shown.startswith(b'"'):
        return text
    try:
        return _json(text)
    except (ValueError, RecursionError) as fault:
        raise UnfitError(f"{where} was JSON and is not any more: {fault}"[:300]) from None


def _json_or_text(line: str) -> object:
    try:
        return _json(line)
    except (ValueError, RecursionError):
        return line


def _json(text: str) -> object:
    value = json.loads(text, parse_constant=_no_number)
    try:
        canonical(value)
    except StateError as error:
        raise ValueError(error.detail) from None
    return value


def _no_number(word: str) -> object:
    raise ValueError(f"JSON has no {word}")


def _text(where: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        raise UnfitError(f"{where} is no text: byte {fault.start} is not UTF-8") from None


def _read_all(folder: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    total = 0
    for names, data in _files(folder):
        key = _checked_key(names)
        if key in found:
            raise UnfitError(f"two files are both `{key}`; one is {'/'.join(names)}")
        found[key] = data
        total += len(data)
        if len(found) > FILES_MAX or total > BYTES_MAX:
            raise UnfitError(f"there are more than {FILES_MAX:,} files or {BYTES_MAX:,} bytes")
    return found


def _checked_key(names: Sequence[str]) -> str:
    path = "/".join(names)
    try:
        path.encode()
        key = key_of(names)
        if key is None:
            raise UnfitError(f"`{path}` is the file of no key: a `%` in a key is written `%25`")
        must_be_key(key)
    except UnicodeEncodeError:
        raise UnfitError(f"the name of {path!a} is not UTF-8") from None
    except StateError as error:
        raise UnfitError(f"`{path}`: {error.message}; {error.hint}") from None
    return key


def _files(folder: str) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """All files below a folder with what is in them, without following anything anywhere."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as fault:
        raise UnfitError(f"the folder of the state cannot be read: {fault.strerror}") from None
    with _closing(handle):
        yield from _files_in(handle, ())


def _files_in(handle: int, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bytes]]:
    if len(names) > DEPTH_MAX:
        raise UnfitError(f"there are more than {DEPTH_MAX} folders within each other")
    with os.scandir(handle) as entries:
        found = sorted(entry.name for entry in entries)
    for name in found:
        path = (*names, name)
        try:
            mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
                raise UnfitError(f"{'/'.join(path)} is {kind}: only files and folders count")
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            flags |= os.O_DIRECTORY if stat.S_ISDIR(mode) else 0
            opened = os.open(name, flags, dir_fd=handle)
        except OSError as fault:
            raise UnfitError(f"{'/'.join(path)!a} cannot be read: {fault.strerror}") from None
        with _closing(opened):
            if stat.S_ISDIR(mode):
                yield from _files_in(opened, path)
            else:
                yield path, _content(opened, path)


def _content(handle: int, names: tuple[str, ...]) -> bytes:
    with open(handle, "rb", closefd=False) as file:
        data = file.read(VALUE_BYTES_MAX + 1)
    if len(data) > VALUE_BYTES_MAX:
        raise UnfitError(f"{'/'.join(names)} has more than {VALUE_BYTES_MAX:,} bytes")
    return data


@contextmanager
def _closing(handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    """Folders that were made unreadable are ours all the same."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        _open_up(path)
        for folder, names, _ in os.walk(path):
            for name in names:
                _open_up(os.path.join(folder, name))
        shutil.rmtree(path, ignore_errors=True)


def _open_up(path: str) -> None:
    if not os.path.islink(path):
        with suppress(OSError):  # It is gone, or not ours.
            os.chmod(path, 0o700)


# The shared state in one attempt of a plan's task: in its texts, its result, its command.

EMPTY: Final = {"append": "[]", "set": "[]", "counter": "0"}
"""What channels say before anybody has added to them."""

Anything = TypeVar("Anything")


class AttemptState(Struct, frozen=True):
    loan: Lent
    channels: Channels
    reads: tuple[str, ...] | None
    """Keys and patterns that its task declares to read; None is everything."""
    output: str = ""

    def text(self, key: str) -> str:
        """What `{{ state.KEY }}` stands for, or `{{ state }}` without a key."""
        if not key:
            seen = seen_by(self.loan.reach, self.reads)
            return json.dumps({name: json.loads(data) for name, data in seen}, ensure_ascii=False)
        data = self.loan.reach.get(key)
        if data is None:
            empty = EMPTY.get(self.channels.of(key).kind)
            if empty is None:
                raise StateError(
                    f"`{{{{ state.{key} }}}}` has no value: no task before this one has put one",
                    hint=f"let a task put it first, or use `{{{{ state }}}}` with `reads: "
                    f"state:{key}`, which may be empty",
                )
            return empty
        value = json.loads(data)
        return value if isinstance(value, str) else data.decode()

    def keep(self, value: object, result: Result) -> None:
        """Put a result where the plan wants it, or add it there. Raises AttemptError."""
        try:
            if self.output and self.channels.of(self.output).kind == "value":
                self.loan.reach.put(self.output, value)
            elif self.output:
                self.loan.reach.add(self.output, value)
        except StateError as error:
            raise AttemptError(Fault("unfit", detail=in_a_line(error)), result) from error

    @asynccontextmanager
    async def shown(self, run_folder: str, attempt: Attempt) -> AsyncIterator[StateFolder]:
        folder = StateFolder(run_folder, attempt.key.hex()[:12], self.channels)
        values = seen_by(self.loan.reach, self.reads)
        try:
            await in_thread(lambda: folder.lay_out(values))
            yield folder
        finally:
            await in_thread(folder.remove)

    async def take(self, folder: StateFolder, result: Result) -> None:
        """The command has ended well: what it changed is the attempt's. Raises AttemptError."""
        try:
            put, removed, added = await in_thread(folder.changes)
            for key, value in put:
                self.loan.reach.put(key, value)
            for key in removed:
                self.loan.reach.remove(key)
            for key, value in added:
                if self.channels.of(key).kind == "effect":
                    self.loan.reach.act(key, value, is_now=False)
                else:
                    self.loan.reach.add(key, value)
        except UnfitError as unfit:
            raise AttemptError(Fault("unfit", detail=str(unfit)), result) from None
        except StateError as error:
            raise AttemptError(Fault("unfit", detail=in_a_line(error)), result) from error


def share_of(
    task: TaskSpec, loan: Lent, channels: Channels, fill: Callable[[str], str]
) -> AttemptState:
    reads = task.state_reads
    declared = None if reads is None else tuple(dict.fromkeys(map(fill, reads)))
    return AttemptState(loan, channels, declared, fill(task.output_key) if task.output_key else "")


def in_a_line(error: HeadwayError) -> str:
    """Why a task cannot be performed, as a reason among others."""
    parts = (f"{error.code}: {error.message}", error.where, error.detail, error.hint)
    return "; ".join(part for part in parts if part)


async def in_thread(function: Callable[[], Anything]) -> Anything:
    """Run it in a thread; a cancelled caller waits for its end."""
    running = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise
