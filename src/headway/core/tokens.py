"""The most tokens that a text can be, by a rule that needs no vocabulary.

Laws:
- It is no more than the bytes of the text, and not less than what the simulated provider counts.
- Two texts joined are at most as many tokens as they are apart.

It is meant to be too high, mostly 1.6 times for English and code, and more for digits, because the
context that it is compared with is a model's window, and what is above that is refused when
everything before it has been paid. A small vocabulary may still need a quarter more for writing
that it hardly knows.
"""

from __future__ import annotations

import re
from typing import Final

_PIECE: Final = re.compile(
    r" ?[A-Z]?[a-z]{1,4}| ?[A-Z]{1,2}| ?[0-9]|\n{1,2}| {2,4}| ?[!-/:-@\[-^`{-~]|.", re.DOTALL
)
"""A word costs a token for every four letters, and a change of case begins another one, so that
base64 is as dear as it is to vocabularies; a space goes with what follows."""


def tokens_at_most(text: str) -> int:
    """A count of tokens that no large vocabulary exceeds for ordinary text."""
    pieces = len(_PIECE.findall(text))
    if text.isascii():
        return pieces
    # A character of n bytes costs n - 1: one is counted already, as a piece.
    size = len(text.encode("utf-8", "surrogatepass"))
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    return pieces + size - len(text) - beyond


def cut_at_tokens(text: str, most: int) -> list[str]:
    """A text in pieces of at most so many tokens, wherever that is; at least 3 of them."""
    pieces: list[str] = []
    start = size = 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        cost = 1 if piece.isascii() else len(piece.encode("utf-8", "surrogatepass")) - 1
        if size + cost > most and found.start() > start:
            pieces.append(text[start : found.start()])
            start, size = found.start(), 0
        size += cost
    pieces.append(text[start:])
    return pieces
