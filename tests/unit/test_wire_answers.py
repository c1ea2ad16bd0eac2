"""What an answer consumed and whether it failed, read from its bytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from headway.base.values import MINUTE_S, Fault, LimitReading, Tally
from headway.sim.headers import error_body
from headway.wire import answer as write
from headway.wire.read import FORMATS, AnswerReader
from headway.wire.values import WHOLE_BYTES_MAX, Answer, WireName

DATA = Path(__file__).resolve().parent.parent / "data" / "wire"
EXPECTED = json.loads((DATA / "expected.json").read_text())
WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}
ANSWER = Answer("id-1", "m", "hello", 10, 5, 3)


def reader_of(wire: WireName, headers: dict[str, str], status: int = 200) -> AnswerReader:
    return AnswerReader(wire, status, headers)


def read(wire: WireName, body: bytes, headers: dict[str, str] = JSON) -> AnswerReader:
    reader = reader_of(wire, headers)
    reader.feed(body)
    reader.end()
    return reader


def stream(wire: WireName, pieces: int = 3, wants_usage: bool = True) -> bytes:
    parts = [FORMATS[wire].piece(ANSWER, index, "abcd" * 10) for index in range(pieces)]
    return b"".join(
        (FORMATS[wire].opening(ANSWER), *parts, FORMATS[wire].closing(ANSWER, wants_usage, 3))
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.sse")))
def test_a_stream_of_a_real_shape_reads_as_expected(name: str) -> None:
    wire = next(wire for wire in WIRES if wire.endswith(name.partition("-")[0]))
    reader = read(wire, (DATA / f"{name}.sse").read_bytes(), STREAM)
    expected = EXPECTED[name]
    assert reader.tally == Tally(*expected["tally"])
    assert (None if reader.fault is None else reader.fault.kind) == expected["fault"]
    assert reader.is_over


def test_a_failed_response_names_the_limit_and_the_wait() -> None:
    fault = read("openai-responses", (DATA / "responses-failed.sse").read_bytes(), STREAM).fault
    assert fault is not None
    assert (fault.resource, fault.retry_after_s) == ("tokens", 6.0)


@pytest.mark.parametrize("wire", WIRES)
def test_a_whole_answer_tells_its_tokens(wire: WireName) -> None:
    reader = read(wire, FORMATS[wire].whole(ANSWER))
    assert reader.tally == Tally(10, 3, 5, "reported")
    assert reader.fault is None


@pytest.mark.parametrize("wire", WIRES)
def test_output_grows_with_the_text_and_ends_at_what_was_reported(wire: WireName) -> None:
    reader = reader_of(wire, STREAM)
    reader.feed(FORMATS[wire].opening(ANSWER))
    before = reader.output_tokens
    for index in range(3):
        reader.feed(FORMATS[wire].piece(ANSWER, index, "abcd" * 10))
        assert reader.output_tokens == 10.0 * (index + 1)
    assert before <= 1.0
    was_over = reader.is_over
    reader.feed(FORMATS[wire].closing(ANSWER, True, 3))
    assert (was_over, reader.is_over) == (False, True)
    assert reader.output_tokens == 5.0
    reader.end(is_whole=False)
    assert reader.fault is None
    assert reader.tally == Tally(10, 3, 5, "reported")


def test_a_chat_that_was_not_asked_for_usage_is_estimated_and_no_input_is_told() -> None:
    reader = read("openai-chat", stream("openai-chat", wants_usage=False), STREAM)
    assert reader.tally == Tally(0, 0, 30, "estimated")
    assert reader.fault is None


def test_korean_text_counts_more_tokens_per_byte() -> None:
    reader = reader_of("anthropic", STREAM)
    reader.feed(FORMATS["anthropic"].piece(ANSWER, 0, "가" * 10))
    assert reader.output_tokens == 12.0
    reader.feed(b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,')
    reader.feed(b'"delta":{"type":"text_delta","text":"\\uac00"}}\n\n')
    assert reader.output_tokens == pytest.approx(13.2)


@pytest.mark.parametrize("wire", WIRES)
def test_a_closed_stream_keeps_what_was_seen_as_an_estimate(wire: WireName) -> None:
    reader = reader_of(wire, STREAM)
    reader.feed(FORMATS[wire].opening(ANSWER) + FORMATS[wire].piece(ANSWER, 0, "x" * 400))
    reader.end(is_whole=False)
    told = Tally(10, 3, 100, "estimated") if wire == "anthropic" else Tally(0, 0, 100, "estimated")
    assert reader.tally == told
    assert reader.fault is not None
    assert reader.fault.kind == "broken"


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_ends_early_is_broken_even_if_the_connection_ended_well(
    wire: WireName,
) -> None:
    reader = read(wire, FORMATS[wire].opening(ANSWER), STREAM)
    assert reader.fault is not None
    assert reader.fault.kind == "broken"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("body", [b"", b"<html>oops</html>", b'{"id": "x', b'"text"', b"[]"])
def test_a_success_that_is_no_answer_is_broken(wire: WireName, body: bytes) -> None:
    fault = read(wire, body).fault
    assert fault is not None
    assert fault.kind == "broken"


def test_a_chat_may_end_without_done_but_not_before_all_its_answers_do() -> None:
    body = (DATA / "chat-two-choices.sse").read_bytes()
    events = body.split(b"\n\n")
    assert read("openai-chat", b"\n\n".join(events[:6]) + b"\n\n", STREAM).fault is None
    early = read("openai-chat", b"\n\n".join(events[:5]) + b"\n\n", STREAM)
    assert early.fault is not None
    assert early.fault.kind == "broken"


def test_usage_with_every_chunk_is_final_only_with_the_last() -> None:
    reader = reader_of("openai-chat", STREAM)
    choice = {"index": 0, "delta": {"content": "hi"}, "finish_reason": None}
    for count, reason in ((1, None), (2, None), (3, "stop")):
        usage = {"prompt_tokens": 8, "completion_tokens": count}
        chunk = {"choices": [{**choice, "finish_reason": reason}], "usage": usage}
        reader.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        assert reader.output_tokens == count
        assert reader.tally.known == ("estimated" if reason is None else "reported")


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_dressed_as_a_success_is_a_fault(wire: WireName) -> None:
    _, body = error_body("openai", Fault("rate", "tokens"), "req_1")
    fault = read(wire, body).fault
    assert fault is not None
    assert (fault.kind, fault.resource) == ("rate", "tokens")


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_event_is_a_fault_and_the_end(wire: WireName) -> None:
    status, body = error_body("anthropic", Fault("overload"), "req_1")
    reader = reader_of(wire, STREAM)
    reader.feed(FORMATS[wire].opening(ANSWER))
    reader.feed(FORMATS[wire].error_event(status, body))
    assert reader.is_over
    assert reader.fault is not None
    assert reader.fault.kind == "overload"
    reader.end(is_whole=False)
    assert reader.fault.kind == "overload"
    assert reader.tally.known != "reported"


def test_limits_are_read_from_headers_and_from_the_text_of_a_refusal() -> None:
    headers = {**JSON, "x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "7"}
    _, body = error_body(
        "openai", Fault("rate", "tokens", 2.0), "r", LimitReading("tokens", MINUTE_S, 3e4, 1e3, 2.0)
    )
    reader = reader_of("openai-chat", headers, 429)
    assert [limit.resource for limit in reader.reading.limits] == ["requests"]
    reader.feed(body)
    reader.end()
    assert [(limit.resource, limit.limit) for limit in reader.reading.limits] == [
        ("requests", 500.0),
        ("tokens", 30_000.0),
    ]
    headers["x-ratelimit-limit-tokens"] = "30000"
    both = reader_of("openai-chat", headers, 429)
    both.feed(body)
    assert len(both.reading.limits) == 2


def test_the_length_of_a_body_says_when_it_is_complete() -> None:
    body = gzip.compress(FORMATS["anthropic"].whole(ANSWER))
    headers = {**JSON, "content-length": str(len(body)), "content-encoding": "gzip"}
    reader = reader_of("anthropic", headers)
    reader.feed(body[:-1])
    was_over = reader.is_over
    reader.feed(body[-1:])
    assert (was_over, reader.is_over) == (False, True)
    assert reader.tally == Tally(10, 3, 5, "reported")
    reader.feed(b"more")
    reader.end(is_whole=False)
    assert reader.fault is None


def test_a_body_that_cannot_be_unpacked_here_is_unknown_and_no_fault() -> None:
    reader = read("anthropic", b"\x00\x01", {**JSON, "content-encoding": "x-secret"})
    assert reader.tally == Tally(known="unknown")
    assert reader.fault is None
    closed = reader_of("anthropic", {**STREAM, "content-encoding": "x-secret"})
    closed.end(is_whole=False)
    assert closed.fault is not None
    corrupt = read("anthropic", b"no gzip at all", {**JSON, "content-encoding": "gzip"})
    assert corrupt.fault is not None


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_too_long_to_keep_still_tells_its_usage(wire: WireName) -> None:
    text = 'say "usage": {"output_tokens": 1, "completion_tokens": 1} ' * 50_000
    body = FORMATS[wire].whole(Answer("id", "m", text, 10, 5, 3))
    assert len(body) > WHOLE_BYTES_MAX
    assert read(wire, body).tally == Tally(10, 3, 5, "reported")
    turned = json.loads(body)
    first = {"usage": turned.pop("usage"), **turned}
    assert read(wire, json.dumps(first).encode()).tally == Tally(10, 3, 5, "reported")
    lost = read(wire, json.dumps(turned).encode())
    assert lost.tally == Tally(known="unknown")
    assert lost.fault is None


def test_the_last_event_of_a_response_may_be_too_long_to_keep() -> None:
    answer = Answer("id", "m", "long " * 500_000, 10, 5, 3)
    reader = read("openai-responses", FORMATS["openai-responses"].closing(answer, True, 3), STREAM)
    assert reader.tally == Tally(10, 3, 5, "reported")
    assert reader.fault is None


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_without_usage_is_estimated_from_its_text(wire: WireName) -> None:
    body = json.loads(FORMATS[wire].whole(Answer("id", "m", "x" * 40, 10, 5, 3)))
    del body["usage"]
    reader = read(wire, json.dumps(body).encode())
    assert reader.tally == Tally(0, 0, 10, "estimated")
    assert reader.fault is None


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_a_count_consumed_nothing(wire: WireName) -> None:
    assert read(wire, write.counted(wire, 2095)).tally == Tally(0, 0, 0, "reported")


@pytest.mark.parametrize("kind", ["text/plain", "", "application/octet-stream"])
def test_a_stream_by_another_name_is_heard_as_it_passes(kind: str) -> None:
    reader = reader_of("openai-chat", {"content-type": kind})
    for byte in FORMATS["openai-chat"].opening(ANSWER):
        reader.feed(bytes((byte,)))
    reader.feed(FORMATS["openai-chat"].piece(ANSWER, 0, "abcd"))
    assert reader.output_tokens == 1.0
    short = reader_of("openai-chat", {})
    short.feed(b"data: [DONE]")
    short.end()
    assert short.fault is None


def test_events_of_responses_need_no_names() -> None:
    named = (DATA / "responses-reasoning.sse").read_bytes()
    lines = [line for line in named.split(b"\n") if not line.startswith(b"event:")]
    whole, cut = read("openai-responses", named, STREAM), b"\n".join(lines)
    assert read("openai-responses", cut, STREAM).tally == whole.tally
    half = cut.partition(b'data: {"type":"response.completed"')[0]
    assert read("openai-responses", half, STREAM).output_tokens == pytest.approx(16.45)


@pytest.mark.parametrize("is_named", [True, False])
def test_what_a_tool_or_a_voice_says_is_no_text_of_the_model(is_named: bool) -> None:
    reader = reader_of("openai-responses", STREAM)
    for kind in ("response.audio.delta", "response.shell_call_output_content.delta"):
        name = f"event: {kind}\n" if is_named else ""
        reader.feed(f'{name}data: {{"type":"{kind}","delta":"UklGRg=="}}\n\n'.encode())
    assert reader.output_tokens == 0.0


def test_usage_that_is_no_usage_is_passed_over() -> None:
    filler = b"x" * WHOLE_BYTES_MAX
    body = b'{"usage":{"output_tokens":9,"input_tokens":4},"a":"' + filler + b'","b":'
    body += b'["usage",{"usage":"none","c":{"usage":[1],"d":{"usage":{"x":1}},"usage":{]}]}'
    assert read("anthropic", body).tally == Tally(4, 0, 9, "reported")


def test_deep_nesting_is_survived() -> None:
    for depth in range(800, 1000):
        deep = b"[" * depth + b"]" * depth
        body = b'{"usage":{"output_tokens":9},"content":[{"input":' + deep + b"}]}"
        reader = read("anthropic", body)
        assert reader.is_over
        assert (reader.fault is None) == (reader.tally.known == "reported")
        bare = read("anthropic", b'{"content":[{"input":' + deep + b"}]}")
        assert (bare.fault is None) == (reader.fault is None)


def test_what_is_written_into_the_cache_is_a_part_of_the_input_and_told_apart() -> None:
    answer = replace(ANSWER, cache_write_tokens=8)
    told = Tally(10, 3, 5, "reported", 8)
    assert read("anthropic", FORMATS["anthropic"].whole(answer)).tally == told
    streamed = FORMATS["anthropic"].opening(answer) + FORMATS["anthropic"].closing(
        answer, True, len(answer.text)
    )
    assert read("anthropic", streamed, STREAM).tally == told
    usage = json.loads(FORMATS["anthropic"].whole(answer))
    usage["usage"]["cache_creation"] = {
        "ephemeral_5m_input_tokens": 2,
        "ephemeral_1h_input_tokens": 6,
    }
    assert read("anthropic", json.dumps(usage).encode()).tally == replace(told, long_write_tokens=6)
