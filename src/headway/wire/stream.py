"""Server-sent events, and bounded decompression of a copy of the body.

Laws:
- Whatever the bytes, nothing here raises.
- No piece is longer than `PIECE_BYTES`, and a body that swells beyond reason is left unread.
- What cannot be read says so: `unreadable` is our want, `corrupt` is the sender's fault.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final, Literal

from headway.wire.values import Excerpt

# Server-sent events (WHATWG HTML, 9.2), read from bytes that are split anywhere, and written.

NAME_BYTES_MAX: Final = 256
"""The longest name of an event that is looked at; the longest in use has 48."""
_BOM: Final = b"\xef\xbb\xbf"


def event(data: bytes, name: str = "") -> bytes:
    """One event; `data` is one line. Chat Completions names no event, the others name all."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%sdata: %s\n\n" % (head, data)


Event = tuple[str, bytes]
"""The name of an event, which may be empty, and its data."""


class EventReader:
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

    def feed(self, data: bytes) -> list[Event]:
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
        found = self._name.decode("utf-8", "replace"), self._data.take()
        self._name, self._has_data, self._is_bare = b"", False, False
        return found


PIECE_BYTES: Final = 64 * 1024

SWELL_MAX: Final = 200
"""Bytes out for each byte in. A stream of short chunks shrinks to a fiftieth; gzip can do 1,032."""
SWELL_FREE_BYTES: Final = 1024 * 1024
"""So much may come out in any case: the swelling of short bodies says nothing."""
_BROTLI: Final = ("brotli", "brotlicffi")
_ZSTD: Final = ("compression.zstd", "backports.zstd")
"""Modules by which an SDK's own client reads these; without one it does not ask for them."""

State = Literal["reading", "unreadable", "corrupt"]


Unpack = Callable[[bytes], tuple[bytes, bool]]
"""Unpacks some bytes: at most `PIECE_BYTES`, and whether more come without further bytes."""


class Inflater:
    __slots__ = ("_received", "_swollen", "_unpack", "encoding", "state")

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding.strip().lower()
        self.state: State = "reading"
        self._received = self._swollen = 0
        self._unpack: Unpack | None = None
        if self.encoding not in ("", "identity"):
            self._unpack = _unpacker(self.encoding)
            if self._unpack is None:
                self.state = "unreadable"

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What can be read now, in pieces; nothing once it is not `reading` any more."""
        if self._unpack is None:
            if self.state == "reading" and data:
                yield data
            return
        self._received += len(data)
        has_more = bool(data)
        while has_more and self.state == "reading":
            try:
                piece, has_more = self._unpack(data)
            except _errors():
                self.state = "corrupt"
                return
            data = b""
            self._swollen += len(piece)
            if self._swollen > SWELL_FREE_BYTES + SWELL_MAX * self._received:
                self.state = "unreadable"
            elif piece:
                yield piece


class _Zlib:
    """gzip (RFC 1952) and deflate (RFC 1950); many servers send bare RFC 1951 as deflate."""

    __slots__ = ("_head", "_object", "_rest")

    def __init__(self, is_gzip: bool) -> None:
        self._object = zlib.decompressobj(wbits=31) if is_gzip else None
        self._head = self._rest = b""

    def step(self, data: bytes) -> tuple[bytes, bool]:
        if self._object is None:
            self._head += data
            if len(self._head) < 2:
                return b"", False
            # RFC 1950, 2.2: the method is 8, and the first two bytes are a multiple of 31.
            first, second = self._head[:2]
            is_zlib = first & 0x0F == 8 and (first * 256 + second) % 31 == 0
            self._object = zlib.decompressobj(wbits=15 if is_zlib else -15)
            data, self._head = self._head, b""
        # What follows the end of the compressed bytes is ignored.
        if self._object.eof:
            return b"", False
        piece = self._object.decompress(self._rest + data, PIECE_BYTES)
        self._rest = self._object.unconsumed_tail
        return piece, len(piece) == PIECE_BYTES


def _unpacker(encoding: str) -> Unpack | None:
    """Reads this encoding, if it can be read here; a list of several encodings cannot."""
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Zlib(is_gzip=encoding != "deflate").step
    if encoding == "br":
        kind = getattr(_first_module(*_BROTLI), "Decompressor", None)
        # Only from version 1.2 on can its output be bounded.
        if kind is not None and hasattr(kind, "can_accept_more_data"):
            brotli = kind()
            return lambda data: (
                brotli.process(data, output_buffer_limit=PIECE_BYTES),
                not brotli.can_accept_more_data(),
            )
    if encoding == "zstd":
        kind = getattr(_first_module(*_ZSTD), "ZstdDecompressor", None)
        if kind is not None:
            zstd = kind()
            return lambda data: (
                (b"", False)
                if zstd.eof
                else (zstd.decompress(data, max_length=PIECE_BYTES), not zstd.needs_input)
            )
    return None


def _first_module(*names: str) -> object:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _errors() -> tuple[type[Exception], ...]:
    """What unpackers raise: each module has an error of its own, all of them plain exceptions."""
    found: list[type[Exception]] = [zlib.error, EOFError, ValueError, OSError]
    for module, name in ((_first_module(*_BROTLI), "error"), (_first_module(*_ZSTD), "ZstdError")):
        error = getattr(module, name, None)
        if isinstance(error, type) and issubclass(error, Exception):
            found.append(error)
    return tuple(found)
