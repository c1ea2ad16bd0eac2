"""A request of any format, in parts as the model reads them.

Laws:
- Parts are in the order in which every provider builds its prompt: tools, system, messages.
- A digest covers what the provider's prompt cache covers, so equal digests are equal beginnings.
- What is not text has a fixed size: it is not looked into. Text is weighed by `weighed_bytes`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal
from unicodedata import normalize

from msgspec import Struct

from headway.base.fields import Fields, dumped, parsed
from headway.base.values import CACHE_S, Sketch
from headway.errors import InternalError
from headway.wire.values import Conversation, WireName, weighed_bytes

# What a text is made of and how large it is: the two things from which its tokens follow.

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
_BLANK_RUNS: Final = bytes(byte for byte in range(128) if chr(byte).isspace())
_BLANK: Final = re.compile(r"\s")
_LINE: Final = re.compile(r"^.*\S.*$", re.M)
_SIGN: Final = re.compile(
    r"^(?:\t| {2,}|(?:def|class|import|from|return|if|for|while|function|const|let|var|public"
    r"|private|static|void|int|struct|fn|pub|use|impl|package|func|type|#include|SELECT|CREATE)\b)",
    re.M,
)


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
    total = len(sample.encode("utf-8", "surrogatepass")) * SCRIPT_SHARE_MIN
    hangul, cjk = len(_HANGUL.findall(sample)), len(_CJK.findall(sample))
    if 3 * (hangul + cjk) >= total:
        return "korean" if hangul >= cjk else "cjk"
    foreign = len(_FOREIGN.findall(sample)) - hangul - cjk
    letters = foreign + len(_ASCII_LETTER.findall(sample))
    return "other" if foreign > FOREIGN_SHARE_MIN * letters else None


def _ascii_kind(sample: str) -> Content:
    data = sample.encode("utf-8", "surrogatepass")
    if len(data) == len(sample):
        inked = len(data.translate(None, _BLANK_RUNS))
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


IMAGE_BYTES: Final = 5_000
"""1,500 tokens at the 0.3 tokens per byte where an unknown content starts. Anthropic scales an
image down to about 1,600 tokens at most, OpenAI to about 1,100; small ones cost less, and too
high an estimate costs a wait where too low a one costs a refusal."""

PAGE_BYTES: Final = 8_000
DATA_PER_PAGE_BYTES: Final = 50_000
"""A page of a PDF is an image and its text, 1,500 to 3,000 tokens; pages of 50 kB are usual."""
PAGES_MAX: Final = 100
"""Anthropic's longest document."""
MEDIA_SHARE_MIN: Final = 0.1
"""From this share on, what is not text has a ratio of its own, and does not spoil that of text."""
CACHEABLE_BYTES_MIN: Final = 4096
"""1,024 tokens: the shortest beginning that OpenAI and most of Anthropic's models keep."""
OVERHEAD_TOKENS: Final = 64
"""What a chat template adds to a call beside the turns: up to 70 tokens (gpt-oss). The JSON around
each turn is longer than the 3 to 8 tokens that mark it."""
TOOLS_TOKENS: Final = 1_000
"""What providers add about tools and schemas beside their JSON: up to 530 tokens (Anthropic)."""
INSTRUCTIONS: Final = ("tools", "system")
REPLIES: Final = ("assistant", "model")
"""The roles of what a model said: before it, the prompt of an earlier call ended."""
TURNS_MAX: Final = 2
"""Earlier prompts of a conversation that are looked for: the last one, and the one before where the
last was not kept."""
Beginning = tuple[str, int]
"""Digest and bytes; an empty digest where it is too short to be kept."""
NO_BEGINNINGS: Final[tuple[Beginning, tuple[Beginning, ...], Beginning]] = ("", 0), (), ("", 0)
"""Of a prompt that is too short."""
TOOL: Final = "tool"
"""The role of what a tool gave, on every wire."""
SETTINGS_KEPT: Final = 64
"""Settings whose digests are looked up: a program has a few, and each is a dozen bytes."""
DIGEST_BYTES: Final = 8
"""16 hex digits: an account has far fewer than 2^32 prompts."""


class RequestPart(Struct, frozen=True):
    role: str
    """`tools`, `system`, or the role of the message that it is a part of."""
    text: str = ""
    media: str = ""
    """The data or the address of what is not text; only its digest is ever used."""
    media_bytes: int = 0
    keeps_s: float = 0.0
    """How long the provider is asked to keep everything up to here; 0 if it is not."""
    message: int = 0
    """Which message it belongs to, from 1; tools and system belong to none."""


class RequestContent(Struct, frozen=True):
    model: str
    parts: tuple[RequestPart, ...]
    max_output_tokens: int | None = None
    choices: int = 1
    streams: bool = False
    wants_usage: bool = True
    effort: str = ""
    """Settings that change how long an answer is: thinking, reasoning, verbosity."""
    cache_key: str = ""
    caches_by_itself: bool = False
    """The provider keeps what is said first without being asked to."""
    is_continued: bool = False
    """It goes on with a conversation that the provider stores and that is not seen here."""
    tools: tuple[str, ...] = ()
    schema: str = ""


def sketch_of(asked: RequestContent, body: bytes) -> Sketch:
    """Sizes and digests; nothing of the text remains."""
    content: str = content_kind([part.text for part in asked.parts])
    sizes: list[int] = []
    told: list[RequestPart] = []
    media_bytes = messages = marked = 0
    has_system, keeps_s = False, CACHE_S
    for place, part in enumerate(asked.parts, 1):
        sizes.append(part.media_bytes + weighed_bytes(part.text, content))
        media_bytes += part.media_bytes
        messages = max(messages, part.message)
        if part.keeps_s:
            marked, keeps_s = place, part.keeps_s
        if part.role in INSTRUCTIONS:
            told.append(part)
            has_system = has_system or (part.role == "system" and part.message == 0)
    total_bytes = sum(sizes)
    if media_bytes > MEDIA_SHARE_MIN * total_bytes:
        content = "media"
    if asked.is_continued:
        content = "continued"
    if asked.caches_by_itself and not marked:
        marked = len(asked.parts)
    whole, turns, instructions = NO_BEGINNINGS
    if total_bytes >= CACHEABLE_BYTES_MIN:
        whole, turns, instructions = _beginnings(asked, sizes, marked)
    # Calls with the same model, system prompt, tools and settings answer at similar length.
    settings = asked.effort, str(asked.choices)
    digest = _digest(settings, told) if told else _settings_digest(*settings)
    kind = f"{asked.model}#{digest[:8]}"
    limit = asked.max_output_tokens
    return Sketch(
        model=asked.model, content=content, size_bytes=total_bytes,
        messages=max(1, messages + has_system), most_input_tokens=_most_input(asked, body),
        max_output_tokens=None if limit is None else limit * asked.choices, kind=kind,
        prefix=whole[0], prefix_bytes=whole[1], turns=turns,
        shared=instructions[0], shared_bytes=instructions[1], keeps_s=keeps_s,
        may_write_cache=asked.caches_by_itself or marked > 0, is_whole=not asked.streams,
    )  # fmt: skip


def _beginnings(
    asked: RequestContent, sizes: list[int], marked: int
) -> tuple[Beginning, tuple[Beginning, ...], Beginning]:
    """What the provider can keep of a prompt that is kept up to `marked`: all of that; up to where
    earlier prompts of the conversation ended, which is before a reply; the instructions."""
    parts = asked.parts[:marked]
    is_told = [part.role in INSTRUCTIONS for part in parts]
    shared = is_told.index(False) if False in is_told else marked
    if not (asked.caches_by_itself or any(part.keeps_s for part in parts[:shared])):
        shared = 0
    ends = [
        place
        for place in range(1, marked)
        if parts[place].role in REPLIES and parts[place - 1].role not in REPLIES
    ][-TURNS_MAX:]
    at = dict.fromkeys((marked, shared, *ends), ("", 0))
    digest, size = _start((asked.model, asked.cache_key)), 0
    for place, part in enumerate(parts, 1):
        _add(digest, (part.role, part.text, part.media))
        size += sizes[place - 1]
        if place in at and size >= CACHEABLE_BYTES_MIN:
            at[place] = digest.copy().hexdigest(), size
    turns = tuple([at[place] for place in reversed(ends) if at[place][0] and place != shared])
    return at[marked], turns, at[shared]


def conversation_of(asked: RequestContent) -> Conversation:
    """The same request as a model reads it. What a tool gave is a turn of its own."""
    turns: dict[tuple[int, bool], tuple[str, list[str]]] = {}
    system: list[str] = []
    for part in asked.parts:
        if part.role in INSTRUCTIONS:
            system.append(part.text)
        else:
            place = part.message, part.role == TOOL
            turns.setdefault(place, (part.role, []))[1].append(part.text)
    return Conversation(
        model=asked.model, system="\n".join(filter(None, system)),
        turns=tuple((role, "\n".join(filter(None, texts))) for role, texts in turns.values()),
        streams=asked.streams, max_output_tokens=asked.max_output_tokens,
        wants_usage=asked.wants_usage, tools=asked.tools, schema=asked.schema,
        media_bytes=sum(part.media_bytes for part in asked.parts),
    )  # fmt: skip


def json_text(value: object) -> str:
    """A value that the model reads as JSON: tools, their inputs, blocks of an unknown type."""
    return dumped(value).decode()


def without(block: Fields, *names: str) -> Fields:
    """A block without the fields that the model does not read."""
    return {name: value for name, value in block.items() if name not in names}


def image(role: str, data: str, message: int, keeps_s: float = 0.0) -> RequestPart:
    return RequestPart(role, "", data, IMAGE_BYTES, keeps_s, message)


def document(role: str, data: str, message: int, keeps_s: float = 0.0) -> RequestPart:
    pages = min(PAGES_MAX, len(data) // DATA_PER_PAGE_BYTES + 1)
    return RequestPart(role, "", data, PAGE_BYTES * pages, keeps_s, message)


def _most_input(asked: RequestContent, body: bytes) -> int:
    """No vocabulary has a token of less than a byte; one that normalises (NFKC) may read more."""
    text = body.decode("utf-8", "replace")
    if "\\u" in text:
        # Escaped characters are longer than what the model reads of them.
        with suppress(RecursionError):
            text = json.dumps(parsed(body), ensure_ascii=False, separators=(",", ":"))
    size = len(text)
    if not text.isascii():
        forms = (text, normalize("NFKC", text))
        size = max(len(form.encode("utf-8", "surrogatepass")) for form in forms)
    for part in asked.parts:
        if part.media_bytes:
            size += part.media_bytes - len(part.media)
    return max(0, size) + OVERHEAD_TOKENS + (TOOLS_TOKENS if asked.tools or asked.schema else 0)


def _digest(words: Sequence[str], parts: Iterable[RequestPart]) -> str:
    """16 hex digits over words and parts, each with its length, so that no two can be confused."""
    digest = _start(words)
    for part in parts:
        _add(digest, (part.role, part.text, part.media))
    return digest.hexdigest()


@lru_cache(SETTINGS_KEPT)
def _settings_digest(*settings: str) -> str:
    """Most calls have the settings of another one, and no instructions."""
    return _digest(settings, ())


def _start(words: Iterable[str]) -> blake2b:
    digest = blake2b(digest_size=DIGEST_BYTES)
    _add(digest, words)
    return digest


def _add(digest: blake2b, words: Iterable[str]) -> None:
    for word in words:
        data = word.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)


# Calls as headway makes them itself: the body of a request in its provider's format.

MARK: Final = {"type": "ephemeral"}
"""Anthropic keeps everything up to where it stands, for `CACHE_S`."""
VERSION: Final = "2023-06-01"
"""Of Anthropic Messages; a call names it in the header `anthropic-version`."""


def body_of(
    wire: WireName, model: str, turns: Iterable[tuple[str, str]], max_tokens: int, system: str = "",
    says_completion: bool = False, shared_chars: int = 0,
) -> bytes:  # fmt: skip
    """`turns` are (role, text). OpenAI itself wants `max_completion_tokens` (`says_completion`).

    The first text begins with `shared_chars` that other calls begin with too: if they are many,
    the provider is asked to keep them. OpenAI does so by itself."""
    messages: list[Fields] = [{"role": role, "content": text} for role, text in turns]
    if wire == "anthropic":
        if shared_chars >= CACHEABLE_BYTES_MIN:
            text = str(messages[0]["content"])
            head: Fields = {"type": "text", "text": text[:shared_chars], "cache_control": MARK}
            rest: Fields = {"type": "text", "text": text[shared_chars:]}
            messages[0]["content"] = [head, rest] if text[shared_chars:] else [head]
        body: Fields = {"model": model, "max_tokens": max_tokens}
        if system:
            body["system"] = system
        return dumped({**body, "messages": messages, "stream": True})
    if wire != "openai-chat":
        raise InternalError(f"headway makes no calls in the format {wire}")
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return dumped(
        {
            "model": model,
            "max_completion_tokens" if says_completion else "max_tokens": max_tokens,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
