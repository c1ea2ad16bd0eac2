"""Whatever is said is understood or ignored, and what we say is understood as it was meant."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.fields import NUMBER_MAX
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
from headway.pacing.headers import (
    DIALECTS,
    decode,
    duration_s,
    guess,
    http_date_s,
    number,
    rfc3339_s,
)
from headway.pacing.refusal import classify, parse_stream_error, reading_of_refusal
from headway.sim.headers import error_body, headers

KNOWN_NAMES = [
    *(name for name, _ in headers("anthropic", [LimitReading(r, MINUTE_S, 1, 1, 1)
      for r in ("requests", "input", "output", "tokens")], 0.0, 1.0)),
    *(name for name, _ in headers("anthropic", [LimitReading("tokens", p, 1, 1, 1, 0.5)
      for p in (5 * HOUR_S, 7 * DAY_S)], 0.0, None)),
    *(name for name, _ in headers("openai", [LimitReading(r, MINUTE_S, 1, 1, 1)
      for r in ("requests", "tokens")], 0.0, 1.0)),
    "x-ratelimit-limit-project-tokens", "x-ratelimit-remaining-project-tokens",
    *(name for name, _ in headers("cerebras", [LimitReading(r, p, 1, 1, 1)
      for r in ("requests", "tokens") for p in (MINUTE_S, HOUR_S, DAY_S)], 0.0, None)),
    "ratelimit", "ratelimit-policy", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
    "x-should-retry", "server",
]  # fmt: skip
ALMOST = st.sampled_from(
    [
        "2026-11-03T12:00:00Z", "2026-11-03T12:00:00.5+01:00", "Tue, 03 Nov 2026 12:00:00 GMT",
        "6m0s", "12ms", "1e400", "nan", "inf", "-1", "9" * 400, "99999999999999999s", "²",
        "1762171200",
        '"default";r=50;t=30', '"default";q=100;w=60', "rejected", "true", "0", "1",
    ]
)  # fmt: skip
VALUES = ALMOST | st.text(max_size=40) | st.binary(max_size=40)
LINES = st.lists(
    st.tuples(st.sampled_from(KNOWN_NAMES) | st.text(max_size=20) | st.binary(max_size=20), VALUES),
    max_size=30,
)
CLOCKS = st.none() | st.floats(0.0, 4e9)


def assert_sane(reading: Reading) -> None:
    """All that a reader may rely on: finite, never negative, a share is a share."""
    for limit in reading.limits:
        for value in (limit.limit, limit.remaining, limit.reset_s, limit.period_s):
            assert value is None or 0.0 <= value <= NUMBER_MAX
        assert limit.utilization is None or 0.0 <= limit.utilization <= 1.0
    assert reading.retry_after_s is None or 0.0 <= reading.retry_after_s <= NUMBER_MAX


@settings(max_examples=300, deadline=None)
@given(LINES, CLOCKS)
def test_no_header_raises_and_every_reading_is_sane(
    lines: list[tuple[str | bytes, str | bytes]], clock: float | None
) -> None:
    assert guess(lines).name in DIALECTS
    assert_sane(decode(lines, clock))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | ALMOST)
def test_no_text_raises_as_a_number_a_duration_or_a_date(text: str) -> None:
    for parse in (number, duration_s):
        value = parse(text)
        assert value is None or 0.0 <= value <= NUMBER_MAX
    for read in (http_date_s, rfc3339_s):
        stamp = read(text)
        assert stamp is None or abs(stamp) < NUMBER_MAX


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.sampled_from(["rate_limit_error", "tokens", "Limit 1, Used 2, Requested 3", "41s",
                       "GenerateRequestsPerDay", "try again in 5s", "3 requests per day"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["error", "type", "code", "message", "status", "details", "detail",
                         "response", "violations", "quotaId", "quotaValue", "retryDelay"]),
        inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.integers(-10, 1000), LINES, JSON | st.binary(max_size=80))
def test_no_status_and_body_raises(
    status: int, lines: list[tuple[str | bytes, str | bytes]], said: object
) -> None:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    for fault in (classify(status, lines, body), parse_stream_error(body)):
        assert fault.retry_after_s is None or 0.0 <= fault.retry_after_s <= NUMBER_MAX
        assert fault.resource is None or fault.kind in ("rate", "concurrency", "spend_cap")
    learned = reading_of_refusal(body)
    assert_sane(Reading(() if learned is None else (learned,)))


SPOKEN: dict[str, list[tuple[Resource, float]]] = {
    "anthropic": [(r, MINUTE_S) for r in ("requests", "input", "output", "tokens")],
    "openai": [("requests", MINUTE_S), ("tokens", MINUTE_S)],
    "groq": [("requests", DAY_S), ("tokens", MINUTE_S)],
    "cerebras": [("requests", MINUTE_S), ("requests", HOUR_S), ("requests", DAY_S),
                 ("tokens", MINUTE_S), ("tokens", HOUR_S), ("tokens", DAY_S)],
    "gemini": [],
    "plain": [],
}  # fmt: skip
"""Every limit that a dialect has words for, in the order in which it is read back."""

RESET_TOLERANCE_S = {"anthropic": 1.0, "openai": 0.0005, "groq": 0.0005, "cerebras": 1e-6}
WAIT_STEP_S = {"anthropic": 1.0, "openai": 0.001, "groq": 1.0, "cerebras": 1.0}
AMOUNTS = st.none() | st.floats(0.0, 1e9)
WAITS = st.none() | st.floats(0.0, 1e6)
FLOAT_SLACK = 1e-5
"""Wall times near 2e9 have a resolution of 2e-7 s."""


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(sorted(SPOKEN)), st.floats(0.0, 4e9), WAITS)
def test_what_is_said_is_understood_within_the_dialects_rounding(
    data: st.DataObject, name: str, now_s: float, wait_s: float | None
) -> None:
    meant = []
    for resource, period_s in SPOKEN[name]:
        amounts = data.draw(st.tuples(AMOUNTS, AMOUNTS, WAITS))
        if amounts != (None, None, None):
            meant.append(LimitReading(resource, period_s, *amounts))
    heard = decode(headers(name, meant, now_s, wait_s), None)
    assert len(heard.limits) == len(meant)
    for told, understood in zip(meant, heard.limits, strict=True):
        named_s = None if name in ("openai", "groq") else told.period_s
        assert (understood.resource, understood.period_s) == (told.resource, named_s)
        rounded = name == "anthropic" and told.resource != "requests"
        assert close(understood.limit, told.limit, 1.0)
        assert close(understood.remaining, told.remaining, 500.0 if rounded else 1.0)
        assert close(understood.reset_s, told.reset_s, RESET_TOLERANCE_S[name])
    if wait_s is None or name not in WAIT_STEP_S:
        assert heard.retry_after_s is None
    else:
        assert heard.retry_after_s is not None
        late_s = heard.retry_after_s - wait_s
        assert -FLOAT_SLACK <= late_s <= WAIT_STEP_S[name] + FLOAT_SLACK


def close(heard: float | None, meant: float | None, tolerance: float) -> bool:
    if heard is None or meant is None:
        return heard is meant
    return abs(heard - meant) <= tolerance + FLOAT_SLACK


@settings(max_examples=100, deadline=None)
@given(st.floats(0.0, 1.0), st.floats(0.0, 7 * DAY_S), st.floats(0.0, 4e9))
def test_usage_windows_are_understood_within_a_percent(
    used: float, reset_s: float, now_s: float
) -> None:
    meant = LimitReading("tokens", 5 * HOUR_S, None, None, reset_s, used, "5h", used == 1.0)
    (heard,) = decode(headers("anthropic", [meant], now_s, None), None).limits
    assert (heard.resource, heard.period_s) == ("tokens", 5 * HOUR_S)
    assert close(heard.utilization, used, 0.01)
    assert (heard.utilization == 1.0) == (used == 1.0)
    assert close(heard.reset_s, reset_s, 1.0)


KINDS: list[FaultKind] = [
    "rate", "concurrency", "overload", "spend_cap", "billing", "request", "server", "timeout"
]  # fmt: skip
COUNTED: list[Resource | None] = ["requests", "input", "output", "tokens", None]
POOR_IN_WORDS: dict[str, dict[FaultKind, FaultKind]] = {
    "gemini": {"spend_cap": "billing"},
    "plain": {"spend_cap": "billing", "concurrency": "rate"},
}
"""What a dialect cannot say, and what it says instead."""


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(DIALECTS)),
    st.sampled_from(KINDS),
    st.sampled_from(COUNTED),
    WAITS,
    st.none() | st.tuples(st.sampled_from([MINUTE_S, HOUR_S, DAY_S, 17.0]), AMOUNTS, AMOUNTS),
)
def test_a_fault_is_understood_as_it_was_meant(
    name: str,
    kind: FaultKind,
    resource: Resource | None,
    wait_s: float | None,
    limit: tuple[float, float | None, float | None] | None,
) -> None:
    reading = None if limit is None else LimitReading(resource or "requests", *limit, None)
    fault = Fault(kind, resource, wait_s)
    status, body = error_body(name, fault, "req_1", reading)
    heard = classify(status, headers(name, (), 0.0, wait_s), body)
    expected = POOR_IN_WORDS.get(name, {}).get(kind, kind)
    assert heard.kind == expected
    if kind == "rate" and name != "plain":
        assert heard.resource == resource
    if kind in ("rate", "concurrency") and name != "plain":
        assert (heard.retry_after_s is None) == (wait_s is None)
        if heard.retry_after_s is not None and wait_s is not None:
            assert abs(heard.retry_after_s - wait_s) <= 1.0 + FLOAT_SLACK
