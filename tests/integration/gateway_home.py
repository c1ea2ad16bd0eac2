"""A gateway in front of a simulated provider, for tests: its own admission, nothing shared."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
from google import genai
from google.genai import types
from msgspec import Struct, field

from headway.client.admission import AdmissionPort
from headway.client.connection import dial_alone
from headway.client.exchange import Heard, HeldPermit, Port
from headway.gateway.guard import Keyring
from headway.gateway.server import Gateway, serving
from headway.gateway.settings import GatewaySettings
from headway.gateway.values import GatewayKey, Upstream
from headway.pacing.call import Request
from headway.sim.provider import ProviderSpec
from headway.sim.server import ServeOptions
from headway.sim.server import serving as provider

NAMES = ("anthropic", "openai", "gemini")


class Bases(Struct, frozen=True):
    """Where SDKs are pointed at."""

    anthropic: str
    openai: str
    gemini: str


class GatewayHome(Struct, frozen=True):
    """A gateway, its key and the provider behind it."""

    gateway: Gateway
    key: GatewayKey
    upstream: str

    @property
    def base(self) -> str:
        return f"{self.gateway.url}/{self.key.token}"

    @property
    def bases(self) -> Bases:
        return Bases(f"{self.base}/anthropic", f"{self.base}/openai/v1", f"{self.base}/gemini")

    def stop(self, drain_s: float) -> Future[None]:
        """Let the gateway drain, on its own loop."""
        assert self.gateway._server is not None
        loop = self.gateway._server._loop
        return asyncio.run_coroutine_threadsafe(self.gateway.stop(drain_s), loop)


def direct(url: str) -> Bases:
    return Bases(url, f"{url}/v1", url)


@contextmanager
def gateway_to(
    url: str,
    admission: Port | None = None,
    **more: Any,
) -> Iterator[GatewayHome]:
    """A gateway to whatever listens there."""
    keys = Keyring()
    key = keys.issue("default")
    upstreams = {name: Upstream(name, url) for name in NAMES}
    settings = GatewaySettings(upstreams, **more)
    with serving(settings, keys, admission or AdmissionPort(dial_alone)) as gateway:
        yield GatewayHome(gateway, key, url)


@contextmanager
def gateway_and_provider(
    spec: ProviderSpec, options: ServeOptions = ServeOptions()
) -> Iterator[GatewayHome]:
    with provider(spec, options) as url, gateway_to(url) as home:
        yield home


def asked(text: str) -> Any:
    return [{"role": "user", "content": text}]


def claude(bases: Bases, key: str = "k", **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key=key, base_url=bases.anthropic, max_retries=0, _strict_response_validation=True,
        **more,
    )  # fmt: skip


def gpt(bases: Bases, key: str = "k", **more: Any) -> openai.OpenAI:
    return openai.OpenAI(
        api_key=key, base_url=bases.openai, max_retries=0, _strict_response_validation=True, **more
    )


def gemini(bases: Bases, timeout_ms: int | None = None) -> genai.Client:
    options = types.HttpOptions(base_url=bases.gemini, timeout=timeout_ms)
    return genai.Client(api_key="k", http_options=options)


def body(text: str, *, stream: bool = False) -> bytes:
    told = {"model": "echo", "max_tokens": 50, "messages": asked(text), "stream": stream}
    return json.dumps(told).encode()


def post(base: str, sent: bytes, *more: str) -> socket.socket:
    """A request on a connection of its own."""
    parts = urlsplit(base)
    line = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)
    fields = ("content-type: application/json", "x-api-key: k", *more)
    head = (
        f"POST {parts.path}/anthropic/v1/messages HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        f"content-length: {len(sent)}\r\n" + "".join(f"{one}\r\n" for one in fields) + "\r\n"
    )
    line.sendall(head.encode() + sent)
    return line


class Holdup(Struct):
    """Admits as another port does, but the first call of every flow only after a while."""

    inner: Port
    stream_s: float
    whole_s: float
    """How long a call waits whose answer does not stream."""
    flows: set[tuple[str, ...]] = field(default_factory=set)
    asked: int = 0

    def admit(
        self, request: Request, deadline_s: float | None, heard: Heard | None = None
    ) -> HeldPermit:
        raise NotImplementedError("a gateway waits without a thread")

    async def admit_async(
        self, request: Request, deadline_s: float | None, heard: Heard | None = None
    ) -> HeldPermit:
        self.asked += 1
        if request.path not in self.flows:
            self.flows.add(request.path)
            await asyncio.sleep(self.whole_s if request.sketch.is_whole else self.stream_s)
        return await self.inner.admit_async(request, deadline_s, heard)
