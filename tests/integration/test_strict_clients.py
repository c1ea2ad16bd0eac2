"""The same clients, in strict validation, straight to a provider and through the gateway.

Whatever a client gets, an answer or an exception, is the same either way, and so are the bytes.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from google.genai import errors

from headway.base.values import Limit
from headway.sim.account import Terms
from headway.sim.delivery import HEADER
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import serving, truth_of
from tests.integration.broker_home import until
from tests.integration.gateway_home import (
    Bases,
    GatewayHome,
    asked,
    claude,
    direct,
    gateway_and_provider,
    gateway_to,
    gemini,
    gpt,
)
from tests.integration.listener import listening

SPEC = ProviderSpec(
    "strict", Terms((Limit("requests", 6e4), Limit("tokens", 1e9))), Latency(0.005, 0.0001)
)
TEXT = "one two three four five"
WORD = "one"
"""How many events an answer of many words is streamed in depends on the moment."""
Told = tuple[object, ...]


def messages(bases: Bases) -> Told:
    with claude(bases) as client:
        whole = client.messages.create(model="echo", max_tokens=99, messages=asked(TEXT))
        with client.messages.stream(model="echo", max_tokens=99, messages=asked(WORD)) as stream:
            pieces, last = list(stream.text_stream), stream.get_final_message()
        counted = client.messages.count_tokens(model="echo", messages=asked(TEXT))
    return whole.content, whole.usage, pieces, last.usage, counted.input_tokens


def chat(bases: Bases) -> Told:
    with gpt(bases) as client:
        whole = client.chat.completions.create(model="echo", messages=asked(TEXT))
        with client.chat.completions.create(
            model="echo", messages=asked(WORD), stream=True, stream_options={"include_usage": True}
        ) as stream:
            parts = [(part.choices, part.usage) for part in stream]
        names = [model.id for model in client.models.list()]
    return whole.choices, whole.usage, parts, names


def responses(bases: Bases) -> Told:
    with gpt(bases) as client:
        whole = client.responses.create(model="echo", input=TEXT)
        with client.responses.create(model="echo", input=WORD, stream=True) as stream:
            events = [(event.type, getattr(event, "delta", "")) for event in stream]
    return whole.output_text, whole.usage, events


def generate(bases: Bases) -> Told:
    with gemini(bases) as client:
        whole = client.models.generate_content(model="echo", contents=TEXT)
        stream = client.models.generate_content_stream(model="echo", contents=WORD)
        parts = [(part.text, part.usage_metadata) for part in stream]
        counted = client.models.count_tokens(model="echo", contents=TEXT)
    return whole.text, whole.usage_metadata, parts, counted.total_tokens


async def generate_async(bases: Bases) -> Told:
    async with gemini(bases).aio as client:
        whole = await client.models.generate_content(model="echo", contents=TEXT)
        stream = await client.models.generate_content_stream(model="echo", contents=WORD)
        parts = [part.text async for part in stream]
    return whole.text, parts


@pytest.fixture(scope="module")
def ways() -> Iterator[tuple[Bases, GatewayHome]]:
    """Two providers of the same seed: one with the gateway in front."""
    with serving(SPEC) as url, gateway_and_provider(SPEC) as home:
        yield direct(url), home


@pytest.mark.parametrize("clients", [messages, chat, responses, generate])
def test_synchronous_clients_get_the_same(
    clients: Callable[[Bases], Told], ways: tuple[Bases, GatewayHome]
) -> None:
    straight, home = ways
    assert clients(home.bases) == clients(straight)


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
def test_an_asynchronous_client_on_another_http_library_gets_the_same(
    ways: tuple[Bases, GatewayHome],
) -> None:
    straight, home = ways
    assert asyncio.run(generate_async(home.bases)) == asyncio.run(generate_async(straight))


def failure(call: Callable[[], object]) -> Told:
    """What a client raises, as far as it can be the same twice."""
    try:
        return ("nothing", call())
    except (anthropic.APIError, openai.APIError) as error:
        return (type(error).__name__, getattr(error, "status_code", 0), error.body)
    except ValueError as error:
        return ("ValueError", str(error)[:60])
    except errors.APIError as error:
        return (type(error).__name__, error.code, error.status)


FAULTS = ("500", "billing", "spend-cap", "error-event", "cut", "malformed", "gzip")
"""All but refusals and overloads, which the gateway absorbs."""


def failures(bases: Bases, kind: str) -> Told:
    extra = {HEADER: kind}
    # An account whose bill is not paid takes no more calls: each has one of its own.
    keys = [f"{kind} {number}" for number in range(3)]
    with claude(bases, keys[0]) as one, gpt(bases, keys[1]) as other, gpt(bases, keys[2]) as third:
        told = [
            failure(
                lambda: (
                    one.messages.create(
                        model="echo", max_tokens=9, messages=asked(TEXT), extra_headers=extra
                    ).content
                )
            ),
            failure(
                lambda: "".join(
                    part.choices[0].delta.content or ""
                    for part in other.chat.completions.create(
                        model="tokens-60", messages=asked(TEXT), stream=True, extra_headers=extra
                    )
                    if part.choices
                )
            ),
            failure(
                lambda: (
                    third.responses.create(
                        model="echo", input=TEXT, extra_headers=extra
                    ).output_text
                )
            ),
        ]
    return tuple(_without_ids(one) for one in told)


def _without_ids(value: object) -> object:
    return re.sub(r"req_[0-9a-fx]+|(msg_|chatcmpl-|resp_)[0-9a-f]+", "ID", repr(value))


@pytest.mark.parametrize("kind", FAULTS)
def test_failures_are_the_same(kind: str, ways: tuple[Bases, GatewayHome]) -> None:
    straight, home = ways
    assert failures(home.bases, kind) == failures(straight, kind)


def raw(base: str, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Told:
    """Status, headers and bytes of one response."""
    parts = urlsplit(base)
    line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        line.request(method, parts.path + path, body, headers)
        response = line.getresponse()
        found = response.read()
        fields = sorted((name.lower(), value) for name, value in response.getheaders())
    finally:
        line.close()
    return response.status, fields, found


ADDED = {"date", "server", "transfer-encoding", "connection", "keep-alive"}


def plain(told: Told) -> Told:
    """Without what differs from second to second, and from server to server."""
    status, fields, body = told
    assert isinstance(fields, list)
    assert isinstance(body, bytes)
    kept = [(name, value) for name, value in fields if name not in ADDED]
    kept = [(name, re.sub(r"req_[0-9a-fx]+", "ID", value)) for name, value in kept]
    kept = [(name, "T" if "reset" in name or "remaining" in name else value)
            for name, value in kept]  # fmt: skip
    text = re.sub(rb'"(created|created_at)": ?[0-9.]+', b"", body)
    return status, kept, re.sub(rb"(req_|msg_|chatcmpl-|resp_|call_)[0-9a-fx]+", b"ID", text)


BODIES = {
    "/v1/messages": {"model": "echo", "max_tokens": 50, "messages": asked(WORD)},
    "/v1/chat/completions": {"model": "echo", "messages": asked(WORD)},
    "/v1/responses": {"model": "echo", "input": WORD},
}


class Canned(BaseHTTPRequestHandler):
    """Answers with the same odd bytes each time, in odd pieces."""

    protocol_version = "HTTP/1.1"
    PIECES = (b"data: {", b'"choices"', b":[]}\r\n\r\n: what\n\nda", b"ta: \xc3\xa9 {broken\n\n",
              b"\x00\xff" * 5_000, b"data: [DONE]")  # fmt: skip

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200, "Fine")
        for name, value in (("content-type", "text/event-stream"), ("X-Odd", "a"), ("x-odd", "b"),
                            ("Set-Cookie", "one=1"), ("Set-Cookie", "two=2"),
                            ("transfer-encoding", "chunked")):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        for piece in (*self.PIECES, b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def log_message(self, *words: object) -> None:
        """Not a word."""


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_whatever_a_provider_streams_comes_through(path: str) -> None:
    body = json.dumps({**BODIES[path], "stream": True}).encode()
    headers = {"content-type": "application/json", "x-api-key": "k"}
    with listening(Canned) as port:
        url = f"http://127.0.0.1:{port}"
        with gateway_to(url) as home:
            through = plain(raw(f"{home.base}/anthropic", "POST", path, body, headers))
        assert through == plain(raw(url, "POST", path, body, headers))
        assert through[2] == b"".join(Canned.PIECES)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/hash", "/nowhere", "/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_probes_are_passed(method: str, path: str, ways: tuple[Bases, GatewayHome]) -> None:
    straight, home = ways
    headers = {"x-api-key": "k", "content-type": "application/json"}
    body = b"{}" if method == "POST" else None
    through = plain(raw(f"{home.base}/openai", method, path, body, headers))
    assert through[0] == plain(raw(straight.anthropic, method, path, body, headers))[0]


def test_nothing_was_refused_or_left_in_flight(ways: tuple[Bases, GatewayHome]) -> None:
    _, home = ways
    until(lambda: home.gateway.in_flight == 0)
    until(lambda: truth_of(home.upstream)["in_flight"] == 0)
