"""Functions as tasks, on the loop, in threads and in processes: what they give, how they fail."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from math import nan

import pytest

from headway.agents.function import FunctionAgent, result_of
from headway.base.values import Fault
from headway.work import AttemptError, WindowEmptyError
from tests.unit import functions

WORD: ContextVar[str] = ContextVar("word", default="nothing")


def run(body: Callable[[FunctionAgent], Awaitable[object]], **how: int) -> object:
    async def main() -> object:
        async with aclosing(FunctionAgent(**how)) as agent:
            return await body(agent)

    return asyncio.run(main())


def test_an_asynchronous_function_runs_in_the_task_that_asks_for_it() -> None:
    async def mine(number: int) -> object:
        return [number, id(asyncio.current_task())]

    async def body(agent: FunctionAgent) -> None:
        result = await agent.perform(mine, 3)
        assert result.value == [3, id(asyncio.current_task())]

    run(body)


def test_a_synchronous_function_runs_in_a_thread_with_the_context_of_its_caller() -> None:
    async def body(agent: FunctionAgent) -> None:
        WORD.set("kept")
        result = await agent.perform(lambda: [WORD.get(), threading.current_thread().name])
        assert isinstance(result.value, list)
        assert result.value[0] == "kept"
        assert result.value[1].startswith("headway-function")

    run(body)


def test_a_function_may_return_what_has_to_be_awaited() -> None:
    async def later(number: int) -> int:
        return number

    async def body(agent: FunctionAgent) -> None:
        assert (await agent.perform(lambda: later(1))).value == 1

    run(body)


def test_no_more_threads_run_than_allowed_and_none_are_left() -> None:
    together = threading.Barrier(2)
    most, now, lock = [0], [0], threading.Lock()

    def count() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(10)
        with lock:
            now[0] -= 1

    async def body(agent: FunctionAgent) -> None:
        await asyncio.gather(*(agent.perform(count) for _ in range(6)))

    run(body, threads=2)
    assert most[0] == 2
    assert not [one for one in threading.enumerate() if one.name.startswith("headway-function")]


def test_closing_waits_for_a_thread_whose_task_was_cancelled() -> None:
    began, goes, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        goes.wait(10)
        ended.set()

    async def main() -> None:
        agent = FunctionAgent(threads=1)
        task = asyncio.ensure_future(agent.perform(slow))
        behind = asyncio.ensure_future(agent.perform(ended.is_set))
        await asyncio.to_thread(began.wait, 10)
        for one in (task, behind):
            one.cancel()
            with pytest.raises(asyncio.CancelledError):
                await one
        assert not ended.is_set()
        goes.set()
        await agent.aclose()
        assert ended.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_function_raises_is_its_tasks_fault_with_the_end_of_its_traceback(
    is_async: bool,
) -> None:
    def bad() -> None:
        raise LookupError("not there")

    async def bad_async() -> None:
        bad()

    async def body(agent: FunctionAgent) -> None:
        with pytest.raises(AttemptError) as caught:
            await agent.perform(bad_async if is_async else bad)
        fault = caught.value.fault
        assert fault.kind == "function"
        assert fault.detail.endswith("LookupError: not there")
        assert fault.detail.splitlines()[1].startswith(f'  File "{__file__}"'), fault.detail
        assert isinstance(caught.value.__cause__, LookupError)

    run(body)


async def leave_async() -> None:
    functions.leave(3)


async def cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(("function", "says"), [
    (partial(functions.leave, 3), "SystemExit: 3"), (leave_async, "SystemExit: 3"),
    (lambda: next(iter(())), "it raised StopIteration"), (cancelled, "cancelled from inside"),
])  # fmt: skip
def test_a_function_that_exits_or_ends_oddly_fails_alone(
    function: Callable[[], object], says: str
) -> None:
    async def body(agent: FunctionAgent) -> None:
        async with asyncio.timeout(10):
            with pytest.raises(AttemptError, match=says):
                await agent.perform(function)

    run(body)


def test_headways_own_errors_pass_as_they_are() -> None:
    errors = (WindowEmptyError(5.0, "empty"), AttemptError(Fault("rate")))

    async def body(agent: FunctionAgent) -> None:
        for error in errors:

            async def raises(error: Exception = error) -> None:
                raise error

            with pytest.raises(type(error)) as caught:
                await agent.perform(raises)
            assert caught.value is error

    run(body)


def test_a_result_is_compact_json_in_a_fixed_order() -> None:
    result = result_of({"b": [1, None], "a": "é"})
    assert result.body == '{"a":"é","b":[1,null]}'.encode()
    assert result.is_durable
    assert result_of(None).body == b"null"


@pytest.mark.parametrize("value", [object(), {1: 2, "a": 3}, nan, b"bytes", "\ud800"])
def test_what_json_cannot_write_lives_in_this_process_only(value: object) -> None:
    result = result_of(value)
    assert (result.body, result.is_durable) == (b"", False)
    assert result.value is value


def test_functions_in_processes_fail_alone_and_their_process_is_replaced() -> None:
    async def body(agent: FunctionAgent) -> None:
        async def there(function: Callable[..., object], *given: object) -> object:
            return (await agent.perform(function, *given, in_processes=True)).value

        assert await there(functions.double, 4) == 8
        assert await there(functions.double_async, 5) == 10
        first = await there(functions.own_pid)
        assert first != os.getpid()
        assert await there(functions.own_pid) == first
        with pytest.raises(AttemptError, match="LookupError: gone"):
            await there(functions.fail, "gone")
        with pytest.raises(AttemptError, match="SystemExit: 3"):
            await there(functions.leave, 3)
        with pytest.raises(AttemptError, match="pickle"):
            await there(functions.unpicklable)
        with pytest.raises(AttemptError, match="pickle"):
            await there(lambda: 1)
        outcomes = await asyncio.gather(
            there(functions.die), there(functions.double, 1), there(functions.vanish),
            there(functions.double, 2), return_exceptions=True,
        )  # fmt: skip
        died, vanished = outcomes[0], outcomes[2]
        assert isinstance(died, AttemptError)
        assert isinstance(vanished, AttemptError)
        assert died.fault == Fault("broken", detail="its process was ended by SIGKILL")
        assert vanished.fault == Fault("broken", detail="its process ended with exit code 7")
        assert [outcomes[1], outcomes[3]] == [2, 4]

    run(body, processes=2)


def test_cancelling_ends_the_process_of_a_function() -> None:
    async def body(agent: FunctionAgent) -> None:
        pid = (await agent.perform(functions.own_pid, in_processes=True)).value
        assert isinstance(pid, int)
        task = asyncio.ensure_future(agent.perform(functions.hang, in_processes=True))
        loop = asyncio.get_running_loop()
        # After the task, which has begun by then.
        loop.call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(body)
