"""The OpenAI Responses format."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from headway.wire.values import Answer, AnswerSoFar, ToolUse, input_and_cached, usage_in

OPENING_EVENTS: Final = 4
"""Events before the first text; all events of a stream are numbered from 0."""
TEXTLESS_EVENTS: Final = 2
"""Events before the first tool where there is no text."""

_CODE_OF_STATUS: Final = {
    400: "invalid_request_error",
    402: "insufficient_quota",
    429: "rate_limit_exceeded",
    503: "server_is_overloaded",
    529: "server_is_overloaded",
}
_UNREAD: Final = ("type", "id", "call_id", "status", "encrypted_content")
"""Fields of an item that the model does not read as text."""

_DELTA: Final = re.compile(
    rb'\{"type": ?"response\.(?!audio\.|shell_call_o)[a-z_.]+\.delta",'
    rb'[^{}\[\]\\]*"delta": ?"((?:[^"\\]|\\.)*+)"'
    rb'(?:, ?"(?:logprobs": ?\[\]|sequence_number": ?[0-9]+|obfuscation": ?"[^"\\]*"))*\}'
)
"""The usual form of nearly all events of a stream: read without parsing it as JSON."""

_LAST: Final = frozenset(
    f"response.{word}" for word in ("completed", "incomplete", "failed", "cancelled")
)
_NOT_SAID: Final = frozenset(("response.audio.delta", "response.shell_call_output_content.delta"))
"""Parts that are not text, or that a tool said."""


def asked(body: Fields, _model: str, _streams: bool) -> RequestContent | None:
    """The request; `None` if it is none. A stored prompt can name the model in its place."""
    model, given = text_of(body.get("model")), body.get("input")
    stored = [body.get(name) for name in ("prompt", "previous_response_id", "conversation")]
    if not isinstance(given, str | list) and not any(stored):
        return None
    if not model and not body.get("prompt"):
        return None
    parts = [RequestPart("tools", json_text(tool)) for tool in items(body.get("tools"))]
    if schema := object_fields(object_fields(body.get("text")).get("format")).get("schema"):
        parts.append(RequestPart("tools", json_text(schema)))
    parts.append(RequestPart("system", text_of(body.get("instructions"))))
    if isinstance(given, str):
        parts.append(RequestPart("user", given, message=1))
    for number, item in enumerate(items(given), 1):
        parts += _item_parts(object_fields(item), number)
    settings = [body.get("reasoning"), body.get("tool_choice"), body.get("prompt")]
    settings.append(object_fields(body.get("text")).get("verbosity"))
    return RequestContent(
        model, tuple(part for part in parts if part.text or part.media_bytes or part.message),
        max_output_tokens=whole_tokens(body.get("max_output_tokens")),
        streams=body.get("stream") is True, effort=json_text(settings) if any(settings) else "",
        cache_key=text_of(body.get("prompt_cache_key")), caches_by_itself=True,
        is_continued=any(stored), tools=tuple(map(_tool_name, items(body.get("tools")))),
        schema=json_text(schema) if schema else "",
    )  # fmt: skip


def _tool_name(tool: object) -> str:
    """Tools of the provider have no name but their type."""
    given = object_fields(tool)
    return text_of(given.get("name")) or text_of(given.get("type"))


def _item_parts(item: Fields, number: int) -> Iterator[RequestPart]:
    """An item is a message, with its type or without, or something that a tool or model did."""
    role = text_of(item.get("role")) or "assistant"
    role = "system" if role == "developer" else role
    role = TOOL if text_of(item.get("type")).endswith("_output") else role
    content = item.get("output", item.get("content"))
    if isinstance(content, str):
        yield RequestPart(role, content, message=number)
    for block in map(object_fields, items(content)):
        yield _block_part(role, block, number)
    if "role" not in item:
        rest = without(item, "output", "content", *_UNREAD)
        said = (one if isinstance(one, str) else json_text(one) for one in rest.values())
        yield RequestPart(role, " ".join(said), message=number)


def _block_part(role: str, block: Fields, number: int) -> RequestPart:
    kind = block.get("type")
    keeps_s = CACHE_S if block.get("prompt_cache_breakpoint") else 0.0
    if kind == "input_image":
        data = text_of(block.get("image_url")) or text_of(block.get("file_id"))
        return image(role, data, number, keeps_s)
    if kind == "input_file":
        return document(role, json_text(block), number, keeps_s)
    said = text_of(block.get("text")) or text_of(block.get("refusal"))
    return RequestPart(role, said, "", 0, keeps_s, number)


def hear(heard: AnswerSoFar, found: Event) -> None:
    name, data = found
    if name and not (name.endswith(".delta") or name in _LAST or name == "error"):
        # Everything else announces or repeats, at length: it has the request's tools in it.
        return
    if name in _NOT_SAID:
        return
    usual = _DELTA.fullmatch(data)
    if usual is not None:
        heard.add_json_text(usual[1])
        return
    top = heard.read(data)
    kind = text_of(top.get("type")) or name
    if kind in _LAST:
        if top:
            hear_whole(heard, object_fields(top.get("response")))
        else:
            hear_excerpt(heard, data)
        # An event that broke off is no end; one that is cut because of its length is.
        heard.is_finished = heard.is_over = bool(top) or heard.is_final
    elif kind == "error" or top.get("error"):
        heard.fail(data)
    elif kind.endswith(".delta") and kind not in _NOT_SAID:
        heard.add_text(top.get("delta"))


def hear_whole(heard: AnswerSoFar, body: Fields) -> None:
    """The body of an answer that is not streamed; the last event has the same in it."""
    if body.get("error"):
        # Without the request's own tools and instructions, which come first and can be long.
        heard.fail({"error": body["error"]})
    if body.get("object") == "response.input_tokens":
        heard.report(0.0, 0.0, 0.0)
        heard.is_final = True
        return
    _hear_usage(heard, object_fields(body.get("usage")))
    if not heard.output_tokens:
        for item in map(object_fields, items(body.get("output"))):
            heard.add_text(item.get("arguments"), item.get("input"))
            heard.add_text(
                *(object_fields(part).get("text") for part in items(item.get("content")))
            )


def hear_excerpt(heard: AnswerSoFar, excerpt: bytes) -> None:
    _hear_usage(heard, usage_in(excerpt, "output_tokens"))


def _hear_usage(heard: AnswerSoFar, usage: Fields) -> None:
    input_tokens, cached = input_and_cached(usage, "input_tokens")
    output_tokens = tokens(usage.get("output_tokens"))
    heard.report(input_tokens, cached, output_tokens)
    heard.is_final = heard.is_final or output_tokens is not None


def whole(answer: Answer) -> bytes:
    return dumped(_finished(answer))


def opening(answer: Answer) -> bytes:
    """The response, its message and the message's text are announced, all empty."""
    response = _response(answer, "in_progress", [])
    item = _item(answer, "in_progress", [])
    head = _event("response.created", 0, {"response": response})
    head += _event("response.in_progress", 1, {"response": response})
    if not answer.has_text:
        return head
    head += _event("response.output_item.added", 2, {"output_index": 0, "item": item})
    return head + _event("response.content_part.added", 3, {**_place(answer), "part": _part("")})


def piece(answer: Answer, index: int, text: str) -> bytes:
    data = {**_place(answer), "delta": text, "logprobs": []}
    return _event("response.output_text.delta", OPENING_EVENTS + index, data)


def closing(answer: Answer, _wants_usage: bool, pieces: int) -> bytes:
    """Everything that was announced is repeated, complete; the usage comes with the response."""
    number = OPENING_EVENTS + pieces if answer.has_text else TEXTLESS_EVENTS
    events = [*_text_end(answer), *_tool_events(answer)]
    events.append((f"response.{_status(answer)}", {"response": _finished(answer)}))
    return b"".join(_event(kind, number + place, data) for place, (kind, data) in enumerate(events))


def _text_end(answer: Answer) -> Iterator[tuple[str, Fields]]:
    if answer.has_text:
        place, part = _place(answer), _part(answer.text)
        yield "response.output_text.done", {**place, "text": answer.text, "logprobs": []}
        yield "response.content_part.done", {**place, "part": part}
        item = _item(answer, _status(answer), [part])
        yield "response.output_item.done", {"output_index": 0, "item": item}


def _tool_events(answer: Answer) -> Iterator[tuple[str, Fields]]:
    """Each tool is an item of its own, announced, written and repeated like the text."""
    for index, use in enumerate(answer.tool_uses, int(answer.has_text)):
        place: Fields = {"item_id": _call_id(use), "output_index": index}
        item = _call(use, "", "in_progress")
        yield "response.output_item.added", {"output_index": index, "item": item}
        for part in use.pieces:
            yield "response.function_call_arguments.delta", {**place, "delta": part}
        whole = {**place, "name": use.name, "arguments": use.arguments}
        yield "response.function_call_arguments.done", whole
        item = _call(use, use.arguments, "completed")
        yield "response.output_item.done", {"output_index": index, "item": item}


def error_event(status: int, body: bytes) -> bytes:
    """The flat `error` event. Its number is not known here and is 0."""
    top = object_fields(parsed(body))
    error = object_fields(top.get("error")) or top
    code = text_of(error.get("code")) or text_of(error.get("type"))
    data: Fields = {
        "code": code or _CODE_OF_STATUS.get(status, "server_error"),
        "message": text_of(error.get("message")) or body.decode("utf-8", "replace"),
        "param": None,
    }
    return _event("error", 0, data)


def counted(input_tokens: int) -> bytes:
    return dumped({"object": "response.input_tokens", "input_tokens": input_tokens})


def _status(answer: Answer) -> str:
    return "incomplete" if answer.is_cut else "completed"


def _call_id(use: ToolUse) -> str:
    """The item's own id; what the result refers to is the id of the call."""
    return f"fc_{use.id.removeprefix('call_')}"


def _call(use: ToolUse, arguments: str, status: str) -> Fields:
    return {
        "id": _call_id(use), "type": "function_call", "status": status, "arguments": arguments,
        "call_id": use.id, "name": use.name,
    }  # fmt: skip


def _item_id(answer: Answer) -> str:
    return f"msg_{answer.id.removeprefix('resp_')}"


def _place(answer: Answer) -> Fields:
    return {"item_id": _item_id(answer), "output_index": 0, "content_index": 0}


def _part(text: str) -> Fields:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item(answer: Answer, status: str, content: list[Fields]) -> Fields:
    return {
        "id": _item_id(answer), "type": "message", "status": status, "role": "assistant",
        "content": content,
    }  # fmt: skip


def _response(answer: Answer, status: str, output: list[Fields]) -> Fields:
    cut = status == "incomplete"
    return {
        "id": answer.id, "object": "response", "created_at": int(answer.created_wall_s),
        "status": status, "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None, "max_output_tokens": None, "metadata": {}, "model": answer.model,
        "output": output, "parallel_tool_calls": True, "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None}, "store": False, "temperature": 1.0,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled", "usage": None, "user": None,
    }  # fmt: skip


def _finished(answer: Answer) -> Fields:
    output = [_item(answer, _status(answer), [_part(answer.text)])] if answer.has_text else []
    output += [_call(use, use.arguments, "completed") for use in answer.tool_uses]
    response = _response(answer, _status(answer), output)
    input_tokens = answer.input_tokens + answer.cache_read_tokens
    response["usage"] = {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": answer.cache_read_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + answer.output_tokens,
    }
    return response


def _event(kind: str, number: int, data: Fields) -> bytes:
    return event(dumped({"type": kind, "sequence_number": number, **data}), kind)
