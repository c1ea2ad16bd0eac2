"""The bytes that a client receives: keep-alive pings, then the reply or an error.

Laws:
- A response is begun once: by a sign of life, by an answer's headers, or by a refusal of our own.
- What broke off upstream breaks off here: no client takes half an answer for a whole one.
- Our own words never stand in the middle of an event, or of what is compressed or has a length.
- A client that takes nothing of its answer for `STALL_S_MAX` is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import ceil
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from headway.base.fields import Fields, dumped, object_fields, parsed, text_of
from headway.client import exchange
from headway.errors import HeadwayError
from headway.gateway import guard
from headway.gateway.values import Caller, Turned
from headway.pacing.refusal import EMPTY_WINDOW
from headway.wire import answer as write
from headway.wire.read import FORMATS
from headway.wire.stream import Inflater, event
from headway.wire.values import WireName
from headway.work import WindowEmptyError

# What a client is told while its call is held, and when it is held in vain: bytes, no decisions.

RETRY_AFTER_S_MIN: Final = 1
RETRY_AFTER_S_MAX: Final = 60
"""Codex gives up on a 429 without Retry-After, Claude Code on one with more than this."""
QUEUE_RETRY_S: Final = 5.0
"""When a call that waited for too long may come again. Soon: it begins at the end of the line."""
SOON_S: Final = 2.0
"""When a gateway that stops, or lost its broker, may be back."""
WAIT_S: Final = 3600.0
"""How long a call is held whose caller is kept alive. A usage window that is empty for longer is
better reported than waited for."""
WHOLE_S_MIN: Final = 240.0
"""For so long a call without beats is held even if its client may not be as patient: sent again,
it has its place. The fetch of Node, unless told otherwise, gives up after 300 s of silence."""
RETRY_INFO: Final = "type.googleapis.com/google.rpc.RetryInfo"
LOST: Final = "lost"
"""The code of a call that a provider was sent and gave no answer to."""
_COMMENT: Final = b": held by headway\n\n"

_PING: Final = event(b'{"type": "ping"}', "ping")

_KEEPALIVE: Final = event(b'{"type":"keepalive","sequence_number":0}', "keepalive")
"""Of OpenAI Responses: Codex counts events and not bytes, and passes over those that it does not
know. Strict SDKs and the AI SDK do not: they get a comment."""
_NEWLINE: Final = b"\n"
"""For Gemini, whose SDKs split lines themselves and read a comment as JSON."""


def ping_bytes(wire: WireName, caller: Caller, is_stream: bool = True) -> bytes:
    """One sign of life for an answer that has begun, the same each time; nothing if it has none."""
    if not is_stream:
        return _NEWLINE if caller.name == "gemini-cli" else b""
    if wire == "gemini":
        return _NEWLINE
    if wire == "anthropic":
        return _PING
    if wire == "openai-responses" and caller.name == "codex":
        return _KEEPALIVE
    return _COMMENT


def stream_headers(wire: WireName, path: str, is_stream: bool) -> dict[str, str]:
    """The headers of an answer that begins early; without `alt=sse` Gemini sends JSON."""
    if not is_stream or (wire == "gemini" and "alt=sse" not in path):
        return {"content-type": "application/json; charset=UTF-8"}
    charset = "" if wire == "gemini" else "; charset=utf-8"
    return {"content-type": f"text/event-stream{charset}", "cache-control": "no-cache"}


def wait_s(wire: WireName, caller: Caller, is_stream: bool) -> float:
    if ping_bytes(wire, caller, is_stream):
        return WAIT_S
    return min(WAIT_S, max(caller.silent_s, WHOLE_S_MIN))


def retry_after(seconds: float) -> str:
    """The value of Retry-After: whole seconds, from 1 to 60."""
    if not seconds > RETRY_AFTER_S_MIN:
        return str(RETRY_AFTER_S_MIN)
    return str(ceil(min(seconds, RETRY_AFTER_S_MAX)))


def failure_bytes(wire: WireName, status: int, body: bytes, caller: Caller | None = None) -> bytes:
    """The end of a stream that has begun, when its answer is an error response."""
    if wire == "openai-responses":
        return _responses_failed(status, body)
    told = FORMATS[wire].error_event(status, body)
    if wire == "gemini" and caller is not None and caller.name in _READ_EVENTS_ONLY:
        return event(b"[%s]" % told.strip())
    return told


_READ_EVENTS_ONLY: Final = frozenset(("opencode", "ai-sdk"))
"""Google's own SDKs look for an error in bare JSON. These pass over that, and take an event with
an error in it for an empty answer; an event that is no object is an error to them, and they say
and judge what is in it."""

_AGAIN: Final = frozenset((408, 409, 429))

_CODEX_CODES: Final = frozenset(
    ("context_length_exceeded", "insufficient_quota", "usage_not_included", "invalid_prompt",
     "rate_limit_exceeded", "server_error")
)  # fmt: skip
"""Codes that mean to Codex what they say. It sends a call again after the last two, and after
every code that it does not know; but not after `server_is_overloaded`."""


def _responses_failed(status: int, body: bytes) -> bytes:
    """Two events: SDKs raise the `error` of the first, Codex looks at the code of the second."""
    top = object_fields(parsed(body))
    error = object_fields(top.get("error")) or top
    kind = text_of(error.get("type")) or write.openai_type(status)
    code = text_of(error.get("code")) or kind
    message = text_of(error.get("message")) or body.decode("utf-8", "replace") or f"HTTP {status}"
    flat: Fields = {"code": code, "message": message, "param": error.get("param")}
    first: Fields = {"type": "error", "sequence_number": 0, **flat, "error": {"type": kind, **flat}}
    last = _failed_response(code if code in _CODEX_CODES else _codex_code(status), message)
    return event(dumped(first), "error") + event(dumped(last), "response.failed")


def _codex_code(status: int) -> str:
    """Of the codes that end a call, `invalid_prompt` is the one whose message Codex shows."""
    if status not in _AGAIN and status < 500:
        return "invalid_prompt"
    return "rate_limit_exceeded" if status == 429 else "server_error"


def _failed_response(code: str, message: str) -> Fields:
    response: Fields = {
        "id": "resp_held", "object": "response", "created_at": 0, "status": "failed",
        "error": {"code": code, "message": message}, "incomplete_details": None,
        "instructions": None, "metadata": {}, "model": "", "output": [],
        "parallel_tool_calls": True, "temperature": None, "tool_choice": "auto", "tools": [],
        "top_p": None, "usage": None,
    }  # fmt: skip
    return {"type": "response.failed", "sequence_number": 1, "response": response}


def refusal_of(wire: WireName | None, turned: Turned) -> tuple[dict[str, str], bytes]:
    """Headers and body of a refusal of the gateway's own, in the wire's error format."""
    message = f"headway: {turned.message}"
    if turned.hint:
        message = f"{message}; {turned.hint}"
    return _refusal(wire, turned.status, turned.code, message, SOON_S)


def window_refusal(
    error: WindowEmptyError, wire: WireName, now_s: float
) -> tuple[dict[str, str], bytes]:
    """Headers and body of a 429 as the provider of this wire refuses while a usage window is empty:
    its clients know until when, and can give up or use another model."""
    after_s = max(RETRY_AFTER_S_MIN, ceil(error.resets_at_s - now_s))
    headers, resets_at_s = {"retry-after": str(after_s)}, str(ceil(error.resets_at_s))
    told = write.error_body(wire, 429, "rate_limit_exceeded", f"headway: {error.detail}")
    inner = object_fields(told["error"])
    if wire == "anthropic":
        prefix = "anthropic-ratelimit-unified"
        headers |= {f"{prefix}-status": "rejected", f"{prefix}-reset": resets_at_s}
    elif wire == "gemini":
        inner["details"] = [{"@type": RETRY_INFO, "retryDelay": f"{after_s}s"}]
    else:
        inner |= {"type": EMPTY_WINDOW, "resets_at": int(resets_at_s), "resets_in_seconds": after_s}
    headers |= {
        "content-type": "application/json",
        "x-should-retry": "false",
        "x-headway-error": "window",
    }
    return headers, dumped({**told, "error": inner})


def given_up(error: HeadwayError, wire: WireName) -> tuple[int, dict[str, str], bytes]:
    status, message = exchange.refusal_of(error)
    after_s = QUEUE_RETRY_S if status == 429 else SOON_S
    return status, *_refusal(wire, status, error.code, message, after_s)


def _refusal(
    wire: WireName | None, status: int, code: str, message: str, after_s: float
) -> tuple[dict[str, str], bytes]:
    """A 500 or a 502 is not sent again: that would hide it. A lost call is its client's to send."""
    headers = {
        "content-type": "application/json",
        "x-should-retry": "false",
        "x-headway-error": code,
    }
    if code == LOST:
        headers["x-should-retry"] = "true"
    if status in (429, 503):
        headers |= {"x-should-retry": "true", "retry-after": retry_after(after_s)}
    return headers, dumped(write.error_body(wire, status, code, message))


GONE: Final = 499
"""The status in the books of a call whose client went away."""
STALL_S_MAX: Final = 300.0

LITTLE_BYTES: Final = 16_384
"""Less than what a transport holds before it makes its writer wait, 64 KiB."""
_FIXED: Final = ("content-encoding", "content-length")
"""Headers of a stream that takes no words of our own."""
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
TAIL_BYTES: Final = max(map(len, _EVENT_ENDS))


def fields_of(pairs: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    """Headers for the HTTP library, in their sender's spelling and order."""
    return CIMultiDict(
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in pairs
    )


class ClientReply:
    """The response to one call: silence while that is safe, signs of life, then the answer."""

    __slots__ = (
        "_beat", "_caller", "_headers", "_inflater", "_is_stream", "_keeping", "_lock", "_request",
        "_response", "_tail", "_timer", "_wire", "is_committed", "status",
    )  # fmt: skip

    def __init__(
        self, request: web.BaseRequest, wire: WireName, caller: Caller, path: str, is_stream: bool
    ) -> None:
        self._request = request
        self._wire: WireName = wire
        self._caller = caller
        self._is_stream = is_stream
        self._beat = ping_bytes(wire, caller, is_stream)
        self._headers = stream_headers(wire, path, is_stream)
        self._timer: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._lock: asyncio.Lock | None = None
        self._inflater: Inflater | None = None
        self._response: web.StreamResponse | None = None
        self._tail = b""
        """The last few bytes of an answer that were handed on."""
        self.is_committed = False
        """Whether a 200 was sent before there was an answer."""
        self.status = GONE
        """What the client was sent, or would have been if it had not been kept alive before."""

    def start(self) -> None:
        if self._beat:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._caller.silent_s, self._commit)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        keeping, self._keeping = self._keeping, None
        # In the middle of a write it ends by itself, at the lock.
        if keeping is not None and self._lock is not None and not self._lock.locked():
            keeping.cancel()

    async def _stop_beats(self) -> None:
        self.cancel()
        if self._lock is not None:
            async with self._lock:
                pass

    def _commit(self) -> None:
        self._timer = None
        self._lock = asyncio.Lock()
        self._keeping = asyncio.get_running_loop().create_task(self._keep(self._lock))

    async def _keep(self, lock: asyncio.Lock) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            async with lock:
                self.is_committed = True
                response = self._response = web.StreamResponse(headers=self._headers)
                await response.prepare(self._request)
                await response.write(self._beat)
            while self._keeping is not None:
                await asyncio.sleep(self._caller.beat_s)
                async with lock:
                    if self._keeping is not None:
                        await response.write(self._beat)

    async def open(self, answer: aiohttp.ClientResponse, head: bytes) -> web.StreamResponse | None:
        """Begin an answer whose `head` was read. Returns the response if nothing may follow."""
        self.status = answer.status
        await self._stop_beats()
        if self._response is not None:
            if answer.status >= 300:
                return await self.fail(answer.status, head)
            self._inflater = Inflater(answer.headers.get("content-encoding", ""))
            return None
        headers = fields_of(guard.homeward(answer.raw_headers))
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
        # The headers of an answer that is here as a whole go out with its body, in one packet.
        response._send_headers_immediately = not answer.content.is_eof()
        await response.prepare(self._request)
        self._response = response
        self._is_stream = self._is_stream and not any(name in headers for name in _FIXED)
        await self.write(head)
        return None

    async def write(self, data: bytes) -> None:
        if self._inflater is None:
            await self._send(data)
        else:
            for piece in self._inflater.feed(data):
                await self._send(piece)

    def closed(self) -> web.StreamResponse:
        """The end of the answer, unless some of it could not be decompressed."""
        if self._inflater is not None and self._inflater.state != "reading":
            return self.cut()
        return self._begun()

    async def tell(
        self, status: int, headers: Mapping[str, str], body: bytes
    ) -> web.StreamResponse:
        self.status = status
        await self._stop_beats()
        if self._response is None:
            return web.Response(status=status, headers=headers, body=body)
        return await self.fail(status, body)

    async def turn(self, turned: Turned) -> web.StreamResponse:
        headers, body = refusal_of(self._wire, turned)
        return await self.tell(turned.status, headers, body)

    async def fail(self, status: int, body: bytes, data: bytes = b"") -> web.StreamResponse:
        """End a response with an error, after the event under way, which `data` may complete."""
        pieces = [data] if self._inflater is None else self._inflater.feed(data)
        rest = rest_of_event(self._tail, b"".join(pieces))
        if not self._is_stream or rest is None:
            return self.cut()
        await self._send(rest + failure_bytes(self._wire, status, body, self._caller))
        return self._begun()

    def cut(self) -> web.StreamResponse:
        transport = self._request.transport
        if transport is not None:
            transport.abort()
        return self._begun()

    def _begun(self) -> web.StreamResponse:
        return web.Response(status=GONE) if self._response is None else self._response

    async def _send(self, data: bytes) -> None:
        if self._response is not None and data:
            self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            await write_reply(self._request, self._response, data)


async def write_reply(request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
    transport = request.transport
    # A little, and nothing before it, is taken by the system at once.
    is_little = len(data) <= LITTLE_BYTES
    if transport is None or (is_little and not transport.get_write_buffer_size()):
        await response.write(data)
        return
    try:
        async with asyncio.timeout(STALL_S_MAX):
            await response.write(data)
    except TimeoutError:
        transport.abort()
        raise ConnectionResetError("the client takes nothing") from None


def rest_of_event(tail: bytes, data: bytes) -> bytes | None:
    """What completes the event that `tail` is in the middle of; `None` if it is not in `data`."""
    if not tail or tail.endswith(_EVENT_ENDS):
        return b""
    both = tail + data
    ends = [
        at + len(mark)
        for mark in _EVENT_ENDS
        if (at := both.find(mark, max(0, len(tail) + 1 - len(mark)))) >= 0
    ]
    return both[len(tail) : min(ends)] if ends else None
