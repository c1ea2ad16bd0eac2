"""The OpenAI Chat Completions format, which most other providers use too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from headway.base.fields import (
    Fields,
    dumped,
    items,
    object_fields,
    parsed,
    text_of,
    tokens,
    whole_tokens,
)
from headway.base.values import CACHE_S
from headway.wire.request import RequestContent, RequestPart, document, image, json_text
from headway.wire.stream import Event, event
from headway.wire.values import Answer, AnswerSoFar, ToolUse, input_and_cached, usage_in

DONE: Final = b"[DONE]"
"""The data of the last event, the only one that is not JSON."""

_DELTA: Final = re.compile(
    rb'\{"id": ?"[^"\\]*", ?"object": ?"chat\.completion\.chunk",[^{}\[\]\\]*"choices": ?'
    rb'\[\{"index": ?0, ?"delta": ?\{"content": ?"((?:[^"\\]|\\.)*+)"\}, ?'
    rb'(?:"logprobs": ?null, ?)?"finish_reason": ?null(?:, ?"logprobs": ?null)?\}\]'
    rb'(?:, ?"(?:usage": ?null|obfuscation": ?"[^"\\]*"))*\}'
)
"""The usual form of nearly all events of a stream with one answer: read without parsing."""

_TEXTS: Final = ("content", "refusal", "reasoning_content", "reasoning")
"""What an answer's text is called; the last two by DeepSeek and vLLM."""


def asked(body: Fields, _model: str, _streams: bool) -> RequestContent | None:
    model, messages = text_of(body.get("model")), body.get("messages")
    if not model or not isinstance(messages, list):
        return None
    tools = [*items(body.get("tools")), *items(body.get("functions"))]
    parts = [RequestPart("tools", json_text(tool)) for tool in tools]
    if schema := object_fields(body.get("response_format")).get("json_schema"):
        parts.append(RequestPart("tools", json_text(schema)))
    for number, message in enumerate(messages, 1):
        parts += _message_parts(object_fields(message), number)
    limits = [whole_tokens(body.get(name)) for name in ("max_tokens", "max_completion_tokens")]
    settings = [body.get(name) for name in ("reasoning_effort", "verbosity", "tool_choice")]
    return RequestContent(
        model, tuple(parts),
        max_output_tokens=max((limit for limit in limits if limit is not None), default=None),
        choices=whole_tokens(body.get("n")) or 1, streams=body.get("stream") is True,
        wants_usage=object_fields(body.get("stream_options")).get("include_usage") is True,
        effort=json_text(settings) if any(settings) else "",
        cache_key=text_of(body.get("prompt_cache_key")), caches_by_itself=True,
        tools=tuple(map(_tool_name, tools)),
        schema=json_text(wanted) if (wanted := object_fields(schema).get("schema")) else "",
    )  # fmt: skip


def _tool_name(tool: object) -> str:
    """A tool has its name inside what it is; the older `functions` have theirs outside."""
    given = object_fields(tool)
    inner = object_fields(given.get("function")) or object_fields(given.get("custom")) or given
    return text_of(inner.get("name"))


def _message_parts(message: Fields, number: int) -> Iterator[RequestPart]:
    role = text_of(message.get("role")) or "user"
    role = "system" if role == "developer" else role
    content = message.get("content")
    if isinstance(content, str):
        yield RequestPart(role, content, message=number)
    for item in map(object_fields, items(content)):
        yield _block_part(role, item, number)
    for name in ("name", "reasoning_content", "refusal"):
        if said := text_of(message.get(name)):
            yield RequestPart(role, said, message=number)
    for call in [*items(message.get("tool_calls")), {"function": message.get("function_call")}]:
        used = object_fields(object_fields(call).get("function")) or object_fields(
            object_fields(call).get("custom")
        )
        if used:
            name, given = text_of(used.get("name")), used.get("arguments", used.get("input"))
            yield RequestPart(role, f"{name} {text_of(given)}", message=number)


def _block_part(role: str, block: Fields, number: int) -> RequestPart:
    kind = block.get("type")
    keeps_s = CACHE_S if block.get("prompt_cache_breakpoint") else 0.0
    if kind == "image_url":
        inner = block.get("image_url")
        address = text_of(inner) or text_of(object_fields(inner).get("url"))
        return image(role, address, number, keeps_s)
    if kind == "input_audio":
        return image(role, json_text(block.get("input_audio")), number, keeps_s)
    if kind == "file":
        return document(role, json_text(block.get("file")), number, keeps_s)
    said = text_of(block.get("text")) or text_of(block.get("refusal"))
    return RequestPart(role, said, "", 0, keeps_s, number)


def hear(heard: AnswerSoFar, found: Event) -> None:
    name, data = found
    usual = _DELTA.fullmatch(data)
    if usual is not None:
        heard.add_json_text(usual[1])
        if 0 not in heard.open_choices:
            heard.open_choices |= {0}
        return
    if data.startswith(DONE):
        heard.is_finished = heard.is_over = True
        return
    top = heard.read(data)
    if top.get("error") or name == "error":
        heard.fail(data)
        return
    choices = items(top.get("choices"))
    for choice in map(object_fields, choices):
        _hear_message(heard, object_fields(choice.get("delta")))
        heard.hear_choice(choice.get("index"), bool(choice.get("finish_reason")))
    # Groq reports in a field of its own, in the same form.
    usage = object_fields(top.get("usage")) or object_fields(
        object_fields(top.get("x_groq")).get("usage")
    )
    if usage:
        # vLLM can report with every chunk: the last report is that after the text.
        _hear_usage(heard, usage, is_final=heard.is_finished or not choices)


def hear_whole(heard: AnswerSoFar, body: Fields) -> None:
    if body.get("error"):
        heard.fail(body)
    _hear_usage(heard, object_fields(body.get("usage")), is_final=True)
    for choice in map(object_fields, items(None if heard.is_final else body.get("choices"))):
        _hear_message(heard, object_fields(choice.get("message")))


def hear_excerpt(heard: AnswerSoFar, excerpt: bytes) -> None:
    _hear_usage(heard, usage_in(excerpt, "completion_tokens"), is_final=True)


def _hear_message(heard: AnswerSoFar, message: Fields) -> None:
    heard.add_text(*(message.get(name) for name in _TEXTS))
    heard.add_text(object_fields(message.get("audio")).get("transcript"))
    for call in [*items(message.get("tool_calls")), {"function": message.get("function_call")}]:
        used = object_fields(object_fields(call).get("function")) or object_fields(
            object_fields(call).get("custom")
        )
        heard.add_text(used.get("name"), used.get("arguments"), used.get("input"))


def _hear_usage(heard: AnswerSoFar, usage: Fields, is_final: bool) -> None:
    input_tokens, cached = input_and_cached(usage, "prompt_tokens")
    output_tokens = tokens(usage.get("completion_tokens"))
    heard.report(input_tokens, cached, output_tokens)
    heard.is_final = is_final and output_tokens is not None


def whole(answer: Answer) -> bytes:
    said = answer.text if answer.has_text else None
    message: Fields = {"role": "assistant", "content": said, "refusal": None}
    if answer.tool_uses:
        message["tool_calls"] = [_tool_call(use, use.arguments) for use in answer.tool_uses]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _finish_reason(answer),
    }
    completion = _head(answer, "chat.completion")
    completion["choices"] = [choice]
    completion["usage"] = _usage(answer)
    return dumped(completion)


def opening(answer: Answer) -> bytes:
    said = "" if answer.has_text else None
    return _chunk(answer, {"role": "assistant", "content": said, "refusal": None}, None)


def piece(answer: Answer, _index: int, text: str) -> bytes:
    return _chunk(answer, {"content": text}, None)


def closing(answer: Answer, wants_usage: bool, _pieces: int) -> bytes:
    """What tools are wanted, the reason of the end, the usage if asked for, and `[DONE]`."""
    last = b"".join(_tool_chunks(answer)) + _chunk(answer, {}, _finish_reason(answer))
    if wants_usage:
        completion = _head(answer, "chat.completion.chunk")
        completion["choices"] = []
        completion["usage"] = _usage(answer)
        last += event(dumped(completion))
    return last + event(DONE)


def _tool_chunks(answer: Answer) -> Iterator[bytes]:
    for index, use in enumerate(answer.tool_uses):
        yield _chunk(answer, {"tool_calls": [{"index": index, **_tool_call(use, "")}]}, None)
        for part in use.pieces:
            call: Fields = {"index": index, "function": {"arguments": part}}
            yield _chunk(answer, {"tool_calls": [call]}, None)


def _tool_call(use: ToolUse, arguments: str) -> Fields:
    function = {"name": use.name, "arguments": arguments}
    return {"id": use.id, "type": "function", "function": function}


def error_event(status: int, body: bytes) -> bytes:
    """A chunk that is an error: what the SDK looks for is the field `error`."""
    top = object_fields(parsed(body))
    error = object_fields(top.get("error")) or top
    if not text_of(error.get("message")):
        said = body.decode("utf-8", "replace") or f"HTTP {status}"
        error = {"message": said, "type": "server_error", "param": None, "code": status}
    return event(dumped({"error": error}))


def models(names: Iterable[str]) -> bytes:
    """All models; Responses has the same list."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "headway"} for name in names]
    return dumped({"object": "list", "data": data})


def _head(answer: Answer, kind: str) -> Fields:
    return {
        "id": answer.id, "object": kind, "created": int(answer.created_wall_s),
        "model": answer.model, "service_tier": "default", "system_fingerprint": None,
    }  # fmt: skip


def _chunk(answer: Answer, delta: Fields, finish_reason: str | None) -> bytes:
    completion = _head(answer, "chat.completion.chunk")
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    completion["choices"] = [choice]
    return event(dumped(completion))


def _usage(answer: Answer) -> Fields:
    """Its prompt tokens are all of the input, cached or not."""
    prompt_tokens = answer.input_tokens + answer.cache_read_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": prompt_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _finish_reason(answer: Answer) -> str:
    if answer.is_cut:
        return "length"
    return "tool_calls" if answer.tool_uses else "stop"
