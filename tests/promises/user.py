"""A user's machine for tests at the doors: own folders, the `headway` command, a provider.

Nothing here imports headway: tests that use it see what a user sees, and hold on any tree.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

SOON_S: Final = 60.0
"""Long enough on a busy machine for what takes milliseconds on a quiet one."""

OWN_VARIABLES: Final = (
    "ANTHROPIC_",
    "CODEX_",
    "CLAUDE_",
    "GEMINI_",
    "GOOGLE_",
    "HEADWAY_",
    "OPENAI_",
)
"""Beginnings of variables that a test must not inherit."""


def until(is_so: Callable[[], object], within_s: float = SOON_S) -> None:
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s, f"not so after {within_s} s"
        time.sleep(0.01)


class Provider(Struct):
    """A `headway sim serve` process and its record of what really happened."""

    url: str
    process: subprocess.Popen[str]

    def truth(self, key: str | None = None) -> dict[str, Any]:
        """The record of all accounts, or of the account of one key, with every arrival."""
        query = f"?arrivals=all{f'&key={key}' if key else ''}"
        with urllib.request.urlopen(f"{self.url}/truth{query}", timeout=SOON_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def account(self, key: str) -> dict[str, Any] | None:
        """The record of one key's account; none before its first call."""
        accounts = self.truth()["accounts"]
        name = hashlib.sha256(key.encode()).hexdigest()[:8]
        found: dict[str, Any] | None = accounts.get(name)
        return found


@contextmanager
def provider(*options: str) -> Iterator[Provider]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "sim", "serve", "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], SOON_S)
        line = process.stdout.readline() if ready else ""
        assert line.startswith("http://"), line + (process.stdout.read() if ready else "")
        yield Provider(line.split()[0], process)
    finally:
        process.kill()
        process.communicate()


class User(Struct):
    """Folders of its own, found by the variables that users set; what runs in them ends with it."""

    root: Path
    env: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    around: tuple[str, ...] = ()
    """A command that `headway` is started by."""

    @property
    def folder(self) -> Path:
        return self.root / "project"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """Start `headway`, in a process group of its own."""
        settings: dict[str, Any] = {
            "cwd": self.folder, "env": self.env, "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
        }  # fmt: skip
        process: subprocess.Popen[str] = subprocess.Popen(
            [*self.around, sys.executable, "-m", "headway", *words],
            text=True,
            start_new_session=True,
            **settings | more,
        )
        self.started.append(process)
        return process

    def headway(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        within_s = more.pop("within_s", 10 * SOON_S)
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=within_s)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def json(self, *words: str) -> list[Any]:
        """What `headway ... --json` prints: a value a line."""
        ended = self.headway(*words, "--json")
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def close(self) -> None:
        """End every process that has these folders in its environment."""
        for process in self.started:
            if process.poll() is None:
                kill_group(process)
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self, variable: str = "HEADWAY_STATE_DIR") -> dict[int, str]:
        """The processes alive that have this variable of theirs, with their command lines."""
        mark = f"{variable}={self.env[variable]}".encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_theirs = mark in (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                if is_theirs and state not in b"ZX":
                    found[int(entry.name)] = words.decode(errors="replace")
        return found


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process and its group with -9, and take what it printed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None and process.stdout.closed:
        process.wait()
    else:
        process.communicate()


@contextmanager
def user(root: Path, more: Mapping[str, str] | None = None) -> Iterator[User]:
    """A user with a project folder below `root`; every process of theirs is gone afterwards."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OWN_VARIABLES)}
    home = root / "home"
    own = {name: str(root / name.lower()) for name in ("RUNTIME", "STATE", "CONFIG")}
    env = kept | {f"HEADWAY_{name}_DIR": path for name, path in own.items()}
    env |= {"HOME": str(home), "HEADWAY_IDLE_S": "5"} | dict(more or {})
    someone = User(root, env)
    home.mkdir(parents=True)
    someone.folder.mkdir()
    try:
        yield someone
    finally:
        someone.close()


def openai_at(provider: Provider, key: str) -> dict[str, str]:
    """The variables by which `model: openai/...` reaches a simulated provider."""
    return {"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": key}


CALL: Final = """
import json, os, sys, urllib.error, urllib.request
text = sys.argv[1] if len(sys.argv) > 1 else "hello"
count = sys.argv[2] if len(sys.argv) > 2 else 1
body = {"model": "echo", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
for _ in range(int(count)):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "content-type": "application/json"})
    try:
        answer = json.load(urllib.request.urlopen(request, timeout=300))
    except urllib.error.HTTPError as refused:
        print(refused.code, json.load(refused)["error"]["message"])
        sys.exit(1)
print(answer["choices"][0]["message"]["content"])
"""
"""A program that calls a model: `call.py [TEXT [COUNT]]`."""


def speak(server: subprocess.Popen[str], calls: Sequence[tuple[str, object]]) -> list[Any]:
    """Call tools of a `headway mcp` one after the other; their results."""
    assert server.stdin is not None
    assert server.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {},
             "clientInfo": {"name": "test", "version": "1"}}  # fmt: skip
    asked: list[tuple[str, object]] = [("initialize", hello)]
    asked += [("tools/call", {"name": name, "arguments": given}) for name, given in calls]
    results = []
    for number, (method, params) in enumerate(asked):
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        print(json.dumps(request), file=server.stdin, flush=True)
        results.append(json.loads(server.stdout.readline())["result"])
        if not number:
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            print(json.dumps(ready), file=server.stdin, flush=True)
    return results[1:]
