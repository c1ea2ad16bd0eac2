"""Reads what a call requests and what its reply consumed, in any format.

Laws:
- `sketch` and `conversation` raise `WireError` and nothing else; an `AnswerReader` never raises.
- Nothing of a text is kept: a sketch has sizes and digests, a reader counts as bytes pass.
- Every buffer has a named limit, and what is split anywhere reads the same as what is not.
"""

from __future__ import annotations

import re
from typing import Final, Protocol
from urllib.parse import unquote

from msgspec.structs import replace

from headway.base import fields
from headway.base.values import Fault, Reading, Sketch
from headway.errors import WireError
from headway.pacing.headers import Headers, as_text, decode
from headway.pacing.refusal import BODY_BYTES_MAX, classify, reading_of_refusal
from headway.wire import anthropic, gemini, openai_chat, openai_responses, values
from headway.wire.gemini import ElementReader
from headway.wire.request import RequestContent, conversation_of, sketch_of
from headway.wire.stream import Event, EventReader, Inflater


class WireFormat(Protocol):
    """The functions of a module that reads and writes one format."""

    def asked(self, body: fields.Fields, model: str, streams: bool, /) -> RequestContent | None: ...

    def hear(self, heard: values.AnswerSoFar, found: Event, /) -> None: ...

    def hear_whole(self, heard: values.AnswerSoFar, body: fields.Fields, /) -> None: ...

    def hear_excerpt(self, heard: values.AnswerSoFar, excerpt: bytes, /) -> None: ...

    def whole(self, answer: values.Answer, /) -> bytes: ...

    def opening(self, answer: values.Answer, /) -> bytes: ...

    def piece(self, answer: values.Answer, index: int, text: str, /) -> bytes: ...

    def closing(self, answer: values.Answer, wants_usage: bool, pieces: int, /) -> bytes: ...

    def error_event(self, status: int, body: bytes, /) -> bytes: ...


FORMATS: Final[dict[values.WireName, WireFormat]] = {
    "anthropic": anthropic,
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "gemini": gemini,
}
_ROUTES: Final[tuple[tuple[str, values.Route], ...]] = (
    ("/messages", values.Route("anthropic")),
    ("/messages/count_tokens", values.Route("anthropic", "count")),
    ("/chat/completions", values.Route("openai-chat")),
    ("/responses", values.Route("openai-responses")),
    ("/responses/input_tokens", values.Route("openai-responses", "count")),
)
_FOLDERS: Final = ("models", "tunedModels", "endpoints")
_METHOD: Final = re.compile(
    r"([^:]+?)(?::|%3[Aa])(generateContent|streamGenerateContent|countTokens)"
)
"""`/v1beta/models/NAME:METHOD`, also with `/publishers/google` and the like before it. Embeddings
and batches are no calls."""

_EVENT_START: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")

LENGTH_DIGITS_MAX: Final = 15
LOOK_BYTES: Final = 16
"""Enough of a body to tell a stream from JSON."""


def route(method: str, path: str) -> values.Route | None:
    """What a request asks for; `None` for what no model answers. The path may have any prefix."""
    if method.upper() != "POST":
        return None
    plain = path.partition("?")[0].partition("#")[0].rstrip("/")
    for end, found in _ROUTES:
        if plain.endswith(end):
            return found
    return _gemini_route(plain)


def _gemini_route(path: str) -> values.Route | None:
    """The only wire whose path names the model and says what is wanted of it."""
    rest, _, last = path.rpartition("/")
    folder, named = rest.rpartition("/")[2], _METHOD.fullmatch(last)
    if named is None or folder not in _FOLDERS:
        return None
    purpose: values.Purpose = "count" if named[2] == "countTokens" else "generate"
    name = unquote(named[1])
    model = name if folder == "models" else f"{folder}/{name}"
    return values.Route("gemini", purpose, model, named[2] == "streamGenerateContent")


def sketch(route: values.Route, body: bytes) -> Sketch:
    """What can be seen of a call before it is sent. Raises `WireError`. A count has no size."""
    asked = _asked(route, body)
    if route.purpose == "count":
        kind = f"{asked.model}#count"
        return Sketch(asked.model, size_bytes=0, messages=0, max_output_tokens=0, kind=kind)
    return sketch_of(asked, body)


def conversation(route: values.Route, body: bytes) -> values.Conversation:
    """The call as a model reads it. Raises `WireError`."""
    return conversation_of(_asked(route, body))


def _asked(route: values.Route, body: bytes) -> RequestContent:
    top = fields.parsed(body)
    if not isinstance(top, dict):
        raise WireError("the body of a call is not a JSON object", where=route.wire)
    try:
        asked = FORMATS[route.wire].asked(top, route.model, route.streams)
    except RecursionError:
        # What was nested almost too deep to be parsed is too deep to be written again.
        raise WireError("the body of a call is nested too deep", where=route.wire) from None
    if asked is None:
        wanted = _WANTED.get(route.wire, "a list of `messages`")
        raise WireError(
            "the body of a call does not say what is asked of whom",
            where=route.wire,
            detail=f"got the fields {', '.join(sorted(top)[:8]) or 'none'}"[:200],
            hint=f"a call names its model and has {wanted}",
        )
    return asked


_WANTED: Final[dict[values.WireName, str]] = {"openai-responses": "`input`", "gemini": "`contents`"}


class AnswerReader(values.AnswerSoFar):
    """Reads a side copy of an answer's bytes: how much it consumed, and whether it failed."""

    _inflater: Inflater | None = None
    _length: int | None = None
    _events: EventReader | ElementReader | None = None
    _received = 0
    _ended = False
    _reading: Reading | None = None

    def __init__(
        self, wire: values.WireName, status: int, headers: Headers,
        received_wall_s: float | None = None,
    ) -> None:  # fmt: skip
        """`received_wall_s` stands in for a missing `Date` header, as in `decode`."""
        said = self._headers = as_text(headers)
        self._wire, self._status, self._received_wall_s = wire, status, received_wall_s
        self.is_success = 200 <= status < 300
        if encoding := said.get("content-encoding"):
            self._inflater = Inflater(encoding)
        length = said.get("content-length", "")
        if length.isascii() and length.isdigit() and len(length) <= LENGTH_DIGITS_MAX:
            self._length = int(length)
        kind = said.get("content-type", "").lower()
        self._is_looked_at = self.is_success and kind.startswith("text/event-stream")
        if self._is_looked_at:
            self._events = EventReader(takes_bare=wire == "gemini")
        self._body = values.Excerpt()

    def feed(self, data: bytes) -> None:
        if self._ended:
            return
        self._received += len(data)
        for piece in (data,) if self._inflater is None else self._inflater.feed(data):
            if self._events is not None:
                self._hear(self._events.feed(piece))
            else:
                self._body.add(piece)
                if not self._is_looked_at and self._body.size_bytes >= LOOK_BYTES:
                    self._look()
        if self._length is not None and self._received >= self._length > 0:
            self.end()

    def end(self, is_whole: bool = True) -> None:
        """No more bytes come; not `is_whole` when the connection broke or was closed early."""
        if self._ended:
            return
        self._ended = True
        if self.is_success:
            if not self._is_looked_at:
                self._look()
            state = "reading" if self._inflater is None else self._inflater.state
            if self._events is not None:
                self._hear(self._events.end() if is_whole else [])
                is_complete = is_whole and state == "unreadable"
            elif state == "reading":
                is_complete = self._hear_body(is_whole)
            else:
                is_complete = is_whole and state == "unreadable"
            if not (is_complete or self.is_finished or self.is_over):
                self.failure = Fault("broken", detail="the answer broke off or is no answer")
        self.is_over = True
        self._reading = None

    @property
    def fault(self) -> Fault | None:
        """Why the call failed, if it did; of a refusal as far as its body is known."""
        if self.is_success:
            return self.failure
        return classify(self._status, self._headers, self._body.kept()[:BODY_BYTES_MAX])

    @property
    def reading(self) -> Reading:
        """What the headers say about limits, and what only the text of a refusal says."""
        if self._reading is None:
            self._reading = self._read_limits()
        return self._reading

    def _look(self) -> None:
        """Proxies send streams by another name; no JSON begins like one. Gemini streams an array
        to a client that does not ask for events."""
        self._is_looked_at = True
        start, is_gemini = self._body.kept()[:LOOK_BYTES], self._wire == "gemini"
        if not self.is_success:
            return
        if _EVENT_START.match(start):
            self._events = EventReader(takes_bare=is_gemini)
        elif is_gemini and start.lstrip().startswith(b"["):
            self._events = ElementReader()
        if self._events is not None:
            self._hear(self._events.feed(self._body.take()))

    def _hear(self, events: list[Event]) -> None:
        hear = FORMATS[self._wire].hear
        for event in events:
            try:
                hear(self, event)
            except RecursionError:
                # Nested almost too deep to be parsed, like a body: the next one may be read again.
                continue

    def _hear_body(self, is_whole: bool) -> bool:
        is_cut, data = self._body.is_cut, self._body.take()
        if is_cut:
            FORMATS[self._wire].hear_excerpt(self, data)
            return is_whole
        body = fields.parsed(data)
        if not isinstance(body, dict):
            return False
        try:
            FORMATS[self._wire].hear_whole(self, body)
        except RecursionError:
            # Nested almost too deep to be parsed: what was not heard by now stays unknown.
            return is_whole
        return True

    def _read_limits(self) -> Reading:
        reading = decode(self._headers, self._received_wall_s)
        if self.is_success:
            return reading
        told = reading_of_refusal(self._body.kept()[:BODY_BYTES_MAX], self._received_wall_s)
        if told is None:
            return reading
        for limit in reading.limits:
            # A header is exact; two readings of one limit would be taken for two limits.
            same_period = told.period_s in (None, limit.period_s) or limit.period_s is None
            is_same = limit.resource == told.resource and same_period and not limit.window
            if limit.is_empty if told.window else is_same:
                return reading
        return replace(reading, limits=(*reading.limits, told))
