"""Bytes from strangers, split anywhere: they read the same, raise nothing and fill no memory."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import Fault, Tally
from headway.errors import WireError
from headway.wire.read import FORMATS, AnswerReader, conversation, sketch
from headway.wire.stream import SWELL_FREE_BYTES, SWELL_MAX, Inflater
from headway.wire.values import END_BYTES, WHOLE_BYTES_MAX, Answer, Route, ToolUse, WireName

DATA = Path(__file__).resolve().parent.parent / "data" / "wire"
WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses", "gemini")
ROUTES = [
    Route(wire, purpose, "m" if wire == "gemini" else "")
    for wire in WIRES
    for purpose in ("generate", "count")
]
STREAM = {"content-type": "text/event-stream"}
STREAMS = {path.stem: path.read_bytes() for path in sorted(DATA.glob("*.sse"))}
ENDS = (b"[DONE]", b'_reason":"', b"message_stop", b'"response.completed', b'"response.incomplete')
ENCODINGS = ("", "gzip", "deflate", "br", "zstd", "identity", "gzip, br", "nonsense")


def wire_of(name: str) -> WireName:
    first = name.partition("-")[0]
    return next(wire for wire in WIRES if wire.endswith(first))


def outcome(
    wire: WireName, chunks: Iterable[bytes], headers: dict[str, str] = STREAM, is_whole: bool = True
) -> tuple[Tally, Fault | None, float]:
    reader = AnswerReader(wire, 200, headers)
    for chunk in chunks:
        reader.feed(chunk)
    reader.end(is_whole)
    return reader.tally, reader.fault, reader.output_tokens


def packed(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("name", STREAMS)
def test_every_split_of_a_stream_in_two_reads_the_same(name: str) -> None:
    wire, data = wire_of(name), STREAMS[name]
    expected = outcome(wire, [data])
    for place in range(len(data) + 1):
        assert outcome(wire, [data[:place], data[place:]]) == expected, place


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("name", STREAMS)
def test_other_line_ends_read_the_same_even_byte_by_byte(name: str, line_end: bytes) -> None:
    wire, data = wire_of(name), b"\xef\xbb\xbf" + STREAMS[name].replace(b"\n", line_end)
    expected = outcome(wire, [STREAMS[name]])
    assert outcome(wire, [data]) == expected
    assert outcome(wire, [data[place : place + 1] for place in range(len(data))]) == expected


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 5000), max_size=20))
def test_streams_in_any_pieces_read_the_same(name: str, cuts: list[int]) -> None:
    wire, data = wire_of(name), STREAMS[name]
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[one:two] for one, two in pairwise(places)]
    assert outcome(wire, chunks) == outcome(wire, [data])
    assert outcome(wire, chunks, {}) == outcome(wire, [data])
    small = packed(data, 31)
    chunks = [small[cut : cut + 7] for cut in range(0, len(small), 7)]
    assert outcome(wire, chunks, {**STREAM, "content-encoding": "gzip"}) == outcome(wire, [data])


@given(st.sampled_from(sorted(STREAMS)), st.integers(0, 5000), st.booleans())
def test_a_stream_that_breaks_off_is_never_taken_for_a_complete_report(
    name: str, place: int, is_whole: bool
) -> None:
    wire, data = wire_of(name), STREAMS[name]
    part = data[: min(place, len(data))]
    tally, fault, _ = outcome(wire, [part], is_whole=is_whole)
    whole, _, _ = outcome(wire, [data])
    if tally.known == "reported":
        assert tally == whole
    if fault is None:
        assert any(word in part for word in ENDS)


FIELD_NAMES = (
    "model", "messages", "input", "content", "role", "type",
    "text", "system", "tools", "usage", "error", "delta",
    "choices", "message", "output_tokens", "input_tokens", "completion_tokens", "prompt_tokens",
    "response", "status", "source", "data", "stop_reason", "finish_reason",
    "index", "n", "stream", "max_tokens", "prompt", "function",
    "tool_calls", "instructions", "cache_control", "image_url", "stream_options", "x_groq",
    "contents", "parts", "functionDeclarations", "inlineData", "functionCall", "functionResponse",
    "candidates", "finishReason", "usageMetadata", "promptTokenCount", "systemInstruction",
    "generationConfig", "maxOutputTokens", "promptFeedback", "generateContentRequest",
)  # fmt: skip
texts = st.text(st.characters(exclude_categories=()), max_size=60)


tool_uses = st.lists(
    st.builds(ToolUse, texts, texts, st.dictionaries(texts, texts, max_size=3).map(json.dumps)),
    max_size=2,
)


@given(
    st.sampled_from(WIRES), st.lists(texts, max_size=5), st.integers(0, 10**6), st.booleans(),
    tool_uses,
)  # fmt: skip
def test_every_answer_that_is_written_reads_back(
    wire: WireName, pieces: list[str], tokens: int, wants_usage: bool, uses: list[ToolUse]
) -> None:
    answer = Answer("id", "m", "".join(pieces), tokens, tokens + 1, 7,
                    is_cut=bool(tokens % 2), tool_uses=tuple(uses))  # fmt: skip
    whole = Tally(tokens, 7, tokens + 1, "reported")
    assert outcome(wire, [FORMATS[wire].whole(answer)], {})[:2] == (whole, None)
    stream = [FORMATS[wire].opening(answer)]
    said = pieces if answer.has_text else []
    stream += [FORMATS[wire].piece(answer, index, text) for index, text in enumerate(said)]
    stream.append(FORMATS[wire].closing(answer, wants_usage, 3))
    tally, fault, _ = outcome(wire, stream)
    assert fault is None
    if wants_usage or wire != "openai-chat":
        assert tally == whole
    else:
        assert tally.known == ("estimated" if answer.text or uses else "unknown")


@given(st.sampled_from(WIRES), texts)
def test_a_text_counts_the_same_in_every_form_that_json_can_give_it(
    wire: WireName, text: str
) -> None:
    answer = Answer("id", "m", "", 0, 0)
    usual = FORMATS[wire].piece(answer, 0, text)
    head, _, data = usual.rpartition(b"data: ")
    value = json.loads(data)
    forms = [
        json.dumps(value),
        json.dumps(value, sort_keys=True),
        json.dumps(value, separators=(",", ":")),
        json.dumps({"first": None, **value}, ensure_ascii=False)
        .encode("utf-8", "replace")
        .decode(),
    ]
    expected = outcome(wire, [usual])[2]
    for form in forms:
        assert outcome(wire, [head + b"data: " + form.encode() + b"\n\n"])[2] == expected


pieces_of_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(FIELD_NAMES) | texts,
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)
json_bytes = pieces_of_json.map(lambda value: json.dumps(value).encode())
events = st.tuples(
    st.sampled_from(["", "error", "message_start", "message_delta", "response.failed", "x.delta"]),
    json_bytes,
).map(lambda pair: f"event: {pair[0]}\ndata: ".encode() + pair[1] + b"\n\n")
bodies = st.binary(max_size=300) | json_bytes | st.lists(events, max_size=6).map(b"".join)


@settings(max_examples=150)
@given(st.sampled_from(ROUTES), bodies)
def test_whatever_a_request_is_it_is_read_or_refused_in_our_words(one: Route, body: bytes) -> None:
    for read in (sketch, conversation):
        with suppress(WireError):
            read(one, body)


@given(pieces_of_json, pieces_of_json, st.sampled_from(ROUTES))
def test_whatever_is_in_the_fields_of_a_request_it_is_read(
    content: object, tools: object, one: Route
) -> None:
    messages = [{"role": "user", "content": content}, content, {"role": content, "content": "x"}]
    body = {
        "model": "m", "messages": messages, "input": messages, "tools": tools, "system": content,
        "instructions": tools, "n": tools, "max_tokens": content, "stream_options": content,
        "contents": [{"role": content, "parts": [tools, {"functionCall": content}]}, content],
        "systemInstruction": tools, "generationConfig": {"maxOutputTokens": content},
    }  # fmt: skip
    seen = sketch(one, json.dumps(body).encode())
    assert seen.model == "m"
    assert seen.size_bytes >= seen.prefix_bytes >= 0
    assert len(seen.prefix) in (0, 16)


@settings(max_examples=150)
@given(
    st.sampled_from(WIRES),
    st.sampled_from([200, 201, 204, 301, 400, 429, 500, 503, 529, 0, -1, 999]),
    st.sampled_from(ENCODINGS),
    st.sampled_from(["", "text/event-stream", "application/json", "text/html"]),
    st.lists(bodies, max_size=4),
)
def test_no_answer_makes_a_reader_raise(
    wire: WireName, status: int, encoding: str, kind: str, chunks: list[bytes]
) -> None:
    headers = [(b"Content-Encoding", encoding.encode()), (b"content-type", kind.encode())]
    reader = AnswerReader(wire, status, headers)
    for chunk in chunks:
        reader.feed(chunk)
        assert reader.output_tokens >= 0.0
    reader.end()
    assert reader.is_over
    assert reader.tally.output_tokens >= 0.0
    assert reader.fault is not None or 200 <= status < 300
    assert isinstance(reader.reading.limits, tuple)


@given(st.binary(max_size=200), st.integers(100, 600), st.sampled_from(WIRES))
def test_every_body_of_an_error_makes_an_event_that_fails(
    body: bytes, status: int, wire: WireName
) -> None:
    event = FORMATS[wire].error_event(status, body)
    _, fault, _ = outcome(wire, [event])
    assert fault is not None


@pytest.mark.parametrize(("encoding", "wbits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_a_body_that_swells_beyond_reason_is_left_unread(encoding: str, wbits: int) -> None:
    packer = zlib.compressobj(wbits=wbits)
    bomb = b"".join(packer.compress(bytes(1024 * 1024)) for _ in range(64)) + packer.flush()
    inflater = Inflater(encoding)
    swollen = sum(len(piece) for piece in inflater.feed(bomb))
    assert inflater.state == "unreadable"
    assert swollen <= SWELL_FREE_BYTES + SWELL_MAX * len(bomb) < 64 * 1024 * 1024


@pytest.mark.parametrize("headers", [STREAM, {}], ids=["stream", "body"])
@pytest.mark.parametrize("chunk", [b"data: " + b"a" * 65530, b"\n" * 65536, b"data: b\n" * 8192])
def test_memory_stays_bounded_whatever_comes(chunk: bytes, headers: dict[str, str]) -> None:
    reader = AnswerReader("openai-chat", 200, headers)
    tracemalloc.start()
    try:
        for _ in range(40):
            reader.feed(chunk)
        reader.end()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The parts of what is kept, twice while they are joined, and the chunk that is being split.
    assert peak < 3 * (WHOLE_BYTES_MAX + 2 * END_BYTES) + 40 * len(chunk)
