"""A tool as a loop knows it: what the model is told of it, and what happens when it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from headway.errors import UsageError

OBSERVED_CHARS_MAX: Final = 24_000
"""The longest observation: some 6,000 tokens, which every later call of the loop pays again."""

HEAD_SHARE: Final = 0.25
"""How much of a text that is cut is its beginning: what went wrong is said at the end."""

Given = Mapping[str, object]
"""What a model hands to a tool: JSON, from a stranger."""


INSTALL: Final = {
    "pydantic_ai": "pip install 'headway[agents]'",
    "mcp": "pip install 'headway[mcp]'",
}
"""Libraries that loops need, and how to get them."""


def must_be_installed(tools: Iterable[str]) -> None:
    """Refuse a loop with these tools where its libraries are not there; imports none of them."""
    needs_mcp = any(tool.startswith("mcp:") for tool in tools)
    for library in ("pydantic_ai", "mcp") if needs_mcp else ("pydantic_ai",):
        if find_spec(library) is None:
            raise missing(library)


def missing(library: str) -> UsageError:
    """What to do about a library that is not there."""
    return UsageError(
        f"`agent: tools(...)` needs a library that is not installed: {library}",
        hint=INSTALL[library],
    )


class ToolError(Exception):
    """A tool was used in a way that it cannot do: the model sees why, and may try otherwise."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing that a model can ask for."""

    name: str
    about: str
    schema: Mapping[str, object]
    """What it is given, as JSON Schema."""
    use: Callable[[Given], Awaitable[str]]
    """What is observed. Raises ToolError; other errors are headway's."""
    is_doubtful: bool = False
    """Whether to do it twice is not the same as once: it is not done again after an interruption,
    and the model is told that it may have been done."""
    is_live: bool = False
    """Whether it touches what ends with the attempt: done in every attempt, whatever was observed
    in an earlier one."""


def taking(**properties: Mapping[str, object]) -> dict[str, object]:
    """The schema of an object; what has no default is required."""
    required = [name for name, one in properties.items() if "default" not in one]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def text_of(given: Given, name: str, default: str | None = None) -> str:
    """A text that a tool is given."""
    value = given.get(name, default)
    if not isinstance(value, str):
        raise ToolError(f"`{name}` has to be a text")
    return value


def whole_of(given: Given, name: str, default: int, most: int) -> int:
    """A number from 1 on that a tool is given; a larger one than can be is the largest."""
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        raise ToolError(f"`{name}` has to be a number from 1 on")
    return int(min(value, most))


def cut(text: str, most: int = OBSERVED_CHARS_MAX) -> str:
    """A text that is not too long to be observed; what is left out is stated."""
    if len(text) <= most:
        return text
    head = int(most * HEAD_SHARE)
    tail = most - head
    left_out = len(text) - head - tail
    said = f"\n[... {left_out:,} of {len(text):,} characters are left out here ...]\n"
    return f"{text[:head]}{said}{text[-tail:]}"
