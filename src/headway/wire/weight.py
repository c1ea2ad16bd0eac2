"""The size of a text as a vocabulary sees it: in bytes of ordinary text of its kind.

Tokens per byte are not constant within a kind: indentation is long and cheap, digits and symbols
are short and dear, and identifiers are cut where prose is not. Counted in pieces instead (words,
runs of symbols, digits, line ends and indents, bytes of other scripts) code of any density has the
same tokens per piece, to within 5 % on real vocabularies. Pieces are then expressed in bytes, so
that a ratio starts where tokens per byte are known.

Everything is counted by translations and searches of whole byte strings: 8 KB take 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EXACT_BYTES_MAX: Final = 256 * 1024
"""Of a longer text so much is weighed, from its middle; the rest is taken to be like it."""

WORD: Final = 8
SYMBOLS: Final = 9
BREAK: Final = 13
DIGIT: Final = 9
FOREIGN: Final = 5
"""What a piece weighs, in half bytes: fitted to three vocabularies, one for all of them. A foreign
byte is one third of a Korean, Chinese or Japanese character."""

TYPICAL: Final = {"english": 1.9, "code": 2.2, "korean": 4.5, "cjk": 5.0}
"""Half bytes of weight in a byte of ordinary text of a kind."""

TYPICAL_OTHER: Final = 2.0


def weighed_bytes(text: str, content: str) -> int:
    """How many bytes of ordinary text of this kind take as many tokens as this text."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= EXACT_BYTES_MAX:
        return round(_weight(data) / TYPICAL.get(content, TYPICAL_OTHER))
    start = (len(data) - EXACT_BYTES_MAX) // 2
    share = EXACT_BYTES_MAX / len(data)
    weight = _weight(data[start : start + EXACT_BYTES_MAX]) / share
    return round(weight / TYPICAL.get(content, TYPICAL_OTHER))


def _weight(data: bytes) -> int:
    """In half bytes."""
    blanks = b"x" + data.translate(_BLANKS)
    return (
        WORD * (b" " + data.translate(_WORDS)).count(b" x")
        + SYMBOLS * (b" " + data.translate(_SYMBOLS)).count(b" x")
        + BREAK * (blanks.count(b"x\n") + blanks.count(b"x  "))
        + DIGIT * len(data.translate(None, _NO_DIGITS))
        + FOREIGN * len(data.translate(None, _ASCII))
    )


def _table(is_piece: Callable[[str], bool]) -> bytes:
    """A translation: `x` for the bytes of a piece, a blank for all others."""
    return bytes(ord("x" if byte < 128 and is_piece(chr(byte)) else " ") for byte in range(256))


def _is_symbol(char: str) -> bool:
    return char.isprintable() and not char.isalnum() and not char.isspace()


_WORDS: Final = _table(str.isalpha)
_SYMBOLS: Final = _table(_is_symbol)
_BLANKS: Final = bytes(
    byte if byte == ord("\n") else ord(" ") if chr(byte) in " \t\r\f\v" else ord("x")
    for byte in range(256)
)
_ASCII: Final = bytes(range(128))
_NO_DIGITS: Final = bytes(byte for byte in range(256) if byte not in b"0123456789")
