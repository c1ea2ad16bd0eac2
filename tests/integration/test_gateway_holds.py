"""Calls that are held: in silence, with beats, in vain; and clients that go away meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from headway.base.values import Limit
from headway.errors import QueueDeadlineError
from headway.sim.account import Terms
from headway.sim.delivery import HEADER
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import serving, truth_of
from headway.testing import FakeAdmission
from tests.integration.broker_home import until
from tests.integration.gateway_home import (
    GatewayHome,
    asked,
    body,
    claude,
    gateway_to,
    gpt,
    post,
)

SPEC = ProviderSpec("held", Terms((Limit("requests", 6e4),)), Latency(0.02, 0.001))
SILENT_S = 0.15
Holding = tuple[GatewayHome, FakeAdmission]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with serving(SPEC) as url:
        yield url


@pytest.fixture
def holding(provider: str) -> Iterator[Holding]:
    admission = FakeAdmission(holds=True)
    with gateway_to(provider, admission, silent_s=SILENT_S) as home:
        yield home, admission


def in_thread(work: Callable[[], object]) -> Any:
    pool = ThreadPoolExecutor(1)
    found = pool.submit(work)
    pool.shutdown(wait=False)
    return found


def heard(line: socket.socket, wanted: bytes) -> bytes:
    """All that came until what is wanted did."""
    found = b""
    while wanted not in found:
        data = line.recv(65536)
        assert data, found
        found += data
    return found


def test_an_error_after_the_first_beat_is_the_wires_own(holding: Holding) -> None:
    home, admission = holding

    def fails() -> str:
        with (
            claude(home.bases, default_headers={HEADER: "500"}) as client,
            pytest.raises(anthropic.APIStatusError) as raised,
            client.messages.stream(model="echo", max_tokens=9, messages=asked("x")) as stream,
        ):
            stream.get_final_text()
        return str(raised.value.body)

    answer = in_thread(fails)
    admission.wait_for_calls(1)
    time.sleep(3 * SILENT_S)
    admission.grant()
    assert "api_error" in answer.result(10)


def test_the_same_call_sent_again_keeps_its_place(holding: Holding) -> None:
    home, admission = holding
    first = post(home.base, body("again"))
    admission.wait_for_calls(1)
    with post(home.base, body("behind")):
        admission.wait_for_calls(2)
        first.close()
        until(lambda: len(home.gateway.places) == 1)
        # With its members in another order, as Codex does it.
        same = json.dumps(dict(reversed(json.loads(body("again")).items()))).encode()
        with post(home.base, same, "x-stainless-retry-count: 1") as second:
            until(lambda: len(home.gateway.places) == 0)
            admission.grant()
            heard(second, b"again")
    assert len(admission.calls) == 2


def test_another_call_does_not_take_that_place(holding: Holding) -> None:
    home, admission = holding
    first = post(home.base, body("mine"))
    admission.wait_for_calls(1)
    first.close()
    until(lambda: len(home.gateway.places) == 1)
    with post(home.base, body("mine", stream=True)):
        admission.wait_for_calls(2)
        assert len(home.gateway.places) == 1


def test_a_grant_to_a_client_that_has_gone_is_given_back(holding: Holding) -> None:
    home, admission = holding
    line = post(home.base, body("nobody"))
    admission.wait_for_calls(1)
    line.close()
    until(lambda: len(home.gateway.places) == 1)
    admission.grant()
    until(lambda: bool(admission.outcomes))
    assert [outcome.how for outcome in admission.outcomes] == ["unused"]
    assert len(home.gateway.places) == 0


def test_a_client_that_leaves_in_the_middle_pays_for_what_was_written(provider: str) -> None:
    admission = FakeAdmission()
    told = {"model": "tokens-2000", "max_tokens": 4000, "messages": asked("x"), "stream": True}
    with gateway_to(provider, admission) as home:
        line = post(home.base, json.dumps(told).encode())
        for _ in range(3):
            heard(line, b"content_block_delta")
        line.close()
        until(lambda: bool(admission.outcomes))
        until(lambda: truth_of(home.upstream)["in_flight"] == 0)
    (outcome,) = admission.outcomes
    assert (outcome.how, outcome.tally.known, outcome.fault) == ("used", "estimated", None)
    assert 0 < outcome.tally.output_tokens < 2000


def test_a_call_that_waits_too_long_is_told_when_to_come_again(provider: str) -> None:
    admission = FakeAdmission()
    admission.refuse(QueueDeadlineError("a call waited"), QueueDeadlineError("a call waited"))
    with (
        gateway_to(provider, admission) as home,
        claude(home.bases) as one,
        gpt(home.bases) as other,
    ):
        with pytest.raises(anthropic.RateLimitError) as first:
            one.messages.create(model="echo", max_tokens=9, messages=asked("x"))
        with pytest.raises(openai.RateLimitError) as second:
            other.chat.completions.create(model="echo", messages=asked("x"))
    for error in (first.value, second.value):
        assert 1 <= int(error.response.headers["retry-after"]) <= 60


def test_refusals_and_overloads_are_absorbed_before_the_first_byte() -> None:
    spec = ProviderSpec("two", Terms((Limit("concurrency", 2, 0.0, "gauge"),)), Latency(0.05, 1e-4))
    with serving(spec) as url, gateway_to(url) as home:

        async def many() -> list[Any]:
            async with openai.AsyncOpenAI(
                api_key="k", base_url=home.bases.openai, max_retries=0
            ) as client:
                asking = [
                    client.chat.completions.create(model="echo", messages=asked(f"call {number}"))
                    for number in range(24)
                ]
                return list(await asyncio.gather(*asking))

        answers = asyncio.run(many())
        assert [answer.choices[0].message.content for answer in answers] == [
            f"call {number}" for number in range(24)
        ]
        truth = next(iter(truth_of(url)["accounts"].values()))
        assert truth["whole"] == 24
        assert truth["in_flight_max"] <= 2
        assert home.key.totals is not None
        assert home.key.totals.calls == 24
        assert home.key.totals.output_tokens == truth["reported"]["output_tokens"]
        assert home.key.totals.input_tokens == truth["reported"]["input_tokens"]


def test_an_upstream_that_cannot_be_reached_is_named() -> None:
    admission = FakeAdmission()
    with gateway_to("http://127.0.0.1:9", admission) as home, claude(home.bases) as client:
        with pytest.raises(anthropic.APIStatusError) as raised:
            client.messages.create(model="echo", max_tokens=9, messages=asked("x"))
        assert raised.value.status_code == 502
        assert "127.0.0.1:9 cannot be reached" in str(raised.value)
    assert {outcome.how for outcome in admission.outcomes} == {"unused"}


def test_small_calls_have_a_flow_of_their_own(provider: str) -> None:
    admission = FakeAdmission()
    session = "x-claude-code-session-id: s-1"
    with gateway_to(provider, admission) as home:
        for text in ("small", "large " * 4000):
            with post(home.base, body(text), session) as line:
                line.recv(65536)
    small, large = (call.path for call in admission.calls)
    assert small[-1] == large[-1]
    assert (small[0], large[0]) == ("small", "large")
