"""Sends requests that are almost good to a gateway, many at once, from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from tests.integration.gateway_scene import CALL, DONE_S, Scene, statuses

AT_ONCE = 40
WORDS = (
    b"\r\n", b"\n", b"\r", b"\0", b"\xff", b" ", b"\t", b":", b"/", b"..", b"%2e", b"%00",
    b"?", b"#", b"0", b"-1", b"\r\n\r\n", b"HTTP/1.1", b"Transfer-Encoding: chunked\r\n", b"GET ",
    b"Expect: 100-continue\r\n", b"Content-Length: 3\r\n", b"Connection: close\r\n", b"\\", b"{",
    b"Host: evil.example\r\n", b"Origin: null\r\n", b"Content-Encoding: gzip\r\n", b"\x16\x03\x01",
    b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"5;x=y\r\nhello\r\n0\r\n\r\n", b'"',
    b"[" * 3_000, b"A" * 9_000,
)  # fmt: skip


class Fuzz:
    """One run: what was wrong is in `faults`."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._draw = random.Random(seed)
        self.faults: list[str] = []
        self.answered = 0

    def run(self, count: int) -> None:
        """So many connections."""
        asyncio.run(self._run(count))

    async def _run(self, count: int) -> None:
        room = asyncio.Semaphore(AT_ONCE)
        # All is drawn here, in one order: what is sent does not depend on who comes first.
        cases = [(self._bytes(), self._cuts(), self._draw.random()) for _ in range(count)]

        async def one(sent: bytes, cuts: list[float], end: float) -> None:
            async with room:
                try:
                    async with asyncio.timeout(DONE_S):
                        heard = await self._talk(sent, cuts, end)
                except TimeoutError:
                    self.faults.append(f"neither answered nor closed: {sent!r}")
                    return
            found = statuses(heard)
            self.answered += bool(found)
            if any(status >= 500 for status in found):
                self.faults.append(f"{found} for {sent!r}: {heard!r}")

        async with asyncio.TaskGroup() as group:
            for case in cases:
                group.create_task(one(*case))

    async def _talk(self, sent: bytes, cuts: list[float], end: float) -> bytes:
        reader, writer = await asyncio.open_connection(*self._scene.address)
        heard = b""
        try:
            with suppress(OSError):
                places = [0, *sorted(int(cut * len(sent)) for cut in cuts), len(sent)]
                for start, stop in pairwise(places):
                    writer.write(sent[start:stop])
                    await writer.drain()
                    await asyncio.sleep(0.002)
                if end < 0.2:
                    writer.transport.abort()
                    return b""
                if end < 0.3:
                    writer.write_eof()
                while data := await reader.read(65_536):
                    heard += data
            return heard
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _cuts(self) -> list[float]:
        return [self._draw.random() for _ in range(self._draw.choice((0, 0, 1, 5)))]

    def _bytes(self) -> bytes:
        draw, scene = self._draw, self._scene
        close = draw.choice(("Connection: close", "X: y"))
        good = [
            scene.request(CALL, close),
            scene.request(CALL, close, path="/v1/messages/count_tokens"),
            scene.request(b"", close, head=f"GET {scene.base}/v1/models HTTP/1.1"),
            scene.request(b"", close, head=f"GET /{scene.key.token}/status HTTP/1.1"),
            scene.request(CALL, close, head=f"POST /{scene.key.token}/paid/v1/messages HTTP/1.1"),
        ]
        data = draw.choice(good)
        if draw.random() < 0.2:
            data += draw.choice(good)
        for _ in range(draw.choice((0, 1, 1, 2, 4))):
            data = draw.choice(MUTATIONS)(draw, data)
        return data


def _insert(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(WORDS) + data[at:]


def _insert_line(draw: random.Random, data: bytes) -> bytes:
    head, mark, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    lines.insert(draw.randrange(len(lines) + 1), draw.choice(WORDS).strip(b"\r\n"))
    return b"\r\n".join(lines) + mark + body


def _repeat_line(draw: random.Random, data: bytes) -> bytes:
    head, mark, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    lines.insert(draw.randrange(len(lines) + 1), draw.choice(lines))
    return b"\r\n".join(lines) + mark + body


def _drop_line(draw: random.Random, data: bytes) -> bytes:
    head, mark, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    del lines[draw.randrange(len(lines))]
    return b"\r\n".join(lines) + mark + body


def _flip(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(max(1, len(data)))
    return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]


def _cut(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _drop(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at + draw.randrange(20) :]


Mutation = Callable[[random.Random, bytes], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    _insert, _insert_line, _repeat_line, _drop_line, _flip, _flip, _cut, _drop,
)  # fmt: skip
