"""Decompresses the side copy of an answer's body, within bounds.

Laws:
- Whatever the bytes, nothing here raises.
- No piece is longer than `PIECE_BYTES`, and a body that swells beyond reason is left unread.
- What cannot be read says so: `unreadable` is our want, `corrupt` is the sender's fault.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Final, Literal, Protocol

PIECE_BYTES: Final = 64 * 1024

SWELL_MAX: Final = 200
"""Bytes out for each byte in. A stream of short chunks shrinks to a fiftieth; gzip can do 1,032."""

SWELL_FREE_BYTES: Final = 1024 * 1024
"""So much may come out in any case: the swelling of short bodies says nothing."""

_BROTLI: Final = ("brotli", "brotlicffi")
_ZSTD: Final = ("compression.zstd", "backports.zstd")
"""Modules by which an SDK's own client reads these; without one it does not ask for them."""

State = Literal["reading", "unreadable", "corrupt"]


class _Unpacker(Protocol):
    """One compressed body, taken in steps."""

    def step(self, data: bytes) -> tuple[bytes, bool]:
        """At most `PIECE_BYTES`, and whether a step with no more bytes can give more."""
        ...


class Inflater:
    """Bytes as they were sent in, bytes as they were meant out."""

    __slots__ = ("_received", "_swollen", "_unpacker", "encoding", "state")

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding.strip().lower()
        self.state: State = "reading"
        self._received = self._swollen = 0
        self._unpacker: _Unpacker | None = None
        if self.encoding not in ("", "identity"):
            self._unpacker = _unpacker(self.encoding)
            if self._unpacker is None:
                self.state = "unreadable"

    def __repr__(self) -> str:
        sizes = f"{self._received} to {self._swollen} bytes"
        return f"<Inflater {self.encoding or 'identity'} {self.state}, {sizes}>"

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What can be read now, in pieces; nothing once it is not `reading` any more."""
        if self._unpacker is None:
            if self.state == "reading" and data:
                yield data
            return
        self._received += len(data)
        has_more = bool(data)
        while has_more and self.state == "reading":
            try:
                piece, has_more = self._unpacker.step(data)
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
        # What follows the end of the compressed bytes is nobody's.
        if self._object.eof:
            return b"", False
        piece = self._object.decompress(self._rest + data, PIECE_BYTES)
        self._rest = self._object.unconsumed_tail
        return piece, len(piece) == PIECE_BYTES


class _BrotliDecompressor(Protocol):
    def process(self, data: bytes, output_buffer_limit: int) -> bytes: ...

    def can_accept_more_data(self) -> bool: ...


class _Brotli:
    """br (RFC 7932), by a module that can bound its output: brotli or brotlicffi from 1.2 on."""

    __slots__ = ("_object",)

    def __init__(self, found: _BrotliDecompressor) -> None:
        self._object = found

    def step(self, data: bytes) -> tuple[bytes, bool]:
        piece = self._object.process(data, output_buffer_limit=PIECE_BYTES)
        return piece, not self._object.can_accept_more_data()


class _ZstdDecompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zstd:
    """zstd (RFC 8878), by the standard library from 3.14 on or its backport."""

    __slots__ = ("_object",)

    def __init__(self, found: _ZstdDecompressor) -> None:
        self._object = found

    def step(self, data: bytes) -> tuple[bytes, bool]:
        if self._object.eof:
            return b"", False
        piece = self._object.decompress(data, max_length=PIECE_BYTES)
        return piece, not self._object.needs_input


def _unpacker(encoding: str) -> _Unpacker | None:
    """What reads this encoding here; a list of several encodings is read by nobody."""
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Zlib(is_gzip=encoding != "deflate")
    if encoding == "br":
        brotli = getattr(_first_module(*_BROTLI), "Decompressor", None)
        if brotli is not None and hasattr(brotli, "can_accept_more_data"):
            return _Brotli(brotli())
    if encoding == "zstd":
        zstd = getattr(_first_module(*_ZSTD), "ZstdDecompressor", None)
        if zstd is not None:
            return _Zstd(zstd())
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
    for module, name in (
        (_first_module(*_BROTLI), "error"),
        (_first_module(*_ZSTD), "ZstdError"),
    ):
        error = getattr(module, name, None)
        if isinstance(error, type) and issubclass(error, Exception):
            found.append(error)
    return tuple(found)
