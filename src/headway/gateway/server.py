"""The gateway's HTTP server: listen, route requests, drain, stop.

Laws:
- Nothing is read of a request that the door does not let in.
- What no model answers (models, files, counting) passes at once, and counts towards nothing.
- A call whose body cannot be read as one passes too: the provider will say what is wrong with it.
  But not where the gateway adds its own key, or the call counts towards a budget.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from msgspec.structs import replace

from headway.agents.gate import Fatal
from headway.agents.metering import PriceLookup
from headway.base import process_tree as kin
from headway.base.folders import Folders
from headway.client.accounts import host_name
from headway.client.exchange import Port
from headway.client.http_server import ask_for_body, large_request, served_in_thread
from headway.errors import BadValueError, WireError
from headway.gateway import background, guard
from headway.gateway.call import LOST, Admitting, GatewayCall, ParkedCalls, Sender, words_of
from headway.gateway.counters import GatewayLedger, Sums
from headway.gateway.guard import Keyring
from headway.gateway.recording import Recorder, doubts_of
from headway.gateway.replay import Tape
from headway.gateway.reply import fields_of, refusal_of, write_reply
from headway.gateway.settings import GatewaySettings
from headway.gateway.values import Passed, Turned, Upstream
from headway.interrupts import END_S
from headway.journal.file import CALL
from headway.journal.journal import Journal
from headway.wire.read import sketch
from headway.wire.values import Route, WireName

if TYPE_CHECKING:
    from headway.client.admission import AdmissionPort


_LOG: Final = logging.getLogger("headway")

BACKLOG: Final = 4096
"""Connections that may wait to be taken up: thousands of agents start at once."""
HEAD_BYTES_MAX: Final = 65_536
IDLE_S_MAX: Final = 75.0
"""How long a connection may stay open between two requests, or before its first."""
BODY_S_MAX: Final = 60.0
"""How long a client may take to send the body of a request."""
LINGER_S: Final = 2.0
"""How long the rest of a request that was refused is read, so that its client reads why."""
LOOK_S: Final = 0.05
"""How often a gateway that drains looks whether its calls are over."""
MODEL_CHARS_MAX: Final = 1024
"""The longest names are those of Google's tuned endpoints and AWS's ARNs, below 300."""
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

_UNREADABLE: Final = Turned(
    400, "request", "the first line, a header or the body of the request is not valid HTTP/1.1"
)
_FAILED: Final = Turned(500, "internal", "the gateway failed on this request", "see its log")


class Gateway:
    """An endpoint that paces whatever is sent to it. Made and used within one event loop."""

    def __init__(
        self, settings: GatewaySettings, keys: Keyring, *, admission: Port | None = None,
        prices: PriceLookup | None = None, journal: Journal | None = None,
    ) -> None:  # fmt: skip
        """`admission` admits calls; `None` is the broker, over a line of the gateway's own. Calls
        are recorded in the `journal` of a run, or in a file that the settings name."""
        self._own: AdmissionPort | None = None
        if admission is None:
            from headway.client.admission import AdmissionPort

            admission = self._own = AdmissionPort()
        self.settings = settings
        self.keys = keys
        self.admission = admission
        self.prices = PriceLookup() if prices is None else prices
        self.ledger = GatewayLedger(time.monotonic())
        self.sender = Sender()
        self.places = ParkedCalls()
        self.waiting: set[Admitting] = set()
        self.in_flight = 0
        self.is_draining = False
        self.fatal = Fatal()
        """Of the calls of tasks: what is answered with the same fault again and again."""
        self.hosts = {name: _host(one.url) for name, one in settings.upstreams.items()}
        self.tape: Tape | None = None
        self.recorder: Recorder | None = None
        self._journal = journal
        if settings.replay is not None:
            self.tape = Tape(settings.replay, _LOG.warning)
        elif journal is not None and journal.reader.document(CALL) is not None:
            self.tape = Tape(journal.reader, _LOG.warning)
        record = settings.record or journal
        if record is not None:
            ended = partial(_LOG.warning, "nothing more is recorded to %s: %s", settings.record)
            self.recorder = Recorder(record, ended, settings.home)
        self.port = settings.port
        self._own_hosts: frozenset[str] = frozenset()
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._is_closed = False
        self._tapes: list[Tape] = []

    @property
    def url(self) -> str:
        host = self.settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self, listening: socket.socket | None = None) -> None:
        """Listen, at a socket that is bound already if there is one; `port` is known then."""
        self._server = _Server(
            self.handle, request_factory=large_request, handler_cancellation=True, access_log=None,
            logger=_quiet_log(), auto_decompress=False, keepalive_timeout=IDLE_S_MAX,
            lingering_time=LINGER_S, max_line_size=HEAD_BYTES_MAX, max_field_size=HEAD_BYTES_MAX,
        )  # fmt: skip
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await self._runner.setup()
        site: web.BaseSite
        if listening is not None:
            site = web.SockSite(self._runner, listening, backlog=BACKLOG)
            self.port = listening.getsockname()[1]
        else:
            site = web.TCPSite(
                self._runner, self.settings.host, self.settings.port, backlog=BACKLOG
            )
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise BadValueError(
                f"cannot listen on {self.settings.host}:{self.settings.port}: {error.strerror}",
                hint="another port may be free: `--port 0` takes one",
            ) from error
        if isinstance(site, web.TCPSite):
            self.port = site.port
        self._own_hosts = guard.hosts_of(self.port)

    async def stop(self, drain_s: float = 0.0) -> None:
        """Take no more calls, let those sent end, refuse those that wait. May be called again."""
        self.is_draining = True
        self.places.clear()
        for admitting in list(self.waiting):
            admitting.cancel()
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()
            until_s = time.monotonic() + drain_s
            while self.in_flight and time.monotonic() < until_s:
                await asyncio.sleep(LOOK_S)
            await self._runner.cleanup()
        await self.sender.close()
        if self._is_closed:
            return
        self._is_closed = True
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)
        for tape in (*self._tapes, self.tape):
            if tape is not None:
                tape.close()
        if self._own is not None:
            self._own.close()

    def rewind(self) -> None:
        """Answer from now on also what was recorded since it began. In the loop."""
        recorded = self.settings.record if self._journal is None else self._journal.reader
        if recorded is not None:
            self._tapes += [] if self.tape is None else [self.tape]
            self.tape = Tape(recorded)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        message = request._message
        passed = guard.examine(
            message.method, message.path, message.raw_headers, self.keys, self.settings.upstreams,
            self._own_hosts,
        )  # fmt: skip
        if isinstance(passed, Turned):
            return self.refused(None, passed)
        upstream, route = passed.upstream, passed.route
        if upstream is None:
            return self._page(passed)
        wire = None if route is None else route.wire
        await ask_for_body(request)
        try:
            async with asyncio.timeout(BODY_S_MAX):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return self.refused(wire, guard.TOO_LARGE)
        except TimeoutError:
            slow = f"the body of the request did not come within {BODY_S_MAX:g} s"
            return self.refused(wire, Turned(408, "slow", slow))
        if route is not None and route.purpose == "generate":
            call = self._read_call(request, passed, upstream, route, body)
            if isinstance(call, Turned):
                return self.refused(wire, call)
            if call is not None:
                return await call.answer()
        return await self._pass(request, passed, upstream, body)

    def _read_call(
        self, request: web.BaseRequest, passed: Passed, upstream: Upstream, route: Route,
        body: bytes,
    ) -> GatewayCall | Turned | None:  # fmt: skip
        """The call that a body asks for; `None` if it asks for nothing that can be understood."""
        plain = guard.unpacked(body, request._message.raw_headers)
        if isinstance(plain, Turned):
            return plain
        try:
            seen = sketch(route, plain)
        except WireError as error:
            if upstream.key or passed.key.payer is not None:
                return Turned(400, "body", error.message, error.hint or "")
            return None
        if len(seen.model) > MODEL_CHARS_MAX:
            most = f"the name of a model has at most {MODEL_CHARS_MAX} characters"
            return Turned(400, "model", f"{most}, not {len(seen.model):,}")
        return GatewayCall(self, request, passed, upstream, route.wire, body, plain, seen)

    async def _pass(
        self, request: web.BaseRequest, passed: Passed, upstream: Upstream, body: bytes
    ) -> web.StreamResponse:
        wire = None if passed.route is None else passed.route.wire
        headers = tuple(guard.onward(request._message.raw_headers, upstream, wire))
        url = upstream.url + passed.path
        try:
            response = await self.sender.send(request.method, url, headers, body or None)
        except LOST as error:
            why = f"{upstream.url} cannot be reached: {words_of(error)}"
            return self.refused(wire, Turned(502, "upstream", why))
        try:
            self.ledger.passed(upstream.name, response.status)
            out = web.StreamResponse(
                status=response.status,
                reason=response.reason,
                headers=fields_of(guard.homeward(response.raw_headers)),
            )
            await out.prepare(request)
            while data := await response.content.readany():
                await write_reply(request, out, data)
        except LOST:
            # Half a response must not be taken for a whole one.
            if request.transport is not None:
                request.transport.abort()
        finally:
            response.close()
        return out

    def refused(self, wire: WireName | None, turned: Turned) -> web.Response:
        self.ledger.turned(turned)
        headers, body = refusal_of(wire, turned)
        return web.Response(status=turned.status, headers=headers, body=body)

    def _page(self, passed: Passed) -> web.Response:
        now = time.monotonic()
        if passed.path == "/metrics":
            text = self.ledger.metrics(now)
            return web.Response(body=text.encode(), headers={"content-type": METRICS})
        found = json.dumps(self.ledger.status(now), indent=2) + "\n"
        return web.Response(body=found.encode(), content_type="application/json")


def _host(url: str) -> str:
    """As the process of an SDK names it, so that all share one account."""
    parts = urlsplit(url)
    return host_name(parts.scheme, parts.hostname or "", parts.port)


@contextmanager
def serving(
    settings: GatewaySettings, keys: Keyring, admission: Port | None = None
) -> Iterator[Gateway]:
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
        headers, body = refusal_of(None, turned)
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


def run(main: Coroutine[None, None, Result]) -> Result:
    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def serve(
    settings: GatewaySettings,
    place: Folders,
    say: Say,
    announce: Callable[[background.RunningGateway], None],
) -> None:
    """Be the user's gateway until a signal comes. Only within `background.claimed`."""
    keys = Keyring()
    token = background.kept_token(place)
    keys.issue("default", token=token)
    gateway = await _listening(settings, keys, say)
    try:
        over = _signalled()
        upstreams = settings.upstreams
        running = background.RunningGateway(
            os.getpid(), gateway.url, token,
            {name: f"{one.url}{one.version}" for name, one in upstreams.items()},
            tuple(name for name, one in upstreams.items() if one.key), settings.drain_s,
        )  # fmt: skip
        background.publish(place, running)
        announce(running)
        with _notices(gateway, say):
            telling = asyncio.create_task(_tell(gateway.ledger, say))
            await over.get()
            telling.cancel()
            await _drain(gateway, say, over)
    finally:
        await gateway.stop()


async def accompany(
    settings: GatewaySettings,
    say: Say,
    command: Sequence[str],
    variables: Callable[[str, str], Mapping[str, str]],
) -> int:
    """Run a command under a gateway of its own; `variables` makes its environment."""
    keys = Keyring()
    key = keys.issue("default", is_interactive=settings.is_interactive)
    gateway = Gateway(settings, keys)
    await gateway.start()
    with _notices(gateway, say):
        try:
            code = await perform(command, variables(gateway.url, key.token))
        finally:
            await gateway.stop()
        if code not in NOT_STARTED:
            say(last_line(command[0], gateway.ledger.came))
        return code


@contextmanager
def _notices(gateway: Gateway, say: Say) -> Iterator[None]:
    """Before and after: what is to be known of the recordings."""
    for doubt in doubts_of(gateway.settings.replay, gateway.settings.home):
        say(doubt)
    try:
        yield
    finally:
        for recording in (gateway.recorder, gateway.tape):
            if recording is not None and recording.notice:
                say(recording.notice)


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


async def _listening(settings: GatewaySettings, keys: Keyring, say: Say) -> Gateway:
    """A gateway at its port; at any other if that is taken and the user named none."""
    gateway = Gateway(settings, keys)
    try:
        await gateway.start()
    except BadValueError:
        await gateway.stop()
        if settings.is_port_fixed:
            raise
        say(
            f"port {settings.port} is taken by another program: listening at any other; addresses "
            "that were given out lead to that program until this gateway has its port again"
        )
        gateway = Gateway(replace(settings, port=0), keys)
        await gateway.start()
    return gateway


def _signalled() -> asyncio.Queue[int]:
    asked: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, asked.put_nowait, int(number))
    return asked


async def _drain(gateway: Gateway, say: Say, over: asyncio.Queue[int]) -> None:
    in_flight, drain_s = gateway.ledger.in_flight, gateway.settings.drain_s
    if in_flight:
        say(
            f"draining {in_flight} calls in flight for up to {drain_s:g} s; "
            "a second signal ends them now"
        )
    stopping = asyncio.create_task(gateway.stop(drain_s))
    again = asyncio.create_task(over.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if not stopping.done():
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping


async def _tell(ledger: GatewayLedger, say: Say) -> None:
    before = ledger.counts()
    while True:
        await asyncio.sleep(LINE_S)
        now = ledger.counts()
        line = minute_line(before, now, ledger)
        if line:
            say(line)
        before = now


def minute_line(before: Mapping[str, int], now: Mapping[str, int], ledger: GatewayLedger) -> str:
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
