"""How what several tasks put under one key combines: in declared order, whoever came first.

Laws:
- The value of a key is a fold over what was put there, in the order of the tasks; so it does not
  depend on when they ran.
- A value is JSON, kept as bytes in one canonical form: nobody holds a part of what another one
  has, and equal values have equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Final

from headway.core.plan.resources import (
    Channel,
    channel_in,
    is_pattern,
    is_well_formed,
)
from headway.errors import StateError

VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Larger things belong into files."""
KNOWN_MAX: Final = 4096
"""Keys whose channel is remembered."""

Reducer = Callable[[object, object], object]


@dataclass(frozen=True, slots=True)
class Channels:
    """What a plan says of its keys. A key that it does not name holds a value."""

    declared: Mapping[str, Channel] = field(default_factory=dict)
    """By key or pattern."""
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    """By target."""
    known: dict[str, Channel] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of keys that were asked for: there may be a thousand patterns to try."""

    def of(self, key: str) -> Channel:
        """The channel of a key: its own, or that of the longest pattern that it matches."""
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            found = self.known[key] = channel_in(self.declared, key)
        return found

    def fold(self, key: str, puts: Sequence[bytes | None]) -> bytes | None:
        """The value of a key, of all that was put there in order; None if it has none."""
        channel = self.of(key)
        if channel.kind == "value":
            return puts[-1] if puts else None
        texts = [data for data in puts if data is not None]
        if not texts:
            return None
        if channel.kind in ("append", "set"):
            return _listed(texts if channel.kind == "append" else sorted(set(texts)), key)
        values = [json.loads(data) for data in texts]
        match channel.kind:
            case "counter":
                # Not `sum`, which newer Pythons round otherwise than one addition after another.
                return canonical(reduce(add, values), key)
            case "max":
                return canonical(max(values))
        return self._reduced(channel, key, values)

    def joined(self, key: str, before: bytes, puts: Sequence[bytes | None]) -> bytes | None:
        """The value of a key that had one, with more put there."""
        kind = self.of(key).kind
        if kind == "append":
            return _listed([before[1:-1], *(data for data in puts if data is not None)], key)
        if kind == "set":
            return self.fold(key, [*map(canonical, json.loads(before)), *puts])
        return self.fold(key, [before, *puts])

    def check(self, key: str, value: object, is_put: bool) -> bytes:
        """A value that may be put there, or added to it, as bytes; StateError if it may not."""
        must_be_key(key)
        channel = self.of(key)
        if channel.kind == "effect":
            raise StateError(
                f"`{key}` is an effect channel, which holds nothing",
                hint=f'use `ctx.effect("{key}", ...)`, or another key',
            )
        if is_put is not (channel.kind == "value"):
            verb, other = ("put", "add") if is_put else ("add", "put")
            raise StateError(
                f"`ctx.{verb}` does not fit `{key}`, whose channel is `{channel.kind}`",
                hint=f'use `ctx.{other}("{key}", ...)`, or declare another channel under `state:`',
            )
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if channel.kind in ("counter", "max") and not is_number:
            raise StateError(
                f"`{key}` is a {channel.kind} and takes numbers",
                detail=f"it was given {type(value).__name__}",
                hint=f"convert it first, or declare `{key}: append` under `state:`",
            )
        return canonical(value, key)

    def _reduced(self, channel: Channel, key: str, values: list[object]) -> bytes:
        reducer = self.reducers[channel.target]
        whole = values[0]
        for value in values[1:]:
            # As it would be read between two of them: what was a tuple is a list by then.
            whole = json.loads(canonical(reducer(whole, value), key))
        return canonical(whole, key)


def canonical(value: object, key: str = "") -> bytes:
    """The one form of a value as bytes; StateError if JSON cannot hold it."""
    try:
        # An encoder is made for every value that is no text: numbers need none.
        data = b"%d" % value if type(value) is int else _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as fault:
        raise StateError(
            f"the shared state cannot hold what was put under `{key}`" if key else None,
            detail=f"JSON has no form for it: {fault}"[:200],
            hint="put dicts, lists, text, numbers, true, false or null",
        ) from None
    return _of_size(data, key)


def _listed(texts: Iterable[bytes], key: str) -> bytes:
    """A list of values that are in their one form: so is it then."""
    return _of_size(b"[" + b",".join(texts) + b"]", key)


def _of_size(data: bytes, key: str) -> bytes:
    """What may be held; StateError if it is too much."""
    if len(data) > VALUE_BYTES_MAX:
        raise StateError(
            f"what was put under `{key}` has {len(data):,} bytes, and {VALUE_BYTES_MAX:,} may be",
            hint="write it into a file, and put its path",
        )
    return data


def must_be_key(key: object) -> None:
    """StateError if this cannot be a key."""
    if isinstance(key, str) and not is_pattern(key) and is_well_formed(key):
        return
    raise StateError(
        f"`{key!s:.80}` cannot be a key of the shared state",
        hint="use names with slashes between them, without `*` and `?`: records/42",
    )


_encode: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode
