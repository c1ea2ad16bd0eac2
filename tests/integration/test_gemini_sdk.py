"""The simulated provider as Google's SDK sees it, and the same SDK paced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from google import genai
from google.genai import errors, types

import headway
from headway.base.values import Limit, Tally
from headway.pacing.refusal import classify, reading_of_refusal
from headway.sim.account import Terms
from headway.sim.delivery import AT_THE_DOOR
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import account_of, serving, truth_of
from headway.testing import FakeAdmission
from headway.wire.read import AnswerReader

FAST = Latency(0.01, 0.0001)
SPEC = ProviderSpec("test", Terms((Limit("requests", 6000), Limit("tokens", 1e9))), FAST)
pytestmark = pytest.mark.filterwarnings(
    # google-genai derives from aiohttp's session, of which aiohttp disapproves.
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SPEC) as found:
        yield found


def client_of(url: str, key: str = "k", fault: str = "") -> genai.Client:
    headers = {"x-sim-fault": fault} if fault else {}
    options = types.HttpOptions(base_url=url, headers=headers)
    return genai.Client(api_key=key, http_options=options)


def account(url: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = truth_of(url, f"?key={account_of(key)}")["accounts"][account_of(key)]
    return found


@pytest.mark.parametrize("fault", sorted(AT_THE_DOOR))
def test_faults_at_the_door_are_errors_of_the_sdk(url: str, fault: str) -> None:
    with client_of(url, f"door-{fault}", fault) as client, pytest.raises(errors.APIError) as caught:
        client.models.generate_content(model="echo", contents="x")
    if fault == "429-misleading":
        assert '"retryDelay":"60s"' in json.dumps(caught.value.details, separators=(",", ":"))
    assert caught.value.code in (403, 429, 500, 503, 529)
    assert account(url, f"door-{fault}")["charged"]["requests"] == 0


def test_an_error_in_a_stream_is_an_error_of_the_sdk(url: str) -> None:
    with client_of(url, "event", "error-event") as client:
        stream = client.models.generate_content_stream(model="tokens-90", contents="x")
        assert next(stream).text
        with pytest.raises(errors.ServerError, match="UNAVAILABLE"):
            list(stream)


def test_a_limit_is_told_in_the_body_and_nowhere_else() -> None:
    spec = ProviderSpec("few", Terms((Limit("requests", 2, kind="fixed"),)), FAST)
    with serving(spec) as url, client_of(url) as client:
        for _ in range(2):
            client.models.generate_content(model="echo", contents="x")
        with pytest.raises(errors.ClientError) as caught:
            client.models.generate_content(model="echo", contents="x")
    response = caught.value.response
    body, headers = json.dumps(caught.value.details).encode(), dict(response.headers)
    assert not any("ratelimit" in name or name == "retry-after" for name in headers)
    fault = classify(429, headers, body)
    assert (fault.kind, fault.resource) == ("rate", "requests")
    assert fault.retry_after_s is not None
    assert 0.0 < fault.retry_after_s <= 60.0
    reading = reading_of_refusal(body)
    assert reading is not None
    assert (reading.limit, reading.period_s) == (2.0, 60.0)


def posted(url: str, method: str, fault: str = "") -> tuple[str, bytes]:
    body = {"contents": {"parts": {"text": "x"}}}
    request = Request(f"{url}/v1beta/models/tokens-45:{method}", json.dumps(body).encode())
    if fault:
        request.add_header("x-sim-fault", fault)
    with urlopen(request) as response:
        return response.headers["content-type"], response.read()


@pytest.mark.parametrize("fault", ["", "error-event", "malformed"])
def test_without_alt_sse_a_stream_is_an_array(url: str, fault: str) -> None:
    kind, body = posted(url, "streamGenerateContent?key=array", fault)
    _, events = posted(url, "streamGenerateContent?alt=sse&key=array", fault)
    assert (kind, body[:1], body[-1:]) == ("application/json", b"[", b"]")
    if fault == "malformed":
        return
    elements = json.loads(body)
    assert len(elements) >= 2
    if not fault:
        assert elements[-1]["usageMetadata"]["candidatesTokenCount"] == 45
        assert events.count(b"data: ") >= 2
        reader = AnswerReader("gemini", 200, {"content-type": kind})
        reader.feed(body)
        assert reader.is_over
        assert reader.tally == Tally(5, 0, 45, "reported")
    else:
        assert elements[-1]["error"]["status"] == "UNAVAILABLE"
    assert account(url, "array")["calls"] >= 2


def test_a_paced_client_asks_for_a_permit_for_each_call_in_both_its_forms(url: str) -> None:
    port = FakeAdmission()
    client = headway.pace(client_of(url, "paced"), admission=port)
    assert headway.pace(client, admission=port) is client
    client.models.generate_content(model="echo", contents="a b c")
    client.models.count_tokens(model="echo", contents="a b c")
    list(client.models.generate_content_stream(model="tokens-30", contents="a"))

    async def run() -> None:
        await client.aio.models.generate_content(model="echo", contents="x y")
        async for _ in await client.aio.models.generate_content_stream(model="echo", contents="x"):
            pass
        await client.aio.aclose()

    asyncio.run(run())
    client.close()
    assert [call.sketch.model for call in port.calls] == ["echo", "tokens-30", "echo", "echo"]
    assert {call.dialect for call in port.calls} == {"gemini"}
    assert len({call.account for call in port.calls}) == 1
    settled = [ticket.outcome.tally for ticket in port.tickets]
    assert [tally.output_tokens for tally in settled] == [3, 30, 2, 1]
    assert {tally.known for tally in settled} == {"reported"}
