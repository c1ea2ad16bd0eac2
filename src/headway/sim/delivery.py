"""Sends a simulated reply: whole or as a stream, with its faults.

Laws:
- A stream shows no token before the provider has written it.
- A call is noted as over before its last byte is sent, so that a client
  that has read an answer to its end finds it in `/truth`.
"""

from __future__ import annotations

import time
import zlib
from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
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
    CachedPrompt,
    FirstByte,
    PromptCache,
    Provider,
    ProviderSpec,
    Refused,
    SimulatedCall,
    SimulatedEnd,
)
from headway.sim.truth import Truth, Visit, audit
from headway.wire.gemini import ElementWriter
from headway.wire.read import FORMATS
from headway.wire.values import Answer, Conversation, WireName

FLUSH_S: Final = 0.05
"""Streams show what they have written at most this often..."""

FLUSH_PER_STREAM_S: Final = 0.0005
"""...and when there are many, so much later for each: at most 2,000 writes a second in all."""


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


class ServedCall(Struct, eq=False):
    """One call and its answer, from its arrival to its last byte."""

    request: web.BaseRequest
    speaker: Speaker
    conversation: Conversation
    answer: Answer
    pieces: list[str]
    visit: Visit
    call: SimulatedCall
    prompt: CachedPrompt
    keeps_s: float
    reading: Reading | None = None
    """The limits as of admission; here as soon as the first byte is."""
    reached: int = 0
    """Tokens written so far."""
    ended: SimulatedEnd | None = None
    waiter: Future[None] | None = None

    @property
    def harm(self) -> str | None:
        """The fault that keeps the answer from being whole."""
        return next((kind for kind in self.visit.faults if kind not in HARMLESS), None)

    async def changed(self) -> None:
        """Wait until there is something new to look at."""
        self.waiter = get_running_loop().create_future()
        await self.waiter

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Clockwork:
    """One provider on the clock of the running event loop, with its record and its prompt cache."""

    def __init__(self, spec: ProviderSpec, seed: int) -> None:
        self._loop: AbstractEventLoop = get_running_loop()
        self._zero_s = self._loop.time()
        self.provider = Provider(spec, seed)
        self.truth = Truth()
        self.cache = PromptCache()
        self._served: dict[int, ServedCall] = {}
        self._streams: dict[ServedCall, None] = {}
        """In the order of their begin, so that the same calls wake in the same order."""
        self._crowds: dict[str, int] = {}
        self.crowds_max: dict[str, int] = {}
        """The most calls of each account that were in service at once."""
        self._timer: TimerHandle | None = None
        self._armed_s = inf
        self._flush_s = inf

    def now(self) -> float:
        return self._loop.time() - self._zero_s

    def submit(self, served: ServedCall) -> Refused | None:
        now, visit = self.now(), served.visit
        self._advance(now)
        refused = self.provider.submit(served.call, now, visit.key)
        if refused is not None:
            return refused
        self._served[served.call.id] = served
        crowd = self._crowds[visit.key] = self._crowds.get(visit.key, 0) + 1
        self.crowds_max[visit.key] = max(crowd, self.crowds_max.get(visit.key, 0))
        if served.conversation.streams:
            self._streams[served] = None
        self._arm()
        self.truth.accepted(visit)
        self._fold(visit.key)
        return None

    async def first_byte(self, served: ServedCall) -> Reading:
        """Wait for it; from then on other calls can read what this one has put into the cache."""
        while served.reading is None:
            await served.changed()
        served.visit.first_byte_s = self.now()
        self.cache.write(served.prompt, served.keeps_s, self.now())
        return served.reading

    def over(self, served: ServedCall, how: str) -> None:
        """The call is over; if the provider still writes, it stops: what was written is charged."""
        if served.ended is None:
            now = self.now()
            self._advance(now)
            ended = self.provider.cancel(served.call.id, now)
            if ended is not None:
                self._ended(ended)
            self._arm()
        if how != "whole" and served.visit.ended_s is None:
            served.visit.output_tokens = served.reached
        self.truth.over(served.visit, how, self.now())

    def forget(self) -> None:
        """Forget what is over; count the most calls at once from now on."""
        self.truth.reset(self.provider.account(key) for key in self.truth.accounts)
        self.crowds_max = dict(self._crowds)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fold(self, key: str) -> None:
        """Audit an account's log that has become long, aside, and forget most of it."""
        log = self.truth.folded(key, self.provider.account(key))
        if log is not None:
            audited = self._loop.run_in_executor(None, audit, self.provider.spec.terms, log)
            audited.add_done_callback(lambda found: self.truth.adopt(key, found.result()))

    def _advance(self, now: float) -> None:
        for happening in self.provider.advance(now):
            if isinstance(happening, SimulatedEnd):
                self._ended(happening)
            elif isinstance(happening, FirstByte):
                served = self._served[happening.call_id]
                served.reading = happening.reading
                served.wake()
                if served in self._streams and self._flush_s == inf:
                    self._flush_s = now + FLUSH_S

    def _ended(self, ended: SimulatedEnd) -> None:
        served = self._served.pop(ended.call_id)
        self._crowds[served.visit.key] -= 1
        self._streams.pop(served, None)
        served.ended, served.reached = ended, int(ended.output_tokens)
        served.wake()

    def _wake(self) -> None:
        self._timer, self._armed_s = None, inf
        now = self.now()
        self._advance(now)
        if now >= self._flush_s:
            # Every stream shows what it has written.
            for served in self._streams:
                reached = int(self.provider.produced(served.call.id) + 1e-6)
                if reached > served.reached:
                    served.reached = reached
                    served.wake()
            wait_s = max(FLUSH_S, FLUSH_PER_STREAM_S * len(self._streams))
            self._flush_s = now + wait_s if self._streams else inf
        self._arm()

    def _arm(self) -> None:
        """One timer, for whatever comes first. One that is early is left to find nothing to do."""
        at = min(self.provider.next_s(), self._flush_s, self.now() + 3600.0)
        if at < self._armed_s:
            self.stop()
            self._armed_s = at
            self._timer = self._loop.call_at(self._zero_s + at, self._wake)


class ResponseWriter:
    """A response under way, as an array and compressed if need be."""

    def __init__(self, served: ServedCall, reading: Reading, content_type: str) -> None:
        request = self._request = served.request
        is_gemini = served.speaker.wire == "gemini" and served.conversation.streams
        # Gemini streams a JSON array unless events are asked for.
        self._array = ElementWriter() if is_gemini and request.query.get("alt") != "sse" else None
        accepted = request.headers.get("accept-encoding", "")
        self._packer = None
        self.headers = served.speaker.headers(reading)
        self.headers["content-type"] = JSON if self._array is not None else content_type
        if "gzip" in served.visit.faults and "gzip" in accepted:
            self.headers["content-encoding"] = "gzip"
            self._packer = zlib.compressobj(wbits=GZIP)
        self.response = web.StreamResponse(status=200, headers=self.headers)
        served.visit.status = 200

    async def open(self, length: int | None = None) -> None:
        """Send the head; with a length, the body is announced to be so long."""
        self.response.content_length = length if self._packer is None else None
        await self.response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        if self._array is not None:
            data = self._array.write(data)
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        await self.response.write(data)

    def last(self, data: bytes) -> bytes:
        """The last bytes, with what array and packer still have."""
        if self._array is not None:
            data = self._array.write(data) + self._array.end()
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush()
        return data

    async def abandon(self, harm: str) -> web.StreamResponse:
        """Leave the answer where it is: never send another byte, or close the connection."""
        if harm == "stall":
            await get_running_loop().create_future()
        if self._request.transport is not None:
            self._request.transport.close()
        return self.response


async def deliver(served: ServedCall, clockwork: Clockwork) -> web.StreamResponse:
    """Answer a call that was accepted."""
    try:
        reading = await clockwork.first_byte(served)
        answer = _stream if served.conversation.streams else _whole
        return await answer(served, clockwork, reading)
    except ConnectionError:
        # No one reads this: the client has closed the connection.
        return web.Response(status=499)
    finally:
        if served.visit.ended_s is None:
            # The client has gone. One that was left without an answer may go.
            harm = served.harm
            clockwork.over(served, harm if harm in ("hang", "stall") else "cancelled")


async def _whole(served: ServedCall, clockwork: Clockwork, reading: Reading) -> web.StreamResponse:
    while served.ended is None:
        await served.changed()
    harm = "cut" if served.ended.fault is not None else served.harm
    clockwork.over(served, harm or "whole")
    if harm == "error-event":
        served.visit.status = 500
        return served.speaker.refusal(Fault("server"), reading)
    body = FORMATS[served.speaker.wire].whole(served.answer)
    if harm == "malformed":
        body = body[: len(body) * 2 // 3] + b"\\"
    outlet = ResponseWriter(served, reading, JSON)
    if harm in ("cut", "stall"):
        await outlet.open(len(body))
        await outlet.send(body[: len(body) // 2])
        return await outlet.abandon(harm)
    return web.Response(body=outlet.last(body), headers=outlet.headers)


async def _stream(served: ServedCall, clockwork: Clockwork, reading: Reading) -> web.StreamResponse:
    wire, answer, harm = served.speaker.wire, served.answer, served.harm
    outlet = ResponseWriter(served, reading, "text/event-stream")
    await outlet.open()
    await outlet.send(FORMATS[wire].opening(answer))
    stop = len(served.pieces) // 2 if harm else len(served.pieces)
    shown = index = 0
    while shown < stop or (harm is None and served.ended is None):
        reached = min(served.reached, stop)
        if reached > shown:
            events = []
            for begin in range(shown, reached, PIECE_TOKENS):
                text = "".join(served.pieces[begin : min(begin + PIECE_TOKENS, reached)])
                events.append(FORMATS[wire].piece(answer, index, text))
                index += 1
            shown = reached
            await outlet.send(b"".join(events))
        elif served.ended is not None:
            break
        else:
            await served.changed()
    if harm is None and served.ended is not None and served.ended.fault is not None:
        harm = "broken"
    if harm == "malformed":
        await outlet.send(BROKEN_EVENT[wire])
    while harm == "stall" and served.ended is None:
        await served.changed()
    clockwork.over(served, harm or "whole")
    if harm in ("cut", "stall", "broken"):
        return await outlet.abandon(harm)
    end = FORMATS[wire].closing(answer, served.conversation.wants_usage, index)
    if harm == "error-event":
        end = FORMATS[wire].error_event(*served.speaker.error(Fault("overload")))
    await outlet.response.write_eof(outlet.last(end))
    return outlet.response
