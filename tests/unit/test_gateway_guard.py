"""The gateway's door: every way in that is meant, and every other one refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import BadValueError
from headway.gateway.guard import Keyring, examine, homeward, hosts_of, onward
from headway.gateway.values import Pairs, Passed, Turned, Upstream
from headway.wire.values import REQUEST_BYTES_MAX, Route, WireName

PORT = 8787
HOSTS = hosts_of(PORT)
KEYS = Keyring()
KEY = KEYS.issue("default", token="a-token-that-is-the-same-in-every-process-aB")
T = KEY.token
UPSTREAMS = {
    name: Upstream(name, f"https://{name}.example") for name in ("anthropic", "openai", "gemini")
} | {"paid": Upstream("paid", "https://paid.example", key="sk-secret")}

HOST = (b"Host", b"127.0.0.1:8787")
OWN = (b"X-Api-Key", b"mine")
JSON = (b"Content-Type", b"application/json")
MESSAGES = f"/{T}/anthropic/v1/messages"


def ask(
    target: str = MESSAGES,
    *headers: tuple[bytes, bytes],
    method: str = "POST",
    base: Iterable[tuple[bytes, bytes]] = (HOST, JSON, OWN),
) -> Passed | Turned:
    """The answer of the door to a request that differs from a good one as little as possible."""
    return examine(method, target, (*base, *headers), KEYS, UPSTREAMS, HOSTS)


def refused(answer: Passed | Turned) -> tuple[int, str]:
    assert isinstance(answer, Turned), f"let in: {answer}"
    assert answer.message
    return answer.status, answer.code


def passed(answer: Passed | Turned) -> Passed:
    assert isinstance(answer, Passed), f"refused: {answer}"
    return answer


@pytest.mark.parametrize(
    ("path", "wire"),
    [
        ("anthropic/v1/messages", "anthropic"),
        ("anthropic/v1/messages?beta=true", "anthropic"),
        ("openai/v1/chat/completions", "openai-chat"),
        ("openai/v1/responses", "openai-responses"),
        ("openai/openai/deployments/mine/chat/completions?api-version=1", "openai-chat"),
        ("gemini/v1beta/models/gemini-9:generateContent", "gemini"),
        ("gemini/v1beta/models/gemini-9:streamGenerateContent?alt=sse", "gemini"),
    ],
)
def test_a_call_goes_to_its_upstream_with_its_path_as_it_was_sent(
    path: str, wire: WireName
) -> None:
    found = passed(ask(f"/{T}/{path}"))
    name, _, rest = path.partition("/")
    assert found.key is KEY
    assert found.upstream is UPSTREAMS[name]
    assert found.path == f"/{rest}"
    assert found.route is not None
    assert (found.route.wire, found.route.purpose) == (wire, "generate")


@pytest.mark.parametrize("target", [f"/{T}/anthropic", f"/{T}/anthropic/"])
def test_a_look_whether_anybody_is_there_needs_no_key(target: str) -> None:
    found = passed(ask(target, method="HEAD", base=[HOST]))
    assert (found.path, found.route) == ("/", None)


@pytest.mark.parametrize("page", ["status", "metrics"])
def test_an_own_page_is_for_reading(page: str) -> None:
    for method in ("GET", "HEAD"):
        found = passed(ask(f"/{T}/{page}", method=method, base=[HOST]))
        assert (found.upstream, found.path) == (None, f"/{page}")
    assert refused(ask(f"/{T}/{page}")) == (405, "method")
    assert refused(ask(f"/{T}/{page}/x", method="GET", base=[HOST])) == (404, "path")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8787", "[::1]:8787", "localhost:8787", "LocalHost:8787"]
)
def test_a_loopback_address_with_our_port_is_ours(host: str) -> None:
    passed(ask(base=[(b"host", host.encode()), JSON]))


def test_at_the_port_of_http_itself_the_port_may_be_left_out() -> None:
    assert {"localhost", "127.0.0.1:80"} <= hosts_of(80)
    assert "localhost" not in HOSTS


def test_our_own_origin_is_no_foreign_one() -> None:
    passed(
        ask(MESSAGES, (b"Origin", b"http://127.0.0.1:8787"), (b"Sec-Fetch-Site", b"same-origin"))
    )
    passed(ask(f"/{T}/status", (b"Sec-Fetch-Site", b"none"), method="GET"))


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example:8787", b"evil.example", b"127.0.0.1", b"127.0.0.1:80", b"localhost.:8787",
        b"127.0.0.1:8787.evil.example", b"127.0.0.1:8787@evil.example", b"127.1:8787", b"",
        b"0.0.0.0:8787", b"[::ffff:127.0.0.1]:8787", b"2130706433:8787", b"127.0.0.1:08787",
        b"127.0.0.1:8787/x", "lo\u0441alhost:8787".encode(),
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_point_here_is_refused(host: bytes) -> None:
    assert refused(ask(base=[(b"Host", host), JSON])) == (403, "host")


def test_a_request_has_exactly_one_host() -> None:
    assert refused(ask(base=[JSON])) == (400, "request")
    assert refused(ask(base=[HOST, HOST, JSON])) == (400, "request")
    assert refused(ask(base=[HOST, (b"host", b"evil.example"), JSON])) == (400, "request")


@pytest.mark.parametrize(
    "origin",
    [
        b"https://evil.example", b"null", b"", b"http://127.0.0.1:8788", b"https://127.0.0.1:8787",
        b"http://localhost:8787", b"http://127.0.0.1:8787.evil.example", b"file://",
        b"http://127.0.0.1:8787/", b"http://127.0.0.1:8787, https://evil.example",
    ],
)  # fmt: skip
def test_a_page_of_another_origin_is_refused(origin: bytes) -> None:
    assert refused(ask(MESSAGES, (b"Origin", origin))) == (403, "origin")
    own = (b"Origin", b"http://127.0.0.1:8787")
    assert refused(ask(MESSAGES, own, (b"origin", origin))) == (403, "origin")


@pytest.mark.parametrize("site", [b"cross-site", b"same-site", b"", b"none, cross-site", b"?"])
def test_a_page_of_another_site_is_refused(site: bytes) -> None:
    target = f"/{T}/status"
    assert refused(ask(target, (b"Sec-Fetch-Site", site), method="GET")) == (403, "origin")


@pytest.mark.parametrize(
    "kind",
    [
        b"text/plain", b"text/plain;charset=UTF-8", b"application/x-www-form-urlencoded", b"",
        b"multipart/form-data; boundary=x", b"text/json", b"application/json5",
        b"text/plain, application/json", b"text/plain; a=application/json",
    ],
)  # fmt: skip
def test_a_form_is_not_a_call(kind: bytes) -> None:
    assert refused(ask(base=[HOST, (b"Content-Type", kind)])) == (415, "type")


def test_the_type_of_a_body_is_said_once_and_may_have_parameters() -> None:
    assert refused(ask(base=[HOST])) == (415, "type")
    assert refused(ask(MESSAGES, JSON)) == (415, "type")
    passed(ask(base=[HOST, (b"content-type", b"Application/JSON ; charset=utf-8")]))


@pytest.mark.parametrize(
    "method", ["OPTIONS", "CONNECT", "TRACE", "PRI", "PROPFIND", "get", "", "M-SEARCH"]
)
def test_there_is_no_preflight_no_tunnel_and_no_echo(method: str) -> None:
    assert refused(ask(method=method)) == (405, "method")


def test_a_token_is_not_taken_from_anywhere_else() -> None:
    token = T.encode()
    brought = [(b"Authorization", b"Bearer " + token), (b"Cookie", b"token=" + token)]
    assert refused(ask(f"/anthropic/v1/messages?token={T}", *brought)) == (401, "token")


@pytest.mark.parametrize(
    "rest", ["", "/", "/nobody/v1/messages", "/Anthropic/v1/messages", "/v1/messages"]
)
def test_an_upstream_that_is_not_there_is_not_found(rest: str) -> None:
    assert refused(ask(f"/{T}{rest}")) == (404, "path")


@pytest.mark.parametrize(
    "target",
    [
        f"http://evil.example/{T}/anthropic/v1/messages", f"https://127.0.0.1:8787/{T}/status",
        "127.0.0.1:8787", "*", "", T, f"//evil.example/{T}", f"//{T}/anthropic/v1/messages",
        *(
            f"/{T}/anthropic/{rest}"
            for rest in (
                "../openai/v1/messages", "v1/../../status", "v1/%2e%2e/messages",
                "v1/.%2E/messages", "./v1/messages", "v1/%2e/messages", "v1//messages",
                "/v1/messages", "v1/messages//", "v1\\messages",
                "v1/%5c..%5cmessages", "v1%2fmessages", "v1%2Fmessages",
                "v1/%252e%252e/messages", "v1/%00messages", "v1/mess\x01ages", "v1/mess ages",
                "v1/messages\x7f", "v1/messages%0d%0aX: y", "v1/messages%20", "v1/m\u00e9ssages",
                "v1/m%c3%a9ssages", "v1/%ff", "v1/%", "v1/%zz", "v1/%u002e", "v1/messages#x",
                "v1/messages;x=1", "v1/<x>", 'v1/"x"', "v1/{x}", "v1/messages?x=\x00",
                "v1/messages?x=\r\ny: z", "v1/messages?x= y", "v1/messages?x=%", "v1/messages?#",
                "v1/%3f", "v1/%23",
            )
        ),
    ],
)  # fmt: skip
def test_a_path_that_leads_somewhere_else_is_refused(target: str) -> None:
    assert refused(ask(target)) == (400, "path")


def test_a_call_is_a_call_however_it_is_spelled() -> None:
    found = passed(ask(f"/{T}/anthropic/v1/%6dessages/"))
    assert found.route == Route("anthropic")
    assert found.path == "/v1/%6dessages/"


@pytest.mark.parametrize(
    "headers",
    [
        [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")],
        [(b"Content-Length", b"5"), (b"Content-Length", b"5")],
        [(b"Content-Length", b"5"), (b"content-length", b"6")],
        *(
            [(b"Content-Length", value)]
            for value in (
                b"+5", b"-5", b"5, 5", b"0x5", b"5 5", b"", b"1_0", b"9" * 16, "\u0665".encode()
            )
        ),
        *(
            [(b"Transfer-Encoding", value)]
            for value in (
                b"identity", b"gzip, chunked", b"chunked, chunked", b"xchunked", b"", b"chunked\x0b"
            )
        ),
        [(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"chunked")],
        [(b"X", b"a\r\nY: b")], [(b"X", b"a\nb")], [(b"X", b"a\0b")],
        [(b"X", b"a\rb")], [(b"X", b"\xff")],
        [(b"X\n", b"")], [(b"X Y", b"")], [(b"X:", b"")], [(b"", b"x")], [(b"X\xe9", b"")],
        [(b"Content-Encoding", b"gzip"), (b"Content-Encoding", b"gzip")],
    ],
)  # fmt: skip
def test_what_can_be_understood_in_two_ways_is_refused(
    headers: list[tuple[bytes, bytes]],
) -> None:
    assert refused(ask(MESSAGES, *headers)) == (400, "request")


def test_what_is_read_has_no_body() -> None:
    target = f"/{T}/status"
    for header in ((b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")):
        assert refused(ask(target, header, method="GET")) == (400, "request")
    passed(ask(target, (b"Content-Length", b"0"), method="GET"))


def test_nobody_changes_to_another_protocol() -> None:
    hop = (b"Connection", b"Upgrade")
    for to in (b"websocket", b"h2c, websocket", b"TLS/1.0", b""):
        assert refused(ask(MESSAGES, hop, (b"Upgrade", to))) == (426, "upgrade")
    two = ((b"Upgrade", b"h2c"), (b"Upgrade", b"websocket"))
    assert refused(ask(MESSAGES, hop, *two)) == (426, "upgrade")


def test_an_offer_of_http_2_is_declined_by_going_on() -> None:
    passed(ask(MESSAGES, (b"Connection", b"Upgrade, HTTP2-Settings"), (b"Upgrade", b"h2c")))


def test_an_expectation_other_than_to_go_on_cannot_be_met() -> None:
    passed(ask(MESSAGES, (b"Expect", b"100-Continue")))
    assert refused(ask(MESSAGES, (b"Expect", b"200-ok"))) == (417, "request")


def test_a_header_may_hold_any_text() -> None:
    passed(ask(MESSAGES, (b"X-Title", "caf\u00e9 \u2713\t!".encode())))


def test_a_body_that_says_it_is_too_large_is_not_waited_for() -> None:
    largest = str(REQUEST_BYTES_MAX).encode()
    passed(ask(MESSAGES, (b"Content-Length", largest)))
    larger = str(REQUEST_BYTES_MAX + 1).encode()
    assert refused(ask(MESSAGES, (b"Content-Length", larger))) == (413, "size")
    assert refused(ask(f"/{T}/openai/v1/files", (b"Content-Length", larger))) == (413, "size")


@pytest.mark.parametrize("encoding", [b"compress", b"gzip, gzip", b"x-unknown", b"aes128gcm"])
def test_a_call_that_cannot_be_read_is_refused_rather_than_sent_unpaced(encoding: bytes) -> None:
    answer = ask(MESSAGES, (b"Content-Encoding", encoding))
    assert refused(answer) == (415, "type")
    assert isinstance(answer, Turned)
    assert "enable_request_compression=false" in answer.hint


def test_what_is_no_call_may_be_encoded_as_its_upstream_likes() -> None:
    passed(ask(f"/{T}/openai/v1/files", (b"Content-Encoding", b"x-unknown")))


@pytest.mark.parametrize(
    "key",
    [
        (b"x-api-key", b"k"),
        (b"Authorization", b"Bearer k"),
        (b"api-key", b"k"),
        (b"X-Goog-Api-Key", b"k"),
    ],
)
def test_other_paths_are_for_clients_with_a_key_of_their_own(key: tuple[bytes, bytes]) -> None:
    target = f"/{T}/openai/v1/files?limit=3"
    for method in ("GET", "DELETE", "POST", "PUT", "PATCH"):
        assert passed(ask(target, key, method=method, base=[HOST])).route is None
    assert refused(ask(target, method="GET", base=[HOST])) == (403, "path")
    assert refused(ask(target, (key[0], b" "), method="GET", base=[HOST])) == (403, "path")


def test_a_key_in_the_query_is_a_key_of_its_own() -> None:
    found = passed(ask(f"/{T}/gemini/v1beta/files?a=1&key=k", method="GET", base=[HOST]))
    assert found.path == "/v1beta/files?a=1&key=k"
    for query in ("key=", "monkey=k", "a=key"):
        target = f"/{T}/gemini/v1beta/files?{query}"
        assert refused(ask(target, method="GET", base=[HOST])) == (403, "path")


def test_a_call_without_any_key_is_the_providers_to_refuse() -> None:
    passed(ask(base=[HOST, JSON]))
    passed(ask(f"/{T}/openai/v1/models", method="GET", base=[HOST]))


LISTED = """
    POST v1/messages?beta=true | POST v1/messages/count_tokens | POST messages | POST v1/responses
    POST v1/chat/completions | POST chat/completions | POST v1/responses/input_tokens
    POST v1beta/models/gemini-9.1-pro:streamGenerateContent?alt=sse
    POST v1beta/models/gemini-9:generateContent | POST v1beta/models/gemini-9:countTokens
    GET v1/models | GET v1/models?limit=9 | GET v1beta/models/gemini-9
    GET v1/models/ft:gpt-9:me::1 | HEAD / | HEAD v1 | HEAD v1/messages | HEAD v1/models
"""
UNLISTED = """
    GET / | GET v1 | GET v1/messages | POST v1/files | GET v1/files | HEAD v1/files
    DELETE v1/models/m | POST v1/models | POST v1/messages/batches | GET v1/responses/resp_1
    DELETE v1/responses/resp_1 | POST v1/embeddings | POST v1/organizations/api_keys/messages
    POST v1/threads/t/messages | POST v1beta/models/m:batchGenerateContent
    POST v1beta/tunedModels/m:generateContent | POST v1/mess%61ges | POST v1/v1/messages
    PUT v1/messages | PATCH v1/responses | POST v1beta/models/a/b:generateContent
    GET v1/models/a/b | POST evil/messages | POST v1/chat/completions/x
    GET v1/models/m?$httpMethod=DELETE | GET v1/models/m?a=b&%24httpMethod=DELETE
"""


def requests(text: str) -> list[tuple[str, str]]:
    """Method and path of each."""
    lines = text.strip().replace("\n", "|").split("|")
    return [(method, f"/{path.lstrip('/')}") for method, path in map(str.split, lines)]


@pytest.mark.parametrize(("method", "path"), requests(LISTED))
def test_a_key_that_the_gateway_adds_is_for_calls(method: str, path: str) -> None:
    found = passed(ask(f"/{T}/paid{path}", method=method))
    assert found.path == path


@pytest.mark.parametrize(("method", "path"), requests(UNLISTED))
def test_a_key_that_the_gateway_adds_reaches_nothing_else(method: str, path: str) -> None:
    assert refused(ask(f"/{T}/paid{path}", method=method)) == (403, "path")


@pytest.mark.parametrize("name", [b"X-HTTP-Method-Override", b"X-Original-URL", b"x-rewrite-url"])
def test_with_an_added_key_no_header_makes_another_request_of_it(name: bytes) -> None:
    assert refused(ask(f"/{T}/paid/v1/messages", (name, b"x"))) == (403, "path")
    passed(ask(MESSAGES, (name, b"x")))


def test_an_added_key_replaces_the_one_in_the_query() -> None:
    target = f"/{T}/paid/v1beta/models/m:generateContent?alt=sse&key=mine&x=1&%6bey=too&key="
    assert passed(ask(target)).path == "/v1beta/models/m:generateContent?alt=sse&x=1"


def test_a_key_that_the_gateway_adds_is_never_shown() -> None:
    answers = [ask(f"/{T}/paid/v1/files"), ask(f"/{T}/nobody"), ask(f"/{T}/paid/v1/messages")]
    assert not any("sk-secret" in repr(answer) or T in repr(answer) for answer in answers)


ANY_HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [b"Host", b"Origin", b"Content-Length", b"Transfer-Encoding", b"Content-Type",
             b"Upgrade", b"Sec-Fetch-Site", b"Content-Encoding", b"X-Api-Key", b"Connection"]
        )
        | st.binary(max_size=8),
        st.sampled_from([HOST[1], b"application/json", b"chunked", b"5", b"none", b"gzip"])
        | st.binary(max_size=12),
    ),
    max_size=6,
).map(tuple)  # fmt: skip
ANY_TARGET = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from([T, "anthropic", "paid", "v1", "messages", "status", "..", "%2e", "", "?"]),
        max_size=6,
    ).map(lambda parts: "/" + "/".join(parts)),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["GET", "POST"]) | st.text(max_size=8), ANY_TARGET, ANY_HEADERS)
def test_whatever_comes_is_answered_and_nothing_gets_in_without_token_and_host(
    method: str, target: str, headers: Pairs
) -> None:
    answer = examine(method, target, headers, KEYS, UPSTREAMS, HOSTS)
    if isinstance(answer, Turned):
        assert 400 <= answer.status < 500
        return
    assert target.startswith(f"/{T}/")
    named = [(name.lower(), value.strip(b" \t").lower()) for name, value in headers]
    assert next(value.decode() for name, value in named if name == b"host") in HOSTS
    assert answer.path.startswith("/")
    assert "//" not in answer.path.partition("?")[0]
    sent = onward(headers, UPSTREAMS["anthropic"], "anthropic")
    assert all(pair in headers for pair in sent)


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
    assert onward(headers, UPSTREAMS["paid"], "anthropic") == expected
    # What the connection lists is taken away from the client's headers, not from ours.
    assert (
        onward((*headers, (b"Connection", b"x-api-key")), UPSTREAMS["paid"], "anthropic")
        == expected
    )


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


def test_a_key_is_found_by_its_token_and_by_nothing_else() -> None:
    keys = Keyring()
    key = keys.issue("review", ("run", "review"))
    assert keys.find(key.token) is key
    others = ("", key.token[:-1], key.token + "A", key.token.swapcase(), "é" * 43, "\udcff" * 43)
    assert [keys.find(other) for other in others] == [None] * len(others)


def test_a_key_that_has_ended_opens_nothing_and_is_forgotten() -> None:
    keys = Keyring()
    key, other = keys.issue("one"), keys.issue("two")
    keys.end(key)
    keys.end(key)
    assert (key.is_over, other.is_over) == (True, False)
    assert keys.find(key.token) is None
    assert list(keys) == [other]


@pytest.mark.parametrize("token", ["", "short", "a" * 21, "a" * 129, "../" * 12, "a" * 30 + "/"])
def test_a_token_that_can_be_guessed_or_is_no_part_of_a_path_is_refused(token: str) -> None:
    with pytest.raises(BadValueError) as caught:
        Keyring().issue("default", token=token)
    assert not token or token not in caught.value.render()


def test_two_keys_never_share_a_token() -> None:
    keys = Keyring()
    token = keys.issue("one").token
    with pytest.raises(BadValueError):
        keys.issue("two", token=token)


def test_a_keyring_has_an_end() -> None:
    keys = Keyring(keys_max=2)
    first = keys.issue("one")
    keys.issue("two")
    with pytest.raises(BadValueError):
        keys.issue("three")
    keys.end(first)
    keys.issue("three")
