"""Finds the broker's socket, and has a broker started where there is none."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from headway.errors import BrokerUnavailableError, HeadwayError
from headway.runtime.folders import Folders

NOBODY_S: Final = 10.0
"""How long calls wait for a broker when there is none: many times what starting one takes."""

NOBODY_AGAIN_S: Final = 0.5
"""How long later calls wait as long as there is still none."""

RETRY_S: Final = 0.01
"""Between two tries to connect, lengthened by chance, so that a crowd does not come at once."""

START_AGAIN_S: Final = 0.5
"""Between two tries to start a broker that did not come up."""

DEATHS_MAX: Final = 10
"""Brokers that may die right after each other: then what they are told is what kills them."""

STEADY_S: Final = 1.0
"""A broker that has lived for so long was not killed by what it was told first."""

Start = Callable[[Folders], str]
"""Starts a broker unless there is one; what went wrong, or nothing."""


@dataclass(frozen=True, slots=True)
class SearchStatistics:
    """A search at an instant."""

    found: int
    deaths: int
    fault: str


class Search:
    """One process's search for a broker, again and again if need be."""

    __slots__ = (
        "_deaths", "_fault", "_found", "_give_up_s", "_nobody_s", "_patience_s", "_place",
        "_start", "_start_s",
    )  # fmt: skip

    def __init__(self, place: Folders, start: Start, nobody_s: float = NOBODY_S) -> None:
        self._place = place
        self._start = start
        self._nobody_s = self._patience_s = nobody_s
        self._give_up_s = 0.0
        self._start_s = 0.0
        self._found = 0
        self._deaths = 0
        self._fault = ""

    def __repr__(self) -> str:
        return f"<Search for {self._place.socket}, found {self._found} times>"

    def connect(
        self, is_needed: Callable[[], bool], lost: Callable[[HeadwayError], None]
    ) -> socket.socket | None:
        """A connection, or None when nobody needs one any more. `lost` is told when none comes."""
        self._give_up_s = monotonic() + self._patience_s
        if self._deaths > 1:
            # Whoever ends them should not be kept busy by us.
            time.sleep(RETRY_S * self._deaths)
        while is_needed():
            if self._deaths >= DEATHS_MAX:
                self._fault = f"{self._deaths} brokers in a row ended at once"
                self._give_up_s, self._deaths = 0.0, 0
            else:
                sock = self._dial()
                if sock is not None:
                    self._found += 1
                    return sock
            if monotonic() >= self._give_up_s:
                self._patience_s = min(self._patience_s, NOBODY_AGAIN_S)
                self._give_up_s = monotonic() + self._patience_s
                lost(self._unavailable())
            time.sleep(RETRY_S * (1.0 + random.random()))
        return None

    def ended(self, lived_s: float) -> None:
        """The broker that was found is gone."""
        self._patience_s = self._nobody_s
        self._deaths = 0 if lived_s > STEADY_S else self._deaths + 1

    def statistics(self) -> SearchStatistics:
        return SearchStatistics(self._found, self._deaths, self._fault)

    def _dial(self) -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._place.socket)
        except OSError as fault:
            sock.close()
            is_nobody_there = isinstance(fault, FileNotFoundError | ConnectionRefusedError)
            if is_nobody_there and monotonic() >= self._start_s:
                self._begin()
            return None
        sock.setblocking(False)
        return sock

    def _begin(self) -> None:
        try:
            self._fault = self._start(self._place)
        except HeadwayError as error:
            self._fault = error.message
        if self._fault:
            self._start_s = monotonic() + START_AGAIN_S

    def _unavailable(self) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            "there is no broker and none could be started",
            detail=self._fault or f"nobody answers at {self._place.socket}",
            hint=f"see {self._place.log}; HEADWAY_UNPACED=1 lets calls go without one",
        )
