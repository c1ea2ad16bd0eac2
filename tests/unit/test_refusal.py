"""What a failed call means: the bodies that providers and the proxies between really send."""

from __future__ import annotations

import json

import pytest

from headway.base.values import DAY_S, MINUTE_S, Fault, FaultKind, LimitReading, Resource
from headway.pacing.refusal import (
    BODY_BYTES_MAX,
    DETAIL_CHARS_MAX,
    classify,
    parse_stream_error,
    reading_of_refusal,
)

DATE = ("date", "Tue, 03 Nov 2026 12:00:00 GMT")


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def anthropic(kind: str, message: str, details: object = None) -> bytes:
    error = {"type": kind, "message": message} | ({"details": details} if details else {})
    return body({"type": "error", "error": error, "request_id": "req_011"})


def openai(message: str, kind: str | None, code: str | int | None) -> bytes:
    return body({"error": {"message": message, "type": kind, "param": None, "code": code}})


def gemini(code: int, status: str, message: str, details: object = ()) -> bytes:
    return body({"error": {"code": code, "message": message, "status": status, "details": details}})


def quota_failure(*quotas: object) -> dict[str, object]:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": list(quotas)}


def meaning(status: int, said: bytes) -> tuple[FaultKind, Resource | None]:
    fault = classify(status, {}, said)
    return fault.kind, fault.resource


INPUT_PER_MINUTE = (
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute "
    "(org: 5456025a, model: claude). Please reduce the prompt length or the maximum tokens "
    "requested, or try again later."
)
ACCELERATION = (
    "This request would exceed your organization's maximum usage increase rate for input tokens "
    "per minute. Your current limit is 58,276 input tokens per minute, and will increase to "
    "68,276 at the next minute boundary. Please scale up your input tokens usage more gradually "
    "to stay within the acceleration limit."
)
TPM = (
    "Rate limit reached for gpt-4 in organization org-x on tokens per min (TPM): Limit 10000, "
    "Used 8554, Requested 3082. Please try again in 9.816s. Visit https://platform.openai.com."
)


@pytest.mark.parametrize(
    ("message", "kind", "resource"),
    [
        (INPUT_PER_MINUTE, "rate", "input"),
        (ACCELERATION, "rate", "input"),
        ("... rate limit of 8,000 output tokens per minute", "rate", "output"),
        ("... rate limit of 50 requests per minute", "rate", "requests"),
        ("Number of requests has exceeded your per-minute rate limit", "rate", "requests"),
        ("Number of request tokens has exceeded your daily rate limit", "rate", "tokens"),
        ("Number of input tokens has exceeded your limit", "rate", "input"),
        (
            "Number of concurrent connections has exceeded your rate limit.",
            "concurrency",
            "concurrency",
        ),
        ("40 requests per minute reached: lower your concurrency", "rate", "requests"),
        ("This request would exceed your account's rate limit.", "rate", None),
    ],
)
def test_anthropic_names_the_limit_in_its_message(
    message: str, kind: FaultKind, resource: Resource | None
) -> None:
    assert meaning(429, anthropic("rate_limit_error", message)) == (kind, resource)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (529, "overloaded_error", "overload"), (500, "api_error", "server"),
        (504, "timeout_error", "timeout"), (400, "invalid_request_error", "request"),
        (401, "authentication_error", "access"), (402, "billing_error", "billing"),
        (403, "permission_error", "access"), (404, "not_found_error", "access"),
        (409, "conflict_error", "server"), (413, "request_too_large", "request"),
        (429, "overloaded_error", "overload"), (500, "overloaded_error", "overload"),
    ],
)  # fmt: skip
def test_anthropic_statuses_and_types(status: int, kind: str, expected: FaultKind) -> None:
    assert meaning(status, anthropic(kind, "..."))[0] == expected


def test_the_spend_cap_is_told_from_a_rate_limit() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    said = anthropic("rate_limit_error", "You have reached a limit.", details)
    assert meaning(429, said) == ("spend_cap", "spend")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("You have reached your specified API usage limits. Access resumes 1 Dec.", "spend_cap"),
        ("You have reached your specified workspace API usage limits.", "spend_cap"),
        ("Your credit balance is too low to access the Anthropic API.", "billing"),
    ],
)
def test_anthropic_speaks_of_money_in_a_bad_request(message: str, expected: FaultKind) -> None:
    said = anthropic("invalid_request_error", message)
    assert meaning(400, said)[0] == expected
    assert meaning(500, said)[0] == "server"


def test_a_resource_that_is_not_named_is_the_one_of_which_nothing_is_left() -> None:
    said = anthropic("rate_limit_error", "Slow down.")
    headers = {
        "anthropic-ratelimit-requests-remaining": "12",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-remaining": "0",
        "retry-after": "3",
    }
    assert classify(429, headers, said) == Fault("rate", "output", 3.0, "Slow down.")
    headers["anthropic-ratelimit-requests-remaining"] = "0"
    assert classify(429, headers, said).resource is None


def test_a_text_that_contradicts_its_type_names_no_limit() -> None:
    said = openai("Rate limit reached on tokens per min (TPM): Limit 30, Used 30, Requested 1.",
                  "requests", "rate_limit_exceeded")  # fmt: skip
    assert reading_of_refusal(said) is None
    assert classify(429, [], said).resource == "requests"


def test_a_full_usage_window_says_when_to_come_back() -> None:
    headers = [
        DATE,
        ("anthropic-ratelimit-unified-5h-status", "rejected"),
        ("anthropic-ratelimit-unified-5h-reset", "2026-11-03T13:00:00Z"),
        ("anthropic-ratelimit-unified-7d-status", "rejected"),
        ("anthropic-ratelimit-unified-7d-reset", "2026-11-04T12:00:00Z"),
    ]
    said = anthropic("rate_limit_error", "This request would exceed your account's rate limit.")
    fault = classify(429, headers, said)
    assert (fault.resource, fault.retry_after_s) == (None, DAY_S)


@pytest.mark.parametrize(
    ("told", "reset_s"),
    [({"resets_in_seconds": 13860}, 13860.0), ({"resets_at": 5000}, 4000.0), ({}, None)],
)
def test_a_login_whose_window_is_used_up_says_when_it_resets(
    told: dict[str, int], reset_s: float | None
) -> None:
    error = {"type": "usage_limit_reached", "plan_type": "plus", **told}
    body = json.dumps({"error": error}).encode()
    fault, reading = classify(429, [], body), reading_of_refusal(body, 1000.0)
    assert (fault.kind, fault.resource) == ("rate", None)
    assert reading == LimitReading("tokens", None, None, None, reset_s, 1.0, "usage", is_empty=True)


@pytest.mark.parametrize(
    ("said", "kind", "resource"),
    [
        (openai(TPM, "tokens", "rate_limit_exceeded"), "rate", "tokens"),
        (openai("Rate limit reached.", "requests", "rate_limit_exceeded"), "rate", "requests"),
        (openai("Rate limit reached.", "tokens", "rate_limit_exceeded"), "rate", "tokens"),
        (openai("Concurrency limit reached", "requests", None), "concurrency", "concurrency"),
        (openai("You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
         "billing", None),
        (openai("No credit.", "insufficient_quota", "credit_balance_exhausted"), "billing", None),
        (openai("Spent.", "insufficient_quota", "project_spend_limit_exceeded"),
         "spend_cap", "spend"),
        (openai("Something failed", "internal_server_error", None), "rate", None),
        (b"Too Many Requests", "rate", None),
        (b"", "rate", None),
    ],
)  # fmt: skip
def test_openai_refusals(said: bytes, kind: FaultKind, resource: Resource | None) -> None:
    assert meaning(429, said) == (kind, resource)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Request too large for gpt-4o: Limit 30000, Requested 30601."),
        (429, "Request too large for this model."),
        (429, "... (TPM): Limit 7000, Used 0, Requested ~12903. Please try again in 50.59s."),
        (413, "Request too large for model `llama`: Limit 6000, Requested 7000."),
    ],
)
def test_a_call_larger_than_the_limit_stays_wrong(status: int, message: str) -> None:
    said = openai(message, "tokens", "rate_limit_exceeded")
    assert meaning(status, said)[0] == "request"


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        (TPM, 9.816), ("Please try again in 6m0s.", 360.0), ("Please try again in 174ms", 0.174),
        ("Please retry after 7 seconds.", 7.0), ("Please retry after 2 minutes", 120.0),
        ("Please try again in 20.", 20.0), ("Please try again in 3 blue moons", 3.0),
        ("Please try again in 3x", None), ("Please try again in 999999999999999 hours", None),
        ("Please try again later.", None),
    ],
)  # fmt: skip
def test_the_wait_is_in_the_message_when_no_header_has_it(
    message: str, seconds: float | None
) -> None:
    said = openai(message, "tokens", "rate_limit_exceeded")
    assert classify(429, {}, said).retry_after_s == pytest.approx(seconds)
    assert classify(429, {"retry-after": "11"}, said).retry_after_s == 11.0


def test_plain_text_can_name_a_wait_too() -> None:
    assert classify(429, {}, b"Slow down, try again in 5s").retry_after_s == 5.0


def test_gemini_names_quota_and_wait_in_its_details() -> None:
    said = gemini(
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details. "
        "Please retry in 41.68s.",
        [
            quota_failure(
                {"quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier"},
                {"quotaId": "GenerateRequestsPerDayPerProjectPerModel", "quotaValue": "250"},
                {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel", "quotaValue": "10"},
            ),
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "41s"},
        ],
    )
    fault = classify(429, {}, said)
    assert (fault.kind, fault.resource, fault.retry_after_s) == ("rate", "requests", 41.68)
    assert reading_of_refusal(said) == LimitReading("requests", DAY_S, 250.0, 0.0, None)


def test_gemini_tokens_may_be_left_over_at_a_refusal() -> None:
    quota = {"quotaId": "GenerateContentInputTokensPerModelPerMinute", "quotaValue": "250000"}
    said = gemini(429, "RESOURCE_EXHAUSTED", "...", [quota_failure(quota)])
    assert reading_of_refusal(said) == LimitReading("input", MINUTE_S, 250_000.0, None, None)


def test_gemini_details_that_cannot_be_read_were_not_said() -> None:
    said = gemini(
        429,
        "RESOURCE_EXHAUSTED",
        "...",
        [
            "text",
            {"violations": "none"},
            {"retryDelay": 41},
            quota_failure("text", {}, {"quotaId": "Sunshine"}, {"quotaId": "RequestsPerDay",
                                                                "quotaValue": 9}),
        ],
    )  # fmt: skip
    fault = classify(429, {}, said)
    assert (fault.resource, fault.retry_after_s) == ("requests", None)
    assert reading_of_refusal(said) == LimitReading("requests", DAY_S, None, 0.0, None)


@pytest.mark.parametrize(
    ("status", "word", "expected"),
    [
        (503, "UNAVAILABLE", "overload"), (500, "INTERNAL", "server"),
        (504, "DEADLINE_EXCEEDED", "timeout"), (500, "DEADLINE_EXCEEDED", "timeout"),
        (400, "INVALID_ARGUMENT", "request"), (403, "PERMISSION_DENIED", "access"),
    ],
)  # fmt: skip
def test_gemini_statuses(status: int, word: str, expected: FaultKind) -> None:
    assert meaning(status, gemini(status, word, "..."))[0] == expected


def test_gemini_without_billing_is_not_a_wrong_request() -> None:
    said = gemini(403, "PERMISSION_DENIED", "...", [{"reason": "BILLING_DISABLED"}])
    assert meaning(403, said)[0] == "billing"


def test_cerebras_complains_without_an_object_around_it() -> None:
    said = body({"message": "Slow.", "type": "too_many_requests_error", "param": "quota",
                 "code": "token_quota_exceeded"})  # fmt: skip
    assert meaning(429, said) == ("rate", "tokens")
    queue = body({"message": "High traffic!", "type": "too_many_requests_error",
                  "param": "queue", "code": "queue_exceeded"})  # fmt: skip
    assert meaning(429, queue) == ("overload", None)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, "broken"), (-1, "broken"), (200, "broken"), (302, "access"), (402, "billing"),
        (408, "timeout"), (409, "server"), (418, "request"), (422, "request"), (500, "server"),
        (502, "server"), (503, "overload"), (504, "timeout"), (529, "overload"), (999, "server"),
    ],
)  # fmt: skip
def test_html_is_judged_by_its_status(status: int, expected: FaultKind) -> None:
    said = b"<html>\n <h1>Something   happened</h1></html>"
    fault = classify(status, {}, said)
    assert fault.kind == expected
    assert fault.detail.removeprefix(f"HTTP {status}: ") == said.decode().replace("\n", "").replace(
        "   ", " "
    )


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        (body({"error": "model is loading"}), "model is loading"),
        (body({"detail": "Not Found"}), "Not Found"),
        (body({"error": {"message": 7}}), '{"error": {"message": 7}}'),
        (body({"error": None}), '{"error": null}'),
        (body({"response": 3, "message": "flat"}), "flat"),
        (body([{"error": {"message": "in a list"}}]), "in a list"),
        (body([]), "[]"),
        (b"x" * 500, "x" * DETAIL_CHARS_MAX),
        (b"\xff\xfe", "��"),
    ],
)
def test_the_detail_is_what_the_body_says_in_any_shape(said: bytes, detail: str) -> None:
    assert classify(400, {}, said) == Fault("request", None, None, detail)


def test_a_refusal_in_a_bad_request_is_still_a_refusal() -> None:
    said = openai("Slow down", "rate_limit_error", None)
    assert meaning(400, said) == ("rate", None)


def test_only_the_beginning_of_a_long_body_is_looked_at() -> None:
    said = b'{"error":{"type":"insufficient_quota","message":"' + b" " * BODY_BYTES_MAX + b'"}}'
    assert meaning(429, said) == ("rate", None)


def test_a_body_nested_too_deep_is_text() -> None:
    assert meaning(500, b"[" * BODY_BYTES_MAX) == ("server", None)
    assert meaning(500, b'{"code":' + b"9" * 5000 + b"}") == ("server", None)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (anthropic("overloaded_error", "Overloaded"), "overload"),
        (anthropic("api_error", "Internal server error"), "server"),
        (anthropic("rate_limit_error", INPUT_PER_MINUTE), "rate"),
        (anthropic("invalid_request_error", "Bad."), "request"),
        (anthropic("surprise", "?"), "broken"),
        (openai("Provider disconnected", None, 502), "server"),
        (openai("Odd code", None, 7), "broken"),
        (gemini(503, "UNAVAILABLE", "The model is overloaded."), "overload"),
        (body({"type": "error", "code": "rate_limit_exceeded", "message": "..."}), "rate"),
        (body({"type": "response.failed",
               "response": {"error": {"code": "server_error", "message": "..."}}}), "server"),
        (b"", "broken"),
    ],
)  # fmt: skip
def test_an_error_in_a_stream_is_judged_by_its_body(payload: bytes, expected: FaultKind) -> None:
    assert parse_stream_error(payload).kind == expected


@pytest.mark.parametrize(
    ("said", "reading"),
    [
        (openai(TPM, "tokens", None), LimitReading("tokens", MINUTE_S, 10000.0, 1446.0, None)),
        (
            openai(
                "on requests per day (RPD): Limit 200, Used 201, Requested 1.", "requests", None
            ),
            LimitReading("requests", DAY_S, 200.0, 0.0, None),
        ),
        (
            openai("on : Limit 500000, Used 500370, Requested 252.", "tokens", None),
            LimitReading("tokens", None, 500_000.0, 0.0, None),
        ),
        (
            openai("on tokens per min. Limit: 10000 / min.", "tokens", None),
            LimitReading("tokens", MINUTE_S, 10000.0, None, None),
        ),
        (
            anthropic("rate_limit_error", INPUT_PER_MINUTE),
            LimitReading("input", MINUTE_S, 30000.0, None, None),
        ),
        (
            anthropic("rate_limit_error", ACCELERATION),
            LimitReading("input", MINUTE_S, 58276.0, None, None),
        ),
        (anthropic("rate_limit_error", "Number of requests has exceeded your limit"), None),
        (openai("Limit 10, Used 9, Requested 2", None, None), None),
        (openai("on tokens per min: Limit 99999999999999999999", "tokens", None), None),
        (b"Too Many Requests", None),
    ],
)
def test_a_refusal_gives_its_limit_away(said: bytes, reading: LimitReading | None) -> None:
    assert reading_of_refusal(said) == reading


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (gemini(400, "INVALID_ARGUMENT", "no", [{"reason": "API_KEY_INVALID"}]), "access"),
        (body({"code": "bad", "error": "Incorrect API key provided: wr***ng."}), "access"),
        (openai("foo is not a valid model ID", None, 400), "access"),
        (openai("no", "invalid_request_error", "invalid_model"), "access"),
        (openai("this input is not a valid image", "invalid_request_error", None), "request"),
    ],
)
def test_a_wrong_key_or_model_may_be_answered_with_400(said: bytes, kind: FaultKind) -> None:
    assert meaning(400, said) == (kind, None)
    assert meaning(422, said) == (kind, None)
