"""The Gemini generateContent format.

It is protobuf in JSON: requests may spell a field `maxOutputTokens` or `max_output_tokens`, and
give one object where a list is meant. Which model is asked, and whether it streams, is said in the
path and not in the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
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
from headway.wire.values import END_BYTES, Answer, AnswerSoFar, Excerpt, ToolUse, usage_in

# A JSON array that comes element by element: how Gemini streams unless asked for events.

_MARKS: Final = re.compile(rb'\\.?|["{}]', re.DOTALL)
"""All that decides where an object ends; a backslash takes what follows it along."""


class ElementReader:
    """Bytes in, the objects of the outermost list out, as events without a name."""

    __slots__ = ("_depth", "_element", "_is_escaped", "_is_text")

    def __init__(self) -> None:
        self._element = Excerpt()
        self._depth = 0
        self._is_text = False
        self._is_escaped = False

    def feed(self, data: bytes) -> list[Event]:
        found: list[Event] = []
        if not data:
            return found
        begin, start, self._is_escaped = 0, int(self._is_escaped), False
        for match in _MARKS.finditer(data, start):
            mark = match[0]
            if mark == b"\\":
                self._is_escaped = True
            elif mark == b'"':
                self._is_text = not self._is_text and self._depth > 0
            elif mark == b"{" and not self._is_text:
                begin = begin if self._depth else match.start()
                self._depth += 1
            elif mark == b"}" and self._depth and not self._is_text:
                self._depth -= 1
                if not self._depth:
                    self._element.add(data[begin : match.end()])
                    found.append(("", self._element.take()))
        if self._depth:
            self._element.add(data[begin:])
        return found

    def end(self) -> list[Event]:
        """Nothing: an element that is not complete cannot be read."""
        return []


class ElementWriter:
    """Events of a stream in, the same as elements of an array out."""

    __slots__ = ("_is_open",)

    def __init__(self) -> None:
        self._is_open = False

    def write(self, events: bytes) -> bytes:
        """The elements of some events, each of which has its data in one line."""
        written = b""
        for line in filter(None, events.split(b"\n")):
            written += (b",\r\n" if self._is_open else b"[") + line.removeprefix(b"data: ")
            self._is_open = True
        return written

    def end(self) -> bytes:
        return b"]" if self._is_open else b"[]"


UNSPECIFIED: Final = "FINISH_REASON_UNSPECIFIED"
"""How protobuf names the reason of an answer that goes on."""

STATUS_WORDS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "PERMISSION_DENIED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
"""google.rpc.Code by HTTP status."""

_UNREAD: Final = ("thought", "thoughtSignature", "thought_signature", "videoMetadata", "id")
"""Fields of a part that the model does not read as text."""
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_UPPER: Final = re.compile(r"[A-Z]")


def asked(body: Fields, model: str, streams: bool) -> RequestContent | None:
    """The request; `None` if it is none. A call that counts can wrap what would be generated."""
    body = object_fields(_field(body, "generateContentRequest")) or body
    model = model or text_of(body.get("model")).removeprefix("models/")
    contents = body.get("contents")
    if not model or not isinstance(contents, (list, dict)):
        return None
    settings = object_fields(_field(body, "generationConfig"))
    tools = list(_declared(body))
    parts = [RequestPart("tools", json_text(tool)) for tool in tools]
    schema = _field(settings, "responseSchema") or _field(settings, "responseJsonSchema")
    if schema:
        parts.append(RequestPart("tools", json_text(schema)))
    parts += _parts("system", _field(body, "systemInstruction"), 0)
    for number, content in enumerate(_listed(contents), 1):
        role = text_of(object_fields(content).get("role")) or "user"
        parts += _parts("assistant" if role == "model" else role, content, number)
    kept = text_of(_field(body, "cachedContent"))
    effort = [_field(settings, "thinkingConfig"), _field(body, "toolConfig")]
    return RequestContent(
        model, tuple(parts), max_output_tokens=_count(_field(settings, "maxOutputTokens")),
        choices=_count(_field(settings, "candidateCount")) or 1, streams=streams,
        effort=json_text(effort) if any(effort) else "", cache_key=kept, caches_by_itself=True,
        is_continued=bool(kept),
        tools=tuple(filter(None, (text_of(tool.get("name")) for tool in tools))),
        schema=json_text(schema) if schema else "",
    )  # fmt: skip


def _declared(body: Fields) -> Iterator[Fields]:
    """Each function by itself, and whatever else a tool is."""
    for tool in map(object_fields, _listed(body.get("tools"))):
        yield from map(object_fields, _listed(_field(tool, "functionDeclarations")))
        if rest := without(tool, "functionDeclarations", "function_declarations"):
            yield rest


def _parts(role: str, content: object, message: int) -> Iterator[RequestPart]:
    """The parts of one content, which strictly is an object with a list of them."""
    if isinstance(content, str):
        yield RequestPart(role, content, message=message)
    for part in _listed(object_fields(content).get("parts")):
        if isinstance(part, str):
            yield RequestPart(role, part, message=message)
        else:
            yield from _part(role, object_fields(part), message)


def _part(role: str, part: Fields, message: int) -> Iterator[RequestPart]:
    call, result = _field(part, "functionCall"), _field(part, "functionResponse")
    blob = object_fields(_field(part, "inlineData")) or object_fields(_field(part, "fileData"))
    if isinstance(part.get("text"), str):
        yield RequestPart(role, text_of(part["text"]), message=message)
    elif isinstance(call, dict):
        given = json_text(call.get("args") or {})
        yield RequestPart(role, f"{text_of(call.get('name'))} {given}", message=message)
    elif isinstance(result, dict):
        yield RequestPart(TOOL, json_text(result.get("response") or {}), message=message)
        for inner in map(object_fields, _listed(result.get("parts"))):
            yield from _part(TOOL, without(inner, "functionResponse", "function_response"), message)
    elif blob:
        kind = text_of(_field(blob, "mimeType"))
        data = text_of(blob.get("data")) or text_of(_field(blob, "fileUri"))
        has_pages = kind.startswith(("application/", "text/"))
        yield (document if has_pages else image)(role, data, message)
    elif rest := without(part, *_UNREAD):
        yield RequestPart(role, json_text(rest), message=message)


def hear(heard: AnswerSoFar, found: Event) -> None:
    """One chunk of a stream. None is the last by itself: an answer is over when it has a reason."""
    _, data = found
    top = heard.read(data)
    if not top:
        # A picture can be too long to keep; what was consumed is said after it.
        if len(data) > END_BYTES:
            hear_excerpt(heard, data)
        return
    if top.get("error"):
        heard.fail(data)
        return
    for candidate in map(object_fields, items(top.get("candidates"))):
        _hear_content(heard, candidate)
        reason = candidate.get("finishReason")
        heard.hear_choice(candidate.get("index"), reason not in (None, "", UNSPECIFIED))
    if object_fields(top.get("promptFeedback")).get("blockReason"):
        heard.is_finished = True
    if usage := object_fields(top.get("usageMetadata")):
        _hear_usage(heard, usage, is_final=heard.is_finished)
        heard.is_over = heard.is_over or heard.is_final


def hear_whole(heard: AnswerSoFar, body: Fields) -> None:
    if body.get("error"):
        heard.fail(body)
    elif "totalTokens" in body:
        # The answer of `countTokens`: nothing was consumed.
        heard.report(0.0, 0.0, 0.0)
        heard.is_final = True
    _hear_usage(heard, object_fields(body.get("usageMetadata")), is_final=True)
    for candidate in map(object_fields, items(None if heard.is_final else body.get("candidates"))):
        _hear_content(heard, candidate)


def hear_excerpt(heard: AnswerSoFar, excerpt: bytes) -> None:
    """A body, or a chunk of a stream, of which the middle is missing."""
    if b'"finishReason"' in excerpt:
        heard.is_finished = True
    usage = usage_in(excerpt, "promptTokenCount", "usageMetadata")
    _hear_usage(heard, usage, is_final=heard.is_finished)


def _hear_content(heard: AnswerSoFar, candidate: Fields) -> None:
    for part in map(object_fields, items(object_fields(candidate.get("content")).get("parts"))):
        code = object_fields(part.get("executableCode"))
        call = object_fields(part.get("functionCall"))
        heard.add_text(part.get("text"), code.get("code"), call.get("name"))
        if "args" in call:
            heard.add_text(json_text(call["args"]))


def _hear_usage(heard: AnswerSoFar, usage: Fields, is_final: bool) -> None:
    """Prompt tokens include cached ones, which only the last chunk may know: the latest counts."""
    prompt = tokens(usage.get("promptTokenCount"))
    if prompt is None:
        return
    cached = min(prompt, tokens(usage.get("cachedContentTokenCount")) or 0.0)
    by_tools = tokens(usage.get("toolUsePromptTokenCount")) or 0.0
    heard.input_tokens, heard.cache_read_tokens = prompt - cached + by_tools, cached
    written = tokens(usage.get("candidatesTokenCount")) or 0.0
    heard.report(None, None, written + (tokens(usage.get("thoughtsTokenCount")) or 0.0))
    heard.is_final = is_final


def whole(answer: Answer) -> bytes:
    parts: list[Fields] = [{"text": answer.text}] if answer.has_text else []
    parts += map(_called, answer.tool_uses)
    return dumped(_response(answer, parts, _finish_reason(answer)))


def opening(_answer: Answer) -> bytes:
    """Nothing comes before the text."""
    return b""


def piece(answer: Answer, _index: int, text: str) -> bytes:
    return event(dumped(_response(answer, [{"text": text}], None)))


def closing(answer: Answer, _wants_usage: bool, _pieces: int) -> bytes:
    """The tools that are wanted, the reason of the end and the usage, in one chunk."""
    parts = list(map(_called, answer.tool_uses)) or [{"text": ""}]
    return event(dumped(_response(answer, parts, _finish_reason(answer))))


def error_event(status: int, body: bytes) -> bytes:
    """Bare JSON without an empty line: older SDKs do not see an error in an event."""
    top = parsed(body)
    top = object_fields(top[0] if isinstance(top, list) and top else top)
    error = object_fields(top.get("error")) or top
    if not (text_of(error.get("message")) and whole_tokens(error.get("code"))):
        said = text_of(error.get("message")) or body.decode("utf-8", "replace")
        error = failure(status, said or f"HTTP {status}")
    return dumped({"error": error}) + b"\n"


def failure(status: int, message: str) -> Fields:
    word = STATUS_WORDS.get(status, "UNKNOWN")
    return {"code": status, "message": message, "status": word}


def counted(input_tokens: int) -> bytes:
    return dumped({"totalTokens": input_tokens, "promptTokensDetails": _as_text(input_tokens)})


def models(names: Iterable[str]) -> bytes:
    data = [
        {
            "name": f"models/{name}",
            "version": "001",
            "displayName": name,
            "description": name,
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }
        for name in names
    ]
    return dumped({"models": data})


def _response(answer: Answer, parts: list[Fields], finish_reason: str | None) -> Fields:
    """A whole answer or a chunk of one; the input is counted in every chunk."""
    candidate: Fields = {"content": {"parts": parts, "role": "model"}}
    prompt_tokens = answer.input_tokens + answer.cache_read_tokens
    usage: Fields = {"promptTokenCount": prompt_tokens}
    if answer.cache_read_tokens:
        usage["cachedContentTokenCount"] = answer.cache_read_tokens
    if finish_reason is None:
        usage["totalTokenCount"] = prompt_tokens
    else:
        candidate["finishReason"] = finish_reason
        usage["candidatesTokenCount"] = answer.output_tokens
        usage["totalTokenCount"] = prompt_tokens + answer.output_tokens
    usage["promptTokensDetails"] = _as_text(prompt_tokens)
    candidate["index"] = 0
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": answer.model,
        "responseId": answer.id,
    }


def _as_text(count: int) -> list[Fields]:
    return [{"modality": "TEXT", "tokenCount": count}]


def _called(use: ToolUse) -> Fields:
    return {
        "functionCall": {
            "id": use.id,
            "name": use.name,
            "args": object_fields(parsed(use.arguments)),
        }
    }


def _finish_reason(answer: Answer) -> str:
    """Tools that are wanted have no reason of their own."""
    return "MAX_TOKENS" if answer.is_cut else "STOP"


@cache
def _snake(name: str) -> str:
    return _UPPER.sub(lambda found: f"_{found[0].lower()}", name)


def _field(of: Fields, name: str) -> object:
    found = of.get(name)
    return of.get(_snake(name)) if found is None else found


def _listed(value: object) -> list[object]:
    """A list; anything else that is there is the only one of its kind."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _count(value: object) -> int | None:
    """Protobuf takes numbers as text, too."""
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return whole_tokens(value)
