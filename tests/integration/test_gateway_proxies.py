"""How the gateway reaches a provider: by a certificate that this machine trusts, through the proxy
of the environment, and with no password of anybody's but the client's."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from yarl import URL

from headway.gateway.call import Sender
from tests.integration.broker_home import SOON_S

BODY = b'{"model": "m"}'


async def _reached(url: str) -> tuple[int, bytes]:
    sender = Sender()
    try:
        response = await sender.send("POST", url, ((b"X-Api-Key", b"mine"),), BODY)
        try:
            return response.status, await response.read()
        finally:
            response.close()
    finally:
        await sender.close()


def reached(url: str) -> tuple[int, bytes]:
    """What is answered at this address."""
    return asyncio.run(_reached(url))


def answers(heard: list[bytes]) -> Callable[[socket.socket], None]:
    """Writes down what is asked, and answers."""

    def answer(line: socket.socket) -> None:
        asked = b""
        while not asked.endswith(BODY):
            asked += line.recv(65_536)
        heard.append(asked)
        line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")

    return answer


def test_a_provider_is_reached_through_the_proxy_with_its_own_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[bytes] = []
    with listening(answers(heard)) as port:
        environment(monkeypatch, f"http://me:secret@127.0.0.1:{port}", "")
        assert reached("http://provider.invalid/v1/messages") == (200, b"ok")
    assert heard[0].startswith(b"POST http://provider.invalid/v1/messages HTTP/1.1\r\n")
    lines = heard[0].lower().split(b"\r\n")
    assert b"proxy-authorization: basic bwu6c2vjcmv0" in lines
    assert b"host: provider.invalid" in lines


def test_an_exempt_host_is_reached_directly_and_no_password_of_a_netrc_file_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heard: list[bytes] = []
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    environment(monkeypatch, "http://127.0.0.1:1", "127.0.0.1")
    with listening(answers(heard)) as port:
        assert reached(f"http://127.0.0.1:{port}/v1/messages") == (200, b"ok")
    assert heard[0].startswith(b"POST /v1/messages HTTP/1.1\r\n")
    assert b"authorization" not in heard[0].lower()


def certificate(folder: Path) -> ssl.SSLContext:
    """A provider's, signed by nobody but itself; it is also left in the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a private one")])
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + datetime.timedelta(days=9))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "trusted.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "trusted.pem", folder / "key.pem")
    return context


@contextmanager
def speaks_in_secret(folder: Path, heard: list[bytes]) -> Iterator[int]:
    """A provider with such a certificate, which writes down what is asked."""
    context = certificate(folder)

    def answer(line: socket.socket) -> None:
        # Whoever does not trust it hangs up before it has asked.
        with suppress(OSError), context.wrap_socket(line, server_side=True) as secret:
            heard.append(secret.recv(65_536))
            secret.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
            secret.unwrap()

    with listening(answer) as port:
        yield port


@contextmanager
def tunnel(tunnels: list[bytes]) -> Iterator[int]:
    """A proxy that writes down who wants a tunnel, and makes it."""

    def answer(line: socket.socket) -> None:
        with suppress(OSError):
            asked = line.recv(65_536)
            tunnels.append(asked)
            port = int(asked.split()[1].rpartition(b":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=SOON_S) as there:
                line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                ends = {line: there, there: line}
                while True:
                    for end in select.select(list(ends), [], [], SOON_S)[0]:
                        data = end.recv(65_536)
                        if not data:
                            return
                        ends[end].sendall(data)

    with listening(answer) as port:
        yield port


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Somebody who takes up one connection, in a thread."""

    def take(server: socket.socket) -> None:
        with suppress(OSError):
            line, _ = server.accept()
            with line:
                line.settimeout(SOON_S)
                answer(line)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=take, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
    thread.join(SOON_S)


def test_a_certificate_that_nobody_vouches_for_is_refused_before_anything_is_said(
    tmp_path: Path,
) -> None:
    heard: list[bytes] = []
    with (
        speaks_in_secret(tmp_path, heard) as port,
        pytest.raises(aiohttp.ClientConnectorCertificateError),
    ):
        reached(f"https://127.0.0.1:{port}/v1/messages")
    assert heard == []


@pytest.mark.parametrize("is_behind_proxy", [False, True])
def test_a_private_authority_is_trusted_also_through_a_proxy(
    is_behind_proxy: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heard: list[bytes] = []
    tunnels: list[bytes] = []
    with speaks_in_secret(tmp_path, heard) as port, tunnel(tunnels) as proxy_port:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
        if is_behind_proxy:
            monkeypatch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{proxy_port}")
            monkeypatch.setenv("no_proxy", "")
        assert reached(f"https://127.0.0.1:{port}/v1/messages") == (200, b"ok")
    assert len(tunnels) == is_behind_proxy
    assert all(b"proxy-authorization: basic bwu6c2vjcmv0" in one.lower() for one in tunnels)
    assert b"proxy-authorization" not in heard[0].lower()


@pytest.mark.parametrize(
    ("said", "exempt", "found"),
    [
        ("proxy.test:3128", "", "http://proxy.test:3128"),
        ("http://me:word@proxy.test:3128", "", "http://me:word@proxy.test:3128"),
        ("http://proxy.test", "provider.test:8080", None),
        ("http://proxy.test", "provider.test:9090", "http://proxy.test"),
        ("http://proxy.test", "provider.test", None),
        ("", "", None),
    ],
)
def test_the_environment_names_a_proxy_as_it_does_for_others(
    said: str, exempt: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, said, exempt)
    proxy = Sender()._proxy(URL("http://provider.test:8080/v1/messages"))
    assert proxy == (None if found is None else URL(found))


@pytest.mark.parametrize("exempt", ["::1", "[::1]", "[::1]:8080"])
def test_an_exempt_address_may_have_colons(exempt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, "http://proxy.test", exempt)
    assert Sender()._proxy(URL("http://[::1]:8080/v1/messages")) is None


@pytest.mark.parametrize("said", ["socks5://me:word@proxy.test", "http://me:word@[::1", "http://"])
def test_a_proxy_that_is_none_is_told_without_its_password(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, said, "")
    with pytest.raises(aiohttp.InvalidURL, match="http_proxy") as raised:
        Sender()._proxy(URL("http://provider.test/v1/messages"))
    assert "word" not in str(raised.value)


def environment(patch: pytest.MonkeyPatch, proxy: str, exempt: str) -> None:
    """These variables and no others."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        patch.delenv(name)
    patch.setenv("http_proxy", proxy)
    patch.setenv("no_proxy", exempt)
