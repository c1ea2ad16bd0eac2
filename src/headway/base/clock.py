"""The clock of pacing: monotonic, and it runs on while the machine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)

now_s: Final[Callable[[], float]] = (
    time.monotonic if _BOOT is None else partial(time.clock_gettime, _BOOT)
)
"""Seconds since the machine started, the time in which it was suspended included."""


def today() -> str:
    """The day that budgets count in, by universal time: 2026-11-16."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def hour() -> int:
    """The hour on the wall, by local time: habits of people are learned by it."""
    return time.localtime().tm_hour


def wall_s() -> float:
    """The time on the wall, made non-decreasing: a clock that is set back stands still for us."""
    global _latest_s  # noqa: PLW0603 - one wall for the whole process
    _latest_s = max(_latest_s, time.time())
    return _latest_s


_latest_s = 0.0
