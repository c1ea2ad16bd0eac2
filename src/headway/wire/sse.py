"""Server-sent events (WHATWG HTML, 9.2), read from bytes that are split anywhere, and written.

Laws:
- Events do not depend on how the bytes were split: not inside a character, not between CR and LF.
- An event longer than an excerpt is cut in its middle, and nothing else is lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headway.wire.excerpt import Excerpt

NAME_BYTES_MAX: Final = 256
"""The longest name of an event that is looked at; the longest in use has 48."""

_BOM: Final = b"\xef\xbb\xbf"


def event(data: bytes, name: str = "") -> bytes:
    """One event; `data` is one line. Chat Completions names no event, the others name all."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%sdata: %s\n\n" % (head, data)


class Event(NamedTuple):
    """One event that came: its name, which may be empty, and its data."""

    name: str
    data: bytes


class EventReader:
    """Bytes in, events out."""

    __slots__ = (
        "_data", "_has_data", "_is_after_cr", "_is_bare", "_is_first", "_line", "_name",
        "_takes_bare",
    )  # fmt: skip

    def __init__(self, takes_bare: bool = False) -> None:
        """`takes_bare`: JSON between events, which the standard passes over, is data, too."""
        self._takes_bare = takes_bare
        self._is_bare = False
        self._line = Excerpt()
        self._data = Excerpt()
        self._has_data = False
        self._name = b""
        self._is_after_cr = False
        self._is_first = True

    def __repr__(self) -> str:
        held = self._line.size_bytes + self._data.size_bytes
        return f"<EventReader with {held} bytes of an event that is not over>"

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        events: list[Event] = []
        if not data:
            return events
        if self._is_after_cr and data[0] == 0x0A:
            data = data[1:]
        self._is_after_cr = data.endswith(b"\r")
        # Of bytes, unlike of text, only CR, LF and CRLF end a line here: as the standard has it.
        lines = data.splitlines()
        rest = lines.pop() if lines and data[-1] not in b"\r\n" else b""
        if lines and self._line.size_bytes:
            self._line.add(lines[0])
            lines[0] = self._line.take()
        for line in lines:
            if line:
                self._take_line(line)
            elif self._has_data:
                events.append(self._take_event())
            else:
                self._name = b""
                self._is_first = False
        if rest:
            self._line.add(rest)
        return events

    def end(self) -> list[Event]:
        """The event that the end of the bytes completes: some servers forget the empty line."""
        if self._line.size_bytes:
            self._take_line(self._line.take())
        return [self._take_event()] if self._has_data else []

    def _take_line(self, line: bytes) -> None:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        if line.startswith(b"data:"):
            if self._has_data:
                self._data.add(b"\n")
            self._data.add(line[6:] if line[5:6] == b" " else line[5:])
            self._has_data = True
        elif line.startswith(b"event:"):
            self._name = line[6 : 6 + NAME_BYTES_MAX].removeprefix(b" ")
        elif self._takes_bare and (self._is_bare or line.startswith(b"{")):
            self._data.add(line)
            self._has_data = self._is_bare = True

    def _take_event(self) -> Event:
        found = Event(self._name.decode("utf-8", "replace"), self._data.take())
        self._name, self._has_data, self._is_bare = b"", False, False
        return found
