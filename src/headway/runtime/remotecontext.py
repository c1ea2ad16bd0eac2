"""`ctx` in a worker process: asks the process of the run, which has the state, one thing at a time.

Laws:
- The state is in one place: a worker holds nothing of it that could be older, or be lost.
- A question is answered before the next is asked, whichever thread asks, and before the function's
  own end is told. Whoever is interrupted in the middle of one ends with its process.
- What the run's process would refuse is refused here, in the same words.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from json import loads
from multiprocessing.connection import Connection
from threading import Lock

from headway.core.engine.channels import canonical
from headway.core.slips import Handed
from headway.errors import HeadwayError, StateError
from headway.runtime.agents.process import ASKED
from headway.runtime.context import (
    ContextStatistics,
    Reach,
    must_be_known_key,
    must_be_pattern,
    over,
)


class RemoteReach:
    """The shared state, at the other end of a pipe."""

    def __init__(self, pipe: Connection, name: str, lock: Lock | None = None) -> None:
        """`lock` is held by every thread that writes to the pipe."""
        self._pipe = pipe
        self._name = name
        self._lock = Lock() if lock is None else lock
        self._is_over = False
        self._reads = self._writes = self._acts = 0
        self.is_cut = False
        """Whether a question was left without having its answer read."""

    def __repr__(self) -> str:
        return f"<RemoteReach of {self._name}>"

    def get(self, key: str) -> bytes | None:
        must_be_known_key(key)
        self._reads += 1
        found = self._asks("get", key)
        return found if isinstance(found, bytes) else None

    def scan(self, pattern: str) -> list[tuple[str, bytes]]:
        must_be_pattern(pattern)
        self._reads += 1
        found = self._asks("scan", pattern)
        return found if isinstance(found, list) else []

    def put(self, key: str, value: object) -> None:
        must_be_known_key(key)
        self._writes += 1
        self._asks("put", key, canonical(value, key))

    def add(self, key: str, value: object) -> None:
        must_be_known_key(key)
        self._writes += 1
        self._asks("add", key, canonical(value, key))

    def remove(self, key: str) -> None:
        must_be_known_key(key)
        self._writes += 1
        self._asks("remove", key)

    def act(self, channel: str, payload: object, is_now: bool) -> None:
        must_be_known_key(channel)
        self._acts += 1
        self._asks("now" if is_now else "effect", channel, canonical(payload, channel))

    def prompted(self, text: bytes) -> None:
        with suppress(StateError):  # After the function's end it counts for nobody.
            self._asks("prompted", text)

    def handed(self, every: Sequence[Handed], is_timed: bool) -> None:
        self._asks("handed", tuple(every), is_timed)

    def end(self) -> None:
        """The function has returned: once nobody is in the middle of a question."""
        with self._lock:
            self._is_over = True

    def statistics(self) -> ContextStatistics:
        return ContextStatistics(self._reads, self._writes, self._acts, self._is_over)

    def _asks(self, *question: object) -> object:
        with self._lock:
            if self._is_over:
                raise over(self._name)
            self.is_cut = True
            self._pipe.send_bytes(pickle.dumps((ASKED, question)))
            is_value, told = pickle.loads(self._pipe.recv_bytes())
            self.is_cut = False
        if not is_value:
            raise told
        return told


def answer(
    reach: Reach, question: tuple[object, ...], later: Callable[[bytes], None]
) -> bytes | None:
    """What a worker is told about what it asked; None if it is told later, on the loop."""
    match question:
        case ("now", str(channel), bytes(data)):
            # It may take its time, and the loop has others to serve.
            loop = asyncio.get_running_loop()
            act = partial(reach.act, channel, loads(data), is_now=True)
            done = loop.run_in_executor(None, partial(_told, act))
            done.add_done_callback(partial(_pass_on, later))
            return None
    return _told(partial(_answer, reach, question))


def _pass_on(later: Callable[[bytes], None], done: asyncio.Future[bytes]) -> None:
    if not done.cancelled():
        later(done.result())


def _told(ask: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, ask()))
    except HeadwayError as error:
        return pickle.dumps((False, error))
    # The boundary of the process: what a user's reducer or effect raises is raised in the task.
    except Exception as error:
        told = StateError(f"what was asked of the state raised {type(error).__name__}: {error}")
        return pickle.dumps((False, told))


def _answer(reach: Reach, question: tuple[object, ...]) -> object:
    match question:
        case ("get", str(key)):
            return reach.get(key)
        case ("scan", str(pattern)):
            return reach.scan(pattern)
        case ("put", str(key), bytes(data)):
            reach.put(key, loads(data))
        case ("add", str(key), bytes(data)):
            reach.add(key, loads(data))
        case ("remove", str(key)):
            reach.remove(key)
        case ("effect", str(channel), bytes(data)):
            reach.act(channel, loads(data), is_now=False)
        case ("prompted", bytes(text)):
            reach.prompted(text)
        case ("handed", tuple(every), bool(is_timed)):
            reach.handed(every, is_timed)
    return None
