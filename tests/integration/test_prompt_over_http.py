"""Prompts against the simulated provider over real sockets: answers, faults, windows, money."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from headway.agents.prompt import PromptAgent, PromptCall, PromptSettings
from headway.client.admission import AdmissionPort
from headway.pacing.estimate import Price
from headway.sim.account import Terms
from headway.sim.delivery import parse_shares
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of
from headway.work import AttemptError, Result
from tests.unit.attempts import Told

LATENCY = Latency(0.01, 0.0005)
PRICE = Price(3_000_000, 15_000_000)
WIRES = ("anthropic", "openai")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(ProviderSpec("t", Terms(), LATENCY)) as found:
        yield found


def settings(
    url: str, port: AdmissionPort, key: str, fault: str = "", **how: Any
) -> PromptSettings:
    environment = {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key,
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key,
    }  # fmt: skip
    headers = {"x-sim-fault": fault} if fault else {}
    return PromptSettings(
        "run-1", environment, port, headers=headers, prices=lambda _, __: PRICE, **how
    )


async def perform(how: PromptSettings, call: PromptCall, told: Told | None = None) -> Result:
    async with aclosing(PromptAgent(how)) as agent:
        return await agent.perform(call, (told or Told()).attempt())


def account(url: str, key: str) -> dict[str, Any]:
    until_s = time.monotonic() + 20.0
    while True:
        found: dict[str, Any] = truth_of(url)["accounts"][account_of(key)]
        if found["in_flight"] == 0 or time.monotonic() > until_s:
            return found


@pytest.mark.parametrize("wire", WIRES)
def test_many_prompts_at_once_are_answered_and_counted(
    url: str, port: AdmissionPort, wire: str
) -> None:
    texts = [f"Nummer {n}, 東京\n\t\\" for n in range(30)]

    async def main() -> list[Result]:
        async with aclosing(PromptAgent(settings(url, port, f"many-{wire}"))) as agent:
            calls = [PromptCall(text, f"{wire}/echo") for text in texts]
            return await asyncio.gather(*(agent.perform(one, Told().attempt()) for one in calls))

    results = asyncio.run(main())
    assert [result.body.decode() for result in results] == texts
    told = account(url, f"many-{wire}")
    assert (told["calls"], told["whole"]) == (30, 30)
    assert told["reported"]["input_tokens"] == sum(result.input_tokens for result in results)
    assert told["reported"]["output_tokens"] == sum(result.output_tokens for result in results)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("fault", "kind", "is_in_doubt"),
    [
        ("cut", "broken", True), ("gzip, cut", "broken", True), ("malformed", "broken", True),
        ("error-event", "overload", True), ("hang", "timeout", True), ("stall", "timeout", True),
        ("500", "server", True), ("billing", "billing", False), ("spend-cap", "spend_cap", False),
    ],
)  # fmt: skip
def test_every_fault_has_its_kind_and_settles_its_permit(
    url: str, port: AdmissionPort, wire: str, fault: str, kind: str, is_in_doubt: bool
) -> None:
    how = settings(url, port, f"{fault}-{wire}", fault, quiet_s=0.3)
    told = Told()
    with pytest.raises(AttemptError) as caught:
        asyncio.run(perform(how, PromptCall("x", f"{wire}/tokens-40", 50), told))
    error = caught.value
    assert (error.fault.kind, error.is_in_doubt) == (kind, is_in_doubt), error.fault
    assert error.result is not None
    assert error.result.spend_microusd == (told.reserved[0][0] if is_in_doubt else 0)
    assert told.said == ["reserve", "waits", "goes"]


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_no_fault_is_no_fault(url: str, port: AdmissionPort, wire: str) -> None:
    how = settings(url, port, f"gzip-{wire}", "gzip, slow-start")
    assert asyncio.run(perform(how, PromptCall("hello", f"{wire}/echo"))).body == b"hello"


def test_refusals_at_the_door_are_absorbed(port: AdmissionPort) -> None:
    mischief = parse_shares(["529=0.2", "429-bare=0.2"])
    with serving(ProviderSpec("t", Terms(), LATENCY), ServeOptions(mischief=mischief)) as url:
        results = asyncio.run(_several(settings(url, port, "k"), 4))
        assert [result.calls for result in results] == [1] * 4
        assert account(url, "k")["whole"] == 4


async def _several(how: PromptSettings, count: int) -> list[Result]:
    async with aclosing(PromptAgent(how)) as agent:
        calls = [PromptCall(f"n{n}", "openai/tokens-5") for n in range(count)]
        return await asyncio.gather(*(agent.perform(one, Told().attempt()) for one in calls))
