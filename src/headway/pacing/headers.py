"""Reads limits from a provider's response headers.

Laws:
- Whatever the bytes, nothing here raises: a value that cannot be read was not said.
- Times are taken relative to the response's own `Date`, so that a wrong clock here costs nothing.
- A reading repeats what the response said and concludes nothing: a reset of 0 is reported as 0.
- Header names are compared without case (RFC 9110, 5.1); of repeated headers the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

from headway.base.fields import NUMBER_MAX
from headway.base.numbers import REMEMBERED_MAX, date_of, day_of
from headway.base.values import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    Charging,
    LimitKind,
    LimitReading,
    Reading,
    Resource,
)

Headers = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]
VALUE_CHARS_MAX: Final = 1024
"""The longest header value that is looked at; the longest that means something is under 200."""
EPOCH_S_MIN: Final = 1e9
EPOCH_MS_MIN: Final = 1e12
"""A number this large is a time and not a wait: 31 years from now, or September 2001."""
DIGEST_BYTES: Final = 4
"""Of a thousand accounts two have the same name in one case of 8,600; with two bytes, always."""
DIGEST_KEY: Final = b"headway account"
EXTRA_USE: Final = "overage"
"""Anthropic's window of what is used beyond the plan, and paid for."""


class Dialect(Struct, frozen=True):
    """How one provider counts, charges and speaks, as far as it is published."""

    name: str
    requests_period_s: float | None = MINUTE_S
    """Period of an `x-ratelimit-*-requests` header, which does not say it: Groq's is a day."""
    tokens_period_s: float | None = MINUTE_S
    charging: Charging = "reserved"
    input_charge: Literal["all", "uncached"] = "all"
    """Whether tokens read from the prompt cache count towards the limits."""
    limit_kind: LimitKind | None = None
    """How limits count, where published; `None` is to be detected from readings."""
    refusals_count: bool = False
    """Whether a refused call is charged: where it is, a retry storm never ends."""
    tokens_step: float = 1.0
    """What `remaining` is rounded to for tokens; for requests it is always exact."""


ANTHROPIC: Final = Dialect(
    "anthropic", charging="produced", input_charge="uncached", limit_kind="bucket",
    tokens_step=1000.0,
)  # fmt: skip
OPENAI: Final = Dialect("openai", refusals_count=True)
GROQ: Final = Dialect("groq", requests_period_s=DAY_S, input_charge="uncached")
CEREBRAS: Final = Dialect("cerebras")
GEMINI: Final = Dialect("gemini", charging="produced", limit_kind="fixed")
PLAIN: Final = Dialect("plain", requests_period_s=None, tokens_period_s=None, charging="produced")
"""Sends no headers: vLLM, llama.cpp, Ollama, DeepSeek. Limits are learned from outcomes."""
DIALECTS: Final[dict[str, Dialect]] = {
    dialect.name: dialect for dialect in (ANTHROPIC, OPENAI, GROQ, CEREBRAS, GEMINI, PLAIN)
}


class HeaderText(dict[str, str]):
    """Headers as text: names in lower case, values without outer blanks, none that is too long."""


def as_text(headers: Headers) -> HeaderText:
    if isinstance(headers, HeaderText):
        return headers
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return HeaderText({
        (name if isinstance(name, str) else name.decode("utf-8", "replace")).lower():
        (value if isinstance(value, str) else value.decode("utf-8", "replace")).strip()
        for name, value in pairs
        if len(value) <= VALUE_CHARS_MAX
    })  # fmt: skip


def guess(headers: Headers) -> Dialect:
    """The dialect of a response of an unknown provider; `PLAIN` when nothing gives it away."""
    said = as_text(headers)
    for dialect, sign in _SIGNS:
        if any(sign.match(name) for name in said):
            return dialect
    # Gemini sends no limits; its front server's name is the only trace.
    return GEMINI if said.get("server", "").startswith("scaffolding") else PLAIN


def decode(headers: Headers, received_wall_s: float | None) -> Reading:
    """All that one response's headers say about limits, and when to send again.

    `received_wall_s` stands in for a missing `Date`; without either, times of day are not read.
    OpenAI's organisation and project tokens are two readings: a call counts towards both.
    """
    rows: dict[int, dict[str, str]] = {}
    said = as_text(headers)
    has_windows = False
    for name, value in said.items():
        place = _PLACES.get(name)
        if place is not None:
            slot, part = place
            rows.setdefault(slot, {})[part] = value
        elif name.startswith(_OF_WINDOWS):
            has_windows = True
    date_s = http_date_s(said.get("date", ""))
    # `Date` is cut to whole seconds (RFC 9110, 6.6.1): by half a second on average.
    since = (received_wall_s, 0.0) if date_s is None else (date_s, 0.5)
    triple = rows.pop(_TRIPLE, {})
    limits = [_limit_reading(slot, rows[slot], since) for slot in sorted(rows)]
    if has_windows:
        limits += [*_unified_windows(said, since), *_codex_windows(said, since)]
    if triple or "ratelimit" in said or "ratelimit-policy" in said:
        limits += _ietf_readings(said, triple, since)
    return Reading(
        limits=tuple(filter(None, limits)),
        retry_after_s=_retry_after_s(said, since),
        should_retry={"true": True, "false": False}.get(said.get("x-should-retry", "").lower()),
        owner=_owner(said),
    )


def _owner(said: dict[str, str]) -> str:
    """The account of the organisation, and of its project, that a response names."""
    for provider, names in _OWNERS:
        if names[0] in said:
            return account_digest(provider, *[said.get(name, "") for name in names])
    return ""


@lru_cache(REMEMBERED_MAX)
def account_digest(place: str, *ids: str) -> str:
    """`anthropic#1a2b3c4d`: an account's name, which holds no id and no key itself."""
    data = "\0".join(ids).encode("utf-8", "surrogateescape")
    return f"{place}#{blake2b(data, digest_size=DIGEST_BYTES, key=DIGEST_KEY).hexdigest()}"


_OWNERS: Final = (
    ("anthropic", ("anthropic-organization-id",)),
    ("openai", ("openai-organization", "openai-project")),
)
"""A provider, and the headers that name the organisation that pays."""


_Since = tuple[float | None, float]
"""The moment from which a response's times are counted, and how much of its second was cut."""


def _until_s(stamp_s: float | None, since: _Since) -> float | None:
    """Seconds from the response to `stamp_s`, never negative."""
    from_s, cut_s = since
    if stamp_s is None or from_s is None:
        return None
    # A stamp without a fraction was cut in the same way and the halves cancel.
    return max(0.0, stamp_s - from_s - (0.0 if stamp_s == int(stamp_s) else cut_s))


_LIMITS: Final[tuple[tuple[str, Resource, float | None], ...]] = (
    ("anthropic-ratelimit-requests-{}", "requests", MINUTE_S),
    ("anthropic-ratelimit-input-tokens-{}", "input", MINUTE_S),
    ("anthropic-ratelimit-output-tokens-{}", "output", MINUTE_S),
    ("anthropic-ratelimit-tokens-{}", "tokens", MINUTE_S),
    ("x-ratelimit-{}-requests", "requests", None),
    ("x-ratelimit-{}-tokens", "tokens", None),
    ("x-ratelimit-{}-project-tokens", "tokens", None),
    ("x-ratelimit-{}-requests-minute", "requests", MINUTE_S),
    ("x-ratelimit-{}-requests-hour", "requests", HOUR_S),
    ("x-ratelimit-{}-requests-day", "requests", DAY_S),
    ("x-ratelimit-{}-tokens-minute", "tokens", MINUTE_S),
    ("x-ratelimit-{}-tokens-hour", "tokens", HOUR_S),
    ("x-ratelimit-{}-tokens-day", "tokens", DAY_S),
)
"""Headers of a limit, its resource, and its period; `None` where only the dialect knows that."""
_TRIPLE: Final = len(_LIMITS)
"""The bare triple of the IETF's early drafts and of older servers: one limit, two names."""
_TRIPLE_PARTS: Final = ("limit", "remaining", "reset")
_PLACES: Final = {
    pattern.format(part): (slot, part)
    for slot, pattern in (
        *enumerate(pattern for pattern, _, _ in _LIMITS),
        (_TRIPLE, "x-ratelimit-{}"),
        (_TRIPLE, "ratelimit-{}"),
    )
    for part in _TRIPLE_PARTS
}
"""Header name to a limit and a part of it."""
_OF_LIMIT: Final = "x-ratelimit-(?:limit|remaining|reset)"
_SIGNS: Final = (
    (ANTHROPIC, re.compile(r"anthropic-")),
    (GROQ, re.compile(r"x-groq-")),
    (CEREBRAS, re.compile(rf"cerebras-|{_OF_LIMIT}-(?:requests|tokens)-(?:minute|hour|day)\Z")),
    (OPENAI, re.compile(rf"openai-|x-codex-|{_OF_LIMIT}-(?:requests|tokens|project-tokens)\Z")),
)
"""Header names that give a dialect away."""


def _limit_reading(slot: int, row: dict[str, str], since: _Since) -> LimitReading | None:
    """One limit from its headers' values; `None` when none of them could be read."""
    _, resource, period_s = _LIMITS[slot]
    limit, remaining = number(row.get("limit")), number(row.get("remaining"))
    reset_s = _reset_s(row.get("reset"), since, EPOCH_S_MIN)
    if limit is None and remaining is None and reset_s is None:
        return None
    return LimitReading(resource, period_s, limit, remaining, reset_s)


_UNIFIED: Final = "anthropic-ratelimit-unified-"
_CODEX: Final = "x-codex-"
_OF_WINDOWS: Final = (_UNIFIED, _CODEX)
_CODEX_SLOTS: Final = ("primary", "secondary")
_WINDOW_PARTS: Final = ("utilization", "status", "reset")
_NAMED_PERIOD: Final = re.compile(r"([0-9]{1,4})([mhd])(?![a-z0-9])")


def _unified_windows(said: dict[str, str], since: _Since) -> Iterator[LimitReading]:
    """Anthropic's usage windows, whatever their names. A window that is used up lets calls in
    while the account's status says so: what is used beyond the plan is paid for."""
    rows: dict[str, dict[str, str]] = {}
    for name, value in said.items():
        if name.startswith(_UNIFIED):
            window, _, part = name[len(_UNIFIED) :].rpartition("-")
            if part in _WINDOW_PARTS:
                rows.setdefault(window, {})[part] = value
    account = rows.pop("", {})
    refuses, has_refused = account.get("status") == "rejected", False
    for window, row in rows.items():
        told, used = row.get("status", ""), number(row.get("utilization"))
        is_open = (told or account.get("status", "")).startswith("allowed")
        is_full = used is not None and used >= 1.0 and window != EXTRA_USE
        is_empty = told == "rejected" or (is_full and not is_open)
        has_refused = has_refused or is_empty
        reset_s = _reset_s(row.get("reset"), since, 0.0)
        if is_empty or used is not None:
            yield _window(window, 1.0 if is_empty else used or 0.0, reset_s, is_empty)
    if refuses and not has_refused:
        yield _window("unified", 1.0, _reset_s(account.get("reset"), since, 0.0), True)


def _codex_windows(said: dict[str, str], since: _Since) -> Iterator[LimitReading]:
    """The two windows of a ChatGPT login; percent from 0 to 100."""
    for slot in _CODEX_SLOTS:
        used = number(said.get(f"{_CODEX}{slot}-used-percent"))
        if used is None:
            continue
        minutes = number(said.get(f"{_CODEX}{slot}-window-minutes"))
        reset_s = number(said.get(f"{_CODEX}{slot}-reset-after-seconds"))
        if reset_s is None:
            reset_s = _reset_s(said.get(f"{_CODEX}{slot}-reset-at"), since, 0.0)
        name = window_name(minutes * MINUTE_S) if minutes else slot
        yield _window(name, used / 100.0, reset_s, used >= 100.0)


def window_name(period_s: float) -> str:
    """`5h`, `7d`, `90m`: a period as providers name their windows by it."""
    hours = period_s / HOUR_S
    if hours != int(hours):
        return f"{period_s / MINUTE_S:g}m"
    return f"{hours / 24.0:g}d" if hours >= 48.0 else f"{hours:g}h"


def named_period_s(name: str) -> float | None:
    """The period at the beginning of a window's name: `5h`, `7d_oi`."""
    match = _NAMED_PERIOD.match(name)
    return None if match is None else float(match[1]) * _WINDOW_UNIT_S[match[2]]


def _window(name: str, used: float, reset_s: float | None, is_empty: bool) -> LimitReading:
    period_s = named_period_s(name)
    return LimitReading("tokens", period_s, None, None, reset_s, min(used, 1.0), name, is_empty)


_WINDOW_UNIT_S: Final = {"m": MINUTE_S, "h": HOUR_S, "d": DAY_S}


def _ietf_readings(
    said: dict[str, str], triple: dict[str, str], since: _Since
) -> list[LimitReading | None]:
    """Readings of the IETF draft "RateLimit header fields for HTTP" and of its early drafts.

    Now: `RateLimit: "default";r=50;t=30` and `RateLimit-Policy: "default";q=100;w=60`, joined by
    name. Early: `RateLimit-Limit: 100`, `-Remaining`, `-Reset` and `RateLimit-Policy: 100;w=60`.
    """
    policies = dict(_members(said.get("ratelimit-policy", "")))
    current = dict(_members(said.get("ratelimit", "")))
    readings: list[LimitReading | None] = []
    for name in dict.fromkeys((*policies, *current)):
        policy, now = policies.get(name, {}), current.get(name, {})
        resource = _unit_resource(policy.get("qu", name).lower())
        limit, remaining = number(policy.get("q")), number(now.get("r"))
        if resource is None or (limit is None and remaining is None):
            continue
        period_s, reset_s = number(policy.get("w")), number(now.get("t"))
        readings.append(LimitReading(resource, period_s, limit, remaining, reset_s))
    first = triple.get("limit", "").split(",")[0].strip()
    limit, remaining = number(first), number(triple.get("remaining"))
    if limit is not None or remaining is not None:
        period_s = number(policies.get(first, {}).get("w"))
        reset_s = _reset_s(triple.get("reset"), since, EPOCH_S_MIN)
        readings.append(LimitReading("requests", period_s, limit, remaining, reset_s))
    return readings


def _members(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Members of a structured list (RFC 9651) and their parameters; no name contains `,` or `;`."""
    for member in text.split(","):
        name, *parameters = member.split(";")
        pairs = (parameter.partition("=") for parameter in parameters)
        yield name.strip().strip('"'), {key.strip(): value.strip(' "') for key, _, value in pairs}


def _unit_resource(words: str) -> Resource | None:
    """Resource that a policy's unit or name means; `None` for what headway does not count."""
    if "concurren" in words:
        return "concurrency"
    if "token" in words:
        return "input" if "input" in words else "output" if "output" in words else "tokens"
    return None if "byte" in words else "requests"


def _retry_after_s(said: dict[str, str], since: _Since) -> float | None:
    """Both SDKs read `retry-after-ms` first, then `retry-after`: seconds or a date."""
    if (milliseconds := number(said.get("retry-after-ms"))) is not None:
        return milliseconds / 1000.0
    text = said.get("retry-after")
    if text is None:
        return None
    seconds = number(text)
    if seconds is not None:
        return seconds
    return _until_s(http_date_s(text), since)


def _reset_s(text: str | None, since: _Since, epoch_s_min: float) -> float | None:
    """Seconds until a reset: a Go duration, seconds, an RFC 3339 time or seconds of the epoch."""
    if text is None:
        return None
    if text[4:5] == "-":
        return _until_s(rfc3339_s(text), since)
    value = number(text)
    if value is None:
        return duration_s(text)
    if value < epoch_s_min:
        return value
    return _until_s(value if value < EPOCH_MS_MIN else value / 1000.0, since)


_NUMBER: Final = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,20})?")
_DURATION_PART: Final = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,20})?)(ns|us|µs|μs|ms|h|m|s)")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_UNIT_S: Final = {
    "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9
}  # fmt: skip


def number(text: str | None) -> float | None:
    """A plain decimal from 0 to `NUMBER_MAX`: no sign, exponent, separator, nan or infinity."""
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if value <= NUMBER_MAX else None


def duration_s(text: str) -> float | None:
    """Seconds of a Go duration (`time.Duration.String`): `6m0s`, `2m59.56s`, `12ms`, `500µs`."""
    if _DURATION.fullmatch(text) is None:
        return None
    total_s = 0.0
    for amount, unit in _DURATION_PART.findall(text):
        total_s += float(amount) * _UNIT_S[unit]
    return total_s if total_s <= NUMBER_MAX else None


MONTHS: Final = {
    "01": "Jan", "02": "Feb", "03": "Mar", "04": "Apr", "05": "May", "06": "Jun",
    "07": "Jul", "08": "Aug", "09": "Sep", "10": "Oct", "11": "Nov", "12": "Dec",
}  # fmt: skip
_MONTHS: Final = {name: number for number, name in MONTHS.items()}
_CLOCK: Final = r"([0-9]{2}):([0-9]{2}):([0-9]{2})"
_IMF_FIXDATE: Final = re.compile(rf"(?s:.{{5}})([0-9]{{2}}) (\w{{3}}) ([0-9]{{4}}) {_CLOCK} GMT")
_RFC3339: Final = re.compile(
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[Tt ]{_CLOCK}(\.[0-9]{{1,20}})?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)


@lru_cache(REMEMBERED_MAX)
def http_date_s(text: str) -> float | None:
    """Epoch seconds of an IMF-fixdate (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`."""
    match = _IMF_FIXDATE.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return None
    return _epoch_s(f"{match[3]}-{_MONTHS[match[2]]}-{match[1]}", match[4], match[5], match[6])


@lru_cache(REMEMBERED_MAX)
def rfc3339_s(text: str) -> float | None:
    """Epoch seconds of an RFC 3339 time: `2026-11-03T12:00:00Z`, with fraction and offset."""
    match = _RFC3339.fullmatch(text)
    stamp_s = None if match is None else _epoch_s(match[1], match[2], match[3], match[4])
    if match is None or stamp_s is None:
        return None
    fraction, sign, hours, minutes = match.groups()[4:]
    offset_s = 0 if sign is None else int(f"{sign}1") * (int(hours) * 60 + int(minutes)) * 60
    return stamp_s - offset_s + float(fraction or 0)


def _epoch_s(date: str, hour: str, minute: str, second: str) -> float | None:
    """`None` for what no calendar or clock has; second 60 is a leap second (RFC 3339, 5.7)."""
    days = day_of(date)
    if date_of(days) != date or hour > "23" or minute > "59" or second > "60":
        return None
    return float(days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second))
