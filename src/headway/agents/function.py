"""Runs Python functions as tasks: on the event loop, in threads or in processes.

Laws:
- An asynchronous function is awaited where it is: no task, no thread, no copy of its context.
- A synchronous one runs in a bounded number of threads with the context of its caller, or in
  processes if the user asks for them. What it returns may be awaitable, and then is awaited here.
- A function that has a parameter named `ctx` is given the shared state, wherever it runs.
- What a function raises fails its own task only; so does the death of its process,
  which is replaced.
- Nothing outlives `aclose`. A thread cannot be ended from outside: it is waited for, unless
  `aclose` is cancelled, and does not keep the process from ending. A process can be ended.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction, signature
from queue import SimpleQueue
from threading import Thread
from typing import Final, Literal

from msgspec.structs import replace

from headway.agents.worker import (
    ProcessDiedError,
    Worker,
    WorkerRaisedError,
    answer,
    call,
    place_of,
    tail_of,
)
from headway.base.values import Fault
from headway.state.context import Lent
from headway.state.outbox import called, is_cancelled
from headway.work import AttemptError, OverBudgetError, Result, WindowEmptyError

THREADS_MAX: Final = 64
"""Synchronous functions that run at once; more of them mostly wait for the interpreter."""

Where = Literal["loop", "thread", "process"]
_Call = tuple[Future[object], Callable[[], object]]

_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)


class FunctionAgent:
    """Calls functions for the tasks of one run, on one event loop. Close it when the run ends."""

    def __init__(self, threads: int = THREADS_MAX, processes: int = 1) -> None:
        """At most `threads` and `processes` at a time; they are made when needed."""
        self._threads_max = max(1, threads)
        self._processes_max = max(1, processes)
        self._threads: list[Thread] = []
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._running: set[Future[object]] = set()
        self._free: asyncio.LifoQueue[Worker | None] | None = None
        """A process, or the right to start one, for each that may run."""

    async def perform(
        self,
        function: Callable[..., object],
        *arguments: object,
        in_processes: bool = False,
        lent: Lent | None = None,
    ) -> Result:
        """Call it, wherever it belongs: its value as a result. Raises AttemptError."""
        where = "process" if in_processes else where_of(function)
        return result_of(await self.call(where, function, arguments, lent))

    async def call(
        self,
        where: Where,
        function: Callable[..., object],
        arguments: Sequence[object],
        lent: Lent | None = None,
    ) -> object:
        """What it gives, called there, with the context that it is lent. Raises AttemptError."""
        place = None if lent is None else place_of(function, len(arguments))
        lent = None if place is None else lent
        try:
            if where == "process":
                value = await self._in_process(function, tuple(arguments), place, lent)
            else:
                context = None if lent is None else lent.context()
                if context is not None:
                    arguments, function = (function, tuple(arguments), place, context), call
                if where == "loop":
                    value = await function(*arguments)  # type: ignore[misc]
                else:
                    value = await self._in_thread(function, tuple(arguments))
                    if isawaitable(value):
                        value = await value
        except (AttemptError, OverBudgetError, WindowEmptyError):
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise AttemptError(Fault("function", detail="it was cancelled from inside")) from None
        except ProcessDiedError as error:
            raise AttemptError(Fault("broken", detail=str(error))) from error
        except WorkerRaisedError as error:
            raise AttemptError(Fault("function", detail=str(error))) from error
        # The user's code may raise anything, and `sys.exit` ends a task, not the run.
        except (Exception, SystemExit) as error:
            raise AttemptError(Fault("function", detail=tail_of(error))) from error
        return value

    async def aclose(self) -> None:
        """End the processes, and wait for the threads that still run. Nothing is performed now."""
        free, self._free = self._free, None
        while free is not None and not free.empty():
            worker = free.get_nowait()
            if worker is not None:
                worker.kill()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        running = [one for one in list(self._running) if not one.cancel()]
        await asyncio.gather(*map(asyncio.wrap_future, running), return_exceptions=True)
        for thread in threads:
            # It has nothing to do any more, so that this does not block.
            thread.join()

    async def _in_thread(
        self, function: Callable[..., object], arguments: tuple[object, ...]
    ) -> object:
        running: Future[object] = Future()
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        if len(self._threads) < min(len(self._running), self._threads_max):
            # A daemon: the interpreter does not wait for it when the process ends.
            name = f"headway-function-{len(self._threads)}"
            serving = Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
            self._threads.append(serving)
            self._threads[-1].start()
        self._calls.put((running, partial(copy_context().run, called, function, *arguments)))
        # Cancelled before it began, it never begins; after that it goes on unheard until `aclose`.
        return await asyncio.wrap_future(running)

    async def _in_process(
        self,
        function: Callable[..., object],
        arguments: tuple[object, ...],
        place: int | None,
        lent: Lent | None,
    ) -> object:
        if self._free is None:
            # The one that was used last is taken first: it is warm.
            self._free = asyncio.LifoQueue()
            for _ in range(self._processes_max):
                self._free.put_nowait(None)
        free = self._free
        data = pickle.dumps((function, arguments, None if lent is None else (place, lent.at)))
        answers = None if lent is None else partial(answer, lent.reach)
        worker = await free.get()
        spare: Worker | None = None
        try:
            worker = worker or Worker()
            value = await worker.call(data, answers)
            spare = worker
        except WorkerRaisedError:
            spare = worker
            raise
        finally:
            if worker is not None and spare is None:
                worker.kill()
            free.put_nowait(spare)
        return value


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        future, function = call
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(function())
        except BaseException as error:
            # The boundary of the thread: it is raised where the value is awaited.
            future.set_exception(error)
        # What it gave is not kept until the next call.
        del call, future, function


def where_of(function: Callable[..., object]) -> Where:
    return "loop" if iscoroutinefunction(function) else "thread"


def result_of(value: object) -> Result:
    """A value as a result: as JSON, or in this process only."""
    try:
        # The encoder is made anew for every value that is no string: numbers need none.
        body = b"%d" % value if type(value) is int else _ENCODER.encode(value).encode()
    except (TypeError, ValueError, RecursionError):
        return Result(b"", value, is_durable=False)
    return Result(body, value)


def takes(function: Callable[..., object], name: str) -> bool:
    """Whether a function wants a variable of the plan, which is not meant for it alone."""
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def as_text(result: Result) -> Result:
    """For a plan a text is its own body, as what a command prints is: not JSON in quotes."""
    if not isinstance(result.value, str):
        return result
    return replace(result, body=result.value.encode("utf-8", "replace"))
