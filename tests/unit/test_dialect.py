"""What response headers say: every dialect, every form of a reset, and everything malformed."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from headway.base.fields import NUMBER_MAX
from headway.base.values import DAY_S, HOUR_S, MINUTE_S, LimitReading, Reading
from headway.pacing.headers import (
    ANTHROPIC,
    CEREBRAS,
    DIALECTS,
    GEMINI,
    GROQ,
    OPENAI,
    PLAIN,
    VALUE_CHARS_MAX,
    Dialect,
    Headers,
    decode,
    duration_s,
    guess,
    http_date_s,
    number,
    rfc3339_s,
)

DATE = ("date", "Tue, 03 Nov 2026 12:00:00 GMT")
DATE_S = datetime(2026, 11, 3, 12, tzinfo=UTC).timestamp()

ANTHROPIC_HEADERS = {
    "Date": DATE[1],
    "anthropic-ratelimit-requests-limit": "1000",
    "anthropic-ratelimit-requests-remaining": "999",
    "anthropic-ratelimit-requests-reset": "2026-11-03T12:00:01Z",
    "anthropic-ratelimit-tokens-limit": "2400000",
    "anthropic-ratelimit-tokens-remaining": "2300000",
    "anthropic-ratelimit-tokens-reset": "2026-11-03T12:00:03Z",
    "anthropic-ratelimit-input-tokens-limit": "2000000",
    "anthropic-ratelimit-input-tokens-remaining": "1900000",
    "anthropic-ratelimit-input-tokens-reset": "2026-11-03T12:00:03Z",
    "anthropic-ratelimit-output-tokens-limit": "400000",
    "anthropic-ratelimit-output-tokens-remaining": "400000",
    "anthropic-ratelimit-output-tokens-reset": "2026-11-03T12:00:00Z",
    "request-id": "req_011",
}


def limits(headers: Headers) -> tuple[LimitReading, ...]:
    return decode(headers, DATE_S).limits


def test_anthropic_reports_four_limits_per_minute() -> None:
    assert limits(ANTHROPIC_HEADERS) == (
        LimitReading("requests", MINUTE_S, 1000.0, 999.0, 1.0),
        LimitReading("input", MINUTE_S, 2_000_000.0, 1_900_000.0, 3.0),
        LimitReading("output", MINUTE_S, 400_000.0, 400_000.0, 0.0),
        LimitReading("tokens", MINUTE_S, 2_400_000.0, 2_300_000.0, 3.0),
    )


def test_openai_resets_are_go_durations() -> None:
    said = [
        DATE,
        ("x-ratelimit-limit-requests", "5000"),
        ("x-ratelimit-remaining-requests", "4999"),
        ("x-ratelimit-reset-requests", "12ms"),
        ("x-ratelimit-limit-tokens", "800000"),
        ("x-ratelimit-remaining-tokens", "799984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
        ("x-ratelimit-limit-project-tokens", "1000"),
    ]
    assert limits(said) == (
        LimitReading("requests", None, 5000.0, 4999.0, 0.012),
        LimitReading("tokens", None, 800_000.0, 799_984.0, 360.0),
        LimitReading("tokens", None, 1000.0, None, None),
    )


def test_cerebras_says_the_period_in_the_name_and_the_reset_in_seconds() -> None:
    said = {
        "x-ratelimit-limit-requests-day": "14400",
        "x-ratelimit-reset-requests-day": "33011.382867",
        "x-ratelimit-remaining-requests-hour": "7",
        "x-ratelimit-remaining-tokens-minute": "59000",
        "x-ratelimit-reset-tokens-minute": "11.38",
    }
    assert limits(said) == (
        LimitReading("requests", HOUR_S, None, 7.0, None),
        LimitReading("requests", DAY_S, 14400.0, None, 33011.382867),
        LimitReading("tokens", MINUTE_S, None, 59000.0, 11.38),
    )


def test_usage_windows_report_a_share_and_an_epoch_second() -> None:
    said = [
        DATE,
        ("anthropic-ratelimit-unified-5h-utilization", "0.42"),
        ("anthropic-ratelimit-unified-5h-reset", str(int(DATE_S) + 7200)),
        ("anthropic-ratelimit-unified-5h-status", "allowed"),
        ("anthropic-ratelimit-unified-7d-utilization", "1.02"),
        ("anthropic-ratelimit-unified-7d-reset", "2026-11-04T12:00:00Z"),
        ("anthropic-ratelimit-unified-status", "allowed"),
    ]
    assert limits(said) == (
        LimitReading("tokens", 5 * HOUR_S, None, None, 7200.0, 0.42, "5h"),
        # Used up, and yet calls are let in: what is used beyond the plan is paid for.
        LimitReading("tokens", 7 * DAY_S, None, None, DAY_S, 1.0, "7d"),
    )


@pytest.mark.parametrize(
    ("said", "windows"),
    [
        ({"5h-status": "rejected", "5h-utilization": "0.99"}, [("5h", 1.0, True)]),
        ({"5h-utilization": "1.0"}, [("5h", 1.0, True)]),
        ({"7d_oi-status": "rejected", "7d-utilization": "0.4", "status": "rejected"},
         [("7d_oi", 1.0, True), ("7d", 0.4, False)]),
        ({"lunar-utilization": "0.7", "lunar-status": "allowed_warning"}, [("lunar", 0.7, False)]),
        ({"overage-utilization": "1.2", "status": "rejected", "reset": "9"},
         [("overage", 1.0, False), ("unified", 1.0, True)]),
        ({"representative-claim": "five_hour", "status": "allowed"}, []),
    ],
)  # fmt: skip
def test_usage_windows_have_any_name_and_are_empty_when_they_refuse(
    said: dict[str, str], windows: list[tuple[str, float, bool]]
) -> None:
    told = limits({f"anthropic-ratelimit-unified-{name}": value for name, value in said.items()})
    assert [(one.window, one.utilization, one.is_empty) for one in told] == windows


def test_the_windows_of_a_chatgpt_login_are_told_in_percent_and_minutes() -> None:
    said = [
        DATE,
        ("x-codex-primary-used-percent", "100"), ("x-codex-primary-window-minutes", "300"),
        ("x-codex-primary-reset-after-seconds", "13860"),
        ("x-codex-secondary-used-percent", "61"), ("x-codex-secondary-window-minutes", "10080"),
        ("x-codex-secondary-reset-at", str(int(DATE_S) + 3600)),
    ]  # fmt: skip
    assert limits(said) == (
        LimitReading("tokens", 5 * HOUR_S, None, None, 13860.0, 1.0, "5h", is_empty=True),
        LimitReading("tokens", 7 * DAY_S, None, None, 3600.0, 0.61, "7d"),
    )
    assert limits({"x-codex-primary-used-percent": "7"})[0].window == "primary"


def test_the_ietf_draft_joins_policy_and_state_by_name() -> None:
    said = [
        ("RateLimit-Policy", '"burst";q=100;w=60, "daily";q=5000;w=86400;qu="requests"'),
        ("RateLimit", '"burst";r=50;t=30'),
    ]
    assert limits(said) == (
        LimitReading("requests", 60.0, 100.0, 50.0, 30.0),
        LimitReading("requests", 86400.0, 5000.0, None, None),
    )


@pytest.mark.parametrize(
    ("policy", "resource"),
    [
        ('"default";q=9', "requests"),
        ('"p";q=9;qu="concurrent-requests"', "concurrency"),
        ('"input-tokens";q=9', "input"),
        ('"output-tokens";q=9', "output"),
        ('"Tokens";q=9', "tokens"),
    ],
)
def test_the_ietf_unit_or_name_tells_the_resource(policy: str, resource: str) -> None:
    (reading,) = limits({"RateLimit-Policy": policy})
    assert (reading.resource, reading.limit) == (resource, 9.0)


@pytest.mark.parametrize("policy", ['"p";q=9;qu="content-bytes"', '"default"', "", ";;,,"])
def test_an_ietf_policy_without_anything_to_count_is_not_a_reading(policy: str) -> None:
    assert limits({"RateLimit-Policy": policy, "RateLimit": policy}) == ()


def test_the_early_ietf_triple_takes_its_period_from_the_policy() -> None:
    said = {
        "RateLimit-Limit": "100, 100;w=60",
        "RateLimit-Remaining": "50",
        "RateLimit-Reset": "30",
        "RateLimit-Policy": "100;w=60",
    }
    assert limits(said) == (LimitReading("requests", 60.0, 100.0, 50.0, 30.0),)


def test_the_bare_triple_may_reset_at_a_millisecond_of_the_epoch() -> None:
    said = [DATE, ("X-RateLimit-Limit", "20"), ("X-RateLimit-Reset", f"{DATE_S + 60:.0f}000")]
    assert limits(said) == (LimitReading("requests", None, 20.0, None, 60.0),)


def test_a_bare_triple_without_a_number_is_not_a_reading() -> None:
    assert limits({"RateLimit-Limit": "many", "RateLimit-Reset": "1"}) == ()


def test_names_have_no_case_bytes_are_text_and_the_last_of_several_counts() -> None:
    said: list[tuple[str | bytes, str | bytes]] = [
        (b"X-RateLimit-Remaining-Requests", b" 7 "),
        (b"x-ratelimit-remaining-REQUESTS", b"8"),
        ("x-ratelimit-limit-requests", b"\xff\xfe"),
    ]
    assert limits(said) == (LimitReading("requests", None, None, 8.0, None),)


def test_limits_that_cannot_be_read_were_not_said() -> None:
    said = {
        "x-ratelimit-limit-requests": "unlimited",
        "x-ratelimit-remaining-requests": "-1",
        "x-ratelimit-reset-requests": "soon",
        "x-ratelimit-limit-tokens": "9" * (VALUE_CHARS_MAX + 1),
        "anthropic-ratelimit-requests-reset": "2026-11-03 noon",
    }
    assert decode(said, DATE_S) == Reading()


def test_reset_zero_is_reported_as_zero() -> None:
    assert limits({"x-ratelimit-reset-tokens": "0s"})[0].reset_s == 0.0


def test_a_reset_is_counted_from_the_response_and_not_from_our_clock() -> None:
    said = [DATE, ("anthropic-ratelimit-requests-reset", "2026-11-03T12:00:30Z")]
    for skew_s in (-3600.0, 0.0, 3600.0):
        assert decode(said, DATE_S + skew_s).limits[0].reset_s == 30.0


def test_a_reset_with_a_fraction_is_counted_from_the_middle_of_the_dates_second() -> None:
    said = [DATE, ("anthropic-ratelimit-requests-reset", "2026-11-03T12:00:30.75Z")]
    assert decode(said, None).limits[0].reset_s == 30.25


def test_a_reset_in_the_past_is_now() -> None:
    said = [DATE, ("anthropic-ratelimit-requests-reset", "2026-11-03T11:59:59.9Z")]
    assert decode(said, None).limits[0].reset_s == 0.0


def test_without_a_date_our_clock_stands_in() -> None:
    said = {"anthropic-ratelimit-requests-reset": "2026-11-03T12:00:30Z", "date": "yesterday"}
    assert decode(said, DATE_S + 10.5).limits[0].reset_s == 19.5
    assert decode(said, DATE_S + 60.0).limits[0].reset_s == 0.0


def test_without_any_clock_a_time_of_day_teaches_nothing() -> None:
    said = {"anthropic-ratelimit-requests-reset": "2026-11-03T12:00:30Z"}
    assert decode(said, None) == Reading()


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({"retry-after-ms": "41700", "retry-after": "42"}, 41.7),
        ({"retry-after-ms": "soon", "retry-after": "42"}, 42.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Tue, 03 Nov 2026 12:00:07 GMT", "date": DATE[1]}, 7.0),
        ({"retry-after": "Tue, 03 Nov 2026 11:00:00 GMT", "date": DATE[1]}, 0.0),
        ({"retry-after": "later"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_milliseconds_then_seconds_then_a_date(
    said: dict[str, str], seconds: float | None
) -> None:
    assert decode(said, None).retry_after_s == seconds


@pytest.mark.parametrize(
    ("value", "meaning"), [("true", True), ("False", False), ("maybe", None), ("", None)]
)
def test_should_retry_is_a_word(value: str, meaning: bool | None) -> None:
    assert decode({"x-should-retry": value}, None).should_retry is meaning


@pytest.mark.parametrize(
    ("said", "dialect"),
    [
        ({"Anthropic-Organization-Id": "x"}, ANTHROPIC),
        ({"x-groq-region": "dls", "x-ratelimit-limit-requests": "1"}, GROQ),
        ({"x-ratelimit-limit-tokens-minute": "1"}, CEREBRAS),
        ({"cerebras-request-id": "x"}, CEREBRAS),
        ({"openai-processing-ms": "12"}, OPENAI),
        ({"x-ratelimit-remaining-tokens": "1"}, OPENAI),
        ({"server": "scaffolding on HTTPServer2"}, GEMINI),
        ({"server": "uvicorn", "x-ratelimit-limit": "3"}, PLAIN),
        ({}, PLAIN),
    ],
)
def test_a_dialect_is_guessed_from_what_only_its_provider_sends(
    said: dict[str, str], dialect: Dialect
) -> None:
    assert guess(said) is dialect


def test_dialects_are_known_by_their_names() -> None:
    assert {name: dialect.name for name, dialect in DIALECTS.items()} == {
        name: name for name in ("anthropic", "openai", "groq", "cerebras", "gemini", "plain")
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0.0), ("12.5", 12.5), ("1000000000000000", NUMBER_MAX), ("1000000000000001", None),
        ("99999999999999999", None), ("1,000", None), ("1_000", None), ("1e3", None),
        ("-1", None), ("+1", None), ("nan", None), ("inf", None), (".5", None), ("5.", None),
        ("٣", None), ("", None),
    ],
)  # fmt: skip
def test_a_number_is_a_plain_bounded_decimal(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360.0), ("2m59.56s", 179.56), ("12ms", 0.012), ("1h2m3s", 3723.0),
        ("500us", 0.0005), ("500µs", 0.0005), ("500μs", 0.0005), ("7ns", 7e-9), ("0s", 0.0),
        ("1000000000000h", None), ("6", None), ("m", None), ("-1s", None), ("1d", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_duration_is_written_as_go_writes_it(text: str, seconds: float | None) -> None:
    heard = duration_s(text)
    assert (heard is None) == (seconds is None)
    assert heard is None or seconds is None or math.isclose(heard, seconds)


@pytest.mark.parametrize(
    "text",
    [
        "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 06 Nov 1994 08.49.37 GMT", "Sun, 06 Xyz 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT", "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 1994 08:49:-7 GMT", "Sun, ٠٦ Nov 1994 08:49:37 GMT", "",
    ],
)  # fmt: skip
def test_a_date_that_is_no_imf_fixdate_was_not_said(text: str) -> None:
    assert http_date_s(text) is None


def test_an_imf_fixdate_is_read_as_rfc_9110_has_it() -> None:
    assert http_date_s("Sun, 06 Nov 1994 08:49:37 GMT") == 784111777.0
    assert http_date_s("Sat, 31 Dec 2016 23:59:60 GMT") == 1483228800.0


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1985-04-12T23:20:50.52Z", "1985-04-12T23:20:50.520000+00:00"),
        ("1996-12-19T16:39:57-08:00", "1996-12-19T16:39:57-08:00"),
        ("1937-01-01t12:00:27.87+00:20", "1937-01-01T12:00:27.87+00:20"),
        ("1990-12-31 23:59:60z", "1991-01-01T00:00:00+00:00"),
    ],
)
def test_an_rfc_3339_time_has_a_fraction_and_an_offset(text: str, same: str) -> None:
    assert rfc3339_s(text) == pytest.approx(datetime.fromisoformat(same).timestamp(), abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-03T12:00:00", "2026-11-03T12:00Z", "2026-02-30T12:00:00Z",
        "2026-11-03T12:00:61Z", "2026-11-03X12:00:00Z", "2026-11-03T12:00:00+24:00",
        "2026-11-03T12:00:00.Z", "",
    ],
)  # fmt: skip
def test_a_time_that_is_no_rfc_3339_was_not_said(text: str) -> None:
    assert rfc3339_s(text) is None
