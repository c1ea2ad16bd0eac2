"""Paced clients and a provider with limits, over real sockets: nothing refused, nothing lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

import headway
from headway.base.values import Limit
from headway.client.admission import AdmissionPort
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import account_of, serving, truth_of

LIMITS = (
    Limit("requests", 600, burst=10),
    Limit("tokens", 1e6),
    Limit("concurrency", 8, 0, "gauge"),
)
SPEC = ProviderSpec("test", Terms(LIMITS), Latency(0.02, 0.0005))
WAIT_S_MAX = 60.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SPEC) as found:
        yield found


def gpt(url: str, key: str, **how: Any) -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=f"{url}/v1", **how)


def account(url: str, key: str) -> dict[str, Any]:
    """What the provider says happened, once it has noticed that everybody is gone."""
    until_s = time.monotonic() + WAIT_S_MAX
    while True:
        told: dict[str, Any] = truth_of(url)["accounts"][account_of(key)]
        if told["in_flight"] == 0 or time.monotonic() > until_s:
            return told


def test_threads_that_all_start_at_once_are_all_answered(url: str, port: AdmissionPort) -> None:
    with gpt(url, "threads", max_retries=0) as client, ThreadPoolExecutor(30) as threads:
        headway.pace(client, admission=port)
        answers = list(
            threads.map(
                lambda n: client.responses.create(model="echo", input=f"n{n}").output_text,
                range(30),
            )
        )
    assert answers == [f"n{n}" for n in range(30)]
    told = account(url, "threads")
    assert told["whole"] == 30
    # Without pacing 20 of them are refused, on a quiet machine at most 2 with it.
    assert sum(told["refused"].values()) < 10


def test_an_agent_stays_paced_from_one_event_loop_to_the_next(
    url: str, port: AdmissionPort
) -> None:
    provider = AnthropicProvider(api_key="agent", base_url=url)
    agent = headway.pace(Agent(AnthropicModel("echo", provider=provider)), admission=port)

    async def run() -> str:
        async with agent:
            return (await agent.run("Hamlet")).output

    for number in range(3):
        assert asyncio.run(run()) == "Hamlet"
        assert sum(one.granted for one in port.describe()[0].accounts) == number + 1
