"""SDKs whose calls are held for longer than their own timeout: the beats keep them waiting.

No SDK sends anything again here, so that whoever gives up fails. The same for a minute is in
`make soak`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from headway.base.values import Limit
from headway.client.admission import AdmissionPort
from headway.client.connection import dial_alone
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import serving, truth_of
from tests.integration.broker_home import until
from tests.integration.gateway_home import (
    Bases,
    GatewayHome,
    Holdup,
    asked,
    claude,
    gateway_to,
    gemini,
    gpt,
)

SPEC = ProviderSpec(
    "held", Terms((Limit("requests", 6e4), Limit("tokens", 1e9))), Latency(0.005, 0.0001)
)
TEXT = "one two three four five"
ASKED = asked(TEXT)
Call = Callable[[Bases, float], str]

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")


def claude_stream(bases: Bases, timeout_s: float) -> str:
    with (
        claude(bases, timeout=timeout_s) as client,
        client.messages.stream(model="echo", max_tokens=99, messages=ASKED) as stream,
    ):
        return stream.get_final_text()


def chat_stream(bases: Bases, timeout_s: float) -> str:
    with gpt(bases, timeout=timeout_s) as client:
        chunks = client.chat.completions.create(model="echo", messages=ASKED, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def responses_stream(bases: Bases, timeout_s: float) -> str:
    with (
        gpt(bases, timeout=timeout_s) as client,
        client.responses.stream(model="echo", input=TEXT) as stream,
    ):
        return stream.get_final_response().output_text


def gemini_stream(bases: Bases, timeout_s: float) -> str:
    with gemini(bases, int(timeout_s * 1000)) as client:
        chunks = client.models.generate_content_stream(model="echo", contents=TEXT)
        return "".join(chunk.text or "" for chunk in chunks)


async def gemini_async(bases: Bases, timeout_s: float) -> str:
    # Its timeout is for the whole of an answer, so that no beat can help: it has none here.
    async with gemini(bases).aio as client:
        chunks = await client.models.generate_content_stream(model="echo", contents=TEXT)
        return "".join([chunk.text or "" async for chunk in chunks])


STREAMS: dict[str, Call] = {
    "anthropic": claude_stream,
    "chat": chat_stream,
    "responses": responses_stream,
    "gemini": gemini_stream,
    "gemini, async": lambda bases, timeout_s: asyncio.run(gemini_async(bases, timeout_s)),
}


def hold_all(calls: dict[str, Call], timeout_s: float, hold_s: float) -> None:
    """All at once, each through a gateway of its own."""
    with serving(SPEC) as url:
        with ThreadPoolExecutor(len(calls)) as threads:
            told = {
                name: threads.submit(_held, call, url, timeout_s, hold_s)
                for name, call in calls.items()
            }
        assert {name: one.result() for name, one in told.items()} == dict.fromkeys(calls, TEXT)
        assert len(truth_of(url)["arrivals"]) == len(calls)


def _held(call: Call, url: str, timeout_s: float, hold_s: float) -> str:
    holdup = Holdup(AdmissionPort(dial_alone), hold_s, hold_s)
    with gateway_to(url, holdup) as home:
        began_s = time.monotonic()
        said = call(home.bases, timeout_s)
        assert time.monotonic() - began_s >= hold_s
        until(lambda: told_of(home) == {"200": 1})
    return said


def told_of(home: GatewayHome) -> dict[str, int]:
    """How many calls were told what; 499 is a client that went away."""
    answers = home.gateway.ledger.status(time.monotonic())["answers"]
    assert isinstance(answers, dict)
    found: dict[str, int] = {}
    for by_status in answers.values():
        found |= by_status
    return found


@pytest.mark.wallclock
def test_streams_that_are_held_for_longer_than_their_timeout_are_answered() -> None:
    hold_all(STREAMS, timeout_s=3.0, hold_s=6.0)


@pytest.mark.wallclock
def test_a_whole_call_whose_client_gives_up_keeps_its_place() -> None:
    holdup = Holdup(AdmissionPort(dial_alone), 3.5, 3.5)
    with serving(SPEC) as url, gateway_to(url, holdup) as home:
        with openai.OpenAI(api_key="k", base_url=home.bases.openai, timeout=2.0) as client:
            answer = client.chat.completions.create(model="echo", messages=ASKED)
        assert answer.choices[0].message.content == TEXT
        assert holdup.asked == 1
        until(lambda: told_of(home) == {"499": 1, "200": 1})
        assert len(truth_of(url)["arrivals"]) == 1


@pytest.mark.soak
def test_streams_that_are_held_for_a_minute_are_answered() -> None:
    hold_all(STREAMS, timeout_s=20.0, hold_s=60.0)
