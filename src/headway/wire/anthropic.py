"""The Anthropic Messages format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

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
from headway.base.numbers import seconds_of
from headway.base.values import CACHE_S
from headway.wire.request import (
    TOOL,
    RequestContent,
    RequestPart,
    document,
    image,
    json_text,
    without,
)
from headway.wire.stream import Event, event
from headway.wire.values import Answer, AnswerSoFar, ToolUse, usage_in

TYPE_OF_STATUS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_UNREAD: Final = ("cache_control", "citations", "signature", "id", "tool_use_id", "data")
"""Fields of a block that the model does not read as text."""

_DELTA: Final = re.compile(
    rb'\{"type": ?"content_block_delta", ?"index": ?[0-9]+, ?"delta": ?'
    rb'\{"type": ?"[a-z_]+_delta", ?"(?:text|thinking|partial_json)": ?"((?:[^"\\]|\\.)*+)"\}\s*\}'
)
"""The usual form of nearly all events of a stream: read without parsing it as JSON."""

_DELTA_TEXTS: Final = ("text", "thinking", "partial_json")
_SAYS_NOTHING: Final = frozenset(("ping", "content_block_start", "content_block_stop"))


def asked(body: Fields, _model: str, _streams: bool) -> RequestContent | None:
    model, messages = text_of(body.get("model")), body.get("messages")
    if not model or not isinstance(messages, list):
        return None
    tools = [*map(object_fields, items(body.get("tools")))]
    parts: list[RequestPart] = []
    for tool in tools:
        read = json_text(without(tool, "cache_control"))
        parts.append(RequestPart("tools", read, keeps_s=_keeps_s(tool)))
    if "system" in body:
        parts += _parts("system", body["system"], 0)
    for number, message in enumerate(messages, 1):
        if isinstance(message, dict):
            role = text_of(message.get("role")) or "user"
            parts += _parts(role, message.get("content"), number)
    if parts and body.get("cache_control"):
        # The automatic form marks the last block that can be kept.
        last = parts[-1]
        parts[-1] = replace(last, keeps_s=_keeps_s(body))
    settings = [body.get("thinking"), body.get("output_config"), body.get("tool_choice")]
    schema: object = None
    if settings[1]:
        schema = object_fields(object_fields(settings[1]).get("format")).get("schema")
    return RequestContent(
        model, tuple(parts), max_output_tokens=whole_tokens(body.get("max_tokens")),
        streams=body.get("stream") is True, effort=json_text(settings) if any(settings) else "",
        tools=tuple([text_of(tool.get("name")) for tool in tools]) if tools else (),
        schema=json_text(schema) if schema else "",
    )  # fmt: skip


def _keeps_s(block: Fields) -> float:
    """How long all up to here is to be kept: `5m`, `1h`; 0 if that is not asked for."""
    marked = block.get("cache_control")
    if not marked:
        return 0.0
    return seconds_of(text_of(object_fields(marked).get("ttl"))) or CACHE_S


def _parts(role: str, content: object, message: int) -> list[RequestPart]:
    if isinstance(content, str):
        return [RequestPart(role, content, message=message)]
    parts: list[RequestPart] = []
    for item in items(content):
        if isinstance(item, str):
            parts.append(RequestPart(role, item, message=message))
        else:
            parts += _block_parts(role, object_fields(item), message)
    return parts


def _block_parts(role: str, block: Fields, message: int) -> Iterator[RequestPart]:
    kind, keeps_s = block.get("type"), _keeps_s(block)
    source = object_fields(block.get("source"))
    data = text_of(source.get("data")) or json_text(source)
    if kind == "text":
        yield RequestPart(role, text_of(block.get("text")), "", 0, keeps_s, message)
    elif kind == "image":
        yield image(role, data, message, keeps_s)
    elif kind == "document" and source.get("type") not in ("text", "content"):
        yield document(role, data, message, keeps_s)
    elif kind in ("document", "tool_result", "search_result"):
        # Their text is inside; a result that is a list can hold images too.
        inner = source.get("data") or source.get("content") or block.get("content")
        role = TOOL if kind == "tool_result" else role
        yield from _parts(role, inner, message)
        yield RequestPart(role, text_of(block.get("title")), "", 0, keeps_s, message)
    elif kind == "thinking":
        yield RequestPart(role, text_of(block.get("thinking")), "", 0, keeps_s, message)
    elif kind == "redacted_thinking":
        yield RequestPart(role, "", text_of(block.get("data")), 0, keeps_s, message)
    else:
        yield RequestPart(role, json_text(without(block, *_UNREAD)), "", 0, keeps_s, message)


def hear(heard: AnswerSoFar, found: Event) -> None:
    name, data = found
    if name in _SAYS_NOTHING:
        return
    usual = _DELTA.fullmatch(data)
    if usual is not None:
        heard.add_json_text(usual[1])
        return
    top = heard.read(data)
    kind = text_of(top.get("type")) or name
    delta = object_fields(top.get("delta"))
    if kind == "content_block_delta":
        heard.add_text(*(delta.get(key) for key in _DELTA_TEXTS))
    elif kind == "message_start":
        _hear_usage(heard, object_fields(object_fields(top.get("message")).get("usage")))
    elif kind == "message_delta":
        usage = object_fields(top.get("usage"))
        _hear_usage(heard, usage)
        if delta.get("stop_reason"):
            heard.is_finished = True
            heard.is_final = heard.is_final or tokens(usage.get("output_tokens")) is not None
    elif kind == "message_stop":
        heard.is_finished = heard.is_over = True
    elif kind == "error":
        heard.fail(data)


def hear_whole(heard: AnswerSoFar, body: Fields) -> None:
    usage = object_fields(body.get("usage"))
    if body.get("error"):
        heard.fail(body)
    elif usage:
        _hear_usage(heard, usage)
        heard.is_final = tokens(usage.get("output_tokens")) is not None
    elif "input_tokens" in body:
        # The answer of `count_tokens`: nothing was consumed.
        heard.report(0.0, 0.0, 0.0)
        heard.is_final = True
    for block in map(object_fields, items(None if heard.is_final else body.get("content"))):
        heard.add_text(*(block.get(key) for key in _DELTA_TEXTS))
        if "input" in block:
            heard.add_text(json_text(block["input"]))


def hear_excerpt(heard: AnswerSoFar, excerpt: bytes) -> None:
    usage = usage_in(excerpt, "output_tokens")
    _hear_usage(heard, usage)
    heard.is_final = tokens(usage.get("output_tokens")) is not None


def _hear_usage(heard: AnswerSoFar, usage: Fields) -> None:
    """Its input tokens are those that the cache neither gave nor took; writing counts as input."""
    plain = tokens(usage.get("input_tokens"))
    written = tokens(usage.get("cache_creation_input_tokens"))
    kept = object_fields(usage["cache_creation"]) if "cache_creation" in usage else {}
    heard.report(
        None if plain is None else plain + (written or 0.0),
        tokens(usage.get("cache_read_input_tokens")),
        tokens(usage.get("output_tokens")),
        written,
        tokens(kept.get("ephemeral_1h_input_tokens")) if kept else None,
    )


def whole(answer: Answer) -> bytes:
    content: list[Fields] = [{"type": "text", "text": answer.text}] if answer.has_text else []
    content += [_tool_use(use, parsed(use.arguments)) for use in answer.tool_uses]
    message = _message(answer, content, _stop_reason(answer))
    message["usage"] = {**_input_usage(answer), "output_tokens": answer.output_tokens}
    return dumped(message)


def opening(answer: Answer) -> bytes:
    """`message_start`, with the usage of the input, and the first block if it is text."""
    message = _message(answer, [], None)
    # The real stream opens with the first token already counted.
    message["usage"] = {**_input_usage(answer), "output_tokens": min(1, answer.output_tokens)}
    start = _event({"type": "message_start", "message": message})
    text = _block_start(0, {"type": "text", "text": ""}) if answer.has_text else b""
    return start + text + _PING


def piece(_answer: Answer, _index: int, text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return _event({"type": "content_block_delta", "index": 0, "delta": delta})


def closing(answer: Answer, _wants_usage: bool, _pieces: int) -> bytes:
    """The end of the block of text, those of the tools, the usage, the end."""
    index = int(answer.has_text)
    blocks = [_block_stop(0)] if answer.has_text else []
    blocks += [_tool_block(index + place, use) for place, use in enumerate(answer.tool_uses)]
    delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    usage = {**_input_usage(answer), "output_tokens": answer.output_tokens}
    return b"".join(
        (
            *blocks,
            _event({"type": "message_delta", "delta": delta, "usage": usage}),
            _event({"type": "message_stop"}),
        )
    )


def _tool_block(index: int, use: ToolUse) -> bytes:
    deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *use.pieces)]
    return b"".join(
        (
            _block_start(index, _tool_use(use, {})),
            *(_event({"type": "content_block_delta", "index": index, "delta": delta})
              for delta in deltas),
            _block_stop(index),
        )
    )  # fmt: skip


def error_event(status: int, body: bytes) -> bytes:
    """The `error` event with the error of `body`, or with one that says what `status` says."""
    top = object_fields(parsed(body))
    error = object_fields(top.get("error")) or top
    if not text_of(error.get("type")):
        said = text_of(error.get("message")) or body.decode("utf-8", "replace")
        error = {"type": TYPE_OF_STATUS.get(status, "api_error"), "message": said}
    rest = top if "error" in top else {}
    return _event({**rest, "type": "error", "error": error})


def counted(input_tokens: int) -> bytes:
    return dumped({"input_tokens": input_tokens})


def models(names: Iterable[str]) -> bytes:
    data: list[Fields] = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
        }
        for name in names
    ]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return dumped({"data": data, "has_more": False, "first_id": first, "last_id": last})


def _message(answer: Answer, content: list[Fields], stop_reason: str | None) -> Fields:
    return {
        "id": answer.id, "type": "message", "role": "assistant", "model": answer.model,
        "content": content, "stop_reason": stop_reason, "stop_sequence": None,
    }  # fmt: skip


def _input_usage(answer: Answer) -> dict[str, int]:
    return {
        "input_tokens": answer.input_tokens - answer.cache_write_tokens,
        "cache_creation_input_tokens": answer.cache_write_tokens,
        "cache_read_input_tokens": answer.cache_read_tokens,
    }


def _tool_use(use: ToolUse, given: object) -> Fields:
    return {"type": "tool_use", "id": use.id, "name": use.name, "input": given}


def _block_start(index: int, block: Fields) -> bytes:
    return _event({"type": "content_block_start", "index": index, "content_block": block})


def _block_stop(index: int) -> bytes:
    return _event({"type": "content_block_stop", "index": index})


def _stop_reason(answer: Answer) -> str:
    if answer.is_cut:
        return "max_tokens"
    return "tool_use" if answer.tool_uses else "end_turn"


def _event(data: Fields) -> bytes:
    return event(dumped(data), text_of(data["type"]))


_PING: Final = _event({"type": "ping"})
