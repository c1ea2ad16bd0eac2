"""What a simulated provider says, in each dialect's own shape."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from headway.base.values import DAY_S, HOUR_S, MINUTE_S, Fault, LimitReading
from headway.pacing.headers import DIALECTS
from headway.pacing.refusal import classify, reading_of_refusal
from headway.sim.headers import error_body, go_duration, headers

NOW_S = datetime(2026, 11, 3, 12, 0, 0, 250_000, tzinfo=UTC).timestamp()
DATE = ("date", "Tue, 03 Nov 2026 12:00:00 GMT")
REQUESTS = LimitReading("requests", MINUTE_S, 1000.0, 998.7, 0.06)
INPUT = LimitReading("input", MINUTE_S, 2_000_000.0, 1_234_567.0, 22.96)
TOKENS = LimitReading("tokens", MINUTE_S, 100_000.0, 1_446.0, 59.13)


def error(dialect_name: str, fault: Fault, reading: LimitReading | None = None) -> object:
    _, body = error_body(dialect_name, fault, "req_1", reading)
    return json.loads(body)


def test_anthropic_rounds_tokens_to_a_thousand_and_resets_to_the_second() -> None:
    assert headers("anthropic", (REQUESTS, INPUT), NOW_S, 1.2) == (
        DATE,
        ("anthropic-ratelimit-requests-limit", "1000"),
        ("anthropic-ratelimit-requests-remaining", "998"),
        ("anthropic-ratelimit-requests-reset", "2026-11-03T12:00:00Z"),
        ("anthropic-ratelimit-input-tokens-limit", "2000000"),
        ("anthropic-ratelimit-input-tokens-remaining", "1235000"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-11-03T12:00:23Z"),
        ("retry-after", "2"),
    )


def test_openai_says_durations_and_waits_in_milliseconds_first() -> None:
    assert headers("openai", (REQUESTS, TOKENS), NOW_S, 41.7) == (
        DATE,
        ("x-ratelimit-limit-requests", "1000"),
        ("x-ratelimit-remaining-requests", "998"),
        ("x-ratelimit-reset-requests", "60ms"),
        ("x-ratelimit-limit-tokens", "100000"),
        ("x-ratelimit-remaining-tokens", "1446"),
        ("x-ratelimit-reset-tokens", "59.13s"),
        ("retry-after-ms", "41700"),
        ("retry-after", "42"),
    )


def test_groq_reports_requests_per_day_and_tokens_per_minute_only() -> None:
    per_day = LimitReading("requests", DAY_S, 14400.0, None, 179.56)
    assert headers("groq", (REQUESTS, per_day, TOKENS), NOW_S, None)[1:3] == (
        ("x-ratelimit-limit-requests", "14400"),
        ("x-ratelimit-reset-requests", "2m59.56s"),
    )


def test_cerebras_names_the_period() -> None:
    per_hour = LimitReading("tokens", HOUR_S, None, -5.0, 33.5)
    assert headers("cerebras", (per_hour,), NOW_S, 0.1) == (
        DATE,
        ("x-ratelimit-remaining-tokens-hour", "0"),
        ("x-ratelimit-reset-tokens-hour", "33.500000"),
        ("retry-after", "1"),
    )


@pytest.mark.parametrize("dialect_name", ["gemini", "plain"])
def test_some_dialects_say_nothing_in_headers(dialect_name: str) -> None:
    assert headers(dialect_name, (REQUESTS, TOKENS), NOW_S, 5.0) == (DATE,)


def test_anthropic_errors_have_its_envelope() -> None:
    fault = Fault("rate", "input", 3.0)
    assert error("anthropic", fault, INPUT) == {
        "type": "error",
        "error": {
            "type": "rate_limit_error",
            "message": "This request would exceed your organization's rate limit of "
            "2,000,000 input tokens per minute.",
        },
        "request_id": "req_1",
    }
    status, body = error_body("anthropic", fault, "req_1", INPUT)
    assert classify(status, {}, body).resource == "input"
    assert reading_of_refusal(body) == LimitReading("input", MINUTE_S, 2_000_000.0, None, None)


def test_openai_gives_limit_used_and_requested_away() -> None:
    limit = LimitReading("tokens", MINUTE_S, 10_000.0, 1446.0, 51.3)
    assert error("openai", Fault("rate", "tokens", 9.816), limit) == {
        "error": {
            "message": "Rate limit reached on tokens per min (TPM): Limit 10000, Used 8554, "
            "Requested 3082. Please try again in 9.816s.",
            "type": "tokens",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }


def test_a_limit_that_is_only_half_known_is_not_spelled_out() -> None:
    half = LimitReading("requests", None, 500.0, None, None)
    assert b"requests per day (RPD). Please" in error_body(
        "groq", Fault("rate", "requests", 1.0), "req_1", half
    )[1]  # fmt: skip
    assert b'tokens per min (TPM)."' in error_body("openai", Fault("rate", "tokens"), "r")[1]


def test_cerebras_errors_are_flat() -> None:
    assert error("cerebras", Fault("rate", "tokens")) == {
        "message": "Tokens per minute limit exceeded.",
        "type": "too_many_requests_error",
        "param": "quota",
        "code": "token_quota_exceeded",
    }
    status, body = error_body("cerebras", Fault("rate", "requests"), "req_1")
    assert classify(status, {}, body).resource == "requests"
    assert error_body("cerebras", Fault("billing"), "req_1")[0] == 402


def test_gemini_puts_quota_and_wait_into_the_details() -> None:
    per_day = LimitReading("requests", DAY_S, 250.0, 0.0, None)
    assert error("gemini", Fault("rate", "requests", 41.7), per_day) == {
        "error": {
            "code": 429,
            "message": "Resource has been exhausted (e.g. check quota). "
            "Please retry in 41.700000s.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                    "violations": [
                        {
                            "quotaId": "GenerateRequestsPerDayPerProjectPerModel",
                            "quotaValue": "250",
                        }
                    ],
                },
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "41s"},
            ],
        }
    }
    status, body = error_body("gemini", Fault("rate", "input", 41.7), "req_1")
    heard = classify(status, {}, body)
    assert (heard.resource, heard.retry_after_s) == ("input", 41.7)


def test_a_plain_server_refuses_in_text_and_html() -> None:
    assert error_body("plain", Fault("rate", "tokens"), "req_1") == (429, b"Too Many Requests")
    status, body = error_body("plain", Fault("overload"), "req_1")
    assert (status, body[:6]) == (503, b"<html>")
    assert error_body("plain", Fault("spend_cap"), "req_1")[0] == 402


def test_a_wrong_call_is_told_in_the_faults_own_words() -> None:
    for name in DIALECTS:
        assert b"prompt is too long" in error_body(
            name, Fault("request", detail="prompt is too long"), "req_1"
        )[1]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"), (0.0004, "0s"), (0.012, "12ms"), (0.9996, "1s"), (6.0, "6s"),
        (59.999, "59.999s"), (360.0, "6m0s"), (179.56, "2m59.56s"), (3723.0, "1h2m3s"),
        (86400.0, "24h0m0s"),
    ],
)  # fmt: skip
def test_durations_are_printed_as_go_prints_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
