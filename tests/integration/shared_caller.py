"""A process that begins streams and ends them in every way that there is, until it is killed.

It is told what to do in one JSON argument. When it has ended as many as it should, it begins some
more, says so in one line, and waits for the end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle, islice
from typing import Any

import anthropic
import httpx2
import openai
from msgspec import Struct

import headway
from headway.base.codec import as_dict
from headway.client.admission import admission

WAYS = ("read", "break", "cancel", "cancel twice", "timeout", "forget")
KILLED = "killed"
AT_ONCE = 8
WAIT_S = 60.0
SILENCE_S = 0.4
"""How long a client waits for the next byte of a stream that the provider lets stall."""

MESSAGES: Any = [{"role": "user", "content": "Tell me a story."}]
SHORT: dict[str, Any] = {"model": "tokens-200", "max_tokens": 250, "messages": MESSAGES}
LONG = SHORT | {"model": "tokens-60000", "max_tokens": 60_000}
"""Two minutes: no client reads it to its end, also on a busy machine."""

GIVEN_UP = (openai.OpenAIError, anthropic.AnthropicError, httpx2.TransportError)


class Errand(Struct, frozen=True):
    """Which streams to begin."""

    url: str
    sdk: str
    is_async: bool
    streams: int
    """To be ended in all ways but the last."""
    left: int
    """To be in the middle of when the process is killed."""


class Ended(Struct, frozen=True):
    """What the process has seen so far."""

    by_way: dict[str, int]
    in_use: int
    """Permits of this process before the last streams were begun."""


class Interrupted(BaseException):
    """What Ctrl-C raises in a thread."""


def key_of(errand: Errand, way: str) -> str:
    """Every way has an account of its own, so that the provider's record tells them apart."""
    return f"{errand.sdk} {'loop' if errand.is_async else 'threads'} {way}"


def settings(errand: Errand, way: str) -> dict[str, Any]:
    base = errand.url if errand.sdk == "anthropic" else f"{errand.url}/v1"
    return {"api_key": key_of(errand, way), "base_url": base, "max_retries": 0}


def question(errand: Errand, way: str, number: int) -> dict[str, Any]:
    asked = (SHORT if way in ("read", "timeout") else LONG) | {"stream": True}
    if errand.sdk == "openai":
        asked["stream_options"] = {"include_usage": True}
    if way == "timeout":
        # Before the first byte, or in the middle.
        asked["extra_headers"] = {"x-sim-fault": "hang" if number % 2 else "stall"}
        asked["timeout"] = httpx2.Timeout(WAIT_S, read=SILENCE_S)
    return asked


class Threads:
    """Streams of synchronous clients."""

    def __init__(self, errand: Errand) -> None:
        self.errand = errand
        self.kept: list[Iterator[object]] = []
        self.clients = {way: self._client(way) for way in (*WAYS, KILLED)}

    def _client(self, way: str) -> Any:
        kind = anthropic.Anthropic if self.errand.sdk == "anthropic" else openai.OpenAI
        return headway.pace(kind(**settings(self.errand, way)))

    def _begin(self, client: Any, way: str, number: int) -> Any:
        calls = client.messages if self.errand.sdk == "anthropic" else client.chat.completions
        return calls.create(**question(self.errand, way, number))

    def end(self, way: str, number: int) -> None:
        """One stream, ended in this way."""
        client = self._client(way) if way == "forget" else self.clients[way]
        if way.startswith("cancel"):
            self._interrupt(way, number)
        elif way == "read":
            assert list(self._begin(client, way, number))
        elif way == "timeout":
            with suppress(*GIVEN_UP):
                list(self._begin(client, way, number))
                raise AssertionError("a stream that stalls was read to its end")
        else:
            stream = self._begin(client, way, number)
            next(iter(stream))
            if way == "break":
                stream.close()
            del stream, client
            gc.collect()

    def _interrupt(self, way: str, number: int) -> None:
        """A thread cannot be cancelled: what Ctrl-C raises in it leaves the stream as it is."""
        with suppress(Interrupted):
            try:
                for _ in self._begin(self.clients[way], way, number):
                    raise Interrupted
            finally:
                if way == "cancel twice":
                    raise Interrupted

    def leave(self) -> None:
        """One more stream, in the middle of which the process will be killed."""
        stream = iter(self._begin(self.clients[KILLED], KILLED, 0))
        next(stream)
        self.kept.append(stream)

    def run(self) -> Ended:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            ways = list(islice(cycle(WAYS), self.errand.streams))
            list(threads.map(self.end, ways, range(len(ways))))
            gc.collect()
            ended = Ended({way: ways.count(way) for way in WAYS}, len(admission().in_use))
            list(threads.map(lambda _: self.leave(), range(self.errand.left)))
        return ended


class Loop:
    """Streams of asynchronous clients."""

    def __init__(self, errand: Errand) -> None:
        self.errand = errand
        self.kept: list[AsyncIterator[object]] = []
        self.clients = {way: self._client(way) for way in (*WAYS, KILLED)}

    def _client(self, way: str) -> Any:
        kind = anthropic.AsyncAnthropic if self.errand.sdk == "anthropic" else openai.AsyncOpenAI
        return headway.pace(kind(**settings(self.errand, way)))

    async def _begin(self, client: Any, way: str, number: int) -> Any:
        calls = client.messages if self.errand.sdk == "anthropic" else client.chat.completions
        return await calls.create(**question(self.errand, way, number))

    async def end(self, way: str, number: int) -> None:
        """One stream, ended in this way."""
        client = self._client(way) if way == "forget" else self.clients[way]
        if way.startswith("cancel"):
            await self._cancel(way, number)
        elif way == "read":
            assert [event async for event in await self._begin(client, way, number)]
        elif way == "timeout":
            with suppress(*GIVEN_UP):
                _ = [event async for event in await self._begin(client, way, number)]
                raise AssertionError("a stream that stalls was read to its end")
        else:
            stream = await self._begin(client, way, number)
            await anext(aiter(stream))
            if way == "break":
                await stream.close()
            del stream, client
            gc.collect()

    async def _cancel(self, way: str, number: int) -> None:
        began = asyncio.Event()

        async def read() -> None:
            async for _ in await self._begin(self.clients[way], way, number):
                began.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for(began.wait(), WAIT_S)
        task.cancel()
        if way == "cancel twice":
            # The first has been delivered by now, and the stream is being closed.
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])

    async def leave(self) -> None:
        """One more stream, in the middle of which the process will be killed."""
        stream = aiter(await self._begin(self.clients[KILLED], KILLED, 0))
        await anext(stream)
        self.kept.append(stream)

    async def run(self) -> Ended:
        ways = list(islice(cycle(WAYS), self.errand.streams))
        numbers = iter(range(len(ways)))

        async def some() -> None:
            for number in numbers:
                await self.end(ways[number], number)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        gc.collect()
        ended = Ended({way: ways.count(way) for way in WAYS}, len(admission().in_use))
        await asyncio.gather(*(self.leave() for _ in range(self.errand.left)))
        return ended


def say(ended: Ended) -> None:
    print(json.dumps(as_dict(ended)), flush=True)


async def in_a_loop(errand: Errand) -> None:
    streams = Loop(errand)
    say(await streams.run())
    await asyncio.get_running_loop().create_future()


def main() -> None:
    errand = Errand(**json.loads(sys.argv[1]))
    if errand.is_async:
        asyncio.run(in_a_loop(errand))
    else:
        streams = Threads(errand)
        say(streams.run())
        threading.Event().wait()


if __name__ == "__main__":
    main()
