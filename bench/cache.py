"""Agents of many turns on an account with a prompt cache and tight limits: `python -m bench.cache`.

Every turn of an agent sends its whole conversation. What the provider's cache still has of it does
not count against the limit on input; what it has forgotten is written again, and paid again.

Virtual time has the account as it is. Over HTTP time runs 30 times faster and prompts are a fifth
as long, limits and cache alike: agents, with an API key and so an account of their own for each
way, send to the simulated provider itself, to headway's gateway, to that of an earlier commit, and
to HiveMind's proxy. Figures are those of the provider.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import aiohttp
from msgspec import Struct

from bench.gateway_subjects import GATEWAY, brokers, end, process_of, token_in
from bench.markdown import table
from bench.results import ROOT, say
from bench.servers import free_port
from headway.base.values import (
    CACHE_S,
    Amounts,
    Demand,
    Fault,
    Limit,
    Reading,
    Resource,
    Sketch,
    Tally,
)
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import PacingMemory
from headway.sim.account import Terms
from headway.sim.clients import PATIENT, UnpacedDoor
from headway.sim.draw import lognormal
from headway.sim.provider import (
    FirstByte,
    Latency,
    PromptCache,
    Provider,
    ProviderSpec,
    Refused,
    SimulatedCall,
    SimulatedEnd,
    cached_prompt,
)
from headway.sim.rehearsal import read_headers
from headway.sim.server import ServeOptions, account_of, serving, truth_of
from headway.sim.truth import filler

REPORT: Final = ROOT / "docs" / "benchmarks" / "cache.md"
EARLIER: Final = "0ffab9b"
"""The last commit that takes turns between the tasks of a run."""

Way = Literal["headway", "turns", "direct", "hivemind"]
NAMES: Final[dict[Way, str]] = {
    "headway": "**headway**",
    "turns": "headway before: agents take turns",
    "direct": "direct, retries for as long as it takes",
    "hivemind": "HiveMind 0.2",
}
MODEL: Final = "simulated"
TOOL_STREAM: Final = 97


class Scene(Struct, frozen=True):
    """Agents, and the account that they share."""

    agents: int = 20
    turns: int = 30
    shared_tokens: int = 11_000
    """Instructions, which are the same for all."""
    task_tokens: int = 9_000
    """What the first prompt of an agent has beside them."""
    turn_tokens: int = 4_000
    """By which the prompt grows with every turn: a reply, and what the tools gave."""
    output_tokens: int = 2_500
    tool_s: float = 5.0
    tool_spread: float = 0.0
    """From a reply to the next prompt: median, and deviation of its logarithm."""
    limits: tuple[Limit, ...] = (
        Limit("requests", 50.0),
        Limit("input", 160_000.0),
        Limit("output", 8_000.0),
    )
    keeps_s: float = CACHE_S
    latency: Latency = Latency(1.0, 0.02)
    tool_stream: int = TOOL_STREAM
    """From which times of tools are drawn."""

    def prompt_tokens(self, turn: int) -> int:
        return self.shared_tokens + self.task_tokens + self.turn_tokens * turn

    def wait_s(self, agent: int, turn: int) -> float:
        """What the tools of a turn take."""
        return self.tool_s * lognormal(
            1, self.tool_stream, agent * self.turns + turn, self.tool_spread
        )

    def sketch(self, agent: int, turn: int) -> Sketch:
        """A turn as a client sees it before it is sent: 4 bytes are a token."""
        tokens = self.prompt_tokens(turn)
        turns = [(f"{agent}.{one}", 4 * self.prompt_tokens(one)) for one in range(turn)]
        return Sketch(
            MODEL, size_bytes=4 * tokens, messages=1, max_output_tokens=4096, kind=MODEL,
            prefix=f"{agent}.{turn}", prefix_bytes=4 * tokens, turns=tuple(turns[:-3:-1]),
            shared="shared", shared_bytes=4 * self.shared_tokens, keeps_s=self.keeps_s,
        )  # fmt: skip


SCENES: Final = {
    "50 requests, 160,000 input and 8,000 output tokens a minute": Scene(),
    "the same, and tools that take 20 s in the middle and minutes at times": Scene(
        tool_s=20.0, tool_spread=1.0
    ),
    "80,000 input tokens a minute": Scene(
        task_tokens=19_000, turn_tokens=2_000, output_tokens=400, limits=(Limit("input", 80_000.0),)
    ),
    "3 requests a minute": Scene(
        turn_tokens=2_000, output_tokens=400, limits=(Limit("requests", 3.0),)
    ),
}


def _scene(*amounts: float, **more: Any) -> Scene:
    """Requests, input and output tokens a minute."""
    names: tuple[Resource, ...] = ("requests", "input", "output")
    return Scene(limits=tuple(map(Limit, names, amounts)), **more)


MENDED: Final = {
    "10 agents, 60 turns, 3,000 output tokens a minute": _scene(
        50, 160e3, 3e3, agents=10, turns=60, turn_tokens=2_000, output_tokens=1_500
    ),
    "20 agents, 30 turns, tools of 60 s in the middle, 6,000 output tokens a minute": _scene(
        50, 160e3, 6e3, tool_s=60.0, tool_spread=0.7
    ),
}
"""Scenes that showed what to mend."""
UNTUNED: Final = {
    "16 agents, 25 turns, tools of 15 s in the middle, 5,000 output tokens a minute": _scene(
        40, 120e3, 5e3, agents=16, turns=25, turn_tokens=3_000, output_tokens=1_200, tool_s=15.0,
        tool_spread=0.8,
    ),
    "24 agents, 20 turns, 4 requests a minute": _scene(
        4, 160e3, 1e6, agents=24, turns=20, turn_tokens=2_500, output_tokens=500
    ),
    "8 agents, 50 turns, 60,000 input tokens a minute": _scene(
        50, 60e3, 1e6, agents=8, turns=50, turn_tokens=2_500, output_tokens=600
    ),
    "30 agents, 20 turns, tools of 40 s in the middle, 9,000 output tokens a minute": _scene(
        50, 160e3, 9e3, agents=30, turns=20, output_tokens=2_000, tool_s=40.0, tool_spread=0.5
    ),
    "15 agents, 40 turns, tools of 30 s in the middle, 7,000 output tokens a minute": _scene(
        50, 100e3, 7e3, agents=15, turns=40, turn_tokens=2_000, output_tokens=1_000, tool_s=30.0,
        tool_spread=1.2,
    ),
    "50 agents, 12 turns, 20 requests and 15,000 output tokens a minute": _scene(
        20, 200e3, 15e3, agents=50, turns=12
    ),
}  # fmt: skip
"""Scenes that nothing was chosen or mended on."""
ALL_SCENES: Final = SCENES | MENDED | UNTUNED


def outlasted(scene: Scene) -> int:
    """Tokens of conversations whose tools take longer than the cache keeps them."""
    lost = 0
    for agent in range(scene.agents):
        for turn in range(scene.turns - 1):
            answer_s = scene.output_tokens * scene.latency.per_output_token_s
            if answer_s + scene.wait_s(agent, turn) > scene.keeps_s:
                lost += scene.prompt_tokens(turn) - scene.shared_tokens
    return lost


class Measured(Struct):
    """What a way took."""

    way: Way
    time_s: float = 0.0
    calls: int = 0
    refused: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    rewritten_tokens: int = 0
    """Of those written, the ones that the cache had forgotten."""
    gap_s: float = 0.0
    """The longest time from one turn of an agent to its next."""


class Door(Protocol):
    """How a way sends: what `sim/clients.py` calls a door, for conversations."""

    def ask(self, call: int, sketch: Sketch, agent: int, now: float) -> None: ...

    def open(self, now: float) -> list[int]: ...

    def next_s(self) -> float: ...

    def refused(self, call: int, fault: Fault, reading: Reading, now: float) -> None: ...

    def began(self, call: int, reading: Reading, now: float) -> None: ...

    def ended(self, call: int, tally: Tally, now: float) -> None: ...


class _Paced:
    """headway; `by_turns` as if it did not see which prompts continue which."""

    def __init__(self, by_turns: bool) -> None:
        self._admission = Admission(PacingMemory(), lambda *_: None, 0.0)
        self._by_turns = by_turns
        self._asked: dict[int, tuple[Sketch, int]] = {}
        self._wake_s = inf

    def ask(self, call: int, sketch: Sketch, agent: int, now: float) -> None:
        self._asked[call] = sketch, agent
        path = ("run", str(agent)) if self._by_turns else ("run",)
        if self._by_turns:
            sketch = Sketch(
                sketch.model, size_bytes=sketch.size_bytes, kind=sketch.kind,
                max_output_tokens=sketch.max_output_tokens,
            )  # fmt: skip
        self._admission.ask(("", call), Request("account", "anthropic", sketch, path), now)

    def open(self, now: float) -> list[int]:
        decision = self._admission.decide(now)
        self._wake_s = decision.wake_s
        return [granted.id[1] for granted in decision.grants]

    def next_s(self) -> float:
        return self._wake_s

    def refused(self, call: int, fault: Fault, reading: Reading, now: float) -> None:
        self._admission.settle(("", call), Outcome("throttled", Tally(), fault, reading), now)
        self.ask(call, *self._asked.pop(call), now)

    def began(self, call: int, reading: Reading, now: float) -> None:
        self._admission.first_byte(("", call), reading, "anthropic", now)

    def ended(self, call: int, tally: Tally, now: float) -> None:
        del self._asked[call]
        self._admission.settle(("", call), Outcome("used", tally), now)


class _Direct:
    """Sends at once, and again when the provider says so, for as long as it takes."""

    def __init__(self) -> None:
        self._door = UnpacedDoor(PATIENT, 1)
        self.open, self.next_s = self._door.open, self._door.next_s

    def ask(self, call: int, sketch: Sketch, agent: int, now: float) -> None:  # noqa: ARG002
        self._door.knock(call, Demand(Amounts(), Amounts()), ())

    def refused(self, call: int, fault: Fault, reading: Reading, now: float) -> None:
        self._door.refused(call, fault, reading, now)

    def began(self, call: int, reading: Reading, now: float) -> None:
        """Not used."""

    def ended(self, call: int, tally: Tally, now: float) -> None:
        self._door.ended(call, Amounts(tally.input_tokens, tally.output_tokens), None, now)


def rehearse(scene: Scene, way: Way) -> Measured:
    """A way in virtual time."""
    door: Door = _Direct() if way == "direct" else _Paced(way == "turns")
    provider = Provider(ProviderSpec("cached", Terms(scene.limits), scene.latency), 1)
    cache, found = PromptCache(), Measured(way)
    asks = [(0.0, agent, 0) for agent in range(scene.agents)]
    calls: dict[int, tuple[int, int, Sketch]] = {}
    sent: dict[int, tuple[float, Tally]] = {}
    last_s: dict[int, float] = {}
    now, left, number = 0.0, scene.agents, 0
    while left:
        now = max(now, min(provider.next_s(), door.next_s(), asks[0][0] if asks else inf))
        for happened in provider.advance(now):
            agent, turn, sketch = calls[happened.call_id]
            sent_s, tally = sent[happened.call_id]
            if isinstance(happened, FirstByte):
                prompt = cached_prompt(sketch, "", scene.prompt_tokens(turn))
                cache.write(prompt, sketch.keeps_s, now)
                door.began(happened.call_id, read_headers("anthropic", happened.reading, sent_s),
                           now)  # fmt: skip
            elif isinstance(happened, SimulatedEnd):
                door.ended(happened.call_id, tally, now)
                if turn + 1 < scene.turns:
                    heapq.heappush(asks, (now + scene.wait_s(agent, turn), agent, turn + 1))
                else:
                    left, found.time_s = left - 1, now
        while asks and asks[0][0] <= now:
            _, agent, turn = heapq.heappop(asks)
            number += 1
            calls[number] = agent, turn, scene.sketch(agent, turn)
            door.ask(number, calls[number][2], agent, now)
        while opened := door.open(now):
            for call in opened:
                agent, turn, sketch = calls[call]
                total = scene.prompt_tokens(turn)
                read, written, again = cache.read(cached_prompt(sketch, "", total), now)
                answer = provider.submit(
                    SimulatedCall(call, total - read, scene.output_tokens, 4096.0), now
                )
                if isinstance(answer, Refused):
                    found.refused += 1
                    door.refused(call, answer.fault, answer.reading, now)
                    continue
                sent[call] = (
                    now,
                    Tally(total - read, read, scene.output_tokens, "reported", written),
                )
                found.calls += 1
                found.read_tokens += read
                found.written_tokens += written
                found.rewritten_tokens += again
                found.gap_s = max(found.gap_s, now - last_s.get(agent, now))
                last_s[agent] = now
    return found


# Over HTTP.

SPEED: Final = 30.0
TOKENS: Final = 5.0
"""By what time is shorter, and by what prompts and answers are."""

PACKAGE: Final = "hivemind-scheduler==0.2.*"
PEER: Final = ROOT / ".venv" / "peers" / "hivemind"
PEER_CODE: Final = """
import dataclasses, sys
from hivemind.proxy.server import HiveMindConfig, run_proxy
from hivemind.scheduler import providers
port, upstream, speed, tokens, folder = sys.argv[1:]
speed, tokens = float(speed), float(tokens)
known = providers.ANTHROPIC
scaled = dataclasses.replace(
    known, default_requests_per_minute=int(known.default_requests_per_minute * speed),
    default_tokens_per_minute=int(known.default_tokens_per_minute * speed / tokens),
    latency_target_ms=known.latency_target_ms / speed)
providers.detect_provider = providers.get_profile = lambda *_: scaled
config = HiveMindConfig(proxy_port=int(port), upstream_url=upstream, db_path=folder + "/h.db")
config.retry_base_delay /= speed
config.retry_max_delay /= speed
run_proxy(config)
"""
"""Its proxy with its defaults, which are per minute and in seconds, in the same scale."""

HTTP_S_MAX: Final = 3_000.0
BACKOFF_S: Final = 2.0
"""Where a refusal does not say when to come back."""


def scaled(scene: Scene) -> Scene:
    """The same scene over HTTP."""
    return Scene(
        scene.agents, scene.turns, round(scene.shared_tokens / TOKENS),
        round(scene.task_tokens / TOKENS), round(scene.turn_tokens / TOKENS),
        round(scene.output_tokens / TOKENS), scene.tool_s / SPEED, 0.0,
        tuple([_scaled(limit) for limit in scene.limits]), scene.keeps_s / SPEED,
        Latency(scene.latency.first_byte_s / SPEED,
                scene.latency.per_output_token_s * TOKENS / SPEED),
    )  # fmt: skip


def _scaled(limit: Limit) -> Limit:
    """A bucket that holds as many seconds less as time is faster."""
    amount = limit.amount / (1.0 if limit.resource == "requests" else TOKENS)
    return Limit(limit.resource, amount * SPEED, burst=amount)


def body_of(scene: Scene, agent: int, turn: int) -> dict[str, Any]:
    """A turn on the wire of Anthropic, marked as agents mark theirs."""
    mark = {"cache_control": {"type": "ephemeral", "ttl": f"{scene.keeps_s:g}s"}}
    texts = [_text(scene.task_tokens, f"agent {agent}")]
    for one in range(turn):
        texts.append(_text(scene.output_tokens, f"reply {one}"))
        texts.append(_text(scene.turn_tokens - scene.output_tokens, f"result {one}"))
    messages: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[place % 2], "content": text}
        for place, text in enumerate(texts)
    ]
    messages[-1]["content"] = [{"type": "text", "text": texts[-1], **mark}]
    return {
        "model": f"tokens-{scene.output_tokens}", "max_tokens": 820, "stream": True,
        "system": [{"type": "text", "text": _text(scene.shared_tokens, "rules"), **mark}],
        "messages": messages,
    }  # fmt: skip


def _text(tokens: int, first: str) -> str:
    return f"{first} {''.join(filler(max(1, tokens - 3), 1))}"


async def run_agents(scene: Scene, url: str, key: str) -> float:
    """All agents of a way; returns when the last one has ended."""
    began_s = time.monotonic()
    limits = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=limits, timeout=aiohttp.ClientTimeout()) as client:

        async def agent(number: int) -> None:
            headers = {"x-api-key": key, "anthropic-version": "2023-06-01",
                       "x-session-id": f"s-{number}"}  # fmt: skip
            for turn in range(scene.turns):
                body, tries = body_of(scene, number, turn), 0
                while True:
                    tries += 1
                    async with client.post(f"{url}/v1/messages", json=body, headers=headers) as got:
                        said = await got.read()
                        if got.status == 200 and b"message_stop" in said:
                            break
                        wait_s = got.headers.get("retry-after-ms", "")
                        again_s = float(wait_s) / 1000 if wait_s else BACKOFF_S / SPEED
                        if not wait_s and "retry-after" in got.headers:
                            again_s = float(got.headers["retry-after"])
                    await asyncio.sleep(again_s)
                await asyncio.sleep(scene.tool_s)

        await asyncio.gather(*(agent(number) for number in range(scene.agents)))
    return time.monotonic() - began_s


@contextmanager
def door(way: Way, upstream: str, folder: Path) -> Iterator[str]:
    """Where the agents of a way send; gives its URL."""
    if way == "direct":
        yield upstream
        return
    port = free_port()
    if way == "hivemind":
        python = PEER / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", PEER], check=True)
            subprocess.run([python, "-m", "pip", "install", "-qq", PACKAGE], check=True)
        told = [str(port), upstream, str(SPEED), str(TOKENS), str(folder)]
        with process_of([str(python), "-c", PEER_CODE, *told], is_heard=False):
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"
        return
    home = {f"HEADWAY_{name}_DIR": str(folder / name.lower())
            for name in ("RUNTIME", "STATE", "CONFIG")}  # fmt: skip
    home |= {"HOME": str(folder), "HEADWAY_IDLE_S": "30"}
    if way == "turns":
        source = folder / "source"
        source.mkdir()
        packed = subprocess.run(["git", "archive", EARLIER, "src"], cwd=ROOT, check=True,
                                stdout=subprocess.PIPE).stdout  # fmt: skip
        subprocess.run(["tar", "-x", "-C", source], input=packed, check=True)
        home["PYTHONPATH"] = str(source / "src")
    arguments = ["--port", str(port), "--upstream", upstream, "--drain", "0", "--wait", "1h"]
    try:
        with process_of([*GATEWAY, *arguments], home, is_heard=False) as process:
            token = token_in(folder / "runtime" / "gateway.json", process)
            yield f"http://127.0.0.1:{port}/{token}/anthropic"
    finally:
        for pid in brokers(str(folder)):
            end(pid)


def _wait_for(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the proxy did not start")


async def measure(scene: Scene, ways: Sequence[Way]) -> list[Measured]:
    """All ways at once over HTTP, in the time of the scene as it is."""
    small = scaled(scene)
    spec = ProviderSpec("cached", Terms(small.limits), small.latency)
    with ExitStack() as stack:
        url = stack.enter_context(serving(spec, ServeOptions(seed=1)))
        urls = []
        for way in ways:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hw-")))
            urls.append(stack.enter_context(door(way, url, folder)))
        say(f"over HTTP: {', '.join(ways)}")
        runs = [asyncio.wait_for(run_agents(small, one, f"sk-{way}"), HTTP_S_MAX)
                for way, one in zip(ways, urls, strict=True)]  # fmt: skip
        times = await asyncio.gather(*runs, return_exceptions=True)
        accounts = truth_of(url)["accounts"]
    found = []
    for way, took_s in zip(ways, times, strict=True):
        account = accounts[account_of(f"sk-{way}")]
        told = account["reported"]
        found.append(Measured(
            way, (inf if isinstance(took_s, BaseException) else took_s) * SPEED, account["whole"],
            sum(account["refused"].values()), round(told["cache_read_tokens"] * TOKENS),
            round(told["cache_write_tokens"] * TOKENS),
            round(told["cache_rewrite_tokens"] * TOKENS),
        ))  # fmt: skip
    return found


def report(virtual: dict[str, list[Measured]], served: list[Measured]) -> str:
    """The page."""
    first, *_ = SCENES
    parts = [
        "# Prompt caches: what is written twice\n\nGenerated by `make bench-cache` "
        "(`python -m bench.cache`); edits are overwritten. 20 agents of 30 turns share an account. "
        "A turn sends the whole conversation, 20,000 tokens at first, and the provider keeps it "
        "for 5 minutes after its last use. What it reads from there is free of the limit on input; "
        "what it has forgotten is *written twice*: paid at 1.25 times the price of input, and "
        "counted. headway must write at most a tenth of what the direct way writes twice, and "
        "take no longer than by turns; where it does not, the table shows it. In virtual time the "
        "direct way is told to the millisecond when to come back, and obeys. headway's constants "
        "were chosen on scenes like the first four and on the next two, which showed faults; the "
        "six after them were only run. *Outlasts*: what is lost because a tool takes "
        "longer than the cache keeps a prompt; no order of calls saves it.\n"
    ]
    for name, found in virtual.items():
        lost = outlasted(ALL_SCENES[name])
        words = f"Outlasts: {lost / 1e6:.2f} M.\n\n" if lost else ""
        parts.append(f"## {name[0].upper()}{name[1:]}\n\n{words}{_table(found)}")
    parts.append(
        f"## Over HTTP: {first}\n\nTime {SPEED:g} times faster, prompts and answers a fifth "
        "as long, limits, cache and HiveMind's own numbers alike; all ways at once. Figures are in "
        f"the time and the tokens of the account as it is.\n\n{_table(served)}"
    )
    return "\n".join(parts)


def _table(found: Sequence[Measured]) -> str:
    rows = [
        [NAMES[one.way], "not done" if one.time_s == inf else f"{one.time_s / 60:,.0f} min",
         f"{one.calls:,}", f"{one.refused:,}", *(f"{tokens / 1e6:.2f} M" for tokens in
         (one.read_tokens, one.written_tokens, one.rewritten_tokens))]
        for one in found
    ]  # fmt: skip
    head = ("", "time", "calls", "refused", "read from the cache", "written", "written twice")
    return table(head, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.cache")
    parser.add_argument("--virtual", action="store_true", help="print virtual time only")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    virtual = {
        name: [rehearse(scene, way) for way in ("headway", "turns", "direct")]
        for name, scene in ALL_SCENES.items()
    }
    if parsed.virtual:
        print("\n".join(f"{name}\n\n{_table(found)}" for name, found in virtual.items()))
        return 0
    served = asyncio.run(measure(next(iter(SCENES.values())), tuple(NAMES)))
    parsed.output.write_text(report(virtual, served))
    return 0


if __name__ == "__main__":
    sys.exit(main())
