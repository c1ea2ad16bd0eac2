"""One call through the gateway: wait for a permit, send, relay the reply.

Laws:
- A client sees what it would have seen without the gateway, later: status, headers, bytes.
- Refusals and overloads are absorbed before the first byte of an answer, and only then.
- A client that goes away frees its permit at once and its place in line soon.
- Every permit is settled by the exchange, whatever happens here.
"""

from __future__ import annotations

import asyncio
import json
import re
import select
import socket
import ssl
import time
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from math import ceil, inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import web
from msgspec.structs import replace
from yarl import URL

from headway.agents.gate import USAGE, WINDOWS, Use, WatchedPermit, emptied
from headway.agents.metering import MeteredUsage
from headway.base.clock import now_s
from headway.base.values import NOTHING, Amounts, Fault, Reading, Sketch, Spend, Tally, Wait
from headway.client.accounts import account_name, expected_dialect
from headway.client.exchange import BROKEN_MAX, RETRY_COUNT, STAYS_S, Exchange, HeldPermit, Port
from headway.errors import HeadwayError
from headway.gateway import guard
from headway.gateway import reply as hold
from headway.gateway.recording import Recording
from headway.gateway.replay import CUT_OFF, NOT_SENT, RecordedReply
from headway.gateway.reply import ClientReply, fields_of
from headway.gateway.request_match import CanonicalCall, canonical_call
from headway.gateway.values import CallEnded, Pairs, Passed, Payer, Turned, Upstream
from headway.pacing.budget import grown
from headway.pacing.call import Outcome, Request
from headway.pacing.estimate import spend_on
from headway.pacing.refusal import BODY_BYTES_MAX
from headway.wire.values import WireName
from headway.work import OverBudgetError, WindowEmptyError

if TYPE_CHECKING:
    from headway.gateway.server import Gateway

CONNECT_S_MAX: Final = 30.0
QUIET_S_MAX: Final = 600.0
"""The SDKs' own timeout of a call: an answer that shows nothing for longer has been given up."""
IDLE_S_MAX: Final = 15.0
"""Kept connections are closed before a provider does, so that no call meets one that is closing."""
HEADER_BYTES_MAX: Final = 65_536

LOST: Final = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


def words_of(error: BaseException) -> str:
    """A failure of `LOST` in words, without the address that was called: keys may be in it."""
    said = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    if isinstance(error, aiohttp.InvalidURL):
        said = error.description or "not an address"
    return f"{type(error).__name__}: {said}"


NOT_ADDED: Final = ("accept", "accept-encoding", "content-type", "user-agent")
"""What the HTTP library would add by itself."""


class Sender:
    """All connections to all providers, within one event loop.

    Certificates are always verified, against the system's and those of `SSL_CERT_FILE` or
    `SSL_CERT_DIR`; `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` are honoured.
    """

    def __init__(self, quiet_s: float = QUIET_S_MAX) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_S_MAX, sock_read=quiet_s
        )
        self._proxies: dict[URL, URL | None] = {}

    async def send(
        self, method: str, url: str, headers: Pairs, body: bytes | None,
        trial: Exchange | None = None,
    ) -> aiohttp.ClientResponse:  # fmt: skip
        """Send a request; returns when the headers of the response are here. Raises `LOST`. A
        trial is told when there is a connection."""
        session = self._session or self._open()
        address = URL(url, encoded=True)
        if trial is not None:
            # The same connections, and only for this call the cost of following them.
            session = self._new_session(session.connector, [_CONNECTED])
        # An encrypted connection is made by more than a port that is open.
        opened = _OPENED.set([] if trial is not None and address.scheme == "http" else None)
        try:
            return await session.request(
                method, address, proxy=self._proxy(address), data=body, headers=fields_of(headers),
                skip_auto_headers=NOT_ADDED, allow_redirects=False, trace_request_ctx=trial,
            )  # fmt: skip
        finally:
            _OPENED.reset(opened)
            if trial is not None:
                session.detach()

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
            limit=0, keepalive_timeout=IDLE_S_MAX, ssl=ssl.create_default_context(),
            socket_factory=_open_socket,
        )  # fmt: skip
        self._session = self._new_session(connector, [])
        return self._session

    def _new_session(
        self, connector: aiohttp.BaseConnector | None, traces: list[aiohttp.TraceConfig]
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector, timeout=self._timeout, auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(), max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX, trace_configs=traces,
        )  # fmt: skip


_OPENED: Final[ContextVar[list[socket.socket] | None]] = ContextVar("headway trial", default=None)
"""The sockets of the trial that this task makes."""


def _open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    opened, line = _OPENED.get(), socket.socket(*address[:3])
    if opened is not None:
        opened.append(line)
    return line


async def _stays_open(_session: object, _context: SimpleNamespace, _params: object) -> None:
    """Raises `ServerClosedError` for a new connection that the other side closes at once."""
    opened = _OPENED.get()
    if opened is not None:
        await asyncio.sleep(STAYS_S)
        if not any(map(_is_open, opened)):
            raise ServerClosedError("the server closes connections at once")


def _is_open(line: socket.socket) -> bool:
    """Before a request there is nothing to be read but the end."""
    poll = select.poll()
    if line.fileno() >= 0:
        poll.register(line, select.POLLIN)
    return line.fileno() >= 0 and not poll.poll(0)


async def _sends(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.reached()


class ServerClosedError(aiohttp.ClientConnectionError):
    """There was a connection, and nothing was sent."""


_CONNECTED: Final = aiohttp.TraceConfig()
_CONNECTED.on_connection_create_end.append(_stays_open)
_CONNECTED.on_request_headers_sent.append(_sends)


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


KEPT_S: Final = 15.0
"""SDKs send again after 8 s at the latest."""
KEPT_MAX: Final = 10_000

UNUSED: Final = Outcome("unused")

Admitting = asyncio.Task[HeldPermit]


class ParkedCalls:
    """Waiting calls whose client disconnected, kept briefly for the same request sent again."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._kept: dict[bytes, tuple[Admitting, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, name: bytes, admitting: Admitting) -> None:
        admitting.add_done_callback(_give_back)
        if admitting.done() or name in self._kept or len(self._kept) >= KEPT_MAX:
            admitting.cancel()
            return
        loop = asyncio.get_running_loop()
        self._kept[name] = (admitting, loop.call_later(self._kept_s, self._forget, name))
        admitting.add_done_callback(lambda done: self._drop(name, done))

    def take(self, name: bytes) -> Admitting | None:
        admitting, timer = self._kept.get(name, (None, None))
        # What was granted a moment ago is being given back already.
        if admitting is None or timer is None or admitting.done():
            return None
        del self._kept[name]
        timer.cancel()
        admitting.remove_done_callback(_give_back)
        return admitting

    def clear(self) -> None:
        for name in list(self._kept):
            self._forget(name)

    def _forget(self, name: bytes) -> None:
        admitting, timer = self._kept.pop(name)
        timer.cancel()
        admitting.cancel()

    def _drop(self, name: bytes, done: Admitting) -> None:
        kept = self._kept.get(name)
        if kept is not None and kept[0] is done:
            del self._kept[name]
            kept[1].cancel()


def _give_back(done: Admitting) -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().settle(UNUSED)


SMALL_BYTES_MAX: Final = 10_000
"""Up to here a call is small. opencode asks for a title in 2.5 kB, Gemini CLI for a route in 3.1,
with the user's own words in them; the first call of any conversation has 30 kB and more of tools
and instructions."""

CONNECTS_MAX: Final = 2
"""A provider that never answered is tried again so often: nothing was sent."""

DRAINING: Final = Turned(
    503, "draining", "the gateway is stopping", "send the call again in a moment"
)


class DrainingError(Exception):
    """The gateway stops before this call was sent."""


class GatewayCall:
    """One call. Made and used within one event loop; `answer` is called once."""

    __slots__ = (
        "_began_s", "_body", "_caller", "_claim", "_exchange", "_first_byte_s", "_form", "_gateway",
        "_headers", "_key", "_noted", "_number", "_passed", "_payer", "_recording", "_reply",
        "_sent_s", "_upstream", "_use", "_was_held", "_wire",
    )  # fmt: skip

    def __init__(
        self, gateway: Gateway, request: web.BaseRequest, passed: Passed, upstream: Upstream,
        wire: WireName, body: bytes, plain: bytes, sketch: Sketch,
    ) -> None:  # fmt: skip
        """`body` as the client sent it; `plain`: decompressed."""
        key, settings, is_stream = passed.key, gateway.settings, not sketch.is_whole
        headers = request._message.raw_headers
        self._headers: Pairs = tuple(guard.readable(guard.onward(headers, upstream, wire)))
        sent = fields_of(self._headers)
        host, query = gateway.hosts[upstream.name], passed.path.partition("?")[2]
        account, login = account_name(host, sent, query, plain)
        caller = guard.caller_of(headers, plain)
        if settings.silent_s is not None:
            beat_s = min(caller.beat_s, settings.silent_s)
            caller = replace(caller, silent_s=settings.silent_s, beat_s=beat_s)
        self._form: CanonicalCall | None = None
        if gateway.recorder is not None or gateway.tape is not None:
            self._form = canonical_call(
                key.name, caller, wire, upstream.name, sketch.model, passed.path, headers, plain,
            )  # fmt: skip
        # The flow: run, size class, program. A title does not wait behind large calls; the sessions
        # of a program are conversations, whose order follows from the prompt cache.
        size = "small" if sketch.size_bytes <= SMALL_BYTES_MAX else "large"
        path = (*key.path, size, caller.name)
        is_personal = key.is_interactive if caller.is_interactive is None else caller.is_interactive
        is_personal = is_personal and key.payer is None
        if is_personal:
            path = (*key.path, f"{caller.name}:{caller.session}")
        # Agents declare the longest answer there is: what they use is claimed as it comes.
        call = Request(
            account, expected_dialect(account, wire).name, sketch, path,
            sent.get(RETRY_COUNT, "0") != "0", is_soft=True, login=login,
            window_shares=key.window_shares, is_interactive=is_personal,
        )  # fmt: skip
        wait_s = settings.wait_s
        if wait_s is None:
            wait_s = hold.wait_s(wire, caller, is_stream)
        # A task's budget is set aside, and charged, for one sending.
        self._exchange = Exchange(
            call, wire, wait_s, connects=CONNECTS_MAX,
            broken_max=0 if key.payer else BROKEN_MAX,
        )  # fmt: skip
        self._reply = ClientReply(request, wire, caller, passed.path, is_stream)
        self._gateway, self._upstream, self._wire = gateway, upstream, wire
        self._key, self._payer, self._passed = key, key.payer, passed
        self._caller, self._body = caller, body
        self._use: Use = account, sketch.model
        self._claim = NOTHING
        """What the run has set aside for it."""
        self._noted: WatchedPermit | None = None
        self._recording: Recording | None = None
        self._number = 0
        self._was_held = False
        self._began_s = self._sent_s = self._first_byte_s = 0.0

    async def answer(self) -> web.StreamResponse:
        gateway, form = self._gateway, self._form
        if gateway.is_draining:
            return gateway.refused(self._wire, DRAINING)
        if self._payer is not None:
            try:
                await gateway.prices.load(self._use[1])
            except HeadwayError as error:
                over = Turned(402, "budget", error.message, error.hint or "")
                return gateway.refused(self._wire, over)
        kept = None if gateway.tape is None or form is None else gateway.tape.find(form)
        self._began_s = self._sent_s = time.monotonic()
        self._number = gateway.ledger.entered(self._key.name, self._caller.name, self._began_s)
        if kept is not None and form is not None:
            return await self._replayed(form, kept)
        self._key.in_flight += 1
        gateway.in_flight += 1
        self._reply.start()
        if gateway.recorder is not None and form is not None:
            self._recording = gateway.recorder.begin(form)
        try:
            return await self._held_and_sent()
        except DrainingError:
            return await self._reply.turn(DRAINING)
        except (HeadwayError, OverBudgetError, WindowEmptyError) as error:
            return await self._given_up(error)
        finally:
            self._reply.cancel()
            self._key.in_flight -= 1
            gateway.in_flight -= 1
            if self._recording is not None:
                is_unused = self._noted is None or _is_unused(self._noted.outcome)
                self._recording.drop(NOT_SENT if is_unused else CUT_OFF)
            self._enter_in_books()

    async def _replayed(self, form: CanonicalCall, kept: RecordedReply) -> web.Response:
        """The answer to the same call at the same place of a recording. It costs nothing."""
        if self._gateway.recorder is not None:
            await self._gateway.recorder.again(form, kept)
        totals = self._key.totals or MeteredUsage()
        self._key.totals = replace(totals, replayed=totals.replayed + 1)
        self._end(kept.status, Tally(), None, 0, was_replayed=True)
        headers = fields_of(kept.headers)
        headers["x-headway-replayed"] = "true"
        return web.Response(status=kept.status, headers=headers, body=kept.body)

    async def _held_and_sent(self) -> web.StreamResponse:
        while True:
            await self._admitted()
            fault = self._gateway.fatal.last(self._use) if self._payer else None
            if fault is not None and self._noted is not None:
                self._noted.settle(UNUSED)
                return await self._reply.turn(self._hopeless(fault))
            with self._exchange:
                try:
                    response = await self._sent()
                except LOST as error:
                    if self._exchange.lost(error):
                        continue
                    outcome = None if self._noted is None else self._noted.outcome
                    return await self._unreachable(error, not _is_unused(outcome))
                try:
                    answered = await self._received(response)
                finally:
                    response.close()
            if answered is not None:
                return answered
            self._gateway.ledger.refused(self._number, time.monotonic())

    async def _admitted(self) -> None:
        """Wait for the permit, and for the money that the call is expected to cost."""
        payer = self._payer
        if payer is None:
            ticket = await self._in_line()
        else:
            payer.waits(self._exchange.refusal)
            waited = ""
            try:
                ticket = await self._in_line()
                waited = ticket.waited_for
            except asyncio.CancelledError:
                payer.rests(KEPT_S)
                raise
            finally:
                payer.goes(waited)
        is_resent = bool(self._exchange.resends)
        self._was_held |= is_resent or bool(ticket.waited_for)
        noted = self._noted = WatchedPermit(ticket, self._read)
        self._exchange.granted(noted)
        if payer is not None:
            whole = self._claim.at_least(self._cost_of(max(1.0, ticket.expected.output_tokens)))
            try:
                await self._set_aside(payer, whole)
            except BaseException:
                noted.settle(UNUSED)
                raise
        self._sent_s = time.monotonic()
        self._gateway.ledger.sent(self._number, self._sent_s)

    def _cost_of(self, output_tokens: float) -> Spend:
        """The expected cost of the call with an answer of this length."""
        given = 0.0 if self._noted is None else self._noted.expected.input_tokens
        tally = Tally(float(ceil(given)), 0.0, float(ceil(output_tokens)))
        return spend_on(self._use[1], tally, self._gateway.prices.look_up)

    async def _set_aside(self, payer: Payer, whole: Spend) -> None:
        await payer.reserve(whole.minus(self._claim))
        self._claim = whole

    async def _in_line(self) -> HeldPermit:
        """The permit. A client that goes away leaves its place for a moment."""
        gateway = self._gateway
        if gateway.is_draining:
            raise DrainingError
        admitting = gateway.places.take(self._name()) if gateway.places else None
        if admitting is not None:
            gateway.ledger.resent()
        else:
            asked = _asked(gateway.admission, self._payer, self._exchange)
            admitting = asyncio.ensure_future(asked)
        gateway.waiting.add(admitting)
        try:
            return await asyncio.shield(admitting)
        except asyncio.CancelledError:
            if admitting.cancelled() and gateway.is_draining:
                raise DrainingError from None
            gateway.places.keep(self._name(), admitting)
            raise
        finally:
            gateway.waiting.discard(admitting)

    def _name(self) -> bytes:
        """The same for the same call, sent again. Codex changes the order of members then."""
        digest = blake2b(digest_size=16)
        named = (self._key.token, self._caller.session, self._upstream.name, self._passed.path)
        for part in named:
            digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
        body = self._body
        with suppress(ValueError, RecursionError):
            body = json.dumps(json.loads(body), sort_keys=True).encode()
        digest.update(body)
        return digest.digest()

    def _hopeless(self, fault: Fault) -> Turned:
        found = re.match(r"HTTP (\d{3})", fault.detail)
        status = int(found[1]) if found is not None else 402
        does = f"{self._upstream.url} refuses every call to `{self._use[1]}`"
        why = f"{does}: {fault.detail}; no more are sent in this run"
        return Turned(status, "fatal", why, "check the key, the address and the model's name")

    def _read(self, reading: Reading) -> None:
        if self._payer is not None and reading.limits:
            for empty in emptied(reading, time.time()):
                self._payer.window(empty.resets_at_s, empty.detail)

    async def _sent(self) -> aiohttp.ClientResponse:
        headers = self._headers
        if self._reply.is_committed:
            # What has begun without an encoding goes on without one.
            headers = tuple(pair for pair in headers if pair[0].lower() != b"accept-encoding")
        url = self._upstream.url + self._passed.path
        trial = self._exchange if self._exchange.is_trial else None
        return await self._gateway.sender.send("POST", url, headers, self._body, trial)

    async def _received(self, response: aiohttp.ClientResponse) -> web.StreamResponse | None:
        """The answer, or the failure, as it was handed on; `None` for a refusal to be absorbed."""
        exchange = self._exchange
        self._first_byte_s = time.monotonic()
        head = b""
        if not exchange.responded(response.status, response.raw_headers):
            try:
                head = await _head(response, exchange)
            except LOST as error:
                exchange.failed(error)
                return await self._unreachable(error, was_sent=True)
            if exchange.refused():
                return None
            fault = self._noted.outcome.fault if self._noted and self._noted.outcome else None
            if fault is not None:
                self._sent_away(fault.retry_after_s)
        try:
            ended = await self._reply.open(response, head)
            return await self._handed_on(response) if ended is None else ended
        except ConnectionError:
            # The provider's are dealt with where it is read: this is a client that has gone.
            exchange.closed()
            raise

    def _sent_away(self, after_s: float | None) -> None:
        """The client calls again after this: the clock of its task stops until then."""
        if self._payer is not None and after_s is not None:
            self._payer.rests(min(after_s, hold.RETRY_AFTER_S_MAX))

    async def _handed_on(self, response: aiohttp.ClientResponse) -> web.StreamResponse:
        """Every byte as it comes. A reply that is recorded is on the disk before its last one."""
        exchange, reply, recording = self._exchange, self._reply, self._recording
        if recording is not None:
            recording.answered(response.status, response.raw_headers)
        while True:
            try:
                data = await response.content.readany()
            except LOST as error:
                exchange.failed(error)
                return reply.cut()
            if not data:
                break
            exchange.fed(data)
            over = await self._cut_off(data)
            if over is not None:
                return over
            if recording is not None:
                recording.feed(data)
                if recording.is_whole:
                    exchange.ended()
                await self._recorded(recording)
            await reply.write(data)
        exchange.ended()
        if recording is not None:
            await self._recorded(recording)
        return reply.closed()

    async def _recorded(self, recording: Recording) -> None:
        outcome = None if self._noted is None else self._noted.outcome
        if outcome is not None:
            await recording.end(outcome.tally, outcome.fault)

    async def _cut_off(self, data: bytes) -> web.StreamResponse | None:
        """End an answer that outgrew a budget; set more of the run's aside while there is some."""
        noted, payer = self._noted, self._payer
        cut = None if noted is None else noted.cut
        if cut is not None:
            status, _, body = hold.given_up(cut, self._wire)
        else:
            if noted is None or payer is None:
                return None
            whole = next(grown(self._claim, noted.output_tokens, self._cost_of), None)
            if whole is None:
                return None
            try:
                await self._set_aside(payer, whole)
                return None
            except OverBudgetError as error:
                told = _too_dear(error)
                status, body = told.status, hold.refusal_of(self._wire, told)[1]
        self._exchange.closed()
        return await self._reply.fail(status, body, data)

    async def _given_up(
        self, error: HeadwayError | OverBudgetError | WindowEmptyError
    ) -> web.StreamResponse:
        if isinstance(error, OverBudgetError):
            return await self._reply.turn(_too_dear(error))
        if isinstance(error, WindowEmptyError):
            return await self._reply.tell(429, *hold.window_refusal(error, self._wire, time.time()))
        status, headers, body = hold.given_up(error, self._wire)
        if after_s := headers.get("retry-after"):
            self._sent_away(float(after_s))
        return await self._reply.tell(status, headers, body)

    async def _unreachable(self, error: BaseException, was_sent: bool) -> web.StreamResponse:
        why = "was sent the call and gave no answer" if was_sent else "cannot be reached"
        code = hold.LOST if was_sent else "upstream"
        told = Turned(502, code, f"{self._upstream.url} {why}: {words_of(error)}")
        return await self._reply.turn(told)

    def _enter_in_books(self) -> None:
        noted, exchange = self._noted, self._exchange
        outcome = None if noted is None else noted.outcome
        if noted is None or outcome is None:
            tally, outcome = Tally(), UNUSED
        else:
            tally = counted(outcome, noted.expected, exchange.is_finished)
        if self._payer is not None and outcome.how != "unused":
            self._gateway.fatal.ended(self._use, outcome.fault)
        # Prices are looked up for the calls of tasks only.
        microusd = None if outcome.how == "used" else 0
        if self._payer is not None:
            spent = spend_on(self._use[1], tally, self._gateway.prices.look_up)
            self._payer.spare(self._claim.minus(spent))
            microusd = None if spent.unpriced else spent.microusd
        totals = self._key.totals or MeteredUsage()
        self._key.totals = replace(
            totals,
            calls=totals.calls + (outcome.how == "used"),
            input_tokens=totals.input_tokens + tally.input_tokens + tally.cache_read_tokens,
            output_tokens=totals.output_tokens + tally.output_tokens,
            microusd=totals.microusd + (microusd or 0),
            unpriced=totals.unpriced + (microusd is None),
            cache=totals.cache + tally.cache,
        )
        self._end(self._reply.status, tally, outcome.fault, microusd)

    def _end(
        self, status: int, tally: Tally, fault: Fault | None, microusd: int | None,
        was_replayed: bool = False,
    ) -> None:  # fmt: skip
        ended = CallEnded(
            self._key.name, self._caller.name, self._upstream.name, self._use[1], status, tally,
            fault, microusd, self._sent_s - self._began_s,
            max(0.0, self._first_byte_s - self._sent_s), self._exchange.resends,
            self._reply.is_committed, was_replayed, self._was_held,
        )  # fmt: skip
        self._gateway.ledger.ended(self._number, ended, time.monotonic())


def _is_unused(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.how == "unused"


async def _asked(port: Port, payer: Payer | None, exchange: Exchange) -> HeldPermit:
    """Ask for the permit. No method of the call: a place that is kept must not keep its body."""
    if payer is None:
        heard = partial(_refuse_beyond, now_s() + (exchange.left_s() or inf))
    else:
        heard = partial(_report_window, payer)
    return await port.admit_async(exchange.call, exchange.left_s(), heard)


def _refuse_beyond(end_s: float, wait: Wait) -> None:
    """Raises WindowEmptyError where a usage window holds a call for longer than it may wait."""
    if wait.resource.startswith(WINDOWS) and end_s < wait.until_s < inf:
        raise WindowEmptyError(time.time() + wait.until_s - now_s(), wait.reason)


def _report_window(payer: Payer, wait: Wait) -> None:
    if wait.resource.startswith(USAGE):
        payer.window(time.time() + wait.until_s - now_s(), wait.reason)


async def _head(response: aiohttp.ClientResponse, exchange: Exchange) -> bytes:
    """The beginning of an error body, enough to know why; the rest stays to be read."""
    head: list[bytes] = []
    left = BODY_BYTES_MAX
    while left > 0 and (data := await response.content.readany()):
        exchange.fed(data)
        head.append(data)
        left -= len(data)
    return b"".join(head)


def counted(outcome: Outcome, expected: Amounts, is_finished: bool) -> Tally:
    """The tokens of a call. What its provider did not report is what was expected, or what passed
    by if that is more; of an answer whose text is complete, what passed by."""
    tally = outcome.tally
    if outcome.how != "used":
        return Tally()
    if tally.known == "reported":
        return tally
    unread, output = expected.input_tokens - tally.cache_read_tokens, expected.output_tokens
    return replace(
        tally,
        input_tokens=max(tally.input_tokens, ceil(unread)),
        output_tokens=max(tally.output_tokens, 0 if is_finished else ceil(output)),
    )


def _too_dear(error: OverBudgetError) -> Turned:
    return Turned(402, "budget", str(error), "allow a larger budget, and resume the run")
