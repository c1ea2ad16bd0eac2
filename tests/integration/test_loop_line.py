"""The broker's line within an event loop: the same promises as the one with a thread."""

from __future__ import annotations

import asyncio
import os
import threading

from headway.base.values import Limit, Sketch, Tally
from headway.broker.calls import AdmissionClient
from headway.broker.connection import Dialer, LoopConnection
from headway.broker.election import start
from headway.client.admission import AdmissionPort, dial_here
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import AccountTerms
from tests.integration.broker_home import Home

CALL = Request("provider#1", "openai", Sketch("model", size_bytes=100))
USED = Outcome("used", Tally(10.0, 0.0, 5.0))
SOON_S = 60.0


def port_of(here: Home) -> AdmissionPort:
    def dial(client: AdmissionClient) -> LoopConnection:
        return LoopConnection(client, Dialer(here.place, start), asyncio.get_running_loop())

    return AdmissionPort(dial)


def wide(port: AdmissionPort, width: float) -> None:
    port.configure("provider#1", AccountTerms(limits=(Limit("concurrency", width, 0.0, "gauge"),)))


async def called(port: AdmissionPort) -> None:
    (await port.admit_async(CALL, SOON_S)).settle(USED)


def test_calls_of_one_turn_of_the_loop_are_all_admitted_and_settled(here: Home) -> None:
    async def main() -> None:
        port = port_of(here)
        await asyncio.gather(*(called(port) for _ in range(300)))
        view, _ = await asyncio.to_thread(port.describe)
        assert [one.in_flight for one in view.accounts] == [0]
        assert (port.statistics().waiting, port.statistics().in_use) == (0, 0)
        port.close()

    asyncio.run(main())
    assert len(here.brokers()) == 1


def test_those_who_wait_go_on_with_the_next_broker(here: Home) -> None:
    async def main() -> None:
        port = port_of(here)
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
        port = port_of(here)
        await called(port)
        port.close()
        assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)

    asyncio.run(main())


def test_a_line_that_is_closed_from_another_thread_leaves_the_loop_alone(here: Home) -> None:
    async def main() -> None:
        port = port_of(here)
        await called(port)
        await asyncio.to_thread(port.close)
        await called(port)
        port.close()

    asyncio.run(main())


def test_a_process_without_a_loop_gets_the_usual_line(here: Home) -> None:
    port = AdmissionPort(dial_here)
    port.admit(CALL, SOON_S).settle(USED)
    port.close()

    async def main() -> None:
        own = AdmissionPort(dial_here)
        await called(own)
        own.close()

    asyncio.run(main())
