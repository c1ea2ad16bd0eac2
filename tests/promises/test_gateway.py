"""The gateway over raw HTTP: what it refuses, what it shows, what it counts."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from tests.promises.user import SOON_S, Provider, provider, until, user

STORY: Final = "Tell me a story of " + "many words, " * 60
MESSAGES: Final = [{"role": "user", "content": STORY}]
BODIES: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "anthropic": (
        "/anthropic/v1/messages",
        {"model": "tokens-200", "max_tokens": 400, "messages": MESSAGES},
    ),
    "openai-chat": ("/openai/v1/chat/completions", {"model": "tokens-200", "messages": MESSAGES}),
    "openai-responses": ("/openai/v1/responses", {"model": "tokens-200", "input": STORY}),
    "gemini": (
        "/gemini/v1beta/models/tokens-200:",
        {"contents": [{"role": "user", "parts": [{"text": STORY}]}]},
    ),
}


class Gate(Struct, frozen=True):
    base: str
    provider: Provider

    @property
    def token(self) -> str:
        return self.base.rpartition("/")[2]

    @property
    def host(self) -> str:
        return self.base.split("/")[2]

    def raw(self, data: bytes, leave: Callable[[], object] | None = None) -> bytes:
        """Everything that the gateway answers to these bytes until it closes; with `leave`, the
        client leaves without reading once this is so."""
        address, _, port = self.host.partition(":")
        found = b""
        with socket.create_connection((address, int(port)), timeout=SOON_S) as line:
            line.sendall(data)
            if leave is not None:
                until(leave)
                return found
            while piece := line.recv(65536):
                found += piece
        return found

    def post(
        self, path: str, body: object, leave: Callable[[], object] | None = None, **headers: str
    ) -> bytes:
        """The whole response to a call, its head included."""
        sent = json.dumps(body).encode()
        fields = {
            "host": self.host, "connection": "close", "content-type": "application/json",
            "content-length": str(len(sent)), "authorization": "Bearer sk-someone", **headers,
        }  # fmt: skip
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return self.raw(f"POST /{self.token}{path} HTTP/1.1\r\n{head}\r\n".encode() + sent, leave)

    def page(self, name: str) -> str:
        with urllib.request.urlopen(f"{self.base}/{name}", timeout=SOON_S) as answer:
            return str(answer.read().decode())

    @property
    def total(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.page("status"))["total"]
        return found


@contextmanager
def gateway(root: Path, *options: str) -> Iterator[Gate]:
    """A gateway in the background, as a user starts it."""
    fast = ("--first-byte-s", "0.01", "--per-token-s", "0.0005")
    with provider(*fast) as behind, user(root) as someone:
        words = options or ("--upstream", behind.url)
        someone.headway("gateway", "--port", "0", "--detach", *words)
        told = json.loads(someone.headway("gateway", "env", "--json").stdout)
        try:
            yield Gate(told["HEADWAY_GATEWAY"], behind)
        finally:
            someone.headway("gateway", "stop", "--now")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gateway(tmp_path_factory.mktemp("gateway") / "user") as found:
        yield found


def chat(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize("characters", [1_025, 1_000_000])
def test_a_model_name_that_is_too_long_is_a_bad_request(gate: Gate, characters: int) -> None:
    before = gate.provider.truth()["arrivals_total"]
    # The longest line that the gateway reads has 64 KiB.
    in_path = f"/gemini/v1beta/models/{'m' * min(characters, 30_000)}:generateContent"
    for wire, (path, body) in BODIES.items():
        long = {**body, "model": "m" * characters}
        answer = gate.post(in_path, body) if wire == "gemini" else gate.post(path, long)
        head, _, told = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 "), (wire, head)
        error = json.loads(told)["error"]
        assert "name of a model" in error["message"], wire
    assert gate.provider.truth()["arrivals_total"] == before
    assert len(gate.page("status")) + len(gate.page("metrics")) < 100_000


@pytest.mark.parametrize(
    "name",
    ['quo"te', "back\\slash", "new\nline", "\x1b]0;title\x07\x1b[2J", "bidi\u202eodd", "\x85\x9b2J",
     "lone \ud800", "tab\there", "long " + "x" * 1000, "nul\x00"],
)  # fmt: skip
def test_labels_and_status_show_no_control_characters(gate: Gate, name: str) -> None:
    assert gate.post("/openai/v1/chat/completions", chat(name)).startswith(b"HTTP/1.1 200 ")
    for line in gate.page("metrics").splitlines():
        assert line.isprintable(), line
        assert len(line) < 1000
        if not line.startswith("#"):
            assert re.fullmatch(
                r'\w+(?:\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*\})? [0-9.e+-]+|\S+ (?:NaN|\+Inf)',
                line,
            ), line
    status = json.loads(gate.page("status"))
    for names in (status["by_model"], status["by_caller"], status["by_key"]):
        assert all(one.isprintable() and len(one) <= 100 for one in names)


REQUESTS: Final = (
    "GET /{token}/status HTTP/1.1\r\n{host}\r\n",
    "GET /{token}/metrics HTTP/1.1\r\n{host}\r\n",
    "GET /{token}/openai/v1/models HTTP/1.1\r\n{host}Authorization: Bearer {key}\r\n\r\n",
    "GET /{token}/x HTTP/9.9\r\n{host}\r\n",
    "GE T /{token}/x HTTP/1.1\r\n{host}\r\n",
    "GET /{token}/x y HTTP/1.1\r\n{host}\r\n",
    "GET /{token}/x\r\n\r\n",
    "GET http://[/{token}/x HTTP/1.1\r\n{host}\r\n",
    "GET http://{token}/x HTTP/1.1\r\n{host}\r\n",
    "CONNECT {token}:x HTTP/1.1\r\n{host}\r\n",
    "CONNECT /{token}/x:99999999 HTTP/1.1\r\n{host}\r\n",
    "{token} / HTTP/1.1\r\n{host}\r\n",
    "GET //{token}/x HTTP/1.1\r\n{host}\r\n",
    "GET /%ff{token}/x HTTP/1.1\r\n{host}\r\n",
    "GET /\xe9{token}/x HTTP/1.1\r\n{host}\r\n",
    "GET /{token} HTTP/1.1\r\n{host}\r\n",
    "GET /{token}/{token} HTTP/1.1\r\n{host}\r\n",
    "GET /nobody/{token} HTTP/1.1\r\n{host}\r\n",
    "GET /{token}/status HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host}Host: {token}\r\n\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host}Bad Header: {key}\r\n\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host}Authorization: {key}\x00\r\n\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host} folded {key}\r\n\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host}{key}\r\n\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host}Content-Length: {key}\r\n\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host}Transfer-Encoding: {key}\r\n\r\n",
    "GET /{token}/{long} HTTP/1.1\r\n{host}\r\n",
    "GET /{token}/status HTTP/1.1\r\n{host}X: {long}{key}\r\n\r\n",
    "POST /{token}/openai/v1/chat/completions HTTP/1.1\r\n{host}Content-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\n\r\n{key}\r\nabc",
    "POST /{token}/openai/v1/chat/completions HTTP/1.1\r\n{host}Content-Type: application/json\r\n"
    "Content-Encoding: {key}\r\nContent-Length: 2\r\n\r\n{{}}",
    "POST /{token}/gemini/v1beta/nothing?key={key} HTTP/1.1\r\n{host}Content-Length: 2\r\n\r\n{{}}",
)


@pytest.mark.parametrize("request_text", REQUESTS)
def test_no_response_repeats_a_token_or_a_key_or_names_the_library(
    gate: Gate, request_text: str
) -> None:
    key = "sk-proj-0123456789abcdef"
    host = f"Host: {gate.host}\r\nConnection: close\r\n"
    sent = request_text.format(token=gate.token, key=key, host=host, long="a" * 70_000)
    answer = gate.raw(sent.encode("latin-1"))
    assert answer.startswith(b"HTTP/"), answer
    for secret in (gate.token, gate.token[:20], key):
        assert secret.encode() not in answer, answer
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nserver:" not in head, head
    assert b"aiohttp" not in answer.lower()


@contextmanager
def spoilt_provider() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                with line:
                    line.recv(65536)
                    line.sendall(b"HTTP/1.1 200 OK\r\nBad Header: x\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(SOON_S)


def test_a_provider_that_fails_does_not_make_the_gateway_repeat_a_key(tmp_path: Path) -> None:
    key = "AIza-0123456789abcdef"
    with spoilt_provider() as url, gateway(tmp_path / "user", "--upstream", url) as gate:
        path, body = BODIES["gemini"]
        for target in (f"{path}generateContent?key={key}", f"/gemini/v1beta/files?key={key}"):
            answer = gate.post(target, body)
            assert answer.startswith(b"HTTP/1.1 502 "), answer
            assert key.encode() not in answer


FAULTS: Final = (
    "cut",
    "malformed",
    "error-event",
    "stall",
    "hang",
    "cut, gzip",
    "error-event, gzip",
)


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("wire", list(BODIES))
def test_an_answer_that_breaks_is_counted_as_what_was_paid(
    gate: Gate, wire: str, streams: bool
) -> None:
    """A whole answer teaches how long answers are; then none is counted below the truth."""
    _damaged(gate, wire, streams, "", "sk-first")
    for fault in FAULTS:
        before = gate.total
        key = f"sk-{wire}-{streams}-{fault.replace(', ', '-')}"
        _damaged(gate, wire, streams, fault, key)
        until(lambda seen=before["calls"]: gate.total["calls"] == seen + 1)  # type: ignore[misc]
        after, (visit,) = gate.total, visits(gate, key)
        for name in ("input_tokens", "output_tokens"):
            counted = after[name] - before[name]
            assert counted >= visit[name], (fault, name, counted, visit)
            assert counted <= 2 * max(visit[name], 200), (fault, name, counted, visit)


def visits(gate: Gate, key: str) -> list[dict[str, Any]]:
    """What the provider knows of the calls with a key."""
    name = hashlib.sha256(key.encode()).hexdigest()[:8]
    return [one for one in gate.provider.truth()["arrivals"] if one["key"] == name]


def _damaged(gate: Gate, wire: str, streams: bool, fault: str, key: str) -> None:
    path, body = BODIES[wire]
    sent: Mapping[str, object] = body
    if wire == "gemini":
        path += "streamGenerateContent?alt=sse" if streams else "generateContent"
    else:
        sent = {**body, "stream": streams}
    headers = {"x-sim-fault": fault, "accept-encoding": "gzip"}
    named = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(wire)
    headers |= {"authorization": "", named: key} if named else {"authorization": f"Bearer {key}"}
    ends = {"hang": "in flight", "stall": "stall"}.get(fault)
    leave = None if ends is None else lambda: [v for v in visits(gate, key) if v["how"] == ends]
    gate.post(path, sent, leave, **headers)


def test_a_complete_stream_without_usage_is_counted_by_its_text(gate: Gate) -> None:
    """Chat Completions reports usage only on request."""
    path, body = BODIES["openai-chat"]
    before = gate.total
    gate.post(path, {**body, "stream": True, "model": "tokens-20"})
    until(lambda: gate.total["calls"] == before["calls"] + 1)
    after = gate.total
    assert 20 <= after["output_tokens"] - before["output_tokens"] <= 40
    assert after["input_tokens"] - before["input_tokens"] >= 150


CALL: Final = """
import os, urllib.request as u
base = os.environ.get("OPENAI_BASE_URL") or os.environ["OPENAI_API_BASE"]
body, kind = b'{"model": "m", "messages": []}', {"content-type": "application/json"}
u.urlopen(u.Request(base.rstrip("/") + "/chat/completions", body, kind))
"""


@contextmanager
def paths_seen() -> Iterator[tuple[str, list[str]]]:
    """A provider that answers at any path, and the paths that it was called at."""
    seen: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            seen.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
    thread.join(SOON_S)


@pytest.mark.parametrize(
    ("variable", "path"),
    [
        ("OPENAI_BASE_URL", ""),
        ("OPENAI_BASE_URL", "/v1/"),
        ("OPENAI_BASE_URL", "/api/paas/v4"),
        ("OPENAI_API_BASE", "/v1beta/openai/"),
    ],
)
def test_an_address_keeps_its_path(tmp_path: Path, variable: str, path: str) -> None:
    with paths_seen() as (url, seen), user(tmp_path) as someone:
        someone.env[variable] = f"{url}{path}"
        ended = someone.headway("gateway", "--", sys.executable, "-c", CALL)
        assert ended.returncode == 0, ended.stderr
    assert seen == [f"{path.rstrip('/')}/chat/completions"]


def test_an_address_keeps_its_path_behind_the_gateway_of_a_shell(tmp_path: Path) -> None:
    """Also for another gateway that is started in that shell."""
    with paths_seen() as (url, seen), user(tmp_path) as someone:
        someone.env["OPENAI_BASE_URL"] = f"{url}/v4"
        someone.headway("gateway", "--port", "0", "--detach")
        someone.env |= json.loads(someone.headway("gateway", "env", "--json").stdout)
        subprocess.run([sys.executable, "-c", CALL], env=someone.env, check=True)
        someone.headway("gateway", "--wait", "9s", "--", sys.executable, "-c", CALL)
        someone.headway("gateway", "stop", "--now")
    assert seen == ["/v4/chat/completions"] * 2
