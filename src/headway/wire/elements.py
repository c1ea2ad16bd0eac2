"""A JSON array that comes element by element: how Gemini streams unless asked for events.

Laws:
- Elements do not depend on how the bytes were split: not inside a text, not after a backslash.
- An element longer than an excerpt is cut in its middle, and nothing else is lost.
"""

from __future__ import annotations

import re
from typing import Final

from headway.wire.excerpt import Excerpt
from headway.wire.sse import Event

_MARKS: Final = re.compile(rb'\\.?|["{}]', re.DOTALL)
"""All that decides where an object ends; a backslash takes what follows it along."""


class ElementReader:
    """Bytes in, the objects of the outermost list out, as events without a name."""

    __slots__ = ("_depth", "_element", "_is_escaped", "_is_text")

    def __init__(self) -> None:
        self._element = Excerpt()
        self._depth = 0
        self._is_text = False
        self._is_escaped = False

    def __repr__(self) -> str:
        return f"<ElementReader with {self._element.size_bytes} bytes of an unfinished element>"

    def feed(self, data: bytes) -> list[Event]:
        """The elements that these bytes complete."""
        found: list[Event] = []
        if not data:
            return found
        begin, start, self._is_escaped = 0, int(self._is_escaped), False
        for match in _MARKS.finditer(data, start):
            mark = match[0]
            if mark == b"\\":
                self._is_escaped = True
            elif mark == b'"':
                self._is_text = not self._is_text and self._depth > 0
            elif mark == b"{" and not self._is_text:
                begin = begin if self._depth else match.start()
                self._depth += 1
            elif mark == b"}" and self._depth and not self._is_text:
                self._depth -= 1
                if not self._depth:
                    self._element.add(data[begin : match.end()])
                    found.append(Event("", self._element.take()))
        if self._depth:
            self._element.add(data[begin:])
        return found

    def end(self) -> list[Event]:
        """Nothing: an element that is not complete cannot be read."""
        return []


class ElementWriter:
    """Events of a stream in, the same as elements of an array out."""

    __slots__ = ("_is_open",)

    def __init__(self) -> None:
        self._is_open = False

    def __repr__(self) -> str:
        return f"<ElementWriter, {'within an array' if self._is_open else 'at its beginning'}>"

    def write(self, events: bytes) -> bytes:
        """The elements of some events, each of which has its data in one line."""
        written = b""
        for line in filter(None, events.split(b"\n")):
            written += (b",\r\n" if self._is_open else b"[") + line.removeprefix(b"data: ")
            self._is_open = True
        return written

    def end(self) -> bytes:
        """The end of the array."""
        return b"]" if self._is_open else b"[]"
