"""The text of a reply, from its bytes.

Laws:
- Never raises: what cannot be read is not text, and an answer that ends badly is not complete.
- Text does not depend on how the bytes were split.
- What the model thought, and calls of tools, are not the answer.

How much an answer consumed and why it failed is read by the exchange that the bytes pass through.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from headway.base import fields
from headway.wire import anthropic, gemini, openai_chat, openai_responses, values
from headway.wire.openai_chat import DONE
from headway.wire.stream import EventReader

Finish = Literal["", "stop", "length", "refusal", "tool"]
"""Why the text is over: complete, at its longest, declined, or a tool wanted; empty: it is not."""

TEXT_CHARS_MAX: Final = 8 * 1024 * 1024
"""A hundred times the longest answer of current models; a longer one is damaged."""

_FINISHES: Final[dict[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "stop": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "length": "length",
    "refusal": "refusal",
    "content_filter": "refusal",
    "tool_use": "tool",
    "tool_calls": "tool",
    "function_call": "tool",
}


class TextReader:
    """Reads one answer, streamed or whole, in Anthropic Messages or Chat Completions."""

    __slots__ = ("_body", "_chars", "_events", "_parts", "_wire", "finish",
                 "is_damaged", "is_over")  # fmt: skip

    def __init__(self, wire: values.WireName, is_stream: bool = True) -> None:
        self._wire = wire
        self._events = EventReader() if is_stream else None
        self._body = values.Excerpt()
        self._parts: list[str] = []
        self._chars = 0
        self.finish: Finish = ""
        self.is_over = False
        """Whether the last event was seen."""
        self.is_damaged = False
        """Whether something came that cannot be read: some of the text may be missing."""

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def feed(self, data: bytes) -> None:
        if self._events is None:
            self._body.add(data)
            return
        for _, found in self._events.feed(data):
            self._hear(found)

    def end(self) -> None:
        if self._events is not None:
            for _, found in self._events.end():
                self._hear(found)
        else:
            self._hear_whole(fields.object_fields(fields.parsed(self._body.take())))

    def _hear(self, data: bytes) -> None:
        if data.startswith(DONE):
            self.is_over = True
            return
        top = fields.object_fields(fields.parsed(data))
        self.is_damaged = self.is_damaged or not top
        if self._wire == "anthropic":
            delta = fields.object_fields(top.get("delta"))
            if delta.get("type") == "text_delta":
                self._add(delta.get("text"))
            self._finished(delta.get("stop_reason"))
            self.is_over = self.is_over or top.get("type") == "message_stop"
            return
        for choice in map(fields.object_fields, fields.items(top.get("choices"))):
            self._add(fields.object_fields(choice.get("delta")).get("content"))
            self._finished(choice.get("finish_reason"))

    def _hear_whole(self, body: fields.Fields) -> None:
        if self._wire == "anthropic":
            for block in map(fields.object_fields, fields.items(body.get("content"))):
                if block.get("type") == "text":
                    self._add(block.get("text"))
            self._finished(body.get("stop_reason"))
        else:
            for choice in map(fields.object_fields, fields.items(body.get("choices"))):
                self._add(fields.object_fields(choice.get("message")).get("content"))
                self._finished(choice.get("finish_reason"))
        self.is_over = bool(self.finish)

    def _add(self, value: object) -> None:
        text = fields.text_of(value)
        if len(text) + self._chars > TEXT_CHARS_MAX:
            self.is_damaged = True
        elif text:
            self._parts.append(text)
            self._chars += len(text)

    def _finished(self, reason: object) -> None:
        """An unknown reason ends the text all the same."""
        if reason:
            self.finish = _FINISHES.get(fields.text_of(reason), "stop")


# Answers as providers send them: what the simulated provider and the gateway write.


def counted(wire: values.WireName, input_tokens: int) -> bytes:
    """The answer to a call that only counts; Chat Completions has none and borrows Responses'."""
    if wire == "gemini":
        return gemini.counted(input_tokens)
    if wire == "anthropic":
        return anthropic.counted(input_tokens)
    return openai_responses.counted(input_tokens)


def models(wire: values.WireName, names: Iterable[str]) -> bytes:
    if wire == "gemini":
        return gemini.models(names)
    return anthropic.models(names) if wire == "anthropic" else openai_chat.models(names)


def error_body(wire: values.WireName | None, status: int, code: str, message: str) -> fields.Fields:
    if wire == "anthropic":
        kind = anthropic.TYPE_OF_STATUS.get(status, "api_error" if status >= 500 else _BAD)
        return {"type": "error", "error": {"type": kind, "message": message}}
    if wire == "gemini":
        return {"error": gemini.failure(status, message)}
    # Codex takes a code for a reason; the status and the type tell others what kind it is.
    inner = {"message": message, "type": openai_type(status), "param": None, "code": code}
    return {"error": inner}


_BAD: Final = "invalid_request_error"


def openai_type(status: int) -> str:
    if status == 402:
        return "insufficient_quota"
    if status == 429:
        return "rate_limit_exceeded"
    return "server_error" if status >= 500 else _BAD
