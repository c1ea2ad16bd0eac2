"""Headers on their way through the gateway: as they came, without those of one hop."""

from __future__ import annotations

import pytest

from headway.gateway.guard import homeward, onward
from headway.gateway.values import Pairs, Upstream
from headway.wire.values import WireName

HOST = (b"Host", b"127.0.0.1:8787")
PAID = Upstream("paid", "https://paid.example", key="sk-secret")


def test_headers_go_on_as_they_came_without_those_of_the_hop() -> None:
    kept = (
        (b"Accept-Encoding", b"gzip"), (b"x-Weird_CASE", b"  b  "), (b"Cookie", b"a"),
        (b"Cookie", b"b"), (b"X-Api-Key", b"mine"), (b"Content-Type", b"application/json"),
        (b"anthropic-beta", b"x,y"), (b"Content-Encoding", b"gzip"),
        (b"X-Forwarded-For", b"1.2.3.4"),
    )  # fmt: skip
    hops = (
        HOST, (b"Content-Length", b"5"), (b"CONNECTION", b"close, X-Hop"),
        (b"connection", b"x-hop2"), (b"Keep-Alive", b"timeout=5"), (b"Proxy-Authorization", b"x"),
        (b"Proxy-Connection", b"x"), (b"TE", b"trailers"), (b"Trailer", b"x"),
        (b"Transfer-Encoding", b"chunked"), (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"x"),
        (b"x-HOP", b"1"), (b"X-Hop2", b"2"), (b"Expect", b"100-continue"),
    )  # fmt: skip
    mixed = tuple(pair for two in zip(hops, kept, strict=False) for pair in two) + hops[len(kept) :]
    assert onward(mixed, Upstream("anthropic", "https://x.example"), "anthropic") == list(kept)


@pytest.mark.parametrize(
    ("wire", "name", "brought", "sent"),
    [
        ("anthropic", "paid", (b"Authorization", b"Bearer mine"), (b"x-api-key", b"sk")),
        ("openai-chat", "paid", (b"x-api-key", b"mine"), (b"authorization", b"Bearer sk")),
        ("openai-responses", "anthropic", (b"X", b"y"), (b"authorization", b"Bearer sk")),
        ("openai-chat", "paid", (b"Api-Key", b"mine"), (b"api-key", b"sk")),
        ("gemini", "paid", (b"x-goog-api-key", b"mine"), (b"x-goog-api-key", b"sk")),
        (None, "anthropic", (b"Authorization", b"Bearer mine"), (b"x-api-key", b"sk")),
        (None, "gemini", (b"X", b"y"), (b"x-goog-api-key", b"sk")),
        (None, "paid", (b"anthropic-version", b"2023-06-01"), (b"x-api-key", b"sk")),
        (None, "paid", (b"X-Goog-Api-Key", b"mine"), (b"x-goog-api-key", b"sk")),
        (None, "paid", (b"X", b"y"), (b"authorization", b"Bearer sk")),
    ],
)
def test_an_added_key_goes_where_its_provider_looks_for_it(
    wire: WireName | None, name: str, brought: tuple[bytes, bytes], sent: tuple[bytes, bytes]
) -> None:
    upstream = Upstream(name, "https://x.example", key="sk")
    found = onward((HOST, brought, (b"User-Agent", b"me")), upstream, wire)
    assert sent in found
    assert (b"User-Agent", b"me") in found
    assert not any(b"mine" in value for _, value in found)


def test_an_added_key_replaces_every_other_in_the_place_of_the_first() -> None:
    own = tuple(
        (name, b"mine") for name in (b"Authorization", b"X-Api-Key", b"API-KEY", b"x-goog-api-key")
    )
    headers = ((b"A", b"1"), *own[:2], (b"B", b"2"), *own[2:])
    expected = [(b"A", b"1"), (b"x-api-key", b"sk-secret"), (b"B", b"2")]
    assert onward(headers, PAID, "anthropic") == expected
    # What the connection lists is taken away from the client's headers, not from ours.
    assert onward((*headers, (b"Connection", b"x-api-key")), PAID, "anthropic") == expected


def test_an_answers_headers_come_home_without_those_of_the_hop() -> None:
    kept = (
        (b"content-type", b"text/event-stream"), (b"anthropic-ratelimit-tokens-remaining", b"9"),
        (b"X-RateLimit-Limit-Requests", b"3"), (b"retry-after", b"1"),
        (b"content-encoding", b"gzip"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"),
        (b"Content-Length", b"10"),
    )  # fmt: skip
    hops = ((b"Connection", b"keep-alive, x-hop"), (b"Keep-Alive", b"timeout=5"), (b"X-Hop", b"1"))
    assert homeward((*hops, *kept)) == list(kept)
    assert homeward((*kept, (b"Transfer-Encoding", b"chunked"))) == list(kept[:-1])


def test_an_upstream_cannot_write_headers_of_its_choice_into_an_answer() -> None:
    good = (b"x", b"y")
    bad: Pairs = ((b"a", b"b\r\nset-cookie: c"), (b"a", b"\0"), (b"a b", b"c"), (b"a", b"\xff"))
    assert homeward((*bad, good)) == [good]
