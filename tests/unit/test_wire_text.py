"""The text of answers, and the bodies of the calls that headway makes itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wire import answer as write
from headway.wire.answer import TEXT_CHARS_MAX, TextReader
from headway.wire.read import conversation, sketch
from headway.wire.request import body_of
from headway.wire.values import Answer, Route, WireName

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat")
TEXT = 'Zwölf Boxkämpfer, 東京 \U0001f600 \\ " \n\u2028 end'


def stream(wire: WireName, answer: Answer) -> bytes:
    pieces = [answer.text[at : at + 3] for at in range(0, len(answer.text), 3)]
    parts = [write.piece(wire, answer, at, text) for at, text in enumerate(pieces)]
    return b"".join([write.opening(wire, answer), *parts, write.closing(wire, answer, True)])


def answer(text: str = TEXT, is_cut: bool = False) -> Answer:
    return Answer("id", "m", text, 3, 4, is_cut=is_cut)


@pytest.mark.parametrize("wire", WIRES)
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


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_is_read_by_its_provider_as_it_was_meant(wire: WireName) -> None:
    turns = (("user", "hello"), ("assistant", "yes?"), ("user", TEXT))
    body = body_of(wire, "m", turns, 99, "Be brief.")
    found = conversation(Route(wire), body)
    assert (found.model, found.system, found.turns) == ("m", "Be brief.", turns)
    assert (found.streams, found.wants_usage, found.max_output_tokens) == (True, True, 99)
    read = sum(len(text.encode()) for _, text in turns)
    assert read < sketch(Route(wire), body).most_input_tokens < read + 300


def test_openai_itself_wants_another_name_for_the_longest_answer() -> None:
    body = json.loads(body_of("openai-chat", "m", (("user", "x"),), 9, "", True))
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body
    assert "system" not in json.loads(body_of("anthropic", "m", (("user", "x"),), 9))
