"""Models that want tools used: what is written of it, and what is read."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from headway.pacing.headers import OPENAI
from headway.wire import answer as write
from headway.wire import read
from headway.wire.answer import TextReader
from headway.wire.values import Answer, Conversation, Route, ToolUse, WireName

ONE = ToolUse("call_1", "bash", '{"command": "echo \\"안녕\\" | wc -c", "description": "Count"}')
TWO = ToolUse("call_2", "read", "{}")
WORDS = Answer("resp_1", "model-1", "I look.", 1000, 50, 24, tool_uses=(ONE, TWO))
SILENT = replace(WORDS, text="", tool_uses=(ONE,))
ANSWERS = pytest.mark.parametrize("answer", [WORDS, SILENT])
WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")


def stream(wire: WireName, answer: Answer) -> bytes:
    pieces = [answer.text[:3], answer.text[3:]] if answer.text else []
    texts = [write.piece(wire, answer, index, text) for index, text in enumerate(pieces)]
    end = write.closing(wire, answer, True, len(pieces))
    return b"".join((write.opening(wire, answer), *texts, end))


@ANSWERS
def test_the_events_of_a_response_with_tools_are_numbered_without_a_gap(answer: Answer) -> None:
    lines = stream("openai-responses", answer).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    places = [event["output_index"] for event in events if "output_index" in event]
    assert sorted(set(places)) == list(range(len(answer.tool_uses) + bool(answer.text)))


@pytest.mark.parametrize("wire", WIRES)
@ANSWERS
def test_usage_of_an_answer_with_tools_is_read_back(wire: WireName, answer: Answer) -> None:
    headers = {"content-type": "text/event-stream"}
    reader = read.AnswerReader(wire, 200, headers, OPENAI)
    reader.feed(stream(wire, answer))
    reader.end()
    assert reader.tally.output_tokens == 50
    assert reader.fault is None


@pytest.mark.parametrize("wire", WIRES[:2])
def test_what_an_answer_with_tools_says_is_its_text(wire: WireName) -> None:
    reader = TextReader(wire)
    reader.feed(stream(wire, WORDS))
    reader.end()
    assert (reader.text, reader.finish, reader.is_damaged) == ("I look.", "tool", False)


def heard(wire: WireName, body: object) -> Conversation:
    return read.conversation(Route(wire), json.dumps(body).encode())


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("anthropic", {"messages": [], "output_config": {"format": {"schema": {"a": 1}}}}),
        ("openai-chat", {"messages": [], "response_format": {"json_schema": {"schema": {"a": 1}}}}),
        ("openai-responses", {"input": "?", "text": {"format": {"schema": {"a": 1}}}}),
    ],
)
def test_the_schema_of_an_answer_is_read(wire: WireName, body: dict[str, object]) -> None:
    assert heard(wire, {"model": "m", **body}).schema == '{"a":1}'
    del body[next(name for name in body if name not in ("messages", "input"))]
    assert heard(wire, {"model": "m", **body}).schema == ""


def test_an_error_without_json_says_what_its_status_says() -> None:
    html = b"<html>\nBad gateway</html>"
    assert b'"overloaded_error"' in write.error_event("anthropic", 529, html)
    assert b'"api_error"' in write.error_event("anthropic", 502, html)
    assert b'"code":502' in write.error_event("openai-chat", 502, html)
    assert b'"server_error"' in write.error_event("openai-responses", 502, html)
    assert b'"rate_limit_exceeded"' in write.error_event("openai-responses", 429, b"")
