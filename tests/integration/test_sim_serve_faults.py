"""Every fault of the simulated provider, as the official SDKs and plain HTTP see it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar

import anthropic
import openai
import pytest

from headway.base.values import Limit
from headway.sim.account import Terms
from headway.sim.delivery import parse_shares
from headway.sim.models import SimulatedModels, parse_script
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of

C = TypeVar("C", anthropic.Anthropic, openai.OpenAI)
SPEC = ProviderSpec("test", Terms((Limit("requests", 60_000),)), Latency(0.01, 0.0001))
AT_THE_DOOR = {
    "429-bare": (429, 429),
    "429-misleading": (429, 429),
    "429-text": (429, 429),
    "500": (500, 500),
    "503-html": (503, 503),
    "529": (529, 529),
    "billing": (402, 429),
    "spend-cap": (429, 429),
}
"""Status on the Anthropic wire and on OpenAI's."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SPEC) as found:
        yield found


def client_of(kind: type[C], url: str, key: str) -> C:
    return kind(
        api_key=key, base_url=url, max_retries=0, timeout=5.0, _strict_response_validation=True
    )


@pytest.fixture
def one(url: str, request: pytest.FixtureRequest) -> Iterator[anthropic.Anthropic]:
    with client_of(anthropic.Anthropic, url, request.node.name) as client:
        yield client


@pytest.fixture
def other(url: str, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with client_of(openai.OpenAI, f"{url}/v1", request.node.name) as client:
        yield client


def ask(text: str = "x") -> Any:
    return [{"role": "user", "content": text}]


def message(client: anthropic.Anthropic, kind: str, **more: Any) -> Any:
    return client.messages.create(
        model="tokens-40", max_tokens=99, messages=ask(), extra_headers={"x-sim-fault": kind},
        **more,
    )  # fmt: skip


def chat(client: openai.OpenAI, kind: str, **more: Any) -> Any:
    return client.chat.completions.create(
        model="tokens-40", messages=ask(), extra_headers={"x-sim-fault": kind}, **more
    )


def response(client: openai.OpenAI, kind: str, **more: Any) -> Any:
    return client.responses.create(
        model="tokens-40", input="x", extra_headers={"x-sim-fault": kind}, **more
    )


def truth(url: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = truth_of(url)["accounts"][account_of(key)]
    return found


def settled(url: str, key: str) -> dict[str, Any]:
    """The truth once nothing is in flight; the server sees a client go a moment later."""
    for _ in range(500):
        found = truth(url, key)
        if not found["in_flight"]:
            return found
    raise AssertionError("calls are still in flight")


def stream_text(client: openai.OpenAI, kind: str, said: list[str] | None = None) -> list[str]:
    """What a chat says; what it said before it went wrong is in `said`."""
    said = [] if said is None else said
    with chat(client, kind, stream=True) as stream:
        for chunk in stream:
            said += [choice.delta.content or "" for choice in chunk.choices]
    return said


@pytest.mark.parametrize("kind", AT_THE_DOOR)
def test_a_fault_at_the_door_has_its_status_and_is_not_charged(
    url: str, one: anthropic.Anthropic, other: openai.OpenAI, kind: str
) -> None:
    for_claude, for_gpt = AT_THE_DOOR[kind]
    with pytest.raises(anthropic.APIStatusError) as caught:
        message(one, kind)
    with pytest.raises(openai.APIStatusError) as chatted:
        chat(other, kind, stream=True)
    assert (caught.value.status_code, chatted.value.status_code) == (for_claude, for_gpt)
    limited = isinstance(caught.value, anthropic.RateLimitError)
    assert limited == (for_claude == 429)
    if for_gpt >= 500:
        assert isinstance(chatted.value, openai.InternalServerError)
        assert isinstance(caught.value, anthropic.InternalServerError)
    headers = caught.value.response.headers
    assert ("retry-after" in headers) == (kind == "429-misleading")
    assert headers.get("retry-after", "60") == "60"
    told = any(name.startswith("anthropic-ratelimit") for name in headers)
    assert told == (kind not in ("429-bare", "429-text", "503-html"))
    found = truth(url, str(one.api_key))
    assert found["failures"] == {kind: 2}
    assert (found["accepted"], found["charged"]["requests"]) == (0, 0)


def test_a_stream_can_end_with_an_error_event(
    url: str, one: anthropic.Anthropic, other: openai.OpenAI
) -> None:
    with pytest.raises(anthropic.APIStatusError), message(one, "error-event", stream=True) as found:
        list(found)
    with pytest.raises(openai.APIError):
        stream_text(other, "error-event")
    with response(other, "error-event", stream=True) as found:
        kinds = [event.type for event in found]
    assert kinds[-1] in ("error", "response.failed")
    with pytest.raises(anthropic.InternalServerError):
        message(one, "error-event")
    assert truth(url, str(one.api_key))["failures"] == {"error-event": 4}


def test_an_answer_can_be_cut(url: str, one: anthropic.Anthropic, other: openai.OpenAI) -> None:
    with pytest.raises(anthropic.APIConnectionError):
        message(one, "cut")
    said: list[str] = []
    with pytest.raises(openai.APIConnectionError):
        stream_text(other, "cut", said)
    assert len("".join(said).split()) == 20
    found = settled(url, str(one.api_key))
    assert found["failures"] == {"cut": 2}
    assert found["reported"]["output_tokens"] == 0


def test_an_answer_can_hang_or_stall(
    url: str, one: anthropic.Anthropic, other: openai.OpenAI
) -> None:
    hasty, quick = one.with_options(timeout=0.3), other.with_options(timeout=0.3)
    with pytest.raises(anthropic.APITimeoutError):
        message(hasty, "hang")
    with pytest.raises(openai.APITimeoutError):
        chat(quick, "hang", stream=True)
    said: list[str] = []
    with pytest.raises(Exception, match="timed out"):
        stream_text(quick, "stall", said)
    assert len("".join(said).split()) == 20
    with pytest.raises(anthropic.APITimeoutError):
        message(hasty, "stall")
    found = settled(url, str(one.api_key))
    assert found["failures"] == {"hang": 2, "stall": 2}


def test_an_answer_can_be_malformed(
    url: str, one: anthropic.Anthropic, other: openai.OpenAI
) -> None:
    with pytest.raises((anthropic.APIResponseValidationError, json.JSONDecodeError)):
        message(one, "malformed")
    with pytest.raises(json.JSONDecodeError):
        stream_text(other, "malformed")
    with pytest.raises(json.JSONDecodeError), message(one, "malformed", stream=True) as stream:
        list(stream)
    with pytest.raises(json.JSONDecodeError), response(other, "malformed", stream=True) as stream:
        list(stream)
    assert truth(url, str(one.api_key))["failures"] == {"malformed": 4}


def test_answers_can_be_compressed(one: anthropic.Anthropic, other: openai.OpenAI) -> None:
    raw = one.messages.with_raw_response.create(
        model="tokens-40", max_tokens=99, messages=ask(), extra_headers={"x-sim-fault": "gzip"}
    )
    assert raw.headers["content-encoding"] == "gzip"
    assert raw.parse().usage.output_tokens == 40
    assert len("".join(stream_text(other, "gzip")).split()) == 40
    with message(one, "gzip", stream=True) as stream:
        assert [event.type for event in stream][-1] == "message_stop"
    with pytest.raises(openai.APIConnectionError):
        stream_text(other, "gzip, cut")


def test_an_unknown_fault_is_refused(one: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="no fault `bang`"):
        message(one, "bang")


def test_faults_by_share_and_by_rule_follow_the_seed() -> None:
    script = parse_script({"rules": [{"contains": "bad", "answer": "x", "faults": ["529"]}]})
    options = ServeOptions(
        5, mischief=parse_shares(["500=0.5"]), models=SimulatedModels("script", script)
    )
    outcomes = []
    for _ in range(2):
        with (
            serving(SPEC, options) as url,
            anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client,
        ):
            for number in range(20):
                with suppress(anthropic.InternalServerError):
                    client.messages.create(model="any", max_tokens=9, messages=ask(f"{number}"))
            with pytest.raises(anthropic.InternalServerError) as caught:
                client.messages.create(model="any", max_tokens=9, messages=ask("bad"))
            assert caught.value.status_code == 529
            lines = truth_of(url)["arrivals"]
            outcomes.append([line["how"] for line in lines])
    assert outcomes[0] == outcomes[1]
    assert 3 <= outcomes[0].count("500") <= 17
