"""Calls of one event loop through the broker: its thread wakes them, and goes when it is closed."""

from __future__ import annotations

import asyncio
import os
import threading

from headway.base.values import Limit, Sketch, Tally
from headway.client.admission import AdmissionPort
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import AccountTerms
from tests.integration.broker_home import Home

CALL = Request("provider#1", "openai", Sketch("model", size_bytes=100))
USED = Outcome("used", Tally(10.0, 0.0, 5.0))
SOON_S = 60.0


def wide(port: AdmissionPort, width: float) -> None:
    port.configure("provider#1", AccountTerms(limits=(Limit("concurrency", width, 0.0, "gauge"),)))


async def called(port: AdmissionPort) -> None:
    (await port.admit_async(CALL, SOON_S)).settle(USED)


def test_calls_of_one_turn_of_the_loop_are_all_admitted_and_settled(here: Home) -> None:
    async def main() -> None:
        port = here.port()
        await asyncio.gather(*(called(port) for _ in range(300)))
        view, _ = await asyncio.to_thread(port.describe)
        assert [one.in_flight for one in view.accounts] == [0]
        assert (len(port.waiting), len(port.in_use)) == (0, 0)
        port.close()

    asyncio.run(main())
    assert len(here.brokers()) == 1


def test_those_who_wait_go_on_with_the_next_broker(here: Home) -> None:
    async def main() -> None:
        port = here.port()
        wide(port, 1.0)
        first = await port.admit_async(CALL, SOON_S)
        second = asyncio.create_task(port.admit_async(CALL, SOON_S))
        await asyncio.sleep(0.1)
        assert not second.done()
        here.kill_broker()
        await asyncio.sleep(0.2)
        assert not second.done(), "the next broker does not know what is in flight"
        first.settle(USED)
        (await second).settle(USED)
        port.close()

    asyncio.run(main())
    assert len(here.brokers()) == 2


def test_a_closed_line_leaves_neither_thread_nor_file(here: Home) -> None:
    async def main() -> None:
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        port = here.port()
        await called(port)
        port.close()
        assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)

    asyncio.run(main())


def test_a_line_that_is_closed_from_another_thread_leaves_the_loop_alone(here: Home) -> None:
    async def main() -> None:
        port = here.port()
        await called(port)
        await asyncio.to_thread(port.close)
        await called(port)
        port.close()

    asyncio.run(main())
