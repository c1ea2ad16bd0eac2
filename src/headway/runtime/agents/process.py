"""One process that calls functions for another: started afresh, killed at will, never left behind.

Laws:
- It is spawned, not forked: threads and locks of the parent do not reach it.
- It ends when its parent does, however that happens: its pipe closes.
- One call at a time, so that a death is the fault of exactly one task.
- In the middle of a call it may ask for the shared state, which it does not have itself. If either
  end goes while a question is open, nothing of the call is left.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from headway.errors import HeadwayError
from headway.runtime.agents.passing import call
from headway.runtime.work import TELL_PROMPT, TELL_WAIT

if TYPE_CHECKING:
    from headway.runtime.context import Circumstances

DETAIL_CHARS: Final = 2000
"""The end of a traceback, where the reason is."""

MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024
"""What goes through the pipe in one piece; the reader holds all of it."""

ASKED: Final = "asked"
GAVE: Final = "gave"
RAISED: Final = "raised"
WAITED: Final = "waited"
"""What a message of the process is: a question, how its call ended, or whether a call to a model
waits for its permit now."""

Answers = Callable[[tuple[object, ...], Callable[[bytes], None]], bytes | None]
"""Answers what a function asks in its middle: at once, or later by what it is given."""

_OURS: Final = str(Path(__file__).parent)


class ProcessDiedError(Exception):
    """The process ended in the middle of a function."""


class WorkerRaisedError(Exception):
    """The function raised in its process; the text is the end of its traceback."""


class CutError(Exception):
    """A question was left in the middle, so that nobody knows what the pipe holds."""


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

    async def call(self, data: bytes, answers: Answers | None = None) -> object:
        """What a packed call gives there. Whoever is cancelled meanwhile has to kill it."""
        loop = asyncio.get_running_loop()
        self._calls += 1
        ended: asyncio.Future[tuple[str, Any]] = loop.create_future()
        handle = self._here.fileno()
        loop.add_reader(handle, self._hear, ended, answers)
        try:
            self._here.send_bytes(data)
            kind, told = await ended
        except (EOFError, OSError) as error:
            raise ProcessDiedError(self._in_words()) from error
        finally:
            loop.remove_reader(handle)
        if kind == RAISED:
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

    def _hear(self, ended: asyncio.Future[tuple[str, Any]], answers: Answers | None) -> None:
        """A message is there: a question, which is answered at once if it can be, or the end."""
        if ended.done():
            return
        try:
            kind, told = pickle.loads(self._here.recv_bytes(MESSAGE_BYTES_MAX))
            if kind == WAITED:
                if (tell := TELL_WAIT.get()) is not None:
                    tell(*told)
            elif kind != ASKED or answers is None:
                ended.set_result((kind, told))
            elif (answer := answers(told, self._tell)) is not None:
                self._here.send_bytes(answer)
        # Whoever waits for the end is told, whatever it is: nobody hears what is raised here.
        except Exception as error:
            ended.set_exception(error)

    def _tell(self, answer: bytes) -> None:
        """Answer a question that took its time, if there is still somebody who asks."""
        with suppress(OSError):
            self._here.send_bytes(answer)

    def _in_words(self) -> str:
        self._process.join(1.0)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


def packed(
    function: Callable[..., object],
    arguments: tuple[object, ...],
    lent: tuple[int, Circumstances] | None = None,
) -> bytes:
    """A call as it is sent, with the place of its context and what that has to know, if it wants
    one. What cannot be sent raises whatever `pickle` says about it."""
    return pickle.dumps((function, arguments, lent))


def serve(there: Connection) -> None:
    """The life of the process: one call after another until the pipe closes."""
    # Whether an interrupt ends a run is decided in the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = Lock()

    def tell_wait(waits: bool, why: str) -> None:
        with lock:
            there.send_bytes(pickle.dumps((WAITED, (waits, why))))

    TELL_WAIT.set(tell_wait)
    while True:
        try:
            data = there.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            answer = pickle.dumps((GAVE, _given(data, there, lock)))
            if len(answer) > MESSAGE_BYTES_MAX:
                raise ValueError(f"what it gave has {len(answer):,} bytes: write it into a file")
        except CutError:
            return  # The next call would be taken for the answer to an old question.
        # The boundary of the process: whatever the user's code raises is an answer.
        except BaseException as error:
            answer = pickle.dumps((RAISED, tail_of(error)))
        try:
            with lock:
                there.send_bytes(answer)
        except OSError:
            return


def _given(data: bytes, there: Connection, lock: Lock) -> object:
    """What a call gives."""
    function, arguments, lent = pickle.loads(data)
    if lent is None:
        return _awaited(function(*arguments))
    from headway.runtime.context import Context, compare
    from headway.runtime.remotecontext import RemoteReach

    place, at = lent
    reach = RemoteReach(there, at.name, lock)
    TELL_PROMPT.set(reach.prompted)
    try:
        context = Context(reach, at)
        value = _awaited(call(function, arguments, place, context))
        compare(context)
        return value
    finally:
        reach.end()
        TELL_PROMPT.set(None)
        if reach.is_cut:
            raise CutError


def tail_of(error: BaseException) -> str:
    """The end of a traceback, from where the user's own code begins."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    if isinstance(error, HeadwayError):
        lines[-1] = error.render()
    return "".join(lines).rstrip()[-DETAIL_CHARS:]


def _awaited(value: object) -> object:
    """A value, or what it comes to."""
    return asyncio.run(_waited_for(value)) if isawaitable(value) else value


async def _waited_for(value: Awaitable[object]) -> object:
    return await value
