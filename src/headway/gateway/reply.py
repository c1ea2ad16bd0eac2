"""What one client is sent: beats while it waits, then its answer or why there is none.

Laws:
- A response is begun once: by the first beat, by an answer's headers, or by a refusal of our own.
- What broke off upstream breaks off here: no client takes half an answer for a whole one.
- Our own words never stand in the middle of an event, or of what is compressed or has a length.
- A client that takes nothing of its answer for `STALL_S_MAX` is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from headway.gateway import guard, hold
from headway.gateway.beat import Beat
from headway.gateway.values import Caller, Turned
from headway.wire.inflate import Inflater
from headway.wire.values import WireName

GONE: Final = 499
"""The status in the books of a call whose client went away."""

STALL_S_MAX: Final = 300.0

LITTLE_BYTES: Final = 16_384
"""Less than what a transport holds before it makes its writer wait, 64 KiB."""

_FIXED: Final = ("content-encoding", "content-length")
"""Headers of a stream that takes no words of our own."""

_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
TAIL_BYTES: Final = max(map(len, _EVENT_ENDS))


class Reply:
    """The response to one call, from the first beat to the last byte."""

    __slots__ = ("_beat", "_caller", "_inflater", "_is_stream", "_request", "_response", "_tail",
                 "_wire", "status")  # fmt: skip

    def __init__(
        self, request: web.BaseRequest, wire: WireName, caller: Caller, path: str, is_stream: bool
    ) -> None:
        self._request = request
        self._wire: WireName = wire
        self._caller = caller
        self._is_stream = is_stream
        beat, headers = hold.beat(wire, caller, is_stream), hold.committed(wire, path, is_stream)
        self._beat = Beat(request, caller, beat, headers)
        self._inflater: Inflater | None = None
        self._response: web.StreamResponse | None = None
        self._tail = b""
        """The last few bytes of an answer that were handed on."""
        self.status = GONE
        """What the client was sent, or would have been if it had not been sent a beat before."""

    def __repr__(self) -> str:
        return f"<Reply to {self._caller.name}, {self.status}>"

    @property
    def is_committed(self) -> bool:
        """Whether a 200 was sent before there was an answer."""
        return self._beat.is_committed

    def start(self) -> None:
        """The client waits from now on."""
        self._beat.start()

    def cancel(self) -> None:
        """Nothing more is sent."""
        self._beat.cancel()

    async def open(self, answer: aiohttp.ClientResponse, head: bytes) -> web.StreamResponse | None:
        """Begin to hand an answer on; `head` is what was read of it.

        Returns the response if nothing may follow: it had begun, and the answer is an error.
        """
        self.status = answer.status
        begun = await self._beat.stop()
        if begun is not None:
            self._response = begun
            if answer.status >= 300:
                return await self.fail(answer.status, head)
            self._inflater = Inflater(answer.headers.get("content-encoding", ""))
            return None
        headers = fields_of(guard.homeward(answer.raw_headers))
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
        # The headers of an answer that is here as a whole go out with its body, in one packet.
        response._send_headers_immediately = not answer.content.is_eof()
        await response.prepare(self._request)
        self._response = response
        self._is_stream = self._is_stream and not any(name in headers for name in _FIXED)
        await self.write(head)
        return None

    async def write(self, data: bytes) -> None:
        """Some bytes of the answer, still compressed if they were sent so."""
        if self._inflater is None:
            await self._send(data)
        else:
            for piece in self._inflater.feed(data):
                await self._send(piece)

    def closed(self) -> web.StreamResponse:
        """That was all of it, unless some of it could not be read."""
        if self._inflater is not None and self._inflater.state != "reading":
            return self.cut()
        return self._begun()

    async def tell(
        self, status: int, headers: Mapping[str, str], body: bytes
    ) -> web.StreamResponse:
        """A response of the gateway's own."""
        self.status = status
        begun = await self._beat.stop() or self._response
        if begun is None:
            return web.Response(status=status, headers=headers, body=body)
        self._response = begun
        return await self.fail(status, body)

    async def turn(self, turned: Turned) -> web.StreamResponse:
        """A refusal of the gateway's own."""
        headers, body = hold.turned(self._wire, turned)
        return await self.tell(turned.status, headers, body)

    async def fail(self, status: int, body: bytes, data: bytes = b"") -> web.StreamResponse:
        """End a response that has begun with an error; a whole one can only be cut.

        `data` would have been next: what completes an event that is under way is sent before.
        """
        pieces = [data] if self._inflater is None else self._inflater.feed(data)
        rest = rest_of_event(self._tail, b"".join(pieces))
        if not self._is_stream or rest is None:
            return self.cut()
        await self._send(rest + hold.failed(self._wire, status, body, self._caller))
        return self._begun()

    def cut(self) -> web.StreamResponse:
        """The answer broke off, and so does the response."""
        transport = self._request.transport
        if transport is not None:
            transport.abort()
        return self._begun()

    def _begun(self) -> web.StreamResponse:
        return web.Response(status=GONE) if self._response is None else self._response

    async def _send(self, data: bytes) -> None:
        if self._response is not None and data:
            self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            await write(self._request, self._response, data)


async def write(request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
    """Send some bytes to a client, for as long as it takes any."""
    transport = request.transport
    # A little, and nothing before it, is taken by the system at once.
    is_little = len(data) <= LITTLE_BYTES
    if transport is None or (is_little and not transport.get_write_buffer_size()):
        await response.write(data)
        return
    try:
        async with asyncio.timeout(STALL_S_MAX):
            await response.write(data)
    except TimeoutError:
        transport.abort()
        raise ConnectionResetError("the client takes nothing") from None


def rest_of_event(tail: bytes, data: bytes) -> bytes | None:
    """What completes the event that `tail` is in the middle of; `None` if it is not in `data`."""
    if not tail or tail.endswith(_EVENT_ENDS):
        return b""
    both = tail + data
    ends = [
        at + len(mark)
        for mark in _EVENT_ENDS
        if (at := both.find(mark, max(0, len(tail) + 1 - len(mark)))) >= 0
    ]
    return both[len(tail) : min(ends)] if ends else None


def fields_of(pairs: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    """Headers for the HTTP library, in their sender's spelling and order."""
    return CIMultiDict(
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in pairs
    )
