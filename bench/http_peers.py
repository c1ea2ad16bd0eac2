"""One way to send the same calls through a real SDK over HTTP: reads an errand, prints an outcome.

Each way runs in a process of its own, so that a way may need another interpreter, and so that none
shares a connection or a learned number with another. All of them send through the same SDK and
count at the innermost transport, below every retry.

Ways: `headway` is told nothing. `sdk` sends everything at once; `fixed:5` keeps five in flight;
`waves:4` waits for each four to finish; all three rely on the SDK's own two retries. `aiolimiter`
and `token-throttle` are told every limit, also that on concurrency. `aimd` is the controller of
inspect_ai with its defaults, and never gives up.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib import import_module
from math import ceil
from time import monotonic, time
from typing import Any, Final, Literal

import httpx2
from msgspec import Struct, field

from headway.base.codec import as_dict

Wire = Literal["openai", "anthropic"]
Tokens = tuple[int, int]
"""Input and output."""

TIMEOUT_S: Final = 600.0
CONNECTIONS_MAX: Final = 1000
"""Both are the SDKs' own defaults."""

REFUSED: Final = (429, 503)
"""503 is what nginx refuses with."""

ATTEMPTS_MAX: Final = 30
"""After so many a way that never gives up would not come back within the hour."""


class Errand(Struct, frozen=True):
    """What is to be sent, where, and how; the limits are for the ways that want to be told."""

    way: str
    wire: Wire
    url: str
    key: str
    model: str
    max_tokens: int
    prompts: tuple[str, ...]
    inputs: tuple[int, ...]
    """Exact tokens of each prompt, for the ways that count, as if they had the vocabulary."""
    limits: dict[str, float]
    """Per minute, by resource; `concurrency` at once."""
    reserves: bool
    """Whether the provider charges `max_tokens` at admission."""
    output_tokens_mean: float
    """What answers are long on average; a hint for ways that cannot correct themselves."""
    seed: int = 1
    period_s: float = 60.0
    """Of the limits."""
    retries: int = 2
    """Of the SDK; two are its own default."""
    is_streamed: bool = True


class Outcome(Struct):
    """What the client saw."""

    way: str
    answers: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    refused: int = 0
    began_wall_s: float = 0.0
    makespan_s: float = 0.0
    """From the first call to the last answer or failure."""
    latency_p95_s: float = 0.0
    """From the moment that the SDK was called to the last byte: waits and retries included."""
    service_p95_s: float = 0.0
    """From the request that was answered to its last byte."""
    first_s: float = 0.0
    """From the start to the first answer."""


class _TimedStream(httpx2.AsyncByteStream):
    """Notes how long a response took, from the request to its last byte."""

    def __init__(self, inner: Any, began_s: float, services_s: list[float]) -> None:
        self._inner = inner
        self._began_s = began_s
        self._services_s = services_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._inner:
            yield data
        self._services_s.append(monotonic() - self._began_s)

    async def aclose(self) -> None:
        await self._inner.aclose()


class CountingTransport(httpx2.AsyncBaseTransport):
    """Counts what really goes over the wire."""

    def __init__(self, caller: Caller) -> None:
        limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=100)
        self._inner = httpx2.AsyncHTTPTransport(limits=limits)
        self._caller = caller

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._caller.outcome.sent += 1
        began_s = monotonic()
        response = await self._inner.handle_async_request(request)
        if response.status_code in REFUSED:
            self._caller.outcome.refused += 1
            self._caller.on_refusal()
        elif response.status_code == 200:
            response.stream = _TimedStream(response.stream, began_s, self._caller.services_s)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class Caller:
    """Makes calls of one errand through one SDK client."""

    def __init__(self, errand: Errand) -> None:
        self.errand = errand
        self.outcome = Outcome(errand.way)
        self.on_refusal: Callable[[], None] = lambda: None
        self.services_s: list[float] = []
        self.began_s = monotonic()
        self._latencies_s: list[float] = []
        transport = CountingTransport(self)
        http = httpx2.AsyncClient(transport=transport, timeout=TIMEOUT_S)
        sdk = import_module(errand.wire)
        kind = sdk.AsyncOpenAI if errand.wire == "openai" else sdk.AsyncAnthropic
        base = f"{errand.url}/v1" if errand.wire == "openai" else errand.url
        self.client: Any = kind(
            api_key=errand.key, base_url=base, http_client=http, max_retries=errand.retries
        )
        self._sdk_error: type[Exception] = sdk.APIError

    async def call(self, prompt: str) -> Tokens | None:
        """One call, with the SDK's retries: its tokens, or nothing if it failed."""
        began_s = monotonic()
        try:
            tokens = await self._stream(prompt)
        except self._sdk_error as error:
            name = type(error).__name__
            self.outcome.failures[name] = self.outcome.failures.get(name, 0) + 1
            return None
        self._latencies_s.append(monotonic() - began_s)
        self.outcome.first_s = self.outcome.first_s or monotonic() - self.began_s
        self.outcome.answers += 1
        self.outcome.input_tokens += tokens[0]
        self.outcome.output_tokens += tokens[1]
        return tokens

    async def finish(self) -> Outcome:
        """Close the client and sum up."""
        self.outcome.makespan_s = monotonic() - self.began_s
        await self.client.close()
        self.outcome.latency_p95_s = _p95(self._latencies_s)
        self.outcome.service_p95_s = _p95(self.services_s)
        return self.outcome

    async def _stream(self, prompt: str) -> Tokens:
        errand = self.errand
        messages = [{"role": "user", "content": prompt}]
        if not errand.is_streamed:
            await self.client.chat.completions.create(
                model=errand.model, messages=messages, max_tokens=errand.max_tokens
            )
            return 0, 0
        if errand.wire == "openai":
            chunks = await self.client.chat.completions.create(
                model=errand.model, messages=messages, max_tokens=errand.max_tokens, stream=True,
                stream_options={"include_usage": True},
            )  # fmt: skip
            tokens = (0, 0)
            async for chunk in chunks:
                if chunk.usage is not None:
                    tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            return tokens
        async with self.client.messages.stream(
            model=errand.model, messages=messages, max_tokens=errand.max_tokens
        ) as stream:
            message = await stream.get_final_message()
        return message.usage.input_tokens, message.usage.output_tokens


def _p95(values_s: Sequence[float]) -> float:
    """Nearest rank; 0 if there is nothing to rank."""
    return sorted(values_s)[ceil(0.95 * len(values_s)) - 1] if values_s else 0.0


Way = Callable[[Caller, Sequence[str]], Awaitable[None]]


async def _all_at_once(caller: Caller, prompts: Sequence[str]) -> None:
    await asyncio.gather(*(caller.call(prompt) for prompt in prompts))


async def _headway(caller: Caller, prompts: Sequence[str]) -> None:
    caller.client = import_module("headway").pace(caller.client)
    await _all_at_once(caller, prompts)


def _fixed(width: int) -> Way:
    async def way(caller: Caller, prompts: Sequence[str]) -> None:
        gate = asyncio.Semaphore(width)

        async def one(prompt: str) -> None:
            async with gate:
                await caller.call(prompt)

        await asyncio.gather(*map(one, prompts))

    return way


def _waves(width: int) -> Way:
    async def way(caller: Caller, prompts: Sequence[str]) -> None:
        for start in range(0, len(prompts), width):
            await _all_at_once(caller, prompts[start : start + width])

    return way


def _needs(caller: Caller, prompt: str, is_refunded: bool = False) -> dict[str, float]:
    """What a client that knows the limits expects a call to be charged, by resource."""
    errand = caller.errand
    tokens_in = errand.inputs[errand.prompts.index(prompt)]
    is_most = errand.reserves or is_refunded
    tokens_out = errand.max_tokens if is_most else errand.output_tokens_mean
    every = {"requests": 1.0, "input": tokens_in, "output": tokens_out,
             "tokens": tokens_in + tokens_out}  # fmt: skip
    return {name: every[name] for name in errand.limits if name in every}


async def _aiolimiter(caller: Caller, prompts: Sequence[str]) -> None:
    make = import_module("aiolimiter").AsyncLimiter
    limits = caller.errand.limits
    limiters = {
        name: make(amount, caller.errand.period_s)
        for name, amount in limits.items()
        if name != "concurrency"
    }
    gate = asyncio.Semaphore(int(limits.get("concurrency", CONNECTIONS_MAX)))

    async def one(prompt: str) -> None:
        async with gate:
            for name, amount in _needs(caller, prompt).items():
                await limiters[name].acquire(amount)
            await caller.call(prompt)

    await asyncio.gather(*map(one, prompts))


async def _token_throttle(caller: Caller, prompts: Sequence[str]) -> None:
    peer = import_module("token_throttle")
    limits, model = caller.errand.limits, caller.errand.model
    quotas = [peer.Quota(metric=name, limit=amount, per_seconds=60)
              for name, amount in limits.items() if name != "concurrency"]  # fmt: skip
    config = peer.PerModelConfig(quotas=peer.UsageQuotas(quotas))
    gate = asyncio.Semaphore(int(limits.get("concurrency", CONNECTIONS_MAX)))
    limiter = peer.RateLimiter(config, backend=peer.MemoryBackendBuilder())

    async def one(prompt: str) -> None:
        async with gate:
            asked = _needs(caller, prompt, is_refunded=True)
            held = await limiter.acquire_capacity(asked, model=model)
            tokens = await caller.call(prompt) or (0, 0)
            used = {"requests": 1.0, "input": tokens[0], "output": tokens[1], "tokens": sum(tokens)}
            await limiter.refund_capacity({name: used[name] for name in asked}, held)

    await asyncio.gather(*map(one, prompts))
    await limiter.aclose()


class Aimd:
    """inspect_ai's controller: doubles until the first refusal, then up by 5 %, down by 20 %."""

    START: Final = 20
    LEAST: Final = 10
    MOST: Final = 100
    COOLDOWN_S: Final = 15.0
    ROUND_MIN: Final = 4
    SATURATION: Final = 0.8

    def __init__(self) -> None:
        self.width = self.START
        self.in_flight = 0
        self._most_in_flight = 0
        self._successes = 0
        self._was_refused = False
        self._cooled_s = 0.0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.in_flight < self.width)
            self.in_flight += 1
            self._most_in_flight = max(self._most_in_flight, self.in_flight)

    async def __aexit__(self, *_: object) -> None:
        async with self._changed:
            self.in_flight -= 1
            self._changed.notify_all()

    def succeeded(self) -> None:
        """A call was answered at its first attempt."""
        if monotonic() < self._cooled_s:
            return
        self._successes += 1
        if self._successes < max(self.width, self.ROUND_MIN):
            return
        is_saturated = self._most_in_flight >= self.SATURATION * self.width
        self._successes = self._most_in_flight = 0
        if is_saturated:
            step = max(1, round(0.05 * self.width)) if self._was_refused else self.width
            self.width = min(self.MOST, self.width + step)

    def refused(self) -> None:
        """A response was 429."""
        self._successes = self._most_in_flight = 0
        self._was_refused = True
        if monotonic() >= self._cooled_s:
            self._cooled_s = monotonic() + self.COOLDOWN_S
            self.width = max(self.LEAST, int(0.8 * self.width))


async def _aimd(caller: Caller, prompts: Sequence[str]) -> None:
    gate = Aimd()
    caller.on_refusal = gate.refused

    async def one(prompt: str) -> None:
        chance = random.Random(f"{caller.errand.seed} {prompt}")
        async with gate:
            for attempt in range(ATTEMPTS_MAX):
                if await caller.call(prompt) is not None:
                    if attempt == 0:
                        gate.succeeded()
                    return
                caller.outcome.failures.clear()
                # Its own schedule: exponential from 3 s, with jitter, in the place that it has.
                await asyncio.sleep(3.0 * 2.0**attempt + 3.0 * chance.random())
            caller.outcome.failures["gave up"] = caller.outcome.failures.get("gave up", 0) + 1

    await asyncio.gather(*map(one, prompts))


def way_of(name: str) -> Way:
    """The way that a name stands for."""
    plain: dict[str, Way] = {
        "headway": _headway,
        "sdk": _all_at_once,
        "aiolimiter": _aiolimiter,
        "token-throttle": _token_throttle,
        "aimd": _aimd,
    }
    kind, _, width = name.partition(":")
    if kind == "fixed":
        return _fixed(int(width))
    return _waves(int(width)) if kind == "waves" else plain[name]


async def run(errand: Errand) -> Outcome:
    """Send all calls of an errand."""
    caller = Caller(errand)
    caller.outcome.began_wall_s = time()
    caller.began_s = monotonic()
    await way_of(errand.way)(caller, errand.prompts)
    return await caller.finish()


def main() -> None:
    """Read an errand from standard input, print its outcome."""
    said = json.load(sys.stdin)
    outcome = asyncio.run(
        run(Errand(**said | {name: tuple(said[name]) for name in ("prompts", "inputs")}))
    )
    json.dump(as_dict(outcome), sys.stdout)


if __name__ == "__main__":
    main()
