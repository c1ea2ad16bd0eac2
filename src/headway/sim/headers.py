"""The limit headers of a simulated provider, in its dialect.

Laws:
- `decode(headers(...))` gives the readings back within the dialect's rounding, and
  `classify(error_body(...))` the fault's kind and resource, as far as the dialect has words.
- A dialect says what its real provider says: a limit without a header is not reported.
- Rounding is the provider's own: Anthropic's tokens go to the nearest 1,000 and its resets lose
  their fraction. Waits in headers are rounded up, so that a client that obeys is not early.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import Final, Literal

from msgspec import Struct, field

from headway.base.numbers import REMEMBERED_MAX, date_of
from headway.base.values import DAY_S, HOUR_S, MINUTE_S, Fault, FaultKind, LimitReading, Resource
from headway.pacing.headers import DIALECTS, MONTHS, PLAIN, Dialect


def headers(
    dialect_name: str,
    readings: Sequence[LimitReading],
    date_wall_s: float,
    retry_after_s: float | None,
) -> tuple[tuple[str, str], ...]:
    """Response headers that report `readings` at `date_wall_s`."""
    voice = _VOICES[dialect_name]
    lines = [("date", http_date(date_wall_s))]
    windows = [reading for reading in readings if reading.window]
    if windows and voice.windows is not None:
        lines += voice.windows(windows, date_wall_s)
    for reading in readings:
        if reading.window:
            continue
        if (names := voice.names_of(reading)) is not None:
            limit, remaining, reset = names
            if any(name in names for name, _ in lines):
                continue
            if reading.limit is not None:
                lines.append((limit, str(floor(reading.limit))))
            if reading.remaining is not None:
                lines.append((remaining, _remaining(voice, reading)))
            if reading.reset_s is not None:
                reset_s = _next_call_s(reading) if voice.resets_next else reading.reset_s
                lines.append((reset, _reset(voice, reset_s, date_wall_s)))
    if voice.says_policy:
        lines += _policy_lines(readings)
    if retry_after_s is not None:
        if voice.says_milliseconds:
            lines.append(("retry-after-ms", str(ceil(retry_after_s * 1000.0))))
        if voice.says_retry_after:
            lines.append(("retry-after", str(ceil(retry_after_s))))
    return tuple(lines)


def error_body(
    dialect_name: str, fault: Fault, request_id: str, reading: LimitReading | None = None
) -> tuple[int, bytes]:
    """Status and body with which the provider reports `fault`.

    `reading` is the limit that was hit, for the dialects whose text contains it. Faults of
    kind `broken` and `connection` have no response of their own: `server` stands for them.
    """
    kind: FaultKind = "server" if fault.kind in ("broken", "connection") else fault.kind
    dialect, resource = dialect_of(dialect_name), fault.resource
    own_s = dialect.requests_period_s if resource == "requests" else dialect.tokens_period_s
    period_s = (reading and reading.period_s) or own_s or MINUTE_S
    counted = _PROSE.get(resource) if resource is not None and kind == "rate" else None
    limit = reading.limit if reading is not None else None
    return _SHAPES[dialect_name](
        _Refused(kind, fault, request_id, reading, counted, period_s, limit)
    )


class _HeaderStyle(Struct, frozen=True):
    """How one dialect writes headers."""

    names: dict[tuple[Resource, float | None], tuple[str, str, str]] = field(default_factory=dict)
    """The three headers of a limit."""
    windows: Callable[[Sequence[LimitReading], float], list[tuple[str, str]]] | None = None
    """How it writes usage windows."""
    reset_style: Literal["time", "duration", "seconds", "whole"] = "duration"
    tokens_step: float = 1.0
    says_retry_after: bool = True
    says_milliseconds: bool = False
    says_policy: bool = False
    """Writes the IETF's `RateLimit` and `RateLimit-Policy`, which name the period."""
    resets_next: bool = False
    """A reset is when the next call has room, not when the limit is full: 0 while there is room."""

    def names_of(self, reading: LimitReading) -> tuple[str, str, str] | None:
        """By resource and period; by the resource alone where the names leave the period out."""
        names = self.names.get((reading.resource, reading.period_s))
        return names or self.names.get((reading.resource, None))


def dialect_of(name: str) -> Dialect:
    """How a client reads what a simulated provider of this name writes."""
    return DIALECTS.get(name, PLAIN)


def _policy_lines(readings: Sequence[LimitReading]) -> list[tuple[str, str]]:
    """`RateLimit-Policy: "requests/10";q=100;w=10` and `RateLimit: "requests/10";r=7;t=4`."""
    policies, current = [], []
    for reading in readings:
        if reading.period_s is None:
            continue
        name = f'"{_PROSE[reading.resource]}/{reading.period_s:g}"'
        if reading.limit is not None:
            policies.append(f"{name};q={floor(reading.limit)};w={reading.period_s:g}")
        if reading.remaining is not None:
            reset = "" if reading.reset_s is None else f";t={ceil(reading.reset_s)}"
            current.append(f"{name};r={floor(max(0.0, reading.remaining))}{reset}")
    lines = (("ratelimit-policy", policies), ("ratelimit", current))
    return [(name, ", ".join(parts)) for name, parts in lines if parts]


def _remaining(voice: _HeaderStyle, reading: LimitReading) -> str:
    """What is left: whole calls; tokens to the nearest step, where the dialect rounds them."""
    left = max(0.0, reading.remaining or 0.0)
    if voice.tokens_step == 1.0 or reading.resource == "requests":
        return str(floor(left))
    return str(floor(left / voice.tokens_step + 0.5) * floor(voice.tokens_step))


def _unified(windows: Sequence[LimitReading], date_wall_s: float) -> list[tuple[str, str]]:
    """Usage windows: the share used, in whole percent, and the second of the epoch they reset."""
    lines = list[tuple[str, str]]()
    for one in windows:
        prefix, share = f"anthropic-ratelimit-unified-{one.window}", one.utilization or 0.0
        lines += [
            (f"{prefix}-status", "rejected" if one.is_empty else "allowed"),
            (f"{prefix}-utilization", "1.0" if one.is_empty else f"{floor(share * 100) / 100}"),
        ]
        if one.reset_s is not None:
            lines.append((f"{prefix}-reset", str(floor(date_wall_s + one.reset_s))))
    status = "rejected" if any(one.is_empty for one in windows) else "allowed"
    return [*lines, ("anthropic-ratelimit-unified-status", status)]


def _codex(windows: Sequence[LimitReading], _date_wall_s: float) -> list[tuple[str, str]]:
    """The two windows of a ChatGPT login, in whole percent, and the seconds until they reset."""
    lines = list[tuple[str, str]]()
    for slot, one in zip(("primary", "secondary"), windows, strict=False):
        share = 1.0 if one.is_empty else min(0.99, one.utilization or 0.0)
        lines += [
            (f"x-codex-{slot}-used-percent", str(floor(share * 100))),
            (f"x-codex-{slot}-window-minutes", str(floor((one.period_s or 0.0) / MINUTE_S))),
        ]
        if one.reset_s is not None:
            lines.append((f"x-codex-{slot}-reset-after-seconds", str(ceil(one.reset_s))))
    return lines


def _names(pattern: str) -> tuple[str, str, str]:
    limit, remaining, reset = (pattern.replace("*", n) for n in ("limit", "remaining", "reset"))
    return limit, remaining, reset


def _reset(voice: _HeaderStyle, reset_s: float, date_wall_s: float) -> str:
    if voice.reset_style == "time":
        return rfc3339(date_wall_s + reset_s)
    if voice.reset_style == "whole":
        return str(ceil(reset_s))
    return go_duration(reset_s) if voice.reset_style == "duration" else f"{reset_s:.6f}"


def _next_call_s(reading: LimitReading) -> float:
    """When a bucket has room for a call."""
    missing = 1.0 - (reading.remaining or 0.0)
    if missing <= 0 or not reading.limit or not reading.period_s:
        return 0.0
    return missing * reading.period_s / reading.limit


def go_duration(seconds: float) -> str:
    """As Go prints a `time.Duration` of whole milliseconds: `6m0s`, `2m59.56s`, `12ms`."""
    total_ms = round(seconds * 1000.0)
    if total_ms < 1000:
        return f"{total_ms}ms" if total_ms else "0s"
    minutes, rest_ms = divmod(total_ms, 60_000)
    tail = f"{rest_ms / 1000.0:g}s"
    if minutes == 0:
        return tail
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{tail}" if hours else f"{minutes}m{tail}"


def http_date(wall_s: float) -> str:
    """IMF-fixdate (RFC 9110, 5.6.7), cut to the second."""
    return f"{_minute(floor(wall_s) // 60)[0]}:{floor(wall_s) % 60:02d} GMT"


def rfc3339(wall_s: float) -> str:
    """RFC 3339 in UTC, cut to the second."""
    return f"{_minute(floor(wall_s) // 60)[1]}:{floor(wall_s) % 60:02d}Z"


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@lru_cache(REMEMBERED_MAX)
def _minute(minutes: int) -> tuple[str, str]:
    """A minute of the epoch for both kinds of date, up to its seconds."""
    days, minute = divmod(minutes, 1440)
    date, time = date_of(days), f"{minute // 60:02d}:{minute % 60:02d}"
    year, month, day = date.split("-")
    # 1970-01-01 was a Thursday.
    weekday, name = _DAYS[(days + 3) % 7], MONTHS[month]
    return f"{weekday}, {day} {name} {year} {time}", f"{date}T{time}"


_UNITS: Final = {MINUTE_S: "minute", HOUR_S: "hour", DAY_S: "day"}
_CEREBRAS_RESOURCES: Final[tuple[Resource, ...]] = ("requests", "tokens")
_VOICES: Final[dict[str, _HeaderStyle]] = {
    "anthropic": _HeaderStyle(
        names={
            ("requests", MINUTE_S): _names("anthropic-ratelimit-requests-*"),
            ("input", MINUTE_S): _names("anthropic-ratelimit-input-tokens-*"),
            ("output", MINUTE_S): _names("anthropic-ratelimit-output-tokens-*"),
            ("tokens", MINUTE_S): _names("anthropic-ratelimit-tokens-*"),
        },
        windows=_unified,
        reset_style="time",
        tokens_step=DIALECTS["anthropic"].tokens_step,
    ),
    "openai": _HeaderStyle(
        names={
            ("requests", None): _names("x-ratelimit-*-requests"),
            ("tokens", None): _names("x-ratelimit-*-tokens"),
        },
        says_milliseconds=True,
    ),
    "groq": _HeaderStyle(
        names={
            ("requests", DAY_S): _names("x-ratelimit-*-requests"),
            ("tokens", MINUTE_S): _names("x-ratelimit-*-tokens"),
        },
    ),
    "cerebras": _HeaderStyle(
        names={
            (resource, period_s): _names(f"x-ratelimit-*-{resource}-{unit}")
            for resource in _CEREBRAS_RESOURCES
            for period_s, unit in _UNITS.items()
        },
        reset_style="seconds",
    ),
    "gemini": _HeaderStyle(says_retry_after=False),
    "plain": _HeaderStyle(says_retry_after=False),
    "advice": _HeaderStyle(),
    "bare": _HeaderStyle({("requests", None): _names("x-ratelimit-*")}, reset_style="whole"),
    "envoy": _HeaderStyle({("requests", None): _names("x-ratelimit-*")}, reset_style="whole",
                    says_retry_after=False, resets_next=True),
    "ietf": _HeaderStyle(says_policy=True),
    "codex": _HeaderStyle(windows=_codex, says_retry_after=False),
}  # fmt: skip
"""Those of `DIALECTS`, and five of logins, proxies and servers: no limits but `Retry-After`;
requests without their period; the same as Envoy writes them; the IETF's fields; the windows of a
ChatGPT login."""
DIALECT_NAMES: Final = tuple(_VOICES)


class _Refused(Struct, frozen=True):
    """All that an error body can be made of."""

    kind: FaultKind
    fault: Fault
    request_id: str
    reading: LimitReading | None
    counted: str | None
    """Of a rate limit, its resource in prose: `input tokens`."""
    period_s: float
    limit: float | None

    @property
    def unit(self) -> str:
        """The period in prose; one that has no name is written as a minute."""
        return _UNITS.get(self.period_s, "minute")


_PROSE: Final[dict[Resource, str]] = {
    "requests": "requests", "tokens": "tokens", "input": "input tokens", "output": "output tokens",
}  # fmt: skip


def _json(status: int, body: dict[str, object]) -> tuple[int, bytes]:
    return status, json.dumps(body).encode()


_ANTHROPIC_TYPES: Final[dict[FaultKind, tuple[int, str, str]]] = {
    "rate": (429, "rate_limit_error", "This request would exceed your account's rate limit."),
    "concurrency": (429, "rate_limit_error", "Number of concurrent connections has exceeded your "
                    "rate limit. Please try again later."),
    "spend_cap": (429, "rate_limit_error", "You have reached your monthly spend limit."),
    "overload": (529, "overloaded_error", "Overloaded"),
    "billing": (402, "billing_error", "There is an issue with your billing information."),
    "request": (400, "invalid_request_error", "Invalid request."),
    "server": (500, "api_error", "Internal server error"),
    "timeout": (504, "timeout_error", "Request timed out."),
}  # fmt: skip


def _anthropic_error(said: _Refused) -> tuple[int, bytes]:
    status, kind, message = _ANTHROPIC_TYPES[said.kind]
    if said.counted is not None:
        amount = "" if said.limit is None else f"{floor(said.limit):,} "
        message = "This request would exceed your organization's rate limit of "
        message += f"{amount}{said.counted} per {said.unit}."
    error: dict[str, object] = {"type": kind, "message": _own_words(said, message)}
    if said.kind == "spend_cap":
        error["details"] = {"error_code": "enforced_spend_limit_reached"}
    return _json(status, {"type": "error", "error": error, "request_id": said.request_id})


_OPENAI_TYPES: Final[dict[FaultKind, tuple[int, str, str | None, str]]] = {
    "rate": (429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached."),
    "concurrency": (429, "requests", "rate_limit_exceeded",
                    "Concurrency limit reached for requests."),
    "spend_cap": (429, "insufficient_quota", "organization_spend_limit_exceeded",
                  "Your organization has reached its spend limit."),
    "billing": (429, "insufficient_quota", "insufficient_quota",
                "You exceeded your current quota, please check your plan and billing details."),
    "overload": (503, "server_error", "server_is_overloaded", "The engine is overloaded."),
    "request": (400, "invalid_request_error", None, "Invalid request."),
    "server": (500, "server_error", None, "The server had an error while processing your request."),
    "timeout": (504, "server_error", None, "The request timed out."),
}  # fmt: skip


def _openai_error(said: _Refused) -> tuple[int, bytes]:
    status, kind, code, message = _OPENAI_TYPES[said.kind]
    if said.counted is not None:
        kind = "requests" if said.fault.resource == "requests" else "tokens"
        unit = "min" if said.unit == "minute" else said.unit
        short = "".join(word[0].upper() for word in (*said.counted.split(), "per", unit))
        message = f"Rate limit reached on {said.counted} per {unit} ({short})"
        message += f"{_limit_used_requested(said)}."
    if said.kind in ("rate", "concurrency") and said.fault.retry_after_s is not None:
        message += f" Please try again in {go_duration(said.fault.retry_after_s)}."
    if said.kind == "server":
        message += f" (request ID {said.request_id})"
    error = {"message": _own_words(said, message), "type": kind, "param": None, "code": code}
    return _json(status, {"error": error})


def _limit_used_requested(said: _Refused) -> str:
    """OpenAI's wait is until used + requested fits: (used + requested - limit) / refill."""
    reading = said.reading
    if reading is None or reading.limit is None or reading.remaining is None:
        return ""
    short_by = (said.fault.retry_after_s or 0.0) * reading.limit / said.period_s
    limit, used = floor(reading.limit), ceil(reading.limit - reading.remaining)
    return f": Limit {limit}, Used {used}, Requested {min(limit, ceil(limit - used + short_by))}"


def _cerebras_error(said: _Refused) -> tuple[int, bytes]:
    """OpenAI's fields without the object around them."""
    status, kind, code, message = _OPENAI_TYPES[said.kind]
    param = None
    if said.counted is not None:
        kind, param = "too_many_requests_error", "quota"
        code = f"{'request' if said.fault.resource == 'requests' else 'token'}_quota_exceeded"
        message = f"{said.counted.capitalize()} per {said.unit} limit exceeded."
    body = {"message": _own_words(said, message), "type": kind, "param": param, "code": code}
    return _json(402 if said.kind == "billing" else status, dict(body))


_GEMINI_TYPES: Final[dict[FaultKind, tuple[int, str, str]]] = {
    "rate": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "concurrency": (429, "RESOURCE_EXHAUSTED", "Too many concurrent requests."),
    "spend_cap": (403, "PERMISSION_DENIED", "This project is over its budget."),
    "billing": (403, "PERMISSION_DENIED", "This API method requires billing to be enabled."),
    "overload": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "request": (400, "INVALID_ARGUMENT", "Invalid request."),
    "server": (500, "INTERNAL", "An internal error has occurred."),
    "timeout": (504, "DEADLINE_EXCEEDED", "The request timed out."),
}
_GOOGLE_RPC: Final = "type.googleapis.com/google.rpc"


def _gemini_error(said: _Refused) -> tuple[int, bytes]:
    """Gemini has no headers: quota and wait are in the details."""
    status, word, message = _GEMINI_TYPES[said.kind]
    details: list[dict[str, object]] = []
    if said.counted is not None:
        details.append({"@type": f"{_GOOGLE_RPC}.QuotaFailure", "violations": [_violation(said)]})
    if said.kind in ("rate", "concurrency") and said.fault.retry_after_s is not None:
        message += f" Please retry in {said.fault.retry_after_s:.6f}s."
        delay = f"{floor(said.fault.retry_after_s)}s"
        details.append({"@type": f"{_GOOGLE_RPC}.RetryInfo", "retryDelay": delay})
    if said.kind in ("spend_cap", "billing"):
        details.append({"@type": f"{_GOOGLE_RPC}.ErrorInfo", "reason": "BILLING_DISABLED"})
    error = {"code": status, "message": _own_words(said, message), "status": word}
    return _json(status, {"error": error | ({"details": details} if details else {})})


def _violation(said: _Refused) -> dict[str, object]:
    period = said.unit.capitalize()
    side = {"input": "Input", "output": "Output"}.get(said.fault.resource or "", "")
    quota_id = f"GenerateContent{side}TokensPerModelPer{period}"
    if said.fault.resource == "requests":
        quota_id = f"GenerateRequestsPer{period}PerProjectPerModel"
    value = {} if said.limit is None else {"quotaValue": str(floor(said.limit))}
    return {"quotaId": quota_id, **value}


def _plain_error(said: _Refused) -> tuple[int, bytes]:
    """A local server behind a proxy: the proxy refuses in text or HTML, the server in JSON."""
    status, kind, _, message = _OPENAI_TYPES[said.kind]
    if said.kind in ("rate", "concurrency"):
        return 429, b"Too Many Requests"
    if said.kind == "overload":
        return 503, b"<html><body><h1>503 Service Unavailable</h1></body></html>"
    if said.kind in ("spend_cap", "billing"):
        status = 402
    error = {"message": _own_words(said, message), "type": kind, "param": None, "code": status}
    return _json(status, {"error": error})


def _own_words(said: _Refused, message: str) -> str:
    """The detail of a fault of the call or of the server, if it has any; else the message."""
    return (said.fault.detail if said.kind in ("request", "server") else "") or message


def _codex_error(said: _Refused) -> tuple[int, bytes]:
    """A login whose window is used up hears when it resets; all else is as OpenAI says it."""
    if said.kind != "rate":
        return _openai_error(said)
    error: dict[str, object] = {
        "type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_in_seconds": ceil(said.fault.retry_after_s or 0.0),
    }  # fmt: skip
    return _json(429, {"error": error})


_SHAPES: Final[dict[str, Callable[[_Refused], tuple[int, bytes]]]] = {
    "anthropic": _anthropic_error,
    "openai": _openai_error,
    "groq": _openai_error,
    "cerebras": _cerebras_error,
    "gemini": _gemini_error,
    "plain": _plain_error,
    "advice": _plain_error,
    "bare": _plain_error,
    "envoy": _plain_error,
    "ietf": _plain_error,
    "codex": _codex_error,
}
