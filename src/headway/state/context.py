"""`ctx`: the shared state for a task's own code.

Laws:
- What is read is a copy, and what is put is copied: no task holds a part of another's value.
- One thing at a time: every use holds the attempt's lock, whichever thread it comes from.
- A context ends with its attempt. What is done with it later is refused, never half done.
- Time and chance are those of the run and the task: another attempt meets the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from json import JSONDecoder
from random import Random
from threading import RLock
from typing import Final, NoReturn, Protocol

from msgspec import Struct

from headway.errors import StateError, did_you_mean
from headway.plans.resources import is_pattern, is_well_formed
from headway.state.shared import Act, Snapshot, canonical, must_be_key
from headway.work import Attempt

SCAN_BYTES_MAX: Final = 64 * 1024 * 1024
"""What one scan may give: more is no working set, and travels through a pipe in one piece."""

_parsed: Final = JSONDecoder().raw_decode

Perform = Callable[[Act, int], None]


class Circumstances(Struct, frozen=True):
    """The attempt that a context belongs to, and when its run was created."""

    name: str
    attempt: int = 1
    time_s: float = 0.0
    seed: bytes = b""


class Commons(Struct, frozen=True):
    time_s: float = 0.0
    perform: Callable[[Attempt, Act, int], None] | None = None
    """Does an effect at once, in the thread that asks for it; with its number in the attempt."""


class Reach(Protocol):
    """What a task's code can reach of the shared state from where it runs; values are bytes."""

    def get(self, key: str) -> bytes | None: ...

    def scan(self, pattern: str) -> list[tuple[str, bytes]]: ...

    def put(self, key: str, value: object) -> None: ...

    def add(self, key: str, value: object) -> None: ...

    def remove(self, key: str) -> None: ...

    def act(self, channel: str, payload: object, is_now: bool) -> None: ...

    def end(self) -> None: ...


class LocalReach:
    """The snapshot of an attempt in this process: one thread at a time, until the attempt ends."""

    __slots__ = ("_is_over", "_lock", "_perform", "_snapshot")

    def __init__(self, snapshot: Snapshot, lock: RLock, perform: Perform | None = None) -> None:
        self._snapshot = snapshot
        self._lock = lock
        self._perform = perform
        self._is_over = False

    def get(self, key: str) -> bytes | None:
        must_be_known_key(key)
        with self._lock:
            self._must_go_on()
            return self._snapshot.get(key)

    def scan(self, pattern: str) -> list[tuple[str, bytes]]:
        """All that a pattern gives, in order of the keys; of a plain key itself, if it is there."""
        must_be_pattern(pattern)
        with self._lock:
            self._must_go_on()
            if is_pattern(pattern):
                found = self._snapshot.scan(pattern)
            else:
                data = self._snapshot.get(pattern)
                found = [] if data is None else [(pattern, data)]
        if sum(len(data) for _, data in found) > SCAN_BYTES_MAX:
            raise StateError(
                f"`{pattern}` gives more than {SCAN_BYTES_MAX:,} bytes at once",
                hint="scan a narrower pattern, or get the keys one by one",
            )
        return found

    def put(self, key: str, value: object) -> None:
        with self._lock:
            self._touches(key)
            self._snapshot.put(key, value)

    def add(self, key: str, value: object) -> None:
        with self._lock:
            self._touches(key)
            self._snapshot.add(key, value)

    def remove(self, key: str) -> None:
        with self._lock:
            self._touches(key)
            self._snapshot.remove(key)

    def act(self, channel: str, payload: object, is_now: bool) -> None:
        """Ask for an effect; one that is wanted now is done when this returns."""
        act = Act(channel, canonical(payload, channel), is_now)
        with self._lock:
            self._must_go_on()
            must_be_effect(self._snapshot, channel)
            if is_now and self._perform is None:
                raise StateError(
                    "nothing can be done to the world from here",
                    hint=f'use `ctx.effect("{channel}", ...)`',
                )
            number = self._snapshot.act(act)
        if is_now and self._perform is not None:
            self._perform(act, number)

    def end(self) -> None:
        with self._lock:
            self._is_over = True

    def _touches(self, key: str) -> None:
        must_be_known_key(key)
        self._must_go_on()

    def _must_go_on(self) -> None:
        if self._is_over:
            raise over(self._snapshot)


class Context:
    """The shared state of a run, as one task sees it. A function that has a parameter named `ctx`
    is given one.

        def enrich(name, ctx):
            record = ctx[f"records/{name}"]
            ctx.put(f"enriched/{name}", look_up(record))
            ctx.add("total", 1)

    Reads give what tasks declared before this one have put there, as if everything ran one after
    another; writes are seen by others when this task is done.
    """

    __slots__ = ("_random", "_reach", "_seed", "attempt", "name", "time_s")

    def __init__(self, reach: Reach, at: Circumstances) -> None:
        self._reach = reach
        self._seed = at.seed
        self._random: Random | None = None
        self.name = at.name
        """The task's, as people read it."""
        self.attempt = at.attempt
        """Its number, from 1. How often a task runs again depends on who was faster: for a log, and
        not to be written into the state."""
        self.time_s = at.time_s
        """When the run was created: the same for every attempt, and after a resume."""

    def __repr__(self) -> str:
        return f"<Context of {self.name}, attempt {self.attempt}>"

    def get(self, key: str, default: object = None) -> object:
        """A copy of a key's value; the default if it has none."""
        data = self._reach.get(key)
        return default if data is None else _copied(data)

    def __getitem__(self, key: str) -> object:
        data = self._reach.get(key)
        if data is None:
            raise KeyError(key)
        return _copied(data)

    def __contains__(self, key: str) -> bool:
        return self._reach.get(key) is not None

    def put(self, key: str, value: object) -> None:
        """Give a key a value that JSON can hold, in place of what it had."""
        self._reach.put(key, value)

    def add(self, key: str, value: object) -> None:
        """Add to a key whose channel combines: append, set, counter, max, reduce."""
        self._reach.add(key, value)

    def remove(self, key: str) -> None:
        """Take a key away."""
        self._reach.remove(key)

    def scan(self, pattern: str) -> dict[str, object]:
        """Copies of all values whose keys match, in order: `*` is within a name, `**` anything."""
        return {key: _copied(data) for key, data in self._reach.scan(pattern)}

    def effect(self, channel: str, payload: object = None) -> None:
        """Ask for an effect on the world: done once this task is, in declared order."""
        self._reach.act(channel, payload, is_now=False)

    def now(self, channel: str, payload: object = None) -> None:
        """Do it at once, whatever becomes of the attempt: again with every attempt."""
        self._reach.act(channel, payload, is_now=True)

    @property
    def random(self) -> Random:
        """Chance that every attempt of this task meets again."""
        if self._random is None:
            self._random = Random(self._seed)
        return self._random

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "a context stays in the process that it was given to",
            hint="read what is needed, and pass that on",
        )


def _copied(data: bytes) -> object:
    value: object = _parsed(data.decode())[0]
    return value


class Lent(Struct, frozen=True):
    """A context for the time of one attempt, before it is known where its function runs."""

    reach: Reach
    at: Circumstances

    def context(self) -> Context:
        return Context(self.reach, self.at)


@contextmanager
def lent(attempt: Attempt, commons: Commons) -> Iterator[Lent | None]:
    """What the function of an attempt is given; None if it has nothing to do with the state."""
    if attempt.snapshot is None:
        yield None
        return
    perform = partial(commons.perform, attempt) if commons.perform is not None else None
    reach = LocalReach(attempt.snapshot, attempt.lock, perform)
    # Without a journal a task's key is a number, which other groups have too.
    seed = attempt.key + attempt.name.encode("utf-8", "surrogatepass")
    try:
        yield Lent(reach, Circumstances(attempt.name, attempt.number, commons.time_s, seed))
    finally:
        reach.end()


def must_be_known_key(key: str) -> None:
    """StateError if this cannot be a key; valid keys are remembered."""
    if type(key) is str:
        _known(key)
    else:
        must_be_key(key)


_known: Final = lru_cache(4096)(must_be_key)


def must_be_pattern(pattern: object) -> None:
    if not isinstance(pattern, str) or not is_well_formed(pattern):
        raise StateError(
            f"`{pattern!s:.80}` cannot be a pattern of keys",
            hint="use names with slashes between them, `*` and `**`: records/*",
        )


def must_be_effect(snapshot: Snapshot, channel: str) -> None:
    declared = snapshot.channels.declared
    must_be_known_key(channel)
    if snapshot.channels.of(channel).kind != "effect":
        known = [name for name, one in declared.items() if one.kind == "effect"]
        raise StateError(
            f"there is no effect channel `{channel}`",
            hint=did_you_mean(channel, known) if known
            else f"declare `{channel}: effect(module:function)` under `state:`",
        )  # fmt: skip


def over(what: object) -> StateError:
    return StateError(
        "the attempt that this context belongs to has ended",
        detail=f"{what!r}",
        hint="use `ctx` before the function returns, and let its threads end first",
    )
