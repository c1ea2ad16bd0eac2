"""However an answer ends, its permit ends exactly once and its connection is given back."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress

import httpx2
import pytest

import headway
from headway.errors import InternalError
from headway.pacing.call import Outcome
from headway.testing import FakeAdmission
from tests.unit.paced_provider import HOST, Body, PacedProvider, events, post

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


def only(admission: FakeAdmission) -> Outcome:
    (ticket,) = admission.tickets
    return ticket.outcome


@pytest.mark.parametrize("error", [None, ConsumerError(), KeyboardInterrupt()])
@pytest.mark.parametrize("parts", ["all", "one", "none"])
def test_a_thread_may_end_as_it_likes(
    parts: str, error: BaseException | None, admission: FakeAdmission
) -> None:
    provider = PacedProvider()
    with (
        headway.pace(provider.http(), admission=admission) as http,
        suppress(ConsumerError, KeyboardInterrupt),
        http.stream("POST", URL, json=ASK) as response,
    ):
        if parts != "none":
            (list if parts == "all" else next)(response.iter_raw())
        if error is not None:
            raise error
    assert (only(admission).how, only(admission).fault) == ("used", None)
    assert provider.bodies[0].closed >= 1


@pytest.mark.parametrize("error", [None, ConsumerError()])
@pytest.mark.parametrize("parts", ["all", "one", "none"])
def test_a_coroutine_may_end_as_it_likes(
    parts: str, error: Exception | None, admission: FakeAdmission
) -> None:
    provider = PacedProvider()

    async def talk() -> None:
        async with headway.pace(provider.http_async(), admission=admission) as http:
            with suppress(ConsumerError):
                async with http.stream("POST", URL, json=ASK) as response:
                    if parts == "all":
                        await response.aread()
                    elif parts == "one":
                        await anext(response.aiter_raw())
                    if error is not None:
                        raise error
            assert (only(admission).how, only(admission).fault) == ("used", None)

    asyncio.run(talk())
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


IN_BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])


@IN_BOTH
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.RemoteProtocolError("peer closed"), "broken"),
        (httpx2.ReadTimeout("late"), "timeout"),
    ],
)
def test_an_answer_that_breaks_off_is_the_providers_fault(
    error: Exception, kind: str, is_async: bool, admission: FakeAdmission
) -> None:
    body = Body(events("anthropic")[:4], error=error)
    with pytest.raises(type(error)):
        post(PacedProvider(body=body), admission, URL, ASK, is_async=is_async)
    fault = only(admission).fault
    assert fault is not None
    assert fault.kind == kind


def test_only_what_comes_before_the_last_event_can_break(admission: FakeAdmission) -> None:
    post(PacedProvider(body=unfinished()), admission, URL, ASK)
    fault = only(admission).fault
    assert fault is not None
    assert fault.kind == "broken"
    late = Body(events("anthropic"), error=httpx2.ReadError("reset"))
    with pytest.raises(httpx2.ReadError):
        post(PacedProvider(body=late), admission, URL, ASK)
    assert admission.outcomes[1].fault is None
    assert admission.outcomes[1].tally.known == "reported"


@IN_BOTH
def test_a_refusal_whose_reason_breaks_off_is_a_refusal(
    is_async: bool, admission: FakeAdmission
) -> None:
    body = Body([b'{"error": '], error=httpx2.ReadError("reset"))
    provider = PacedProvider(httpx2.Response(429, stream=body))
    with pytest.raises(httpx2.ReadError):
        post(provider, admission, URL, ASK, is_async=is_async)
    assert only(admission).how == "throttled"
    assert body.closed == 1


class OnlyForThreads(httpx2.SyncByteStream):
    """Bytes that no event loop can read."""


class OnlyForLoops(httpx2.AsyncByteStream):
    """Bytes that no thread can read."""


@pytest.mark.parametrize(
    ("body", "is_async", "said"),
    [
        (OnlyForLoops(), False, "only a loop can read"),
        (OnlyForThreads(), True, "a loop cannot read"),
    ],
)
def test_a_transport_of_the_wrong_kind_is_named_and_its_call_settled(
    body: OnlyForLoops | OnlyForThreads, is_async: bool, said: str, admission: FakeAdmission
) -> None:
    provider = PacedProvider(httpx2.Response(200, stream=body))
    with pytest.raises(InternalError, match=said):
        post(provider, admission, URL, ASK, is_async=is_async)


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
