"""Many calls through `pace` to a server of others, and what went over the wire."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from time import monotonic
from typing import Literal

import anthropic
import httpx2
import openai
from msgspec import Struct, field

import headway
from headway.client.admission import AdmissionPort
from headway.client.connection import dial_alone

Wire = Literal["openai", "anthropic"]


class Sent(Struct):
    """What went over the wire."""

    first_s: float = 0.0
    last_s: float = 0.0
    sizes: list[int] = field(default_factory=list)
    """Bodies of the requests that were answered."""
    statuses: list[int] = field(default_factory=list)

    @property
    def makespan_s(self) -> float:
        """From the first request to the last answer."""
        return self.last_s - self.first_s

    @property
    def refused(self) -> int:
        return self.statuses.count(429)


class Recorder(httpx2.AsyncBaseTransport):
    """Writes down what is really sent, below pacing and below the SDK's retries."""

    def __init__(self) -> None:
        self.sent = Sent()
        self._inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=1000))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.first_s = self.sent.first_s or monotonic()
        response = await self._inner.handle_async_request(request)
        self.sent.last_s = monotonic()
        self.sent.statuses.append(response.status_code)
        if response.status_code == 200:
            self.sent.sizes.append(len(request.content))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def prompts(count: int, words: tuple[int, int], seed: str) -> list[str]:
    """Unique prompts of mixed lengths."""
    chance = random.Random(seed)
    line = ("every", "body", "is", "unique", "so", "that", "no", "call", "passes", "for", "another")
    return [
        f"Call {number}: " + " ".join(chance.choices(line, k=chance.randint(*words)))
        for number in range(count)
    ]


async def send_all(wire: Wire, url: str, texts: Sequence[str], max_tokens: int) -> Sent:
    """All calls at once, paced by a desk of this process that remembers nothing."""
    recorder = Recorder()
    port = AdmissionPort(dial_alone)
    async with httpx2.AsyncClient(transport=recorder, timeout=60.0) as http:
        if wire == "openai":
            client = openai.AsyncOpenAI(api_key="sk-test", base_url=f"{url}/v1", http_client=http)
            headway.pace(client, admission=port)
            await asyncio.gather(*(_chat(client, text, max_tokens) for text in texts))
        else:
            other = anthropic.AsyncAnthropic(
                api_key="sk-test", base_url=f"{url}/anthropic", http_client=http
            )
            headway.pace(other, admission=port)
            await asyncio.gather(*(_message(other, text, max_tokens) for text in texts))
    return recorder.sent


async def _chat(client: openai.AsyncOpenAI, text: str, max_tokens: int) -> None:
    answer = await client.chat.completions.create(
        model="gpt-4o", max_tokens=max_tokens, messages=[{"role": "user", "content": text}]
    )
    assert answer.choices[0].message.content


async def _message(client: anthropic.AsyncAnthropic, text: str, max_tokens: int) -> None:
    answer = await client.messages.create(
        model="claude-opus-4-5", max_tokens=max_tokens, messages=[{"role": "user", "content": text}]
    )
    assert answer.content
