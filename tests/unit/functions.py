"""Functions that run in other processes, where tests cannot follow them."""

from __future__ import annotations

import os
import signal
import sys


def double(number: int) -> int:
    return 2 * number


async def double_async(number: int) -> int:
    return 2 * number


def own_pid() -> int:
    return os.getpid()


def fail(word: str) -> None:
    raise LookupError(word)


def leave(code: int) -> None:
    sys.exit(code)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def vanish() -> None:
    os._exit(7)


def hang() -> None:
    signal.pause()


def unpicklable() -> object:
    return lambda: None
