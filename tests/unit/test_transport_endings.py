"""However an answer ends, its permit ends exactly once and its connection is given back."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

import headway
from headway.errors import InternalError
from headway.pacing.admission import CallOutcome
from headway.testing import FakeAdmission
from tests.unit.paced_provider import HOST, Body, PacedProvider, events

URL = f"{HOST}/v1/messages"
ASK: dict[str, object] = {
    "model": "model-1",
    "max_tokens": 99,
    "stream": True,
    "messages": [{"role": "user", "content": "Hamlet?"}],
}


class ConsumerError(Exception):
    """What goes wrong in the program that reads an answer."""


@pytest.fixture
def admission() -> Iterator[FakeAdmission]:
    """An admission of which every ticket has to end exactly once."""
    admission = FakeAdmission()
    yield admission
    assert all(len(ticket.outcomes) == 1 for ticket in admission.tickets)


def unfinished(hangs: bool = False, close_hangs: bool = False) -> Body:
    """An answer of which only the beginning comes."""
    return Body(events("anthropic")[:4], hangs=hangs, close_hangs=close_hangs)


def only(admission: FakeAdmission) -> CallOutcome:
    (ticket,) = admission.tickets
    return ticket.outcome


def read_through(response: httpx2.Response) -> None:
    response.read()


def leave_in_the_middle(response: httpx2.Response) -> None:
    for _ in response.iter_raw():
        break


def fail_in_the_middle(response: httpx2.Response) -> None:
    for _ in response.iter_raw():
        raise ConsumerError


def interrupt_in_the_middle(response: httpx2.Response) -> None:
    for _ in response.iter_raw():
        raise KeyboardInterrupt


def read_nothing(response: httpx2.Response) -> None:
    assert not response.is_closed


@pytest.mark.parametrize(
    "read",
    [
        read_through,
        leave_in_the_middle,
        fail_in_the_middle,
        interrupt_in_the_middle,
        read_nothing,
    ],
)
def test_a_thread_may_end_as_it_likes(
    read: Callable[[httpx2.Response], None], admission: FakeAdmission
) -> None:
    provider = PacedProvider()
    with headway.pace(provider.http(), admission=admission) as http:
        try:
            with http.stream("POST", URL, json=ASK) as response:
                read(response)
        except (ConsumerError, KeyboardInterrupt):
            pass
    assert only(admission).how == "used"
    assert only(admission).fault is None
    assert provider.bodies[0].closed >= 1


def test_what_was_seen_of_an_answer_that_was_left_is_counted(admission: FakeAdmission) -> None:
    with (
        headway.pace(PacedProvider(body=unfinished()).http(), admission=admission) as http,
        http.stream("POST", URL, json=ASK) as response,
    ):
        parts = response.iter_raw()
        for _ in range(3):
            next(parts)
    tally = only(admission).tally
    assert tally.known == "estimated"
    assert tally.output_tokens > 0
    assert tally.input_tokens == 12


def test_an_answer_that_is_forgotten_is_settled_when_it_is_collected(
    admission: FakeAdmission,
) -> None:
    with headway.pace(PacedProvider().http(), admission=admission) as http:
        request = http.build_request("POST", URL, json=ASK)
        response = http.send(request, stream=True)
        assert not admission.outcomes
        del response
        gc.collect()
        assert only(admission).fault is None
        response = http.send(request, stream=True)
        parts = response.iter_raw()
        next(parts)
        del response, parts
        gc.collect()
    assert admission.statistics().unsettled == 0


def test_an_answer_that_breaks_off_is_the_providers_fault(admission: FakeAdmission) -> None:
    for error, expected in (
        (httpx2.RemoteProtocolError("peer closed"), "broken"),
        (httpx2.ReadTimeout("silence"), "timeout"),
    ):
        body = Body(events("anthropic")[:4], error=error)
        with (
            headway.pace(PacedProvider(body=body).http(), admission=admission) as http,
            pytest.raises(type(error)),
        ):
            http.post(URL, json=ASK)
        fault = admission.outcomes[-1].fault
        assert fault is not None
        assert fault.kind == expected


def test_an_answer_without_its_last_event_is_broken(admission: FakeAdmission) -> None:
    with headway.pace(PacedProvider(body=unfinished()).http(), admission=admission) as http:
        http.post(URL, json=ASK)
    fault = only(admission).fault
    assert fault is not None
    assert fault.kind == "broken"


def test_an_error_that_comes_after_the_last_event_changes_nothing(
    admission: FakeAdmission,
) -> None:
    body = Body(events("anthropic"), error=httpx2.ReadError("reset"))
    with (
        headway.pace(PacedProvider(body=body).http(), admission=admission) as http,
        pytest.raises(httpx2.ReadError),
    ):
        http.post(URL, json=ASK)
    assert only(admission).fault is None
    assert only(admission).tally.known == "reported"


def test_a_refusal_whose_reason_breaks_off_is_a_refusal(admission: FakeAdmission) -> None:
    body = Body([b'{"error": '], error=httpx2.ReadError("reset"))
    provider = PacedProvider(httpx2.Response(429, stream=body))
    with (
        headway.pace(provider.http(), admission=admission) as http,
        pytest.raises(httpx2.ReadError),
    ):
        http.post(URL, json=ASK)
    assert only(admission).how == "throttled"
    assert body.closed == 1


def test_a_refusal_whose_reason_breaks_off_in_a_loop_is_a_refusal(
    admission: FakeAdmission,
) -> None:
    body = Body([b'{"error": '], error=httpx2.ReadError("reset"))
    provider = PacedProvider(httpx2.Response(429, stream=body))

    async def talk() -> None:
        async with headway.pace(provider.http_async(), admission=admission) as http:
            await http.post(URL, json=ASK)

    with pytest.raises(httpx2.ReadError):
        asyncio.run(talk())
    assert only(admission).how == "throttled"
    assert body.closed == 1


class OnlyForThreads(httpx2.SyncByteStream):
    """Bytes that no event loop can read."""


class OnlyForLoops(httpx2.AsyncByteStream):
    """Bytes that no thread can read."""


def test_a_transport_of_the_wrong_kind_is_named_and_its_call_settled(
    admission: FakeAdmission,
) -> None:
    provider = PacedProvider(
        httpx2.Response(200, stream=OnlyForLoops()), httpx2.Response(200, stream=OnlyForThreads())
    )
    with (
        headway.pace(provider.http(), admission=admission) as http,
        pytest.raises(InternalError, match="only a loop can read"),
    ):
        http.post(URL, json=ASK)

    async def talk() -> None:
        async with headway.pace(provider.http_async(), admission=admission) as client:
            await client.post(URL, json=ASK)

    with pytest.raises(InternalError, match="a loop cannot read"):
        asyncio.run(talk())


def test_a_thread_waits_until_it_is_granted() -> None:
    provider, admission = PacedProvider(), FakeAdmission(holds=True)
    with (
        headway.pace(provider.http(), admission=admission) as http,
        ThreadPoolExecutor(1) as threads,
    ):
        future = threads.submit(http.post, URL, json=ASK)
        admission.wait_for_calls(1)
        assert not provider.requests
        admission.grant()
        assert future.result().status_code == 200


Read = Callable[[httpx2.Response], Awaitable[None]]


async def read_through_async(response: httpx2.Response) -> None:
    await response.aread()


async def leave_async(response: httpx2.Response) -> None:
    async for _ in response.aiter_raw():
        break


async def fail_async(response: httpx2.Response) -> None:
    async for _ in response.aiter_raw():
        raise ConsumerError


async def read_nothing_async(response: httpx2.Response) -> None:
    assert not response.is_closed


@pytest.mark.parametrize("read", [read_through_async, leave_async, fail_async, read_nothing_async])
def test_a_coroutine_may_end_as_it_likes(read: Read, admission: FakeAdmission) -> None:
    provider = PacedProvider()

    async def talk() -> None:
        async with headway.pace(provider.http_async(), admission=admission) as http:
            try:
                async with http.stream("POST", URL, json=ASK) as response:
                    await read(response)
            except ConsumerError:
                pass
        assert only(admission).fault is None

    asyncio.run(talk())
    assert only(admission).how == "used"
    assert provider.bodies[0].closed >= 1


def test_a_coroutines_forgotten_answer_is_settled_when_it_is_collected(
    admission: FakeAdmission,
) -> None:
    async def talk() -> None:
        async with headway.pace(PacedProvider().http_async(), admission=admission) as http:
            request = http.build_request("POST", URL, json=ASK)
            response = await http.send(request, stream=True)
            del response
            gc.collect()
            assert only(admission).fault is None

    asyncio.run(talk())


def test_an_answer_that_breaks_off_in_a_loop_is_the_providers_fault(
    admission: FakeAdmission,
) -> None:
    body = Body(events("anthropic")[:4], error=httpx2.ReadError("reset"))

    async def talk() -> None:
        async with headway.pace(PacedProvider(body=body).http_async(), admission=admission) as http:
            await http.post(URL, json=ASK)

    with pytest.raises(httpx2.ReadError):
        asyncio.run(talk())
    fault = only(admission).fault
    assert fault is not None
    assert fault.kind == "broken"


def test_a_reader_that_is_cancelled_settles_and_stays_cancelled(admission: FakeAdmission) -> None:
    body = unfinished(hangs=True)

    async def talk() -> None:
        async with headway.pace(PacedProvider(body=body).http_async(), admission=admission) as http:
            task = asyncio.create_task(http.post(URL, json=ASK))
            await body.hanging.wait()
            assert not admission.outcomes
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(talk())
    assert only(admission).fault is None
    assert only(admission).tally.known == "estimated"
    assert body.closed == 1


def test_a_reader_that_is_cancelled_twice_has_settled_before_it_waits_for_the_close(
    admission: FakeAdmission,
) -> None:
    body = unfinished(hangs=True, close_hangs=True)

    async def talk() -> None:
        async with headway.pace(PacedProvider(body=body).http_async(), admission=admission) as http:
            task = asyncio.create_task(http.post(URL, json=ASK))
            await body.hanging.wait()
            task.cancel()
            while not body.closed:
                await asyncio.wait([task], timeout=0)
            assert only(admission).fault is None
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(talk())


def test_a_timeout_around_a_call_settles_it(admission: FakeAdmission) -> None:
    async def talk() -> None:
        body = unfinished(hangs=True)
        async with headway.pace(PacedProvider(body=body).http_async(), admission=admission) as http:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(http.post(URL, json=ASK), 0.01)

    asyncio.run(talk())
    assert only(admission).how == "used"
    assert only(admission).fault is None


def test_a_call_that_is_cancelled_while_it_is_sent_is_in_doubt(admission: FakeAdmission) -> None:
    async def talk() -> None:
        sent = asyncio.Event()

        async def hang(request: httpx2.Request) -> httpx2.Response:
            sent.set()
            await asyncio.Event().wait()
            raise AssertionError

        http = httpx2.AsyncClient(transport=httpx2.MockTransport(hang))
        async with headway.pace(http, admission=admission) as client:
            task = asyncio.create_task(client.post(URL, json=ASK))
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(talk())
    assert only(admission).how == "used"
    assert only(admission).tally.known == "unknown"
    assert only(admission).fault is None


def test_a_call_that_is_cancelled_while_it_waits_leaves_and_is_never_sent() -> None:
    provider, admission = PacedProvider(), FakeAdmission(holds=True)

    async def talk() -> None:
        async with headway.pace(provider.http_async(), admission=admission) as http:
            task = asyncio.create_task(http.post(URL, json=ASK))
            while not admission.calls:
                await asyncio.wait([task], timeout=0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(talk())
    assert admission.statistics().left == 1
    assert admission.statistics().waiting == 0
    assert not provider.requests


def test_calls_wait_until_they_are_granted() -> None:
    provider, admission = PacedProvider(), FakeAdmission(holds=True)

    async def talk() -> None:
        async with headway.pace(provider.http_async(), admission=admission) as http:
            tasks = [asyncio.create_task(http.post(URL, json=ASK)) for _ in range(3)]
            while len(admission.calls) < 3:
                await asyncio.wait(tasks, timeout=0)
            assert not provider.requests
            admission.grant(2)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(tasks, timeout=0.01)
            assert len(provider.requests) == 2
            admission.grant()
            await asyncio.wait(tasks)

    asyncio.run(talk())
    assert len(provider.requests) == 3
    assert admission.statistics().unsettled == 0
