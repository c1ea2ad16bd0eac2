"""The two ends of the gateway benches, each a process of its own: a provider and its clients.

    python -m bench.gateway_ends upstream
    python -m bench.gateway_ends driver        (an errand in JSON on standard input, then `go`)

Both write prepared bytes and look at no more than they must, so that what is measured is between
them. The upstream speaks Chat Completions: one of its models answers after a latency, whole or as
30 events one after another, the other at once; a client may ask for another latency with
`x-latency-ms`. `GET /counts` tells what it has seen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, cast

from msgspec import Struct, field

from headway.base.codec import as_dict

EVENTS: Final = 30
LATENCY_S: Final = 0.1
EVENT_EVERY_S: Final = 0.01
"""As often as a fast model produces a token: every event is a read and a write of its own."""

WARM_UP: Final = 3
"""Calls of each connection that nobody times."""

ANSWER_S_MAX: Final = 60.0
KEY: Final = "sk-bench"
"""Of nobody: loopback only."""

MODEL: Final = "bench-model"
AT_ONCE: Final = "bench-at-once"
NO_LENGTH: Final = -1

_LIMITS: Final = "".join(
    f"x-ratelimit-{role}-{what}: {value}\r\n"
    for what, amount in (("requests", "1000000"), ("tokens", "1000000000"))
    for role, value in (("limit", amount), ("remaining", amount), ("reset", "1ms"))
)


def _chunk(delta: dict[str, str], rest: dict[str, object] | None = None) -> bytes:
    said: dict[str, object] = {
        "id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_700_000_000,
        "model": MODEL, "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }  # fmt: skip
    data = b"data: " + json.dumps(said | (rest or {})).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


USAGE: Final = {"prompt_tokens": 200, "completion_tokens": 28, "total_tokens": 228}
_END: Final[dict[str, object]] = {
    "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]
}  # fmt: skip
_LAST: Final = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
CHUNKS: Final = (
    _chunk({"role": "assistant", "content": ""}),
    *(_chunk({"content": f" word{number}"}) for number in range(EVENTS - 3)),
    _chunk({}, _END),
    _chunk({}, {"choices": [], "usage": USAGE}) + _LAST,
)
STREAM_HEAD: Final = (
    f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{_LIMITS}"
    "transfer-encoding: chunked\r\n\r\n"
).encode()
_ANSWER: Final = json.dumps(
    {
        "id": "chatcmpl-bench", "object": "chat.completion", "created": 1_700_000_000,
        "model": MODEL, "usage": USAGE,
        "choices": [{"index": 0, "finish_reason": "stop",
                     "message": {"role": "assistant", "content": "word " * 28}}],
    }
).encode()  # fmt: skip
ANSWER: Final = (
    f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{_LIMITS}"
    f"content-length: {len(_ANSWER)}\r\n\r\n"
).encode() + _ANSWER


class Counts(Struct):
    """What the upstream has seen."""

    calls: int = 0
    open: int = 0
    """Connections."""
    in_flight: int = 0
    in_flight_max: int = 0
    broken: int = 0
    """Calls whose client had gone before the answer was whole."""


def length_of(head: bytes) -> int:
    """The length of a body; -1 where its end is told otherwise."""
    lower = head.lower()
    begin = lower.find(b"content-length:")
    if begin < 0:
        return NO_LENGTH
    return int(lower[begin + 15 : lower.find(b"\r\n", begin)])


class Upstream(asyncio.Protocol):
    """One connection to the provider."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._data = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._counts.open += 1

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._counts.open -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._counts.in_flight -= 1
            self._counts.broken += 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        head_end = self._data.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._data[: head_end + 2])
        end = head_end + 4 + max(0, length_of(head))
        if len(self._data) < end:
            return
        body = bytes(self._data[head_end + 4 : end])
        del self._data[:end]
        if head.startswith(b"GET "):
            self._tell()
        else:
            self._answer(head, body)

    def _tell(self) -> None:
        told = json.dumps(as_dict(self._counts)).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(told)}"
        self._write(head.encode() + b"\r\n\r\n" + told)

    def _answer(self, head: bytes, body: bytes) -> None:
        counts = self._counts
        counts.calls += 1
        counts.in_flight += 1
        counts.in_flight_max = max(counts.in_flight_max, counts.in_flight)
        is_at_once = AT_ONCE.encode() in body
        latency_s, begin = 0.0 if is_at_once else LATENCY_S, head.find(b"x-latency-ms:")
        if begin >= 0:
            latency_s = float(head[begin + 13 : head.find(b"\r\n", begin)]) / 1000
        is_stream = b'"stream": true' in body or b'"stream":true' in body
        later = asyncio.get_running_loop().call_later
        if is_stream:
            every_s = 0.0 if is_at_once else EVENT_EVERY_S
            self._timer = later(latency_s, self._event, 0, every_s)
        else:
            self._timer = later(latency_s, self._end, ANSWER)

    def _event(self, number: int, every_s: float) -> None:
        if number == EVENTS - 1:
            self._end(CHUNKS[number])
            return
        self._write(CHUNKS[number] if number else STREAM_HEAD + CHUNKS[0])
        later = asyncio.get_running_loop().call_later
        self._timer = later(every_s, self._event, number + 1, every_s)

    def _end(self, data: bytes) -> None:
        self._timer = None
        self._counts.in_flight -= 1
        self._write(data)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


class Errand(Struct, frozen=True):
    """What the clients are to do."""

    port: int
    path: str
    calls: int
    in_flight: int = 16
    is_stream: bool = False
    model: str = MODEL
    body_bytes: int = 1000
    headers: dict[str, str] = field(default_factory=dict)

    def request(self) -> bytes:
        """Every client sends the same bytes."""
        asked: dict[str, object] = {"model": self.model, "max_tokens": 1000}
        if self.is_stream:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        message = {"role": "user", "content": ""}
        empty = len(json.dumps(asked | {"messages": [message]}))
        message["content"] = ("word " * (self.body_bytes // 5 + 1))[: self.body_bytes - empty]
        body = json.dumps(asked | {"messages": [message]}).encode()
        given = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (given | self.headers).items())
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n{lines}"
            f"user-agent: bench\r\naccept: */*\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Ended(Struct, frozen=True):
    """What the clients saw."""

    seconds: float
    latencies_ms: tuple[float, ...]
    first_ms: tuple[float, ...]
    """Until the first byte of the body."""


class Caller(asyncio.Protocol):
    """One client that keeps its connection."""

    def __init__(self, errand: Errand, request: bytes) -> None:
        self._errand = errand
        self._request = request
        self._data = bytearray()
        self._head_end = 0
        self._began_s = self._first_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[tuple[float, float]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error or ConnectionResetError("the server hung up"))

    def call(self) -> asyncio.Future[tuple[float, float]]:
        """Milliseconds until the whole answer, and until the first byte of its body."""
        assert self._transport is not None
        self._data.clear()
        self._head_end = 0
        self._done = asyncio.get_running_loop().create_future()
        self._began_s, self._first_s = perf_counter(), 0.0
        self._transport.write(self._request)
        return self._done

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._head_end:
            self._head_end = self._data.find(b"\r\n\r\n") + 4
            if self._head_end < 4:
                self._head_end = 0
                return
        if not self._first_s and len(self._data) > self._head_end:
            self._first_s = perf_counter()
        done = self._done
        if self._is_whole() and done is not None and not done.done():
            now_s = perf_counter()
            fault = self._fault()
            if fault:
                done.set_exception(RuntimeError(fault))
            else:
                done.set_result(
                    (1000 * (now_s - self._began_s), 1000 * (self._first_s - self._began_s))
                )

    def _is_whole(self) -> bool:
        length = length_of(bytes(self._data[: self._head_end]))
        if length == NO_LENGTH:
            return self._data.endswith(b"0\r\n\r\n")
        return len(self._data) >= self._head_end + length

    def _fault(self) -> str:
        """What is wrong with a whole answer."""
        content = self._data.count(b" word" if self._errand.is_stream else b"word ")
        if not self._data.startswith(b"HTTP/1.1 200") or content < EVENTS - 3:
            return self._data.decode(errors="replace")[:1000]
        return ""


async def drive(errand: Errand, is_go: Callable[[], None]) -> Ended:
    """All calls, so many at once; `is_go` waits for whoever measures, after a warm-up."""
    loop = asyncio.get_running_loop()
    request = errand.request()
    callers = []
    for _ in range(errand.in_flight):
        made = await loop.create_connection(lambda: Caller(errand, request), "127.0.0.1",
                                            errand.port)  # fmt: skip
        callers.append(made[1])
    left = WARM_UP * errand.in_flight
    seen: list[tuple[float, float]] = []

    async def work(caller: Caller, after_s: float) -> None:
        nonlocal left
        await asyncio.sleep(after_s)
        while left > 0:
            left -= 1
            seen.append(await asyncio.wait_for(caller.call(), ANSWER_S_MAX))

    await asyncio.gather(*(work(caller, 0.0) for caller in callers))
    is_go()
    seen.clear()
    # Clients know nothing of each other: they are spread over the time that an answer takes.
    apart_s = 0.0 if errand.model == AT_ONCE else LATENCY_S / errand.in_flight
    left, began_s = errand.calls, perf_counter()
    await asyncio.gather(*(work(caller, apart_s * place) for place, caller in enumerate(callers)))
    seconds = perf_counter() - began_s
    for caller in callers:
        caller.close()
    whole, first = zip(*seen, strict=True)
    return Ended(seconds, tuple(whole), tuple(first))


def _driver() -> None:
    errand = Errand(**json.loads(sys.stdin.readline()))

    def is_go() -> None:
        print("ready", flush=True)
        if not sys.stdin.readline():
            raise SystemExit(1)

    print(json.dumps(as_dict(asyncio.run(drive(errand, is_go)))), flush=True)


async def _upstream() -> None:
    counts = Counts()
    server = await asyncio.get_running_loop().create_server(
        lambda: Upstream(counts), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main(arguments: list[str]) -> None:
    """Be one of the ends."""
    ends: dict[str, Callable[[], Any]] = {
        "upstream": lambda: asyncio.run(_upstream()), "driver": _driver,
    }  # fmt: skip
    ends[arguments[0]]()


if __name__ == "__main__":
    main(sys.argv[1:])
