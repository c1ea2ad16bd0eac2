"""Answers with tools, the text of answers, and the bodies of calls that headway makes itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headway.wire import read
from headway.wire.answer import TEXT_CHARS_MAX, TextReader
from headway.wire.read import FORMATS, conversation, sketch
from headway.wire.request import body_of
from headway.wire.values import Answer, Conversation, Route, ToolUse, WireName

ONE = ToolUse("call_1", "bash", '{"command": "echo \\"안녕\\" | wc -c", "description": "Count"}')
TWO = ToolUse("call_2", "read", "{}")
WORDS = Answer("resp_1", "model-1", "I look.", 1000, 50, 24, tool_uses=(ONE, TWO))
SILENT = replace(WORDS, text="", tool_uses=(ONE,))
ANSWERS = pytest.mark.parametrize("answer", [WORDS, SILENT])
WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")


def stream(wire: WireName, answer: Answer) -> bytes:
    pieces = [answer.text[at : at + 3] for at in range(0, len(answer.text), 3)]
    texts = [FORMATS[wire].piece(answer, index, text) for index, text in enumerate(pieces)]
    end = FORMATS[wire].closing(answer, True, len(pieces))
    return b"".join((FORMATS[wire].opening(answer), *texts, end))


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
    reader = read.AnswerReader(wire, 200, headers)
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
    assert b'"overloaded_error"' in FORMATS["anthropic"].error_event(529, html)
    assert b'"api_error"' in FORMATS["anthropic"].error_event(502, html)
    assert b'"code":502' in FORMATS["openai-chat"].error_event(502, html)
    assert b'"server_error"' in FORMATS["openai-responses"].error_event(502, html)
    assert b'"rate_limit_exceeded"' in FORMATS["openai-responses"].error_event(429, b"")


TEXT = 'Zwölf Boxkämpfer, 東京 \U0001f600 \\ " \n\u2028 end'


def answer(text: str = TEXT, is_cut: bool = False) -> Answer:
    return Answer("id", "m", text, 3, 4, is_cut=is_cut)


@pytest.mark.parametrize("wire", WIRES[:2])
@given(text=st.text(max_size=50), cut=st.integers(1, 40))
def test_the_text_does_not_depend_on_how_the_bytes_were_split(
    wire: WireName, text: str, cut: int
) -> None:
    data = stream(wire, answer(text))
    reader = TextReader(wire)
    for at in range(0, len(data), cut):
        reader.feed(data[at : at + cut])
    reader.end()
    # Half a surrogate pair has no bytes.
    assert reader.text == text.encode("utf-8", "replace").decode()
    assert (reader.finish, reader.is_over, reader.is_damaged) == ("stop", True, False)


def test_an_endless_answer_is_damaged_rather_than_kept() -> None:
    reader = TextReader("openai-chat", is_stream=False)
    reader._add("x" * TEXT_CHARS_MAX)
    reader._add("y")
    assert reader.is_damaged


def test_thoughts_are_not_the_answer() -> None:
    reader = TextReader("anthropic")
    for delta in (
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "text_delta", "text": "yes"},
        {"type": "input_json_delta", "partial_json": "{}"},
    ):
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
        reader.feed(f"event: content_block_delta\ndata: {json.dumps(event)}\n\n".encode())
    assert reader.text == "yes"


@pytest.mark.parametrize("reason", ["refusal", "content_filter"])
def test_an_answer_that_was_declined_says_so(reason: str) -> None:
    reader = TextReader("openai-chat", is_stream=False)
    reader.feed(json.dumps({"choices": [{"message": {}, "finish_reason": reason}]}).encode())
    reader.end()
    assert (reader.text, reader.finish) == ("", "refusal")


@pytest.mark.parametrize("wire", WIRES[:2])
def test_a_call_is_read_by_its_provider_as_it_was_meant(wire: WireName) -> None:
    turns = (("user", "hello"), ("assistant", "yes?"), ("user", TEXT))
    body = body_of(wire, "m", turns, 99, "Be brief.")
    found = conversation(Route(wire), body)
    assert (found.model, found.system, found.turns) == ("m", "Be brief.", turns)
    assert (found.streams, found.wants_usage, found.max_output_tokens) == (True, True, 99)
    read = sum(len(text.encode()) for _, text in turns)
    assert read < sketch(Route(wire), body).most_input_tokens < read + 300


@pytest.mark.parametrize("wire", WIRES[:2])
def test_the_providers_cache_keeps_what_the_prompts_of_a_group_share(wire: WireName) -> None:
    shared = "Rules: " + "be exact. " * 500
    bodies = [
        body_of(wire, "m", (("user", shared + end),), 99, shared_chars=len(shared))
        for end in ("a", "b", "")
    ]
    found = [sketch(Route(wire), body) for body in bodies]
    if wire == "anthropic":
        assert len({one.prefix for one in found}) == 1
        assert found[2].prefix_bytes == found[2].size_bytes < found[0].size_bytes
        assert conversation(Route(wire), bodies[0]).turns == (("user", f"{shared}\na"),)
    short = body_of(wire, "m", (("user", "short"),), 99, shared_chars=5)
    assert short == body_of(wire, "m", (("user", "short"),), 99)


def test_openai_itself_wants_another_name_for_the_longest_answer() -> None:
    body = json.loads(body_of("openai-chat", "m", (("user", "x"),), 9, "", True))
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body
    assert "system" not in json.loads(body_of("anthropic", "m", (("user", "x"),), 9))
