"""A worker process that calls Python functions for its parent.

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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from inspect import Parameter, isawaitable, signature
from json import loads
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final

from headway.errors import HeadwayError, StateError
from headway.state.context import Context, Reach, over
from headway.state.shared import canonical
from headway.work import TELL_WAIT

# How a function is given its context: as the parameter that is named `ctx`, wherever it stands.

NAME: Final = "ctx"
BY_NAME: Final = -1
FUNCTIONS_KNOWN_MAX: Final = 256

_BY_PLACE: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def place_of(function: Callable[..., object], count: int) -> int | None:
    """The position of `ctx` after the given arguments; None if there is no such parameter."""
    bound: set[str] = set()
    while isinstance(function, partial):
        bound |= function.keywords.keys()
        count += len(function.args)
        function = function.func
    if NAME in bound:
        return None
    try:
        return _place(function, count, frozenset(bound))
    except TypeError:
        # What has no hash is looked at every time.
        return _place.__wrapped__(function, count, frozenset(bound))


def call(
    function: Callable[..., object], given: Sequence[object], place: int, context: object
) -> object:
    if place == BY_NAME:
        return function(*given, ctx=context)
    return function(*given[:place], context, *given[place:])


@lru_cache(FUNCTIONS_KNOWN_MAX)
def _place(function: Callable[..., object], count: int, bound: frozenset[str]) -> int | None:
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):
        return None  # Not written in Python.
    mine = parameters.get(NAME)
    if mine is None or mine.kind not in _BY_NAME:
        return None
    names = [one.name for one in parameters.values() if one.kind in _BY_PLACE]
    if mine.kind is Parameter.KEYWORD_ONLY or names.index(NAME) >= count:
        return BY_NAME
    takes_any = any(one.kind is Parameter.VAR_POSITIONAL for one in parameters.values())
    free = [name for name in names if name not in bound]
    return names.index(NAME) if takes_any or len(free) > count else None


DETAIL_CHARS: Final = 2000
"""The end of a traceback, where the reason is."""

MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024
"""What goes through the pipe in one piece; the reader holds all of it."""

ASKED: Final = "asked"
GAVE: Final = "gave"
RAISED: Final = "raised"
WAITED: Final = "waited"
"""Messages of the process: a question, how its call ended, whether a call to a model waits for its
permit now."""

Answers = Callable[[tuple[Any, ...], Callable[[bytes], None]], bytes | None]
"""Answers a question of a function: at once, or later by the given callback."""

_OURS: Final = f"{Path(__file__).parent.parent}/"


class ProcessDiedError(Exception):
    """The process ended in the middle of a function."""


class WorkerRaisedError(Exception):
    """The function raised in its process; the text is the end of its traceback."""


class CutError(Exception):
    """A request was interrupted: the content of the pipe is unknown."""


class Worker:
    def __init__(self) -> None:
        context = get_context("spawn")
        self._here, there = context.Pipe()
        # A daemon in multiprocessing's sense: ended when the parent exits, not waited for.
        self._process = context.Process(target=serve, args=(there,), daemon=True)
        self._process.start()
        there.close()

    async def call(self, data: bytes, answers: Answers | None = None) -> object:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[str, Any]] = loop.create_future()
        handle = self._here.fileno()
        loop.add_reader(handle, self._hear, ended, answers)
        try:
            self._here.send_bytes(data)
            kind, value = await ended
        except (EOFError, OSError) as error:
            raise ProcessDiedError(self._in_words()) from error
        finally:
            loop.remove_reader(handle)
        if kind == RAISED:
            raise WorkerRaisedError(value)
        return value

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._here.close()
        self._process.close()

    def _hear(self, ended: asyncio.Future[tuple[str, Any]], answers: Answers | None) -> None:
        """A message is there: a question, which is answered at once if it can be, or the end."""
        if ended.done():
            return
        try:
            kind, value = pickle.loads(self._here.recv_bytes(MESSAGE_BYTES_MAX))
            if kind == WAITED:
                if (tell := TELL_WAIT.get()) is not None:
                    tell(*value)
            elif kind != ASKED or answers is None:
                ended.set_result((kind, value))
            elif (answer := answers(value, self._tell)) is not None:
                self._here.send_bytes(answer)
        # Every end is reported to the waiting caller: an exception raised here would be lost.
        except Exception as error:
            ended.set_exception(error)

    def _tell(self, answer: bytes) -> None:
        """Answer a question that took its time, if it is still open."""
        with suppress(OSError):
            self._here.send_bytes(answer)

    def _in_words(self) -> str:
        self._process.join(1.0)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


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
    function, arguments, lent = pickle.loads(data)
    if lent is None:
        return _awaited(function(*arguments))
    place, at = lent
    reach = RemoteReach(there, at.name, lock)
    try:
        return _awaited(call(function, arguments, place, Context(reach, at)))
    finally:
        reach.end()
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
    return asyncio.run(_waited_for(value)) if isawaitable(value) else value


async def _waited_for(value: Awaitable[object]) -> object:
    return await value


def call_once(target: str, folder: str, out: str) -> None:
    """The whole life of a process that calls one function: arguments from its input, what it gave
    into a file."""
    import sys
    from importlib import import_module

    sys.path[:0] = [str(Path.cwd()), folder]
    given, named = pickle.load(sys.stdin.buffer)
    module, _, name = target.partition(":")
    try:
        answer = pickle.dumps(
            (GAVE, _awaited(getattr(import_module(module), name)(*given, **named)))
        )
    # The boundary of the process: whatever the user's code raises is an answer.
    except BaseException as error:
        answer = pickle.dumps((RAISED, tail_of(error)))
    Path(out).write_bytes(answer)


# `ctx` in a worker process: asks the process of the run, which has the state, one thing at a time.


class RemoteReach:
    """The shared state, at the other end of a pipe."""

    def __init__(self, pipe: Connection, name: str, lock: Lock | None = None) -> None:
        """`lock` is held by every thread that writes to the pipe."""
        self._pipe = pipe
        self._name = name
        self._lock = Lock() if lock is None else lock
        self._is_over = False
        self.is_cut = False
        """Whether a question was left without having its answer read."""

    def get(self, key: str) -> bytes | None:
        found: bytes | None = self._asks("get", key)
        return found

    def scan(self, pattern: str) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = self._asks("scan", pattern)
        return found

    def put(self, key: str, value: object) -> None:
        self._asks("put", key, _plain(value, key))

    def add(self, key: str, value: object) -> None:
        self._asks("add", key, _plain(value, key))

    def remove(self, key: str) -> None:
        self._asks("remove", key)

    def act(self, channel: str, payload: object, is_now: bool) -> None:
        self._asks("act", channel, _plain(payload, channel), is_now)

    def end(self) -> None:
        """The function has returned: waits for the end of a question."""
        with self._lock:
            self._is_over = True

    def _asks(self, verb: str, *given: object) -> Any:
        question = pickle.dumps((ASKED, (verb, *given)))
        with self._lock:
            if self._is_over:
                raise over(self._name)
            self.is_cut = True
            self._pipe.send_bytes(question)
            is_value, value = pickle.loads(self._pipe.recv_bytes())
            self.is_cut = False
        if not is_value:
            raise value
        return value


def _plain(value: object, key: str) -> object:
    """What arrives of a value: what JSON holds of it. StateError if that is nothing."""
    return loads(canonical(value, key))


def answer(reach: Reach, question: tuple[Any, ...], later: Callable[[bytes], None]) -> bytes | None:
    """The answer to a question of a worker; None if `later` gets it, on the loop."""
    verb, *given = question
    ask = partial(getattr(reach, verb), *given)
    if verb != "act" or not given[-1]:
        return _told(ask)
    # An effect that is done now may take its time, and the loop has others to serve.
    done = asyncio.get_running_loop().run_in_executor(None, _told, ask)
    done.add_done_callback(lambda one: None if one.cancelled() else later(one.result()))
    return None


def _told(ask: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, ask()))
    except HeadwayError as error:
        return pickle.dumps((False, error))
    # The boundary of the process: what a user's reducer or effect raises is raised in the task.
    except Exception as error:
        value = StateError(f"what was asked of the state raised {type(error).__name__}: {error}")
        return pickle.dumps((False, value))
