"""Thousands of calls held at once: what each takes, that all are served, that none leaves a trace.

The gateway and its broker are processes of their own, so that their memory is theirs.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest
from msgspec import Struct

from bench.gateway_ends import Errand
from bench.gateway_subjects import Server, headway, memory_mb, set_limits, upstream

BODY_BYTES = 45_000
HELD_KIB_MAX = 80.0
"""What one held call may add to the gateway and the broker together."""

SOON_S = 60.0
KEPT_S = 0.5
COMMAND = (
    sys.executable, "-c",
    "from headway.gateway.call import ParkedCalls;"
    f"ParkedCalls.__init__.__defaults__ = ({KEPT_S},);"
    "from headway.cli.main import main; import sys; sys.exit(main(['gateway', *sys.argv[1:]]))",
)  # fmt: skip
"""A gateway that forgets the place of a client that hung up sooner than it usually does."""

ONE_AT_A_TIME = ("rpm=100M", "tpm=100000M", "concurrent=1")
FOR_ALL = ("concurrent=10k",)


class Held(Struct, frozen=True):
    """A gateway whose one permit is taken, and the calls that wait behind it."""

    server: Server
    upstream: int

    def status(self) -> dict[str, Any]:
        return self._told(self.server.port, self.server.probe)

    def counts(self) -> dict[str, Any]:
        """What the provider has seen."""
        return self._told(self.upstream, "/counts")

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.server.pids()[0]}/fd"))

    def memory_kib(self) -> float:
        return 1024 * sum(map(memory_mb, self.server.pids()))

    def errand(self, latency_ms: float) -> Errand:
        return Errand(self.server.port, self.server.path, 1, body_bytes=BODY_BYTES,
                      headers={"x-latency-ms": f"{latency_ms:g}"})  # fmt: skip

    def lift(self) -> None:
        """Let everybody go."""
        set_limits(self.server.home, *FOR_ALL)

    @staticmethod
    def _told(port: int, path: str) -> dict[str, Any]:
        line = HTTPConnection("127.0.0.1", port, timeout=SOON_S)
        try:
            line.request("GET", path, headers={"connection": "close"})
            told: dict[str, Any] = json.loads(line.getresponse().read())
            return told
        finally:
            line.close()


class Client(asyncio.Protocol):
    """Sends one call and keeps the beginning of its answer."""

    def __init__(self) -> None:
        self.status = b""
        self.answered = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.answered.done():
            self.answered.set_result(data[:12])

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_result(b"")


@contextmanager
def held_calls() -> Iterator[Held]:
    """A gateway that may make one call at a time."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with upstream() as port, headway(port, COMMAND, *ONE_AT_A_TIME) as server:
        yield Held(server, port)


async def come(held: Held, count: int, latency_ms: float = 0.0) -> list[Client]:
    """So many clients send a call each."""
    loop = asyncio.get_running_loop()
    request = held.errand(latency_ms).request()
    clients = []
    for number in range(count):
        _, client = await loop.create_connection(Client, "127.0.0.1", held.server.port)
        # No two are the same: none takes up the place of another.
        client.transport.write(request.replace(b"word", b"%04d" % number, 1))
        clients.append(client)
    return clients


async def so(is_so: Callable[[], bool], within_s: float = SOON_S) -> None:
    """Wait for a condition."""
    until_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until_s, f"not so after {within_s:g} s"
        await asyncio.sleep(0.05)


async def warm_up(held: Held, count: int) -> Client:
    """What is made once is made; then one call takes the only permit and does not end."""
    for client in await come(held, count):
        assert await asyncio.wait_for(client.answered, SOON_S) == b"HTTP/1.1 200"
        client.transport.close()
    await so(lambda: held.status()["in_flight"] == 0)
    (first,) = await come(held, 1, latency_ms=3_600_000)
    await so(lambda: held.counts()["in_flight"] == 1)
    return first


async def wait_and_be_served(held: Held, count: int) -> float:
    """KiB of each, while all are held."""
    first = await warm_up(held, 20)
    before_kib = held.memory_kib()
    clients = await come(held, count)
    await so(lambda: held.status()["held"] == count)
    each_kib = (held.memory_kib() - before_kib) / count
    assert held.counts()["in_flight_max"] == 1, "somebody was not held"
    served = held.counts()["calls"]
    await asyncio.to_thread(held.lift)
    first.transport.abort()
    answers = await asyncio.wait_for(asyncio.gather(*(one.answered for one in clients)), SOON_S)
    assert answers == [b"HTTP/1.1 200"] * count
    assert held.counts()["calls"] == served + count, "a call was sent twice, or never"
    for client in clients:
        client.transport.close()
    await so(lambda: held.status()["in_flight"] == 0)
    print(f"{count:,} held calls: {each_kib:.1f} KiB each")
    return each_kib


async def wait_and_leave(held: Held, count: int) -> tuple[float, float]:
    """KiB that are in use after the first crowd has left, and after the second."""
    first = await warm_up(held, 20)
    files, left_kib = held.files(), []
    for _ in range(2):
        clients = await come(held, count)
        await so(lambda: held.status()["held"] == count)
        for client in clients:
            client.transport.abort()
        await so(lambda: held.status()["held"] == 0 and held.files() <= files)
        left_kib.append(held.memory_kib())
    sent = held.counts()["calls"]
    first.transport.abort()
    # The permit of the client that went in the middle of its call is free for the next one.
    (last,) = await come(held, 1)
    assert await asyncio.wait_for(last.answered, SOON_S) == b"HTTP/1.1 200"
    assert held.counts()["calls"] == sent + 1, "a call was sent for a client that had left"
    last.transport.close()
    return left_kib[0], left_kib[1]


COUNTS = (300, pytest.param(5_000, marks=pytest.mark.soak))


@pytest.mark.parametrize("count", COUNTS)
def test_held_calls_are_small_and_all_are_served(count: int) -> None:
    with held_calls() as held:
        each_kib = asyncio.run(wait_and_be_served(held, count))
    assert each_kib <= HELD_KIB_MAX, f"{each_kib:.0f} KiB each"


@pytest.mark.parametrize("count", COUNTS)
def test_clients_that_hang_up_while_they_are_held_leave_nothing_behind(count: int) -> None:
    with held_calls() as held:
        first_kib, second_kib = asyncio.run(wait_and_leave(held, count))
    # What the first crowd took, the second one finds again.
    assert second_kib - first_kib <= count * HELD_KIB_MAX / 10
