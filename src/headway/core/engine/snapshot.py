"""Shared state: versions of every key, and what one task sees of them.

Laws:
- Tasks have positions: their places in the serial run in declared order. A read gives the newest
  version of a lower position, never that of a later task, whoever was faster.
- What is read is a copy: versions are bytes, and nobody can change what another one was given.
- Writes are buffered; others see them when their task is committed, all of them or none.
- A task that reads a key twice sees the same twice, and what it put there itself.
- What was seen is remembered by content: `changed` tells whether it would still be seen.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headway.core.digest import digest
from headway.core.engine.access import NOT_THERE, Access, Act, Put, Seen
from headway.core.engine.channels import Channels
from headway.core.plan.resources import is_pattern, matches, prefix_of
from headway.core.records import quick
from headway.errors import StateError

FOLDS_MAX: Final = 32
"""Values of one key that are remembered: tasks that run together look at positions that are near
each other, and each value may be as large as the last."""

Looks = Callable[[str], None]
"""Told what an attempt looks at, the first time that it does."""


@dataclass(frozen=True, slots=True)
class SharedStatistics:
    """How much there is."""

    keys: int
    versions: int
    commits: int


@dataclass(frozen=True, slots=True)
class SnapshotStatistics:
    """Keys and patterns read, keys written, effects asked for."""

    read: int
    written: int
    effects: int


@quick
class Change:
    """Something that was seen and is different now."""

    what: str
    position: int
    """Of the last task that wrote there; -1 if it is the state that the run began with."""


@dataclass(slots=True)
class _Versions:
    """What was put under one key, by position."""

    positions: list[int] = field(default_factory=list)
    puts: list[tuple[bytes | None, ...]] = field(default_factory=list)
    folds: dict[int, tuple[bytes | None, bytes]] = field(default_factory=dict)
    """The value and its digest, by the number of versions that it is made of."""

    def put(self, position: int, data: tuple[bytes | None, ...]) -> None:
        place = bisect_left(self.positions, position)
        self.positions.insert(place, position)
        self.puts.insert(place, data)
        # What is made of versions before this one stays as it was.
        self.folds = {count: fold for count, fold in self.folds.items() if count <= place}


class Shared:
    """All committed versions."""

    __slots__ = ("_commits", "_keys", "_versions", "channels", "faults")

    def __init__(
        self, channels: Channels | None = None, initial: Mapping[str, bytes] | None = None
    ) -> None:
        self.channels = channels or Channels()
        self._versions: dict[str, _Versions] = {}
        self._keys: list[str] = []
        self.faults: dict[bytes, StateError] = {}
        """By digest: why a key has no value, where what was put there does not combine."""
        self._commits = 0
        for key, data in (initial or {}).items():
            self._put(key, -1, (data,))

    def __repr__(self) -> str:
        return f"<Shared {self.statistics()}>"

    def value(self, key: str, position: int) -> tuple[bytes | None, bytes]:
        """What a task at this position is given of a key, and its digest."""
        versions = self._versions.get(key)
        if versions is None:
            return None, NOT_THERE
        count = bisect_left(versions.positions, position)
        found = versions.folds.get(count)
        if found is None:
            if len(versions.folds) >= FOLDS_MAX:
                del versions.folds[min(versions.folds)]
            found = versions.folds[count] = self._fold(key, versions, count)
        return found

    def found(self, pattern: str, position: int) -> list[tuple[str, bytes | None, bytes]]:
        """The keys of a pattern that are there, with value and digest, in order.

        What does not combine is there without a value.
        """
        found = ((key, *self.value(key, position)) for key in self._within(pattern))
        return [one for one in found if one[2] != NOT_THERE]

    def matching(self, pattern: str, position: int) -> list[tuple[str, bytes, bytes]]:
        """The keys of a pattern with their values and digests; StateError if one has none."""
        return self.whole(self.found(pattern, position))

    def whole(self, found: list[tuple[str, bytes | None, bytes]]) -> list[tuple[str, bytes, bytes]]:
        """What was found, if all of it has a value."""
        every: list[tuple[str, bytes, bytes]] = []
        for key, data, name in found:
            if data is None:
                raise self.faults[name]
            every.append((key, data, name))
        return every

    def look(self, what: str, position: int) -> bytes:
        """The digest of what a task at this position sees under a key or a pattern."""
        if not is_pattern(what):
            return self.value(what, position)[1]
        return scan_digest((key, name) for key, _, name in self.found(what, position))

    def changed(self, seen: Seen, position: int) -> Change | None:
        """Who made it that this would not be seen again; None if it would."""
        if self.look(seen.what, position) == seen.digest:
            return None
        keys = self._within(seen.what) if is_pattern(seen.what) else (seen.what,)
        return Change(seen.what, max((self._last(key, position) for key in keys), default=-1))

    def commit(self, position: int, writes: Iterable[Put]) -> None:
        """Make what a task wrote a part of the state: once for each task."""
        self._commits += 1
        by_key: dict[str, list[bytes | None]] = {}
        for put in writes:
            by_key.setdefault(put.key, []).append(put.data)
        for key, data in by_key.items():
            self._put(key, position, tuple(data))

    def statistics(self) -> SharedStatistics:
        versions = sum(len(one.positions) for one in self._versions.values())
        return SharedStatistics(len(self._keys), versions, self._commits)

    def _fold(self, key: str, versions: _Versions, count: int) -> tuple[bytes | None, bytes]:
        """Of what fewer versions make, where that is remembered, and of those behind them."""
        folds = versions.folds
        made = (fewer for fewer, fold in folds.items() if fewer < count and fold[0] is not None)
        base = max(made, default=0)
        before = folds[base][0] if base else None
        puts = [data for one in versions.puts[base:count] for data in one]
        try:
            fold, joined = self.channels.fold, self.channels.joined
            data = fold(key, puts) if before is None else joined(key, before, puts)
        except StateError as fault:
            # Whoever reads it fails, now as in a serial run; that nobody can read it is its value.
            name = digest(b"fault:" + fault.render().encode())
            self.faults[name] = fault
            return None, name
        return data, NOT_THERE if data is None else digest(data)

    def _put(self, key: str, position: int, data: tuple[bytes | None, ...]) -> None:
        versions = self._versions.get(key)
        if versions is None:
            versions = self._versions[key] = _Versions()
            insort(self._keys, key)
        versions.put(position, data)

    def _last(self, key: str, position: int) -> int:
        """The position of the newest version that a task sees; -1 if there is none."""
        versions = self._versions.get(key)
        count = 0 if versions is None else bisect_left(versions.positions, position)
        return versions.positions[count - 1] if versions is not None and count else -1

    def _within(self, pattern: str) -> list[str]:
        """All keys of a pattern, whoever may see them."""
        folder = prefix_of(pattern)
        first = bisect_left(self._keys, folder)
        # The character after the slash: whatever is below the folder comes before it.
        last = bisect_left(self._keys, folder + "0") if folder else len(self._keys)
        return [key for key in self._keys[first:last] if matches(pattern, key)]


class Snapshot:
    """The state as one attempt sees it, with what it has put there itself."""

    __slots__ = ("_acts", "_looks", "_own", "_prompts", "_seen", "_shared", "_values", "position")

    def __init__(self, shared: Shared, position: int, looks: Looks | None = None) -> None:
        self._shared = shared
        self._looks = looks
        self.position = position
        self._seen: dict[str, bytes] = {}
        self._values: dict[str, bytes | None] = {}
        self._own: dict[str, list[bytes | None]] = {}
        self._acts: list[Act] = []
        self._prompts = b""

    def __repr__(self) -> str:
        return f"<Snapshot at {self.position}, {len(self._seen)} read, {len(self._own)} written>"

    def statistics(self) -> SnapshotStatistics:
        return SnapshotStatistics(len(self._seen), len(self._own), len(self._acts))

    @property
    def channels(self) -> Channels:
        """How what is put there combines."""
        return self._shared.channels

    def get(self, key: str) -> bytes | None:
        """The value of a key; None if it has none."""
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
        if pattern not in self._seen:
            there = self._shared.found(pattern, self.position)
            self._saw(pattern, scan_digest((key, name) for key, _, name in there))
            for key, data, _ in self._shared.whole(there):
                self._values.setdefault(key, data)
        for key, value in self._values.items():
            if value is not None and matches(pattern, key):
                found[key] = value
        for key in self._own:
            if matches(pattern, key):
                mine = self.get(key)
                if mine is None:
                    found.pop(key, None)
                else:
                    found[key] = mine
        return sorted(found.items())

    def put(self, key: str, value: object) -> None:
        """Give a key a value, in place of what it had."""
        self._own[key] = [self._shared.channels.check(key, value, is_put=True)]

    def add(self, key: str, value: object) -> None:
        """Add to a key whose channel combines."""
        data = self._shared.channels.check(key, value, is_put=False)
        self._own.setdefault(key, []).append(data)

    def remove(self, key: str) -> None:
        """Take a key away."""
        self._shared.channels.check(key, None, is_put=True)
        self._own[key] = [None]

    def act(self, act: Act) -> int:
        """Ask for an effect; its number within the attempt."""
        self._acts.append(act)
        return len(self._acts) - 1

    def prompted(self, text: bytes) -> None:
        """A prompt was sent."""
        self._prompts = digest(self._prompts + digest(text))

    def access(self) -> Access:
        """Everything that was touched so far."""
        return Access(
            tuple(Seen(what, name) for what, name in self._seen.items()),
            tuple(Put(key, data) for key, every in self._own.items() for data in every),
            tuple(self._acts),
            self._prompts,
        )

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
        self._seen[what] = name
        if self._looks is not None:
            self._looks(what)


def scan_digest(found: Iterable[tuple[str, bytes]]) -> bytes:
    """The digest of the keys and values that a pattern gives."""
    named = ((key.encode(), name) for key, name in found)
    return digest(b"".join(b"%d:%b%b" % (len(key), key, name) for key, name in named))
