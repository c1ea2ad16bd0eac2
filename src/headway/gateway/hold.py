"""What a client is told while its call is held, and when it is held in vain: bytes, no decisions.

Laws:
- A beat is invisible: an answer after any number of beats is the same answer to its client.
- What ends a stream that has begun is an error that its client raises as its own, and sends the
  call again after exactly when the call may yet succeed.
- Nobody is ever told to come again later than in `RETRY_AFTER_S_MAX`.

Beats are for streams. White space before the JSON of a whole answer is read by every client that
we tried, but it commits to 200: an error has no status any more, SDKs take what is in its place
for an answer, and all that is left is to cut the connection, so that the client sends the call
again. Whole calls are held in silence instead: SDKs wait for 600 s, and the same call, sent again,
keeps its place in line. Only Gemini CLI gives up on its routing calls after 60 s, five times, and
then goes on without them: its whole calls are kept alive.
"""

from __future__ import annotations

from math import ceil
from typing import Final, Literal

from headway.core.values import Sketch
from headway.errors import (
    AccountClosedError,
    BrokerUnavailableError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
    QueueDeadlineError,
)
from headway.gateway.values import Caller, Turned
from headway.runtime.exchange import Asked
from headway.wire import anthropic, gemini, write
from headway.wire.loose import Fields, dumped, fields, parsed, text_of
from headway.wire.sse import event
from headway.wire.values import WireName

SizeClass = Literal["small", "large"]

SMALL_BYTES_MAX: Final = 10_000
"""Up to here a call is small. opencode asks for a title in 2.5 kB, Gemini CLI for a route in 3.1,
with the user's own words in them; the first call of any conversation has 30 kB and more of tools
and instructions."""

RETRY_AFTER_S_MIN: Final = 1
RETRY_AFTER_S_MAX: Final = 60
"""Codex gives up on a 429 without Retry-After, Claude Code on one with more than this."""

QUEUE_RETRY_S: Final = 5.0
"""When a call that waited for too long may come again. Soon: it begins at the end of the line."""

SOON_S: Final = 2.0
"""When a gateway that stops, or lost its broker, may be back."""

WHOLE_S_MIN: Final = 240.0
"""For so long a call without beats is held even if its client may not be as patient: sent again,
it has its place. The fetch of Node, unless told otherwise, gives up after 300 s of silence."""

LOST: Final = "lost"
"""The code of a call that a provider was sent and gave no answer to."""

_SSE: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}

COMMITTED: Final[dict[WireName, dict[str, str]]] = {
    "anthropic": _SSE,
    "openai-chat": _SSE,
    "openai-responses": _SSE,
    "gemini": {**_SSE, "content-type": "text/event-stream"},
}
"""The headers of a stream that began before its answer, as its provider would send them."""

COMMITTED_WHOLE: Final = {"content-type": "application/json; charset=UTF-8"}
"""The headers of JSON that began, with white space, before it was there."""

_COMMENT: Final = b": held by headway\n\n"

_PING: Final = event(b'{"type": "ping"}', "ping")
"""Anthropic's own keep-alive."""

_KEEPALIVE: Final = event(b'{"type":"keepalive","sequence_number":0}', "keepalive")
"""Of OpenAI Responses: Codex counts events and not bytes, and passes over those that it does not
know. Strict SDKs and the AI SDK do not: they get a comment."""

_NEWLINE: Final = b"\n"
"""For Gemini, whose SDKs split lines themselves and read a comment as JSON."""


def beat(wire: WireName, caller: Caller, is_stream: bool = True) -> bytes:
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


def committed(wire: WireName, path: str, is_stream: bool) -> dict[str, str]:
    """The headers of an answer that begins before it is there.

    A stream of Gemini that is not asked for as events is one long JSON array.
    """
    if not is_stream or (wire == "gemini" and "alt=sse" not in path):
        return COMMITTED_WHOLE
    return COMMITTED[wire]


def wait_s(wire: WireName, caller: Caller, is_stream: bool) -> float:
    """How long a call may be held."""
    if beat(wire, caller, is_stream):
        return caller.wait_s
    return min(caller.wait_s, max(caller.silent_s, WHOLE_S_MIN))


def size_class(sketch: Sketch) -> SizeClass:
    """Which of the two flows of a key a call belongs to.

    Both are served in turn by what they cost, so that many small calls pass between two large
    ones, and neither ever waits for all of the other.
    """
    return "small" if sketch.size_bytes <= SMALL_BYTES_MAX else "large"


def retry_after(seconds: float) -> str:
    """The value of Retry-After: whole seconds, from 1 to 60."""
    if not seconds > RETRY_AFTER_S_MIN:
        return str(RETRY_AFTER_S_MIN)
    return str(ceil(min(seconds, RETRY_AFTER_S_MAX)))


def failed(wire: WireName, status: int, body: bytes, caller: Caller | None = None) -> bytes:
    """The end of a stream that has begun, when its answer is an error response.

    A whole answer that has begun has no such end: its connection is cut.
    """
    if wire == "openai-responses":
        return _responses_failed(status, body)
    told = write.error_event(wire, status, body)
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


def _may_succeed(status: int) -> bool:
    """Whether the same call, sent again, may succeed."""
    return status in _AGAIN or status >= 500


def _responses_failed(status: int, body: bytes) -> bytes:
    """Two events: SDKs raise the error in the first, Codex only looks at the second.

    SDKs raise what has the field `error`, and read on after the flat event that the documentation
    has; the AI SDK wants either. Codex decides by the code alone, and sends the call again after
    every code that it does not know.
    """
    top = fields(parsed(body))
    error = fields(top.get("error")) or top
    kind = text_of(error.get("type")) or _openai_type(status)
    code = text_of(error.get("code")) or kind
    message = text_of(error.get("message")) or body.decode("utf-8", "replace") or f"HTTP {status}"
    flat: Fields = {"code": code, "message": message, "param": error.get("param")}
    first: Fields = {"type": "error", "sequence_number": 0, **flat, "error": {"type": kind, **flat}}
    last = _failed_response(code if code in _CODEX_CODES else _codex_code(status), message)
    return event(dumped(first), "error") + event(dumped(last), "response.failed")


def _codex_code(status: int) -> str:
    """Of the codes that end a call, `invalid_prompt` is the one whose message Codex shows."""
    if not _may_succeed(status):
        return "invalid_prompt"
    return "rate_limit_exceeded" if status == 429 else "server_error"


def _failed_response(code: str, message: str) -> Fields:
    response: Fields = {
        "id": "resp_held",
        "object": "response",
        "created_at": 0,
        "status": "failed",
        "error": {"code": code, "message": message},
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "",
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }
    return {"type": "response.failed", "sequence_number": 1, "response": response}


def turned(wire: WireName | None, turned: Turned) -> tuple[dict[str, str], bytes]:
    """Headers and body of a refusal of the gateway's own, in the wire's error format."""
    message = f"headway: {turned.message}"
    if turned.hint:
        message = f"{message}; {turned.hint}"
    return _refusal(wire, turned.status, turned.code, message, SOON_S)


_STATUS: Final[tuple[tuple[type[HeadwayError], int], ...]] = (
    (QueueDeadlineError, 429),
    (BudgetReachedError, 402),
    (AccountClosedError, 402),
    (DemandTooLargeError, 400),
    (BrokerUnavailableError, 503),
)


def given_up(error: HeadwayError, asked: Asked) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body for a call that will not be sent, and why."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    parts = (error.message, error.where, error.detail, error.hint)
    message = f"headway[{error.code}]: " + "; ".join(part for part in parts if part)
    after_s = QUEUE_RETRY_S if status == 429 else SOON_S
    return status, *_refusal(asked.wire, status, error.code, message, after_s)


def _refusal(
    wire: WireName | None, status: int, code: str, message: str, after_s: float
) -> tuple[dict[str, str], bytes]:
    """SDKs obey `x-should-retry`; nobody is sent away for ever by a 429 or a 503 of ours.

    A 500 is headway's own fault and a 502 an upstream that could not be reached after several
    tries: to send those again would hide them. A call that was sent and lost was tried once: its
    client decides, as it would have without us.
    """
    headers = {
        "content-type": "application/json",
        "x-should-retry": "false",
        "x-headway-error": code,
    }
    if code == LOST:
        headers["x-should-retry"] = "true"
    if status in (429, 503):
        headers |= {"x-should-retry": "true", "retry-after": retry_after(after_s)}
    return headers, dumped(_error_body(wire, status, code, message))


def _error_body(wire: WireName | None, status: int, code: str, message: str) -> Fields:
    if wire == "anthropic":
        kind = anthropic.TYPE_OF_STATUS.get(status, "api_error" if status >= 500 else _BAD)
        return {"type": "error", "error": {"type": kind, "message": message}}
    if wire == "gemini":
        return {"error": gemini.failure(status, message)}
    # Codex takes a code for a reason; the status and the type tell others what kind it is.
    inner = {"message": message, "type": _openai_type(status), "param": None, "code": code}
    return {"error": inner}


_BAD: Final = "invalid_request_error"


def _openai_type(status: int) -> str:
    if status == 402:
        return "insufficient_quota"
    if status == 429:
        return "rate_limit_exceeded"
    return "server_error" if status >= 500 else _BAD
