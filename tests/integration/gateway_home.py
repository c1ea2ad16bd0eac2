"""A gateway in front of a simulated provider, for tests: its own admission, nothing shared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from headway.client.admission import Admission, dial_alone
from headway.client.exchange import Port
from headway.gateway.guard import Keyring
from headway.gateway.server import Gateway, serving
from headway.gateway.settings import GatewaySettings
from headway.gateway.values import GatewayKey, Upstream
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
    with serving(settings, keys, admission or Admission(dial_alone)) as gateway:
        yield GatewayHome(gateway, key, url)


@contextmanager
def gateway_and_provider(
    spec: ProviderSpec, options: ServeOptions = ServeOptions()
) -> Iterator[GatewayHome]:
    with provider(spec, options) as url, gateway_to(url) as home:
        yield home
