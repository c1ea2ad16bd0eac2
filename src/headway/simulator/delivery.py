"""Sends an answer as the provider writes it: whole or as a stream, with the faults it was given.

Laws:
- A stream shows no token before the provider has written it.
- A call is noted as over before its last byte is sent, so that whoever has read an answer to its
  end finds it in `/truth`.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from headway.core.foresight.provider import Call
from headway.core.values import Fault, Reading
from headway.simulator.cache import Place, PromptCache
from headway.simulator.clockwork import Clockwork, Live
from headway.simulator.mischief import HARMLESS
from headway.simulator.refusals import JSON, Speaker
from headway.simulator.truth import Truth, Visit, audit
from headway.wire import write
from headway.wire.elements import ElementWriter
from headway.wire.values import Answer, Conversation, WireName

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


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call and its answer."""

    request: web.BaseRequest
    speaker: Speaker
    conversation: Conversation
    answer: Answer
    pieces: list[str]
    visit: Visit
    call: Call
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


@dataclass(frozen=True, slots=True)
class Counter:
    """What a delivery reports to: the clock, the record and the cache."""

    clockwork: Clockwork
    truth: Truth
    cache: PromptCache

    async def began(self, exchange: Exchange, live: Live) -> Reading:
        """Wait for the first byte; from then on others can read what this call has written."""
        while live.reading is None:
            await live.changed()
        now = self.clockwork.now()
        exchange.visit.first_byte_s = now
        if exchange.visit.cache_write_tokens:
            self.cache.write(exchange.place, now)
        return live.reading

    def over(self, exchange: Exchange, live: Live, how: str) -> None:
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
            audited = asyncio.get_running_loop().run_in_executor(None, audit, log)
            audited.add_done_callback(lambda found: self.truth.adopt(key, found.result()))

    def hung_up(self, exchange: Exchange, live: Live) -> None:
        """If the call is not over, the client has gone. One left without an answer may go."""
        if exchange.visit.ended_s is not None:
            return
        harm = exchange.harm
        self.over(exchange, live, harm if harm in ("hang", "stall") else "cancelled")


class Outlet:
    """A response under way, as an array and compressed if need be."""

    __slots__ = ("_array", "_packer", "_request", "response")

    def __init__(self, exchange: Exchange, reading: Reading, content_type: str) -> None:
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

    def __repr__(self) -> str:
        return f"<Outlet {self.response!r}>"

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


async def deliver(exchange: Exchange, live: Live, counter: Counter) -> web.StreamResponse:
    """Answer a call that was accepted."""
    if exchange.conversation.streams:
        return await _stream(exchange, live, counter)
    return await _whole(exchange, live, counter)


async def _whole(exchange: Exchange, live: Live, counter: Counter) -> web.StreamResponse:
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
        outlet = Outlet(exchange, reading, JSON)
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


async def _stream(exchange: Exchange, live: Live, counter: Counter) -> web.StreamResponse:
    wire, answer, harm = exchange.speaker.wire, exchange.answer, exchange.harm
    outlet = Outlet(exchange, await counter.began(exchange, live), "text/event-stream")
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
    exchange: Exchange,
    live: Live,
    counter: Counter,
    outlet: Outlet,
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


async def _abandon(outlet: Outlet, harm: str) -> web.StreamResponse:
    """Leave an answer where it is: close the connection, or never send another byte."""
    if harm == "stall":
        await asyncio.get_running_loop().create_future()
    outlet.cut()
    return outlet.response
