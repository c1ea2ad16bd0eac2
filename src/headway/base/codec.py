"""Records as JSON and back.

Laws:
- A value that was written is read back equal, infinities included.
- Whatever is read is checked: what does not fit its type is a `WireError`, never anything else.
- A missing field takes its default; an unknown field is passed over.
"""

from __future__ import annotations

import json
from math import isnan
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

from headway.errors import WireError

T = TypeVar("T")


def as_dict(record: Struct) -> dict[str, Any]:
    """A record, and the records in it, as values that JSON can hold."""
    plain: dict[str, Any] = to_builtins(record, builtin_types=(bytes,))
    return plain


def encode(value: object) -> bytes:
    """A record as one line of JSON without its end; ASCII, so that no byte in it is a newline."""
    return _dumps(to_builtins(value)).encode("ascii")


def decode(kind: type[T], data: bytes) -> T:
    """The record in the bytes; `WireError` if there is none."""
    return rebuild(kind, parse(data))


def parse(data: bytes) -> object:
    """Bytes as JSON values. NaN is refused; infinities are not."""
    try:
        parsed: object = _loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise WireError("these bytes are not JSON", detail=str(fault)[:200]) from None
    return parsed


def rebuild(kind: type[T], value: object) -> T:
    """The record that JSON values describe."""
    try:
        return convert(value, kind)
    except (ValidationError, OverflowError, RecursionError) as fault:
        raise WireError(f"this is not a {kind.__name__}", detail=str(fault)[:200]) from None


def _constant(word: str) -> float:
    number = float(word.replace("Infinity", "inf"))
    if isnan(number):
        raise ValueError("NaN is no number")
    return number


_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_loads = json.JSONDecoder(parse_constant=_constant).decode
