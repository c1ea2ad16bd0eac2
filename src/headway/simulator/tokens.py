"""Tokens of the simulated provider: a fixed rule that behaves like a vocabulary and needs none.

Laws:
- The tokens of a text, joined, are the text.
- A word of up to seven letters is one token together with the space before it, a longer one is
  several; three digits, three letters of another alphabet, a run of line ends and a run of spaces
  are one each; so is every Chinese, Japanese or Korean character and every other symbol.
- Tokens per byte depend on the content, as with a real vocabulary: about 0.2 for English prose,
  0.3 for Korean, 0.4 for code.
- Filler of n tokens counts as n tokens.
"""

from __future__ import annotations

import re
from typing import Final

from headway.wire.values import Conversation

_SCRIPTS: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN: Final = re.compile(
    rf" ?[A-Za-z]{{1,7}}| ?[0-9]{{1,3}}| ?[{_SCRIPTS}]| ?[^\W\d_{_SCRIPTS}]{{1,3}}|\n+| {{2,16}}"
    r"| ?[^\w\s]|.",
    re.DOTALL,
)

TURN_TOKENS: Final = 3
"""What marks the beginning, the role and the end of a turn."""

MEDIA_TOKENS_PER_BYTE: Final = 0.3
"""An image of 5,000 bytes on the wire's own scale takes 1,500 tokens."""

_WORDS: Final = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "work", "number", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study",
    "book", "eye", "word", "issue", "side", "kind", "head", "house", "service", "friend", "father",
    "power", "hour", "game", "line", "end", "member", "law", "car", "city", "name", "team",
)  # fmt: skip
_RING: Final = tuple(f" {word}" for word in _WORDS)
_STRIDE: Final = 17
"""Coprime to the number of words, so that a text runs through all of them before it repeats."""


def pieces_of(text: str) -> list[str]:
    """The tokens of a text, in order."""
    return _TOKEN.findall(text)


def count(text: str) -> int:
    """How many tokens a text is."""
    return len(_TOKEN.findall(text))


def input_tokens(conversation: Conversation) -> int:
    """What a model reads: the text of every turn, what marks the turns, and what is not text."""
    turns = len(conversation.turns) + (1 if conversation.system else 0)
    media_tokens = round(MEDIA_TOKENS_PER_BYTE * conversation.media_bytes)
    return count(conversation.text) + TURN_TOKENS * turns + media_tokens


def filler(tokens: int, start: int) -> list[str]:
    """Words that say nothing: exactly so many tokens, the same for the same start."""
    size = len(_RING)
    found = [_RING[(start + _STRIDE * index) % size] for index in range(tokens)]
    if found:
        found[0] = found[0].lstrip()
    return found
