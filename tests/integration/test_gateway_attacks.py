"""Everything that a web page, another user or a broken client can send to a gateway that listens.

Each is answered or cut off within its time, none reaches the provider in another shape than the
door has seen, and nothing of it stays behind.
"""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPConnection

import pytest
from msgspec import Struct

from headway.base.values import Limit
from headway.gateway import reply
from headway.pacing.memory import AccountTerms
from headway.wire.values import REQUEST_BYTES_MAX
from tests.integration.broker_home import until
from tests.integration.gateway_fuzz import Fuzz
from tests.integration.gateway_scene import CALL, DONE_S, IDLE_S, Scene, scene, statuses

CLOSE = "Connection: close"
JSON = {"Content-Type": "application/json"}
SMUGGLED = b"POST /smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

Made = Callable[[Scene], bytes]


@pytest.fixture(scope="module")
def shared() -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, scene(patch, key="sk-gateway") as found:
        yield found


@pytest.fixture
def here(shared: Scene) -> Iterator[Scene]:
    """The scene, with nothing that has arrived before and nothing that stays after."""
    shared.provider.arrivals.clear()
    yield shared
    shared.provider.pieces, shared.provider.status = 1, 200
    shared.provider.extra_headers = ()
    shared.until_quiet()


class Told(Struct, frozen=True):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(here: Scene, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Told:
    """One request as a browser or a program sends it; the header `Host` can be any."""
    connection = HTTPConnection(*here.address, timeout=DONE_S)
    port = str(here.gateway.port)
    sent = {name: value.replace("{port}", port) for name, value in headers.items()}
    try:
        connection.request(method, path, body or None, {"Connection": "close", **sent})
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Told(response.status, found, response.read())
    finally:
        connection.close()


def call(here: Scene, path: str, body: bytes = CALL, **more: str) -> Told:
    """A call, with more headers."""
    sent = {name.replace("_", "-"): value for name, value in more.items()}
    return ask(here, "POST", path, {**JSON, **sent}, body)


BROWSERS = {
    "a name that was bound again to this address": (403, {"Host": "evil.example:{port}", **JSON}),
    "a page that was loaded by such a name": (
        403,
        {
            "Host": "evil.example:{port}",
            "Origin": "http://evil.example:{port}",
            "Sec-Fetch-Site": "same-origin",
            **JSON,
        },
    ),
    "a page of another origin": (403, {"Origin": "https://evil.example", **JSON}),
    "a page in a sandbox": (403, {"Origin": "null", **JSON}),
    "a page of another port": (403, {"Origin": "http://127.0.0.1:1", **JSON}),
    "a page of another site": (403, {"Sec-Fetch-Site": "cross-site", **JSON}),
    "a page of the same site": (403, {"Sec-Fetch-Site": "same-site", **JSON}),
    "a form of plain text": (415, {"Content-Type": "text/plain"}),
    "a form": (415, {"Content-Type": "application/x-www-form-urlencoded"}),
    "a form with files": (415, {"Content-Type": "multipart/form-data; boundary=x"}),
    "a beacon without a type": (415, {}),
}


@pytest.mark.parametrize("case", BROWSERS)
def test_a_browser_gets_nothing_even_with_the_token(here: Scene, case: str) -> None:
    status, headers = BROWSERS[case]
    found = ask(here, "POST", f"{here.base}/v1/messages", headers, CALL)
    assert found.status == status
    assert not any(name.startswith("access-control") for name in found.headers)
    assert not here.provider.arrivals


@pytest.mark.parametrize("headers", [case[1] for case in BROWSERS.values()][:7])
def test_a_browser_reads_no_page_of_the_gateway(here: Scene, headers: dict[str, str]) -> None:
    for page in ("status", "metrics"):
        assert ask(here, "GET", f"/{here.key.token}/{page}", headers).status == 403


def test_no_preflight_is_answered_with_a_permission(here: Scene) -> None:
    asks = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    for path in (f"{here.base}/v1/messages", f"/{here.key.token}/status", "/", "*"):
        found = ask(here, "OPTIONS", path, asks)
        assert found.status == 405
        assert not any(name.startswith("access-control") for name in found.headers)
    assert not here.provider.arrivals


def test_another_user_who_connects_without_the_token_gets_nothing(here: Scene) -> None:
    token = here.key.token
    wrong = ("x" * len(token), token[:-1], f"{token}x", token.lower() + "-", "anthropic")
    answers = {call(here, f"/{guess}/anthropic/v1/messages", X_Api_Key="k").body for guess in wrong}
    assert len(answers) == 1
    for path in ("/status", "/metrics", "/v1/messages", "/anthropic/v1/messages", "/"):
        headers = {"Authorization": f"Bearer {token}", "Cookie": f"token={token}"}
        found = ask(here, "GET", path, headers)
        assert found.status == 401
        assert token.encode() not in found.body
    assert not here.provider.arrivals


def test_a_key_that_has_ended_reads_as_one_that_never_was(here: Scene) -> None:
    key = here.gateway.keys.issue("task")
    path = f"/{key.token}/anthropic/v1/messages"
    assert call(here, path).status == 200
    here.gateway.keys.end(key)
    ended, never = call(here, path), call(here, f"/{'x' * 43}/anthropic/v1/messages")
    assert (ended.status, ended.body) == (401, never.body)
    assert len(here.provider.arrivals) == 1


def test_the_gateways_key_goes_to_listed_paths_of_its_upstream_only(here: Scene) -> None:
    base = f"/{here.key.token}/paid"
    assert call(here, f"{base}/v1/messages?key=mine", X_Api_Key="mine").status == 200
    (arrival,) = here.provider.arrivals
    assert [value for name, value in arrival.headers if name == "x-api-key"] == ["sk-gateway"]
    assert not any("mine" in value for _, value in arrival.headers)
    assert "mine" not in arrival.target
    for method, path in (("GET", "/v1/files"), ("DELETE", "/v1/models/m"), ("GET", "/v1/messages")):
        assert ask(here, method, f"{base}{path}", {"X-Api-Key": "mine"}).status == 403
    assert len(here.provider.arrivals) == 1


def test_a_redirect_is_the_clients_to_follow(here: Scene) -> None:
    here.provider.status = 307
    here.provider.extra_headers = (("Location", "http://127.0.0.1:1/v1/messages"),)
    base = f"/{here.key.token}/paid"
    for found in (call(here, f"{base}/v1/messages"), ask(here, "GET", f"{base}/v1/models", {})):
        assert found.status == 307
        assert found.headers["location"] == "http://127.0.0.1:1/v1/messages"
    assert len(here.provider.arrivals) == 2


UNREADABLE = {
    "a byte order mark": b"\xef\xbb\xbf" + CALL,
    "UTF-16": CALL.decode().encode("utf-16"),
    "nested too deep": CALL[:-1] + b', "x": ' + b"[" * 9_000 + b"]" * 9_000 + b"}",
    "half": CALL[:-2],
    "nothing": b"",
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_with_the_gateways_key_nothing_is_called_that_cannot_be_read(
    here: Scene, case: str
) -> None:
    path = f"/{here.key.token}/paid/v1/messages"
    assert call(here, path, UNREADABLE[case]).status == 400
    assert not here.provider.arrivals


def test_a_compressed_call_is_read_and_goes_on_as_it_came(here: Scene) -> None:
    packed = gzip.compress(CALL)
    path = f"{here.base}/v1/messages"
    assert call(here, path, packed, Content_Encoding="gzip").status == 200
    assert here.provider.arrivals[0].body == packed
    assert ("Content-Encoding", "gzip") in here.provider.arrivals[0].headers
    bomb = gzip.compress(b" " * (REQUEST_BYTES_MAX + 1))
    assert call(here, path, bomb, Content_Encoding="gzip").status == 413
    assert call(here, path, Content_Encoding="x-unknown").status == 415
    assert call(here, path, Content_Encoding="gzip").status == 400
    assert len(here.provider.arrivals) == 1


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def chunked(here: Scene, body: bytes, *more: str) -> bytes:
    lines = here.request(b"", CLOSE, *more).replace(b"Content-Length: 0\r\n", b"").split(b"\r\n")
    lines.insert(1, b"Transfer-Encoding: chunked")
    return b"\r\n".join(lines) + body


def with_header(here: Scene, header: bytes, body: bytes = CALL) -> bytes:
    return here.request(body, CLOSE).replace(b"X-Api-Key: mine", header, 1)


SMUGGLING: dict[str, Made] = {
    "CL.TE": lambda s: here_te(s, b"0\r\n\r\n" + SMUGGLED),
    "TE.CL": lambda s: here_te(s, chunks(SMUGGLED), length=4),
    "two lengths": lambda s: with_header(s, b"Content-Length: 0", CALL + SMUGGLED),
    "two equal lengths": lambda s: with_header(s, b"Content-Length: %d" % len(CALL)),
    "a list of lengths": lambda s: s.request(CALL, CLOSE).replace(b"Length: ", b"Length: 0, "),
    "a signed length": lambda s: s.request(CALL, CLOSE).replace(b"Length: ", b"Length: +"),
    "two codings": lambda s: chunked(s, chunks(CALL), "Transfer-Encoding: identity"),
    "an unknown coding": lambda s: with_header(s, b"Transfer-Encoding: xchunked"),
    "a coding before a space": lambda s: with_header(s, b"Transfer-Encoding : chunked"),
    "a coding after a tab": lambda s: with_header(s, b"Transfer-Encoding:\tchunked"),
    "a coding after a control": lambda s: with_header(s, b"Transfer-Encoding: \x0bchunked"),
    "a folded coding": lambda s: with_header(s, b"X: y\r\n Transfer-Encoding: chunked"),
    "a coding after a line feed": lambda s: with_header(s, b"X: y\nTransfer-Encoding: chunked"),
    "a coding after a return": lambda s: with_header(s, b"X: y\rTransfer-Encoding: chunked"),
    "a NUL in a value": lambda s: with_header(s, b"X: a\0b"),
    "a NUL in a name": lambda s: with_header(s, b"X\0: a"),
    "a header without a name": lambda s: with_header(s, b": a"),
    "a header without a colon": lambda s: with_header(s, b"smuggled"),
    "a space in a name": lambda s: with_header(s, b"X Y: a"),
    "two hosts": lambda s: with_header(s, b"Host: evil.example"),
    "no chunk size": lambda s: chunked(s, b"\r\nabc\r\n0\r\n\r\n"),
    "a chunk size that is no number": lambda s: chunked(s, b"zz\r\nabc\r\n0\r\n\r\n"),
    "a negative chunk size": lambda s: chunked(s, b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk size with a prefix": lambda s: chunked(s, b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a chunk size too large": lambda s: chunked(s, b"f" * 20 + b"\r\nabc\r\n0\r\n\r\n"),
    "a chunk longer than it says": lambda s: chunked(s, b"1\r\n" + CALL + b"\r\n0\r\n\r\n"),
    "a chunk without an end": lambda s: chunked(s, b"%x\r\n" % len(CALL) + CALL + b"0\r\n\r\n"),
    "an endless chunk extension": lambda s: chunked(s, b"3;" + b"x" * 300_000),
    "an endless trailer": lambda s: chunked(s, b"0\r\n" + b"X: y\r\n" * 50_000),
    "HTTP/0.9": lambda s: b"GET /\r\n",
    "HTTP/2": lambda s: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.1 that is not": lambda s: s.request(head=f"POST {s.base}/v1/messages HTTP/1.1x"),
    "TLS": lambda s: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a tunnel": lambda s: s.request(head="CONNECT api.anthropic.com:443 HTTP/1.1"),
    "an absolute target": lambda s: s.request(head=f"GET http://{s.host}{s.base}/x HTTP/1.1"),
    "a path that climbs": lambda s: s.request(CALL, CLOSE, path="/v1/../../status"),
    "a path that climbs in code": lambda s: s.request(CALL, CLOSE, path="/v1/%2e%2e/files"),
    "a socket": lambda s: s.request(b"", "Connection: Upgrade", "Upgrade: websocket"),
}


def here_te(here: Scene, body: bytes, length: int | None = None) -> bytes:
    """Both framings at once."""
    found = here.request(body, CLOSE, "Transfer-Encoding: chunked")
    if length is not None:
        found = found.replace(b"Length: %d" % len(body), b"Length: %d" % length)
    return found


@pytest.mark.parametrize("case", SMUGGLING)
def test_nothing_is_smuggled(here: Scene, case: str) -> None:
    heard = here.talk(SMUGGLING[case](here))
    assert all(400 <= status < 500 for status in statuses(heard)), heard[:500]
    assert not here.provider.arrivals


@pytest.mark.parametrize("rest", [b"zz\r\n", b"1\r\nxyz\r\n"])
def test_a_body_that_goes_wrong_later_is_refused(here: Scene, rest: bytes) -> None:
    with socket.create_connection(here.address, timeout=DONE_S) as connection:
        connection.sendall(chunked(here, b"1\r\n{\r\n"))
        until(lambda: here.connections == 1)
        connection.settimeout(0.1)
        with suppress(TimeoutError):
            assert not connection.recv(1)
        connection.settimeout(DONE_S)
        connection.sendall(rest)
        heard = b""
        with suppress(ConnectionError):
            while data := connection.recv(65_536):
                heard += data
    assert all(400 <= status < 500 for status in statuses(heard)), heard
    assert not here.provider.arrivals


def test_a_body_in_chunks_goes_on_with_its_length(here: Scene) -> None:
    body = chunks(CALL[:7], CALL[7:]).replace(b"7\r\n", b"7;name=value\r\n", 1)
    assert statuses(here.talk(chunked(here, body))) == [200]
    (arrival,) = here.provider.arrivals
    assert arrival.body == CALL
    names = [name.lower() for name, _ in arrival.headers]
    assert names.count("content-length") == 1
    assert "transfer-encoding" not in names


def test_requests_in_one_write_are_answered_in_their_order(here: Scene) -> None:
    good = here.request()
    page = f"GET /{here.key.token}/status HTTP/1.1\r\nHost: {here.host}\r\n\r\n".encode()
    bad = here.request(CALL, "Origin: null")
    last = here.request(CALL, CLOSE)
    heard = here.talk(good + page + bad + good + last)
    assert statuses(heard) == [200, 200, 403, 200, 200]
    assert len(here.provider.arrivals) == 3


def test_a_header_of_the_provider_that_is_no_text_is_left_out(here: Scene) -> None:
    here.provider.extra_headers = (("X-Odd", "a\xffb"), ("X-Even", "ab"))
    base = here.base
    for found in (call(here, f"{base}/v1/messages"), ask(here, "GET", f"{base}/v1/models", {})):
        assert (found.status, found.headers["x-even"]) == (200, "ab")
        assert "x-odd" not in found.headers


SIZES: dict[str, Made] = {
    "a line": lambda s: s.request(path="/v1/messages?" + "x" * 100_000),
    "a header": lambda s: s.request(CALL, "X: " + "y" * 100_000),
    "headers": lambda s: s.request(CALL, *(f"X{i}: y" for i in range(2_000))),
    "a head without an end": lambda s: b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
    "a declared body": lambda s: s.request().replace(b"Length: ", b"Length: 9999999"),
    "a body in chunks": lambda s: chunked(s, chunks(*[bytes(2**20)] * 33)),
}


@pytest.mark.parametrize("case", SIZES)
def test_what_is_too_large_is_refused(here: Scene, case: str) -> None:
    heard = here.talk(SIZES[case](here))
    assert all(400 <= status < 500 for status in statuses(heard)), heard[:500]
    assert not here.provider.arrivals


@pytest.mark.parametrize("count", [0, 60, 150])
def test_a_head_that_never_ends_is_waited_for_only_so_long(here: Scene, count: int) -> None:
    with socket.create_connection(here.address, timeout=DONE_S) as connection:
        connection.sendall(here.request()[:count])
        assert all(status < 500 for status in statuses(connection.recv(65_536)))
    assert not here.provider.arrivals


def test_a_head_that_comes_a_byte_at_a_time_is_cut_off(here: Scene) -> None:
    with socket.create_connection(here.address, timeout=IDLE_S / 10) as connection:
        sent = 0
        with suppress(ConnectionError):
            for byte in here.request(CALL, "X: " + "y" * 1_000):
                connection.sendall(bytes([byte]))
                sent += 1
                with suppress(TimeoutError):
                    if not connection.recv(1):
                        break
    assert sent < 100


def test_a_body_that_never_ends_is_waited_for_only_so_long(here: Scene) -> None:
    good = here.request()
    for request in (good[:-1], good[: -len(CALL)], chunked(here, chunks(CALL)[:-4])):
        assert statuses(here.talk(request)) in ([], [408])
    assert not here.provider.arrivals


def test_a_client_that_takes_nothing_is_cut_off(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "STALL_S_MAX", 0.5)
    monkeypatch.setattr(here.provider, "answer", bytes(64 * 2**20))
    requests = (
        here.request(),
        f"GET {here.base}/v1/models HTTP/1.1\r\nHost: {here.host}\r\n\r\n".encode(),
    )
    for request in requests:
        with socket.create_connection(here.address, timeout=DONE_S) as connection:
            connection.sendall(request)
            assert connection.recv(9) == b"HTTP/1.1 "
            until(lambda: here.connections == 0)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.8, 0.99])
def test_a_client_that_leaves_while_it_sends_leaves_nothing(here: Scene, share: float) -> None:
    request = here.request(CALL + b" " * 1_000)
    for is_reset in (False, True):
        with socket.create_connection(here.address) as connection:
            connection.sendall(request[: int(len(request) * share)])
            if is_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    here.until_quiet()
    assert not here.provider.arrivals


@pytest.mark.parametrize("after_bytes", [0, 1, 300])
def test_a_client_that_leaves_while_it_is_answered_leaves_nothing(
    here: Scene, after_bytes: int
) -> None:
    here.provider.pieces = 20
    with socket.create_connection(here.address, timeout=DONE_S) as connection:
        connection.sendall(here.request())
        heard = 0
        while heard < after_bytes:
            heard += len(connection.recv(after_bytes - heard))
        until(lambda: len(here.provider.arrivals) == 1)
    here.until_quiet()


def test_clients_that_leave_while_they_are_held_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scene(monkeypatch) as here, ExitStack() as stack:
        one = AccountTerms((Limit("concurrency", 1, kind="gauge"),))
        for known in here.port.describe()[0].accounts:
            here.port.configure(known.account, one)
        here.provider.pieces = 30
        for _ in range(20):
            connection = socket.create_connection(here.address, timeout=DONE_S)
            stack.callback(connection.close)
            connection.sendall(here.request())
        until(lambda: len(here.port.waiting) == 19 and len(here.provider.arrivals) == 1)
        stack.close()
        here.until_quiet()
        assert len(here.provider.arrivals) == 1


def test_what_is_wrong_with_a_request_is_not_logged_for_it_has_secrets_in_it(
    here: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for request in (
        here.request(CALL, "X-Api-Key: sk-secret\0"),
        here.request(path="/v1/mess\xe4ges"),
        here.request(CALL, "Origin: null", CLOSE),
    ):
        assert all(400 <= status < 500 for status in statuses(here.talk(request)))
    assert here.key.token not in caplog.text
    assert "sk-secret" not in caplog.text


def test_whatever_is_sent_is_answered_or_cut_off_and_leaves_nothing(here: Scene) -> None:
    fuzz = Fuzz(here, seed=20_261_116)
    fuzz.run(400)
    assert not fuzz.faults, fuzz.faults[:5]
    assert fuzz.answered > 100
    here.until_quiet()
    assert statuses(here.talk(here.request(CALL, CLOSE))) == [200]
