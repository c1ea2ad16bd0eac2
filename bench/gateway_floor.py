"""The least that a gateway can cost: bytes forwarded and a token looked at, in several ways.

    python -m bench.gateway_floor WAY UPSTREAM_PORT

- `aiohttp`, `aiohttp+uvloop`: aiohttp on both sides, as headway's own gateway does it.
- `httptools+uvloop`: two hand-written protocols around httptools' parser (the one of uvicorn), a
  body that is never looked at and headers that are copied line by line.
- `uvicorn+httpx2`: the pair that most gateways in Python are made of.

None of them paces, counts or keeps anything. The first line on standard output is the port.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final

TOKEN: Final = "token"
PREFIX: Final = f"/{TOKEN}"
HOP_BY_HOP: Final = frozenset({"connection", "host", "content-length", "transfer-encoding"})


async def _aiohttp(upstream: int) -> None:
    from aiohttp import ClientSession, TCPConnector, web

    session = ClientSession(
        f"http://127.0.0.1:{upstream}", connector=TCPConnector(limit=0), auto_decompress=False
    )

    async def forward(request: web.BaseRequest) -> web.StreamResponse:
        if not request.raw_path.startswith(PREFIX):
            return web.Response(status=401)
        body = await request.read()
        kept = {name: value for name, value in request.headers.items()
                if name.lower() not in HOP_BY_HOP}  # fmt: skip
        path = request.raw_path[len(PREFIX) :]
        async with session.request(request.method, path, headers=kept, data=body) as answer:
            back = {name: value for name, value in answer.headers.items()
                    if name.lower() not in HOP_BY_HOP}  # fmt: skip
            if answer.content_length is not None:
                return web.Response(status=answer.status, headers=back, body=await answer.read())
            told = web.StreamResponse(status=answer.status, headers=back)
            await told.prepare(request)
            async for data in answer.content.iter_any():
                await told.write(data)
            await told.write_eof()
            return told

    runner = web.ServerRunner(web.Server(forward))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


class _Side(asyncio.Protocol):
    """One connection, parsed by httptools; what it reads goes to the other side."""

    def __init__(self, bridge: Bridge, parser: str) -> None:
        self._bridge = bridge
        self._name = parser
        self._parser: Any = None
        self._headers: list[bytes] = []
        self._url = b""
        self.transport: Any = None
        self.busy_with: _Side | None = None
        self._is_chunked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._parser = getattr(import_module("httptools"), self._name)(self)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        other, self.busy_with = self.busy_with, None
        if other is not None:
            other.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._headers.clear()
        self._url = b""
        self._is_chunked = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"transfer-encoding":
            self._is_chunked = True
        if lower != b"host":
            self._headers += (name, b": ", value, b"\r\n")


class _Client(_Side):
    """A connection from a client."""

    def on_headers_complete(self) -> None:
        line = b"%s %s HTTP/1.1\r\nhost: 127.0.0.1\r\n" % (
            self._parser.get_method(), self._url[len(PREFIX) :],
        )  # fmt: skip
        self._bridge.send(self, b"".join((line, *self._headers, b"\r\n")))

    def on_body(self, data: bytes) -> None:
        self._bridge.send(self, data)


class _Provider(_Side):
    """A connection to the upstream."""

    def on_headers_complete(self) -> None:
        head = b"HTTP/1.1 %d OK\r\n" % self._parser.get_status_code()
        if self.busy_with is not None:
            self.busy_with.transport.write(b"".join((head, *self._headers, b"\r\n")))

    def on_body(self, data: bytes) -> None:
        if self.busy_with is not None:
            sent = b"%x\r\n%s\r\n" % (len(data), data) if self._is_chunked else data
            self.busy_with.transport.write(sent)

    def on_message_complete(self) -> None:
        client, self.busy_with = self.busy_with, None
        if client is not None:
            if self._is_chunked:
                client.transport.write(b"0\r\n\r\n")
            client.busy_with = None
        self._bridge.idle.append(self)


class Bridge:
    """Pairs connections."""

    def __init__(self, upstream: int) -> None:
        self.idle: deque[_Provider] = deque()
        self._upstream = upstream
        self._early: dict[_Side, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, client: _Side, data: bytes) -> None:
        if client.busy_with is not None:
            client.busy_with.transport.write(data)
        elif client in self._early:
            self._early[client].append(data)
        elif self.idle:
            self._join(client, self.idle.popleft())
            self.send(client, data)
        else:
            self._early[client] = [data]
            task = asyncio.get_running_loop().create_task(self._connect(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _join(self, client: _Side, provider: _Provider) -> None:
        client.busy_with, provider.busy_with = provider, client

    async def _connect(self, client: _Side) -> None:
        _, provider = await asyncio.get_running_loop().create_connection(
            lambda: _Provider(self, "HttpResponseParser"), "127.0.0.1", self._upstream
        )
        self._join(client, provider)
        provider.transport.write(b"".join(self._early.pop(client)))


async def _httptools(upstream: int) -> None:
    bridge = Bridge(upstream)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Client(bridge, "HttpRequestParser"), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _uvicorn(upstream: int) -> None:
    import httpx2

    client = httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{upstream}", limits=httpx2.Limits(), timeout=None
    )

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        kept = [pair for pair in scope["headers"] if pair[0].decode() not in HOP_BY_HOP]
        path = scope["path"][len(PREFIX) :]
        async with client.stream(
            scope["method"], path, headers=kept, content=b"".join(parts)
        ) as answer:
            back = [pair for pair in answer.headers.raw
                    if pair[0].lower() != b"transfer-encoding"]  # fmt: skip
            await send(
                {"type": "http.response.start", "status": answer.status_code, "headers": back}
            )
            async for data in answer.aiter_raw():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    uvicorn = import_module("uvicorn")
    settings = uvicorn.Config(application, port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


WAYS: Final[dict[str, tuple[Callable[[int], Awaitable[None]], bool]]] = {
    "aiohttp": (_aiohttp, False),
    "aiohttp+uvloop": (_aiohttp, True),
    "httptools+uvloop": (_httptools, True),
    "uvicorn+httpx2": (_uvicorn, True),
}
"""How to forward, and whether on uvloop."""


def main(arguments: list[str]) -> None:
    """Be one of them."""
    way, port = arguments
    forward, is_uvloop = WAYS[way]
    loop = import_module("uvloop").new_event_loop if is_uvloop else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_awaited(forward, int(port)))


async def _awaited(forward: Callable[[int], Awaitable[None]], port: int) -> None:
    await forward(port)


if __name__ == "__main__":
    main(sys.argv[1:])
