"""One call through the gateway: wait for a permit, send, relay the reply.

Laws:
- A client sees what it would have seen without the gateway, later: status, headers, bytes.
- Refusals and overloads are absorbed before the first byte of an answer, and only then.
- A client that goes away frees its permit at once and its place in line soon.
- Every permit is settled by the exchange, whatever happens here.
"""

from __future__ import annotations

import asyncio
import re
import time
from math import ceil
from typing import Final

import aiohttp
from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.gate import FIRST_SLICE_S, Fatal, Use, WatchedPermit, emptied, window_of
from headway.agents.metering import MeteredUsage
from headway.base.values import Amounts, Fault, Reading, Sketch, Tally
from headway.broker.client import CallRequest
from headway.client.accounts import KnownDialects
from headway.client.exchange import Exchange, HeldPermit, OutgoingCall, Port
from headway.errors import HeadwayError, QueueDeadlineError
from headway.gateway import reply as hold
from headway.gateway.counters import GatewayLedger
from headway.gateway.parked_calls import KEPT_S, Admitting, ParkedCalls, name_of
from headway.gateway.recording import Recorder, Recording
from headway.gateway.replay import CUT_OFF, NOT_SENT, Tape
from headway.gateway.reply import ClientReply
from headway.gateway.request_match import CanonicalCall as Form
from headway.gateway.spending import Spending
from headway.gateway.upstream import LOST, Sender, words_of
from headway.gateway.values import CallEnded, Caller, Pairs, Passed, Payer, Turned, Upstream
from headway.pacing.admission import CallOutcome
from headway.pacing.quota import waited_for
from headway.pacing.refusal import BODY_BYTES_MAX
from headway.wire.values import WireName
from headway.work import OverBudgetError

SMALL_BYTES_MAX: Final = 10_000
"""Up to here a call is small. opencode asks for a title in 2.5 kB, Gemini CLI for a route in 3.1,
with the user's own words in them; the first call of any conversation has 30 kB and more of tools
and instructions."""

CONNECTS_MAX: Final = 3
CONNECT_AGAIN_S: Final = 0.5
"""A provider that cannot be reached is tried again so often, after a moment: nothing was sent."""

DRAINING: Final = Turned(
    503, "draining", "the gateway is stopping", "send the call again in a moment"
)


class DrainingError(Exception):
    """The gateway stops before this call was sent."""


class GatewayDependencies(Struct):
    """What all calls of a gateway use, and what it knows of them."""

    sender: Sender
    port: Port
    ledger: GatewayLedger
    voices: KnownDialects
    places: ParkedCalls
    wait_s: float | None = None
    """How long calls are held at most; `None` is as long as their callers bear it."""
    silent_s: float | None = None
    """After how long the first beat is sent; `None` is as long as their callers bear it."""
    recorder: Recorder | None = None
    tape: Tape | None = None
    fatal: Fatal = field(default_factory=Fatal)
    """Of the calls of tasks: what is answered with the same fault however often it is called."""
    waiting: set[Admitting] = field(default_factory=set)
    in_flight: int = 0
    """Calls that wait or run."""
    is_draining: bool = False

    def drain(self) -> None:
        """Calls that wait are refused; those that were sent may end."""
        self.is_draining = True
        self.places.clear()
        for admitting in list(self.waiting):
            admitting.cancel()


class IncomingCall(Struct, frozen=True):
    """A call as its client sent it."""

    passed: Passed
    upstream: Upstream
    wire: WireName
    caller: Caller
    account: str
    headers: Pairs
    """As they are sent upstream."""
    body: bytes
    sketch: Sketch
    is_resent: bool
    form: Form | None = None
    """What it is recorded and found by, where somebody records or replays."""

    @property
    def path(self) -> tuple[str, ...]:
        """The flow: key, size class, conversation. A title does not wait behind large calls."""
        whose, session = self.passed.key.path, f"{self.caller.name}:{self.caller.session}"
        size = "small" if self.sketch.size_bytes <= SMALL_BYTES_MAX else "large"
        return (*whose[:1], size, *whose[1:], session)

    @property
    def use(self) -> Use:
        return self.account, self.sketch.model

    @property
    def name(self) -> bytes:
        """The same for the same call, sent again."""
        return name_of(self.passed, self.caller.session, self.body)


class GatewayCall:
    """One call. Made and used within one event loop; `answer` is called once."""

    __slots__ = (
        "_began_s", "_exchange", "_first_byte_s", "_means", "_noted", "_number", "_payer",
        "_recording", "_reply", "_sent_s", "_spending", "_wanted", "_was_held",
    )  # fmt: skip

    def __init__(
        self,
        request: web.BaseRequest,
        wanted: IncomingCall,
        means: GatewayDependencies,
        spending: Spending | None,
    ) -> None:
        wire, caller, is_stream = wanted.wire, wanted.caller, not wanted.sketch.is_whole
        wait_s = hold.wait_s(wire, caller, is_stream) if means.wait_s is None else means.wait_s
        dialect = means.voices.expected(wanted.account, wire).name
        # Agents declare the longest answer there is: what they use is claimed as it comes.
        call = CallRequest(
            wanted.account, dialect, wanted.sketch, wanted.path, wanted.is_resent, is_soft=True
        )
        self._exchange = Exchange(OutgoingCall(call, wire, wait_s, means.voices))
        self._reply = ClientReply(request, wire, caller, wanted.passed.path, is_stream)
        self._wanted = wanted
        self._means = means
        self._payer = wanted.passed.key.payer
        self._spending = spending
        self._noted: WatchedPermit | None = None
        self._recording: Recording | None = None
        self._number = 0
        self._was_held = False
        self._began_s = self._sent_s = time.monotonic()
        self._first_byte_s = 0.0

    async def answer(self) -> web.StreamResponse:
        key, means = self._wanted.passed.key, self._means
        self._number = means.ledger.entered(key.name, self._wanted.caller.name, self._began_s)
        key.in_flight += 1
        means.in_flight += 1
        self._reply.start()
        if means.recorder is not None and self._wanted.form is not None:
            self._recording = means.recorder.begin(self._wanted.form)
        try:
            return await self._held_and_sent()
        except DrainingError:
            return await self._reply.turn(DRAINING)
        except (HeadwayError, OverBudgetError) as error:
            return await self._given_up(error)
        finally:
            self._reply.cancel()
            key.in_flight -= 1
            means.in_flight -= 1
            if self._recording is not None:
                noted = self._noted
                is_unused = noted is None or _is_unused(noted.outcome)
                self._recording.drop(NOT_SENT if is_unused else CUT_OFF)
            self._enter_in_books()

    async def _held_and_sent(self) -> web.StreamResponse:
        connects = 0
        while True:
            await self._admitted()
            fault = self._means.fatal.last(self._wanted.use) if self._payer else None
            if fault is not None and self._noted is not None:
                self._noted.settle(CallOutcome("unused"))
                return await self._reply.turn(_hopeless(fault, self._wanted))
            with self._exchange:
                try:
                    response = await self._sent()
                except LOST as error:
                    self._exchange.failed(error)
                    connects += 1
                    outcome = None if self._noted is None else self._noted.outcome
                    was_sent = outcome is not None and not _is_unused(outcome)
                    if was_sent or connects >= CONNECTS_MAX:
                        return await self._unreachable(error, was_sent)
                    await asyncio.sleep(CONNECT_AGAIN_S * connects)
                    continue
                try:
                    answered = await self._received(response)
                finally:
                    response.close()
            if answered is not None:
                return answered
            self._means.ledger.refused(self._number, time.monotonic())

    async def _admitted(self) -> None:
        """Wait for the permit, and for the money that the call is expected to cost."""
        payer = self._payer
        if payer is None:
            ticket = await in_line(self._means, self._wanted, self._exchange)
        else:
            payer.waits(self._exchange.refusal)
            waited = ""
            try:
                ticket = await in_line(self._means, self._wanted, self._exchange)
                waited = waited_for(ticket.permit.reason)
            except asyncio.CancelledError:
                payer.rests(KEPT_S)
                raise
            finally:
                payer.goes(waited)
        is_resent = bool(self._exchange.resends)
        self._was_held |= is_resent or bool(waited_for(ticket.permit.reason))
        noted = self._noted = WatchedPermit(ticket, self._read)
        self._exchange.granted(noted)
        if self._spending is not None and payer is not None:
            expected = ticket.permit.demand.expected
            cost = self._spending.before(expected.input_tokens, expected.output_tokens)
            try:
                await payer.reserve(cost.microusd, cost.tokens)
            except BaseException:
                noted.settle(CallOutcome("unused"))
                raise
        self._sent_s = time.monotonic()
        self._means.ledger.sent(self._number, self._sent_s)

    def _read(self, reading: Reading) -> None:
        if self._payer is not None and reading.limits:
            for empty in emptied(reading, time.time()):
                self._payer.window(empty.resets_at_s, empty.detail)

    async def _sent(self) -> aiohttp.ClientResponse:
        wanted, headers = self._wanted, self._wanted.headers
        if self._reply.is_committed:
            # What has begun without an encoding goes on without one.
            headers = tuple(pair for pair in headers if pair[0].lower() != b"accept-encoding")
        url = wanted.upstream.url + wanted.passed.path
        return await self._means.sender.send("POST", url, headers, wanted.body)

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
            over = await self._cut_off(data) or await self._over_budget(data)
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
        cut = None if self._noted is None else self._noted.cut
        if cut is None:
            return None
        self._exchange.closed()
        status, _, body = hold.given_up(cut, self._wanted.wire)
        return await self._reply.fail(status, body, data)

    async def _over_budget(self, data: bytes) -> web.StreamResponse | None:
        """Set more aside for an answer that outgrew what was; end it when there is no more."""
        spending, noted, payer = self._spending, self._noted, self._payer
        if spending is None or noted is None or payer is None:
            return None
        cost = spending.grew(noted.output_tokens)
        if cost is None:
            return None
        try:
            await payer.reserve(cost.microusd, cost.tokens)
        except OverBudgetError as error:
            self._exchange.closed()
            told = _too_dear(error)
            _, body = hold.refusal_of(self._wanted.wire, told)
            return await self._reply.fail(told.status, body, data)
        return None

    async def _given_up(self, error: HeadwayError | OverBudgetError) -> web.StreamResponse:
        if isinstance(error, OverBudgetError):
            return await self._reply.turn(_too_dear(error))
        if self._payer is not None and isinstance(error, QueueDeadlineError):
            empty = window_of(error, time.time())
            if empty is not None:
                self._payer.window(empty.resets_at_s, empty.detail)
        status, headers, body = hold.given_up(error, self._wanted.wire)
        if after_s := headers.get("retry-after"):
            self._sent_away(float(after_s))
        return await self._reply.tell(status, headers, body)

    async def _unreachable(self, error: BaseException, was_sent: bool) -> web.StreamResponse:
        url = self._wanted.upstream.url
        why = "was sent the call and gave no answer" if was_sent else "cannot be reached"
        code = hold.LOST if was_sent else "upstream"
        told = Turned(502, code, f"{url} {why}: {words_of(error)}")
        return await self._reply.turn(told)

    def _enter_in_books(self) -> None:
        wanted = self._wanted
        noted, exchange = self._noted, self._exchange
        outcome = None if noted is None else noted.outcome
        if noted is None or outcome is None:
            tally, outcome = Tally(), CallOutcome("unused")
        else:
            tally = counted(outcome, noted.permit.demand.expected, exchange.is_finished)
        if self._payer is not None and outcome.how != "unused":
            self._means.fatal.ended(wanted.use, outcome)
        # Prices are looked up for the calls of tasks only.
        microusd = None if outcome.how == "used" else 0
        if self._spending is not None:
            microusd = self._spending.cost(tally)
        key = wanted.passed.key
        totals = key.totals or MeteredUsage()
        key.totals = replace(
            totals,
            calls=totals.calls + (outcome.how == "used"),
            input_tokens=totals.input_tokens + tally.input_tokens + tally.cache_read_tokens,
            output_tokens=totals.output_tokens + tally.output_tokens,
            microusd=totals.microusd + (microusd or 0),
            unpriced=totals.unpriced + (microusd is None),
        )
        ended = CallEnded(
            key.name, wanted.caller.name, wanted.upstream.name, wanted.sketch.model,
            self._reply.status, tally, outcome.fault, microusd, self._sent_s - self._began_s,
            max(0.0, self._first_byte_s - self._sent_s), exchange.resends, self._reply.is_committed,
            was_held=self._was_held,
        )  # fmt: skip
        self._means.ledger.ended(self._number, ended, time.monotonic())


def _is_unused(outcome: CallOutcome | None) -> bool:
    return outcome is not None and outcome.how == "unused"


def _hopeless(fault: Fault, wanted: IncomingCall) -> Turned:
    """The answer to a call that would fail as those before it did."""
    found = re.match(r"HTTP (\d{3})", fault.detail)
    status = int(found[1]) if found is not None else 402
    model, url = wanted.sketch.model, wanted.upstream.url
    why = f"{url} refuses every call to `{model}`: {fault.detail}; no more are sent in this run"
    return Turned(status, "fatal", why, "check the key, the address and the model's name")


async def in_line(
    means: GatewayDependencies, wanted: IncomingCall, exchange: Exchange
) -> HeldPermit:
    """The permit. A client that goes away leaves its place for a moment."""
    if means.is_draining:
        raise DrainingError
    admitting: Admitting | None = means.places.take(wanted.name) if means.places else None
    if admitting is not None:
        means.ledger.resent()
    else:
        admitting = asyncio.ensure_future(_asked(means.port, wanted.passed.key.payer, exchange))
    means.waiting.add(admitting)
    try:
        return await asyncio.shield(admitting)
    except asyncio.CancelledError:
        if admitting.cancelled() and means.is_draining:
            raise DrainingError from None
        means.places.keep(wanted.name, admitting)
        raise
    finally:
        means.waiting.discard(admitting)


async def _asked(port: Port, payer: Payer | None, exchange: Exchange) -> HeldPermit:
    """Ask for the permit. An empty usage window is reported to the payer soon."""
    call, left_s = exchange.call, exchange.left_s()
    if payer is not None and (left_s is None or left_s > FIRST_SLICE_S):
        try:
            return await port.admit_async(call, FIRST_SLICE_S)
        except QueueDeadlineError as error:
            empty = window_of(error, time.time())
        if empty is not None:
            payer.window(empty.resets_at_s, empty.detail)
        call, left_s = replace(call, is_resent=True), exchange.left_s()
    return await port.admit_async(call, left_s)


async def _head(response: aiohttp.ClientResponse, exchange: Exchange) -> bytes:
    """The beginning of an error body, enough to know why; the rest stays to be read."""
    head: list[bytes] = []
    left = BODY_BYTES_MAX
    while left > 0 and (data := await response.content.readany()):
        exchange.fed(data)
        head.append(data)
        left -= len(data)
    return b"".join(head)


def counted(outcome: CallOutcome, expected: Amounts, is_finished: bool) -> Tally:
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
