"""Shows the outputs of `each` commands, as they end or in order.

Laws:
- Outputs of two commands are never mixed: each is written whole when its command has ended.
- With `keeps_order`, an output waits until all before it have been written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final

from headway.errors import StateFileError

if TYPE_CHECKING:
    from headway.agents.shell import CommandEnded
    from headway.run.each import EachSource

Aside = Callable[[], AbstractContextManager[None]]
"""Takes away what is drawn while outputs are written."""

JOBLOG_COLUMNS: Final = (
    "Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command",
)  # fmt: skip

NAME_BYTES_MAX: Final = 255
"""Of a folder's name, by nearly every file system."""


class Outputs:
    def __init__(self, source: EachSource, out: BinaryIO, err: BinaryIO) -> None:
        self._source = source
        self._plan = source.plan()
        self._out = out
        self._err = err
        self._waiting: dict[int, CommandEnded | None] = {}
        self._next = 0
        if source.joblog and not _has_content(source.joblog):
            self._log("\t".join(JOBLOG_COLUMNS))
        if source.results:
            with _writing(source.results):
                os.makedirs(source.results, exist_ok=True)

    def ended(self, member: int, done: CommandEnded | None, aside: Aside) -> None:
        """A command has ended for good; None if it ended in an earlier process."""
        if done is not None:
            if self._source.joblog:
                self._log(self._line(member, done))
            if self._source.results:
                self._keep(member, done)
        if not self._source.keeps_order:
            self._show(member, done, aside)
            return
        self._waiting[member] = done
        while self._next in self._waiting:
            self._show(self._next, self._waiting.pop(self._next), aside)
            self._next += 1

    def close(self, aside: Aside) -> None:
        """Show outputs that wait for a command that has not ended."""
        for member in sorted(self._waiting):
            self._show(member, self._waiting.pop(member), aside)

    def _show(self, member: int, done: CommandEnded | None, aside: Aside) -> None:
        if done is None or not (done.stdout.size_bytes or done.stderr.size_bytes):
            return
        tag = b"\t".join(os.fsencode(one) for one in self._plan.arguments(member)) + b"\t"
        with aside():
            for stream, output in (
                (self._out, done.stdout.read()),
                (self._err, done.stderr.read()),
            ):
                if output:
                    lines = output.splitlines(keepends=True) if self._source.tags else ()
                    stream.write(b"".join(tag + line for line in lines) or output)
                    stream.flush()

    def _line(self, member: int, done: CommandEnded) -> str:
        signal = -done.code if done.code < 0 else 0
        return "\t".join(
            (
                str(member + 1), ":", f"{done.started_ms / 1000:.3f}", f"{done.took_ms / 1000:.3f}",
                "0", str(done.stdout.size_bytes), str(max(0, done.code)), str(signal),
                self._plan.display(member).replace("\n", " "),
            )
        )  # fmt: skip

    def _log(self, line: str) -> None:
        path = self._source.joblog
        with _writing(path), open(path, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{line}\n")

    def _keep(self, member: int, done: CommandEnded) -> None:
        """As GNU parallel lays them out: a folder for each source and value."""
        parts = [self._source.results]
        for number, value in enumerate(self._plan.arguments(member), start=1):
            parts += [str(number), _as_file_name(value)]
        folder = os.path.join(*parts)
        texts = {"stdout": done.stdout.read(), "stderr": done.stderr.read()}
        texts["seq"] = str(member + 1).encode()
        with _writing(folder):
            os.makedirs(folder, exist_ok=True)
            for name, text in texts.items():
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(text)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise StateFileError(f"{path} cannot be written: {fault.strerror}") from None


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
