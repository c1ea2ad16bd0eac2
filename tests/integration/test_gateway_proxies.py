"""How the gateway reaches a provider: through the proxy of the environment, and with no password
of anybody's but the client's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headway.gateway.upstream import Sender

BODY = b'{"model": "m"}'


async def sent(sender: Sender, url: str) -> tuple[int, bytes]:
    response = await sender.send("POST", url, ((b"X-Api-Key", b"mine"),), BODY)
    try:
        return response.status, await response.read()
    finally:
        response.close()


async def heard_by(heard: list[bytes]) -> tuple[asyncio.Server, int]:
    """Somebody who writes down what is asked, and answers."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(len(BODY))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def test_a_provider_is_reached_through_the_proxy_with_its_own_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[bytes] = []

    async def main() -> None:
        server, port = await heard_by(heard)
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        sender = Sender()
        assert await sent(sender, "http://provider.invalid/v1/messages") == (200, b"ok")
        await sender.close()
        server.close()

    asyncio.run(main())
    assert heard[0].startswith(b"POST http://provider.invalid/v1/messages HTTP/1.1\r\n")
    lines = heard[0].lower().split(b"\r\n")
    assert b"proxy-authorization: basic bwu6c2vjcmv0" in lines
    assert b"host: provider.invalid" in lines


def test_a_host_that_is_exempt_is_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    async def main() -> None:
        server, port = await heard_by(heard)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        sender = Sender()
        assert await sent(sender, f"http://127.0.0.1:{port}/v1/messages") == (200, b"ok")
        await sender.close()
        server.close()

    asyncio.run(main())
    assert heard[0].startswith(b"POST /v1/messages HTTP/1.1\r\n")


def test_no_password_of_a_netrc_file_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heard: list[bytes] = []
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async def main() -> None:
        server, port = await heard_by(heard)
        sender = Sender()
        await sent(sender, f"http://127.0.0.1:{port}/v1/messages")
        await sender.close()
        server.close()

    asyncio.run(main())
    assert b"authorization" not in heard[0].lower()
