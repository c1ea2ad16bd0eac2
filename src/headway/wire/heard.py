"""What an answer has told so far: its tokens, whether it is over, and whether it failed.

Laws:
- Reported tokens never fall: every provider reports totals so far.
- Tokens are `reported` only once the report is final; until then they are the larger of what was
  reported and what the text that passed was probably made of.
"""

from __future__ import annotations

import json
from typing import Final

from headway.core.quota.demand import TOKENS_PER_BYTE
from headway.core.quota.refusal import parse_stream_error
from headway.core.values import Fault, Known, Tally
from headway.wire.loose import Fields, fields, parsed, tokens
from headway.wire.weight import weighed_bytes

ASCII_TOKENS_PER_BYTE: Final = TOKENS_PER_BYTE["english"]
OTHER_TOKENS_PER_BYTE: Final = TOKENS_PER_BYTE["korean"]
"""An answer's text is counted as it passes, so that each byte has to speak for itself."""

USAGES_TRIED_MAX: Final = 16
"""Places of an excerpt in which usage is looked for."""

_OTHER: Final = bytes(range(128, 256))


class Heard:
    """Collects what the events or the body of one answer tell."""

    __slots__ = (
        "_passed_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "fault",
        "input_tokens",
        "is_damaged",
        "is_final",
        "is_finished",
        "is_over",
        "long_write_tokens",
        "open_choices",
        "reported_tokens",
    )

    def __init__(self) -> None:
        self.input_tokens: float | None = None
        self.cache_read_tokens: float | None = None
        self.cache_write_tokens: float | None = None
        self.long_write_tokens: float | None = None
        """Both are part of the input."""
        self.reported_tokens: float | None = None
        self.is_damaged = False
        """Something of the answer could not be read."""
        self.is_final = False
        """The last usage was reported."""
        self.is_finished = False
        """The text is complete; something may follow it."""
        self.is_over = False
        """Nothing follows."""
        self.open_choices: set[int] = set()
        """Of several answers to one call, those that are not complete yet."""
        self.fault: Fault | None = None
        self._passed_tokens = 0.0

    def __repr__(self) -> str:
        return f"<Heard {self.tally()}{', over' if self.is_over else ''}>"

    @property
    def output_tokens(self) -> float:
        """Tokens of the answer so far."""
        reported = self.reported_tokens or 0.0
        if self.is_final:
            return reported
        return max(reported, self._passed_tokens)

    def tally(self) -> Tally:
        """What the call consumed, as far as it can be told."""
        output_tokens = self.output_tokens
        known: Known = "reported" if self.is_final else "estimated"
        if not (self.is_final or output_tokens or self.input_tokens is not None):
            known = "unknown"
        return Tally(
            self.input_tokens or 0.0, self.cache_read_tokens or 0.0, output_tokens, known,
            self.cache_write_tokens or 0.0, self.long_write_tokens or 0.0,
        )  # fmt: skip

    def report(
        self, input_tokens: float | None, cache_read_tokens: float | None, output: float | None
    ) -> None:
        """The provider told tokens so far; `None` is what it did not tell."""
        self.input_tokens = _larger(self.input_tokens, input_tokens)
        self.cache_read_tokens = _larger(self.cache_read_tokens, cache_read_tokens)
        self.reported_tokens = _larger(self.reported_tokens, output)

    def report_written(self, written: float | None, long: float | None) -> None:
        """Of the input that was told, what was written into the cache; of that, for an hour."""
        self.cache_write_tokens = _larger(self.cache_write_tokens, written)
        self.long_write_tokens = _larger(self.long_write_tokens, long)

    def read(self, data: bytes) -> Fields:
        """The object of an event; an empty one if it cannot be read."""
        top = fields(parsed(data))
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
        if self.fault is None:
            said = payload if isinstance(payload, bytes) else json.dumps(payload)
            self.fault = parse_stream_error(said)
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
    """Both of OpenAI's formats count cached tokens as a part of the input, in `<name>_details`.

    DeepSeek tells cached tokens in a field of its own.
    """
    total = tokens(usage.get(name))
    cached = tokens(fields(usage.get(f"{name}_details")).get("cached_tokens"))
    if cached is None:
        cached = tokens(usage.get("prompt_cache_hit_tokens"))
    if total is None:
        return None, None
    return max(0.0, total - (cached or 0.0)), min(cached or 0.0, total)


def usage_in(excerpt: bytes, name: str, key: str = "usage") -> Fields:
    """The usage in a body whose middle is missing: the last object of that key with `name` in it.

    Within text, quotes are escaped, so that a text about usage is not taken for it.
    """
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
            if name in fields(found):
                return fields(found)
    return {}


def _larger(known: float | None, told: float | None) -> float | None:
    return known if told is None else told if known is None else max(known, told)
