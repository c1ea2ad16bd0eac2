"""A gateway with short patience in front of a provider that writes down all that reaches it."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from msgspec import Struct, field

from headway.client.admission import AdmissionPort
from headway.client.connection import dial_alone
from headway.gateway import call, server
from headway.gateway.guard import Keyring
from headway.gateway.server import Gateway, serving
from headway.gateway.settings import GatewaySettings
from headway.gateway.values import GatewayKey, Upstream
from tests.integration.broker_home import until
from tests.integration.listener import listening

IDLE_S = 1.0
BODY_S = 1.0
"""How long the gateway of a test waits for a head and for a body: seconds, not minutes."""

DONE_S = 15.0
"""A connection that is open for longer than all patience together hangs."""

CALL = json.dumps(
    {"model": "tokens-5", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
).encode()

USAGE = {"input_tokens": 3, "output_tokens": 5}
ANSWER = json.dumps(
    {"id": "msg_1", "type": "message", "role": "assistant", "model": "tokens-5", "usage": USAGE,
     "content": [{"type": "text", "text": "word"}], "stop_reason": "end_turn",
     "stop_sequence": None}
).encode()  # fmt: skip


class Arrival(Struct, frozen=True):
    """A request as the provider got it."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Provider(Struct):
    """What has arrived, and how to answer."""

    port: int = 0
    arrivals: list[Arrival] = field(default_factory=list)
    status: int = 200
    answer: bytes = ANSWER
    extra_headers: tuple[tuple[str, str], ...] = ()
    pieces: int = 1
    """In how many pieces the answer comes, with a moment between two."""


class Scene(Struct):
    """All that a test looks at."""

    gateway: Gateway
    provider: Provider
    port: AdmissionPort
    key: GatewayKey
    fds: int
    """Open files before the first request."""

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.gateway.port

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.gateway.port}"

    @property
    def base(self) -> str:
        """The path of the upstream, with the token."""
        return f"/{self.key.token}/anthropic"

    @property
    def connections(self) -> int:
        server = self.gateway._server
        return 0 if server is None else len(server.connections)

    def request(self, body: bytes = CALL, *more: str, head: str = "", path: str = "") -> bytes:
        """A good call, or one that differs from it in one place."""
        lines = [
            head or f"POST {self.base}{path or '/v1/messages'} HTTP/1.1",
            f"Host: {self.host}",
            "Content-Type: application/json",
            "X-Api-Key: mine",
            f"Content-Length: {len(body)}",
            *more,
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    def talk(self, *parts: bytes, deadline_s: float = DONE_S) -> bytes:
        """Send, then read until the gateway closes the connection."""
        with socket.create_connection(self.address, timeout=deadline_s) as connection:
            heard = b""
            try:
                for part in parts:
                    connection.sendall(part)
                while data := connection.recv(65_536):
                    heard += data
            except ConnectionError:
                # Closed while there was more to send: as good as an end.
                pass
            return heard

    def is_quiet(self) -> bool:
        """Whether nothing is left of any request."""
        told = self.gateway
        return (
            (self.connections, told.in_flight, len(told.places)) == (0, 0, 0)
            and (self.port.waiting, self.port.in_use) == ({}, {})
            and self.key.in_flight == 0
            and len(os.listdir("/proc/self/fd")) <= self.fds
        )

    def until_quiet(self) -> None:
        """Wait until it is; say what is left where it never is."""
        try:
            until(self.is_quiet, DONE_S)
        except AssertionError:
            found = len(os.listdir("/proc/self/fd"))
            asked = f"{len(self.port.waiting)} waiting, {len(self.port.in_use)} in use"
            told = f"{self.gateway.in_flight} calls, {asked}"
            raise AssertionError(f"left: {told}, {found} files, {self.fds} before") from None


def statuses(heard: bytes) -> list[int]:
    """Of all responses in what was read from a connection; no body here looks like one."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] ([0-9]{3}) ", heard)]


@contextmanager
def scene(patch: pytest.MonkeyPatch, *, key: str = "", wait_s: float = 5.0) -> Iterator[Scene]:
    """Serve both until the block ends. `key` is one that the gateway adds."""
    patch.setattr(server, "IDLE_S_MAX", IDLE_S)
    patch.setattr(server, "LINGER_S", 0.2)
    patch.setattr(server, "BODY_S_MAX", BODY_S)
    patch.setattr(call.ParkedCalls.__init__, "__defaults__", (0.3,))
    patch.setattr(call, "IDLE_S_MAX", 0.05)
    provider = Provider()
    with _listening(provider):
        to = f"http://127.0.0.1:{provider.port}"
        upstreams = {
            "anthropic": Upstream("anthropic", to),
            "paid": Upstream("paid", to, key=key),
        }
        keys = Keyring()
        admission = AdmissionPort(dial_alone)
        settings = GatewaySettings(upstreams, wait_s=wait_s)
        with serving(settings, keys, admission) as gateway:
            found = Scene(gateway, provider, admission, keys.issue("default"), 0)
            # The first call opens what stays open: the lines of admission, the loop's own files.
            assert statuses(found.talk(found.request(CALL, "Connection: close"))) == [200]
            until(lambda: found.connections == 0)
            time.sleep(0.5)
            found.fds = len(os.listdir("/proc/self/fd"))
            provider.arrivals.clear()
            yield found
        admission.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = DONE_S

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = self.rfile.read(length)
            headers = tuple(self.headers.items())
            provider.arrivals.append(Arrival(self.command, self.path, headers, body))
            self.send_response(provider.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(provider.answer)))
            for name, value in provider.extra_headers:
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            size = -(-len(provider.answer) // provider.pieces)
            for start in range(0, len(provider.answer), size):
                self.wfile.write(provider.answer[start : start + size])
                if provider.pieces > 1:
                    time.sleep(0.05)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815
        do_OPTIONS = do_TRACE = do_CONNECT = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def _listening(provider: Provider) -> Iterator[None]:
    with listening(_handler(provider), _Listener) as port:
        provider.port = port
        yield
