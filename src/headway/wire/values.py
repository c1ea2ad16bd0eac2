"""What the formats of all providers have in common: the nouns of a call on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WireName = Literal["anthropic", "openai-chat", "openai-responses"]
"""Anthropic Messages, OpenAI Chat Completions, OpenAI Responses."""

Purpose = Literal["generate", "count"]
"""A call that a model answers, or one that only counts the tokens of its input."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a method and a path ask for. Other paths are nobody's business."""

    wire: WireName
    purpose: Purpose = "generate"


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

    @property
    def text(self) -> str:
        """Everything that was said, in order."""
        return "\n".join([self.system, *(text for _, text in self.turns)])


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
