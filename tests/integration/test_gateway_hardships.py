"""Providers that break their word, clients that go in the worst moment, and what follows."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import pytest
from msgspec import Struct, field

from headway.base.values import Sketch, Spend
from headway.client.exchange import HeldPermit
from headway.errors import BudgetReachedError, StateFileError
from headway.gateway import reply
from headway.gateway.call import ParkedCalls
from headway.gateway.guard import Keyring
from headway.gateway.reply import rest_of_event
from headway.gateway.server import serving
from headway.gateway.settings import GatewaySettings
from headway.gateway.values import Upstream
from headway.pacing.call import Outcome, Request
from headway.testing import FakeAdmission
from headway.work import OverBudgetError
from tests.integration.broker_home import until
from tests.integration.gateway_home import asked, body, claude, gateway_to
from tests.integration.gateway_home import post as sent_to
from tests.integration.gateway_scene import ANSWER
from tests.unit.attempts import Told
from tests.unit.test_gateway_tasks import Opened

DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"some words more "}}\n\n'
)
START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
    b'"role":"assistant","content":[],"model":"echo","stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
)
STOP = (
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn",'
    b'"stop_sequence":null},"usage":{"output_tokens":5}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(ANSWER),
    ANSWER,
)
CLOSING = WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
"""The same from a provider that says that it closes, so that no later call meets the closing."""
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
WAIT_S = 10.0

Script = Callable[[socket.socket, int], bool]
"""Answers the n-th request of a provider; whether the connection stays open."""


class Raw(Struct):
    """A provider that says what it is told to, byte by byte."""

    url: str = ""
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@contextmanager
def provider(script: Script) -> Iterator[Raw]:
    """Serve until the block ends."""
    raw = Raw()

    def talk(line: socket.socket) -> None:
        with line:
            line.settimeout(WAIT_S)
            try:
                while (asked := _request(line)) is not None:
                    raw.heads.append(asked[0])
                    raw.bodies.append(asked[1])
                    if not script(line, len(raw.heads)):
                        return
            except OSError:
                return

    def listen(listening: socket.socket) -> None:
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        raw.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=listen, args=(listening,), daemon=True)
        thread.start()
        yield raw
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT_S)


def _request(line: socket.socket) -> tuple[bytes, bytes] | None:
    """The head and the body of the next request, once all of it has come; nothing at the end."""
    found = b""
    while b"\r\n\r\n" not in found:
        data = line.recv(65_536)
        if not data:
            return None
        found += data
    head, _, rest = found.partition(b"\r\n\r\n")
    said = re.search(rb"content-length: ([0-9]+)", head.lower())
    while said and len(rest) < int(said[1]):
        rest += line.recv(65_536)
    return head, rest


def says(*pieces: bytes) -> Script:
    """The same to everybody, and then the end of the connection."""

    def script(line: socket.socket, _: int) -> bool:
        for piece in pieces:
            line.sendall(piece)
        return False

    return script


def post(base: str, sent: bytes, *more: str) -> socket.socket:
    """A request on a connection that ends with the answer."""
    return sent_to(base, sent, "connection: close", *more)


def read_all(line: socket.socket, already: bytes = b"") -> bytes:
    """All that comes until the end; how it ends is told by the framing."""
    try:
        while data := line.recv(65_536):
            already += data
    except ConnectionError:
        pass
    return already


def is_whole(heard: bytes) -> bool:
    """Whether a response in chunks was ended as it should be."""
    assert heard.count(b"HTTP/1.1 ") == 1, heard
    return heard.endswith(b"0\r\n\r\n")


def ended(admission: FakeAdmission) -> Outcome:
    """How the one permit ended, once it has."""
    until(lambda: bool(admission.outcomes))
    (ticket,) = admission.tickets
    return ticket.outcome


def late(pieces: bytes, encoding: str) -> Script:
    """An answer that comes when its client has heard a beat or two."""

    def script(line: socket.socket, _: int) -> bool:
        threading.Event().wait(0.3)
        head = (
            SSE + f"content-encoding: {encoding}\r\ncontent-length: {len(pieces)}\r\n\r\n".encode()
        )
        line.sendall(head + pieces)
        return False

    return script


def test_a_call_and_its_answer_arrive_as_they_were_sent() -> None:
    odd = ("X-Odd: \u00fcn\u00ef", "x-twice: 1", "X-Title: a  b", "x-twice: 2", "accept: */*")
    sent = b' {"messages":[],\t"max_tokens" : 9.0,\n"model":"echo", "x":"\\u00e9","x":1e3 } '
    back = (b"Set-Cookie: a=1", b"X-Odd: \xc3\xbc", b"set-cookie: b=2; Path=/", b"x-limit:  7")
    first, _, rest = WHOLE.partition(b"\r\n")
    answer = b"\r\n".join((first, *back, rest))
    with (
        provider(says(answer)) as raw,
        gateway_to(raw.url, FakeAdmission()) as home,
        post(home.base, sent, *odd) as line,
    ):
        heard = read_all(line)
    assert raw.bodies == [sent]
    arrived = [line for line in raw.heads[0].split(b"\r\n") if line.lower()[:2] in (b"x-", b"ac")]
    assert arrived == [b"x-api-key: k", *(one.encode() for one in odd)]
    assert heard.endswith(b"\r\n\r\n" + ANSWER)
    told = heard.split(b"\r\n")[1:5]
    assert [one.replace(b":  ", b": ") for one in back] == told


def test_an_answer_that_is_compressed_after_the_first_beat_is_unpacked() -> None:
    admission, events = FakeAdmission(), START + DELTA + STOP
    with (
        provider(late(gzip.compress(events), "gzip")) as raw,
        gateway_to(raw.url, admission, silent_s=0.1) as home,
        post(home.base, body("x", stream=True)) as line,
    ):
        heard = read_all(line)
    assert is_whole(heard)
    assert events in heard.replace(PING, b"")
    assert ended(admission).tally.known == "reported"


@pytest.mark.parametrize("encoding", ["gzip", "br", "made-up"])
def test_an_answer_that_nobody_can_unpack_is_not_an_empty_one(encoding: str) -> None:
    admission = FakeAdmission()
    broken = gzip.compress(START + DELTA + STOP)[:20] + b"\xff" * 50
    with (
        provider(late(broken, encoding)) as raw,
        gateway_to(raw.url, admission, silent_s=0.1) as home,
        post(home.base, body("x", stream=True)) as line,
    ):
        heard = read_all(line)
    assert PING in heard
    assert not is_whole(heard)


def test_an_answer_is_asked_for_in_encodings_that_can_be_counted() -> None:
    with provider(says(CLOSING)) as raw, gateway_to(raw.url, FakeAdmission()) as home:
        for accepted in ("gzip, deflate, br;q=0.9, made-up", "gzip;q=0.5,deflate", "made-up, *"):
            with post(home.base, body("x"), f"accept-encoding: {accepted}") as line:
                assert b" 200 " in read_all(line)
    said = [line for head in raw.heads for line in head.split(b"\r\n") if b"accept-enc" in line]
    brotli = b", br;q=0.9" if b"br;" in said[0] else b""
    assert said == [
        b"accept-encoding: gzip, deflate" + brotli,
        b"accept-encoding: gzip;q=0.5,deflate",
        b"accept-encoding: identity",
    ]


def test_an_answer_is_cut_between_two_events_wherever_its_bytes_were_split() -> None:
    admission, cut = FakeAdmission(), threading.Event()

    def script(line: socket.socket, _: int) -> bool:
        line.sendall(SSE + b"\r\n" + START + DELTA + DELTA[:60])
        cut.wait(WAIT_S)
        line.sendall(DELTA[60:] + DELTA)
        return _request(line) is not None

    def read(client: anthropic.Anthropic) -> None:
        call = client.messages.stream(model="echo", max_tokens=9, messages=asked("x"))
        with call as stream:
            for event in stream:
                if event.type == "content_block_delta":
                    admission.tickets[0].cut = BudgetReachedError("there is no more")
                    cut.set()

    with (
        provider(script) as raw,
        gateway_to(raw.url, admission) as home,
        claude(home.bases) as client,
        pytest.raises(anthropic.APIStatusError, match="there is no more"),
    ):
        read(client)
    outcome = ended(admission)
    assert (outcome.how, outcome.fault) == ("used", None)


@pytest.mark.parametrize("field", ["content-encoding: gzip", "content-length: 9000"])
def test_nothing_of_ours_is_put_into_an_answer_that_is_compressed_or_has_a_length(
    field: str,
) -> None:
    admission, cut = FakeAdmission(), threading.Event()
    packer = zlib.compressobj(wbits=31)

    def packed(data: bytes) -> bytes:
        if "gzip" not in field:
            return data
        return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)

    def script(line: socket.socket, _: int) -> bool:
        line.sendall(SSE + f"{field}\r\n\r\n".encode() + packed(START + DELTA))
        cut.wait(WAIT_S)
        line.sendall(packed(DELTA))
        return _request(line) is not None

    with (
        provider(script) as raw,
        gateway_to(raw.url, admission) as home,
        post(home.base, body("x", stream=True)) as line,
    ):
        heard = b""
        while not heard.partition(b"\r\n\r\n")[2]:
            heard += line.recv(65_536)
        admission.tickets[0].cut = BudgetReachedError("there is no more")
        cut.set()
        heard = read_all(line, heard)
    assert b"there is no more" not in heard
    assert not is_whole(heard)


@pytest.mark.parametrize(
    ("tail", "data", "rest"),
    [
        (b"", b"data: 1\n\n", b""),
        (b" 1\n\n", b"data: 2\n\n", b""),
        (b"\r\n\r\n", b"data: 2", b""),
        (b"a: 1", b"2}\n\ndata: 3\n\n", b"2}\n\n"),
        (b": 1\n", b"\ndata: 2\n\n", b"\n"),
        (b"1\r\n\r", b"\ndata: 2\r\n\r\n", b"\n"),
        (b"\n\nda", b"ta: 2\r\n\r\ndata: 3\r\n\r\n", b"ta: 2\r\n\r\n"),
        (b"\n\nda", b"ta: 2", None),
    ],
)
def test_the_rest_of_an_event_is_found(tail: bytes, data: bytes, rest: bytes | None) -> None:
    assert rest_of_event(tail, data) == rest


class Payer(Struct):
    """Pays for a call, but for no more of its answer: the disk is full."""

    asked: int = 0

    def waits(self, why: str = "", /) -> None: ...

    def goes(self, why: str = "", /) -> None: ...

    def rests(self, seconds: float) -> None: ...

    def spare(self, left: Spend) -> None: ...

    def window(self, resets_at_s: float, detail: str) -> None: ...

    async def reserve(self, more: Spend) -> None:
        self.asked += 1
        if self.asked > 1:
            raise StateFileError("the disk is full")


def test_a_failure_in_the_middle_of_an_answer_begins_no_second_response() -> None:
    admission, keys = FakeAdmission(), Keyring()
    long = DELTA.replace(b"some words", b"some words " * 200)

    def script(line: socket.socket, _: int) -> bool:
        line.sendall(SSE + b"\r\n" + START)
        while True:
            line.sendall(long)
            threading.Event().wait(0.05)

    with provider(script) as raw:
        token = keys.issue("t", ("r", "t"), payer=Payer()).token
        settings = GatewaySettings({"anthropic": Upstream("anthropic", raw.url)})
        with (
            serving(settings, keys, admission) as gateway,
            post(f"{gateway.url}/{token}", body("x", stream=True)) as line,
        ):
            heard = read_all(line)
    assert is_whole(heard)
    assert b"\nevent: error\n" in heard
    assert b"the disk is full" in heard


def test_calls_of_a_person_are_marked_and_those_of_tasks_never() -> None:
    admission, keys = FakeAdmission(), Keyring()
    mine, asked = keys.issue("mine"), keys.issue("asked", is_interactive=True)
    of_task = keys.issue("t", ("r", "t"), payer=Payer(), is_interactive=True)
    terminal, piped = "claude-cli/2.1.325 (external, cli)", "claude-cli/2.1.325 (external, sdk-cli)"
    with provider(says(WHOLE)) as raw:
        settings = GatewaySettings({"anthropic": Upstream("anthropic", raw.url)})
        with serving(settings, keys, admission) as gateway:
            for key in (mine, asked, of_task):
                for agent in (terminal, piped, "curl/8"):
                    words = body(f"{key.name} {agent}")
                    at = f"{gateway.url}/{key.token}"
                    with post(at, words, f"user-agent: {agent}") as line:
                        read_all(line)
    marked = [call.is_interactive for call in admission.calls]
    assert marked == [True, False, False, True, False, True, False, False, False]


def test_a_client_that_takes_nothing_is_not_the_providers_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reply, "STALL_S_MAX", 0.2)
    admission = FakeAdmission()
    long = DELTA.replace(b"some words", b"some words " * 9000)
    with (
        provider(says(SSE + b"\r\n" + START, *[long] * 1000)) as raw,
        gateway_to(raw.url, admission) as home,
        post(home.base, body("x", stream=True)),
    ):
        outcome = ended(admission)
    assert (outcome.how, outcome.fault) == ("used", None)


def test_a_call_that_is_refused_while_the_gateway_stops_is_sent_away_at_once() -> None:
    admission, go = FakeAdmission(), threading.Event()

    def script(line: socket.socket, _: int) -> bool:
        go.wait(WAIT_S)
        line.sendall(b"HTTP/1.1 429 No\r\ncontent-length: 2\r\nretry-after: 9\r\n\r\n{}")
        return True

    with provider(script) as raw, gateway_to(raw.url, admission) as home:
        with post(home.base, body("x")) as line:
            until(lambda: len(raw.heads) == 1)
            admission.holds = True
            stopping = home.stop(WAIT_S)
            until(lambda: home.gateway.is_draining)
            go.set()
            assert b" 503 " in read_all(line)
        stopping.result(WAIT_S)
        assert len(home.gateway.places) == 0
    assert len(admission.calls) == len(raw.heads) == 1


def test_a_call_whose_connection_breaks_is_sent_twice_more_and_then_the_client_decides() -> None:
    admission = FakeAdmission()

    def script(line: socket.socket, number: int) -> bool:
        if 2 <= number <= 5:
            return False
        line.sendall(WHOLE)
        return True

    with provider(script) as raw, gateway_to(raw.url, admission) as home:
        with post(home.base, body("first")) as line:
            assert b" 200 " in read_all(line)
        with post(home.base, body("second")) as line:
            heard = read_all(line)
        assert heard.startswith(b"HTTP/1.1 502 ")
        assert b"x-should-retry: true\r\n" in heard
        assert len(raw.heads) == 4
        with claude(home.bases) as client:
            client.messages.create(model="echo", max_tokens=9, messages=asked("x"))
        assert len(raw.heads) == 6
    assert [outcome.how for outcome in admission.outcomes] == ["used"] * 6


def test_a_place_whose_permit_is_being_given_back_is_nobodys() -> None:
    async def main() -> None:
        admission, places = FakeAdmission(), ParkedCalls()

        async def ask() -> HeldPermit:
            return await granted

        granted: asyncio.Future[HeldPermit] = asyncio.get_running_loop().create_future()
        admitting = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        places.keep(b"name", admitting)
        ticket = await admission.admit_async(Request("a", "openai", Sketch("m"), ()), None)
        granted.set_result(ticket)
        while not admitting.done():
            await asyncio.sleep(0)
        # Its callbacks are on their way: whoever comes now would share a permit that is settled.
        found = places.take(b"name")
        await asyncio.sleep(0.01)
        assert found is None
        assert ticket.outcome.how == "unused"
        assert len(places) == 0

    asyncio.run(main())


def test_no_money_is_set_aside_for_an_attempt_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        opened = Opened(Told())
        async with opened.attempt() as (_, seen, _key, payer):
            await payer.reserve(Spend(5, 10))
            await seen.close()
            with pytest.raises(OverBudgetError, match="has ended"):
                await payer.reserve(Spend(5, 10))
            assert opened.told.reserved == [(10, 5)]
            assert seen.stopped is None
            assert opened.stops == []

    asyncio.run(main())
