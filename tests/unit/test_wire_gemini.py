"""Gemini's format: requests in either spelling, streams of events and of elements, errors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from headway.base.values import Fault, Tally
from headway.client.exchange import explain
from headway.errors import BudgetReachedError, QueueDeadlineError, WireError
from headway.wire.gemini import ElementWriter
from headway.wire.read import FORMATS, AnswerReader, conversation, route, sketch
from headway.wire.request import IMAGE_BYTES, PAGE_BYTES
from headway.wire.values import WHOLE_BYTES_MAX, Answer, Route

ROUTE = Route("gemini", model="gemini-2.5-pro")
STREAM = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json; charset=UTF-8"}
ANSWER = Answer("id-1", "gemini-2.5-pro", "hello there", 10, 5, 3)


def bytes_of(value: object) -> bytes:
    return json.dumps(value).encode()


def outcome(
    chunks: Iterable[bytes], headers: dict[str, str] = STREAM, is_whole: bool = True
) -> tuple[Tally, Fault | None, float]:
    reader = AnswerReader("gemini", 200, headers)
    for chunk in chunks:
        reader.feed(chunk)
    reader.end(is_whole)
    return reader.tally, reader.fault, reader.output_tokens


def events_of(answer: Answer, pieces: list[str]) -> list[bytes]:
    texts = [FORMATS["gemini"].piece(answer, index, text) for index, text in enumerate(pieces)]
    return [FORMATS["gemini"].opening(answer), *texts, FORMATS["gemini"].closing(answer, True, 3)]


def elements_of(answer: Answer, pieces: list[str]) -> bytes:
    writer = ElementWriter()
    return b"".join(map(writer.write, events_of(answer, pieces))) + writer.end()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", ROUTE),
        ("/v1/models/gemini-2.5-pro:generateContent?key=k", ROUTE),
        ("/v1beta/models/gemini-2.5-pro%3AgenerateContent", ROUTE),
        ("/gate/v1/projects/p/publishers/google/models/gemini-2.5-pro:generateContent", ROUTE),
        ("/v1/models/m:streamGenerateContent?alt=sse", Route("gemini", model="m", streams=True)),
        ("/v1beta/models/m:countTokens", Route("gemini", "count", "m")),
        ("/v1beta/tunedModels/mine:generateContent", Route("gemini", model="tunedModels/mine")),
        *((path, None) for path in (
            "/v1beta/models/m:embedContent", "/v1beta/models/m:batchEmbedContents",
            "/v1beta/models/:generateContent", "/v1beta/m:generateContent",
            "/v1internal:generateContent", "/v1beta/models/m", "/v1beta/cachedContents",
        )),
    ],
)  # fmt: skip
def test_the_path_says_which_model_and_whether_it_streams(
    path: str, expected: Route | None
) -> None:
    assert route("POST", path) == expected
    assert route("GET", path) is None


REQUEST: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "tools": [
        {"functionDeclarations": [{"name": "read_file"}, {"name": "shell"}]},
        {"googleSearch": {}},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "contents": [
        {"role": "user", "parts": [{"text": "Look at a.py"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {
                    "functionCall": {"id": "1", "name": "read_file", "args": {"path": "a.py"}},
                    "thoughtSignature": "c2lnbmVk",
                },
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "read_file", "response": {"output": "x = 1"}}}],
        },
    ],
    "generationConfig": {
        "maxOutputTokens": 100,
        "candidateCount": 2,
        "thinkingConfig": {"thinkingBudget": 512},
    },
}


def snake(value: object) -> object:
    """The same in protobuf's own names; those of the user's arguments are left alone."""
    if isinstance(value, list):
        return [snake(each) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, inner in value.items():
        own = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
        changed[own] = inner if name in ("args", "response") else snake(inner)
    return changed


def test_a_request_is_read_in_the_order_of_the_prompt() -> None:
    found = conversation(ROUTE, bytes_of(REQUEST))
    assert found.model == "gemini-2.5-pro"
    assert found.tools == ("read_file", "shell")
    assert found.system.splitlines() == [
        '{"name":"read_file"}', '{"name":"shell"}', '{"googleSearch":{}}', "Be brief.",
    ]  # fmt: skip
    assert found.turns == (
        ("user", "Look at a.py"),
        ("assistant", 'Hm.\nread_file {"path":"a.py"}'),
        ("tool", '{"output":"x = 1"}'),
    )
    assert (found.max_output_tokens, found.streams) == (100, False)
    seen = sketch(ROUTE, bytes_of(REQUEST))
    assert (seen.max_output_tokens, seen.messages, seen.is_whole) == (200, 4, True)
    assert not sketch(Route("gemini", model="m", streams=True), bytes_of(REQUEST)).is_whole


def test_both_spellings_of_a_field_are_the_same_request() -> None:
    mine, theirs = bytes_of(REQUEST), bytes_of(snake(REQUEST))
    assert mine != theirs
    one, other = conversation(ROUTE, mine), conversation(ROUTE, theirs)
    assert (one.turns, one.tools, one.max_output_tokens) == (
        other.turns,
        other.tools,
        other.max_output_tokens,
    )
    assert sketch(ROUTE, mine).max_output_tokens == sketch(ROUTE, theirs).max_output_tokens
    assert one.system.endswith("Be brief.")
    assert other.system.endswith("Be brief.")


def test_one_object_may_stand_where_a_list_is_meant_and_numbers_may_be_text() -> None:
    short = {
        "contents": {"parts": {"text": "hi"}},
        "tools": {"function_declarations": {"name": "shell"}},
        "system_instruction": {"parts": {"text": "Be brief."}},
        "generationConfig": {"maxOutputTokens": "64"},
    }
    found = conversation(ROUTE, bytes_of(short))
    assert (found.turns, found.tools) == ((("user", "hi"),), ("shell",))
    assert found.system.endswith("Be brief.")
    assert found.max_output_tokens == 64


def test_what_is_not_text_has_a_fixed_size() -> None:
    def size(part: object) -> int:
        body = {"contents": [{"parts": [{"text": "x"}, part]}]}
        plain = {"contents": [{"parts": [{"text": "x"}]}]}
        return sketch(ROUTE, bytes_of(body)).size_bytes - sketch(ROUTE, bytes_of(plain)).size_bytes

    picture = {"inlineData": {"mimeType": "image/png", "data": "A" * 90_000}}
    assert size(picture) == IMAGE_BYTES == size(snake(picture))
    assert size({"fileData": {"mimeType": "video/mp4", "fileUri": "https://v"}}) == IMAGE_BYTES
    assert size({"inlineData": {"mimeType": "application/pdf", "data": "A" * 99_000}}) == (
        2 * PAGE_BYTES
    )
    shown = {"functionResponse": {"name": "see", "response": {}, "parts": [picture]}}
    assert IMAGE_BYTES < size(shown) < IMAGE_BYTES + 20
    assert size({"executableCode": {"language": "PYTHON", "code": "print(1)"}}) > 10
    assert size({"thoughtSignature": "c2lnbmVk"}) == 0


def test_settings_that_change_the_length_make_another_kind() -> None:
    def kind(**more: object) -> str:
        return sketch(ROUTE, bytes_of({**REQUEST, **more})).kind

    plain = kind()
    assert kind(generationConfig={"thinkingConfig": {"thinkingBudget": 9}}) != plain
    assert kind(toolConfig={}) != plain
    assert kind(contents=[{"parts": [{"text": "another"}]}]) == plain


def test_the_beginning_is_kept_by_the_provider_itself_and_a_kept_one_is_unseen() -> None:
    long = {**REQUEST, "systemInstruction": {"parts": [{"text": "All the rules. " * 500}]}}
    seen = sketch(ROUTE, bytes_of(long))
    assert (len(seen.prefix), seen.prefix_bytes > 4096) == (16, True)
    named = sketch(ROUTE, bytes_of({**REQUEST, "cachedContent": "cachedContents/abc"}))
    assert named.content == "continued"


def test_a_count_is_read_also_where_it_wraps_what_would_be_generated() -> None:
    count = Route("gemini", "count", "m")
    wrapped = {"generateContentRequest": {"model": "models/m", **REQUEST}}
    assert (
        conversation(count, bytes_of(wrapped)).turns == conversation(ROUTE, bytes_of(REQUEST)).turns
    )
    seen = sketch(count, bytes_of(wrapped))
    assert (seen.size_bytes, seen.kind) == (0, "m#count")


def test_a_call_without_contents_or_a_model_is_told_what_it_needs() -> None:
    with pytest.raises(WireError) as caught:
        sketch(ROUTE, b'{"messages": []}')
    assert caught.value.hint == "a call names its model and has `contents`"
    with pytest.raises(WireError):
        sketch(Route("gemini"), bytes_of(REQUEST))


def chunk(text: str = "", usage: object = None, **candidate: object) -> dict[str, object]:
    one = {"content": {"parts": [{"text": text}], "role": "model"}, **candidate}
    return {"candidates": [one], **({} if usage is None else {"usageMetadata": usage})}


def sse(*values: object) -> bytes:
    return b"".join(b"data: %s\r\n\r\n" % bytes_of(value) for value in values)


def test_thoughts_are_output_and_what_tools_gave_is_input() -> None:
    usage = {
        "promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 7,
        "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 5, "totalTokenCount": 142,
    }  # fmt: skip
    told = Tally(65, 40, 37, "reported")
    body = bytes_of(chunk("hi", usage, finishReason="STOP"))
    assert outcome([body], JSON)[:2] == (told, None)
    assert outcome([sse(chunk("hi", usage, finishReason="STOP"))])[:2] == (told, None)


def test_usage_is_final_with_the_reason_of_the_end_and_not_before() -> None:
    early = {"promptTokenCount": 50, "totalTokenCount": 50}
    late = {"promptTokenCount": 50, "cachedContentTokenCount": 20, "candidatesTokenCount": 9}
    reader = AnswerReader("gemini", 200, STREAM)
    reader.feed(sse(chunk("x" * 40, early)))
    assert (reader.is_over, reader.tally) == (False, Tally(50, 0, 10, "estimated"))
    reader.feed(sse(chunk("", late, finishReason="FINISH_REASON_UNSPECIFIED")))
    was_over = reader.is_over
    reader.feed(sse(chunk("", late, finishReason="MAX_TOKENS")))
    assert (was_over, reader.is_over) == (False, True)
    assert reader.tally == Tally(30, 20, 9, "reported")
    reader.end(is_whole=False)
    assert reader.fault is None


def test_a_count_of_zero_is_left_out_and_still_final() -> None:
    usage = {"promptTokenCount": 8, "totalTokenCount": 8}
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage}
    assert outcome([sse(blocked)])[:2] == (Tally(8, 0, 0, "reported"), None)
    assert outcome([bytes_of(blocked)], JSON)[:2] == (Tally(8, 0, 0, "reported"), None)


def test_several_candidates_are_over_when_all_are() -> None:
    usage = {"promptTokenCount": 8, "candidatesTokenCount": 4}
    both = {"candidates": [{"index": 0}, {"index": 1, "content": {"parts": [{"text": "x"}]}}]}
    first = chunk("", usage, index=0, finishReason="STOP")
    reader = AnswerReader("gemini", 200, STREAM)
    reader.feed(sse(both, first))
    was_over = reader.is_over
    reader.feed(sse(chunk("", usage, index=1, finishReason="STOP")))
    assert (was_over, reader.is_over) == (False, True)


def test_functions_that_are_called_count_as_text() -> None:
    call = {"functionCall": {"name": "shell", "args": {"command": "ls"}}}
    with_call = {"candidates": [{"content": {"parts": [call, {"executableCode": {"code": "1"}}]}}]}
    assert outcome([sse(with_call)])[2] == 8.25
    assert outcome([bytes_of(with_call)], JSON)[0].known == "estimated"


ERROR = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\r\n"])
def test_an_error_in_a_stream_is_bare_json_between_events(indent: int | None, end: bytes) -> None:
    bare = json.dumps({"error": ERROR}, indent=indent).encode() + end
    _, fault, _ = outcome([sse(chunk("x")), bare])
    assert fault is not None
    assert (fault.kind, fault.detail) == ("overload", "The model is overloaded.")
    in_event = outcome([sse(chunk("x")), sse({"error": ERROR})])[1]
    in_array = outcome([b"[", bytes_of(chunk("x")), b"\n,\n", bare, b"]"], JSON)[1]
    assert in_event == in_array == fault


def test_refusals_name_the_quota_and_the_wait_in_an_array_too() -> None:
    details = [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [
                {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50"}
            ],
        },
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "41s"},
    ]
    error = {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED", "details": details}
    for body in (bytes_of({"error": error}), bytes_of([{"error": error}])):
        reader = AnswerReader("gemini", 429, JSON)
        reader.feed(body)
        reader.end()
        assert reader.fault == Fault("rate", "requests", 41.0, "Quota.")
        (limit,) = reader.reading.limits
        assert (limit.limit, limit.period_s) == (50.0, 86400.0)


def test_an_answer_too_long_to_keep_still_tells_its_usage() -> None:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 1290, "totalTokenCount": 1299}
    picture = {"inlineData": {"mimeType": "image/png", "data": "A" * (WHOLE_BYTES_MAX + 9)}}
    one = {"content": {"parts": [picture]}, "finishReason": "STOP", "index": 0}
    value = {"candidates": [one], "usageMetadata": usage}
    told = (Tally(9, 0, 1290, "reported"), None)
    assert outcome([json.dumps(value, indent=2).encode()], JSON)[:2] == told
    assert outcome([sse(value)])[:2] == told
    assert outcome([bytes_of([value])], JSON)[:2] == told


def test_an_error_keeps_its_own_words() -> None:
    told = {"error": {**ERROR, "details": [{"reason": "X"}]}}
    assert json.loads(FORMATS["gemini"].error_event(503, bytes_of(told))) == told
    assert json.loads(FORMATS["gemini"].error_event(503, bytes_of([told]))) == told
    page = json.loads(FORMATS["gemini"].error_event(502, b"<html>"))["error"]
    assert page == {"code": 502, "message": "<html>", "status": "UNKNOWN"}


def test_a_call_that_is_not_admitted_is_told_in_googles_form() -> None:
    status, _, body = explain(QueueDeadlineError(), "gemini", 3.0)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["status"]) == (429, 429, "RESOURCE_EXHAUSTED")
    assert error["message"].startswith(f"headway[{QueueDeadlineError.code}]")
    assert error["details"][0]["reason"] == QueueDeadlineError.code
    spent = json.loads(explain(BudgetReachedError(), "gemini", 3.0)[2])["error"]
    assert (spent["code"], spent["status"]) == (402, "PERMISSION_DENIED")


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
