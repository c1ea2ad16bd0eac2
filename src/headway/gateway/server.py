"""The gateway as a server on this machine: it listens, drains and stops."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from headway.errors import BadValueError
from headway.gateway import hold
from headway.gateway.call import Means
from headway.gateway.keys import Keyring
from headway.gateway.ledger import Ledger
from headway.gateway.places import Places
from headway.gateway.recording import Recorder
from headway.gateway.relay import Relay
from headway.gateway.settings import GatewaySettings
from headway.gateway.spending import Prices
from headway.gateway.tape import Tape
from headway.gateway.upstream import Sender
from headway.gateway.values import Turned
from headway.runtime.accounts import Voices
from headway.runtime.exchange import Port
from headway.runtime.hosting import large_request, served_in_thread

if TYPE_CHECKING:
    from headway.runtime.admission import Admission

_LOG: Final = logging.getLogger("headway")

BACKLOG: Final = 4096
"""Connections that may wait to be taken up: thousands of agents start at once."""

HEAD_BYTES_MAX: Final = 65_536
IDLE_S_MAX: Final = 75.0
"""How long a connection may stay open between two requests, or before its first."""

LINGER_S: Final = 2.0
"""How long the rest of a request that was refused is read, so that its client reads why."""

_UNREADABLE: Final = Turned(
    400, "request", "the first line, a header or the body of the request is not valid HTTP/1.1"
)
_FAILED: Final = Turned(500, "internal", "the gateway failed on this request", "see its log")

LOOK_S: Final = 0.05
"""How often a gateway that drains looks whether its calls are over."""


@dataclass(frozen=True, slots=True)
class GatewayStatistics:
    """A gateway at an instant."""

    connections: int
    in_flight: int
    kept_places: int


class Gateway:
    """An endpoint that paces whatever is sent to it. Made and used within one event loop."""

    __slots__ = (
        "_is_closed",
        "_loop",
        "_means",
        "_own",
        "_relay",
        "_runner",
        "_server",
        "_settings",
        "_tapes",
        "keys",
        "ledger",
        "port",
    )

    def __init__(
        self,
        settings: GatewaySettings,
        keys: Keyring,
        *,
        admission: Port | None = None,
        prices: Prices | None = None,
    ) -> None:
        """`admission` admits calls; `None` is the broker, over a line of the gateway's own."""
        self._own: Admission | None = None
        if admission is None:
            from headway.runtime.admission import Admission, is_unpaced
            from headway.runtime.loopline import dial_here

            admission = self._own = Admission(dial_here, unpaced=is_unpaced())
        self._settings = settings
        self.keys = keys
        self.ledger = Ledger(time.monotonic())
        self._means = Means(
            Sender(), admission, self.ledger, Voices(), Places(), settings.wait_s, settings.silent_s
        )
        if settings.replay is not None:
            self._means.tape = Tape(settings.replay, _LOG.warning)
        if settings.record is not None:
            self._means.recorder = Recorder(settings.record, self._not_recorded, settings.home)
        self._relay = Relay(self._means, keys, settings.upstreams, prices)
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._tapes: list[Tape] = []
        """Those that are not looked into any more."""
        self.port = settings.port

    def __repr__(self) -> str:
        return f"<Gateway at {self.url}>"

    @property
    def url(self) -> str:
        """Where it listens, without a token."""
        host = self._settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self, listening: socket.socket | None = None) -> None:
        """Listen, at a socket that is bound already if there is one. The port is known then."""
        self._loop = asyncio.get_running_loop()
        self._server = _Server(
            self._relay.handle,
            request_factory=large_request,
            handler_cancellation=True,
            access_log=None,
            logger=_quiet_log(),
            auto_decompress=False,
            keepalive_timeout=IDLE_S_MAX,
            lingering_time=LINGER_S,
            max_line_size=HEAD_BYTES_MAX,
            max_field_size=HEAD_BYTES_MAX,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await self._runner.setup()
        site: web.BaseSite
        if listening is not None:
            site = web.SockSite(self._runner, listening, backlog=BACKLOG)
            self.port = listening.getsockname()[1]
        else:
            site = web.TCPSite(
                self._runner, self._settings.host, self._settings.port, backlog=BACKLOG
            )
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise BadValueError(
                f"cannot listen on {self._settings.host}:{self._settings.port}: {error.strerror}",
                hint="another port may be free: `--port 0` takes one",
            ) from error
        if isinstance(site, web.TCPSite):
            self.port = site.port
        self._relay.listens_at(self.port)

    async def stop(self, drain_s: float = 0.0) -> None:
        """Take no more calls, let those that were sent end, tell those that wait to come again.

        Again does no harm: one that is cancelled while calls end can be followed by one that cuts.
        """
        self._means.drain()
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()
            until_s = time.monotonic() + drain_s
            while self.statistics().in_flight and time.monotonic() < until_s:
                await asyncio.sleep(LOOK_S)
            await self._runner.cleanup()
        await self._means.sender.close()
        if self._is_closed:
            return
        self._is_closed = True
        if self._means.recorder is not None:
            await asyncio.to_thread(self._means.recorder.close)
        for tape in (*self._tapes, self._means.tape):
            if tape is not None:
                tape.close()
        if self._own is not None:
            self._own.close()

    def rewind(self) -> None:
        """Answer from now on also what was recorded since it began. From any thread; whoever is
        being answered from the recording right now is sent on."""
        if self._settings.record is not None:
            self._tapes += [] if self._means.tape is None else [self._means.tape]
            self._means.tape = Tape(self._settings.record)

    @property
    def notices(self) -> list[str]:
        """What was found at the ends of the recordings, for people to read."""
        recorder, tape = self._means.recorder, self._means.tape
        found = [] if recorder is None else [recorder.notice]
        found += [] if tape is None else [tape.notice]
        return [notice for notice in found if notice]

    def _not_recorded(self, why: str) -> None:
        _LOG.warning("nothing more is recorded to %s: %s", self._settings.record, why)

    def statistics(self) -> GatewayStatistics:
        server = self._server
        return GatewayStatistics(
            0 if server is None else len(server.connections),
            self._means.in_flight,
            self._means.places.statistics().kept,
        )


@contextmanager
def serving(
    settings: GatewaySettings, keys: Keyring, admission: Port | None = None
) -> Iterator[Gateway]:
    """Serve from a thread of this process for as long as the block lasts."""
    with served_in_thread(
        lambda: Gateway(settings, keys, admission=admission), "headway-gateway"
    ) as gateway:
        yield gateway


class _Handler(RequestHandler):
    """One connection. What the HTTP library refuses is answered without quoting the request."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (it quotes the request)
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc)
        turned = _FAILED if status >= 500 else replace(_UNREADABLE, status=status)
        headers, body = hold.turned(None, turned)
        response = web.Response(status=status, headers=headers, body=body)
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)


def _quiet_log() -> logging.Logger:
    """Where failures of ours are told. What was wrong with a request is not: it quotes the bytes
    that were sent, and a token or a provider's key is among them."""
    log = logging.getLogger("headway.gateway")
    log.addFilter(_is_ours)
    return log


def _is_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, ConnectionError))
