"""A person beside a fleet over HTTP: `python -m bench.person_http`.

500 calls as `claude -p` sends them and 20 as Claude Code at a terminal does, through one gateway to
a simulated account that the fleet uses up. Only the User-Agent differs. Then the same account with
a usage window of which a fifth is reserved.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Final

import aiohttp

from headway.base.values import Limit
from headway.client.admission import AdmissionPort
from headway.client.connection import dial_alone
from headway.gateway.guard import Keyring
from headway.gateway.server import serving as gateway_serving
from headway.gateway.settings import GatewaySettings
from headway.gateway.values import Upstream
from headway.pacing.memory import AccountTerms
from headway.sim.account import Terms, UsageWindow
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import serving

FLEET: Final = "claude-cli/2.1.325 (external, sdk-cli)"
PERSON: Final = "claude-cli/2.1.325 (external, cli)"
LIMITS: Final = (Limit("requests", 400.0, 60.0, burst=20.0), Limit("input", 400e3, 60.0))
SPEC: Final = ProviderSpec("account", Terms(LIMITS), Latency(0.6, 0.01), dialect="anthropic")
CALLS: Final = 500
OWN_CALLS: Final = 20
THINK_S: Final = 2.0
WINDOW_TOKENS: Final = 300_000.0
HELD_S: Final = 3.0
"""A fleet of which no call was sent for so long is held by its part of the window."""


class Client:
    """Sends calls through a gateway, and notes how long each took."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self.ended_s: list[float] = []

    async def call(self, agent: str, words: int) -> float:
        body = {"model": "tokens-40", "max_tokens": 100, "stream": True,
                "messages": [{"role": "user", "content": "word " * words}]}  # fmt: skip
        headers = {"user-agent": agent, "x-api-key": "k", "content-type": "application/json"}
        began_s = time.monotonic()
        async with self._session.post(self._url, data=json.dumps(body), headers=headers) as reply:
            await reply.read()
            reply.raise_for_status()
        self.ended_s.append(time.monotonic())
        return self.ended_s[-1] - began_s

    async def fleet(self, calls: int) -> float:
        began_s = time.monotonic()
        await asyncio.gather(*(self.call(FLEET, 100) for _ in range(calls)))
        return time.monotonic() - began_s

    async def person(self, agent: str) -> list[float]:
        took = []
        for _ in range(OWN_CALLS):
            await asyncio.sleep(THINK_S)
            took.append(await self.call(agent, 400))
        return sorted(took)


def measure(who: str, with_fleet: bool) -> tuple[list[float], float]:
    """How long the person's calls took, and the fleet."""

    async def main(url: str) -> tuple[list[float], float]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            client = Client(session, url)
            if not with_fleet:
                return await client.person(who), 0.0
            fleet = asyncio.ensure_future(client.fleet(CALLS))
            took = await client.person(who) if who else []
            return took, await fleet

    with serving(SPEC) as url, _gateway(url, AdmissionPort(dial_alone)) as base:
        return asyncio.run(main(base))


def reserve(share: float) -> tuple[float, float]:
    """What is used of a window when the fleet is held, by the provider's own headers, and how long
    a person's call takes then."""
    terms = Terms((Limit("requests", 6000.0),), windows=(UsageWindow(WINDOW_TOKENS),))
    port = AdmissionPort(dial_alone)
    port.configure("", AccountTerms(reserve=share))

    async def main(url: str) -> tuple[float, float]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            client = Client(session, url)
            fleet = asyncio.ensure_future(client.fleet(5 * CALLS))
            while not client.ended_s or time.monotonic() - client.ended_s[-1] < HELD_S:
                await asyncio.sleep(HELD_S / 10)
            used = port.describe()[0].accounts[0].windows[0].used
            took_s = await client.call(PERSON, 400)
            fleet.cancel()
            return used, took_s

    spec = ProviderSpec("window", terms, Latency(0.1, 0.001), dialect="anthropic")
    with serving(spec) as url, _gateway(url, port) as base:
        return asyncio.run(main(base))


@contextmanager
def _gateway(url: str, port: AdmissionPort) -> Iterator[str]:
    keys = Keyring()
    key = keys.issue("default")
    settings = GatewaySettings({"anthropic": Upstream("anthropic", url)}, wait_s=600.0)
    with gateway_serving(settings, keys, port) as gateway:
        yield f"{gateway.url}/{key.token}/anthropic/v1/messages"


def p95(took: list[float]) -> float:
    return took[ceil(0.95 * len(took)) - 1]


def main() -> None:
    alone, _ = measure(PERSON, with_fleet=False)
    _, fleet_s = measure("", with_fleet=True)
    print(f"alone: median {alone[len(alone) // 2]:.2f} s, p95 {p95(alone):.2f} s; "
          f"fleet alone {fleet_s:.1f} s")  # fmt: skip
    for name, agent in (("not marked", FLEET), ("interactive", PERSON)):
        took, run_s = measure(agent, with_fleet=True)
        print(f"{name}: median {took[len(took) // 2]:.2f} s, p95 {p95(took):.2f} s, longest "
              f"{took[-1]:.2f} s; fleet {run_s:.1f} s")  # fmt: skip
    used, took_s = reserve(0.2)
    print(f"reserve 20%: {used:.0%} of the window used when the fleet is held, "
          f"a person's call takes {took_s:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
