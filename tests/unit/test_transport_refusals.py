"""Refusals of calls that did not run are absorbed; what the caller must know reaches it, once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest

import headway
from headway.base.folders import Folders
from headway.base.values import Fault, FaultKind, Sketch
from headway.client import admission as ports
from headway.client.admission import AdmissionPort
from headway.client.connection import BrokerConnection
from headway.client.exchange import BROKEN_MAX, OUTAGE_S_MAX, RESENDS_MAX, Exchange, Pacing
from headway.errors import (
    AccountClosedError,
    BrokerUnavailableError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
    QueueDeadlineError,
)
from headway.pacing.call import Request
from headway.pacing.refusal import BODY_BYTES_MAX
from headway.testing import FakeAdmission
from headway.wire.read import FORMATS
from tests.unit.paced_provider import ANSWER, HOST, Body, PacedProvider, events, post, refusal

CHAT = f"{HOST}/v1/chat/completions"
MESSAGES = f"{HOST}/v1/messages"
ASK: dict[str, object] = {"model": "model-1", "messages": [{"role": "user", "content": "?"}]}


def hears(provider: PacedProvider, admission: FakeAdmission) -> str:
    """What a caller of the OpenAI SDK hears."""
    with headway.pace(provider.gpt(max_retries=0), admission=admission) as gpt:
        return gpt.responses.create(model="model-1", input="?").output_text


@pytest.mark.parametrize(
    ("status", "word", "kind"),
    [
        (429, "rate_limit_exceeded", "rate"),
        (429, "concurrency", "concurrency"),
        (503, "server_is_overloaded", "overload"),
        (529, "overloaded_error", "overload"),
    ],
)
def test_a_refusal_of_a_call_that_did_not_run_is_never_seen(
    status: int, word: str, kind: str
) -> None:
    said = "too many concurrent requests" if kind == "concurrency" else "Slow down."
    provider = PacedProvider(refusal(status, word, said), refusal(status, word, said))
    admission = FakeAdmission()
    assert hears(provider, admission) == ANSWER.text
    assert [outcome.how for outcome in admission.outcomes] == ["throttled", "throttled", "used"]
    assert [outcome.fault.kind for outcome in admission.outcomes[:2] if outcome.fault] == [kind] * 2
    assert [call.is_resent for call in admission.calls] == [False, True, True]
    assert len({request.content for request in provider.requests}) == 1


def test_an_event_loop_absorbs_refusals_too_and_closes_their_responses() -> None:
    refused = refusal(429, "rate_limit_error")
    provider, admission = PacedProvider(refused), FakeAdmission()

    async def ask() -> str:
        async with headway.pace(provider.claude_async(), admission=admission) as claude:
            message = await claude.messages.create(
                model="model-1", max_tokens=9, messages=[{"role": "user", "content": "?"}]
            )
            return message.id

    assert asyncio.run(ask()) == ANSWER.id
    assert [outcome.how for outcome in admission.outcomes] == ["throttled", "used"]
    assert isinstance(refused.stream, Body)
    assert refused.stream.closed == 1


def test_what_a_refusal_says_about_limits_is_told_with_it() -> None:
    refused = httpx2.Response(
        429,
        headers={"retry-after": "7", "x-ratelimit-limit-requests": "3"},
        stream=Body([b'{"error": {"code": "rate_limit_exceeded", "type": "requests"}}']),
    )
    admission = FakeAdmission()
    hears(PacedProvider(refused), admission)
    outcome = admission.outcomes[0]
    assert outcome.reading.retry_after_s == 7
    assert outcome.reading.limits[0].limit == 3
    assert outcome.fault is not None
    assert outcome.fault.resource == "requests"
    assert admission.tickets[0].beginnings == []


@pytest.mark.parametrize(
    ("status", "word", "kind", "how"),
    [
        (400, "invalid_request_error", "request", "throttled"),
        (401, "authentication_error", "access", "throttled"),
        (429, "insufficient_quota", "billing", "throttled"),
        (429, "enforced_spend_limit_reached", "spend_cap", "throttled"),
        (500, "api_error", "server", "used"),
        (504, "timeout_error", "timeout", "used"),
    ],
)
def test_every_other_failure_reaches_the_caller_unchanged(
    status: int, word: str, kind: str, how: str
) -> None:
    told, admission = refusal(status, word), FakeAdmission()
    body = told.stream
    assert isinstance(body, Body)
    expected = b"".join(body.parts)
    response = post(PacedProvider(told), admission, CHAT, ASK)
    assert (response.status_code, response.content) == (status, expected)
    (outcome,) = admission.outcomes
    assert (outcome.how, outcome.fault and outcome.fault.kind) == (how, kind)
    assert body.closed == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_long_error_is_judged_by_its_beginning_and_handed_on_whole(is_async: bool) -> None:
    parts = [b"x" * 1000] * (BODY_BYTES_MAX // 1000 + 20)
    body, admission = Body(parts), FakeAdmission()
    provider = PacedProvider(httpx2.Response(400, stream=body))

    def judged() -> bool:
        return admission.tickets[0].outcome.how == "throttled" and body.read < len(parts)

    async def ask() -> bytes:
        async with (
            headway.pace(provider.http_async(), admission=admission) as http,
            http.stream("POST", CHAT, json=ASK) as response,
        ):
            assert judged()
            return await response.aread()

    if is_async:
        assert asyncio.run(ask()) == b"".join(parts)
        return
    with (
        headway.pace(provider.http(), admission=admission) as http,
        http.stream("POST", CHAT, json=ASK) as response,
    ):
        assert judged()
        assert response.read() == b"".join(parts)


def test_a_provider_that_forbids_to_send_again_is_obeyed() -> None:
    told = refusal(429, "rate_limit_exceeded")
    told.headers["x-should-retry"] = "false"
    admission = FakeAdmission()
    with pytest.raises(openai.RateLimitError):
        hears(PacedProvider(told), admission)
    assert [outcome.how for outcome in admission.outcomes] == ["throttled"]


def test_a_call_is_sent_again_only_so_often() -> None:
    provider = PacedProvider(*(refusal(429, "rate_limit_exceeded") for _ in range(99)))
    admission = FakeAdmission()
    with pytest.raises(openai.RateLimitError, match="Slow down"):
        hears(provider, admission)
    assert len(provider.requests) == RESENDS_MAX + 1
    assert admission.statistics().unsettled == 0


def test_an_attempt_that_the_sdk_repeats_keeps_its_place() -> None:
    failed = refusal(500, "api_error")
    failed.headers["retry-after-ms"] = "1"
    provider, admission = PacedProvider(failed), FakeAdmission()
    with headway.pace(provider.gpt(), admission=admission) as gpt:
        gpt.responses.create(model="model-1", input="?")
    assert [call.is_resent for call in admission.calls] == [False, True]
    assert [outcome.how for outcome in admission.outcomes] == ["used", "used"]


ERRORS: tuple[tuple[type[HeadwayError], type[Exception], type[Exception]], ...] = (
    (QueueDeadlineError, openai.RateLimitError, anthropic.RateLimitError),
    (BudgetReachedError, openai.APIStatusError, anthropic.APIStatusError),
    (AccountClosedError, openai.APIStatusError, anthropic.APIStatusError),
    (DemandTooLargeError, openai.BadRequestError, anthropic.BadRequestError),
    (BrokerUnavailableError, openai.InternalServerError, anthropic.InternalServerError),
)


@pytest.mark.parametrize(("error", "of_openai", "of_anthropic"), ERRORS)
def test_a_call_that_is_not_admitted_raises_the_sdks_own_error_once(
    error: type[HeadwayError], of_openai: type[Exception], of_anthropic: type[Exception]
) -> None:
    provider, admission = PacedProvider(), FakeAdmission()
    admission.refuse(*(error("it waited for input", hint="use less") for _ in range(3)))
    with headway.pace(provider.gpt(), admission=admission) as gpt:
        with pytest.raises(of_openai, match=rf"{error.code}.*it waited for input; use less"):
            gpt.responses.create(model="model-1", input="?")
        assert len(admission.calls) == 1
    with (
        headway.pace(provider.claude(), admission=admission) as claude,
        pytest.raises(of_anthropic, match=rf"{error.code}.*it waited for input; use less"),
    ):
        claude.messages.create(
            model="model-1", max_tokens=9, messages=[{"role": "user", "content": "?"}]
        )
    assert len(admission.calls) == 2
    assert not provider.requests


def test_the_deadline_is_the_whole_calls_and_not_one_waits() -> None:
    admission = FakeAdmission()
    post(PacedProvider(refusal(429, "rate_limit_exceeded")), admission, CHAT, ASK, wait_s=5.0)
    first, second = admission.deadlines_s
    assert first is not None
    assert second is not None
    assert 0.0 <= second < first <= 5.0


def test_a_call_that_waits_too_long_is_never_sent_in_threads_and_loops() -> None:
    provider, admission = PacedProvider(), FakeAdmission(holds=True)
    response = post(provider, admission, MESSAGES, {**ASK, "max_tokens": 9}, wait_s=0.0)
    assert response.status_code == 429
    assert response.headers["x-headway-error"] == "HW204"
    assert response.json()["error"]["type"] == "rate_limit_error"

    async def ask() -> None:
        async with headway.pace(provider.gpt_async(), wait_s=0.01, admission=admission) as gpt:
            with pytest.raises(openai.RateLimitError, match=r"HW204.*wait_s=.*allows 0.01 s"):
                await gpt.responses.create(model="model-1", input="?")

    asyncio.run(ask())
    assert admission.statistics().left == 2
    assert not provider.requests


@pytest.mark.parametrize("may_pass", [False, True])
def test_without_a_broker_only_who_allowed_it_is_sent_unpaced(
    may_pass: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path))
    nowhere = Folders(str(tmp_path / "r"), str(tmp_path / "s"))
    provider, port = (
        PacedProvider(),
        AdmissionPort(
            lambda client: BrokerConnection(
                client, nowhere, lambda _: "none is started", nobody_s=0.0
            ),
            unpaced=may_pass,
        ),
    )
    statuses = [
        post(provider, port, CHAT, ASK, is_async=is_async).status_code
        for is_async in (False, False, True)
    ]
    port.close()
    assert Pacing(unpaced=may_pass).port() is ports.admission(may_pass)
    assert (ports.admission(may_pass) is ports.admission()) is not may_pass
    assert statuses == ([200] * 3 if may_pass else [503] * 3)
    assert len(provider.requests) == (3 if may_pass else 0)
    warnings = [record for record in caplog.records if "UNPACED" in record.message]
    # Said once per process, and perhaps not here first.
    assert len(warnings) <= may_pass


def test_an_answer_that_fails_after_200_reaches_the_caller_and_teaches_the_quota() -> None:
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    failing = FORMATS["anthropic"].error_event(529, json.dumps(told).encode())
    body = Body([*events("anthropic")[:3], failing])
    provider, admission = PacedProvider(body=body), FakeAdmission()
    ask = {**ASK, "max_tokens": 9, "stream": True}
    assert post(provider, admission, MESSAGES, ask).content == b"".join(body.parts)
    assert len(provider.requests) == 1
    (outcome,) = admission.outcomes
    assert (outcome.how, outcome.fault and outcome.fault.kind) == ("used", "overload")


@pytest.mark.parametrize(
    ("error", "sent", "how", "kind"),
    [
        (httpx2.ConnectError("no route"), 1, "unused", "connection"),
        (httpx2.ConnectTimeout("slow"), 1, "unused", "connection"),
        (httpx2.PoolTimeout("busy"), 1, "unused", "connection"),
        (httpx2.LocalProtocolError("illegal header"), 1, "unused", "request"),
        (httpx2.ReadTimeout("silence"), 1, "used", "timeout"),
        (httpx2.WriteError("cut"), 1 + BROKEN_MAX, "used", "broken"),
        (httpx2.RemoteProtocolError("gone"), 1 + BROKEN_MAX, "used", "broken"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_failure_to_send_is_seen_by_the_caller_and_settled_by_what_was_sent(
    error: Exception, sent: int, how: str, kind: FaultKind, is_async: bool
) -> None:
    admission, provider = FakeAdmission(), PacedProvider(*[error] * (sent + 1))
    never = CHAT.replace(HOST, "http://never-answered.test")
    with pytest.raises(type(error)):
        post(provider, admission, never, ASK, is_async=is_async)
    fault = Fault(kind, detail=type(error).__name__)
    assert [(one.how, one.fault) for one in admission.outcomes] == [(how, fault)] * sent


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_cannot_be_sent_to_an_address_that_answered_before_asks_again(
    is_async: bool,
) -> None:
    down, admission = httpx2.ConnectError("restarting"), FakeAdmission()
    post(PacedProvider(), admission, CHAT, ASK, is_async=is_async)
    provider = PacedProvider(*[down] * 3)
    assert post(provider, admission, CHAT, ASK, is_async=is_async).status_code == 200
    assert [one.how for one in admission.outcomes] == ["used", *["unused"] * 3, "used"]
    wrong = PacedProvider(httpx2.LocalProtocolError("illegal header"))
    with pytest.raises(httpx2.LocalProtocolError):
        post(wrong, admission, CHAT, ASK, is_async=is_async)


@pytest.mark.parametrize(
    ("wait_s", "connects", "answered", "asks_again"),
    [
        (None, 0, True, [True, True, True, False]),
        (None, 0, False, [False] * 4),
        (None, 2, False, [True, True, False, False]),
        (100.0, 0, True, [True, True, False, False]),
        (100.0, 9, False, [True, True, False, False]),
    ],
)
def test_a_call_that_cannot_be_sent_asks_again_until_its_deadline(
    wait_s: float | None, connects: int, answered: bool, asks_again: list[bool]
) -> None:
    now, admission, account = [7.0], FakeAdmission(), f"{wait_s}-{answered}.test#{connects}"
    call = Request(account, "anthropic", Sketch("model-1"))
    if answered:
        Exchange(call, "anthropic").responded(200, {})
    exchange = Exchange(call, "anthropic", wait_s, clock=lambda: now[0], connects=connects)
    again = []
    for passed_s in (0.0, 99.9, 100.0, OUTAGE_S_MAX):
        now[0] = 7.0 + passed_s
        exchange.granted(admission.admit(call, None))
        again.append(exchange.lost(httpx2.ConnectError("down")))
    assert again == asks_again
    assert [one.how for one in admission.outcomes] == ["unused"] * 4
