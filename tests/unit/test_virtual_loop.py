"""A loop whose clock jumps: hours pass in no time, and threads are still waited for."""

from __future__ import annotations

import asyncio
import threading
import time

from headway.testing import VirtualLoop, run_virtual


def pause(seconds: float) -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    return over


def test_five_hours_pass_in_no_time_and_in_order() -> None:
    async def main() -> list[tuple[int, float]]:
        loop, seen = asyncio.get_running_loop(), list[tuple[int, float]]()

        async def wait(hours: int) -> None:
            await pause(hours * 3600)
            seen.append((hours, loop.time()))

        await asyncio.gather(*(wait(hours) for hours in (5, 1, 3)))
        assert repr(loop) == "<VirtualLoop at 18100.000 s, 3 jumps>"
        return seen

    began_s = time.monotonic()
    assert run_virtual(main(), start_s=100.0) == [(1, 3700.0), (3, 10900.0), (5, 18100.0)]
    assert time.monotonic() - began_s < 60.0


def test_the_clock_stands_still_while_a_thread_works_for_the_loop() -> None:
    goes = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        timer = pause(3600)
        working = asyncio.ensure_future(asyncio.to_thread(goes.wait, 10))
        await pause(0)
        goes.set()
        assert await working
        now_s = loop.time()
        await timer
        return now_s

    assert run_virtual(main()) == 0.0


def test_the_clock_stands_still_while_something_says_that_it_is_busy() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        heard: asyncio.Future[None] = loop.create_future()
        writer = threading.Timer(0.05, loop.call_soon_threadsafe, (heard.set_result, None))
        loop.waits_for(lambda: not heard.done())
        timer = pause(3600)
        writer.start()
        await heard
        now_s = loop.time()
        await timer
        assert loop.jumps == 1
        return now_s

    assert run_virtual(main()) == 0.0
