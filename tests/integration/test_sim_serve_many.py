"""Many streams at once: all are whole, and they come in many pieces, not one by one."""

from __future__ import annotations

import asyncio
from json import dumps

from aiohttp import ClientSession, TCPConnector

from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import serving, truth_of

STREAMS = 300
SPEC = ProviderSpec("many", Terms(), Latency(0.3, 0.01))


async def _stream(session: ClientSession, url: str, number: int) -> int:
    body = {"model": "tokens-60", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    async with session.post(
        f"{url}/v1/chat/completions",
        data=dumps(body),
        headers={"authorization": f"Bearer {number}"},
    ) as response:
        content = await response.read()
    assert content.rstrip().endswith(b"data: [DONE]")
    return content.count(b"chat.completion.chunk")


async def _run(url: str) -> list[int]:
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        return await asyncio.gather(
            *(_stream(session, url, number % 3) for number in range(STREAMS))
        )


def test_hundreds_of_streams_are_served_at_once() -> None:
    with serving(SPEC) as url:
        events = asyncio.run(_run(url))
        truth = truth_of(url, "?arrivals=all")
    assert min(events) > 3
    assert len(truth["arrivals"]) == STREAMS
    accounts = truth["accounts"].values()
    assert [account["whole"] for account in accounts] == [STREAMS // 3] * 3
    assert sum(account["reported"]["output_tokens"] for account in accounts) == 60 * STREAMS
    assert sum(account["in_flight_max"] for account in accounts) > STREAMS / 5
