"""Both official SDKs accept what is written, with strict validation on."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseErrorEvent

from headway.base.values import Fault, FaultKind
from headway.sim.headers import error_body
from headway.wire import answer as write
from headway.wire.values import Answer, WireName
from tests.unit.canned_clients import claude, gpt

TEXT = 'Grüße, "안녕"\n\u2028 \\ 😀'
PIECES = ("Grüße, ", '"안녕"', "\n\u2028", " \\ ", "😀")
ANSWER = Answer("resp_1", "model-1", TEXT, 1000, 50, 24, created_wall_s=1_700_000_000.5)
CUT = Answer("resp_1", "model-1", TEXT, 1000, 50, 24, is_cut=True)
ASKED: list[MessageParam] = [{"role": "user", "content": "Hello"}]
CHAT: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]


def stream(wire: WireName, answer: Answer, wants_usage: bool = True) -> bytes:
    pieces = [write.piece(wire, answer, index, text) for index, text in enumerate(PIECES)]
    end = write.closing(wire, answer, wants_usage, len(pieces))
    return b"".join((write.opening(wire, answer), *pieces, end))


@pytest.mark.parametrize(("answer", "reason"), [(ANSWER, "end_turn"), (CUT, "max_tokens")])
def test_a_whole_message_is_accepted(answer: Answer, reason: str) -> None:
    with claude(write.whole("anthropic", answer)) as client:
        message = client.messages.create(model="m", max_tokens=9, messages=ASKED)
    assert message.content[0].to_dict() == {"type": "text", "text": TEXT}
    assert message.stop_reason == reason
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (
        1000,
        24,
        50,
    )


@pytest.mark.parametrize(("answer", "reason"), [(ANSWER, "end_turn"), (CUT, "max_tokens")])
def test_a_streamed_message_is_accepted(answer: Answer, reason: str) -> None:
    with (
        claude(stream("anthropic", answer)) as client,
        client.messages.stream(model="m", max_tokens=9, messages=ASKED) as events,
    ):
        assert list(events.text_stream) == list(PIECES)
        message = events.get_final_message()
    assert message.stop_reason == reason
    assert message.usage.output_tokens == 50
    assert message.usage.input_tokens == 1000


@pytest.mark.parametrize(("answer", "reason"), [(ANSWER, "stop"), (CUT, "length")])
def test_a_whole_completion_is_accepted(answer: Answer, reason: str) -> None:
    with gpt(write.whole("openai-chat", answer)) as client:
        completion = client.chat.completions.create(model="m", messages=CHAT)
    assert completion.choices[0].message.content == TEXT
    assert completion.choices[0].finish_reason == reason
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 1024
    assert completion.usage.total_tokens == 1074


@pytest.mark.parametrize("wants_usage", [True, False])
def test_streamed_completions_report_usage_only_when_asked(wants_usage: bool) -> None:
    with gpt(stream("openai-chat", ANSWER, wants_usage)) as client:
        chunks = list(client.chat.completions.create(model="m", messages=CHAT, stream=True))
    said = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(part or "" for part in said) == TEXT
    reported = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert [usage.completion_tokens for usage in reported] == ([50] if wants_usage else [])
    assert bool(chunks[-1].choices) is not wants_usage


@pytest.mark.parametrize(("answer", "status"), [(ANSWER, "completed"), (CUT, "incomplete")])
def test_a_whole_response_is_accepted(answer: Answer, status: str) -> None:
    with gpt(write.whole("openai-responses", answer)) as client:
        response = client.responses.create(model="m", input="Hello")
    assert response.output_text == TEXT
    assert response.status == status
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 24


@pytest.mark.parametrize(("answer", "last"), [(ANSWER, "completed"), (CUT, "incomplete")])
def test_the_events_of_a_streamed_response_are_accepted_and_numbered(
    answer: Answer, last: str
) -> None:
    with gpt(stream("openai-responses", answer)) as client:
        events = list(client.responses.create(model="m", input="Hello", stream=True))
    assert [event.sequence_number for event in events] == list(range(13))
    assert [event.type for event in events if event.type != "response.output_text.delta"] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{last}",
    ]


def test_the_sdk_assembles_a_streamed_response() -> None:
    with (
        gpt(stream("openai-responses", ANSWER)) as client,
        client.responses.stream(model="m", input="Hello") as events,
    ):
        events.until_done()
        assert events.get_final_response().output_text == TEXT


def test_numbers_of_events_rise_even_when_nobody_says_how_many_pieces_there_were() -> None:
    pieces = [
        write.piece("openai-responses", ANSWER, index, text) for index, text in enumerate(PIECES)
    ]
    body = b"".join(
        (
            write.opening("openai-responses", ANSWER),
            *pieces,
            write.closing("openai-responses", ANSWER, wants_usage=True),
        )
    )
    with gpt(body) as client:
        events = client.responses.create(model="m", input="Hello", stream=True)
        numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("kind", ["rate", "overload", "server", "billing"])
def test_an_error_in_a_stream_reaches_the_caller_of_the_sdk(kind: FaultKind) -> None:
    status, body = error_body("anthropic", Fault(kind), "req_1")
    events = write.opening("anthropic", ANSWER) + write.error_event("anthropic", status, body)
    with claude(events) as client:
        answer = client.messages.create(model="m", max_tokens=9, messages=ASKED, stream=True)
        with pytest.raises(anthropic.APIStatusError) as caught:
            list(answer)
    assert caught.value.body == json.loads(body)

    status, body = error_body("openai", Fault(kind), "req_1")
    events = write.opening("openai-chat", ANSWER) + write.error_event("openai-chat", status, body)
    with gpt(events) as client:
        chunks = client.chat.completions.create(model="m", messages=CHAT, stream=True)
        with pytest.raises(openai.APIError) as failed:
            list(chunks)
    assert failed.value.body == json.loads(body)["error"]


def test_an_error_in_a_stream_of_responses_is_an_event() -> None:
    status, body = error_body("openai", Fault("rate", "tokens", 2.0), "req_1")
    with gpt(write.error_event("openai-responses", status, body)) as client:
        events = list(client.responses.create(model="m", input="Hello", stream=True))
    assert isinstance(events[0], ResponseErrorEvent)
    assert events[0].code == "rate_limit_exceeded"
    assert "try again in 2s" in events[0].message


def test_an_error_without_json_says_what_its_status_says() -> None:
    html = b"<html>\nBad gateway</html>"
    assert b'"overloaded_error"' in write.error_event("anthropic", 529, html)
    assert b'"api_error"' in write.error_event("anthropic", 502, html)
    assert b'"code":502' in write.error_event("openai-chat", 502, html)
    assert b'"server_error"' in write.error_event("openai-responses", 502, html)
    assert b'"rate_limit_exceeded"' in write.error_event("openai-responses", 429, b"")


def test_the_count_of_tokens_is_accepted() -> None:
    with claude(write.counted("anthropic", 7)) as client:
        assert client.messages.count_tokens(model="m", messages=ASKED).input_tokens == 7
    with gpt(write.counted("openai-responses", 7)) as other:
        assert other.responses.input_tokens.count(model="m", input="Hello").input_tokens == 7


@pytest.mark.parametrize("names", [["model-1", "model-2"], []])
def test_the_list_of_models_is_accepted(names: list[str]) -> None:
    with claude(write.models("anthropic", names)) as client:
        assert [model.id for model in client.models.list()] == names
    with gpt(write.models("openai-chat", names)) as other:
        assert [model.id for model in other.models.list()] == names
    assert write.models("openai-responses", names) == write.models("openai-chat", names)
