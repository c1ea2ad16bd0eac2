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
from typing import Final, Literal

from msgspec import Struct

from headway.base.fields import NUMBER_MAX
from headway.base.numbers import date_of, day_of
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

STAMPS_KEPT: Final = 1024
"""Distinct minutes whose parse is kept; the resets of one account fall into a few of them."""

WINDOW_5H_S: Final = 5 * HOUR_S
WINDOW_7D_S: Final = 7 * DAY_S


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
    for dialect, beginning, names in _SIGNS:
        for name in said:
            if name.startswith(beginning) or name in names:
                return dialect
    # Gemini sends no limits; its front server's name is the only trace.
    return GEMINI if said.get("server", "").startswith("scaffolding") else PLAIN


def decode(headers: Headers, received_wall_s: float | None) -> Reading:
    """All that one response's headers say about limits, and when to send again.

    `received_wall_s` stands in for a missing `Date`; without either, times of day are not read.
    OpenAI's organisation and project tokens are two readings: a call counts towards both.
    """
    rows: dict[int, list[str | None]] = {}
    said = as_text(headers)
    for name, value in said.items():
        place = _PLACES.get(name)
        if place is not None:
            slot, part = place
            row = rows.get(slot)
            if row is None:
                row = rows[slot] = [None, None, None, None, None]
            row[part] = value
    date_s = http_date_s(said.get("date", ""))
    since = _Since(date_s, received_wall_s)
    triple = rows.pop(_TRIPLE, None)
    limits: list[LimitReading | None] = []
    for slot in sorted(rows):
        limits.append(_limit_reading(slot, rows[slot], since))
    if triple is not None or "ratelimit" in said or "ratelimit-policy" in said:
        limits += _ietf_readings(said, triple or _NOTHING, since)
    return Reading(
        limits=tuple(filter(None, limits)),
        retry_after_s=_retry_after_s(said, since) if said.keys() & _RETRY_AFTER else None,
        should_retry={"true": True, "false": False}.get(said.get("x-should-retry", "").lower()),
    )


class _Since(Struct, frozen=True):
    """The moment of a response, from which its times are counted."""

    date_s: float | None
    received_wall_s: float | None

    def until_s(self, stamp_s: float) -> float | None:
        """Seconds from the response to `stamp_s`, never negative.

        `Date` is cut to whole seconds (RFC 9110, 6.6.1): the response left half a second later
        on average. A stamp without a fraction was cut in the same way and the halves cancel.
        """
        if self.date_s is not None:
            half_s = 0.0 if stamp_s == int(stamp_s) else 0.5
            return max(0.0, stamp_s - self.date_s - half_s)
        if self.received_wall_s is not None:
            return max(0.0, stamp_s - self.received_wall_s)
        return None


class _Slot(Struct, frozen=True):
    """The limit that a group of headers is about."""

    resource: Resource
    period_s: float | None
    """`None` where only the dialect knows it."""
    epoch_s_min: float = EPOCH_S_MIN
    """A reset from this number on is a time; below it, a wait."""


def _build_places() -> tuple[dict[str, tuple[int, int]], list[_Slot]]:
    """Header name to (slot, part), and the slots."""
    places: dict[str, tuple[int, int]] = {}
    slots: list[_Slot] = []

    def add(pattern: str, slot: _Slot, parts: tuple[str, ...] = _PARTS[:3]) -> None:
        for word in parts:
            places[pattern.format(word)] = (len(slots), _PARTS.index(word))
        slots.append(slot)

    for words, resource in _ANTHROPIC_WORDS:
        add(f"anthropic-ratelimit-{words}-{{}}", _Slot(resource, MINUTE_S))
    for words, period_s in (("5h", WINDOW_5H_S), ("7d", WINDOW_7D_S)):
        window = _Slot("tokens", period_s, epoch_s_min=0.0)
        add(f"anthropic-ratelimit-unified-{words}-{{}}", window, _PARTS[2:])
    for words, resource in _OPENAI_WORDS:
        add(f"x-ratelimit-{{}}-{words}", _Slot(resource, None))
    # Cerebras says the period in the name.
    for words, resource in _OPENAI_WORDS[:2]:
        for unit, period_s in (("minute", MINUTE_S), ("hour", HOUR_S), ("day", DAY_S)):
            add(f"x-ratelimit-{{}}-{words}-{unit}", _Slot(resource, period_s))
    # The bare triple of the IETF's early drafts and of older servers: one slot, two names.
    for pattern in ("x-ratelimit-{}", "ratelimit-{}"):
        for part, word in enumerate(_PARTS[:3]):
            places[pattern.format(word)] = (len(slots), part)
    return places, slots


_PARTS: Final = ("limit", "remaining", "reset", "utilization", "status")
_LIMIT, _REMAINING, _RESET, _UTILIZATION, _STATUS = range(5)
_ANTHROPIC_WORDS: Final[tuple[tuple[str, Resource], ...]] = (
    ("requests", "requests"), ("input-tokens", "input"), ("output-tokens", "output"),
    ("tokens", "tokens"),
)  # fmt: skip
_OPENAI_WORDS: Final[tuple[tuple[str, Resource], ...]] = (
    ("requests", "requests"), ("tokens", "tokens"), ("project-tokens", "tokens"),
)  # fmt: skip
_PLACES, _SLOTS = _build_places()
_TRIPLE: Final = len(_SLOTS)
_NOTHING: Final[list[str | None]] = [None] * len(_PARTS)
_OPENAI_NAMES: Final = frozenset(
    name for name, (slot, _) in _PLACES.items() if slot != _TRIPLE and _SLOTS[slot].period_s is None
)
_CEREBRAS_ONLY: Final = frozenset(
    name for name in _PLACES if name.endswith(("-minute", "-hour", "-day"))
)
_RETRY_AFTER: Final = frozenset(("retry-after", "retry-after-ms"))
_SIGNS: Final[tuple[tuple[Dialect, str, frozenset[str]], ...]] = (
    (ANTHROPIC, "anthropic-", frozenset()),
    (GROQ, "x-groq-", frozenset()),
    (CEREBRAS, "cerebras-", _CEREBRAS_ONLY),
    (OPENAI, "openai-", _OPENAI_NAMES),
)
"""What gives a dialect away: the beginning of a header's name, or a whole name."""


def _limit_reading(slot: int, row: list[str | None], since: _Since) -> LimitReading | None:
    """One limit from its headers' values; `None` when none of them could be read."""
    place = _SLOTS[slot]
    limit = number(row[_LIMIT])
    remaining = number(row[_REMAINING])
    reset_s = _reset_s(row[_RESET], since, place.epoch_s_min)
    utilization = number(row[_UTILIZATION])
    if utilization is not None:
        utilization = min(utilization, 1.0)
    # A usage window that refuses is full, whatever rounding its utilization went through.
    if row[_STATUS] == "rejected":
        utilization = 1.0
    if limit is None and remaining is None and reset_s is None and utilization is None:
        return None
    return LimitReading(place.resource, place.period_s, limit, remaining, reset_s, utilization)


def _ietf_readings(
    said: dict[str, str], triple: list[str | None], since: _Since
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
        period_s = number(policy.get("w"))
        reset_s = number(now.get("t"))
        readings.append(LimitReading(resource, period_s, limit, remaining, reset_s))
    first, _, _ = (triple[_LIMIT] or "").partition(",")
    limit, remaining = number(first.strip()), number(triple[_REMAINING])
    if limit is not None or remaining is not None:
        period_s = number(policies.get(first.strip(), {}).get("w"))
        reset_s = _reset_s(triple[_RESET], since, EPOCH_S_MIN)
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
    milliseconds = number(said.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = said.get("retry-after", "")
    seconds = number(text)
    if seconds is not None:
        return seconds
    stamp_s = http_date_s(text)
    return None if stamp_s is None else since.until_s(stamp_s)


def _reset_s(text: str | None, since: _Since, epoch_s_min: float) -> float | None:
    """Seconds until a reset: a Go duration, seconds, an RFC 3339 time or seconds of the epoch."""
    if text is None:
        return None
    if text[4:5] == "-":
        stamp_s = rfc3339_s(text)
        return None if stamp_s is None else since.until_s(stamp_s)
    value = number(text)
    if value is None:
        return duration_s(text)
    if value < epoch_s_min:
        return value
    return since.until_s(value if value < EPOCH_MS_MIN else value / 1000.0)


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


_MONTHS: Final = {
    "Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6,
    "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10, "Nov": 11, "Dec": 12,
}  # fmt: skip
_SIXTY: Final = {f"{value:02d}": value for value in range(61)}
"""Two digits to a second of a minute; 60 is a leap second (RFC 3339, 5.7)."""
_IMF_MINUTE: Final = re.compile(r"([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2})")
_RFC3339_MINUTE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})")
_RFC3339_REST: Final = re.compile(
    r":([0-9]{2})(\.[0-9]{1,20})?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)


def http_date_s(text: str) -> float | None:
    """Epoch seconds of an IMF-fixdate (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`."""
    if len(text) != 29 or text[22] != ":" or text[25:] != " GMT":
        return None
    minute_s, second = _imf_minute_s(text[5:22]), _SIXTY.get(text[23:25])
    return None if minute_s is None or second is None else float(minute_s + second)


def rfc3339_s(text: str) -> float | None:
    """Epoch seconds of an RFC 3339 time: `2026-11-03T12:00:00Z`, with fraction and offset."""
    rest = _RFC3339_REST.fullmatch(text, 16)
    minute_s = _rfc3339_minute_s(text[:16])
    if rest is None or minute_s is None:
        return None
    second_text, fraction, sign, hours, minutes = rest.groups()
    second = _SIXTY.get(second_text)
    if second is None:
        return None
    offset_s = 0 if sign is None else (int(hours) * 60 + int(minutes)) * 60
    whole_s = minute_s + second - (offset_s if sign == "+" else -offset_s)
    return float(whole_s) if fraction is None else whole_s + float(fraction)


@lru_cache(maxsize=STAMPS_KEPT)
def _imf_minute_s(text: str) -> int | None:
    match = _IMF_MINUTE.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return None
    return _minute_s(int(match[3]), _MONTHS[match[2]], int(match[1]), match[4], match[5])


@lru_cache(maxsize=STAMPS_KEPT)
def _rfc3339_minute_s(text: str) -> int | None:
    match = _RFC3339_MINUTE.fullmatch(text)
    return match and _minute_s(int(match[1]), int(match[2]), int(match[3]), match[4], match[5])


def _minute_s(year: int, month: int, day: int, hour: str, minute: str) -> int | None:
    """Epoch seconds of a minute, or `None` for one that no calendar or clock has."""
    date = f"{year:04}-{month:02}-{day:02}"
    days = day_of(date)
    if date_of(days) != date or hour > "23" or minute > "59":
        return None
    return days * 86400 + int(hour) * 3600 + int(minute) * 60
