"""A paced client gets the bytes that were sent, and its permit knows what they consumed."""

from __future__ import annotations

import asyncio
import gzip
import json

import httpx2
import pytest

import headway
from headway.base.values import CacheTokens, Sketch, Tally
from headway.client.exchange import ALIVE_S, PROGRESS_S, Exchange
from headway.pacing.budget import STEP_TOKENS
from headway.pacing.call import Request
from headway.testing import FakeAdmission
from headway.wire.read import FORMATS
from headway.wire.values import WireName
from tests.unit.paced_provider import ANSWER, HEADERS, HOST, Body, PacedProvider, events

LONG = "All the world's a stage. " * 400
PING = b"event: ping\ndata: {}\n\n"
USED = Tally(12, 0, 34)
WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}
BODIES: dict[str, dict[str, object]] = {
    "anthropic": {"max_tokens": 99, "messages": [{"role": "user", "content": "Hamlet?"}]},
    "openai-chat": {"max_tokens": 99, "messages": [{"role": "user", "content": "Hamlet?"}]},
    "openai-responses": {"max_output_tokens": 99, "input": "Hamlet?"},
}


def body_of(wire: WireName, is_stream: bool) -> dict[str, object]:
    return {"model": "model-1", "stream": is_stream, **BODIES[wire]}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("is_stream", [False, True])
def test_bytes_and_headers_are_those_of_the_provider(wire: WireName, is_stream: bool) -> None:
    provider, admission = PacedProvider(), FakeAdmission()
    url, body = HOST + PATHS[wire], body_of(wire, is_stream)
    with provider.http() as plain, headway.pace(provider.http(), admission=admission) as paced:
        expected, got = plain.post(url, json=body), paced.post(url, json=body)
    assert got.content == expected.content
    assert got.headers.raw == expected.headers.raw
    assert got.status_code == expected.status_code
    (ticket,) = admission.tickets
    assert ticket.outcome.tally == USED
    assert ticket.outcome.how == "used"
    assert ticket.outcome.fault is None
    ((reading, dialect),) = ticket.beginnings
    assert dialect == ("anthropic" if wire == "anthropic" else "openai")
    assert reading.limits[0].remaining == 49
    assert ticket.call.sketch.model == "model-1"
    assert ticket.call.sketch.max_output_tokens == 99


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_event_loop_gets_the_same_bytes(wire: WireName, is_stream: bool) -> None:
    provider, admission = PacedProvider(), FakeAdmission()
    url, body = HOST + PATHS[wire], body_of(wire, is_stream)

    async def both() -> tuple[bytes, bytes]:
        async with (
            provider.http_async() as plain,
            headway.pace(provider.http_async(), admission=admission) as paced,
        ):
            return (await plain.post(url, json=body)).content, (
                await paced.post(url, json=body)
            ).content

    expected, got = asyncio.run(both())
    assert got == expected
    assert admission.tickets[0].outcome.tally == USED


def test_a_compressed_answer_stays_compressed_and_is_counted() -> None:
    packed = gzip.compress(FORMATS["openai-chat"].whole(ANSWER))
    reply = httpx2.Response(
        200,
        headers={"content-encoding": "gzip", "content-type": "application/json"},
        stream=Body([packed[:7], packed[7:]]),
    )
    admission = FakeAdmission()
    with headway.pace(PacedProvider(reply).http(), admission=admission) as http:
        url = HOST + PATHS["openai-chat"]
        with http.stream("POST", url, json=body_of("openai-chat", False)) as response:
            assert b"".join(response.iter_raw()) == packed
    assert admission.tickets[0].outcome.tally == USED


def test_a_transport_that_keeps_whole_bodies_is_settled_without_being_read() -> None:
    body = FORMATS["openai-chat"].whole(ANSWER)
    admission = FakeAdmission()
    with headway.pace(
        PacedProvider(httpx2.Response(200, content=body)).http(), admission=admission
    ) as http:
        url = HOST + PATHS["openai-chat"]
        with http.stream("POST", url, json=body_of("openai-chat", False)) as response:
            assert admission.tickets[0].outcome.tally == USED
            assert response.read() == body

    async def same() -> None:
        provider = PacedProvider(httpx2.Response(200, content=body))
        async with headway.pace(provider.http_async(), admission=admission) as client:
            await client.post(url, json=body_of("openai-chat", False))

    asyncio.run(same())
    assert admission.tickets[1].outcome.tally == USED


def test_what_no_model_answers_passes_untouched() -> None:
    seen: list[str] = []

    def reply(request: httpx2.Request) -> httpx2.Response:
        seen.append(f"{request.method} {request.url.path}")
        return httpx2.Response(200, json={})

    admission = FakeAdmission()
    http = httpx2.Client(transport=httpx2.MockTransport(reply), base_url=HOST)
    with headway.pace(http, admission=admission) as client:
        client.get("/v1/models")
        client.post("/v1/messages/count_tokens", json=body_of("anthropic", False))
        client.post("/v1/files", files={"file": b"data"})
        client.get("/v1/responses/resp_1")
    assert len(seen) == 4
    assert not admission.calls


def test_a_body_that_can_be_read_once_is_sent_unpaced_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider, admission = PacedProvider(), FakeAdmission()
    body = json.dumps(body_of("openai-chat", False)).encode()
    with headway.pace(provider.http(), admission=admission) as http:
        for _ in range(2):
            url = "http://once.test" + PATHS["openai-chat"]
            assert http.post(url, content=iter([body])).status_code == 200
    assert not admission.calls
    assert [record.levelname for record in caplog.records if "UNPACED" in record.message] == [
        "WARNING"
    ]


def test_growth_is_told_in_steps_and_silence_is_told_to_be_alive() -> None:
    now = [0.0]
    admission = FakeAdmission()
    call = Request("provider.test#0", "anthropic", Sketch("model-1"))
    exchange = Exchange(call, "anthropic", clock=lambda: now[0])
    exchange.granted(admission.admit(call, None))
    assert exchange.responded(200, {"content-type": "text/event-stream", **HEADERS["anthropic"]})
    opening, *pieces, closing = events("anthropic")
    (ticket,) = admission.tickets
    exchange.fed(opening)
    for piece in pieces:
        exchange.fed(piece)
    assert ticket.progress == []
    now[0] = 1.0
    exchange.fed(pieces[0])
    exchange.fed(pieces[0] * 5)
    assert len(ticket.progress) == 1
    now[0] += 2.0 * PROGRESS_S
    exchange.fed(PING)
    assert len(ticket.progress) == 2
    now[0] += ALIVE_S
    exchange.fed(PING)
    assert len(ticket.progress) == 3
    assert ticket.progress[1] == ticket.progress[2]
    # A step of a soft claim is told at once.
    exchange.fed(pieces[0] * STEP_TOKENS)
    assert len(ticket.progress) == 4
    exchange.fed(closing)
    assert exchange.permit is None
    assert ticket.outcome.how == "used"


def test_what_a_cache_has_forgotten_of_a_conversation_is_told_as_written_twice() -> None:
    mark = {"type": "ephemeral"}
    said = [{"role": "user", "content": LONG}]
    tallies = []
    for read, written in ((0, 2000), (2000, 100), (0, 2200), (1500, 750)):
        usage = {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": read,
                 "cache_creation_input_tokens": written}  # fmt: skip
        whole = {"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage}
        admission = FakeAdmission()
        transport = httpx2.MockTransport(lambda _, whole=whole: httpx2.Response(200, json=whole))
        client = httpx2.Client(transport=transport)
        with headway.pace(client, admission=admission) as paced:
            body = {"model": "m", "max_tokens": 9, "messages": said, "cache_control": mark}
            paced.post(HOST + PATHS["anthropic"], json=body)
        tallies.append(admission.tickets[0].outcome.tally)
        said += [{"role": "assistant", "content": "Go on."}, {"role": "user", "content": "More."}]
    assert [tally.rewrite_tokens for tally in tallies] == [0.0, 0.0, 2100.0, 700.0]
    assert tallies[2].cache == CacheTokens(0.0, 2200.0, 2100.0)
