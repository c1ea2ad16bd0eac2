"""What headway's HTTP servers share: body limits, headers, a thread to serve."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import SERVER_SOFTWARE
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from headway.wire.values import REQUEST_BYTES_MAX


class Served(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


S = TypeVar("S", bound=Served)


@contextmanager
def served_in_thread(make: Callable[[], S], name: str) -> Iterator[S]:
    """Make a server and serve from a thread of this process for as long as the block lasts."""
    started: Future[tuple[S, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        over = asyncio.Event()
        try:
            server = make()
            await server.start()
        except BaseException as error:
            # The boundary of a thread: the caller that waits for it must learn of every failure.
            started.set_exception(error)
            return
        started.set_result((server, asyncio.get_running_loop(), over))
        await over.wait()
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(run(),), name=name, daemon=True)
    thread.start()
    try:
        server, loop, over = started.result()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(over.set)
    finally:
        thread.join()


class _Request(web.BaseRequest):
    """A request whose responses do not name the HTTP library and its version."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        if response.headers.get("server") == SERVER_SOFTWARE:
            del response.headers["server"]


def large_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """A request that may be as large as a conversation gets."""
    loop = asyncio.get_running_loop()
    return _Request(
        message, payload, protocol, writer, task, loop, client_max_size=REQUEST_BYTES_MAX
    )


async def ask_for_body(request: web.BaseRequest) -> None:
    """Tell a client that waits for it to send the body. One that has gone is noticed later."""
    if request.headers.get("expect", "").lower() == "100-continue":
        with suppress(ConnectionError):
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
