"""Siblings that share a cacheable beginning: one writes it, the others read it."""

from __future__ import annotations

import asyncio
from typing import Any

from anthropic import AsyncAnthropic

import headway
from headway.base.values import Limit
from headway.client.admission import AdmissionPort
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of
from tests.integration.broker_home import Home

SIBLINGS = 8
BEGINNING = "You review code for races. " * 400
SPEC = ProviderSpec(
    "cached", Terms((Limit("requests", 500), Limit("input", 100_000))), Latency(0.3, 0.002)
)


async def ask_all(url: str, key: str, port: AdmissionPort | None) -> None:
    client = AsyncAnthropic(base_url=url, api_key=key)
    if port is not None:
        headway.pace(client, admission=port)
    system: Any = [{"type": "text", "text": BEGINNING, "cache_control": {"type": "ephemeral"}}]

    async def ask(number: int) -> None:
        await client.messages.create(
            model="tokens-20", max_tokens=50, system=system,
            messages=[{"role": "user", "content": f"File number {number}"}],
        )  # fmt: skip

    await asyncio.gather(*(ask(number) for number in range(SIBLINGS)))
    await client.close()


def test_a_shared_beginning_is_written_once_and_read_by_all_others(here: Home) -> None:
    with serving(SPEC, ServeOptions(seed=1)) as url:
        asyncio.run(ask_all(url, "paced", here.port()))
        asyncio.run(ask_all(url, "unpaced", None))
        truth = truth_of(url)["accounts"]
    paced, unpaced = truth[account_of("paced")], truth[account_of("unpaced")]
    assert (paced["cache_writes"], paced["cache_reads"]) == (1, SIBLINGS - 1)
    assert unpaced["cache_writes"] == SIBLINGS
    assert paced["whole"] == unpaced["whole"] == SIBLINGS
    # What is read from the cache does not count towards the limit on input.
    assert paced["charged"]["input"] < 0.25 * unpaced["charged"]["input"]
