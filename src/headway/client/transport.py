"""HTTP transports that admit every model call before it is sent.

A client sees the same status, headers and bytes, later. A refusal of a call that did not run is
absorbed. A call that is not admitted gets a response in its provider's own error format, so that
every SDK raises its own typed error, once. The transports keep no state of a thread, a loop or a
process: forks and many loops can share a client. All decisions are in `exchange`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar, Final

import httpx2

from headway.client.exchange import STAYS_S, Exchange, Pacing, explain, open_exchange
from headway.errors import HeadwayError, InternalError
from headway.pacing.refusal import BODY_BYTES_MAX
from headway.work import PermitWait


class PacedStream(httpx2.SyncByteStream):
    """The bytes of a response as they are; the exchange looks at each as it passes."""

    def __init__(self, body: Iterable[bytes], response: httpx2.Response, to: Exchange) -> None:
        self._body, self._stream, self._exchange = body, response.stream, to

    def __iter__(self) -> Iterator[bytes]:
        exchange = self._exchange
        try:
            for data in self._body:
                exchange.fed(data)
                yield data
        except BaseException as error:
            exchange.failed(error)
            raise
        exchange.ended()

    def close(self) -> None:
        try:
            self._exchange.closed()
        finally:
            _close(self._stream)

    def __del__(self) -> None:
        """A response that is neither read nor closed ends its permit when it is collected."""
        # At exit the broker sees the process go, which says more than a finalizer could.
        if not sys.is_finalizing():
            self._exchange.closed()


class AsyncPacedStream(httpx2.AsyncByteStream):
    """The same for an event loop. A permit ends before anything is awaited."""

    def __init__(self, body: AsyncIterable[bytes], response: httpx2.Response, to: Exchange) -> None:
        self._body, self._stream, self._exchange = body, response.stream, to

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange, body = self._exchange, aiter(self._body)
        try:
            with exchange:
                async for data in body:
                    exchange.fed(data)
                    yield data
                exchange.ended()
        finally:
            if isinstance(body, AsyncGenerator):
                await body.aclose()

    async def aclose(self) -> None:
        try:
            self._exchange.closed()
        finally:
            await _aclose(self._stream)

    __del__ = PacedStream.__del__


class PacedTransport(httpx2.BaseTransport):
    stream_type: ClassVar[type[PacedStream]] = PacedStream
    response_type: ClassVar[type[httpx2.Response]] = httpx2.Response
    error_type: ClassVar[type[httpx2.ConnectError]] = httpx2.ConnectError

    def __init__(self, inner: httpx2.BaseTransport, pacing: Pacing = Pacing()) -> None:
        self.inner = inner
        self.pacing = pacing

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange, own = open_exchange(request, self.pacing), request.extensions
        while exchange is not None:
            try:
                with PermitWait(exchange.refusal) as wait:
                    ticket = self.pacing.port().admit(exchange.call, exchange.left_s())
                    wait.waited_for = ticket.waited_for
            except HeadwayError as error:
                if self.pacing.lets_pass(error, exchange.call.account):
                    break
                return _explained(self.response_type, error, exchange)
            exchange.granted(ticket)
            request.extensions = own
            if exchange.is_trial:
                request.extensions = _traced(own, exchange, self.error_type)
            try:
                response = self.inner.handle_request(request)
            except BaseException as error:
                if exchange.lost(error):
                    continue
                raise
            with exchange:
                body = _bytes_of(response)
                if exchange.responded(response.status_code, response.headers.raw):
                    return self._handed_on(response, body, exchange)
                head = _head(response, body := iter(body), exchange)
            if not exchange.refused():
                return self._handed_on(response, chain(head, body), exchange)
            _close(response.stream)
        return self.inner.handle_request(request)

    def _handed_on(
        self, response: httpx2.Response, body: Iterable[bytes], exchange: Exchange
    ) -> httpx2.Response:
        stream = self.stream_type(body, response, exchange)
        if response.is_stream_consumed:
            # A transport that kept the whole body: its stream will not be read.
            for _ in stream:
                pass
        else:
            response.stream = stream
        return response

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> PacedTransport:
        self.inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)


class AsyncPacedTransport(httpx2.AsyncBaseTransport):
    stream_type: ClassVar[type[AsyncPacedStream]] = AsyncPacedStream
    response_type: ClassVar[type[httpx2.Response]] = httpx2.Response
    error_type: ClassVar[type[httpx2.ConnectError]] = httpx2.ConnectError

    def __init__(self, inner: httpx2.AsyncBaseTransport, pacing: Pacing = Pacing()) -> None:
        self.inner = inner
        self.pacing = pacing

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange, own = open_exchange(request, self.pacing), request.extensions
        while exchange is not None:
            try:
                port = self.pacing.port()
                with PermitWait(exchange.refusal) as wait:
                    ticket = await port.admit_async(exchange.call, exchange.left_s())
                    wait.waited_for = ticket.waited_for
            except HeadwayError as error:
                if self.pacing.lets_pass(error, exchange.call.account):
                    break
                return _explained(self.response_type, error, exchange)
            exchange.granted(ticket)
            request.extensions = own
            if exchange.is_trial:
                request.extensions = _traced_async(own, exchange, self.error_type)
            try:
                response = await self.inner.handle_async_request(request)
            except BaseException as error:
                if exchange.lost(error):
                    continue
                raise
            with exchange:
                body = _async_bytes_of(response)
                if exchange.responded(response.status_code, response.headers.raw):
                    return await self._handed_on(response, body, exchange)
                head = await _async_head(response, body, exchange)
            if not exchange.refused():
                return await self._handed_on(response, _async_chain(head, body), exchange)
            await _aclose(response.stream)
        return await self.inner.handle_async_request(request)

    async def _handed_on(
        self, response: httpx2.Response, body: AsyncIterable[bytes], exchange: Exchange
    ) -> httpx2.Response:
        stream = self.stream_type(body, response, exchange)
        if response.is_stream_consumed:
            # A transport that kept the whole body: its stream will not be read.
            async for _ in stream:
                pass
        else:
            response.stream = stream
        return response

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def __aenter__(self) -> AsyncPacedTransport:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.inner.__aexit__(*error)


Extensions = dict[str, Any]

CONNECTED: Final = "connect_tcp.complete"
KEPT: Final = "send_request_headers.started"
"""Events of httpcore: a connection is made; one that was made, or kept, is used."""
READABLE: Final = "is_readable"
"""Before a request there is nothing to be read of a connection but its end."""
CLOSED: Final = "the server closes connections at once"


def _traced(own: Extensions, exchange: Exchange, error: type[httpx2.ConnectError]) -> Extensions:
    """Have the connection of a trial reported when it stays open, not when its answer begins."""
    before = own.get("trace")

    def trace(name: str, info: dict[str, Any]) -> None:
        if name.endswith(CONNECTED):
            time.sleep(STAYS_S)
            if info["return_value"].get_extra_info(READABLE):
                info["return_value"].close()
                raise error(CLOSED)
        elif name.endswith(KEPT):
            exchange.reached()
        if before is not None:
            before(name, info)

    return {**own, "trace": trace}


def _traced_async(
    own: Extensions, exchange: Exchange, error: type[httpx2.ConnectError]
) -> Extensions:
    before = own.get("trace")

    async def trace(name: str, info: dict[str, Any]) -> None:
        if name.endswith(CONNECTED):
            await asyncio.sleep(STAYS_S)
            if info["return_value"].get_extra_info(READABLE):
                await info["return_value"].aclose()
                raise error(CLOSED)
        elif name.endswith(KEPT):
            exchange.reached()
        if before is not None:
            await before(name, info)

    return {**own, "trace": trace}


def _explained(
    kind: type[httpx2.Response], error: HeadwayError, exchange: Exchange
) -> httpx2.Response:
    status, headers, body = explain(error, exchange.wire, exchange.wait_s)
    return kind(status, headers=headers, content=body)


def _bytes_of(response: httpx2.Response) -> Iterable[bytes]:
    if response.is_stream_consumed:
        return (response.content,)
    if not hasattr(response.stream, "__iter__"):
        raise InternalError("a synchronous transport gave a response that only a loop can read")
    return response.stream


def _async_bytes_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    if response.is_stream_consumed:
        return _async_chain((response.content,), None)
    if not hasattr(response.stream, "__aiter__"):
        raise InternalError("an asynchronous transport gave a response that a loop cannot read")
    return aiter(response.stream)


def _head(response: httpx2.Response, body: Iterator[bytes], exchange: Exchange) -> list[bytes]:
    """The beginning of an error body, enough to know why; the rest stays to be read."""
    head: list[bytes] = []
    left = BODY_BYTES_MAX
    try:
        while left > 0 and (data := next(body, None)) is not None:
            exchange.fed(data)
            head.append(data)
            left -= len(data)
    except BaseException:
        # The client never sees this response, so it is closed here.
        _close(response.stream)
        raise
    return head


async def _async_head(
    response: httpx2.Response, body: AsyncIterator[bytes], exchange: Exchange
) -> list[bytes]:
    head: list[bytes] = []
    left = BODY_BYTES_MAX
    try:
        while left > 0 and (data := await anext(body, None)) is not None:
            exchange.fed(data)
            head.append(data)
            left -= len(data)
    except BaseException as error:
        exchange.failed(error)
        await _aclose(response.stream)
        raise
    return head


async def _async_chain(
    head: Iterable[bytes], rest: AsyncIterator[bytes] | None
) -> AsyncIterator[bytes]:
    try:
        for data in head:
            yield data
        if rest is not None:
            async for data in rest:
                yield data
    finally:
        if isinstance(rest, AsyncGenerator):
            await rest.aclose()


def _close(stream: object) -> None:
    close = getattr(stream, "close", None)
    if close is not None:
        close()


async def _aclose(stream: object) -> None:
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()
