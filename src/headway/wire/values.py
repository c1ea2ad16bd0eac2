"""What the formats of all providers have in common: the nouns of a call on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

WireName = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]
"""Anthropic Messages, OpenAI Chat Completions, OpenAI Responses, Gemini generateContent."""

Purpose = Literal["generate", "count"]
"""A call that a model answers, or one that only counts the tokens of its input."""


REQUEST_BYTES_MAX: Final = 32 * 1024 * 1024
"""The largest request that a provider takes."""

ARGUMENT_PIECE_CHARS: Final = 24
"""How much of a tool's arguments one event of a stream has: about as many tokens as one of text."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a method and a path ask for. Other paths are nobody's business."""

    wire: WireName
    purpose: Purpose = "generate"
    model: str = ""
    """The model, where the path names it and not the body: on Gemini's wire."""
    streams: bool = False
    """Whether the path asks for a stream, which elsewhere the body does."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request as a model sees it: what the simulated provider answers."""

    model: str
    system: str
    turns: tuple[tuple[str, str], ...]
    """(role, text) in order; the last one is what is asked."""
    streams: bool
    max_output_tokens: int | None
    wants_usage: bool = True
    """Whether a stream ends with its usage; Chat Completions sends it only when asked."""
    tools: tuple[str, ...] = ()
    """The names of the tools that the model may use, in order."""
    schema: str = ""
    """The JSON Schema that the answer must follow, as JSON; empty where it is free."""
    media_bytes: int = 0
    """What images and documents weigh, in bytes of text."""

    @property
    def text(self) -> str:
        """Everything that was said, in order."""
        return "\n".join([self.system, *(text for _, text in self.turns)])


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A model wants a tool used."""

    id: str
    name: str
    arguments: str
    """A JSON object."""

    @property
    def pieces(self) -> list[str]:
        """The arguments in the parts in which a stream has them."""
        starts = range(0, len(self.arguments), ARGUMENT_PIECE_CHARS)
        return [self.arguments[start : start + ARGUMENT_PIECE_CHARS] for start in starts]


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer, or as much of one as there is."""

    id: str
    model: str
    text: str
    input_tokens: int
    """Without those read from the prompt cache."""
    output_tokens: int
    cache_read_tokens: int = 0
    is_cut: bool = False
    """It ended at the longest length allowed."""
    created_wall_s: float = 0.0
    tool_uses: tuple[ToolUse, ...] = ()
    """After the text; where there are any, the model waits for their results."""
    cache_write_tokens: int = 0
    """Of the input, those that are written into the prompt cache."""

    @property
    def has_text(self) -> bool:
        """Whether a text is written, which may be empty: not if only tools are wanted."""
        return bool(self.text) or not self.tool_uses
