"""Admission within one process: a desk of its own, no second process, nothing shared.

Laws:
- Whoever brings a message serves the desk, for everybody whose message is there by then. Who
  comes while it is served leaves the message and goes: nobody waits for a lock, so that a
  finalizer in the middle of it all can settle a permit.
- Time passes for those who wait: one thread ticks, and only while somebody does.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Final

from headway.errors import WireError
from headway.runtime.client import Client, InUse
from headway.runtime.desk import Desk, Pages, Ways
from headway.runtime.protocol import Error, FromBroker, FromClient

_LOG: Final = logging.getLogger("headway")

LINGER_S: Final = 1.0
"""The thread that ticks stays for so long after the last one who waited: others come soon."""


@dataclass(frozen=True, slots=True)
class DeskLineStatistics:
    """A line within one process at an instant."""

    unheard: int
    is_ticking: bool


class DeskLine:
    """A client's line to a desk in the same process."""

    __slots__ = ("_bell", "_client", "_desk", "_inbox", "_lock", "_nap_s", "_now", "_starting",
                 "_ticker")  # fmt: skip

    def __init__(self, client: Client, book: Pages, ways: Ways | None = None) -> None:
        """`ways` are the desk's, but for the one to its client, which is this line's."""
        ways = ways or Ways(monotonic, self._answer)
        self._client = client
        self._now = ways.now
        self._inbox: deque[FromClient | None] = deque()
        self._lock = Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._starting = Lock()
        self._ticker: Thread | None = None
        self._nap_s = inf
        self._desk = Desk(book, replace(ways, send=self._answer))
        self._desk.handle(client.id, client.hello())

    def __repr__(self) -> str:
        return f"<DeskLine to {self._desk!r}>"

    @property
    def desk(self) -> Desk:
        return self._desk

    def send(self, message: FromClient, _permit: InUse | None = None, /) -> None:
        """Leave the message, and serve the desk unless somebody does."""
        self._inbox.append(message)
        self._serve()

    def open(self) -> None:
        """Let time pass. Never called by a finalizer: it starts a thread."""
        with self._starting:
            if self._ticker is None:
                self._ticker = Thread(target=self._tick, name="headway-ticks", daemon=True)
                self._ticker.start()

    def close(self) -> None:
        """There is nothing to close: the thread ends by itself."""

    def abandon(self) -> None:
        """The desk is the parent's; the child makes its own."""

    def statistics(self) -> DeskLineStatistics:
        return DeskLineStatistics(len(self._inbox), self._ticker is not None)

    def _answer(self, _client: str, message: FromBroker) -> None:
        self._client.receive(message)

    def _serve(self) -> None:
        """Whoever leaves the lock looks again: a message may have come just before."""
        while self._inbox and self._lock.acquire(blocking=False):
            try:
                self._hear()
            finally:
                self._lock.release()

    def _hear(self) -> None:
        try:
            while self._inbox:
                message = self._inbox.popleft()
                if message is not None:
                    self._desk.handle(self._client.id, message)
            self._desk.tick()
        except WireError as fault:
            self._client.receive(Error(fault.message))
        except Exception as fault:
            # The boundary: this runs on whatever thread came first, which has probably nothing
            # to do with it. Those who wait are told.
            _LOG.exception("headway cannot admit calls")
            self._client.receive(Error(f"{type(fault).__name__}: {fault}"))
        if self._ticker is not None and self._desk.wake_s < self._nap_s:
            self._bell.put(None)

    def _tick(self) -> None:
        """Serve the desk whenever time alone changes its mind."""
        idle_s = monotonic()
        while True:
            self._nap_s = self._desk.wake_s
            nap_s = max(self._nap_s - self._now(), 0.0)
            try:
                self._bell.get(timeout=min(nap_s, LINGER_S))
            except Empty:
                self._inbox.append(None)
                self._serve()
            if self._client.statistics().waiting:
                idle_s = monotonic()
            elif monotonic() - idle_s >= LINGER_S:
                with self._starting:
                    # Whoever waits by now was here before the lock, or will find no thread.
                    if not self._client.statistics().waiting:
                        self._ticker = None
                        return
