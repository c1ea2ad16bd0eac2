"""`map`, `run_in_waves`, `as_completed`: one function over many items, at the right width.

Laws:
- Results are in the order of the items, whichever finished first.
- A failure loses no other result: everything runs, and the failures are raised at the end.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from typing import Final, TextIO, TypeVar, Unpack, cast, overload

from headway.api.functions import FunctionWork, How, agent_of, must_be_known, wait_for
from headway.api.sharing import Shares, performed, touches_of
from headway.engine.events import Event, RunBegan, TaskFailed, TaskFinished, TaskReused, WaveBegan
from headway.errors import TasksFailedError, UsageError
from headway.plans.graph import TaskGroup
from headway.plans.ready import DONE
from headway.run.driver import Driver
from headway.state.context import Context

Item = TypeVar("Item")
T = TypeVar("T")

FAILURES_SHOWN: Final = 3

Watch = Callable[[Sequence[Event]], None]


class MapHow(How, total=False):
    progress: bool
    """Show one line of progress on a terminal and in a notebook; default True."""


DRAW_S: Final = 0.2
"""A line that changes more often cannot be read."""


class ProgressLine:
    """How many tasks of a run are done, in one line that is written over again."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._stream = stream
        self._driver: Driver | None = None
        self._drawn_s = -inf
        self._shown = ""

    def meet(self, driver: Driver) -> None:
        self._driver = driver

    def watch(self, events: Sequence[Event]) -> None:
        del events
        if time.monotonic() >= self._drawn_s + DRAW_S:
            self._draw()

    def _draw(self) -> None:
        if self._driver is None:
            return
        state = self._driver.state
        failed = f", {state.failed:,} failed" if state.failed else ""
        running = f", {len(state.active):,} running" if state.active else ""
        total = state.ready_set.numbers.total
        line = f"{self._name}: {state.finished:,} of {total:,} done{failed}{running}"
        self._stream.write(f"\r{line.ljust(len(self._shown))}")
        self._stream.flush()
        self._shown, self._drawn_s = line, time.monotonic()

    def close(self) -> None:
        """Leave the last state in a line of its own."""
        if self._shown:
            self._draw()
            self._stream.write("\n")
            self._stream.flush()


def progress_line(name: str, how: MapHow) -> ProgressLine | None:
    """None where progress is off, or shown to no terminal or notebook."""
    shell = sys.modules.get("IPython")
    is_notebook = shell is not None and hasattr(shell.get_ipython(), "kernel")
    if not how.get("progress", True) or not (is_notebook or sys.stderr.isatty()):
        return None
    return ProgressLine(name, sys.stderr)


@overload
def map(
    function: Callable[[Item], Awaitable[T]], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]: ...


@overload
def map(function: Callable[[Item], T], items: Iterable[Item], **how: Unpack[MapHow]) -> list[T]: ...


@overload
def map(
    function: Callable[[Item, Context], Awaitable[T]], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]: ...


@overload
def map(
    function: Callable[[Item, Context], T], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]: ...


def map(function: Callable[..., object], items: Iterable[Item], **how: Unpack[MapHow]) -> list[T]:
    """Call a function, synchronous or not, with every item; the results in order.

        answers = headway.map(ask, questions, retries=2)

    Calls through a client that `pace` was given are sent as the account allows, and as many
    functions are active as it can feed. Failures are raised together, after everything has run, as
    `TasksFailedError`, whose `results` has what the others gave.
    """
    found = wait_for(_mapped(function, list(items), how), "headway.map_async", how.get("durable"))
    return cast("list[T]", found)


@overload
async def map_async(
    function: Callable[[Item], Awaitable[T]], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]: ...


@overload
async def map_async(
    function: Callable[[Item], T], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]: ...


@overload
async def map_async(
    function: Callable[[Item, Context], Awaitable[T]], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]: ...


@overload
async def map_async(
    function: Callable[[Item, Context], T], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]: ...


async def map_async(
    function: Callable[..., object], items: Iterable[Item], **how: Unpack[MapHow]
) -> list[T]:
    """`map`, for code that runs in an event loop."""
    return cast("list[T]", await _mapped(function, list(items), how))


@overload
def run_in_waves(
    tasks: Iterable[Callable[[], Awaitable[T]]], batch_size: int = 4, *,
    return_exceptions: bool = False,
) -> list[T]: ...  # fmt: skip


@overload
def run_in_waves(
    tasks: Iterable[Callable[[], T]], batch_size: int = 4, *,
    return_exceptions: bool = False,
) -> list[T]: ...  # fmt: skip


def run_in_waves(
    tasks: Iterable[Callable[[], Awaitable[T]] | Callable[[], T]],
    batch_size: int = 4,
    *,
    return_exceptions: bool = False,
) -> list[T]:
    """Call zero-argument functions, so many at once, and the next when all of them have ended.

        results = headway.run_in_waves([lambda: explore(path) for path in paths], 4)

    The pattern of *The Concurrency Trap*; `map` without a strategy is faster, because it has no
    barrier between waves.
    """
    coroutine = run_in_waves_async(tasks, batch_size, return_exceptions=return_exceptions)
    return cast("list[T]", wait_for(coroutine, "headway.run_in_waves_async"))


@overload
async def run_in_waves_async(
    tasks: Iterable[Callable[[], Awaitable[T]]], batch_size: int = 4, *,
    return_exceptions: bool = False,
) -> list[T]: ...  # fmt: skip


@overload
async def run_in_waves_async(
    tasks: Iterable[Callable[[], T]], batch_size: int = 4, *,
    return_exceptions: bool = False,
) -> list[T]: ...  # fmt: skip


async def run_in_waves_async(
    tasks: Iterable[Callable[[], Awaitable[T]] | Callable[[], T]],
    batch_size: int = 4,
    *,
    return_exceptions: bool = False,
) -> list[T]:
    """`run_in_waves`, for code that runs in an event loop."""
    if batch_size < 1:
        raise UsageError(f"a wave of {batch_size} is none", hint="give a batch_size of 4")
    how = How(strategy=f"waves:{batch_size}", return_exceptions=return_exceptions)
    found = await _performed(None, list(tasks), how, _say_waves)
    return cast("list[T]", found)


class as_completed(Iterable[tuple[Item, T]]):  # noqa: N801 - used like a function, as asyncio's is
    """Pairs of an item and its result as they come, for `for` and `async for` alike.

        for question, answer in headway.as_completed(ask, questions):
            print(question, answer)

    The first failure is raised when its turn comes, and what has not started is not started.
    """

    @overload
    def __init__(
        self, function: Callable[[Item], Awaitable[T]], items: Iterable[Item], **how: Unpack[How]
    ) -> None: ...

    @overload
    def __init__(
        self, function: Callable[[Item], T], items: Iterable[Item], **how: Unpack[How]
    ) -> None: ...

    @overload
    def __init__(
        self, function: Callable[[Item, Context], Awaitable[T]], items: Iterable[Item],
        **how: Unpack[How],
    ) -> None: ...  # fmt: skip

    @overload
    def __init__(
        self, function: Callable[[Item, Context], T], items: Iterable[Item], **how: Unpack[How]
    ) -> None: ...

    def __init__(
        self, function: Callable[..., object], items: Iterable[Item], **how: Unpack[How]
    ) -> None:
        must_be_known(how)
        self._function = function
        self._items = list(items)
        self._how = how

    def __iter__(self) -> Iterator[tuple[Item, T]]:
        told: SimpleQueue[tuple[Item, T] | BaseException | None] = SimpleQueue()
        reins: Future[Callable[[], object]] = Future()

        async def pump() -> None:
            task = asyncio.ensure_future(self._pump(told.put))
            loop = asyncio.get_running_loop()
            reins.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
            await asyncio.gather(task, return_exceptions=True)

        thread = threading.Thread(target=asyncio.run, args=(pump(),), daemon=True)
        thread.start()
        try:
            while (pair := told.get()) is not None:
                if isinstance(pair, BaseException):
                    raise pair
                yield pair
        finally:
            # A caller that stops iterating wants no more; the loop may have ended by itself.
            with suppress(RuntimeError):
                reins.result()()
            thread.join()

    async def __aiter__(self) -> AsyncIterator[tuple[Item, T]]:
        told: asyncio.Queue[int | None] = asyncio.Queue()
        work = _work(self._function, self._items, self._how)
        drivers: list[Driver] = []

        def watch(events: Sequence[Event]) -> None:
            for event in events:
                if isinstance(event, RunBegan | TaskReused):
                    for member in _recalled(work, drivers[0]):
                        told.put_nowait(member)
                elif isinstance(event, TaskFinished | TaskFailed):
                    if isinstance(event, TaskFailed):
                        work.note(event.task, event.fault)
                    told.put_nowait(event.task)

        async def run() -> None:
            try:
                await _run(work, self._how, watch, drivers.append)
            finally:
                told.put_nowait(None)

        running = asyncio.ensure_future(run())
        try:
            while (member := await told.get()) is not None:
                error = work.errors.get(member)
                if error is not None and not self._how.get("return_exceptions"):
                    raise error
                yield self._items[member], cast("T", error or work.values[member])
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _pump(self, put: Callable[[tuple[Item, T] | BaseException | None], None]) -> None:
        try:
            async for pair in self:
                put(pair)
            put(None)
        except BaseException as error:
            put(error)


async def _mapped(function: Callable[..., object], items: list[Item], how: MapHow) -> list[object]:
    must_be_known(how, MapHow)
    name = getattr(function, "__name__", "map").strip("<>")
    line = progress_line(name, how)
    if line is None:
        return await _performed(function, items, how)
    try:
        return await _performed(function, items, how, line.watch, line.meet)
    finally:
        line.close()


async def _performed(
    function: Callable[..., object] | None, items: list[Item], how: How,
    watch: Watch | None = None, began: Callable[[Driver], None] | None = None,
) -> list[object]:  # fmt: skip
    must_be_known(how, MapHow)
    work = _work(function, items, how)
    await _run(work, how, watch, began)
    results = [work.errors.get(n, work.values.get(n)) for n in range(len(items))]
    if work.errors and not how.get("return_exceptions"):
        raise _failed(work, results)
    return results


def _work(
    function: Callable[..., object] | None, items: Sequence[object], how: How
) -> FunctionWork:
    name = getattr(function, "__name__", "call").strip("<>") or "call"
    return FunctionWork(
        name, function, agent_of(how), items,
        timeout_s=how.get("timeout_s"), in_processes=how.get("in_processes", False),
        is_durable=bool(how.get("durable")), is_local=how.get("in_processes", False),
    )  # fmt: skip


async def _run(
    work: FunctionWork, how: How, watch: Watch | None,
    began: Callable[[Driver], None] | None = None,
) -> None:  # fmt: skip
    items = work.items or ()
    retries, touches = how.get("retries", 0), touches_of(work, 1, None, None)
    group = TaskGroup(
        work.name, len(items), retries=retries, is_local=work.is_local, touches=touches
    )
    await performed((work,), (group,), how, Shares(), watch, began)


def _recalled(work: FunctionWork, driver: Driver) -> list[int]:
    """Take over the values of members that earlier processes finished: which ones."""
    if not driver.saved.rows:
        return []
    states = driver.state.ready_set.states
    found = [n for n, state in enumerate(states) if state == DONE and n not in work.values]
    work.recall(driver.saved.recall(work, found))
    return found


def _failed(work: FunctionWork, results: list[object]) -> TasksFailedError:
    shown = [f"{work.label(n)}: {work.errors[n]!r}" for n in sorted(work.errors)[:FAILURES_SHOWN]]
    more = len(work.errors) - len(shown)
    error = TasksFailedError(
        f"{len(work.errors)} of {len(results)} tasks failed",
        detail="; ".join(shown) + (f"; and {more} more" if more else ""),
        hint="pass return_exceptions=True to have errors in their places",
    )
    error.results = results
    error.__cause__ = work.errors[min(work.errors)]
    return error


def _say_waves(events: Sequence[Event]) -> None:
    for event in events:
        if isinstance(event, WaveBegan):
            print(f"wave {event.number} of {event.of}", file=sys.stderr, flush=True)
