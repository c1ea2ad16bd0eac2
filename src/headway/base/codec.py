"""Frozen records as JSON values and back: one compiled pair of functions per type.

Laws:
- A value that was written is read back equal, infinities included.
- Whatever is read is checked: what does not fit its type is a `WireError`, never anything else.
- A field that is missing takes its default, a field that is unknown is passed over: a reader
  and a writer whose versions differ by additions understand each other.

A type is compiled when it is first met. What has no JSON form is found then, by a `TypeError`,
and not in the middle of a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from math import isnan
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headway.errors import WireError

Write = Callable[[object], object]
Read = Callable[[object], object]
T = TypeVar("T")

_AS_IT_IS = (str, int, float, bool)


def encode(value: object) -> bytes:
    """A record as one line of JSON without its end; ASCII, so that no byte in it is a newline."""
    return _dumps(writer(type(value))(value)).encode("ascii")


def decode(kind: type[T], data: bytes) -> T:
    """The record that the bytes say; `WireError` if they do not say one."""
    return rebuild(kind, parse(data))


def parse(data: bytes) -> object:
    """Bytes as JSON values. Numbers that are no numbers are refused, infinities are not."""
    try:
        parsed: object = _loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise WireError("these bytes are not JSON", detail=_short(fault)) from None
    return parsed


def rebuild(kind: type[T], value: object) -> T:
    """The record that JSON values say."""
    try:
        record = reader(kind)(value)
    except (ValueError, OverflowError) as fault:
        raise WireError(f"this is not a {kind.__name__}", detail=_short(fault)) from None
    if not isinstance(record, kind):
        raise WireError(f"this is not a {kind.__name__}")
    return record


def writer(hint: object) -> Write:
    """The function that turns a value of this type into JSON values."""
    known = _WRITERS.get(hint)
    if known is None:
        known = _WRITERS[hint] = _new_writer(hint)
    return known


def reader(hint: object) -> Callable[[object], Any]:
    """The function that checks JSON values and turns them into a value of this type."""
    known = _READERS.get(hint)
    if known is None:
        known = _READERS[hint] = _new_reader(hint)
    return known


def _new_writer(hint: object) -> Write:
    if hint in _AS_IT_IS or hint is NoneType or get_origin(hint) is Literal:
        return _same
    if isinstance(hint, type) and is_dataclass(hint):
        return _record_writer(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _tuple_writer(inner)
    if origin in (Union, UnionType):
        write = writer(_one_of(hint, inner))
        if write is _same:
            return _same
        return lambda value: None if value is None else write(value)
    raise TypeError(f"{hint!r} has no JSON form")


def _new_reader(hint: object) -> Read:
    if isinstance(hint, type) and is_dataclass(hint):
        return _record_reader(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _literal_reader(inner)
    if origin is tuple:
        return _tuple_reader(inner)
    if origin in (Union, UnionType):
        read = reader(_one_of(hint, inner))
        return lambda value: None if value is None else read(value)
    raise TypeError(f"{hint!r} has no JSON form")


def _one_of(hint: object, inner: tuple[object, ...]) -> object:
    """The type beside None: other unions would need a tag to be told apart."""
    kinds = [kind for kind in inner if kind is not NoneType]
    if len(kinds) != 1:
        raise TypeError(f"{hint!r} has no JSON form")
    return kinds[0]


def _same(value: object) -> object:
    return value


def _write_bytes(value: Any) -> object:
    return value.hex()


def _record_writer(kind: type) -> Write:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    plain = tuple(name for name in names if writer(hints[name]) is _same)
    nested = tuple((name, writer(hints[name])) for name in names if name not in plain)

    def write(record: object) -> object:
        said = {name: getattr(record, name) for name in plain}
        for name, part in nested:
            said[name] = part(getattr(record, name))
        return said

    return write


def _record_reader(kind: type) -> Read:
    hints = get_type_hints(kind)
    parts = tuple((field.name, reader(hints[field.name])) for field in fields(kind))
    required = frozenset(
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    )

    def read(value: object) -> object:
        if type(value) is not dict:
            raise ValueError(f"{kind.__name__} is an object")
        said = {}
        for name, part in parts:
            if name in value:
                said[name] = part(value[name])
            elif name in required:
                raise ValueError(f"{kind.__name__} has no {name}")
        return kind(**said)

    return read


def _tuple_writer(inner: tuple[object, ...]) -> Write:
    if len(inner) == 2 and inner[1] is Ellipsis:
        part = writer(inner[0])
        if part is _same:
            return _same
        return lambda value: [part(item) for item in _items(value)]
    parts = [writer(kind) for kind in inner]
    if all(part is _same for part in parts):
        return _same
    return lambda value: [part(item) for part, item in zip(parts, _items(value), strict=True)]


def _tuple_reader(inner: tuple[object, ...]) -> Read:
    if len(inner) == 2 and inner[1] is Ellipsis:
        part = reader(inner[0])
        return lambda value: tuple([part(item) for item in _items(value)])
    parts = [reader(kind) for kind in inner]
    return lambda value: tuple(
        [part(item) for part, item in zip(parts, _items(value), strict=True)]
    )


def _items(value: object) -> list[object] | tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError("this is an array")
    return value


def _literal_reader(words: tuple[object, ...]) -> Read:
    known = frozenset(words)

    def read(value: object) -> object:
        if type(value) is not str or value not in known:
            raise ValueError(f"one of {', '.join(sorted(map(str, known)))}")
        return value

    return read


def _read_str(value: object) -> object:
    if type(value) is not str:
        raise ValueError("a string is wanted")
    return value


def _read_int(value: object) -> object:
    if type(value) is not int:
        raise ValueError("a whole number is wanted")
    return value


def _read_float(value: object) -> object:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise ValueError("a number is wanted")


def _read_bool(value: object) -> object:
    if type(value) is not bool:
        raise ValueError("true or false is wanted")
    return value


def _read_bytes(value: object) -> object:
    if type(value) is not str:
        raise ValueError("bytes as a string of digits are wanted")
    return bytes.fromhex(value)


def _constant(word: str) -> float:
    number = float(word.replace("Infinity", "inf"))
    if isnan(number):
        raise ValueError("NaN is no number")
    return number


def _short(fault: BaseException) -> str:
    return str(fault)[:200]


_WRITERS: dict[object, Write] = {bytes: _write_bytes}
_READERS: dict[object, Read] = {
    str: _read_str, int: _read_int, float: _read_float, bool: _read_bool, bytes: _read_bytes,
}  # fmt: skip
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_loads = json.JSONDecoder(parse_constant=_constant).decode
