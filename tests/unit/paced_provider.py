"""A provider behind `httpx2.MockTransport` that answers as told and remembers everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx2
import openai

import headway
from headway.client.exchange import Port
from headway.wire.read import FORMATS
from headway.wire.values import Answer, WireName

HOST = "http://provider.test"
HOW: dict[str, Any] = {
    "api_key": "sk-secret", "base_url": HOST, "_strict_response_validation": True,
}  # fmt: skip
ANSWER = Answer("msg_1", "model-1", "To be or not to be, that is the question. " * 3, 12, 34)
WIRE_OF_PATH: dict[str, WireName] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
}
HEADERS = {
    "anthropic": {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
    },
    "openai-chat": {"x-ratelimit-limit-requests": "50", "x-ratelimit-remaining-requests": "49"},
}
HEADERS["openai-responses"] = HEADERS["openai-chat"]


class Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """Bytes that can fail or hang at their end, and know whether they were closed."""

    def __init__(
        self,
        parts: list[bytes],
        error: Exception | None = None,
        hangs: bool = False,
        close_hangs: bool = False,
    ) -> None:
        self.parts = parts
        self.error = error
        self.hangs = hangs
        self.close_hangs = close_hangs
        self.read = 0
        self.closed = 0
        self.hanging = asyncio.Event()

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            self.read += 1
            yield part
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part
        if self.hangs:
            self.hanging.set()
            await asyncio.Event().wait()

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1
        if self.close_hangs:
            # Whoever closes has to wait for the other side, and can be cancelled meanwhile.
            await asyncio.Event().wait()


def events(wire: WireName, answer: Answer = ANSWER) -> list[bytes]:
    """The parts of a stream, cut where an event ends."""
    words = answer.text.split(" ")
    texts = [" ".join([*words[at : at + 4], ""]) for at in range(0, len(words), 4)]
    pieces = [FORMATS[wire].piece(answer, index, text) for index, text in enumerate(texts)]
    return [FORMATS[wire].opening(answer), *pieces, FORMATS[wire].closing(answer, True, 3)]


def refusal(status: int, kind: str, message: str = "Slow down.") -> httpx2.Response:
    """An error in a form that both SDKs and both dialects read."""
    told = {"type": "error", "error": {"type": kind, "code": kind, "message": message}}
    return httpx2.Response(
        status,
        headers={"content-type": "application/json"},
        stream=Body([json.dumps(told).encode()]),
    )


class PacedProvider:
    """Gives the replies that it was told to give, then answers."""

    def __init__(self, *replies: httpx2.Response | Exception, body: Body | None = None) -> None:
        self.replies = list(replies)
        self.body = body
        self.requests: list[httpx2.Request] = []
        self.bodies: list[Body] = []
        self.transport = httpx2.MockTransport(self.reply)

    def reply(self, request: httpx2.Request) -> httpx2.Response:
        """The next reply that was told, or an answer."""
        self.requests.append(request)
        if self.replies:
            told = self.replies.pop(0)
            if isinstance(told, Exception):
                raise told
            return told
        wire = WIRE_OF_PATH[request.url.path]
        is_stream = json.loads(request.content).get("stream", False)
        body = self.body or Body(events(wire) if is_stream else [FORMATS[wire].whole(ANSWER)])
        self.bodies.append(body)
        kind = "text/event-stream" if is_stream else "application/json"
        return httpx2.Response(200, headers={"content-type": kind, **HEADERS[wire]}, stream=body)

    def http(self) -> httpx2.Client:
        return httpx2.Client(transport=self.transport)

    def http_async(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=self.transport)

    def gpt(self, max_retries: int = 2) -> openai.OpenAI:
        how = HOW | {"base_url": f"{HOST}/v1", "max_retries": max_retries}
        return openai.OpenAI(http_client=self.http(), **how)

    def gpt_async(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(http_client=self.http_async(), **HOW | {"base_url": f"{HOST}/v1"})

    def claude(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(http_client=self.http(), **HOW)

    def claude_async(self) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(http_client=self.http_async(), **HOW)


def post(
    provider: PacedProvider, admission: Port, url: str, ask: object, *,
    is_async: bool = False, wait_s: float | None = None,
) -> httpx2.Response:  # fmt: skip
    """One call through a paced client, in a thread or in a loop."""
    if not is_async:
        with headway.pace(provider.http(), admission=admission, wait_s=wait_s) as http:
            return http.post(url, json=ask)

    async def send() -> httpx2.Response:
        http = provider.http_async()
        client = headway.pace(http, admission=admission, wait_s=wait_s)
        async with client:
            return await client.post(url, json=ask)

    return asyncio.run(send())
