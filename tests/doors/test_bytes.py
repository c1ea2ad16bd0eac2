"""Bytes of answers pass `pace` and the gateway unchanged, in the pieces in which they came."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec import Struct, field

import headway
from tests.promises.user import User, user

DATA = Path(__file__).parent.parent / "data" / "wire"
STREAMS = sorted(path.name for path in DATA.glob("*.sse"))
PIECE_BYTES = 97
"""Cuts where no event ends, as networks do."""
PATHS = {"anthropic": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
WHOLE = {
    "anthropic": b'{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":'
    b'"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}',
    "chat": b'{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}',
    "odd": b"\xff\xfe not JSON at all \x00",
}


class Upstream(Struct):
    """A provider that answers every request with the bytes of now, and keeps the requests."""

    url: str
    kind: str = "application/json"
    body: bytes = b"{}"
    requests: list[bytes] = field(default_factory=list)

    def answer(self, peer: socket.socket) -> None:
        self.requests.append(_request(peer))
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {self.kind}\r\nx-mine: Yes\r\n"
        peer.sendall(head.encode() + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        for at in range(0, len(self.body), PIECE_BYTES):
            piece = self.body[at : at + PIECE_BYTES]
            peer.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        peer.sendall(b"0\r\n\r\n")


@contextmanager
def upstream() -> Iterator[Upstream]:
    listener = socket.create_server(("127.0.0.1", 0))
    made = Upstream(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                made.answer(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _request(peer: socket.socket) -> bytes:
    """Everything of one request; its length is in its head."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += peer.recv(65536)
    head, body = got.split(b"\r\n\r\n", 1)
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", b"0")):
        body += peer.recv(65536)
    return body


def _asked(wire: str, stream: bool) -> bytes:
    message = {"role": "user", "content": "hé  \u2028 \U0001f600"}
    asked: dict[str, object] = {"model": "m", "stream": stream}
    asked |= {"input": "x"} if wire == "responses" else {"messages": [message], "max_tokens": 9}
    return json.dumps(asked, indent=3, ensure_ascii=False).encode()


def _gateway(someone: User, url: str) -> str:
    """A gateway in front of it, and the base by which clients reach it."""
    assert someone.headway("gateway", "--upstream", url, "--port", "0", "--detach").returncode == 0
    found = someone.headway("gateway", "env", "--json")
    base: str = json.loads(found.stdout)["ANTHROPIC_BASE_URL"]
    return base


CASES = [(name, (DATA / name).read_bytes(), "text/event-stream") for name in STREAMS]
CASES += [(wire, body, "application/json") for wire, body in WHOLE.items()]


def test_answers_and_requests_pass_pace_and_gateway_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(tmp_path) as someone, upstream() as provider:
        for name in ("RUNTIME", "STATE", "CONFIG"):
            monkeypatch.setenv(f"HEADWAY_{name}_DIR", someone.env[f"HEADWAY_{name}_DIR"])
        base = _gateway(someone, provider.url).removesuffix("/anthropic")
        paced, plain = headway.pace(httpx2.Client(timeout=60)), httpx2.Client(timeout=60)
        with paced, plain:
            for name, body, kind in CASES:
                wire = name.split("-")[0]
                path = PATHS.get(wire, PATHS["chat"])
                provider.kind, provider.body, provider.requests = kind, body, []
                asked = _asked(wire, stream="event" in kind)
                prefix = "anthropic" if wire == "anthropic" else "openai"
                for client, at in ((paced, provider.url), (plain, f"{base}/{prefix}")):
                    key = f"Bearer {name}-{client is paced}"  # an account of its own
                    sent = {"content-type": "application/json", "authorization": key}
                    answer = client.post(f"{at}{path}", content=asked, headers=sent)
                    assert answer.content == body, (name, at)
                    assert answer.headers["x-mine"] == "Yes"
                assert provider.requests == [asked, asked], name
