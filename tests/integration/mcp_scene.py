"""A folder that an agent works in, with `headway mcp` as a process and the official client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, Final

import mcp_types as types
from mcp import ClientSession, StdioServerParameters, stdio_client

from headway.base import locks as owner

ROOT: Final = Path(__file__).resolve().parents[2]
WAIT_S_MAX: Final = 60.0

SCRIPT: Final = """\
rules:
  - {regex: 'Say (\\w+)', answer: 'said {group.1}'}
  - {contains: Hang, answer: never, faults: [hang]}
  - {contains: Long, answer: 'a long story', tokens: 3000}
  - {regex: 'Merge', answer: 'merged {bytes} bytes'}
"""

PLAN: Final = """\
headway: 1
name: fan
model: anthropic/claude-haiku-4-5
tasks:
  say:
    each: [one, two, three]
    prompt: Say {{ item }}
    max_tokens: 100
  merge:
    reduce: say
    prompt: Merge.
    max_tokens: 100
    output: out/merged.txt
"""


class Client:
    """The official client, as an agent uses it."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def call(self, tool: str, **given: object) -> types.CallToolResult:
        found = await self.session.call_tool(tool, given)
        assert isinstance(found, types.CallToolResult)
        return found

    async def gave(self, tool: str, **given: object) -> dict[str, Any]:
        """The result of a call that has to work; its text and its value are the same."""
        found = await self.call(tool, **given)
        assert not found.is_error, text_of(found)
        assert json.loads(text_of(found)) == found.structured_content
        return dict(found.structured_content)

    async def error(self, tool: str, **given: object) -> str:
        """What is said of a call that cannot work: one error, and no trace of our insides."""
        found = await self.call(tool, **given)
        said = text_of(found)
        assert found.is_error, said
        assert said.startswith("error[HW"), said
        assert "Traceback" not in said
        return said

    async def over(self, run: str) -> dict[str, Any]:
        """The status of a run when it is over."""
        return await self.until(run, lambda status: bool(status["is_over"]))

    async def until(self, run: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status of a run of which this is so."""
        until_s = time.monotonic() + WAIT_S_MAX
        while not is_so(status := await self.gave("run_status", run=run)):
            assert time.monotonic() < until_s, status
            await asyncio.sleep(0.05)
        return status


class Scene:
    """A project, a state of its own, and servers that are started in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.here = home / "project"
        self.here.mkdir()
        script = home / "script.yaml"
        script.write_text(SCRIPT)
        self.provider: tuple[str, ...] = ("--sim", str(script))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(ROOT / "src"),
            "HEADWAY_STATE_DIR": str(home / "state"),
            "HEADWAY_RUNTIME_DIR": str(home / "run"),
            "XDG_CONFIG_HOME": str(home / "config"),
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "headway", "mcp", *self.provider, *arguments]

    @asynccontextmanager
    async def client(self, *arguments: str, folder: Path | None = None) -> AsyncIterator[Client]:
        command, *rest = self.command(*arguments)
        server = StdioServerParameters(
            command=command, args=rest, env=self.environment, cwd=folder or self.here
        )
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield Client(session)

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[bytes]]:
        """A server that is spoken to by hand."""
        with subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=self.here, env=self.environment,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    def runs(self) -> list[Path]:
        return sorted((self.home / "state").glob("runs/*"))

    def end_all(self) -> None:
        """No run outlives its test."""
        for run in self.runs():
            found = owner.look(str(run))
            if found is not None and found.is_alive:
                os.killpg(found.pid, signal.SIGKILL)


def text_of(result: types.CallToolResult) -> str:
    return "".join(one.text for one in result.content if isinstance(one, types.TextContent))


def say(stream: IO[bytes] | None, message: object) -> None:
    """A message by hand; bytes as they are."""
    assert stream is not None
    stream.write(message if isinstance(message, bytes) else json.dumps(message).encode())
    stream.write(b"\n")
    stream.flush()


def hear(stream: IO[bytes] | None) -> dict[str, Any]:
    """The next line, which has to be protocol."""
    assert stream is not None
    found: dict[str, Any] = json.loads(stream.readline())
    assert found["jsonrpc"] == "2.0"
    return found
