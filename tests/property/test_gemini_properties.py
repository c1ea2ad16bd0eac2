"""Gemini's bytes from strangers, split anywhere: they read the same and raise nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import Tally
from headway.pacing.headers import GEMINI
from headway.wire.read import AnswerReader
from tests.unit.test_wire_gemini import (
    ANSWER,
    JSON,
    STREAM,
    bytes_of,
    elements_of,
    events_of,
    outcome,
    sse,
)


def test_every_split_of_a_stream_in_two_reads_the_same() -> None:
    pieces = ['say "hi" {', "가\\", "}]", "\u2028"]
    for data, headers in (
        (b"".join(events_of(ANSWER, pieces)), STREAM),
        (elements_of(ANSWER, pieces), JSON),
        (elements_of(ANSWER, pieces), {}),
    ):
        expected = outcome([data], headers)
        assert expected[:2] == (Tally(10, 3, 5, "reported"), None)
        for place in range(len(data) + 1):
            assert outcome([data[:place], data[place:]], headers) == expected, place


texts = st.text(st.characters(exclude_categories=()), max_size=60)


FIELDS = (
    "contents", "parts", "text", "role", "tools", "functionDeclarations", "name", "inlineData",
    "mimeType", "data", "functionCall", "args", "functionResponse", "response", "candidates",
    "content", "finishReason", "usageMetadata", "promptTokenCount", "candidatesTokenCount", "error",
    "systemInstruction", "generationConfig", "maxOutputTokens", "candidateCount", "thinkingConfig",
    "promptFeedback", "blockReason", "generateContentRequest", "index", "totalTokens",
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | texts, inner, max_size=6)
    ),
    max_leaves=25,
)
bodies = st.binary(max_size=200) | values.map(bytes_of) | values.map(sse)


@settings(max_examples=150)
@given(
    st.lists(bodies | st.sampled_from([b"[", b",", b"]", b"{", b"\n\n", b'"', b"\\"]), max_size=6),
    st.sampled_from([200, 204, 400, 429, 500]),
    st.sampled_from(["", "text/event-stream", "application/json"]),
)
def test_no_answer_makes_a_reader_raise_and_splits_do_not_matter(
    chunks: list[bytes], status: int, kind: str
) -> None:
    found = []
    data = b"".join(chunks)
    for parts in ([data], chunks, [data[place : place + 1] for place in range(len(data))]):
        reader = AnswerReader("gemini", status, {"content-type": kind}, GEMINI)
        for part in parts:
            reader.feed(part)
        reader.end()
        found.append((reader.tally, reader.fault, reader.reading))
    assert found[0] == found[1] == found[2]
    assert found[0][1] is not None or status < 300
