"""Records in the pages of a spoilt SQLite file, read without SQLite and without its trees.

Every page of the file and of its log of changes is looked at as if it were a leaf. What comes out
may be old or nonsense; whoever asks knows records by their checks. Format: SQLite's fileformat2.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headway.runtime.journal_file import PAGE_BYTES

Record = tuple[object, ...]

LOG_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
TABLE_LEAF: Final = 0x0D
INDEX_LEAF: Final = 0x0A
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""A length that is larger was never written by us."""
_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True)
class Pages:
    """The images of all pages, in the order in which they were written as far as is known."""

    images: list[tuple[int, bytes]]
    latest: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Found:
    """A record, and its number if it is of a table that has numbers."""

    number: int
    record: Record


def read_pages(path: str, log: str) -> Pages:
    """Of the file, then of its log; either may be missing or cut short.

    Frames of an earlier round of the log, which lie behind those of the present one, are older
    than the file. Frames behind the last commit count too: their records have their own checks.
    """
    data, frames = _whole(path), _whole(log)
    size = PAGE_BYTES
    file = [(at // size + 1, data[at : at + size]) for at in range(0, len(data), size)]
    older: list[tuple[int, bytes]] = []
    newer: list[tuple[int, bytes]] = []
    salts = frames[LOG_HEADER_BYTES + 8 : LOG_HEADER_BYTES + 16]
    step = FRAME_HEADER_BYTES + size
    for at in range(LOG_HEADER_BYTES, len(frames) - step + 1, step):
        (number,) = struct.unpack_from(">I", frames, at)
        image = (number, frames[at + FRAME_HEADER_BYTES : at + step])
        (newer if frames[at + 8 : at + 16] == salts else older).append(image)
    images = [*older, *file, *newer]
    return Pages(images, dict(images))


def records(pages: Pages) -> Iterator[Found]:
    """Everything that can be read as a record of a table or an index."""
    for number, image in pages.images:
        start = 100 if number == 1 else 0
        if len(image) != PAGE_BYTES or image[start] not in (TABLE_LEAF, INDEX_LEAF):
            continue
        has_number = image[start] == TABLE_LEAF
        (cells,) = struct.unpack_from(">H", image, start + 3)
        for cell in range(min(cells, (PAGE_BYTES - start - 8) // 2)):
            try:
                (at,) = struct.unpack_from(">H", image, start + 8 + 2 * cell)
                yield _found(pages, image, at, has_number)
            except (ValueError, IndexError, struct.error):
                continue


def _found(pages: Pages, image: bytes, at: int, has_number: bool) -> Found:
    size, at = _varint(image, at)
    if size > RECORD_BYTES_MAX:
        raise ValueError("too long for a record of ours")
    number = 0
    if has_number:
        number, at = _varint(image, at)
    return Found(number, _record(_payload(pages, image, at, size, has_number)))


def _payload(pages: Pages, image: bytes, at: int, size: int, has_number: bool) -> bytes:
    """The bytes of a record, gathered from the pages that it runs over into."""
    usable = PAGE_BYTES
    most = usable - 35 if has_number else (usable - 12) * 64 // 255 - 23
    if size <= most:
        return image[at : at + size]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    pieces = [image[at : at + local]]
    (follows,) = struct.unpack_from(">I", image, at + local)
    left = size - local
    while left > 0:
        page = pages.latest.get(follows, b"")
        (follows,) = struct.unpack_from(">I", page)
        piece = page[4 : 4 + min(left, usable - 4)]
        if not piece:
            raise ValueError("the rest of a record is missing")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _record(data: bytes) -> Record:
    size, at = _varint(data, 0)
    kinds = []
    while at < size:
        kind, at = _varint(data, at)
        kinds.append(kind)
    values: list[object] = []
    for kind in kinds:
        value, at = _value(data, at, kind)
        values.append(value)
    return tuple(values)


def _value(data: bytes, at: int, kind: int) -> tuple[object, int]:
    if kind == 0:
        return None, at
    if kind <= 6:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(_cut(data, at, end), "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", data, at)[0], at + 8
    if kind <= 9:
        return kind - 8, at
    if kind < 12:
        raise ValueError("a kind of value that is not in use")
    end = at + (kind - 12) // 2
    piece = _cut(data, at, end)
    return (piece.decode() if kind & 1 else piece), end


def _cut(data: bytes, at: int, end: int) -> bytes:
    if end > len(data):
        raise ValueError("a value is cut short")
    return data[at:end]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    value = value << 8 | data[at]
    return (value - (1 << 64) if value >> 63 else value), at + 1


def _whole(path: str) -> bytes:
    if not os.path.exists(path):
        return b""
    with open(path, "rb") as file:
        return file.read()
