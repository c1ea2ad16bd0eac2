"""Sends a simulated reply: whole or as a stream, with its faults.

Laws:
- A stream shows no token before the provider has written it.
- A call is noted as over before its last byte is sent, so that whoever has read an answer to its
  end finds it in `/truth`.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from aiohttp import web
from msgspec import Struct

from headway.base.numbers import number_of
from headway.base.values import Fault, FaultKind, Reading
from headway.errors import BadValueError, did_you_mean
from headway.sim import headers as speech
from headway.sim.draw import uniform
from headway.sim.provider import (
    FirstByte,
    Provider,
    ProviderSpec,
    Refused,
    SimulatedCall,
    SimulatedEnd,
)
from headway.sim.truth import Truth, Visit, audit
from headway.wire import answer as write
from headway.wire.gemini import ElementWriter
from headway.wire.values import Answer, Conversation, WireName

FLUSH_S: Final = 0.05
"""Streams show what they have written at most this often..."""

FLUSH_PER_STREAM_S: Final = 0.0005
"""...and when there are many, so much later for each: at most 2,000 writes a second in all."""


class Live:
    """A call in service, as whoever answers it sees it."""

    __slots__ = ("_from_work", "_waiter", "call", "ended", "reached", "reading")

    def __init__(self, call: SimulatedCall) -> None:
        self.call = call
        self.reading: Reading | None = None
        """The limits as of admission; here as soon as the first byte is."""
        self.reached = 0
        """Tokens written so far."""
        self.ended: SimulatedEnd | None = None
        self._from_work = inf
        self._waiter: Future[None] | None = None

    async def changed(self) -> None:
        """Wait until there is something new to look at."""
        self._waiter = get_running_loop().create_future()
        await self._waiter

    def begin(self, reading: Reading, work: float) -> None:
        self.reading, self._from_work = reading, work
        self._wake()

    def end(self, ended: SimulatedEnd) -> None:
        self.ended, self.reached = ended, int(ended.output_tokens)
        self._wake()

    def reach(self, work: float, pace: float) -> None:
        """Adopt what has been written by now."""
        if self.reading is None:
            return
        written = int(min(self.call.output_tokens, (work - self._from_work) / pace + 1e-6))
        if written > self.reached:
            self.reached = written
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Clockwork:
    """One provider on the clock of the running event loop; its time 0 is when this was made."""

    def __init__(self, spec: ProviderSpec, seed: int) -> None:
        self._loop: AbstractEventLoop = get_running_loop()
        self._zero_s = self._loop.time()
        self.provider = Provider(spec, seed)
        self._lives: dict[int, Live] = {}
        self._keys: dict[int, str] = {}
        self._streams: dict[Live, None] = {}
        """In the order of their begin, so that the same calls wake in the same order."""
        self._crowds: dict[str, int] = {}
        self.crowds_max: dict[str, int] = {}
        """The most calls of each account that were in service at once."""
        self._timer: TimerHandle | None = None
        self._armed_s = inf
        self._flush_s = inf
        self._work = self._work_s = 0.0

    def now(self) -> float:
        """Seconds since the start."""
        return self._loop.time() - self._zero_s

    def submit(self, call: SimulatedCall, key: str, streams: bool) -> Live | Refused:
        """Accept or refuse a call now."""
        now = self.now()
        self._advance(now)
        verdict = self.provider.submit(call, now, key)
        if isinstance(verdict, Refused):
            return verdict
        live = self._lives[call.id] = Live(call)
        self._keys[call.id] = key
        crowd = self._crowds[key] = self._crowds.get(key, 0) + 1
        self.crowds_max[key] = max(crowd, self.crowds_max.get(key, 0))
        if streams:
            self._streams[live] = None
        self._arm()
        return live

    def cancel(self, live: Live) -> SimulatedEnd | None:
        """The caller hung up: what was written stays charged. None if the call was over."""
        now = self.now()
        self._advance(now)
        ended = self.provider.cancel(live.call.id, now)
        if ended is not None:
            self._over(ended)
        self._arm()
        return ended

    def forget(self) -> None:
        """Count the most calls at once from now on."""
        self.crowds_max = dict(self._crowds)

    def stop(self) -> None:
        """No timer is left behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _advance(self, now: float) -> None:
        """Let everything up to `now` happen, one thing at a time: between two the slowdown is
        constant, so that `_work` follows the provider's work clock."""
        while (at := self.provider.next_s()) <= now:
            self._follow(at)
            for happening in self.provider.advance(at):
                if isinstance(happening, SimulatedEnd):
                    self._over(happening)
                elif isinstance(happening, FirstByte):
                    self._began(happening)
        self._follow(now)

    def _follow(self, now: float) -> None:
        elapsed = now - self._work_s
        if elapsed > 0:
            slowdown = self.provider.spec.latency.slowdown(self.provider.in_flight)
            self._work += elapsed / slowdown
            self._work_s = now

    def _began(self, happening: FirstByte) -> None:
        live = self._lives[happening.call_id]
        live.begin(happening.reading, self._work)
        if live in self._streams and self._flush_s == inf:
            self._flush_s = self._work_s + FLUSH_S

    def _over(self, ended: SimulatedEnd) -> None:
        live = self._lives.pop(ended.call_id)
        self._crowds[self._keys.pop(ended.call_id)] -= 1
        self._streams.pop(live, None)
        live.end(ended)

    def _wake(self) -> None:
        self._timer, self._armed_s = None, inf
        now = self.now()
        self._advance(now)
        if now >= self._flush_s:
            self._flush(now)
        self._arm()

    def _flush(self, now: float) -> None:
        """Let every stream show what it has written."""
        pace = self.provider.spec.latency.per_output_token_s
        for live in self._streams:
            live.reach(self._work, pace)
        count = len(self._streams)
        self._flush_s = now + max(FLUSH_S, FLUSH_PER_STREAM_S * count) if count else inf

    def _arm(self) -> None:
        """One timer, for whatever comes first. One that is early is left to find nothing to do."""
        now = self.now()
        at = min(self.provider.next_s(), self._flush_s, now + 3600.0)
        if at < self._armed_s:
            self.stop()
            self._armed_s = at
            self._timer = self._loop.call_at(self._zero_s + at, self._wake)


TTL_S: Final = 300.0

TOKENS_MIN: Final = 1024
"""Shorter beginnings are not kept, as at the real providers."""

ENTRIES_MAX: Final = 100_000
"""What was used the longest ago is forgotten first."""

Place = tuple[str, str, str]
"""Account, model, digest of the beginning."""


class PromptCache:
    """Beginnings that were read before, by account and model."""

    def __init__(self) -> None:
        self._until: OrderedDict[Place, float] = OrderedDict()

    def read(self, place: Place, now: float) -> bool:
        """Whether a beginning is there; if so it stays for longer."""
        if self._until.get(place, 0.0) <= now:
            return False
        self.write(place, now)
        return True

    def write(self, place: Place, now: float) -> None:
        """A call that began so has sent its first byte."""
        self._until[place] = now + TTL_S
        self._until.move_to_end(place)
        if len(self._until) > ENTRIES_MAX:
            self._until.popitem(last=False)


HEADER: Final = "x-sim-fault"

MISLEADING_S: Final = 60.0
"""The wait that `429-misleading` asks for, for nothing."""

SLOW_START: Final = 10.0
"""How many times longer `slow-start` takes to its first byte."""

NEVER: Final = 1e12
"""As a factor on the time to first byte: `hang`."""

MISCHIEF_STREAM: Final = 89
"""The stream of draws that decides faults by share; distinct from the provider's own."""

AT_THE_DOOR: Final = frozenset(
    ("429-bare", "429-misleading", "429-text", "500", "503-html", "529", "billing", "spend-cap")
)
"""Faults that refuse a call; `docs/simulator.md` describes every kind."""
HARMLESS: Final = frozenset(("gzip", "slow-start"))
"""They may come together with another fault, and the answer is whole."""
KINDS: Final = AT_THE_DOOR | HARMLESS | {"error-event", "cut", "hang", "stall", "malformed"}


def draw_faults(shares: Mapping[str, float], seed: int, number: int) -> tuple[str, ...]:
    """The faults of one call, by its number: at most one that harms, and harmless ones."""
    found = []
    draw = uniform(seed, MISCHIEF_STREAM, number)
    for place, (kind, share) in enumerate(shares.items(), start=1):
        if kind in HARMLESS:
            if uniform(seed, MISCHIEF_STREAM + place, number) < share:
                found.append(kind)
            continue
        if 0.0 <= draw < share:
            found.append(kind)
        draw -= share
    return tuple(found)


def parse_shares(words: Iterable[str]) -> dict[str, float]:
    """`cut=0.1`, `500=5%`: the share of all calls that goes wrong, by kind."""
    shares: dict[str, float] = {}
    for word in words:
        kind, equals, text = word.partition("=")
        must_be_kind(kind)
        number = number_of(text.removesuffix("%"))
        share = -1.0 if number is None else number / (100.0 if text.endswith("%") else 1.0)
        if not equals or not 0.0 <= share <= 1.0:
            hint = f"write `--fault {kind}=0.1`"
            raise BadValueError(f"`--fault {word}` has no share from 0 to 1", hint=hint)
        shares[kind] = share
    if sum(share for kind, share in shares.items() if kind not in HARMLESS) > 1.0 + 1e-9:
        raise BadValueError("the shares of `--fault` add up to more than 1")
    return shares


def must_be_kind(kind: str) -> str:
    """The kind, or an error that names the nearest."""
    if kind not in KINDS:
        raise BadValueError(f"there is no fault `{kind[:60]}`", hint=did_you_mean(kind, KINDS))
    return kind


def parse_kinds(text: str) -> tuple[str, ...]:
    """The kinds of a header: `cut`, `gzip, cut`."""
    return tuple(must_be_kind(word.strip()) for word in text.split(",") if word.strip())


JSON: Final = "application/json"

_FAULTS: Final[dict[str, FaultKind]] = {
    "429-bare": "rate",
    "429-misleading": "concurrency",
    "500": "server",
    "529": "overload",
    "billing": "billing",
    "spend-cap": "spend_cap",
}


class Speaker(Struct, frozen=True):
    """How one call is spoken to: in a dialect, over a wire, under an id."""

    dialect: str
    wire: WireName
    request_id: str

    def headers(self, reading: Reading, retry_after_s: float | None = None) -> dict[str, str]:
        """What comes with every answer and refusal."""
        lines = dict(speech.headers(self.dialect, reading.limits, time.time(), retry_after_s))
        if self.wire == "gemini":
            # The only trace of Gemini in its headers.
            lines["server"] = "scaffolding on HTTPServer2"
        else:
            lines["request-id" if self.wire == "anthropic" else "x-request-id"] = self.request_id
        return lines

    def error(self, fault: Fault, reading: Reading = Reading()) -> tuple[int, bytes]:
        """Status and body of an error."""
        limits = [limit for limit in reading.limits if limit.resource == fault.resource]
        hit = min(limits, key=lambda limit: limit.remaining or 0.0, default=None)
        return speech.error_body(self.dialect, fault, self.request_id, hit)

    def refusal(self, fault: Fault, reading: Reading) -> web.Response:
        """A fault of the provider's own, with its limits."""
        status, body = self.error(fault, reading)
        return _response(status, body, self.headers(reading, reading.retry_after_s))

    def at_the_door(self, kind: str, reading: Reading) -> web.Response:
        """A fault that was asked for."""
        if kind == "429-text":
            return _response(429, b"Too Many Requests", {})
        if kind == "503-html":
            page = b"<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>"
            return _response(503, page, {})
        status, body = self.error(Fault(_FAULTS[kind]))
        if kind == "429-bare":
            return _response(status, body, self.headers(Reading()))
        if kind == "429-misleading" and self.dialect == "gemini":
            status, body = self.error(Fault(_FAULTS[kind], None, MISLEADING_S))
        elif kind == "429-misleading":
            waits = {"retry-after": f"{MISLEADING_S:.0f}"}
            return _response(status, body, self.headers(reading) | waits)
        # OpenAI says 503 for it; the fault of this name has this status on every wire.
        status = 529 if kind == "529" else status
        return _response(status, body, self.headers(reading))

    def wrong(self, status: int, message: str) -> web.Response:
        """The request itself is wrong."""
        _, body = self.error(Fault("request", None, None, message))
        return _response(status, body, self.headers(Reading()))


def _response(status: int, body: bytes, headers: dict[str, str]) -> web.Response:
    kind = JSON if body[:1] == b"{" else "text/html" if body[:1] == b"<" else "text/plain"
    return web.Response(status=status, body=body, headers=headers, content_type=kind)


PIECE_TOKENS: Final = 20
"""The most tokens in one event of a stream; events that are ready together are sent together."""

GZIP: Final = 16 + zlib.MAX_WBITS
"""Makes zlib write gzip's header and trailer."""

BROKEN_DATA: Final = b'data: {"type": "text", "delta": {"text": "\\\n\n'
BROKEN_EVENT: Final[dict[WireName, bytes]] = {
    "anthropic": b"event: content_block_delta\n" + BROKEN_DATA,
    "openai-chat": BROKEN_DATA,
    "openai-responses": b"event: response.output_text.delta\n" + BROKEN_DATA,
    "gemini": BROKEN_DATA,
}
"""An event whose JSON ends in the middle of an escape."""


class ServedExchange(Struct, frozen=True):
    """One call and its answer."""

    request: web.BaseRequest
    speaker: Speaker
    conversation: Conversation
    answer: Answer
    pieces: list[str]
    visit: Visit
    call: SimulatedCall
    place: Place

    @property
    def harm(self) -> str | None:
        """The fault that keeps the answer from being whole."""
        return next((kind for kind in self.visit.faults if kind not in HARMLESS), None)

    @property
    def is_array(self) -> bool:
        """Whether the answer streams as a JSON array: Gemini's, unless events are asked for."""
        is_gemini = self.speaker.wire == "gemini" and self.conversation.streams
        return is_gemini and self.request.query.get("alt") != "sse"

    @property
    def is_packed(self) -> bool:
        """Whether the answer is to be compressed."""
        accepted = self.request.headers.get("accept-encoding", "")
        return "gzip" in self.visit.faults and "gzip" in accepted


class Counter(Struct, frozen=True):
    """What a delivery reports to: the clock, the record and the cache."""

    clockwork: Clockwork
    truth: Truth
    cache: PromptCache

    async def began(self, exchange: ServedExchange, live: Live) -> Reading:
        """Wait for the first byte; from then on others can read what this call has written."""
        while live.reading is None:
            await live.changed()
        now = self.clockwork.now()
        exchange.visit.first_byte_s = now
        if exchange.visit.cache_write_tokens:
            self.cache.write(exchange.place, now)
        return live.reading

    def over(self, exchange: ServedExchange, live: Live, how: str) -> None:
        """The call is over; if the provider still writes, it stops."""
        visit = exchange.visit
        if live.ended is None:
            self.clockwork.cancel(live)
        if how != "whole" and visit.ended_s is None:
            visit.output_tokens = live.reached
        self.truth.over(visit, how, self.clockwork.now())

    def fold(self, key: str) -> None:
        """Audit an account's log that has become long, aside, and forget most of it."""
        log = self.truth.folded(key, self.clockwork.provider.account(key))
        if log is not None:
            terms = self.clockwork.provider.spec.terms
            audited = asyncio.get_running_loop().run_in_executor(None, audit, terms, log)
            audited.add_done_callback(lambda found: self.truth.adopt(key, found.result()))

    def hung_up(self, exchange: ServedExchange, live: Live) -> None:
        """If the call is not over, the client has gone. One left without an answer may go."""
        if exchange.visit.ended_s is not None:
            return
        harm = exchange.harm
        self.over(exchange, live, harm if harm in ("hang", "stall") else "cancelled")


class ResponseWriter:
    """A response under way, as an array and compressed if need be."""

    def __init__(self, exchange: ServedExchange, reading: Reading, content_type: str) -> None:
        headers = exchange.speaker.headers(reading)
        headers["content-type"] = JSON if exchange.is_array else content_type
        self._array = ElementWriter() if exchange.is_array else None
        self._packer = None
        if exchange.is_packed:
            headers["content-encoding"] = "gzip"
            self._packer = zlib.compressobj(wbits=GZIP)
        self._request = exchange.request
        self.response = web.StreamResponse(status=200, headers=headers)
        exchange.visit.status = 200

    async def open(self, length: int | None = None) -> None:
        """Send the head; with a length, the body is announced to be so long."""
        self.response.content_length = length
        await self.response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        if self._array is not None:
            data = self._array.write(data)
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        await self.response.write(data)

    async def close(self, data: bytes) -> None:
        """Send the last bytes, and what the packer still has."""
        if self._array is not None:
            data = self._array.write(data) + self._array.end()
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush()
        await self.response.write_eof(data)

    def cut(self) -> None:
        """Close the connection in the middle of the body."""
        if self._request.transport is not None:
            self._request.transport.close()


async def deliver(exchange: ServedExchange, live: Live, counter: Counter) -> web.StreamResponse:
    """Answer a call that was accepted."""
    if exchange.conversation.streams:
        return await _stream(exchange, live, counter)
    return await _whole(exchange, live, counter)


async def _whole(exchange: ServedExchange, live: Live, counter: Counter) -> web.StreamResponse:
    reading = await counter.began(exchange, live)
    while live.ended is None:
        await live.changed()
    harm = "cut" if live.ended.fault is not None else exchange.harm
    counter.over(exchange, live, harm or "whole")
    if harm == "error-event":
        exchange.visit.status = 500
        return exchange.speaker.refusal(Fault("server"), reading)
    body = write.whole(exchange.speaker.wire, exchange.answer)
    if harm == "malformed":
        body = body[: len(body) * 2 // 3] + b"\\"
    if harm in ("cut", "stall"):
        outlet = ResponseWriter(exchange, reading, JSON)
        await outlet.open(None if exchange.is_packed else len(body))
        await outlet.send(body[: len(body) // 2])
        return await _abandon(outlet, harm)
    exchange.visit.status = 200
    headers = exchange.speaker.headers(reading)
    if exchange.is_packed:
        packer = zlib.compressobj(wbits=GZIP)
        body = packer.compress(body) + packer.flush()
        headers["content-encoding"] = "gzip"
    return web.Response(body=body, headers=headers, content_type=JSON)


async def _stream(exchange: ServedExchange, live: Live, counter: Counter) -> web.StreamResponse:
    wire, answer, harm = exchange.speaker.wire, exchange.answer, exchange.harm
    outlet = ResponseWriter(exchange, await counter.began(exchange, live), "text/event-stream")
    await outlet.open()
    await outlet.send(write.opening(wire, answer))
    stop = len(exchange.pieces) // 2 if harm else len(exchange.pieces)
    shown = index = 0
    while shown < stop or (harm is None and live.ended is None):
        reached = min(live.reached, stop)
        if reached > shown:
            events = []
            for begin in range(shown, reached, PIECE_TOKENS):
                text = "".join(exchange.pieces[begin : min(begin + PIECE_TOKENS, reached)])
                events.append(write.piece(wire, answer, index, text))
                index += 1
            shown = reached
            await outlet.send(b"".join(events))
        elif live.ended is not None:
            break
        else:
            await live.changed()
    if harm is None and live.ended is not None and live.ended.fault is not None:
        harm = "broken"
    return await _finish(exchange, live, counter, outlet, harm, index)


async def _finish(
    exchange: ServedExchange,
    live: Live,
    counter: Counter,
    outlet: ResponseWriter,
    harm: str | None,
    pieces: int,
) -> web.StreamResponse:
    """The end of a stream, or what comes instead of it."""
    wire = exchange.speaker.wire
    if harm == "malformed":
        await outlet.send(BROKEN_EVENT[wire])
    if harm == "stall":
        while live.ended is None:
            await live.changed()
    counter.over(exchange, live, harm or "whole")
    if harm in ("cut", "stall", "broken"):
        return await _abandon(outlet, harm)
    if harm == "error-event":
        status, body = exchange.speaker.error(Fault("overload"))
        await outlet.close(write.error_event(wire, status, body))
    else:
        answer, wants_usage = exchange.answer, exchange.conversation.wants_usage
        await outlet.close(write.closing(wire, answer, wants_usage, pieces))
    return outlet.response


async def _abandon(outlet: ResponseWriter, harm: str) -> web.StreamResponse:
    """Leave an answer where it is: close the connection, or never send another byte."""
    if harm == "stall":
        await asyncio.get_running_loop().create_future()
    outlet.cut()
    return outlet.response
