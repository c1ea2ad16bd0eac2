"""Answers as providers send them: what the simulated provider and the gateway write.

Laws:
- The official SDKs accept every output in strict validation.
- `opening`, one `piece` for each part of the text in order, and `closing` make a whole stream.
- An `AnswerReader` reads back the answer's tokens from every output that reports them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.wire import anthropic, gemini, openai_chat, openai_responses
from headway.wire.values import Answer, WireName


def whole(wire: WireName, answer: Answer) -> bytes:
    """The JSON body of an answer that is not streamed."""
    if wire == "gemini":
        return gemini.whole(answer)
    if wire == "anthropic":
        return anthropic.whole(answer)
    return openai_chat.whole(answer) if wire == "openai-chat" else openai_responses.whole(answer)


def opening(wire: WireName, answer: Answer) -> bytes:
    """The events before the first text of a stream, of which Gemini has none."""
    if wire == "gemini":
        return b""
    if wire == "anthropic":
        return anthropic.opening(answer)
    if wire == "openai-chat":
        return openai_chat.opening(answer)
    return openai_responses.opening(answer)


def piece(wire: WireName, answer: Answer, index: int, text: str) -> bytes:
    """The event of one part of the text; `index` counts the parts from 0."""
    if wire == "gemini":
        return gemini.piece(answer, text)
    if wire == "anthropic":
        return anthropic.piece(text)
    if wire == "openai-chat":
        return openai_chat.piece(answer, text)
    return openai_responses.piece(answer, index, text)


def closing(wire: WireName, answer: Answer, wants_usage: bool, pieces: int | None = None) -> bytes:
    """The events after the last text, up to the very last one.

    `wants_usage` matters to Chat Completions only, which reports usage when asked to. `pieces`
    matters to Responses only, whose events are numbered: without it the numbers of the last
    events are higher than those before by more than one, which no reader minds.
    """
    if wire == "gemini":
        return gemini.closing(answer)
    if wire == "anthropic":
        return anthropic.closing(answer)
    if wire == "openai-chat":
        return openai_chat.closing(answer, wants_usage)
    return openai_responses.closing(answer, len(answer.text) if pieces is None else pieces)


def error_event(wire: WireName, status: int, body: bytes) -> bytes:
    """An error after HTTP 200: the error body of a refusal with `status`, as an event."""
    if wire == "gemini":
        return gemini.error_event(status, body)
    if wire == "anthropic":
        return anthropic.error_event(status, body)
    if wire == "openai-chat":
        return openai_chat.error_event(status, body)
    return openai_responses.error_event(status, body)


def counted(wire: WireName, input_tokens: int) -> bytes:
    """The answer to a call that only counts; Chat Completions has none and borrows Responses'."""
    if wire == "gemini":
        return gemini.counted(input_tokens)
    if wire == "anthropic":
        return anthropic.counted(input_tokens)
    return openai_responses.counted(input_tokens)


def models(wire: WireName, names: Iterable[str]) -> bytes:
    """The list of models."""
    if wire == "gemini":
        return gemini.models(names)
    return anthropic.models(names) if wire == "anthropic" else openai_chat.models(names)
