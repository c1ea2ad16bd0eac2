"""What can be seen of a call before it is sent."""

from __future__ import annotations

import json
from typing import Any
from unicodedata import normalize

import pytest
from msgspec.structs import replace

from headway.base.values import Sketch
from headway.errors import WireError
from headway.wire.read import conversation, route, sketch
from headway.wire.request import IMAGE_BYTES, OVERHEAD_TOKENS, PAGE_BYTES
from headway.wire.values import Conversation, Route, WireName

MESSAGES = Route("anthropic")
CHAT = Route("openai-chat")
RESPONSES = Route("openai-responses")
LONG = "All animals are equal, but some animals are more equal than others. " * 100
TOOL = {"name": "get_weather", "description": "The weather", "input_schema": {"type": "object"}}


def seen(one: Route, **body: Any) -> Sketch:
    return sketch(one, json.dumps({"model": "m", **body}).encode())


def said(one: Route, **body: Any) -> Conversation:
    return conversation(one, json.dumps({"model": "m", **body}).encode())


def user(content: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": content}]


def ask(one: Route, text: object, **body: Any) -> Sketch:
    """The same question in each format."""
    if one.wire == "openai-responses":
        return seen(one, input=text if isinstance(text, str) else user(text), **body)
    return seen(one, messages=user(text), **body)


@pytest.mark.parametrize(
    ("path", "wire", "purpose"),
    [
        ("/v1/messages", "anthropic", "generate"),
        ("/v1/messages?beta=true", "anthropic", "generate"),
        ("/anthropic/v1/messages/", "anthropic", "generate"),
        ("/v1/messages/count_tokens", "anthropic", "count"),
        ("/v1/chat/completions", "openai-chat", "generate"),
        ("/openai/deployments/gpt/chat/completions?api-version=1", "openai-chat", "generate"),
        ("/openai/v1/responses", "openai-responses", "generate"),
        ("/v1/responses", "openai-responses", "generate"),
        ("/v1/responses/input_tokens", "openai-responses", "count"),
    ],
)
def test_calls_are_known_by_the_end_of_their_path(path: str, wire: WireName, purpose: str) -> None:
    found = route("post", path)
    assert found is not None
    assert (found.wire, found.purpose) == (wire, purpose)
    assert route("GET", path) is None


@pytest.mark.parametrize(
    "path",
    ["/v1/responses/resp_1/cancel", "/v1/responses/resp_1", "/v1/messages/batches", "/v1/models",
     "/v1/embeddings", "/v1/threads/t_1/my-messages", "/?/v1/messages", ""],
)  # fmt: skip
def test_other_paths_are_nobodys_business(path: str) -> None:
    assert route("POST", path) is None


@pytest.mark.parametrize("one", [MESSAGES, CHAT, RESPONSES])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"model":"m"}', b'{"model":5,"messages":[]}',
        b'{"messages":[],"input":"x"}', b'{"model":"","messages":[],"input":""}', b"\xff\xfe",
        b'{"model":"m","messages":"x","input":7}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(one: Route, body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        sketch(one, body)
    assert "HW301" in caught.value.render()
    assert one.wire in caught.value.render()
    with pytest.raises(WireError):
        conversation(one, body)


@pytest.mark.parametrize("one", [MESSAGES, CHAT, RESPONSES])
def test_nesting_of_any_depth_is_read_or_refused(one: Route) -> None:
    refused = set()
    for depth in range(800, 1000):
        deep = '{"a":' * depth + "1" + "}" * depth
        body = f'{{"model":"m","messages":[],"input":[],"tools":[{deep}]}}'.encode()
        try:
            assert sketch(one, body).size_bytes > 0
        except WireError as error:
            refused.add(error.message)
    assert "the body of a call is not a JSON object" in refused


@pytest.mark.parametrize("one", [MESSAGES, CHAT, RESPONSES])
def test_text_is_as_large_as_it_is_and_not_as_json_escapes_it(one: Route) -> None:
    korean = "한국어 문장은 토큰이 많이 필요합니다. " * 20
    key = {"model": "m", "input" if one is RESPONSES else "messages": user(korean)}
    escaped, plain = json.dumps(key), json.dumps(key, ensure_ascii=False)
    assert len(escaped) > 1.3 * len(plain.encode())
    found, same = sketch(one, escaped.encode()), sketch(one, plain.encode())
    assert found == replace(same, most_input_tokens=found.most_input_tokens)
    assert found.most_input_tokens < len(plain.encode()) + OVERHEAD_TOKENS
    assert found.content == "korean"
    assert found.size_bytes == pytest.approx(len(korean.encode()), rel=0.3)


@pytest.mark.parametrize("one", [MESSAGES, CHAT, RESPONSES])
@pytest.mark.parametrize(
    "text", ["hi", LONG, "\ufdfa" * 50, "\ufb03\u00bd" * 9, "\U0001f600\ud800", '\\"\n']
)
@pytest.mark.parametrize("is_escaped", [True, False])
def test_the_most_input_is_no_less_than_the_bytes_of_the_text(
    one: Route, text: str, is_escaped: bool
) -> None:
    asked = {"input": text} if one is RESPONSES else {"messages": user(text)}
    body = json.dumps({"model": "m", **asked}, ensure_ascii=is_escaped)
    most = sketch(one, body.encode("utf-8", "surrogatepass")).most_input_tokens
    read = [text, normalize("NFKC", text)]
    longest = max(len(form.encode("utf-8", "surrogatepass")) for form in read)
    assert longest + OVERHEAD_TOKENS < most <= 2 * longest + len(body) - len(text) + 200


def test_input_may_be_written_into_a_cache_where_the_call_or_the_provider_says_so() -> None:
    marked = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
    assert not ask(MESSAGES, "x").may_write_cache
    assert ask(MESSAGES, marked).may_write_cache
    assert ask(CHAT, "x").may_write_cache


def test_the_longest_answer_is_that_of_all_choices_and_of_both_names() -> None:
    assert ask(CHAT, "x", max_tokens=10, n=200).max_output_tokens == 2000
    assert ask(CHAT, "x", max_tokens=10, max_completion_tokens=30).max_output_tokens == 30


@pytest.mark.parametrize(
    ("one", "field"),
    [(MESSAGES, "max_tokens"), (CHAT, "max_completion_tokens"), (CHAT, "max_tokens"),
     (RESPONSES, "max_output_tokens")],
)  # fmt: skip
def test_the_longest_answer_is_read(one: Route, field: str) -> None:
    assert ask(one, "x", **{field: 77}).max_output_tokens == 77
    assert ask(one, "x").max_output_tokens is None
    wrong: list[object] = [True, -1, "9", None, [], 1e300]
    for value in wrong:
        assert ask(one, "x", **{field: value}).max_output_tokens is None


@pytest.mark.parametrize("one", [MESSAGES, CHAT, RESPONSES])
def test_tools_count_as_text_and_make_a_kind(one: Route) -> None:
    bare, equipped = ask(one, "x"), ask(one, "x", tools=[TOOL])
    assert equipped.size_bytes > bare.size_bytes + 50
    assert equipped.kind != bare.kind
    assert equipped.messages == bare.messages


@pytest.mark.parametrize(
    ("one", "field"),
    [(MESSAGES, "thinking"), (CHAT, "reasoning_effort"), (RESPONSES, "reasoning")],
)
def test_how_hard_a_model_thinks_makes_a_kind(one: Route, field: str) -> None:
    assert ask(one, "x", **{field: {"effort": "high"}}).kind != ask(one, "x").kind


def test_calls_with_one_system_prompt_are_of_one_kind_whatever_they_ask() -> None:
    first = seen(MESSAGES, system="Be brief.", messages=user("a"))
    second = seen(MESSAGES, system=[{"type": "text", "text": "Be brief."}], messages=user("b"))
    other = seen(MESSAGES, system="Be long.", messages=user("a"))
    assert first.kind == second.kind != other.kind
    assert first.kind.startswith("m#")
    assert first.messages == 2
    for role in ("system", "developer"):
        chat = [{"role": role, "content": "Be brief."}, *user("a")]
        assert seen(CHAT, messages=chat).messages == 2
        assert seen(CHAT, messages=chat).kind == first.kind
        assert seen(RESPONSES, input=chat).kind == first.kind
    assert seen(RESPONSES, input="a", instructions="Be brief.").kind == first.kind


def test_what_is_not_text_has_a_fixed_size_and_a_ratio_of_its_own() -> None:
    data = "iVBORw0KGgo" * 10_000
    source = {"type": "base64", "media_type": "image/png", "data": data}
    url = f"data:image/png;base64,{data}"
    images = (
        ask(MESSAGES, [{"type": "image", "source": source}]),
        ask(CHAT, [{"type": "image_url", "image_url": {"url": url}}]),
        ask(RESPONSES, [{"type": "input_image", "image_url": url}]),
    )
    assert {(image.size_bytes, image.content) for image in images} == {(IMAGE_BYTES, "media")}
    sound = [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]
    assert ask(CHAT, sound).size_bytes == IMAGE_BYTES
    pdf = {**source, "media_type": "application/pdf"}
    documents = (
        ask(MESSAGES, [{"type": "document", "source": pdf}]),
        ask(CHAT, [{"type": "file", "file": {"file_data": data}}]),
        ask(RESPONSES, [{"type": "input_file", "file_data": data}]),
    )
    assert {file.size_bytes for file in documents} == {3 * PAGE_BYTES}


def test_anthropic_keeps_everything_up_to_the_last_mark() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": LONG, **mark}]
    one = seen(MESSAGES, tools=[TOOL], system=system, messages=user("a"))
    two = seen(MESSAGES, tools=[TOOL], system=system, messages=user("b"))
    assert one.prefix == two.prefix
    assert len(one.prefix) == 16
    assert len(LONG) * 0.8 < one.prefix_bytes < one.size_bytes
    assert seen(MESSAGES, system=system, messages=user("a")).prefix != one.prefix
    later = user([{"type": "text", "text": "a", **mark}])
    longer = seen(MESSAGES, tools=[TOOL], system=system, messages=later)
    assert longer.prefix != one.prefix
    assert longer.prefix_bytes == longer.size_bytes
    on_tool = seen(MESSAGES, tools=[{**TOOL, "description": LONG, **mark}], messages=user("a"))
    assert on_tool.prefix_bytes > 4096
    result = {"type": "tool_result", "tool_use_id": "t", "content": LONG, **mark}
    assert seen(MESSAGES, messages=user([result])).prefix_bytes > 4096
    automatic = seen(MESSAGES, messages=user(LONG), **mark)
    assert automatic.prefix_bytes == automatic.size_bytes


def test_what_is_not_marked_or_too_short_is_not_kept() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    assert seen(MESSAGES, system=LONG, messages=user("a")).prefix == ""
    short = seen(MESSAGES, system=[{"type": "text", "text": "short", **mark}], messages=user(LONG))
    assert (short.prefix, short.prefix_bytes) == ("", 0)
    assert seen(MESSAGES, messages=[], **mark).prefix == ""


@pytest.mark.parametrize("one", [CHAT, RESPONSES])
def test_openai_keeps_a_long_beginning_by_itself(one: Route) -> None:
    def call(text: str, system: str = LONG, **body: Any) -> Sketch:
        messages = [{"role": "system", "content": system}, *user(text)]
        name = "input" if one is RESPONSES else "messages"
        return seen(one, **{name: messages}, **body)

    assert call("a").shared == call("b").shared != ""
    assert call("a").shared != call("a", prompt_cache_key="key").shared != ""
    assert call("a").shared != call("a", tools=[TOOL]).shared
    assert call(LONG, system="short").shared == ""
    assert len(LONG) * 0.8 < call("a").shared_bytes < call("a").prefix_bytes == call("a").size_bytes


TURNS = {
    MESSAGES: (
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": [
            {"type": "text", "text": "two tools"},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "a"}},
            {"type": "tool_use", "id": "t2", "name": "ls", "input": {"path": "b"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
        ]},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "and now?"},
    ),
    CHAT: (
        {"role": "user", "content": LONG},
        {"role": "assistant", "tool_calls": [
            {"id": "t1", "function": {"name": "ls", "arguments": "a"}},
            {"id": "t2", "function": {"name": "ls", "arguments": "b"}},
        ]},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "two"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "and now?"},
    ),
    RESPONSES: (
        {"role": "user", "content": LONG},
        {"type": "reasoning", "summary": [], "encrypted_content": "S"},
        {"type": "function_call", "call_id": "t1", "name": "ls", "arguments": "a"},
        {"type": "function_call_output", "call_id": "t1", "output": "one"},
        {"type": "message", "role": "assistant", "content": "done"},
        {"role": "user", "content": "and now?"},
    ),
}  # fmt: skip
"""A conversation; a call was made with all up to each thing that a model did not say."""


@pytest.mark.parametrize("one", list(TURNS))
def test_a_prompt_shows_which_prompts_it_continues(one: Route) -> None:
    messages, name = TURNS[one], "input" if one is RESPONSES else "messages"
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}} if one is MESSAGES else {}

    def call(number: int, *others: Any, **body: Any) -> Sketch:
        return seen(one, **{name: [*messages[:number], *others]}, **mark, **body)

    first, last = call(1), call(len(messages))
    second = call(3 if one is MESSAGES else 4)
    assert last.turns == ((second.prefix, second.prefix_bytes), (first.prefix, first.prefix_bytes))
    assert second.turns == last.turns[1:]
    assert first.turns == ()
    # Other settings, another question: no continuation.
    assert first.prefix not in dict(call(1, *user("b")).turns)
    assert first.prefix not in dict(call(len(messages), tools=[TOOL]).turns)
    assert last.keeps_s == (3600.0 if one is MESSAGES else 300.0)


def test_openai_can_be_told_where_the_beginning_ends() -> None:
    block = {"type": "input_text", "text": LONG, "prompt_cache_breakpoint": {"mode": "explicit"}}
    kept = seen(RESPONSES, input=user([block, {"type": "input_text", "text": "and?"}]))
    assert 4096 < kept.prefix_bytes < kept.size_bytes


def test_an_agents_tools_and_thoughts_count() -> None:
    history = [
        *user("What is the weather?"),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I need a tool", "signature": "S" * 5000},
                {"type": "redacted_thinking", "data": "D" * 5000},
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "서울"}},
            ],
        },
        *user([{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}]),
        *user([{"type": "tool_result", "tool_use_id": "t1", "content": [
            {"type": "text", "text": "warm"},
            {"type": "image", "source": {"type": "base64", "data": "xxxx"}},
        ]}]),
        *user([{"type": "document", "source": {"type": "text", "data": "a paper"}, "title": "T"}]),
    ]  # fmt: skip
    found = seen(MESSAGES, messages=history)
    assert IMAGE_BYTES < found.size_bytes < IMAGE_BYTES + 600
    assert found.messages == 5
    turns = said(MESSAGES, messages=history).turns
    assert [role for role, _ in turns] == ["user", "assistant", "tool", "tool", "user"]
    assert "I need a tool" in turns[1][1]
    assert "서울" in turns[1][1]
    assert "SSSS" not in turns[1][1]
    assert [text for _, text in turns[2:]] == ["sunny", "warm", "a paper\nT"]


def test_calls_of_tools_in_a_chat_count() -> None:
    called = {"name": "get_weather", "arguments": '{"city": "Seoul"}'}
    history = [
        *user("?"),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": called}]},
        {"role": "assistant", "function_call": called},
        {"role": "assistant", "content": None, "refusal": "No.", "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    turns = said(CHAT, messages=history).turns
    wanted = ("assistant", 'get_weather {"city": "Seoul"}')
    assert turns == (
        ("user", "?"),
        wanted,
        wanted,
        ("assistant", "Hm.\nNo."),
        ("tool", "sunny"),
    )


def test_items_of_a_response_count() -> None:
    history = [
        *user([{"type": "input_text", "text": "?"}]),
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "E" * 5000},
        {"type": "function_call", "call_id": "1", "name": "get_weather", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "1", "output": "sunny"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "!"}]},
    ]
    turns = said(RESPONSES, input=history).turns
    assert turns[0] == ("user", "?")
    assert turns[2] == ("assistant", 'get_weather {"a":1}')
    assert turns[3] == ("tool", "sunny")
    assert turns[4] == ("assistant", "!")
    assert seen(RESPONSES, input=history).size_bytes < 200


def test_a_stored_conversation_has_a_ratio_of_its_own() -> None:
    assert seen(RESPONSES, input="go on", previous_response_id="resp_1").content == "continued"
    assert seen(RESPONSES, prompt={"id": "pmpt_1"}).messages == 1
    body = json.dumps({"prompt": {"id": "pmpt_1"}, "input": "x"}).encode()
    assert sketch(RESPONSES, body).model == ""


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_a_call_that_only_counts_costs_no_tokens(wire: WireName) -> None:
    found = ask(Route(wire, "count"), LONG)
    assert (found.size_bytes, found.messages, found.max_output_tokens) == (0, 0, 0)
    assert found.kind == "m#count"


@pytest.mark.parametrize("one", [MESSAGES, CHAT, RESPONSES])
def test_nothing_of_a_text_is_kept(one: Route) -> None:
    found = ask(one, "Rosebud " * 1000, tools=[{**TOOL, "description": "Rosebud"}])
    assert "osebud" not in repr(found)
