"""Calls as headway makes them itself: the body of a request in its provider's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.errors import InternalError
from headway.wire.loose import Fields, dumped
from headway.wire.values import WireName

VERSION: Final = "2023-06-01"
"""Of Anthropic Messages; a call names it in the header `anthropic-version`."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a model."""

    model: str
    turns: tuple[tuple[str, str], ...]
    """(role, text) in order: `user`, then in turn `assistant` and `user`."""
    max_tokens: int
    system: str = ""
    says_completion: bool = False
    """Whether the longest answer is called `max_completion_tokens`: OpenAI itself wants that, most
    others that speak its format know only the older `max_tokens`."""


def body_of(wire: WireName, question: Question) -> bytes:
    """The body of a call whose answer streams and ends with its usage."""
    turns = [{"role": role, "content": text} for role, text in question.turns]
    if wire == "anthropic":
        body: Fields = {"model": question.model, "max_tokens": question.max_tokens}
        if question.system:
            body["system"] = question.system
        return dumped({**body, "messages": turns, "stream": True})
    if wire != "openai-chat":
        raise InternalError(f"headway makes no calls in the format {wire}")
    if question.system:
        turns.insert(0, {"role": "system", "content": question.system})
    longest = "max_completion_tokens" if question.says_completion else "max_tokens"
    return dumped(
        {
            "model": question.model,
            longest: question.max_tokens,
            "messages": turns,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
