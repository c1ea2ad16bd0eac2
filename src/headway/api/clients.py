"""`pace`: returns your SDK client with every call paced."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, Final, TypeVar

import httpx2

from headway.client.exchange import WAIT_VARIABLE, Pacing, Port
from headway.client.transport import AsyncPacedTransport, PacedTransport
from headway.errors import BadValueError, UsageError

Client = TypeVar("Client")
_Transport = httpx2.BaseTransport | httpx2.AsyncBaseTransport

ACCEPTED: Final = (
    "a google-genai, openai or anthropic client (synchronous or not), a pydantic-ai agent, model "
    "or provider, or an httpx2 or httpx client"
)

STEPS: Final = ("_api_client", "wrapped", "models", "model", "_provider", "client", "_client")
"""Where agents, models, providers and SDK clients keep what leads to their HTTP client."""

STEPS_MAX: Final = 12
"""An agent, wrappers around its model, its provider, an SDK client, an HTTP client."""


def pace(
    client: Client,
    *,
    wait_s: float | None = None,
    path: tuple[str, ...] = (),
    unpaced: bool = False,
    interactive: bool = False,
    admission: Port | None = None,
) -> Client:
    """The same client, now paced: each call is sent the moment that the account's limits allow.

    Its HTTP client is changed in place: connections, proxies, timeouts and hooks stay, and so do
    copies that share it (`client.with_options(...)`). Pacing it again changes how it is paced.

    `wait_s` is how long a call may wait for its turn (default: `HEADWAY_WAIT`, or as long as it
    takes); then the SDK raises its own `RateLimitError`. `path` names the flow that the calls
    belong to, for fairness. `unpaced` sends calls all the same when no broker can be reached.
    `interactive`: a person waits for the answers, so these calls go before those of runs.
    `admission` is who admits, if not this process's own port.
    """
    waits_s = _wait_of_environment() if wait_s is None else _checked(wait_s, "wait_s")
    pacing = Pacing(waits_s, tuple(path), unpaced, admission, is_interactive=interactive)
    http_clients = list(_http_clients(client, pacing, STEPS_MAX))
    if not http_clients:
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        raise UsageError(f"`pace` cannot pace a {kind}", hint=f"give it {ACCEPTED}")
    for http_client in http_clients:
        _wrap(http_client, pacing)
    return client


class _PacedFactory:
    """Makes HTTP clients that are paced: pydantic-ai takes a new one for every event loop."""

    def __init__(self, factory: Callable[[], Any], pacing: Pacing) -> None:
        self.factory = factory
        self.pacing = pacing

    def __call__(self) -> Any:
        client = self.factory()
        _wrap(client, self.pacing)
        return client


def _http_clients(thing: Any, pacing: Pacing, steps: int) -> Iterator[Any]:
    """The HTTP clients that `thing` leads to; factories of more, met on the way, are paced."""
    if _kind_for(thing) is not None:
        yield thing
    elif getattr(thing, "_async_httpx_client", None) is not None:
        yield from _of_google(thing)
    elif steps > 0 and thing is not None and not isinstance(thing, (str, type)):
        if (factory := getattr(thing, "_http_client_factory", None)) is not None:
            own = factory.factory if isinstance(factory, _PacedFactory) else factory
            thing._http_client_factory = _PacedFactory(own, pacing)
        for name in STEPS:
            step = getattr(thing, name, None)
            found = [
                http_client
                for each in (step if isinstance(step, list) else [step])
                for http_client in _http_clients(each, pacing, steps - 1)
            ]
            if found:
                yield from found
                return


def _of_google(client: Any) -> Iterator[Any]:
    """Both HTTP clients of a google-genai client; asynchronous calls no longer use aiohttp."""
    if client._httpx_client is not None:
        yield client._httpx_client
    if client._async_httpx_client is not None:
        options, chosen = client._http_options, client._async_httpx_client._transport
        options.async_client_args = {**(options.async_client_args or {}), "transport": chosen}
        yield client._async_httpx_client


def _wrap(client: Any, pacing: Pacing) -> None:
    """Pace every transport of an HTTP client, those of its proxies as well."""
    kind = _kind_for(client)
    if kind is None:
        raise UsageError(f"`pace` met a {type(client).__name__} as HTTP client", hint=ACCEPTED)

    def paced(transport: _Transport) -> _Transport:
        if isinstance(transport, (PacedTransport, AsyncPacedTransport)):
            transport = transport.inner
        # Whether it is synchronous follows from the client, for both transports.
        return kind(transport, pacing)

    client._transport = paced(client._transport)
    for pattern, transport in client._mounts.items():
        if transport is not None:
            client._mounts[pattern] = paced(transport)


def _kind_for(client: object) -> type[PacedTransport] | type[AsyncPacedTransport] | None:
    """The transport that paces this HTTP client; `None` if it is not one."""
    if isinstance(client, httpx2.Client):
        return PacedTransport
    if isinstance(client, httpx2.AsyncClient):
        return AsyncPacedTransport
    httpx = sys.modules.get("httpx")
    if httpx is None or not isinstance(client, (httpx.Client, httpx.AsyncClient)):
        return None
    from headway.client.httpx_transport import AsyncLegacyTransport, LegacyTransport

    return LegacyTransport if isinstance(client, httpx.Client) else AsyncLegacyTransport


def _wait_of_environment() -> float | None:
    text = os.environ.get(WAIT_VARIABLE, "")
    if not text:
        return None
    try:
        wait_s = float(text)
    except ValueError:
        raise BadValueError(
            f"{WAIT_VARIABLE} is {text!r}, which is not a number of seconds",
            hint=f"set {WAIT_VARIABLE}=600",
        ) from None
    return _checked(wait_s, WAIT_VARIABLE)


def _checked(wait_s: float, name: str) -> float | None:
    """Seconds to wait; infinity is as long as it takes."""
    if not wait_s >= 0:
        raise BadValueError(f"{name} is {wait_s}, but a wait is at least 0 seconds")
    return wait_s if isfinite(wait_s) else None
