"""A text that is too large for a call, in pieces that fit, cut where its structure allows.

Laws:
- The pieces joined are the text: nothing is dropped, nothing is added.
- Every piece fits, and one text is cut in one way.
- A piece ends at the coarsest structure that allows it: an element of JSON, a section, a paragraph,
  a line, a sentence, a word, and only then anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from json import JSONDecodeError, loads
from typing import Final, NamedTuple

from headway.core.tokens import cut_at_tokens, tokens_at_most

PIECE_TOKENS_MIN: Final = 4
"""A character is three tokens at most: whatever the room, one fits."""

DEPTH_MAX: Final = 8
"""Within how many arrays and objects the elements of JSON are looked for."""

_JSON: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)
_ENDS: Final = (
    re.compile(r"\n(?=#{1,6} )"),  # before a heading of Markdown
    re.compile(r"\n[ \t]*\n+"),  # after a paragraph
    re.compile(r"\n"),
    re.compile(r"[.!?][\"')\]]*\s+|[。！？]"),  # noqa: RUF001 - where sentences of Chinese end
    re.compile(r"\s+"),
)


class _Part(NamedTuple):
    """A part of a text. To count is what takes time: a megabyte takes a tenth of a second."""

    text: str
    tokens: int


def pieces_of(text: str, most: int) -> tuple[str, ...]:
    """The text in pieces of at most so many tokens."""
    most = max(PIECE_TOKENS_MIN, most)
    parts = _sized([text])
    if parts[0].tokens <= most:
        return (text,)
    if _is_json(text):
        for _ in range(DEPTH_MAX):
            parts = _finer(parts, most, _elements)
    for end in _ENDS:
        parts = _finer(parts, most, partial(_cut_at, end))
    return tuple(_packed(_finer(parts, most, lambda part: cut_at_tokens(part, most)), most))


def _sized(texts: Iterable[str]) -> list[_Part]:
    return [_Part(text, tokens_at_most(text)) for text in texts]


def _finer(parts: Iterable[_Part], most: int, cut: Callable[[str], list[str]]) -> list[_Part]:
    """Those that are too large, cut; the others as they are."""
    finer: list[_Part] = []
    for part in parts:
        texts = cut(part.text) if part.tokens > most else ()
        finer += _sized(texts) if len(texts) > 1 else [part]
    return finer


def _packed(parts: Iterable[_Part], most: int) -> list[str]:
    """Neighbours together, as long as they fit."""
    packed: list[str] = []
    held: list[str] = []
    size = 0
    for part in parts:
        if held and size + part.tokens > most:
            packed.append("".join(held))
            held, size = [], 0
        held.append(part.text)
        size += part.tokens
    return [*packed, "".join(held)]


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        loads(text)
    except (JSONDecodeError, RecursionError, ValueError):
        return False
    return True


def _elements(part: str) -> list[str]:
    """Cut behind the commas of the outermost array or object that has any."""
    depth = 0
    found: list[tuple[int, int]] = []
    for token in _JSON.finditer(part):
        char = token[0]
        if char == "," and token.end() < len(part):
            found.append((depth, token.end()))
        depth += (char in "[{") - (char in "]}")
    outermost = min((level for level, _ in found), default=0)
    return _cut(part, [place for level, place in found if level == outermost])


def _cut_at(end: re.Pattern[str], part: str) -> list[str]:
    """Cut behind each place that ends something."""
    return _cut(part, [found.end() for found in end.finditer(part) if found.end() < len(part)])


def _cut(part: str, places: Iterable[int]) -> list[str]:
    edges = [0, *places, len(part)]
    return [part[start:end] for start, end in pairwise(edges)]
