"""What a held client is told: beats that no parser sees, errors that every SDK raises."""

from __future__ import annotations

import json
from collections.abc import Callable

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headway import errors as ours
from headway.gateway import reply as hold
from headway.gateway.guard import caller_of
from headway.gateway.values import Caller, Turned
from headway.wire.read import FORMATS, AnswerReader
from headway.wire.values import Answer, WireName
from tests.integration.gateway_home import Bases, asked, claude, gpt

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses", "gemini")
ANSWER = Answer("resp_1", "model-1", "hello there", 1000, 50, created_wall_s=1_700_000_000.0)
ANYBODY = caller_of(())


def named(name: str) -> Caller:
    return replace(ANYBODY, name=name)


def stream(wire: WireName) -> bytes:
    pieces = [
        FORMATS[wire].piece(ANSWER, index, text) for index, text in enumerate(["hello ", "there"])
    ]
    end = FORMATS[wire].closing(ANSWER, True, len(pieces))
    return b"".join((FORMATS[wire].opening(ANSWER), *pieces, end))


def committed(wire: WireName) -> dict[str, str]:
    return hold.stream_headers(wire, "?alt=sse", True)


def answering(body: bytes, headers: dict[str, str]) -> httpx2.Client:
    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=headers, content=body)

    return httpx2.Client(transport=httpx2.MockTransport(handle))


BASES = Bases("http://provider.test", "http://provider.test/v1", "http://provider.test")
ASKED = asked("Hello")


def claude_message(body: bytes) -> list[object]:
    http = answering(body, committed("anthropic"))
    with (
        claude(BASES, http_client=http) as client,
        client.messages.stream(model="m", max_tokens=9, messages=ASKED) as events,
    ):
        return [events.get_final_message().to_dict()]


def chat_completion(body: bytes) -> list[object]:
    http = answering(body, committed("openai-chat"))
    with (
        gpt(BASES, http_client=http) as client,
        client.chat.completions.stream(model="m", messages=ASKED) as events,
    ):
        return [events.get_final_completion().to_dict()]


def responses_final(body: bytes) -> list[object]:
    http = answering(body, committed("openai-responses"))
    with (
        gpt(BASES, http_client=http) as client,
        client.responses.stream(model="m", input="Hello") as events,
    ):
        return [events.get_final_response().to_dict()]


def gemini_chunks(body: bytes) -> list[object]:
    http = answering(body, committed("gemini"))
    options = types.HttpOptions(base_url=BASES.gemini, httpx_client=http)
    with genai.Client(api_key="k", http_options=options) as client:
        chunks = client.models.generate_content_stream(model="m", contents="Hello")
        return [(chunk.text, chunk.usage_metadata) for chunk in chunks]


SDKS: list[tuple[WireName, Callable[[bytes], list[object]]]] = [
    ("anthropic", claude_message),
    ("openai-chat", chat_completion),
    ("openai-responses", responses_final),
    ("gemini", gemini_chunks),
]


@pytest.mark.parametrize(("wire", "read"), SDKS)
@pytest.mark.parametrize("name", ["openai-python", "anthropic-python", "google-genai", "unknown"])
def test_an_sdk_reads_the_same_answer_with_beats_as_without(
    wire: WireName, read: Callable[[bytes], list[object]], name: str
) -> None:
    answer, beat = stream(wire), hold.ping_bytes(wire, named(name))
    assert beat
    assert read(3 * beat + answer) == read(answer) != []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["codex", "opencode", "claude-code", "gemini-cli", "unknown"])
def test_headway_reads_the_same_answer_with_beats_as_without(wire: WireName, name: str) -> None:
    answer, tallies = stream(wire), []
    for body in (answer, 5 * hold.ping_bytes(wire, named(name)) + answer):
        reader = AnswerReader(wire, 200, committed(wire))
        reader.feed(body)
        reader.end()
        assert reader.fault is None
        tallies.append(reader.tally)
    assert tallies[0] == tallies[1]


def test_a_whole_call_has_no_beat_except_for_gemini_cli() -> None:
    assert hold.ping_bytes("openai-chat", ANYBODY, is_stream=False) == b""
    assert hold.ping_bytes("gemini", ANYBODY, is_stream=False) == b""
    assert hold.ping_bytes("gemini", named("gemini-cli"), is_stream=False) == b"\n"


def test_an_answer_that_began_early_has_the_type_that_it_was_asked_for() -> None:
    sse = "/v1beta/models/m:streamGenerateContent?alt=sse"
    events, json_type = "text/event-stream", "application/json; charset=UTF-8"
    cases: tuple[tuple[WireName, str, bool, str], ...] = (
        ("anthropic", "/v1/messages", True, f"{events}; charset=utf-8"),
        ("gemini", sse, True, events),
        ("gemini", sse.partition("?")[0], True, json_type),
        ("openai-chat", "/v1/messages", False, json_type),
    )
    for wire, path, is_stream, expected in cases:
        assert hold.stream_headers(wire, path, is_stream)["content-type"] == expected


def test_a_whole_call_is_held_for_less_than_its_clients_timeout() -> None:
    sdk = caller_of(((b"user-agent", b"OpenAI/Python 3.49.0"),))
    assert hold.wait_s("openai-chat", sdk, is_stream=True) == 3600.0
    assert hold.wait_s("openai-chat", sdk, is_stream=False) == 540.0
    assert hold.wait_s("openai-chat", ANYBODY, is_stream=False) == 240.0
    assert hold.wait_s("gemini", named("gemini-cli"), is_stream=False) == 3600.0


def refused(wire: WireName, status: int, code: str, body: bytes | None = None) -> bytes:
    told = hold.refusal_of(wire, Turned(status, code, "no", "try something else"))[1]
    return hold.ping_bytes(wire, ANYBODY) + hold.failure_bytes(
        wire, status, told if body is None else body
    )


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_anthropics_sdk_raises_its_own_error_after_the_commit(status: int) -> None:
    with pytest.raises(anthropic.APIStatusError) as caught:
        claude_message(refused("anthropic", status, "x"))
    assert "headway: no; try something else" in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
@pytest.mark.parametrize(("wire", "read"), [row for row in SDKS if row[0].startswith("openai")])
def test_openais_sdk_raises_its_own_error_after_the_commit(
    wire: WireName, read: Callable[[bytes], list[object]], status: int
) -> None:
    with pytest.raises(openai.APIError, match="headway: no; try something else") as caught:
        read(refused(wire, status, "x"))
    assert caught.value.code == "x"


@pytest.mark.parametrize("status", [400, 429, 503])
def test_googles_sdk_raises_its_own_error_after_the_commit(status: int) -> None:
    with pytest.raises(errors.APIError, match="headway: no; try something else") as caught:
        gemini_chunks(refused("gemini", status, "x"))
    assert caught.value.code == status


@pytest.mark.parametrize(("page", "said"), [("<html>Bad Gateway</html>", "Bad Gateway"), ("", ".")])
@pytest.mark.parametrize(("wire", "read"), SDKS)
def test_an_error_page_of_a_proxy_is_an_error_too(
    wire: WireName, read: Callable[[bytes], list[object]], page: str, said: str
) -> None:
    with pytest.raises((anthropic.APIError, openai.APIError, errors.APIError), match=said):
        read(refused(wire, 502, "x", page.encode()))


def codex_code(status: int, body: bytes) -> object:
    last = hold.failure_bytes("openai-responses", status, body).split(
        b"event: response.failed\ndata: "
    )[1]
    return json.loads(last)["response"]["error"]["code"]


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "rate_limit_exceeded", "rate_limit_exceeded"),
        (429, "HW204", "rate_limit_exceeded"),
        (500, "server_error", "server_error"),
        (503, "server_is_overloaded", "server_error"),
        (408, "slow", "server_error"),
        (400, "context_length_exceeded", "context_length_exceeded"),
        (400, "unsupported_value", "invalid_prompt"),
        (401, "invalid_api_key", "invalid_prompt"),
        (402, "HW205", "invalid_prompt"),
        (418, "server_is_overloaded", "invalid_prompt"),
        (429, "insufficient_quota", "insufficient_quota"),
    ],
)
def test_codex_is_given_a_code_that_it_knows(status: int, code: str, expected: str) -> None:
    body = json.dumps({"error": {"message": "no", "type": "x", "code": code}}).encode()
    assert codex_code(status, body) == expected


def test_only_google_itself_is_told_of_a_failure_in_bare_json() -> None:
    body = json.dumps({"error": {"code": 429, "message": "no", "status": "X"}}).encode()
    assert (
        json.loads(hold.failure_bytes("gemini", 429, body, named("gemini-cli")))["error"]["code"]
        == 429
    )
    for name in ("opencode", "ai-sdk"):
        told = hold.failure_bytes("gemini", 429, body, named(name))
        assert json.loads(told.removeprefix(b"data: "))[0]["error"]["code"] == 429
        assert told.endswith(b"\n\n")


REFUSED = Turned(403, "host", "the Host is not this gateway", "call 127.0.0.1")


@pytest.mark.parametrize("wire", [*WIRES, None])
def test_a_refusal_of_our_own_is_in_the_format_of_its_wire(wire: WireName | None) -> None:
    headers, body = hold.refusal_of(wire, REFUSED)
    told = json.loads(body)
    assert headers["content-type"] == "application/json"
    assert headers["x-headway-error"] == "host"
    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers
    message = "headway: the Host is not this gateway; call 127.0.0.1"
    assert told["error"]["message"] == message
    if wire == "anthropic":
        assert told["error"]["type"] == "permission_error"
    elif wire == "gemini":
        assert told["error"]["code"] == 403


@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (ours.QueueDeadlineError("waited", detail="for input"), 429, True),
        (ours.BrokerUnavailableError(), 503, True),
        (ours.BudgetReachedError(), 402, False),
        (ours.AccountClosedError(), 402, False),
        (ours.DemandTooLargeError(), 400, False),
        (ours.InternalError(), 500, False),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_a_call_that_is_given_up_is_sent_again_only_if_that_helps(
    wire: WireName, error: ours.HeadwayError, status: int, again: bool
) -> None:
    got, headers, body = hold.given_up(error, wire)
    assert got == status
    assert headers["x-should-retry"] == ("true" if again else "false")
    assert ("retry-after" in headers) == again
    assert headers["x-headway-error"] == error.code
    assert f"headway[{error.code}]: " in json.loads(body)["error"]["message"]


@given(st.floats())
def test_nobody_is_told_to_come_again_later_than_in_a_minute(seconds: float) -> None:
    assert 1 <= int(hold.retry_after(seconds)) <= 60
    assert [hold.retry_after(one) for one in (0.0, 1.2, 59.1, 1e9)] == ["1", "2", "60", "60"]
