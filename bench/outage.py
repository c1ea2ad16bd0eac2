"""A provider that restarts in the middle of 300 calls: `python -m bench.outage`.

The provider is a process of its own that is killed with -9 and started again after a while. In the
meantime its port is either closed (*refuses*), or accepts connections and resets them (*resets*),
as the proxy of a container does. Every way has a provider, folders and a broker of its own.

What arrived is read from the provider's own log. Connections that clients open, also those to a
port that is closed, are counted by an audit hook in each of their processes. Both logs have the
time of one clock, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from aiohttp import web
from msgspec import Struct

from bench.markdown import table
from bench.results import ROOT, say
from headway.base.codec import as_dict
from headway.base.values import Limit
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, SimServer

REPORT: Final = ROOT / "docs" / "benchmarks" / "outage.md"
CALLS: Final = 300
KILLED_AFTER: Final = 100
"""Answers before the kill."""
THREADS: Final = 60
"""Callers at the same time, where each has a thread."""
SLOTS: Final = 16
SPEED_SHARE: Final = 0.9
"""The provider is at full speed again with this share of the calls in flight that it had."""
EARLY_S: Final = 0.9
"""Trials are a second apart, and their processes not always punctual."""
READY_S_MAX: Final = 300.0
LEFT_S_MAX: Final = 300.0
"""How long a run may take beside its outage."""
AT_ONCE: Final = 2
LOOPBACK: Final = "127.0.0.1"
MODEL: Final = "tokens-20"

Kind = Literal["refuses", "resets"]
KINDS: Final[tuple[Kind, ...]] = ("refuses", "resets")
OUTAGES_S: Final = (5.0, 20.0, 60.0)
WAYS: Final = {
    "openai": "`pace`, OpenAI's SDK, threads",
    "openai-async": "`pace`, OpenAI's SDK, event loop",
    "anthropic": "`pace`, Anthropic's SDK, threads",
    "anthropic-async": "`pace`, Anthropic's SDK, event loop",
    "map": "`headway.map`",
    "plan": "`headway run`, prompts",
    "gateway": "gateway, OpenAI's SDK",
    "gateway-plain": "gateway, urllib",
}
SPEC: Final = ProviderSpec(
    "restarts",
    Terms((Limit("requests", 60_000.0), Limit("concurrency", float(SLOTS), 0.0, "gauge"))),
    Latency(0.8, 0.01),
)
"""A second for each call, 16 at once; 300 calls take 19 s at least."""


class Measured(Struct, frozen=True):
    """One way through one outage, from the logs."""

    way: str
    kind: Kind
    outage_s: float
    """From the kill until the provider listens again."""
    calls: int
    lost: int
    """Calls whose caller got an error, or no answer at all."""
    why: str
    in_flight: int
    """Calls that the kill broke off."""
    attempts: int
    """Connections that were opened, or tried, while the provider was dead."""
    early: int
    """Those of them within a second of the first: permits given before it was known."""
    attempts_most: int
    """The most of the others within one second."""
    back_s: float
    """From the return until as many calls are in flight as before."""
    total_s: float

    @property
    def is_good(self) -> bool:
        return not self.lost and self.attempts_most <= 1 and self.back_s <= 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.outage")
    parser.add_argument("--way", choices=tuple(WAYS), action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--seconds", type=float, action="append")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    cases = [
        (way, kind, outage_s)
        for outage_s in parsed.seconds or OUTAGES_S
        for kind in parsed.kind or KINDS
        for way in parsed.way or WAYS
    ]
    with ThreadPoolExecutor(parsed.at_once) as threads:
        measured = list(threads.map(lambda case: measure(*case), cases))
    if parsed.json:
        print(json.dumps([as_dict(one) for one in measured]))
        return 0
    text = report(measured)
    is_whole = not (parsed.way or parsed.kind or parsed.seconds)
    if is_whole or parsed.output != REPORT:
        parsed.output.write_text(text)
    print(text)
    return 0


def measure(
    way: str, kind: Kind, outage_s: float, calls: int = CALLS, killed_after: int = KILLED_AFTER
) -> Measured:
    """One way, one outage."""
    # A broker may still write when everything else has ended.
    with tempfile.TemporaryDirectory(prefix="hw", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        log = EventLog(folder / "log")
        port = _free_port()
        providers = [_ready(port, log), _ready(port, log)]
        _listen(providers[0])
        client = subprocess.Popen(
            _command(way, folder, port, calls), cwd=folder, text=True,
            env=_environment(way, folder, port, log), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            log.wait_for("ended", killed_after)
            # The log is complete: what the provider has not written by now it does not do.
            killed_s = time.monotonic()
            providers[0].kill()
            providers[0].wait()
            with _dead_port(port, kind, log):
                time.sleep(max(0.0, killed_s + outage_s - time.monotonic()))
            _listen(providers[1])
            out, err = client.communicate(timeout=LEFT_S_MAX)
        finally:
            for process in (client, *providers):
                process.kill()
                process.communicate()
        told = _answers(way, out, err, calls)
        if way == "plan" and told:
            logs = [sys.executable, "-m", "headway", "logs", "last"]
            own = _environment(way, folder, port, log)
            said = subprocess.run(
                logs, cwd=folder, env=own, capture_output=True, text=True, check=True
            ).stdout
            told = [line for line in said.splitlines() if "failed" in line] or told
        found = _judged(way, kind, killed_s, calls, told, log)
        say(
            f"{way}, {kind} for {outage_s:g} s: {found.lost} lost, {found.attempts} connections"
            f" ({found.early} early, most {found.attempts_most}), back after {found.back_s:.2f} s"
            f" {found.why}"
        )
        return found


class EventLog:
    """What happened, from several processes: a line `name seconds` each, appended at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def add(self, name: str) -> None:
        line = f"{name} {time.monotonic():.6f}\n".encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def times(self, name: str) -> list[float]:
        lines = (line.split() for line in self.path.read_text().splitlines())
        return sorted(float(at_s) for what, at_s in lines if what == name)

    def wait_for(self, name: str, count: int) -> None:
        until_s = time.monotonic() + READY_S_MAX
        while len(self.times(name)) < count:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{len(self.times(name))} of {count} times `{name}`")
            time.sleep(0.01)


class LoggedServer(SimServer):
    """A simulated provider that writes down each call when it comes and when it has its answer."""

    def __init__(self, log: EventLog, spec: ProviderSpec, options: ServeOptions) -> None:
        super().__init__(spec, options)
        self._log = log

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._log.add("came")
        response = await super()._answer(request)
        self._log.add("ended" if response.status == 200 else "refused")
        return response


def serve(port: str, log: str) -> None:
    """Be the provider, from the first line of standard input until a signal comes."""

    async def listen() -> None:
        events = EventLog(Path(log))
        server = LoggedServer(events, SPEC, ServeOptions(port=int(port)))
        await server.start()
        events.add("listens")
        print("listens", flush=True)
        await asyncio.Event().wait()

    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(listen())


def _ready(port: int, log: EventLog) -> subprocess.Popen[str]:
    """A provider that has only to be told to listen: to start a process takes seconds."""
    command = [sys.executable, "-m", "bench.outage", "serve", str(port), str(log.path)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    _heard(process, "ready")
    return process


def _listen(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("listen\n")
    process.stdin.flush()
    _heard(process, "listens")


def _heard(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != word:
        raise RuntimeError("the provider did not start")


class _dead_port:  # noqa: N801
    """The port of a provider that is gone; if it resets connections, it counts them as well."""

    def __init__(self, port: int, kind: Kind, log: EventLog) -> None:
        self._port, self._kind, self._log = port, kind, log
        self._listener: socket.socket | None = None

    def __enter__(self) -> None:
        if self._kind == "refuses":
            return
        listener = self._listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, self._port))
        listener.listen(1024)
        threading.Thread(target=self._reset, args=(listener,), daemon=True).start()

    def _reset(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                self._log.add("reset")
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                line.close()

    def __exit__(self, *error: object) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


HOOK: Final = """
import os, sys, time
PORT, LOG = int(os.environ["OUTAGE_PORT"]), os.environ["OUTAGE_LOG"]
def hook(event, arguments):
    if event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple) and address[1] == PORT:
            line = f"connect {time.monotonic():.6f}\\n".encode()
            descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, line)
            os.close(descriptor)
sys.addaudithook(hook)
"""
"""Python imports `sitecustomize` in every process, whoever starts it."""

PLAN: Final = """
headway: 1
name: outage
model: openai/{model}
tasks:
  ask:
    each: {items}
    prompt: "Question {{{{ item }}}}"
    max_tokens: 50
"""


def _command(way: str, folder: Path, port: int, calls: int) -> list[str]:
    me = [sys.executable, "-m", "bench.outage", "call", way, str(calls)]
    headway = [sys.executable, "-m", "headway"]
    if way == "plan":
        items = [f"n{number}" for number in range(calls)]
        (folder / "plan.yaml").write_text(PLAN.format(model=MODEL, items=json.dumps(items)))
        return [*headway, "run", "plan.yaml", "--json", "--yes"]
    if way.startswith("gateway"):
        return [*headway, "gateway", "--upstream", f"http://{LOOPBACK}:{port}", "--", *me]
    return me


def _environment(way: str, folder: Path, port: int, log: EventLog) -> dict[str, str]:
    hook = folder / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(HOOK)
    own = {f"HEADWAY_{name}_DIR": str(folder / name.lower()) for name in ("RUNTIME", "STATE",
                                                                          "CONFIG")}  # fmt: skip
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADWAY_", "OPENAI_"))}
    url = f"http://{LOOPBACK}:{port}"
    return kept | own | {
        "PYTHONPATH": os.pathsep.join((str(hook), str(ROOT / "src"), str(ROOT))),
        "OUTAGE_PORT": str(port), "OUTAGE_LOG": str(log.path), "HEADWAY_IDLE_S": "5",
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": way,
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": way,
    }  # fmt: skip


def call(way: str, count: str) -> None:
    """Be the client: make so many calls, without retries of its own, and print what came."""
    numbers = range(int(count))
    if way.endswith("-async"):
        told = asyncio.run(_all_at_once(way, numbers))
    elif way == "map":
        told = _mapped(numbers)
    else:
        ask = _plain if way == "gateway-plain" else _asker(way)
        with ThreadPoolExecutor(THREADS) as threads:
            told = list(threads.map(lambda number: _told(ask, number), numbers))
    print(json.dumps(told))


def _told(ask: Callable[[int], object], number: int) -> str:
    try:
        ask(number)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def _asker(way: str) -> Callable[[int], object]:
    """A call through an SDK; through the gateway the SDK is not paced."""
    from headway import pace

    if way == "anthropic":
        import anthropic

        claude = pace(anthropic.Anthropic(max_retries=0))
        return lambda number: claude.messages.create(**_body(number))
    import openai

    client = openai.OpenAI(max_retries=0)
    if way == "openai":
        pace(client)
    return lambda number: client.chat.completions.create(**_body(number))


async def _all_at_once(way: str, numbers: Sequence[int]) -> list[str]:
    from headway import pace

    create: Any
    if way == "anthropic-async":
        import anthropic

        create = pace(anthropic.AsyncAnthropic(max_retries=0)).messages.create
    else:
        import openai

        create = pace(openai.AsyncOpenAI(max_retries=0)).chat.completions.create

    async def ask(number: int) -> str:
        try:
            await create(**_body(number))
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
        return ""

    return await asyncio.gather(*map(ask, numbers))


def _mapped(numbers: Sequence[int]) -> list[str]:
    import openai

    import headway

    client = headway.pace(openai.AsyncOpenAI(max_retries=0))

    async def ask(number: int) -> str:
        return str(await client.chat.completions.create(**_body(number)))

    found: list[Any] = headway.map(ask, numbers, return_exceptions=True)
    return [
        f"{type(one).__name__}: {one}"[:300] if isinstance(one, Exception) else "" for one in found
    ]


def _plain(number: int) -> object:
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(_body(number)).encode(),
        {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
         "content-type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"]


def _body(number: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Question {number}"}]
    return {"model": MODEL, "max_tokens": 50, "messages": messages}


def _answers(way: str, out: str, err: str, calls: int) -> list[str]:
    """What each caller was told: nothing if all went well."""
    try:
        if way != "plan":
            found: list[str] = json.loads(out.splitlines()[-1])
            return found
        summary = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return [f"the client ended without a word: {out[-300:]} {err[-500:]}"] * calls
    return [f"{summary}"[:500]] * (calls - int(summary["finished"]))


def _judged(
    way: str, kind: Kind, killed_s: float, calls: int, told: list[str], log: EventLog
) -> Measured:
    came, ended = log.times("came"), [*log.times("ended"), *log.times("refused")]
    back_s = log.times("listens")[-1]
    in_flight = sum(at_s < killed_s for at_s in came) - sum(at_s < killed_s for at_s in ended)
    dead = [at_s for at_s in log.times("connect") if killed_s <= at_s < back_s]
    late = [at_s for at_s in dead if at_s >= dead[0] + EARLY_S]
    changes = [(at_s, 1) for at_s in came if at_s >= back_s]
    changes += [(at_s, -1) for at_s in ended if at_s >= back_s]
    full_s, now_in_flight = float("inf"), 0
    for at_s, change in sorted(changes):
        now_in_flight += change
        if now_in_flight >= SPEED_SHARE * in_flight:
            full_s = at_s - back_s
            break
    failures = [one for one in told if one]
    return Measured(
        way, kind, back_s - killed_s, calls, len(failures), failures[0] if failures else "",
        in_flight, len(dead), len(dead) - len(late),
        max((sum(at_s <= one < at_s + EARLY_S for one in late) for at_s in late), default=0),
        full_s, max(ended) - came[0],
    )  # fmt: skip


def report(measured: Sequence[Measured]) -> str:
    headings = ("way", "port", "outage", "lost", "in flight at the kill", "connections to the "
                "dead port", "at once", "then a second", "full speed after",
                "whole run")  # fmt: skip
    rows = [
        [WAYS[one.way], one.kind, f"{one.outage_s:.0f} s", f"{one.lost} of {one.calls}",
         f"{one.in_flight}", f"{one.attempts}", f"{one.early}", f"{one.attempts_most}",
         f"{one.back_s:.2f} s", f"{one.total_s:.0f} s"]
        for one in measured
    ]  # fmt: skip
    return INTRODUCTION + table(headings, rows)


INTRODUCTION: Final = f"""# A provider that restarts

Generated by `python -m bench.outage`; edits are overwritten. A simulated provider (16 calls at
once, one second each) is killed with `kill -9` after {KILLED_AFTER} of {CALLS} answers and started
again later. Meanwhile its port is closed, or accepts connections and resets them. SDKs retry
nothing themselves (`max_retries=0`). Processes, connections and time are real; arrivals are the
provider's own log, connections to the dead port are counted by an audit hook in every process of
the client. *Full speed* is {SPEED_SHARE:.0%} of the calls in flight that there were at the kill.

Calls in flight at the kill are in doubt: whether they ran is not known. They count towards limits
and budgets as if they had, and are sent again, each at most twice. Calls that were not sent wait.

"""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
    return port


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
    elif sys.argv[1:2] == ["call"]:
        call(*sys.argv[2:])
    else:
        sys.exit(main())
