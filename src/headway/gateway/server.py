"""The gateway's HTTP server: listen, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct
from msgspec.structs import replace

from headway.base import process_tree as kin
from headway.base.folders import Folders
from headway.client.accounts import KnownDialects
from headway.client.exchange import Port
from headway.client.http_server import large_request, served_in_thread
from headway.errors import BadValueError
from headway.gateway import daemon
from headway.gateway import reply as hold
from headway.gateway.call import GatewayDependencies
from headway.gateway.counters import GatewayLedger, Sums
from headway.gateway.guard import Keyring
from headway.gateway.parked_calls import ParkedCalls
from headway.gateway.recording import Recorder, doubts_of
from headway.gateway.relay import Relay
from headway.gateway.replay import Tape
from headway.gateway.settings import PORT_DEFAULT, GatewaySettings
from headway.gateway.spending import Prices
from headway.gateway.upstream import Sender
from headway.gateway.values import Turned
from headway.interrupts import END_S

if TYPE_CHECKING:
    from headway.client.admission import Admission


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


class Gateway:
    """An endpoint that paces whatever is sent to it. Made and used within one event loop."""

    __slots__ = (
        "_is_closed", "_means", "_own", "_relay", "_runner", "_server", "_settings", "_tapes",
        "keys", "ledger", "port",
    )  # fmt: skip

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
            from headway.client.admission import Admission, dial_here, is_unpaced

            admission = self._own = Admission(dial_here, unpaced=is_unpaced())
        self._settings = settings
        self.keys = keys
        self.ledger = GatewayLedger(time.monotonic())
        self._means = GatewayDependencies(
            Sender(),
            admission,
            self.ledger,
            KnownDialects(),
            ParkedCalls(),
            settings.wait_s,
            settings.silent_s,
        )
        if settings.replay is not None:
            self._means.tape = Tape(settings.replay, _LOG.warning)
        if settings.record is not None:
            self._means.recorder = Recorder(settings.record, self._not_recorded, settings.home)
        self._relay = Relay(self._means, keys, settings.upstreams, prices)
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._is_closed = False
        self._tapes: list[Tape] = []
        """Those that are not searched any more."""
        self.port = settings.port

    @property
    def url(self) -> str:
        host = self._settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self, listening: socket.socket | None = None) -> None:
        """Listen, at a socket that is bound already if there is one; `port` is known then."""
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
        """Take no more calls, let those sent end, refuse those that wait. May be called again."""
        self._means.drain()
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()
            until_s = time.monotonic() + drain_s
            while self.in_flight and time.monotonic() < until_s:
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
        """Answer from now on also what was recorded since it began. From any thread."""
        if self._settings.record is not None:
            self._tapes += [] if self._means.tape is None else [self._means.tape]
            self._means.tape = Tape(self._settings.record)

    @property
    def notices(self) -> list[str]:
        """What was found at the ends of the recordings, for people to read."""
        found = (self._means.recorder, self._means.tape)
        return [one.notice for one in found if one is not None and one.notice]

    def _not_recorded(self, why: str) -> None:
        _LOG.warning("nothing more is recorded to %s: %s", self._settings.record, why)

    @property
    def connections(self) -> int:
        return 0 if self._server is None else len(self._server.connections)

    @property
    def in_flight(self) -> int:
        return self._means.in_flight

    @property
    def parked(self) -> int:
        """Places in line that are kept for clients that went away."""
        return len(self._means.places)


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
        headers, body = hold.refusal_of(None, turned)
        response = web.Response(status=status, headers=headers, body=body)
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)


def _quiet_log() -> logging.Logger:
    """The log of our own failures. Errors of requests are left out: they quote the bytes that
    were sent, and a token or a provider's key is among them."""
    log = logging.getLogger("headway.gateway")
    log.addFilter(_is_ours)
    return log


def _is_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, ConnectionError))


# Runs a gateway until a signal ends it, or for as long as one command lasts.

LINE_S: Final = 60.0
"""How often the log gets a line, if anything happened."""

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
NOT_STARTED: Final = (NOT_FOUND, NOT_EXECUTABLE)
SIGNALLED: Final = 128

PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

Result = TypeVar("Result")
Say = Callable[[str], None]


class Front(Struct, frozen=True):
    """How a gateway is run for a user."""

    settings: GatewaySettings
    place: Folders
    say: Say
    """Prints one line to stderr or the log."""
    drain_s: float
    is_port_asked: bool = False
    """Whether the user named the port: no other is taken."""


def run(main: Coroutine[None, None, Result]) -> Result:
    """Perform it in a loop of its own, on uvloop where there is one."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def serve(front: Front, announce: Callable[[daemon.RunningGateway], None]) -> None:
    """Be the user's gateway until a signal comes. Only within `daemon.claimed`."""
    keys = Keyring()
    token = daemon.kept_token(front.place)
    keys.issue("default", token=token)
    gateway = await _listening(front, keys)
    try:
        over = _signalled()
        upstreams = front.settings.upstreams
        running = daemon.RunningGateway(
            os.getpid(), gateway.url, token, time.time(),
            {name: f"{one.url}{one.version}" for name, one in upstreams.items()},
            tuple(name for name, one in upstreams.items() if one.key), front.drain_s,
        )  # fmt: skip
        daemon.publish(front.place, running)
        announce(running)
        for notice in doubts_of(front.settings.replay, front.settings.home):
            front.say(notice)
        telling = asyncio.create_task(_tell(gateway.ledger, front.say))
        await over.get()
        telling.cancel()
        await _drain(gateway, front, over)
    finally:
        await gateway.stop(0.0)
        for notice in gateway.notices:
            front.say(notice)


async def accompany(
    front: Front, command: Sequence[str], variables: Callable[[str, str], Mapping[str, str]]
) -> int:
    """Run a command under a gateway of its own; `variables` makes its environment."""
    keys = Keyring()
    key = keys.issue("default")
    gateway = Gateway(front.settings, keys)
    await gateway.start()
    for notice in doubts_of(front.settings.replay, front.settings.home):
        front.say(notice)
    try:
        code = await perform(command, variables(gateway.url, key.token))
        await gateway.stop(0.0)
        if code not in NOT_STARTED:
            front.say(last_line(command[0], gateway.ledger.came))
        return code
    finally:
        await gateway.stop(0.0)
        for notice in gateway.notices:
            front.say(notice)


def last_line(program: str, total: Sums | None) -> str:
    """What came by while a program ran; a warning if no call did."""
    if total is None:
        return (
            f"WARNING: no call came by the gateway while {program} ran; if it called a model, it "
            "was not paced. Give its client the base URL that `headway gateway env` shows"
        )
    read = total.input_tokens + total.cache_read_tokens
    parts = [
        f"{total.calls:,} call{'s' * (total.calls != 1)}",
        f"{total.held:,} held",
        f"{total.refusals_absorbed:,} absorbed",
        f"{read:,.0f} tokens in, {total.output_tokens:,.0f} out",
    ]
    parts += [f"{total.replayed:,} replayed"] * bool(total.replayed)
    parts += [f"{total.failed:,} failed"] * bool(total.failed)
    return ", ".join(parts)


async def perform(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command to its end with these variables; its exit code."""
    loop = asyncio.get_running_loop()
    children: list[asyncio.subprocess.Process] = []
    passed: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        if number in ENDING or (number == signal.SIGINT and number in passed):
            loop.call_later(END_S, kill)
        passed.append(number)
        for child in children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    def interrupted() -> None:
        # A terminal interrupts all that it runs, this process and the command alike.
        if not _is_at_terminal():
            pass_on(signal.SIGINT)

    def kill() -> None:
        for child in children:
            if child.returncode is None:
                kin.send(0, kin.family(child.pid), signal.SIGKILL)
                with suppress(ProcessLookupError):
                    child.kill()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    for number in PASSED_ON:
        loop.add_signal_handler(number, pass_on, number)
    try:
        children.append(await asyncio.create_subprocess_exec(*command, env=dict(environ)))
        code = await children[0].wait()
    except FileNotFoundError:
        return _cannot(command[0], "not found", NOT_FOUND)
    except OSError as fault:
        return _cannot(command[0], str(fault.strerror), NOT_EXECUTABLE)
    finally:
        for number in (signal.SIGINT, *PASSED_ON):
            loop.remove_signal_handler(number)
    return code if code >= 0 else SIGNALLED - code


def _cannot(name: str, why: str, code: int) -> int:
    print(f"headway gateway: {name}: {why}", file=sys.stderr)
    return code


async def _listening(front: Front, keys: Keyring) -> Gateway:
    """A gateway at its default port; at any other if that is taken and the user named none."""
    gateway = Gateway(front.settings, keys)
    try:
        await gateway.start()
    except BadValueError:
        await gateway.stop(0.0)
        if front.is_port_asked or front.settings.port != PORT_DEFAULT:
            raise
        front.say(
            f"port {PORT_DEFAULT} is taken by another program: listening at any other; addresses "
            "that were given out lead to that program until this gateway has its port again"
        )
        gateway = Gateway(replace(front.settings, port=0), keys)
        await gateway.start()
    return gateway


def _signalled() -> asyncio.Queue[int]:
    asked: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, asked.put_nowait, int(number))
    return asked


async def _drain(gateway: Gateway, front: Front, over: asyncio.Queue[int]) -> None:
    in_flight = gateway.ledger.in_flight
    if in_flight:
        front.say(
            f"draining {in_flight} calls in flight for up to {front.drain_s:g} s; "
            "a second signal ends them now"
        )
    stopping = asyncio.create_task(gateway.stop(front.drain_s))
    again = asyncio.create_task(over.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if not stopping.done():
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping


async def _tell(ledger: GatewayLedger, say: Say) -> None:
    """A line for each minute in which something happened."""
    before = ledger.counts()
    while True:
        await asyncio.sleep(LINE_S)
        now = ledger.counts()
        line = minute_line(before, now, ledger)
        if line:
            say(line)
        before = now


def minute_line(before: Mapping[str, int], now: Mapping[str, int], ledger: GatewayLedger) -> str:
    """What a minute brought; nothing if it brought nothing."""
    fresh = {name: now[name] - before.get(name, 0) for name in now}
    if not any(fresh.values()) and not ledger.held and not ledger.in_flight:
        return ""
    parts = [f"{fresh.pop('calls', 0)} calls ended", f"{ledger.in_flight} in flight",
             f"{ledger.held} held"]  # fmt: skip
    parts += [f"{count} {name}" for name, count in fresh.items() if count]
    return ", ".join(parts)


def _is_at_terminal() -> bool:
    """Whether the terminal's interrupts reach this process and its children by themselves."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
