"""The simulated provider as the official SDKs see it: all wires, streamed or not, and `/truth`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import anthropic
import openai
import pytest

from headway.base.values import Limit
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of

FAST = Latency(0.01, 0.0001)
SPEC = ProviderSpec("test", Terms((Limit("requests", 6000), Limit("tokens", 1e9))), FAST)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SPEC) as found:
        yield found


def claude(url: str, key: str = "k", retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key=key, base_url=url, max_retries=retries, _strict_response_validation=True
    )


def gpt(url: str, key: str = "k", retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(
        api_key=key, base_url=f"{url}/v1", max_retries=retries, _strict_response_validation=True
    )


def ask(text: str) -> Any:
    return [{"role": "user", "content": text}]


def account(url: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = truth_of(url, f"?key={account_of(key)}")["accounts"][account_of(key)]
    return found


def test_messages_are_answered_whole(url: str) -> None:
    with claude(url, "whole") as client:
        answer = client.messages.create(model="echo", max_tokens=99, messages=ask("a b c"))
        cut = client.messages.create(model="tokens-50", max_tokens=7, messages=ask("a"))
    assert [block.text for block in answer.content if block.type == "text"] == ["a b c"]
    assert (answer.stop_reason, answer.usage.output_tokens) == ("end_turn", 3)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 7)
    truth = account(url, "whole")
    assert (truth["calls"], truth["accepted"], truth["whole"], truth["in_flight"]) == (2, 2, 2, 0)
    assert truth["reported"]["output_tokens"] == 10 == pytest.approx(truth["charged"]["output"])
    total = answer.usage.input_tokens + cut.usage.input_tokens
    assert truth["reported"]["input_tokens"] == total == truth["charged"]["input"]


def test_the_same_conversation_hashes_to_the_same_answer_on_every_wire(url: str) -> None:
    with claude(url) as one, gpt(url) as other:
        first = one.messages.create(model="hash", max_tokens=99, system="s", messages=ask("x"))
        chat = other.chat.completions.create(
            model="hash", messages=[{"role": "system", "content": "s"}, *ask("x")]
        )
        response = other.responses.create(model="hash", instructions="s", input="x")
    block = first.content[0]
    assert block.type == "text"
    assert len(block.text) == 64
    assert block.text == chat.choices[0].message.content == response.output_text


SMALL = ProviderSpec("small", Terms((Limit("requests", 2, kind="sliding"),)), FAST)


@pytest.mark.parametrize("dialect", [None, "groq", "cerebras", "gemini", "plain"])
def test_a_refusal_is_the_right_exception_in_every_dialect(dialect: str | None) -> None:
    with serving(SMALL, ServeOptions(dialect=dialect)) as url, claude(url) as one, gpt(url) as two:
        for key in ("a", "b"):
            mine, other = one.with_options(api_key=key), two.with_options(api_key=key)
            mine.messages.create(model="echo", max_tokens=9, messages=ask("x"))
            other.chat.completions.create(model="echo", messages=ask("x"))
            with pytest.raises(anthropic.RateLimitError) as caught:
                mine.messages.create(model="echo", max_tokens=9, messages=ask("x"))
            with pytest.raises(openai.RateLimitError):
                other.chat.completions.create(model="echo", messages=ask("x"))
            with pytest.raises(openai.RateLimitError):
                other.responses.create(model="echo", input="x", stream=True)
            truth = account(url, key)
            assert truth["refused"] == {"requests": 3}
            assert (truth["calls"], truth["whole"]) == (5, 2)
            assert truth["limits"][0]["worst"] == 2
            assert not truth["limits"][0]["is_exceeded"]
        if dialect is None:
            waits = caught.value.response.headers["retry-after"]
            assert 50 <= int(waits) <= 60
            assert caught.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


def test_a_wrong_body_is_the_callers_fault(url: str) -> None:
    with claude(url) as one, gpt(url) as other:
        with pytest.raises(anthropic.BadRequestError):
            one.post("/v1/messages", body={"model": 7}, cast_to=object)
        with pytest.raises(openai.BadRequestError):
            other.post("/chat/completions", body=[], cast_to=object)
        with pytest.raises(openai.NotFoundError):
            other.post("/embeddings", body={}, cast_to=object)


def test_the_truth_names_no_key_and_lists_every_arrival(url: str) -> None:
    headers = {"x-sim-label": "the third agent", "x-stainless-retry-count": "2"}
    with claude(url, "sk-secret") as client:
        client.messages.create(model="echo", max_tokens=9, messages=ask("x"), extra_headers=headers)
    truth = truth_of(url, "?key=the%20third%20agent")
    assert list(truth["accounts"]) == [account_of("sk-secret")]
    assert "sk-secret" not in json.dumps(truth_of(url, "?arrivals=all"))
    line = truth["arrivals"][-1]
    assert (line["wire"], line["model"], line["how"]) == ("anthropic", "echo", "whole")
    assert (line["label"], line["refused_for"]) == ("the third agent", None)
    assert line["at_s"] <= line["first_byte_s"] <= line["ended_s"]


def test_a_client_that_hangs_up_pays_for_what_was_written() -> None:
    spec = ProviderSpec("slow", Terms((Limit("output", 1e6),)), Latency(0.01, 0.01))
    with serving(spec) as url, gpt(url) as client:
        with client.chat.completions.create(
            model="tokens-1000", messages=ask("x"), stream=True
        ) as stream:
            for seen, _ in enumerate(stream):
                if seen == 3:
                    break
        while (truth := account(url, "k"))["in_flight"]:
            pass
    assert (truth["cancelled"], truth["whole"]) == (1, 0)
    assert 1 <= truth["charged"]["output"] < 500
    assert truth["reported"]["output_tokens"] == 0


def test_a_long_prefix_is_written_once_and_then_read() -> None:
    text = "All that every agent must know about the project. " * 200
    system: Any = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    with serving(SPEC) as url, claude(url) as client:
        first, second = (
            client.messages.create(model="echo", max_tokens=9, system=system, messages=ask(word))
            for word in ("one", "two")
        )
        truth = account(url, "k")
    assert not first.usage.cache_read_input_tokens
    assert second.usage.cache_read_input_tokens == truth["reported"]["cache_read_tokens"] > 1024
    assert second.usage.input_tokens < 100
    assert (truth["cache_writes"], truth["cache_reads"]) == (1, 1)
    written = first.usage.cache_creation_input_tokens or 0
    assert written == second.usage.cache_read_input_tokens
    given = first.usage.input_tokens + second.usage.input_tokens + written
    assert truth["charged"]["input"] == given


def test_the_record_can_be_forgotten(url: str) -> None:
    with claude(url, "again") as client:
        client.messages.create(model="echo", max_tokens=9, messages=ask("x"))
    with urlopen(Request(f"{url}/truth/reset", method="POST")) as response:
        assert response.status == 200
    assert truth_of(url)["accounts"] == {}


def test_no_more_calls_than_allowed_are_served_at_once() -> None:
    terms = Terms((Limit("concurrency", 3, 0.0, "gauge"),))
    spec = ProviderSpec("slots", terms, Latency(0.5, 0.0001))

    async def run(url: str) -> list[int]:
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
            calls = [
                client.chat.completions.create(model="tokens-10", messages=ask(f"{n}"))
                for n in range(10)
            ]
            found = await asyncio.gather(*calls, return_exceptions=True)
        return [429 if isinstance(one, openai.RateLimitError) else 200 for one in found]

    with serving(spec) as url:
        statuses = asyncio.run(run(url))
        truth = account(url, "k")
    assert statuses.count(200) == truth["whole"]
    assert statuses.count(429) == truth["refused"]["concurrency"] == 7
    assert truth["in_flight_max"] == 3
    assert truth["limits"][-1]["worst"] == 3
    assert not truth["limits"][-1]["is_exceeded"]
