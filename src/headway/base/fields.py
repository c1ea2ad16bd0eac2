"""JSON from strangers: a look gives a value of the type asked for or nothing, never an error."""

from __future__ import annotations

import json
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

NUMBER_MAX: Final = 1e15
"""No limit, count or wait is larger: a number above this is noise, and floats stay exact below."""

Fields = dict[str, object]
"""A JSON object. Its keys are text; of its values nothing is known."""

_NO_FIELDS: Final[Fields] = {}


def parsed(text: str | bytes) -> object:
    """JSON, or `None`. Deep nesting ends in RecursionError, long integers in ValueError."""
    try:
        value: object = decode(text)
    except (DecodeError, ValueError, RecursionError):
        # Half surrogates, bytes that are no UTF-8 and numbers beyond all bounds are read, too.
        try:
            if isinstance(text, bytes):
                text = text.decode("utf-8", "replace")
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return value


def dumped(value: object) -> bytes:
    """Compact JSON in UTF-8. Half a surrogate pair, which UTF-8 has no bytes for, becomes `?`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def object_fields(value: object) -> Fields:
    """The value if it is an object, else an empty one, which must not be written to."""
    return value if isinstance(value, dict) else _NO_FIELDS


def items(value: object) -> list[object]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """The value if it is text, else none."""
    return value if isinstance(value, str) else ""


def tokens(value: object) -> float | None:
    """The value if it is a count of tokens: a number from 0 to `NUMBER_MAX`, not a truth value."""
    if type(value) not in (int, float):
        return None
    assert isinstance(value, int | float)
    return float(value) if 0 <= value <= NUMBER_MAX else None


def whole_tokens(value: object) -> int | None:
    """The same, as an integer: what a call allows its answer."""
    count = tokens(value)
    return None if count is None else int(count)
