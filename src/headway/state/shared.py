"""Shared state: versions of every key, and what one task sees of them.

Laws:
- Tasks have positions: their places in the serial run in declared order. A read gives the newest
  version of a lower position, never that of a later task, whichever was faster.
- What is read is a copy: versions are bytes, and no task can change what another was given.
- Writes are buffered; others see them when their task is committed, all of them or none.
- A task that reads a key twice sees the same twice, and what it put there itself.
- What was seen is remembered by content: `changed` tells whether it would still be seen.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Final

from msgspec import Struct, field

from headway.base.digest import digest
from headway.errors import JournalError, StateError
from headway.plans import resources

# How what several tasks put under one key combines: in declared order, not in order of arrival.

VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
KNOWN_MAX: Final = 4096

Reducer = Callable[[object, object], object]


class Channels(Struct, frozen=True):
    """What a plan says of its keys. A key that it does not name holds a value."""

    declared: Mapping[str, resources.Channel] = field(default_factory=dict)
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    known: dict[str, resources.Channel] = field(default_factory=dict)
    """Of keys that were asked for: there may be a thousand patterns to try."""

    def of(self, key: str) -> resources.Channel:
        """The channel of a key: its own, or that of the longest pattern that it matches."""
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            found = self.known[key] = resources.channel_in(self.declared, key)
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

    def _reduced(self, channel: resources.Channel, key: str, values: list[object]) -> bytes:
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
    if len(data) > VALUE_BYTES_MAX:
        raise StateError(
            f"what was put under `{key}` has {len(data):,} bytes, and {VALUE_BYTES_MAX:,} may be",
            hint="write it into a file, and put its path",
        )
    return data


def must_be_key(key: object) -> None:
    if isinstance(key, str) and not resources.is_pattern(key) and resources.is_well_formed(key):
        return
    raise StateError(
        f"`{key!s:.80}` cannot be a key of the shared state",
        hint="use names with slashes between them, without `*` and `?`: records/42",
    )


_encode: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


# What an attempt touched: what it saw of the shared state, what it puts there, what it asks for.

VERSION: Final = 1
"""Of the bytes below; they are kept in journals."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

NOT_THERE: Final = b""


class StateLook(Struct, frozen=True):
    """A look at a key, or at all keys of a pattern."""

    what: str
    digest: bytes
    """Of what was there, as far as others had put it there."""


class Put(Struct, frozen=True):
    """A value for a key, or what is added to it where its channel combines."""

    key: str
    data: bytes | None
    """JSON; None takes the key away."""


class Act(Struct, frozen=True):
    channel: str
    data: bytes
    is_now: bool = False
    """Performed when it was asked for, whatever becomes of the attempt: outside the guarantee."""


class Access(Struct, frozen=True):
    """Everything that one attempt touched, in the order in which it first did."""

    reads: tuple[StateLook, ...] = ()
    writes: tuple[Put, ...] = ()
    acts: tuple[Act, ...] = ()


UNTOUCHED: Final = Access()


def encode(access: Access) -> bytes:
    return _dumps(
        {
            "version": VERSION,
            "reads": [[seen.what, seen.digest.hex()] for seen in access.reads],
            "writes": [[put.key, _text(put.data)] for put in access.writes],
            "acts": [[act.channel, _text(act.data), act.is_now] for act in access.acts],
        }
    )


def decode(data: bytes) -> Access:
    """What was encoded; JournalError if it was not."""
    try:
        said = json.loads(data)
        if said["version"] > VERSION:
            raise ValueError(f"version {said['version']} is of a newer headway")
        return Access(
            tuple(StateLook(str(what), bytes.fromhex(seen)) for what, seen in said["reads"]),
            tuple(Put(str(key), _bytes(text)) for key, text in said["writes"]),
            tuple(
                Act(str(name), str(text).encode(), bool(now)) for name, text, now in said["acts"]
            ),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as fault:
        raise JournalError(
            "what a task touched cannot be read", detail=f"{type(fault).__name__}: {fault}"[:200]
        ) from None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else str(text).encode()


def _dumps(value: object) -> bytes:
    return _ENCODER.encode(value).encode()


FOLDS_MAX: Final = 32
"""Values of one key that are remembered: tasks that run together look at positions that are near
each other, and each value may be as large as the last."""

Looks = Callable[[str], None]
"""Told what an attempt looks at, the first time that it does."""


class Change(Struct, frozen=True):
    """Something that was seen and is different now."""

    what: str
    position: int
    """Of the last task that wrote there; -1 if it is the state that the run began with."""


Data = bytes | None
Fold = tuple[Data, bytes]
_NOTHING: Final[Fold] = (None, NOT_THERE)


class _Versions(Struct):
    """What was put under one key, by position.

    A run has as many of these as keys, and most of them stay as they were made: so they are made
    of as few things as possible, which a collector would look at again and again.
    """

    positions: list[int]
    puts: list[Data | tuple[Data, ...]]
    """What a task put there; a tuple if that was several things."""
    folds: dict[int, Fold] | None = None
    """The value and its digest, by the number of versions that it is made of."""

    def put(self, position: int, data: Data | tuple[Data, ...]) -> None:
        place = bisect_left(self.positions, position)
        self.positions.insert(place, position)
        self.puts.insert(place, data)
        # What is made of versions before this one stays as it was.
        if self.folds:
            self.folds = {count: fold for count, fold in self.folds.items() if count <= place}

    def keep(self, count: int, fold: Fold) -> Fold:
        if self.folds is None:
            self.folds = {}
        elif len(self.folds) >= FOLDS_MAX:
            del self.folds[min(self.folds)]
        self.folds[count] = fold
        return fold

    def between(self, first: int, last: int) -> list[Data]:
        """All that was put there from one version to another."""
        every: list[Data] = []
        for data in self.puts[first:last]:
            if isinstance(data, tuple):
                every += data
            else:
                every.append(data)
        return every


class Shared:
    __slots__ = ("_keys", "_looks", "_versions", "channels", "faults")

    def __init__(
        self, channels: Channels | None = None, initial: Mapping[str, bytes] | None = None
    ) -> None:
        self.channels = channels or Channels()
        self._versions: dict[str, _Versions] = {}
        self._keys: list[str] = []
        self._looks: dict[tuple[str, int], bytes] = {}
        """The digests of patterns, by who looked, since something was put last."""
        self.faults: dict[bytes, StateError] = {}
        """By digest: why a key has no value, where what was put there does not combine."""
        for key, data in (initial or {}).items():
            self._put(key, -1, data)

    def value(self, key: str, position: int) -> Fold:
        """What a task at this position is given of a key, and its digest."""
        versions = self._versions.get(key)
        count = 0 if versions is None else bisect_left(versions.positions, position)
        if versions is None or not count:
            return _NOTHING
        found = None if versions.folds is None else versions.folds.get(count)
        return found or versions.keep(count, self._fold(key, versions, count))

    def found(self, pattern: str, position: int) -> list[tuple[str, bytes | None, bytes]]:
        """The keys of a pattern that are there, with value and digest, in order.

        What does not combine is there without a value.
        """
        every: list[tuple[str, bytes | None, bytes]] = []
        for key in self._within(pattern):
            data, name = self.value(key, position)
            if name:
                every.append((key, data, name))
        return every

    def matching(self, pattern: str, position: int) -> list[tuple[str, bytes, bytes]]:
        """The keys of a pattern with their values and digests; StateError if one has none."""
        return self.whole(self.found(pattern, position))

    def whole(self, found: list[tuple[str, bytes | None, bytes]]) -> list[tuple[str, bytes, bytes]]:
        every: list[tuple[str, bytes, bytes]] = []
        for key, data, name in found:
            if data is None:
                raise self.faults[name]
            every.append((key, data, name))
        return every

    def look(self, what: str, position: int) -> bytes:
        """The digest of what a task at this position sees under a key or a pattern."""
        if not resources.is_pattern(what):
            return self.value(what, position)[1]
        known = self._looks.get((what, position))
        if known is None:
            known = self._looks[what, position] = scan_digest(self.found(what, position))
        return known

    def changed(self, seen: StateLook, position: int) -> Change | None:
        """Who made it that this would not be seen again; None if it would."""
        if self.look(seen.what, position) == seen.digest:
            return None
        keys = self._within(seen.what) if resources.is_pattern(seen.what) else (seen.what,)
        return Change(seen.what, max((self._last(key, position) for key in keys), default=-1))

    def commit(self, position: int, writes: Iterable[Put]) -> None:
        """Make what a task wrote a part of the state: once for each task."""
        by_key: dict[str, list[Data]] = {}
        for put in writes:
            by_key.setdefault(put.key, []).append(put.data)
        for key, data in by_key.items():
            self._put(key, position, data[0] if len(data) == 1 else tuple(data))

    def _fold(self, key: str, versions: _Versions, count: int) -> Fold:
        """Of what fewer versions make, where that is remembered, and of those behind them."""
        folds = versions.folds or {}
        made = (fewer for fewer, fold in folds.items() if fewer < count and fold[0] is not None)
        base = max(made, default=0)
        before = folds[base][0] if base else None
        puts = versions.between(base, count)
        try:
            fold, joined = self.channels.fold, self.channels.joined
            data = fold(key, puts) if before is None else joined(key, before, puts)
        except StateError as fault:
            # A read fails, now as in a serial run; the failure is its value.
            name = digest(b"fault:" + fault.render().encode())
            self.faults[name] = fault
            return None, name
        return data, NOT_THERE if data is None else digest(data)

    def _put(self, key: str, position: int, data: Data | tuple[Data, ...]) -> None:
        versions = self._versions.get(key)
        if versions is None:
            self._versions[key] = _Versions([position], [data])
            insort(self._keys, key)
        else:
            versions.put(position, data)
        self._looks.clear()

    def _last(self, key: str, position: int) -> int:
        """The position of the newest version that a task sees; -1 if there is none."""
        versions = self._versions.get(key)
        count = 0 if versions is None else bisect_left(versions.positions, position)
        return versions.positions[count - 1] if versions is not None and count else -1

    def _within(self, pattern: str) -> list[str]:
        if pattern == resources.EVERY_KEY:
            return self._keys
        folder = resources.prefix_of(pattern)
        first = bisect_left(self._keys, folder)
        # The character after the slash: whatever is below the folder comes before it.
        last = bisect_left(self._keys, folder + "0") if folder else len(self._keys)
        return [key for key in self._keys[first:last] if resources.matches(pattern, key)]


class Snapshot:
    """The state as one attempt sees it, with what it has put there itself."""

    __slots__ = (
        "_access", "_acts", "_looks", "_own", "_shared", "_values", "position", "seen",
    )  # fmt: skip

    def __init__(self, shared: Shared, position: int, looks: Looks | None = None) -> None:
        self._shared = shared
        self._looks = looks
        self.position = position
        self.seen: dict[str, bytes] = {}
        """The digests of keys and patterns that were looked at, in order."""
        self._values: dict[str, bytes | None] = {}
        self._own: dict[str, list[bytes | None]] = {}
        self._acts: list[Act] = []
        self._access: Access | None = None
        """All of it, as it was last asked for, if nothing was touched since."""

    def __repr__(self) -> str:
        return f"<Snapshot at {self.position}, {len(self.seen)} read, {len(self._own)} written>"

    @property
    def channels(self) -> Channels:
        return self._shared.channels

    def get(self, key: str) -> bytes | None:
        own = self._own.get(key)
        if own is None:
            return self._read(key)
        channels = self._shared.channels
        if channels.of(key).kind == "value":
            return own[-1]
        before = self._read(key)
        if before is None:
            return channels.fold(key, own)
        return channels.joined(key, before, own)

    def scan(self, pattern: str) -> list[tuple[str, bytes]]:
        """All keys of a pattern that have a value, with it, in order."""
        found: dict[str, bytes] = {}
        if pattern not in self.seen:
            there = self._shared.found(pattern, self.position)
            self._saw(pattern, scan_digest(there))
            for key, data, _ in self._shared.whole(there):
                self._values.setdefault(key, data)
        for key, value in self._values.items():
            if value is not None and resources.matches(pattern, key):
                found[key] = value
        for key in self._own:
            if resources.matches(pattern, key):
                mine = self.get(key)
                if mine is None:
                    found.pop(key, None)
                else:
                    found[key] = mine
        return sorted(found.items())

    def put(self, key: str, value: object) -> None:
        self._own[key] = [self._shared.channels.check(key, value, is_put=True)]
        self._access = None

    def add(self, key: str, value: object) -> None:
        data = self._shared.channels.check(key, value, is_put=False)
        self._own.setdefault(key, []).append(data)
        self._access = None

    def remove(self, key: str) -> None:
        self._shared.channels.check(key, None, is_put=True)
        self._own[key] = [None]
        self._access = None

    def act(self, act: Act) -> int:
        """Ask for an effect; its number within the attempt."""
        self._acts.append(act)
        self._access = None
        return len(self._acts) - 1

    def files(self, pattern: str) -> list[tuple[str, bytes | None, bytes]]:
        """Keys of files with value and digest as they are now, which is no look at them."""
        return self._shared.found(pattern, self.position)

    def touched(self, seen: Mapping[str, bytes], written: Mapping[str, bytes | None]) -> None:
        """What an attempt in a workspace has read, with the digests of what stood there when it
        began, and what it wrote."""
        for what, name in seen.items():
            self._saw(what, name)
        for key, data in written.items():
            self._own[key] = [data]
        self._access = None

    def access(self) -> Access:
        if self._access is None:
            self._access = Access(
                tuple([StateLook(what, name) for what, name in self.seen.items()]),
                tuple([Put(key, data) for key, every in self._own.items() for data in every]),
                tuple(self._acts),
            )
        return self._access

    def _read(self, key: str) -> bytes | None:
        if key in self._values:
            return self._values[key]
        data, name = self._shared.value(key, self.position)
        self._saw(key, name)
        if (fault := self._shared.faults.get(name)) is not None:
            raise fault
        self._values[key] = data
        return data

    def _saw(self, what: str, name: bytes) -> None:
        self.seen[what] = name
        self._access = None
        if self._looks is not None:
            self._looks(what)


def scan_digest(found: Iterable[tuple[str, bytes | None, bytes]]) -> bytes:
    """The digest of the keys and values that a pattern gives: of their names and digests."""
    named = [(key.encode(), name) for key, _, name in found]
    return digest(b"".join([b"%d:%b%b" % (len(key), key, name) for key, name in named]))
