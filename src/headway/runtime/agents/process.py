"""One process that calls functions for another: started afresh, killed at will, never left behind.

Laws:
- It is spawned, not forked: threads and locks of the parent do not reach it.
- It ends when its parent does, however that happens: its pipe closes.
- One call at a time, so that a death is the fault of exactly one task.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import traceback
from collections.abc import Callable
from inspect import isawaitable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Final

DETAIL_CHARS: Final = 2000
"""The end of a traceback, where the reason is."""

_OURS: Final = str(Path(__file__).parent)


class ProcessDiedError(Exception):
    """The process ended in the middle of a function."""


class WorkerRaisedError(Exception):
    """The function raised in its process; the text is the end of its traceback."""


class Worker:
    """A process and the way to it, for one event loop."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._here, there = context.Pipe()
        # A daemon in multiprocessing's sense: ended when the parent exits, not waited for.
        self._process = context.Process(target=serve, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._calls = 0

    def __repr__(self) -> str:
        return f"<Worker {self._process.pid}, {self._calls} calls>"

    async def call(self, data: bytes) -> object:
        """What a packed call gives there. Whoever is cancelled meanwhile has to kill it."""
        loop = asyncio.get_running_loop()
        self._calls += 1
        readable: asyncio.Future[None] = loop.create_future()
        handle = self._here.fileno()
        loop.add_reader(handle, _ring, readable)
        try:
            self._here.send_bytes(data)
            await readable
            is_value, told = pickle.loads(self._here.recv_bytes())
        except (EOFError, OSError) as error:
            raise ProcessDiedError(self._in_words()) from error
        finally:
            loop.remove_reader(handle)
        if not is_value:
            raise WorkerRaisedError(told)
        return told

    def kill(self) -> None:
        """End it now; it is gone when this returns."""
        self._process.kill()
        self._process.join()
        self._here.close()
        self._process.close()

    def statistics(self) -> int:
        """How many calls it has had."""
        return self._calls

    def _in_words(self) -> str:
        self._process.join(1.0)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


def packed(function: Callable[..., object], arguments: tuple[object, ...]) -> bytes:
    """A call as it is sent. What cannot be sent raises whatever `pickle` says about it."""
    return pickle.dumps((function, arguments))


def serve(there: Connection) -> None:
    """The life of the process: one call after another until the pipe closes."""
    # Whether an interrupt ends a run is decided in the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            data = there.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            function, arguments = pickle.loads(data)
            value = function(*arguments)
            if isawaitable(value):
                value = asyncio.run(_awaited(value))
            answer = pickle.dumps((True, value))
        # The boundary of the process: whatever the user's code raises is an answer.
        except BaseException as error:
            answer = pickle.dumps((False, tail_of(error)))
        try:
            there.send_bytes(answer)
        except OSError:
            return


def tail_of(error: BaseException) -> str:
    """The end of a traceback, from where the user's own code begins."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    return "".join(lines).rstrip()[-DETAIL_CHARS:]


async def _awaited(value: object) -> object:
    assert isawaitable(value)
    return await value


def _ring(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
