"""What a text is made of and how large it is: the two things from which its tokens follow.

Tokens per byte differ by a factor of two between prose, code and scripts, and little within one
of them. Sizes are those of the text itself in UTF-8, never of its JSON form: Korean that JSON
escapes as `\\uXXXX` takes twice the bytes and the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

Content = Literal["english", "code", "korean", "cjk", "other"]

SAMPLE_WINDOWS: Final = 32
WINDOW_CHARS: Final = 256
SAMPLE_CHARS: Final = SAMPLE_WINDOWS * WINDOW_CHARS
"""Longer texts are looked at through so many windows, spread evenly; that takes up to 1 ms."""

SCRIPT_SHARE_MIN: Final = 0.3
"""From this share of a text's bytes on, a script's own tokens per byte decide its size."""

FOREIGN_SHARE_MIN: Final = 0.015
"""Accented letters among all letters: about 0.001 in English, 0.02 to 0.05 in French or German."""

DIGITS_SHARE_MIN: Final = 0.25
"""Tables of numbers take twice the tokens of prose."""

SYMBOLS_CODE: Final = 0.085
SYMBOLS_MAYBE: Final = 0.045
"""Symbols among what is not blank: under 0.03 in prose, above 0.1 in most code. In between,
indented lines and keywords decide; Markdown is there too."""

SIGNS_MIN: Final = 0.2
"""Lines that are indented or begin with a keyword, of all lines that are not empty."""

_HANGUL: Final = re.compile(r"[\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f]")
_CJK: Final = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_ASCII_LETTER: Final = re.compile(r"[A-Za-z]")
_FOREIGN: Final = re.compile(r"[^\W\d_A-Za-z]")
_DIGITS: Final = b"0123456789"
_SYMBOLS: Final = b'{}()[]<>=;:_/\\+*&|#@$%^~`"'
_BLANKS: Final = bytes(byte for byte in range(128) if chr(byte).isspace())
_BLANK: Final = re.compile(r"\s")
_LINE: Final = re.compile(r"^.*\S.*$", re.M)
_SIGN: Final = re.compile(
    r"^(?:\t| {2,}|(?:def|class|import|from|return|if|for|while|function|const|let|var|public"
    r"|private|static|void|int|struct|fn|pub|use|impl|package|func|type|#include|SELECT|CREATE)\b)",
    re.M,
)


def size_bytes(text: str) -> int:
    """UTF-8 bytes of a text; half a surrogate pair counts as the three that it would take."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_kind(texts: Sequence[str]) -> Content:
    """What most of the texts, taken as one, is made of."""
    sample = _sample(texts)
    if not sample.isascii():
        foreign = _foreign_kind(sample)
        if foreign is not None:
            return foreign
    return _ascii_kind(sample)


def _foreign_kind(sample: str) -> Content | None:
    """The script that decides, if it is not that of English."""
    total = size_bytes(sample) * SCRIPT_SHARE_MIN
    hangul, cjk = len(_HANGUL.findall(sample)), len(_CJK.findall(sample))
    if 3 * (hangul + cjk) >= total:
        return "korean" if hangul >= cjk else "cjk"
    foreign = len(_FOREIGN.findall(sample)) - hangul - cjk
    letters = foreign + len(_ASCII_LETTER.findall(sample))
    return "other" if foreign > FOREIGN_SHARE_MIN * letters else None


def _ascii_kind(sample: str) -> Content:
    data = sample.encode("utf-8", "surrogatepass")
    if len(data) == len(sample):
        inked = len(data.translate(None, _BLANKS))
    else:
        inked = len(sample) - len(_BLANK.findall(sample))
    symbols = len(data) - len(data.translate(None, _SYMBOLS))
    if symbols >= SYMBOLS_CODE * inked > 0:
        return "code"
    if len(data) - len(data.translate(None, _DIGITS)) >= DIGITS_SHARE_MIN * inked > 0:
        return "other"
    if symbols >= SYMBOLS_MAYBE * inked > 0:
        lines = len(_LINE.findall(sample))
        return "code" if len(_SIGN.findall(sample)) >= SIGNS_MIN * lines else "english"
    return "english"


def _sample(texts: Sequence[str]) -> str:
    """All of short texts; of long ones, windows at even distances over all of them."""
    total = sum(map(len, texts))
    if total <= SAMPLE_CHARS:
        return "\n".join(texts)
    windows: list[str] = []
    step, place, start = total // SAMPLE_WINDOWS + 1, 0, 0
    for text in texts:
        while place < start + len(text):
            windows.append(text[place - start : place - start + WINDOW_CHARS])
            place += step
        start += len(text)
    return "\n".join(windows)
