"""A month's budget and agents that declare absurd maxima: side by side, and not beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest
from msgspec import Struct

from headway.base.values import Budget, Limit
from headway.client.admission import AdmissionPort
from headway.errors import BudgetReachedError
from headway.pacing.budget import STEP_TOKENS, Pot
from headway.pacing.memory import EVERY_ACCOUNT, AccountTerms
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import account_of, serving, truth_of
from headway.testing import FakeAdmission
from tests.integration.broker_home import home, until
from tests.integration.gateway_home import GatewayHome, asked, claude, gateway_to, gpt

AGENTS = 22
ABSURD = 128_000
"""What Claude Code declares for every call."""

MANY = (Limit("concurrency", 100.0, kind="gauge"),)
RAISE = "`headway limits budget AMOUNT/month`"


class Scene(Struct, frozen=True):
    """A gateway with a real broker behind it, and a budget there."""

    gateway: GatewayHome
    port: AdmissionPort

    def ledger(self) -> Pot:
        return dict(self.port.describe()[0].ledgers)[EVERY_ACCOUNT]

    def settled(self) -> Pot:
        """What was spent, once nothing is in flight."""
        until(lambda: sum(one.in_flight for one in self.port.describe()[0].accounts) == 0)
        found = self.ledger()
        assert found.claimed.tokens == 0
        return found

    def truth(self) -> dict[str, Any]:
        """What the provider knows of the account."""
        found: dict[str, Any] = truth_of(self.gateway.upstream)["accounts"][account_of("k")]
        return found


@contextmanager
def scene(monkeypatch: pytest.MonkeyPatch, latency: Latency, tokens: float) -> Iterator[Scene]:
    spec = ProviderSpec("budgeted", Terms(()), latency)
    with home(monkeypatch) as here, serving(spec) as url:
        port = here.port()
        port.configure(EVERY_ACCOUNT, AccountTerms(MANY, budget=Budget(tokens=tokens)))
        with gateway_to(url, port) as gateway:
            yield Scene(gateway, port)


def streamed(client: anthropic.Anthropic, model: str, text: str) -> str:
    call = client.messages.stream(model=model, max_tokens=ABSURD, messages=asked(text))
    with call as stream:
        return stream.get_final_text()


def test_agents_that_declare_absurd_maxima_run_side_by_side_under_a_small_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        scene(monkeypatch, Latency(1.5, 0.001), 200_000.0) as here,
        claude(here.gateway.bases) as client,
        ThreadPoolExecutor(AGENTS) as pool,
    ):
        texts = list(pool.map(lambda n: streamed(client, "tokens-20", f"task {n}"), range(AGENTS)))
        assert all(texts)
        spent, truth = here.settled().spent, here.truth()
        assert (truth["calls"], truth["whole"]) == (AGENTS, AGENTS)
        assert truth["in_flight_max"] > 1
        reported = truth["reported"]
        assert spent.tokens == (
            reported["input_tokens"] + reported["cache_read_tokens"] + reported["output_tokens"]
        )


@pytest.mark.wallclock
def test_a_runaway_answer_is_cut_within_a_step_of_the_budget_and_nobody_calls_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = 1500.0
    with (
        scene(monkeypatch, Latency(0.05, 0.004), budget) as here,
        claude(here.gateway.bases) as client,
    ):
        with pytest.raises(anthropic.APIStatusError) as cut:
            streamed(client, "tokens-20000", "never stop")
        told = cut.value.body
        assert isinstance(told, dict)
        assert told["error"]["type"] == "billing_error"
        for part in ("HW205", "more of this answer", "1,500 tokens for all accounts", RAISE):
            assert part in told["error"]["message"]
        spent = here.settled().spent.tokens
        # What it grows between two tellings, a fifth of a second apart, comes on top.
        assert budget - 2 * STEP_TOKENS <= spent <= budget + STEP_TOKENS
        until(lambda: here.truth()["cancelled"] == 1)
        (arrival,) = truth_of(here.gateway.upstream, "?arrivals=all")["arrivals"]
        produced = arrival["input_tokens"] + arrival["output_tokens"]
        # The text that passed was counted: it was made of longer tokens than most.
        assert budget / 2 <= produced <= budget + STEP_TOKENS
        _nobody_calls(here)
        assert here.truth()["calls"] == 1
        assert here.settled().spent.tokens == spent


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_an_answer_that_is_cut_ends_with_an_error_that_its_client_raises(wire: str) -> None:
    admission = FakeAdmission()
    spec = ProviderSpec("long", Terms(()), Latency(0.01, 0.002))
    with (
        serving(spec) as url,
        gateway_to(url, admission) as gateway,
        gpt(gateway.bases) as client,
    ):
        stream: Any = None
        if wire == "chat":
            stream = client.chat.completions.create(
                model="tokens-2000", messages=asked("x"), stream=True
            )
        else:
            stream = client.responses.create(model="tokens-2000", input="x", stream=True)
        next(stream)
        (ticket,) = admission.tickets
        assert ticket.call.is_soft
        ticket.cut = BudgetReachedError("there is no more", hint=RAISE)
        with pytest.raises(openai.APIError, match=r"HW205.*no more.*headway limits budget"):
            for _ in stream:
                pass
        until(lambda: truth_of(url)["accounts"][account_of("k")]["cancelled"] == 1)
    outcome = ticket.outcome
    assert (outcome.how, outcome.fault, outcome.tally.known) == ("used", None, "estimated")


def _nobody_calls(here: Scene) -> None:
    """The next call is refused before anything is sent.

    What is left of the budget is less than a step; of an answer to a new model 500 tokens are
    expected.
    """
    with claude(here.gateway.bases) as client, pytest.raises(anthropic.APIStatusError) as refused:
        client.messages.create(model="tokens-20", max_tokens=8000, messages=asked("more"))
    _is_told(refused.value.status_code, refused.value.body, "type", "billing_error")


def _is_told(status: int, body: Any, name: str, value: object) -> None:
    assert status == 402
    assert body["error"][name] == value
    for part in ("this month's budget has no room", "1,500 tokens for all accounts", RAISE):
        assert part in body["error"]["message"]
