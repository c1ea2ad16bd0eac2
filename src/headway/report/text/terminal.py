"""Removes control sequences from everything printed to a terminal.

Laws:
- On a terminal, `sys.stdout` and `sys.stderr` pass text and bytes through `clean`, in every verb.
- A pipe or a file gets every byte as it is.
- Control sequences come from headway's own drawing alone: `redraw_line`, and the consoles of
  `words`, which clean the text that they draw.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase, TextIOWrapper
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console
    from rich.text import Text

SEQUENCES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    # OSC, DCS and other strings: titles, clipboard. One that is not closed ends with its line.
    r"|(?:\x1b[P\]X^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x1b\\|\x07|\x9c)?"
    r"|\x1b[ -/]*[0-~]"  # every other escape
)
CONTROLS: Final = dict.fromkeys(
    [*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0x202A, 0x202F),
     *range(0x2066, 0x206A), 0x2028, 0x2029]
)  # fmt: skip
"""Neither printed nor obeyed: control characters, and those that turn the writing around."""

PROGRESS_S: Final = 0.1


def clean(text: str) -> str:
    """Text as a terminal may show it: nothing in it is obeyed. Lines and tabs stay."""
    if text.isprintable():
        return text
    plain = SEQUENCES.sub("", text).translate(CONTROLS)
    return plain.replace("\r\n", "\n").replace("\r", "\n")


class TerminalBytes(BufferedIOBase):
    """What is written to a terminal as bytes: taken as UTF-8, cleaned, passed on."""

    def __init__(self, terminal: TextIO) -> None:
        self._under: BinaryIO = terminal.buffer
        self._encoding = terminal.encoding
        self.name = terminal.name

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        given = bytes(data)
        text = clean(given.decode("utf-8", "replace"))
        self._under.write(text.encode(self._encoding, "replace"))
        return len(given)

    def flush(self) -> None:
        self._under.flush()

    def fileno(self) -> int:
        return self._under.fileno()

    def isatty(self) -> bool:
        return True


class TerminalText(TextIOWrapper):
    """`sys.stdout` or `sys.stderr` on a terminal."""

    def __init__(self, terminal: TextIO) -> None:
        # A text that is no Unicode (the name of a file) is shown, with a mark for what is not.
        super().__init__(TerminalBytes(terminal), "utf-8", "replace", line_buffering=True)
        self.terminal = terminal
        """For drawing."""


class CleanLines:
    """Cleans what is written to a stream that draws by itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._stream.write(clean(text))


def guard_terminals() -> None:
    """Let nothing but headway's drawing give orders to a terminal, from now on."""
    for name in ("stdout", "stderr"):
        stream: TextIO = getattr(sys, name)
        if isinstance(stream, TextIOWrapper) and stream.isatty():
            setattr(sys, name, TerminalText(drawable(stream)))


def drawable(stream: TextIO) -> TextIO:
    """The same stream for control sequences of headway's own."""
    return stream.terminal if isinstance(stream, TerminalText) else stream


def redraw_line(stream: TextIO, text: str = "") -> None:
    stream.flush()
    print(f"\r\x1b[K{clean(text)}", end="", file=drawable(stream), flush=True)


@contextmanager
def progress_line(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """A function that replaces the last line of a terminal, seldom; elsewhere it does nothing."""
    next_s = 0.0

    def say(text: str) -> None:
        nonlocal next_s
        if stream.isatty() and time.monotonic() >= next_s:
            next_s = time.monotonic() + PROGRESS_S
            redraw_line(stream, text)

    try:
        yield say
    finally:
        if next_s:
            redraw_line(stream)


LABEL_CELLS: Final = 10


def labelled(label: str, words: str | Text, style: str = "") -> Text:
    from rich.text import Text

    text = words if isinstance(words, Text) else Text(words, style)
    return Text.assemble("  ", (label.ljust(LABEL_CELLS), "dim"), text)


def block(label: str, lines: Iterable[str | Text], style: str = "") -> Iterator[Text]:
    """Lines that are not empty, the first with what they are about in front."""
    for line in lines:
        if line:
            yield labelled(label, line, style)
            label = ""


def print_lines(console: Console, lines: Iterable[str | Text], style: str = "") -> None:
    for line in lines:
        console.print(line, style=style or None, soft_wrap=True)
