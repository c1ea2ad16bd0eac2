"""Forwards requests to providers: connections, certificates, proxies.

Certificates are always verified, against the system's and those of `SSL_CERT_FILE` or
`SSL_CERT_DIR`; `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` are honoured.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from headway.gateway.values import Pairs

CONNECT_S_MAX: Final = 30.0
QUIET_S_MAX: Final = 600.0
"""The SDKs' own timeout of a call: an answer that shows nothing for longer has been given up."""

IDLE_S_MAX: Final = 15.0
"""Kept connections are closed before a provider does, so that no call meets one that is closing."""

HEADER_BYTES_MAX: Final = 65_536

LOST: Final = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
"""What sending or reading can fail with."""


def words_of(error: BaseException) -> str:
    """A failure of `LOST` in words, without the address that was called: keys may be in it."""
    said = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    if isinstance(error, aiohttp.InvalidURL):
        said = error.description or "not an address"
    return f"{type(error).__name__}: {said}"


def fields_of(pairs: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    """Headers for the HTTP library, in their sender's spelling and order."""
    return CIMultiDict(
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in pairs
    )


NOT_ADDED: Final = ("accept", "accept-encoding", "content-type", "user-agent")
"""What the HTTP library would add by itself."""


class Sender:
    """All connections to all providers, within one event loop."""

    __slots__ = ("_proxies", "_session", "_timeout")

    def __init__(self, quiet_s: float = QUIET_S_MAX) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_S_MAX, sock_read=quiet_s
        )
        self._proxies: dict[URL, URL | None] = {}

    async def send(
        self, method: str, url: str, headers: Pairs, body: bytes | None
    ) -> aiohttp.ClientResponse:
        """Send a request; returns when the headers of the response are here. Raises `LOST`."""
        session = self._session or self._open()
        address = URL(url, encoded=True)
        return await session.request(
            method,
            address,
            proxy=self._proxy(address),
            data=body,
            headers=fields_of(headers),
            skip_auto_headers=NOT_ADDED,
            allow_redirects=False,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _proxy(self, url: URL) -> URL | None:
        """The proxy to a provider, looked up once, and never the user's .netrc."""
        origin = url.origin()
        if origin not in self._proxies:
            self._proxies[origin] = _proxy_to(origin)
        return self._proxies[origin]

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=IDLE_S_MAX, ssl=ssl.create_default_context()
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )
        return self._session


def _proxy_to(origin: URL) -> URL | None:
    """The proxy of the environment. Raises InvalidURL, without quoting a password."""
    found, host = getproxies().get(origin.scheme), origin.raw_host or ""
    name = f"[{host}]" if ":" in host else host
    if not found or any(map(proxy_bypass, (host, name, f"{name}:{origin.port}"))):
        return None
    with suppress(ValueError):
        proxy = URL(found if "://" in found else f"http://{found}")
        if proxy.scheme in ("http", "https") and proxy.host:
            return proxy
    raise aiohttp.InvalidURL(
        f"the variable {origin.scheme}_proxy", "it is not the address of an HTTP proxy"
    )
