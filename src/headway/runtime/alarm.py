"""Wakes a driver at a time on the wall, also after the machine was suspended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

SLEEP_S_MAX: Final = 5.0
"""The longest sleep towards a time on the wall: a machine that was suspended wakes up late."""


class Alarm:
    """Rings once, at the earliest time that it was set to."""

    __slots__ = ("_at_s", "_clock", "_ring", "_timer")

    def __init__(self, clock: Callable[[], float], ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = inf

    def __repr__(self) -> str:
        return f"<Alarm at {self._at_s}>"

    def statistics(self) -> float:
        """When it rings; infinity if it does not."""
        return self._at_s

    def set_to(self, at_s: float) -> None:
        """Ring at this time, or earlier if it was set to an earlier one."""
        if at_s < self._at_s:
            self._at_s = at_s
            if self._timer is not None:
                self._timer.cancel()
            self._sleep()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at_s = None, inf

    def _sleep(self) -> None:
        # Never rings within `set_to`: whoever sets it to the past is told in the loop's next round.
        left_s = max(0.0, self._at_s - self._clock())
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(left_s, SLEEP_S_MAX), self._look)

    def _look(self) -> None:
        if self._clock() < self._at_s:
            self._sleep()
            return
        self._timer, self._at_s = None, inf
        self._ring()
