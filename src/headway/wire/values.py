"""What all providers' formats share."""

from __future__ import annotations

import json
from typing import Final, Literal

from msgspec import Struct

from headway.base.fields import Fields, object_fields, parsed, tokens, whole_tokens
from headway.base.values import Fault, Known, Tally
from headway.pacing.estimate import TOKENS_PER_BYTE
from headway.pacing.refusal import parse_stream_error

WireName = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]
"""Anthropic Messages, OpenAI Chat Completions, OpenAI Responses, Gemini generateContent."""

Purpose = Literal["generate", "count"]
"""A call that a model answers, or one that only counts the tokens of its input."""


REQUEST_BYTES_MAX: Final = 32 * 1024 * 1024
"""The largest request that a provider takes."""
ARGUMENT_PIECE_CHARS: Final = 24
"""How much of a tool's arguments one event of a stream has: about as many tokens as one of text."""


class Route(Struct, frozen=True):
    wire: WireName
    purpose: Purpose = "generate"
    model: str = ""
    """The model, where the path names it and not the body: on Gemini's wire."""
    streams: bool = False
    """Whether the path asks for a stream, which elsewhere the body does."""


class Conversation(Struct, frozen=True):
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
        return "\n".join([self.system, *(text for _, text in self.turns)])


class ToolUse(Struct, frozen=True):
    id: str
    name: str
    arguments: str

    @property
    def pieces(self) -> list[str]:
        starts = range(0, len(self.arguments), ARGUMENT_PIECE_CHARS)
        return [self.arguments[start : start + ARGUMENT_PIECE_CHARS] for start in starts]


class Answer(Struct, frozen=True):
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


# Bytes that may be too many to keep: all of them, or their beginning and their end.

WHOLE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Kept whole: 128,000 tokens of text, as JSON with every character escaped, are 1.5 MiB."""
END_BYTES: Final = 64 * 1024
"""Kept of each end of more than that. Providers write usage after the text, or before it."""


class Excerpt:
    """Collects bytes within `WHOLE_BYTES_MAX`; how they were split makes no difference."""

    _kept: bytes | bytearray = b""
    """What came in one piece is not copied."""
    _head = b""
    size_bytes = 0
    """All that came, kept or not."""

    @property
    def is_cut(self) -> bool:
        return self.size_bytes > WHOLE_BYTES_MAX

    def add(self, data: bytes) -> None:
        if not self.size_bytes:
            self._kept = data
        else:
            if isinstance(self._kept, bytes):
                self._kept = bytearray(self._kept)
            self._kept += data
        self.size_bytes += len(data)
        if self.size_bytes > WHOLE_BYTES_MAX:
            self._head = self._head or bytes(self._kept[:END_BYTES])
            # The end grows to twice its length before it is cut, so that each byte is moved
            # about once, however few come at a time.
            if len(self._kept) > 2 * END_BYTES:
                self._kept = self._kept[-END_BYTES:]

    def take(self) -> bytes:
        """What was kept, with which the excerpt starts anew."""
        data = self.kept()
        self._kept, self._head, self.size_bytes = b"", b"", 0
        return data

    def kept(self) -> bytes:
        """What was kept; of a cut excerpt the beginning, a line end, and the end."""
        if self._head:
            return self._head + b"\n" + self._kept[-END_BYTES:]
        return bytes(self._kept)


# The size of a text as a vocabulary sees it: in bytes of ordinary text of its kind.

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
    kinds = int.from_bytes(data.translate(_KINDS), "little")
    before = kinds << 8
    begins = kinds & ~before
    # The text is taken to follow a character that is not blank.
    after_ink = before >> _INK & _ONES | 1
    breaks = (kinds >> _LINE_END & after_ink).bit_count()
    indents = (kinds & before) >> _SPACE & after_ink << 8 & _ONES
    return (
        WORD * (begins >> _LETTER & _ONES).bit_count()
        + SYMBOLS * (begins >> _SYMBOL & _ONES).bit_count()
        + BREAK * (breaks + indents.bit_count())
        + DIGIT * (kinds >> _DIGIT & _ONES).bit_count()
        + FOREIGN * (0 if data.isascii() else len(data.translate(None, _ASCII)))
    )


def _byte_kind(byte: int) -> int:
    """The bits of one byte; those of other scripts are ink and nothing else."""
    char = chr(byte)
    if char in _BLANKS:
        return 1 << (_LINE_END if char == "\n" else _SPACE)
    bits = 1 << _INK
    if byte >= 128 or not char.isprintable():
        return bits
    return bits | 1 << (_LETTER if char.isalpha() else _DIGIT if char.isdigit() else _SYMBOL)


_LETTER, _SYMBOL, _LINE_END, _SPACE, _INK, _DIGIT = range(6)

_BLANKS: Final = " \t\r\f\v\n"
_KINDS: Final = bytes(map(_byte_kind, range(256)))
_ONES: Final = int.from_bytes(b"\1" * (EXACT_BYTES_MAX + 1), "little")
_ASCII: Final = bytes(range(128))


# What an answer has reported so far: its tokens, whether it is over, and whether it failed.

ASCII_TOKENS_PER_BYTE: Final = TOKENS_PER_BYTE["english"]
OTHER_TOKENS_PER_BYTE: Final = TOKENS_PER_BYTE["korean"]
"""An answer's text is counted as it passes, so that each byte has to speak for itself."""
USAGES_TRIED_MAX: Final = 16
"""Places of an excerpt in which usage is looked for."""
CHOICES_MAX: Final = 128
"""The most answers of one call that are told apart."""
_OTHER: Final = bytes(range(128, 256))


class AnswerSoFar:
    input_tokens: float | None = None
    cache_read_tokens: float | None = None
    cache_write_tokens: float | None = None
    long_write_tokens: float | None = None
    """Both are part of the input."""
    reported_tokens: float | None = None
    is_damaged = False
    """Something of the answer could not be read."""
    is_final = False
    """The last usage was reported."""
    is_finished = False
    """The text is complete; something may follow it."""
    is_over = False
    """Nothing follows."""
    open_choices: frozenset[int] = frozenset()
    """Of several answers to one call, those that are not complete yet."""
    failure: Fault | None = None
    _passed_tokens = 0.0

    @property
    def output_tokens(self) -> float:
        reported = self.reported_tokens or 0.0
        if self.is_final:
            return reported
        return max(reported, self._passed_tokens)

    @property
    def tally(self) -> Tally:
        """`estimated` counts the text that passed; an input of 0 was not reported there."""
        output_tokens = self.output_tokens
        known: Known = "reported" if self.is_final else "estimated"
        if not (self.is_final or output_tokens or self.input_tokens is not None):
            known = "unknown"
        return Tally(
            self.input_tokens or 0.0, self.cache_read_tokens or 0.0, output_tokens, known,
            self.cache_write_tokens or 0.0, self.long_write_tokens or 0.0,
        )  # fmt: skip

    def report(
        self, input_tokens: float | None, cache_read: float | None, output_tokens: float | None,
        cache_write: float | None = None, long_write: float | None = None,
    ) -> None:  # fmt: skip
        """Tokens that the provider reported; `None` is what it did not report."""
        if input_tokens is not None:
            self.input_tokens = max(self.input_tokens or 0.0, input_tokens)
        if cache_read is not None:
            self.cache_read_tokens = max(self.cache_read_tokens or 0.0, cache_read)
        if output_tokens is not None:
            self.reported_tokens = max(self.reported_tokens or 0.0, output_tokens)
        if cache_write is not None:
            self.cache_write_tokens = max(self.cache_write_tokens or 0.0, cache_write)
        if long_write is not None:
            self.long_write_tokens = max(self.long_write_tokens or 0.0, long_write)

    def hear_choice(self, index: object, is_complete: bool) -> None:
        number = min(CHOICES_MAX, whole_tokens(index) or 0)
        if is_complete:
            self.open_choices -= {number}
            self.is_finished = not self.open_choices
        elif number not in self.open_choices:
            self.open_choices |= {number}

    def read(self, data: bytes) -> Fields:
        top = object_fields(parsed(data))
        self.is_damaged = self.is_damaged or not top
        return top

    def add_text(self, *values: object) -> None:
        """Parts of the answer; whatever is not text counts nothing."""
        for value in values:
            if isinstance(value, str) and value:
                self._count(value)

    def add_json_text(self, literal: bytes) -> None:
        """A part of the answer that is still between its JSON quotes."""
        if b"\\" in literal:
            self.add_text(parsed(b'"' + literal + b'"'))
        else:
            self._count(literal.decode("utf-8", "replace"))

    def fail(self, payload: bytes | Fields) -> None:
        """The provider reported an error in place of an answer; nothing follows it."""
        if self.failure is None:
            said = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            self.failure = parse_stream_error(said)
        self.is_over = True

    def _count(self, text: str) -> None:
        """ASCII by its bytes or by its words, digits and symbols, whichever is more: an answer
        that breaks off is not to be counted below what is charged for it."""
        data = text.encode("utf-8", "replace")
        plain = data if text.isascii() else data.translate(None, _OTHER)
        weight = max(len(plain), weighed_bytes(plain.decode(), "english"))
        other = len(data) - len(plain)
        self._passed_tokens += weight * ASCII_TOKENS_PER_BYTE + other * OTHER_TOKENS_PER_BYTE


def input_and_cached(usage: Fields, name: str) -> tuple[float | None, float | None]:
    """Both of OpenAI's formats count cached tokens in the input; DeepSeek has its own field."""
    total = tokens(usage.get(name))
    cached = tokens(object_fields(usage.get(f"{name}_details")).get("cached_tokens"))
    if cached is None:
        cached = tokens(usage.get("prompt_cache_hit_tokens"))
    if total is None:
        return None, None
    return max(0.0, total - (cached or 0.0)), min(cached or 0.0, total)


def usage_in(excerpt: bytes, name: str, key: str = "usage") -> Fields:
    """The last object of that key with `name` in it. Within text, quotes are escaped."""
    decoder, end, quoted = json.JSONDecoder(), len(excerpt), f'"{key}"'.encode()
    for _ in range(USAGES_TRIED_MAX):
        end = excerpt.rfind(quoted, 0, end)
        if end < 0:
            break
        after = end + len(quoted)
        text = excerpt[after : after + 4096].decode("utf-8", "replace").lstrip()
        if excerpt[end - 1 : end] != b"\\" and text.startswith(":"):
            try:
                found, _ = decoder.raw_decode(text[1:].lstrip())
            except (ValueError, RecursionError):
                continue
            if name in object_fields(found):
                return object_fields(found)
    return {}
