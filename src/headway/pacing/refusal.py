"""Turns a provider's error (status, headers, body) into a `Fault`.

Laws:
- Whatever the status and the bytes, nothing here raises; only `BODY_BYTES_MAX` bytes are read.
- Money comes first: a call refused for want of money or credit is never worth sending again.
- A call that needs more than the limit itself stays wrong, even if a 429 names a time to try again.
- A resource is named only where the provider named it or left exactly one limit empty.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Final

from msgspec import Struct

from headway.base.values import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    Fault,
    FaultKind,
    LimitReading,
    Reading,
    Resource,
)
from headway.pacing.headers import Headers, decode, duration_s, number

EMPTY_WINDOW: Final = "usage_limit_reached"
"""Codex with a ChatGPT login: a usage window is used up."""
BODY_BYTES_MAX: Final = 64 * 1024
"""Real error bodies are under 4 KiB; the rest of a longer one says nothing about limits."""
MESSAGE_CHARS_MAX: Final = 2000
"""To search a page of 64 KiB as a whole takes 15 to 20 ms, in place of half a millisecond."""
DETAIL_CHARS_MAX: Final = 200
"""Of these, what is sent to the broker and shown."""
VIOLATIONS_MAX: Final = 20
"""Violated quotas that are looked at; Gemini has at most six quotas per model."""


def classify(status: int, headers: Headers, body: bytes) -> Fault:
    """What an answer that is not a success means for this call and for the calls after it."""
    return _fault(status, _complaint(body), decode(headers, None))


def parse_stream_error(body: bytes) -> Fault:
    """What an `error` event means after HTTP 200; some providers repeat a status in its `code`."""
    complaint = _complaint(body)
    return _fault(complaint.code_status, complaint, Reading())


def reading_of_refusal(body: bytes, received_wall_s: float | None = None) -> LimitReading | None:
    """The limit that a refusal's own text gives away, often the only place that names it.

    OpenAI and Groq: `Limit 10000, Used 8554, Requested 3082`. Anthropic: `your organization's
    rate limit of 30,000 input tokens per minute`. Gemini: `quotaId` and `quotaValue`; of several
    violated quotas the one with the longest period, because it holds the longest. Codex:
    `usage_limit_reached` and when the window resets.
    """
    complaint = _complaint(body)
    if complaint.violation is not None:
        return complaint.violation
    if EMPTY_WINDOW in complaint.words:
        reset_s, at_s = complaint.retry_delay_s, complaint.resets_at_s
        if reset_s is None and at_s is not None and received_wall_s is not None:
            reset_s = max(0.0, at_s - received_wall_s)
        return LimitReading("tokens", None, None, None, reset_s, 1.0, "usage", is_empty=True)
    resource, period_s = _named(complaint)
    limit, used, _ = _spoken_amounts(complaint.message)
    if (
        resource is None
        or limit is None
        or (period_s is None and _PER_PERIOD.search(complaint.message))
    ):
        # Nothing is named, or the type and the text name two different resources.
        return None
    remaining = None if used is None else max(0.0, limit - used)
    return LimitReading(resource, period_s, limit, remaining, None)


class _Complaint(Struct, frozen=True):
    """What an error body says, whatever its shape."""

    message: str
    words: frozenset[str] = frozenset()
    """Its types, codes and statuses, in lower case."""
    code_status: int | None = None
    violation: LimitReading | None = None
    retry_delay_s: float | None = None
    resets_at_s: float | None = None
    """When a usage window resets, by the wall clock."""


_WORDS_OF: Final[tuple[tuple[FaultKind, str], ...]] = (
    ("spend_cap", "enforced_spend_limit_reached organization_spend_limit_exceeded"),
    ("spend_cap", "organization_usage_limit_exceeded project_spend_limit_exceeded"),
    ("billing", "billing_disabled billing_error billing_hard_limit_reached billing_not_active"),
    ("billing", "credit_balance_exhausted insufficient_quota"),
    ("rate", "rate_limit_error rate_limit_exceeded request_quota_exceeded resource_exhausted"),
    ("rate", "token_quota_exceeded too_many_requests_error usage_limit_reached"),
    ("overload", "capacity_exceeded engine_overloaded_error overloaded_error queue_exceeded"),
    ("overload", "server_is_overloaded slow_down unavailable unavailable_error"),
    ("timeout", "deadline_exceeded timeout_error"),
    ("server", "api_error internal internal_server_error server_error"),
    ("request", "authentication_error context_length_exceeded invalid_argument not_found"),
    ("request", "invalid_request_error not_found_error permission_denied permission_error"),
    ("request", "request_too_large"),
)
_KIND_OF: Final = {word: kind for kind, words in _WORDS_OF for word in words.split()}
_STREAM_ORDER: Final[tuple[FaultKind, ...]] = ("overload", "timeout", "server", "request")
_RESOURCE_OF_KIND: Final[dict[FaultKind, Resource]] = {
    "concurrency": "concurrency", "spend_cap": "spend"
}  # fmt: skip
_RESOURCE_OF: Final[dict[str, Resource]] = {
    "requests": "requests", "request_quota_exceeded": "requests",
    "tokens": "tokens", "token_quota_exceeded": "tokens",
}  # fmt: skip
_SIDES: Final[dict[str, Resource]] = {
    "input": "input", "prompt": "input", "output": "output", "completion": "output"
}  # fmt: skip
_PERIOD_OF: Final = {"sec": 1.0, "min": MINUTE_S, "hou": HOUR_S, "day": DAY_S}
"""By the first three letters: providers write `sec`, `min`, `minute`, `Minute`."""
_MONEY_STATUSES: Final = (None, 400, 403, 429)
_NO_ACCESS: Final = (401, 403, 404, 405)
"""A wrong key, a key without rights, and a model or an address that is not there."""

# Anthropic answers 400 for limits that the user set ("You have reached your specified API usage
# limits") and for an empty balance ("Your credit balance is too low"), with no word of their own.
_SPEND_TEXT: Final = re.compile(r"reached your specified (?:workspace )?API usage limits", re.I)
_CREDIT_TEXT: Final = re.compile(r"credit balance is too low", re.I)
_NO_ACCESS_TEXT: Final = re.compile(
    r"\b(?:api_key_invalid|invalid_api_key|api key not valid|incorrect api key|model_not_found"
    r"|invalid_model|not a valid model)\b",
    re.I,
)
"""Gemini, xAI and OpenRouter answer 400 to a wrong key or model."""
_CONCURRENCY_TEXT: Final = re.compile(r"concurren|simultaneous|parallel[ _]requests", re.I)
_TOO_LARGE_TEXT: Final = re.compile(r"request too large", re.I)
_PER_PERIOD: Final = re.compile(
    r"(?:(input|output|prompt|completion)[ _-])?(token|request)s?[ _-]per[ _-](sec|min|hou|day)",
    re.I,
)
_AMOUNT: Final = r"([0-9]{1,20}(?:,[0-9]{3}){0,5})"
_STATED: Final = re.compile(rf"{_AMOUNT} (?:(?:in|out)put )?(?:token|request)s? per", re.I)
_LIMIT_USED: Final = re.compile(
    rf"\bLimit:? {_AMOUNT}(?:, Used ~?{_AMOUNT})?(?:, Requested ~?{_AMOUNT})?"
)
_NUMBER_OF: Final = re.compile(r"number of (?:(input|output|request) )?(token|request)s?", re.I)
_QUOTA_ID: Final = re.compile(r"(Input|Output)?(Token|Request)s?.{0,100}?Per(Sec|Min|Hou|Day)")
_AGAIN: Final = re.compile(
    r"\b(?:again|retry) (?:in|after) ([0-9][0-9.a-zµμ]{0,40})(?: (sec|min|hou))?", re.I
)


def _fault(status: int | None, complaint: _Complaint, reading: Reading) -> Fault:
    kind = _kind(status, complaint)
    resource = _RESOURCE_OF_KIND.get(kind)
    if kind == "rate":
        resource = _named(complaint)[0] or _only_empty(reading)
    # The refusals of a full usage window can come without `retry-after`.
    full = [one.reset_s for one in reading.limits if one.is_empty]
    full_s = max((reset_s for reset_s in full if reset_s is not None), default=None)
    waits_s = (reading.retry_after_s, complaint.retry_delay_s, full_s)
    retry_after_s = next((wait_s for wait_s in waits_s if wait_s is not None), None)
    detail = " ".join(complaint.message.split())
    if kind == "access":
        detail = f"HTTP {status}: {detail}"
    return Fault(kind, resource, retry_after_s, detail[:DETAIL_CHARS_MAX])


def _kind(status: int | None, complaint: _Complaint) -> FaultKind:
    """The order is the law: money, hopeless calls, refusals, then whose fault it is."""
    kinds = {_KIND_OF[word] for word in complaint.words if word in _KIND_OF}
    message, may_be_money = complaint.message, status in _MONEY_STATUSES
    if "spend_cap" in kinds or (may_be_money and _SPEND_TEXT.search(message)):
        return "spend_cap"
    if "billing" in kinds or status == 402 or (may_be_money and _CREDIT_TEXT.search(message)):
        return "billing"
    if status == 413:
        return "request"
    if status == 429 or "rate" in kinds:
        return _refusal_kind(kinds, message)
    if status is None or status < 300:
        # An answer that fails without a known word just broke.
        return next((kind for kind in _STREAM_ORDER if kind in kinds), "broken")
    if status in (400, 422) and _NO_ACCESS_TEXT.search(" ".join((*complaint.words, message))):
        return "access"
    return _status_kind(status, kinds)


def _refusal_kind(kinds: set[FaultKind], message: str) -> FaultKind:
    limit, _, requested = _spoken_amounts(message)
    if limit is not None and requested is not None and requested > limit:
        return "request"
    if _TOO_LARGE_TEXT.search(message):
        return "request"
    # A limit per period that also advises less concurrency is still a limit per period.
    if _CONCURRENCY_TEXT.search(message) and not _PER_PERIOD.search(message):
        return "concurrency"
    return "overload" if "overload" in kinds else "rate"


def _status_kind(status: int, kinds: set[FaultKind]) -> FaultKind:
    """RFC 9110, 15: 503 is a temporary overload. 529 is Anthropic's; 504 its timeout_error."""
    if "overload" in kinds or status in (503, 529):
        return "overload"
    if "timeout" in kinds or status in (408, 504):
        return "timeout"
    # 409 is a lock that timed out inside the provider: both SDKs send such a call again.
    # A redirect means a wrong base address: no provider moves its inference paths.
    if status in _NO_ACCESS or status < 400:
        return "access"
    if status < 500 and status != 409:
        return "request"
    return "server"


def _named(complaint: _Complaint) -> tuple[Resource | None, float | None]:
    """Resource and period that the body names, from its most to its least explicit part."""
    if complaint.violation is not None:
        return complaint.violation.resource, complaint.violation.period_s
    per = _PER_PERIOD.search(complaint.message)
    typed = next((_RESOURCE_OF[word] for word in _RESOURCE_OF if word in complaint.words), None)
    if per is not None:
        resource = _resource(per[1], per[2])
        if typed is None or (typed == "requests") == (resource == "requests"):
            return resource, _PERIOD_OF[per[3].lower()]
    if typed is not None:
        return typed, None
    count = _NUMBER_OF.search(complaint.message)
    return (None, None) if count is None else (_resource(count[1], count[2]), None)


def _resource(side: str | None, unit: str) -> Resource:
    if unit.lower() == "request":
        return "requests"
    # "request tokens" are input and output together.
    return _SIDES.get((side or "").lower(), "tokens")


def _only_empty(reading: Reading) -> Resource | None:
    """The one resource of which nothing remains; Anthropic's `tokens` repeats the tightest side."""
    empty = {one.resource for one in reading.limits if one.remaining == 0}
    candidates = empty - {"tokens"} or empty
    return next(iter(candidates)) if len(candidates) == 1 else None


def _complaint(body: bytes) -> _Complaint:
    """The body's message and words, from any of the shapes in which providers complain.

    `{"error": {...}}` (Anthropic, OpenAI, Gemini, vLLM), the same in a list (Gemini streams),
    inside `response` (OpenAI Responses), flat (Cerebras), `{"error": "..."}` (Ollama),
    `{"detail": "..."}` (FastAPI), and plain text or HTML (everything in between).
    """
    text = body[:BODY_BYTES_MAX].decode("utf-8", "replace")
    top: object = None
    # Deep nesting ends in RecursionError, long integers in ValueError.
    with suppress(ValueError, RecursionError):
        top = json.loads(text)
    if isinstance(top, list) and top:
        top = top[0]
    if not isinstance(top, dict):
        return _Complaint(text[:MESSAGE_CHARS_MAX], retry_delay_s=_wait_in_text_s(text))
    inner = top.get("response", top)
    error = inner.get("error", top) if isinstance(inner, dict) else top
    if not isinstance(error, dict):
        error = {"message": error}
    spoken = [error.get("message"), top.get("detail"), text]
    message = next(part for part in spoken if isinstance(part, str))[:MESSAGE_CHARS_MAX]
    code, details = error.get("code"), error.get("details")
    listed = details if isinstance(details, list) else [details]
    items = [item for item in listed if isinstance(item, dict)]
    words = [error.get("type"), code, error.get("status")]
    # Anthropic's details are an object with a code; Gemini's a list of which one has a reason.
    words += [item.get(key) for item in items for key in ("error_code", "reason")]
    # `google.rpc.RetryInfo.retryDelay` is a protobuf duration in JSON: `41s`, `1.5s`.
    delays = [item.get("retryDelay") for item in items]
    waits_s = [duration_s(delay) for delay in delays if isinstance(delay, str)]
    waits_s += [_wait_in_text_s(message), _figure(error.get("resets_in_seconds"))]
    return _Complaint(
        message,
        frozenset(word.lower() for word in words if isinstance(word, str)),
        code if type(code) is int and 300 <= code < 600 else None,
        max(_violations(items), key=lambda violation: violation.period_s or 0.0, default=None),
        # Gemini cuts `retryDelay` to whole seconds and says the rest only in the text.
        max((wait_s for wait_s in waits_s if wait_s is not None), default=None),
        _figure(error.get("resets_at")),
    )


def _figure(value: object) -> float | None:
    """A plain number of a body."""
    return number(str(value)) if type(value) in (int, float) else None


def _violations(items: list[dict[str, object]]) -> list[LimitReading]:
    """Violated quotas of Gemini's error details whose `quotaId` names resource and period."""
    found: list[LimitReading] = []
    for item in items:
        entries = item.get("violations")
        for entry in entries[:VIOLATIONS_MAX] if isinstance(entries, list) else ():
            quota_id = entry.get("quotaId") if isinstance(entry, dict) else None
            match = _QUOTA_ID.search(quota_id) if isinstance(quota_id, str) else None
            if match is not None:
                value = entry.get("quotaValue")
                amount = number(value) if isinstance(value, str) else None
                resource, period_s = _resource(match[1], match[2]), _PERIOD_OF[match[3].lower()]
                # A refused call wanted one request and did not get it; of tokens some may be left.
                left = 0.0 if resource == "requests" else None
                found.append(LimitReading(resource, period_s, amount, left, None))
    return found


def _wait_in_text_s(text: str) -> float | None:
    """`Please try again in 41.7s.` (OpenAI, Groq), `Please retry after 7 seconds.` (Azure)."""
    match = _AGAIN.search(text[:MESSAGE_CHARS_MAX])
    if match is None:
        return None
    amount = match[1].rstrip(".")
    if number(amount) is not None:
        amount += (match[2] or "s")[0].lower()
    return duration_s(amount)


def _spoken_amounts(message: str) -> tuple[float | None, float | None, float | None]:
    """Limit, used and requested amounts, as far as a message spells them out: `30,000`."""
    match = _LIMIT_USED.search(message) or _STATED.search(message)
    told = () if match is None else match.groups("")
    limit, used, requested, *_ = (number(part.replace(",", "")) for part in (*told, "", "", ""))
    return limit, used, requested
