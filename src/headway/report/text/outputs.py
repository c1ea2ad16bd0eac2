"""Shows what commands of an `each` wrote: whole outputs, as they end or in order.

Laws:
- Outputs of two commands are never mixed: each is written whole when its command has ended.
- With `keeps_order`, an output waits until all before it have been written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from headway.errors import StateFileError

JOBLOG_COLUMNS: Final = (
    "Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command",
)  # fmt: skip

NAME_BYTES_MAX: Final = 255
"""Of a folder's name, by nearly every file system."""


class Spoken(Protocol):
    """One stream of a command that has ended."""

    @property
    def size_bytes(self) -> int: ...

    def read(self) -> bytes: ...


class EndedCommand(Protocol):
    """A command that has ended."""

    @property
    def code(self) -> int: ...

    @property
    def started_ms(self) -> int: ...

    @property
    def took_ms(self) -> int: ...

    @property
    def stdout(self) -> Spoken: ...

    @property
    def stderr(self) -> Spoken: ...


@dataclass(frozen=True, slots=True)
class Style:
    """How outputs are shown and kept."""

    keeps_order: bool = False
    tags: bool = False
    joblog: str = ""
    results: str = ""


@dataclass(frozen=True, slots=True)
class CommandNames:
    """What a command is called, by its number from 0."""

    command: Callable[[int], str]
    arguments: Callable[[int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class OutputsStatistics:
    """How many were shown, and how many wait for one before them."""

    shown: int
    waiting: int


class Outputs:
    """Where the outputs of a run go."""

    def __init__(self, style: Style, names: CommandNames, out: BinaryIO, err: BinaryIO) -> None:
        self._style = style
        self._names = names
        self._out = out
        self._err = err
        self._waiting: dict[int, EndedCommand | None] = {}
        self._next = 0
        self._shown = 0
        if style.joblog and not _has_content(style.joblog):
            self._log("\t".join(JOBLOG_COLUMNS))
        if style.results:
            with _writing(style.results):
                os.makedirs(style.results, exist_ok=True)

    def __repr__(self) -> str:
        return f"<Outputs {self.statistics()}>"

    def statistics(self) -> OutputsStatistics:
        return OutputsStatistics(self._shown, len(self._waiting))

    def ended(
        self,
        member: int,
        done: EndedCommand | None,
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """A command has ended for good; None if it had nothing to say in this process."""
        if done is not None:
            if self._style.joblog:
                self._log(self._line(member, done))
            if self._style.results:
                self._keep(member, done)
        if not self._style.keeps_order:
            self._show(member, done, aside)
            return
        self._waiting[member] = done
        while self._next in self._waiting:
            self._show(self._next, self._waiting.pop(self._next), aside)
            self._next += 1

    def close(self, aside: Callable[[], AbstractContextManager[None]]) -> None:
        """What waited for one that never came is shown all the same."""
        for member in sorted(self._waiting):
            self._show(member, self._waiting.pop(member), aside)

    def _show(
        self,
        member: int,
        done: EndedCommand | None,
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._shown += 1
        if done is None or not (done.stdout.size_bytes or done.stderr.size_bytes):
            return
        tag = b"\t".join(os.fsencode(one) for one in self._names.arguments(member)) + b"\t"
        with aside():
            for stream, said in ((self._out, done.stdout.read()), (self._err, done.stderr.read())):
                if said:
                    stream.write(_tagged(said, tag) if self._style.tags else said)
                    stream.flush()

    def _line(self, member: int, done: EndedCommand) -> str:
        signal = -done.code if done.code < 0 else 0
        return "\t".join(
            (
                str(member + 1), ":", f"{done.started_ms / 1000:.3f}", f"{done.took_ms / 1000:.3f}",
                "0", str(done.stdout.size_bytes), str(max(0, done.code)), str(signal),
                self._names.command(member).replace("\n", " "),
            )
        )  # fmt: skip

    def _log(self, line: str) -> None:
        path = self._style.joblog
        with _writing(path), open(path, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{line}\n")

    def _keep(self, member: int, done: EndedCommand) -> None:
        """As GNU parallel lays them out: a folder for each source and value."""
        parts = [self._style.results]
        for number, value in enumerate(self._names.arguments(member), start=1):
            parts += [str(number), _as_file_name(value)]
        folder = os.path.join(*parts)
        said = {"stdout": done.stdout.read(), "stderr": done.stderr.read()}
        said["seq"] = str(member + 1).encode()
        with _writing(folder):
            os.makedirs(folder, exist_ok=True)
            for name, text in said.items():
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(text)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise StateFileError(f"{path} cannot be written: {fault.strerror}") from None


def _tagged(said: bytes, tag: bytes) -> bytes:
    return b"".join(tag + line for line in said.splitlines(keepends=True))


def _as_file_name(value: str) -> str:
    """A value as the name of a folder: GNU parallel's own escapes, and none that leads away."""
    name = value.replace("\\", "\\\\").replace("\t", "\\t").replace("/", "\\_").replace("\0", "\\0")
    name = {"": "\\", ".": "\\.", "..": "\\.\\."}.get(name, name)
    return os.fsdecode(os.fsencode(name)[:NAME_BYTES_MAX])


def _has_content(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False
