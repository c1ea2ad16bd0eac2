"""HTTP transports that admit every model call before it is sent.

A client sees the same status, headers and bytes, later. A refusal of a call that did not run is
absorbed. A call that is not admitted gets a response in its provider's own error format, so that
every SDK raises its own typed error, once. The transports keep no state of a thread, a loop or a
process: forks and many loops can share a client. All decisions are in `exchange`.

Both kinds of transport run the same coroutine: in a loop it waits, in a thread it blocks and so
runs to its end at once.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, ClassVar, Final, TypeVar

import httpx2

from headway.client.exchange import STAYS_S, Exchange, Pacing, explain, open_exchange
from headway.errors import HeadwayError, InternalError
from headway.pacing.refusal import BODY_BYTES_MAX
from headway.work import PermitWait

T = TypeVar("T")


class _Stream:
    """The bytes of a response as they are; the exchange looks at each as it passes."""

    def __init__(
        self, head: Sequence[bytes], body: Any, stream: object, exchange: Exchange
    ) -> None:
        """`head` has been read of the body, and looked at."""
        self._head, self._body, self._stream, self._exchange = head, body, stream, exchange

    def __del__(self) -> None:
        """A response that is neither read nor closed ends its permit when it is collected."""
        # At exit the broker sees the process go, which says more than a finalizer could.
        if self._exchange.permit is not None and not sys.is_finalizing():
            self._exchange.closed()


class PacedStream(_Stream, httpx2.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        exchange = self._exchange
        yield from self._head
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
            close = getattr(self._stream, "close", None)
            if close is not None:
                close()


class AsyncPacedStream(_Stream, httpx2.AsyncByteStream):
    """The same for an event loop. A permit ends before anything is awaited."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange, body = self._exchange, self._body
        try:
            for data in self._head:
                yield data
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
            aclose = getattr(self._stream, "aclose", None)
            if aclose is not None:
                await aclose()


class _Transport:
    """What both kinds of transport do with a request."""

    is_async: ClassVar[bool]
    """Whether everything that does I/O is to be awaited; else it blocks."""
    stream_type: ClassVar[type[_Stream]]
    response_type: ClassVar[type[httpx2.Response]] = httpx2.Response
    error_type: ClassVar[type[httpx2.ConnectError]] = httpx2.ConnectError

    def __init__(self, inner: Any, pacing: Pacing = Pacing()) -> None:
        self.inner = inner
        self.pacing = pacing

    async def _done(self, result: Any) -> Any:
        return await result if self.is_async else result

    async def _close(self, stream: object) -> None:
        close = getattr(stream, "aclose" if self.is_async else "close", None)
        if close is not None:
            await self._done(close())

    def _admit(self, exchange: Exchange) -> Any:
        port = self.pacing.port()
        admit = port.admit_async if self.is_async else port.admit
        return admit(exchange.call, exchange.left_s())

    def _send(self, request: httpx2.Request) -> Any:
        inner = self.inner
        return (inner.handle_async_request if self.is_async else inner.handle_request)(request)

    def _body(self, stream: Any) -> Any:
        if self.is_async and hasattr(stream, "__aiter__"):
            return aiter(stream)
        if not self.is_async and hasattr(stream, "__iter__"):
            return iter(stream)
        kind, reader = ("an asynchronous", "a loop cannot") if self.is_async else (
            "a synchronous", "only a loop can"
        )  # fmt: skip
        raise InternalError(f"{kind} transport gave a response that {reader} read")

    async def _handle(self, request: httpx2.Request) -> httpx2.Response:
        exchange, own = open_exchange(request, self.pacing), request.extensions
        while exchange is not None:
            try:
                with PermitWait(exchange.refusal) as wait:
                    permit = await self._done(self._admit(exchange))
                    wait.waited_for = permit.waited_for
            except HeadwayError as error:
                status, headers, content = explain(error, exchange.wire, exchange.wait_s)
                return self.response_type(status, headers=headers, content=content)
            exchange.granted(permit)
            request.extensions = self._traced(own, exchange) if exchange.is_trial else own
            try:
                response: httpx2.Response = await self._done(self._send(request))
            except BaseException as error:
                if exchange.lost(error):
                    continue
                raise
            with exchange:
                if await self._is_handed_on(response, exchange):
                    return response
        unpaced: httpx2.Response = await self._done(self._send(request))
        return unpaced

    async def _is_handed_on(self, response: httpx2.Response, exchange: Exchange) -> bool:
        """Whether the caller gets this response, looked at; False if the call asks again."""
        stream = response.stream
        head: list[bytes] = []
        body = None if response.is_stream_consumed else self._body(stream)
        is_answer = exchange.responded(response.status_code, response.headers.raw)
        if body is None:
            # A transport that kept the whole body: its stream will not be read.
            exchange.fed(response.content)
            if is_answer:
                exchange.ended()
        elif not is_answer:
            head = await self._head(body, stream, exchange)
        if not is_answer and exchange.refused():
            await self._close(stream)
            return False
        if body is not None:
            response.stream = self.stream_type(head, body, stream, exchange)  # type: ignore[assignment]
        return True

    async def _head(self, body: Any, stream: object, exchange: Exchange) -> list[bytes]:
        """The beginning of an error body, enough to know why; the rest stays to be read."""
        head: list[bytes] = []
        left = BODY_BYTES_MAX
        try:
            read = anext if self.is_async else next
            while left > 0 and (data := await self._done(read(body, None))) is not None:
                exchange.fed(data)
                head.append(data)
                left -= len(data)
        except BaseException as error:
            # The client never sees this response, so it is closed here; the permit ends first.
            exchange.failed(error)
            await self._close(stream)
            raise
        return head

    def _traced(self, own: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
        """Report the connection of a trial when it stays open, not when its answer begins."""
        before = own.get("trace")

        async def trace(name: str, info: dict[str, Any]) -> None:
            if name.endswith(CONNECTED):
                await self._done((asyncio.sleep if self.is_async else time.sleep)(STAYS_S))
                connection = info["return_value"]
                if connection.get_extra_info(READABLE):
                    await self._close(connection)
                    raise self.error_type(CLOSED)
            elif name.endswith(KEPT):
                exchange.reached()
            if before is not None:
                await self._done(before(name, info))

        return {**own, "trace": trace if self.is_async else lambda *said: _at_once(trace(*said))}


class PacedTransport(_Transport, httpx2.BaseTransport):
    is_async = False
    stream_type = PacedStream

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return _at_once(self._handle(request))

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> PacedTransport:
        self.inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)


class AsyncPacedTransport(_Transport, httpx2.AsyncBaseTransport):
    is_async = True
    stream_type = AsyncPacedStream

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._handle(request)

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def __aenter__(self) -> AsyncPacedTransport:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.inner.__aexit__(*error)


CONNECTED: Final = "connect_tcp.complete"
KEPT: Final = "send_request_headers.started"
"""Events of httpcore: a connection is made; one that was made, or kept, is used."""
READABLE: Final = "is_readable"
"""Before a request there is nothing to be read of a connection but its end."""
CLOSED: Final = "the server closes connections at once"


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits: everything that it awaits blocks."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise InternalError("a call in a thread waited for a loop")
