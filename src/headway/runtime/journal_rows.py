"""Rows and events as a journal's tables have them, each with a check over all that it says.

Law: what is read is what was written, or a JournalError. SQLite notices a broken tree, not a
changed byte in a value; the check does.
"""

from __future__ import annotations

import struct
from typing import Final, cast
from zlib import crc32

from headway.core.digest import DIGEST_BYTES
from headway.core.engine.codec import decode, encode
from headway.core.engine.events import VERSION, Ending
from headway.core.engine.record import Fact, Row, TaskState
from headway.errors import JournalError

Values = tuple[object, ...]
RowValues = tuple[int, bytes, str | bytes, TaskState, bytes]
"""Of `ROW_READ_COLUMNS`, if nothing is spoilt."""

ROW_COLUMNS: Final = (
    "id", "key", "name", "state", "started_s", "ended_s", "input_tokens", "output_tokens",
    "spent_microusd", "reserved_microusd", "unpriced", "data",
)  # fmt: skip
"""What people may want to ask SQLite for, and `data`, which has all that is not in the first four:
a row is read a third as fast column by column."""
ROW_READ_COLUMNS: Final = ("id", "key", "name", "state", "data")
EVENT_COLUMNS: Final = ("seq", "at_s", "version", "kind", "key", "json", "crc")
BODY_COLUMNS: Final = ("id", "digest", "data")

_numbers: Final = struct.Struct("<qqddddqqqqqqqqqqBBBB16s16s")
"""Row number, attempt, times, tokens, spend, calls, exit code, money reserved and spent, extra
tokens, tokens reserved and spent, unpriced calls of the last attempt and of all, whether it is in
doubt and has an exit code, and two digests with their lengths. A row of a task that touched the
shared state has 2 more in the mark of doubt, and another digest behind the others."""
_crc: Final = struct.Struct("<I")
_count: Final = struct.Struct("<I")
_MANY: Final = 255
"""So many replies that are kept, or more."""
_stamp: Final = struct.Struct("<qdq")
_EventValues = tuple[int, float, int, str, bytes, str]


def row_values(number: int, row: Row) -> Values:
    """A row as the table has it, under its number."""
    end = row.ending
    has_exit = end.exit_code is not None
    data = _numbers.pack(
        number, row.attempt, row.started_s, row.ended_s, end.input_tokens, end.output_tokens,
        end.spend_microusd, end.calls, end.exit_code or 0, row.reserved_microusd,
        row.spent_microusd, end.extra_tokens, row.reserved_tokens, row.spent_tokens, end.unpriced,
        row.unpriced, end.is_in_doubt | bool(end.access) << 1, has_exit, len(end.body),
        len(end.inputs), end.body, end.inputs,
    )  # fmt: skip
    data += end.access
    if row.kept or row.fault:
        data += b"".join((_counted(row.kept), *row.kept, _packed(row.fault)))
    name = _stored(row.name)
    return (
        number, row.key, name, row.state, row.started_s, row.ended_s, end.input_tokens,
        end.output_tokens, row.spent_microusd, row.reserved_microusd,
        row.unpriced + row.unpriced_in_flight,
        _crc.pack(_row_crc(data, row.key, name, row.state)) + data,
    )  # fmt: skip


def read_row(found: RowValues) -> Row:
    """The row that `ROW_READ_COLUMNS` give; JournalError if it is spoilt."""
    try:
        number, key, name, state, data = found
        rest = data[4:]
        if _crc.unpack_from(data)[0] != _row_crc(rest, key, name, state):
            raise ValueError("its check does not fit")
        (
            own, attempt, started_s, ended_s, input_tokens, output_tokens, spend, calls, exit_code,
            reserved, spent, extra, tokens_reserved, tokens_spent, last_unpriced, unpriced, marks,
            has_exit, body_bytes, inputs_bytes, body, inputs,
        ) = _numbers.unpack_from(rest)  # fmt: skip
        if own != number:
            raise ValueError(f"it is that of task {own}")
        tail = rest[_numbers.size :]
        access, tail = (tail[:DIGEST_BYTES], tail[DIGEST_BYTES:]) if marks & 2 else (b"", tail)
        kept, fault = _read_tail(tail) if tail else ((), "")
        ending = Ending(
            body[:body_bytes], inputs[:inputs_bytes], input_tokens, output_tokens, spend, calls,
            exit_code if has_exit else None, marks & 1 == 1, access, extra, last_unpriced,
        )  # fmt: skip
        return Row(
            key, name if isinstance(name, str) else _unpacked(name), state, attempt, started_s,
            ended_s, ending, fault, reserved, spent, kept, tokens_reserved, tokens_spent, unpriced,
        )  # fmt: skip
    except (TypeError, ValueError, AttributeError, struct.error) as why:
        raise JournalError(f"the row of task {found[0]} is spoilt: {why}") from None


def event_values(seq: int, key: bytes, event: Fact) -> Values:
    """An event as the table has it, under its number."""
    kind, text = encode(event)
    at_s = event.at_s
    crc = crc32(
        b"%b\0%b\0%b" % (key, kind.encode(), text.encode()), crc32(_stamp.pack(seq, at_s, VERSION))
    )
    return seq, at_s, VERSION, kind, key, text, crc


def read_event(found: Values) -> Fact:
    """The event that the table has; JournalError if it is spoilt or from a newer headway."""
    try:
        said = cast(_EventValues, found[:6])
        if _event_crc(said) != found[6]:
            raise ValueError("its check does not fit")
    except (TypeError, ValueError, AttributeError, struct.error) as why:
        raise JournalError(f"event {found[0]} is spoilt: {why}") from None
    _, at_s, version, kind, _, text = said
    return decode(kind, version, at_s, text)


def _counted(kept: tuple[bytes, ...]) -> bytes:
    """How many digests follow: a byte, and behind the largest one four more."""
    count = len(kept)
    return bytes((count,)) if count < _MANY else bytes((_MANY,)) + _count.pack(count)


def _read_tail(tail: bytes) -> tuple[tuple[bytes, ...], str]:
    begin, count = 1, tail[0]
    if count == _MANY:
        begin, (count,) = 1 + _count.size, _count.unpack_from(tail, 1)
    end = begin + count * DIGEST_BYTES
    kept = tuple(tail[each : each + DIGEST_BYTES] for each in range(begin, end, DIGEST_BYTES))
    return kept, _unpacked(tail[end:])


def _row_crc(data: bytes, key: bytes, name: str | bytes, state: str) -> int:
    named = name if isinstance(name, bytes) else name.encode()
    return crc32(b"%b\0%b\0%b" % (key, named, state.encode()), crc32(data))


def _event_crc(said: _EventValues) -> int:
    seq, at_s, version, kind, key, text = said
    stamp = crc32(_stamp.pack(seq, at_s, version))
    return crc32(b"%b\0%b\0%b" % (key, kind.encode(), text.encode()), stamp)


def _stored(text: str) -> str | bytes:
    """Names of files may hold what UTF-8 cannot say; that is kept as bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _packed(text)
    return text


def _packed(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _unpacked(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
