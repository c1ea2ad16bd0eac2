"""Prompts performed against a provider that answers as told: what is sent, paid, kept and said."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing, suppress
from math import ceil

import httpx2
import pytest

from headway.agents.prompt import (
    PromptAgent,
    PromptCall,
    PromptSettings,
    endpoint_of,
    must_be_ready,
    must_have_ceilings,
)
from headway.base.clock import now_s
from headway.base.values import Wait
from headway.client import exchange
from headway.errors import (
    AccountClosedError,
    BrokerUnavailableError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
    StateFileError,
    UsageError,
)
from headway.pacing.estimate import Price, Prices
from headway.plans.references import read_schema
from headway.testing import FakeAdmission, run_virtual
from headway.wire.read import FORMATS
from headway.wire.values import Answer
from headway.work import AttemptError, OverBudgetError, Result, WindowEmptyError
from tests.unit.attempts import Told
from tests.unit.paced_provider import Body, PacedProvider, events, refusal

KEYS = {
    "ANTHROPIC_BASE_URL": "http://provider.test", "ANTHROPIC_API_KEY": "sk-a",
    "OPENAI_BASE_URL": "http://provider.test/v1", "OPENAI_API_KEY": "sk-o",
}  # fmt: skip
PRICE = Price(3_000_000, 15_000_000)
CALL = PromptCall("say it", "claude-x", max_tokens=100)
SCHEMA = read_schema('{"type": "object", "required": ["n"]}')


class Bench:
    """An agent, a provider and an admission that can be looked at."""

    def __init__(self, *replies: httpx2.Response | Exception, body: Body | None = None) -> None:
        self.provider = PacedProvider(*replies, body=body)
        self.admission = FakeAdmission()
        self.told = Told()
        self.must_be_priced = False
        self.windows: list[tuple[float, str]] = []
        self.prices: Prices = lambda _, __: PRICE

    async def _perform(self, call: PromptCall, kept: tuple[bytes, ...]) -> Result:
        settings = PromptSettings(
            "run-1", KEYS, self.admission, lambda *one: self.windows.append(one), self.prices,
            self.must_be_priced, transport=self.provider.transport,
        )  # fmt: skip
        async with aclosing(PromptAgent(settings)) as agent:
            return await agent.perform(call, self.told.attempt("review[a]", kept))

    def perform(self, call: PromptCall = CALL, kept: tuple[bytes, ...] = ()) -> Result:
        try:
            return run_virtual(self._perform(call, kept))
        finally:
            assert self.admission.statistics().unsettled == 0
            assert all(len(ticket.outcomes) == 1 for ticket in self.admission.tickets)

    def fails(self, call: PromptCall = CALL) -> AttemptError:
        with pytest.raises(AttemptError) as caught:
            self.perform(call)
        return caught.value

    def sent(self, number: int = 0) -> dict[str, object]:
        body: dict[str, object] = json.loads(self.provider.requests[number].content)
        return body


def said(text: str, wire: str = "anthropic", is_cut: bool = False) -> httpx2.Response:
    """A streamed answer with this text."""
    parts = events("anthropic" if wire == "anthropic" else "openai-chat",
                   Answer("id", "m", text, 12, 34, is_cut=is_cut))  # fmt: skip
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body(parts))


def test_an_answer_is_the_result_and_its_usage_is_what_it_took() -> None:
    bench = Bench(said("four"))
    result = bench.perform()
    assert (result.body, result.value) == (b"four ", "four ")
    assert (result.input_tokens, result.output_tokens, result.calls) == (12, 34, 1)
    assert result.spend_microusd == 12 * 3 + 34 * 15
    assert bench.told.said == ["reserve", "waits", "goes"]
    assert [call.path for call in bench.admission.calls] == [("run-1",)]
    assert bench.sent() == {
        "model": "claude-x", "max_tokens": 100, "stream": True,
        "messages": [{"role": "user", "content": "say it"}],
    }  # fmt: skip


def test_the_most_that_a_call_can_cost_is_set_aside_before_it_is_sent() -> None:
    bench = Bench()
    bench.perform()
    (request,) = bench.provider.requests
    most_in = len(request.content) + 64
    assert bench.told.reserved == [(most_in * 3 + 100 * 15, most_in + 100)]


def test_a_long_input_is_set_aside_and_charged_at_the_price_of_long_inputs() -> None:
    bench = Bench(said("yes"))
    bench.prices = lambda _, tokens: Price(6, 6) if tokens > 100_000 else Price(3, 3)
    bench.perform(PromptCall("x" * 1_000_000, "claude-x", max_tokens=1))
    (request,) = bench.provider.requests
    most_in = len(request.content) + 64
    assert bench.told.reserved == [(ceil((most_in + 1) * 6 / 1e6), most_in + 1)]


def test_a_call_that_the_budget_has_no_room_for_is_not_sent() -> None:
    bench = Bench()
    bench.told.reservations_max = 0
    with pytest.raises(OverBudgetError):
        bench.perform()
    assert bench.provider.requests == []
    assert bench.admission.calls == []


def test_a_call_without_a_price_is_not_made_where_money_counts() -> None:
    bench = Bench()
    bench.prices, bench.must_be_priced = (lambda _, __: None), True
    error = bench.fails()
    assert error.fault.kind == "request"
    assert "HW205" in error.fault.detail
    assert bench.provider.requests == []
    bench.must_be_priced = False
    assert bench.perform().spend_microusd == 0
    assert bench.told.reserved == [(0, len(bench.provider.requests[0].content) + 64 + 100)]


def test_what_nobody_reported_costs_its_ceiling() -> None:
    whole = events("openai-chat")
    silent = [*whole[:-1], whole[-1].split(b"\n\n")[0] + b"\n\ndata: [DONE]\n\n"]
    bench = Bench(body=Body(silent))
    result = bench.perform(PromptCall("say it", "gpt-x", max_tokens=100))
    taken = round(result.input_tokens + result.output_tokens) + result.extra_tokens
    assert (result.spend_microusd, taken) == bench.told.reserved[0]


def test_the_last_attempt_of_a_task_waits_for_a_provider_that_restarts() -> None:
    Bench(said("yes")).perform()
    bench = Bench(*[httpx2.ConnectError("restarting")] * 10, said("yes"))
    bench.told.is_last = True
    assert bench.perform().body == b"yes "


def test_refusals_are_absorbed_and_the_attempt_says_that_it_waits_again() -> None:
    bench = Bench(refusal(429, "rate_limit_error"), refusal(529, "overloaded_error"), said("yes"))
    result = bench.perform()
    assert result.body == b"yes "
    assert bench.told.said == ["reserve"] + ["waits", "goes"] * 3


WHOLE = events("anthropic")


@pytest.mark.parametrize(("replies", "kind", "costs", "says"), [
    (refusal(400, "invalid_request_error", "too large"), "request", "nothing", "too large"),
    (refusal(402, "billing_error"), "billing", "nothing", ""),
    (refusal(500, "api_error"), "server", "ceiling", ""),
    (httpx2.ConnectError("nobody there"), "connection", "nothing", "nobody there"),
    (httpx2.ReadError("reset"), "broken", "ceiling", ""),
    (httpx2.ReadTimeout("quiet"), "timeout", "ceiling", ""),
    (WHOLE[:-2], "broken", "ceiling", ""),
    ([*WHOLE[:2], b"data: {nonsense\n\n", *WHOLE[2:]], "broken", "ceiling", ""),
    ([*WHOLE[:-2], FORMATS["anthropic"].error_event(529, b"")], "overload", "ceiling", ""),
    ([WHOLE[0], WHOLE[-1]], "unfit", "usage", "gave no answer"),
    (said("half of", is_cut=True), "unfit", "usage", "max_tokens: 100"),
])  # fmt: skip
def test_a_call_without_a_result_says_why_and_what_it_cost(
    replies: httpx2.Response | Exception | list[bytes], kind: str, costs: str, says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(exchange, "_REACHED", dict[str, bool]())
    body = Body(replies) if isinstance(replies, list) else None
    bench = Bench(body=body) if isinstance(replies, list) else Bench(replies)
    error = bench.fails()
    assert error.fault.kind == kind
    assert says in error.fault.detail
    assert error.is_in_doubt == (costs == "ceiling")
    assert error.result is not None
    spent, ceiling = error.result.spend_microusd, bench.told.reserved[0][0]
    assert spent == {"nothing": 0, "ceiling": ceiling}.get(costs, spent)
    assert costs != "usage" or 0 < spent < ceiling
    assert body is None or body.closed


def test_an_invalid_answer_is_repaired_once_with_the_reason() -> None:
    bench = Bench(said('{"m": 1}'), said('{"n": 1}'))
    result = bench.perform(PromptCall("count", "claude-x", schema=SCHEMA))
    assert (result.body, result.value) == (b'{"n": 1}', {"n": 1})
    assert (result.calls, result.output_tokens) == (2, 68)
    first, again = bench.sent(0)["messages"], bench.sent(1)["messages"]
    assert isinstance(first, list)
    assert isinstance(again, list)
    assert '"required": ["n"]' in first[0]["content"]
    assert again[:1] == first
    assert again[1] == {"role": "assistant", "content": '{"m": 1} '}
    assert "$: must contain ['n'] properties" in again[2]["content"]
    assert bench.told.said == ["reserve", "waits", "goes", "keep"] * 2


def test_an_answer_that_stays_invalid_fails_with_the_path_and_is_kept() -> None:
    bench = Bench(said("no"), said('{"n'))
    error = bench.fails(PromptCall("count", "claude-x", schema=SCHEMA))
    assert error.fault.kind == "unfit"
    assert "it is not JSON" in error.fault.detail
    assert error.result is not None
    assert (error.result.calls, error.result.body) == (2, b'{"n ')
    assert not error.is_in_doubt


def test_verification_goes_on_for_as_many_rounds_as_allowed() -> None:
    seen: list[str] = []

    async def verify(text: str) -> str | None:
        seen.append(text)
        return None if len(seen) == 3 else f"round {len(seen)} is wrong"

    bench = Bench(said("a"), said("b"), said("c"))
    result = bench.perform(PromptCall("do", "claude-x", verify=verify, repairs=2))
    assert seen == ["a ", "b ", "c "]
    assert result.body == b"c "
    assert "round 2 is wrong" in str(bench.sent(2)["messages"])


def test_replies_of_an_interrupted_attempt_are_examined_and_not_paid_again() -> None:
    before = Bench(said('{"m": 1}'), said("never comes"))
    call = PromptCall("count", "claude-x", schema=SCHEMA)
    before.fails(call)
    bench = Bench(said('{"n": 1}'))
    result = bench.perform(call, kept=(before.told.kept[0],))
    assert result.value == {"n": 1}
    assert result.calls == 1
    assert bench.sent()["messages"] == before.sent(1)["messages"]
    none = Bench()
    assert none.perform(call, kept=tuple(bench.told.kept)).value == {"n": 1}
    assert none.provider.requests == []


def test_a_repair_that_cannot_be_paid_for_reports_what_was_paid() -> None:
    bench = Bench(said("no"))
    bench.told.reservations_max = 1
    with pytest.raises(OverBudgetError, match="the budget is spent") as caught:
        bench.perform(PromptCall("count", "claude-x", schema=SCHEMA))
    assert caught.value.result is not None
    assert caught.value.result.calls == 1


def test_a_repair_that_is_lost_costs_its_ceiling_and_the_first_call() -> None:
    bench = Bench(said("no"), httpx2.ReadError("reset"))
    error = bench.fails(PromptCall("count", "claude-x", schema=SCHEMA))
    assert error.is_in_doubt
    assert error.result is not None
    assert error.result.spend_microusd == 12 * 3 + 34 * 15 + bench.told.reserved[1][0]
    assert error.result.calls == 2


USAGE_WAIT = Wait("usage/18000s", now_s() + 7200.0, "usage window is 100% used")


def test_a_wait_for_a_usage_window_ends_with_its_reset() -> None:
    bench = Bench()
    bench.admission.refuse(USAGE_WAIT)
    with pytest.raises(WindowEmptyError, match="100% used") as caught:
        bench.perform()
    assert bench.windows == [(caught.value.resets_at_s, "usage window is 100% used")]
    assert caught.value.resets_at_s == pytest.approx(time.time() + 7200.0, abs=600.0)
    assert bench.provider.requests == []


def test_a_window_that_is_empty_before_a_repair_reports_what_was_paid() -> None:
    async def verify(text: str) -> str | None:
        bench.admission.refuse(USAGE_WAIT)
        return "wrong"

    bench = Bench()
    with pytest.raises(WindowEmptyError) as caught:
        bench.perform(PromptCall("do", "claude-x", verify=verify))
    assert caught.value.result is not None
    assert caught.value.result.calls == 1
    assert len(bench.windows) == 1


def test_other_waits_go_on_in_the_same_place_for_as_long_as_it_takes() -> None:
    bench = Bench()
    bench.admission.refuse(Wait("input/60s", now_s() + 20.0, "refilling"))
    assert bench.perform().calls == 1
    assert (len(bench.admission.calls), bench.admission.deadlines_s) == (1, [None])


def test_an_answer_that_empties_the_window_is_told_at_once() -> None:
    stamp = {"anthropic-ratelimit-unified-5h-utilization": "1.0",
             "anthropic-ratelimit-unified-5h-reset": "9999999999"}  # fmt: skip
    full = said("last one")
    full.headers.update(stamp)
    bench = Bench(full)
    assert bench.perform().body == b"last one "
    ((until_s, detail),) = bench.windows
    assert until_s == pytest.approx(9999999999, abs=5)
    assert detail == "usage window 5h is used up"


@pytest.mark.parametrize(("error", "kind"), [
    (AccountClosedError("closed"), "billing"), (DemandTooLargeError("big"), "request"),
    (BrokerUnavailableError("gone"), "connection"), (StateFileError("full"), "request"),
])  # fmt: skip
def test_what_admission_says_for_good_is_the_attempts_fault(error: HeadwayError, kind: str) -> None:
    bench = Bench()
    bench.admission.refuse(error)
    lost = bench.fails()
    assert lost.fault.kind == kind
    assert error.code in lost.fault.detail
    assert lost.result is not None
    assert lost.result.calls == 0


def test_an_accounts_own_budget_ends_the_run_like_its_own() -> None:
    bench = Bench()
    bench.admission.refuse(BudgetReachedError("this month's budget has no room"))
    with pytest.raises(OverBudgetError, match="HW205"):
        bench.perform()


def test_a_cancelled_call_settles_its_permit_and_closes_its_answer() -> None:
    body = Body(events("anthropic")[:2], hangs=True)
    bench = Bench(body=body)

    async def cancel_in_the_middle() -> None:
        task = asyncio.ensure_future(bench._perform(CALL, ()))
        await body.hanging.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(cancel_in_the_middle())
    assert body.closed
    assert [outcome.how for outcome in bench.admission.outcomes] == ["used"]


def test_a_missing_key_is_one_clear_error_before_anything_starts() -> None:
    with pytest.raises(UsageError) as caught:
        must_be_ready(["claude-x", "openai/a", "openai/b", "claude-x"], {})
    assert caught.value.message == "there is no key for `claude-x`, `openai/a`, `openai/b`"
    assert caught.value.hint == "export ANTHROPIC_API_KEY=... OPENAI_API_KEY=..."
    must_be_ready(["claude-x", "openai/a"], KEYS)
    must_be_ready(["claude-x"], {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080"})
    must_be_ready(["claude-x"], {"ANTHROPIC_BASE_URL": "http://[::1]:8080"})
    must_be_ready(["claude-x"], {"ANTHROPIC_AUTH_TOKEN": "oauth"})


def test_a_key_is_never_shown() -> None:
    assert "sk-" not in repr(endpoint_of("claude-x", KEYS)) + repr(endpoint_of("gpt-5", KEYS))


@pytest.mark.parametrize("address", ["localhost:8080", "http://", "file:///etc/passwd", "nonsense"])
def test_an_address_that_is_none_is_refused_before_anything_starts(address: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_BASE_URL is not the address"):
        must_be_ready(["gpt"], {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "k"})


def test_a_budget_in_money_needs_a_price_for_every_model() -> None:
    must_have_ceilings(["claude-x"], {}, lambda _, __: PRICE)
    with pytest.raises(BudgetReachedError, match="`openai/mine`"):
        must_have_ceilings(["openai/mine"], {}, lambda _, __: None)
