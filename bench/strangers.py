"""headway over HTTP on servers of others, beside pools and aiolimiter: `python -m bench.strangers`.

Envoy, nginx and LiteLLM's proxy limit the calls to an upstream without limits; mocklimit and llmock
limit and answer. All ways to send the same calls run at the same time, each with an API key and so
a limit of its own. Every figure but the first result and the p95 is computed from the server's own
access log: the limits as configured are replayed on it, which tells when there was room.

A server that only slows down, a real model, is compared with pools of 1 to 8.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from copy import deepcopy
from hashlib import sha256
from heapq import heappop, heappush
from math import ceil, floor, inf
from pathlib import Path
from time import sleep
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from bench.gateway_subjects import peers_python
from bench.http_peers import REFUSED, Errand, Outcome
from bench.llm import llama_errand, run_way
from bench.markdown import table
from bench.results import FOLDERS, RESULTS, ROOT, code_hash, files_of, say
from bench.servers import (
    LOOPBACK,
    Envoy,
    Litellm,
    Llmock,
    Mocklimit,
    Nginx,
    Visit,
    envoy,
    free_port,
    litellm,
    llama,
    llmock,
    mocklimit,
    nginx,
    nginx_visits,
    running,
    visits,
)
from bench.trial import WARM_UP
from headway.base.codec import as_dict
from headway.base.values import Limit
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE
from headway.pacing.account import AccountConfig
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.report.bound import bound
from headway.sim.account import Needs, SimulatedAccount, Terms
from headway.sim.clients import PacedDoor
from headway.sim.headers import dialect_of
from headway.sim.provider import (
    FaultModel,
    Happening,
    Latency,
    Provider,
    ProviderSpec,
    Refused,
    SimulatedCall,
    SimulatedEnd,
)
from headway.sim.rehearsal import Rehearsal, Rehearsed, WorkloadSpec, draw_workload

REPORT: Final = ROOT / "docs" / "benchmarks" / "strangers.md"
STORED: Final = RESULTS / "strangers.jsonl"
CODE: Final = (*FOLDERS, "broker", "client", "wire")
"""Folders whose change makes headway's figures stale."""

WAYS: Final = ("headway", "fixed:5", "fixed:20", "aiolimiter")
"""The ways of the first round; in the second, headway has its memory of the first."""

NAMES: Final = {
    "headway": "**headway**, cold",
    "profile": "**headway**, second run",
    "fixed:5": "pool of 5",
    "fixed:20": "pool of 20",
    "aiolimiter": "aiolimiter, limits configured",
}
MAX_TOKENS: Final = 40
MODEL: Final = "tokens-40"
PATIENCE: Final = 1000
"""Retries of the SDK for all but headway."""

RATIO_MAX: Final = {"headers": 1.15, "none": 1.35}
STALL_S_MAX: Final = 2.0
MODEL_RATIO_MAX: Final = 1.1
"""Of the best pool's time on the real model."""

CUT_RATIO: Final = 6.0
CUT_S: Final = 60.0
"""A way that takes longer than so many times the bound, and this, is cut off."""

BUSY: Final = 2
"""Spinning processes with `--busy`: as many as the machine for the figures has cores."""

POOLS: Final = (1, 2, 4, 8)
MODEL_CALLS: Final = 24

AnyServer = Envoy | Nginx | Litellm | Mocklimit | Llmock
Edges = Literal["start", "clock", "use"]
"""Where windows end: counted from the first call; at multiples of the period; counted from the
first call after the last window's end, in whole seconds."""


class Scene(Struct, frozen=True):
    """A server, its limits as configured, and the work."""

    name: str
    server: AnyServer
    limits: tuple[Limit, ...]
    calls: int
    headers: Literal["headers", "none"] = "headers"
    edges: Edges = "start"
    service_s: float = 0.4
    """Of the upstream; the least latency where the server answers itself."""
    tokens: float = 0.0
    """What a call is charged where tokens are limited."""

    @property
    def kind(self) -> str:
        return type(self.server).__name__.lower()


class Measured(Struct, frozen=True):
    """One way on one server."""

    scene: str
    way: str
    is_busy: bool
    time_s: float
    """From the first arrival to the last answer."""
    bound_s: float
    refused: int
    lost: int
    """Given up by the client; of a way that was cut off, calls that were not answered by then."""
    is_cut: bool
    stall_s: float
    """The longest time without an arrival while there was room and calls were waiting."""
    stall_at_s: float
    stall_calls: int
    """How many calls there was room for in the middle of that time."""
    first_s: float
    p95_s: float

    @property
    def ratio(self) -> float:
        return self.time_s / self.bound_s


def _requests(amount: float, period_s: float, burst: float | None = None) -> tuple[Limit, ...]:
    return (Limit("requests", amount, period_s, "bucket", burst),)


def _both(scene: Scene, server: AnyServer) -> tuple[Scene, Scene]:
    """The same server without headers."""
    other = replace(scene, name=f"{scene.name}, no headers", server=server, headers="none")
    return scene, other


def _mocklimit(kind: Literal["fixed", "sliding", "bucket"], amount: int, period_s: float,
               calls: int) -> tuple[Scene, Scene]:  # fmt: skip
    server = Mocklimit(kind, amount, 10_000_000, period_s)
    limits = (Limit("requests", amount, period_s, kind),)
    name = f"mocklimit: {kind}, {amount} in {period_s:g} s"
    edges: Edges = "clock" if kind == "fixed" else "start"
    scene = Scene(name, server, limits, calls, edges=edges, service_s=0.1)
    return _both(scene, replace(server, has_headers=False))


SCENES: Final = (
    *_both(Scene("Envoy: 10 in 1 s", Envoy(10, 1.0), _requests(10, 1.0), 200),
           Envoy(10, 1.0, has_headers=False)),
    *_both(Scene("Envoy: 40 in 10 s", Envoy(40, 10.0), _requests(40, 10.0), 160),
           Envoy(40, 10.0, has_headers=False)),
    *_both(Scene("Envoy: 120 in 60 s", Envoy(120, 60.0), _requests(120, 60.0), 200),
           Envoy(120, 60.0, has_headers=False)),
    Scene("nginx: 5 a second, burst 10, 429", Nginx("5r/s", 10, status=429),
          _requests(5, 1.0, 11), 140, "none"),
    Scene("nginx: 60 a minute, burst 5, 503", Nginx("60r/m", 5), _requests(60, 60.0, 6), 45,
          "none"),
    Scene("nginx: 5 a second, delayed", Nginx("5r/s", 200, is_delayed=True),
          _requests(5, 1.0, 1), 140, "none"),
    Scene("nginx: 6 connections, 503", Nginx(connections=6),
          (Limit("concurrency", 6, 0.0, "gauge"),), 150, "none", service_s=1.0),
    Scene("LiteLLM: 60 requests in 60 s", Litellm(rpm=60), (Limit("requests", 60, 60.0, "fixed"),),
          100, edges="use"),
    Scene("LiteLLM: 20 requests in 10 s", Litellm(rpm=20, window_s=10),
          (Limit("requests", 20, 10.0, "fixed"),), 80, edges="use"),
    Scene("LiteLLM: 4 at once", Litellm(parallel=4), (Limit("concurrency", 4, 0.0, "gauge"),), 100,
          service_s=1.0),
    *_mocklimit("bucket", 60, 60.0, 90),
    *_mocklimit("fixed", 30, 10.0, 110),
    *_mocklimit("fixed", 60, 60.0, 110),
    *_mocklimit("sliding", 30, 10.0, 110),
    *_mocklimit("sliding", 60, 60.0, 110),
    Scene("llmock: 120 requests a minute", Llmock(rpm=120, latency_ms=400), _requests(120, 60.0),
          170),
    Scene("llmock: 20,000 tokens a minute", Llmock(tpm=20_000, latency_ms=400),
          (Limit("tokens", 20_000, 60.0),), 200, tokens=150.0),
)  # fmt: skip
QUICK: Final = (
    Scene("mocklimit: fixed, 20 in 4 s", Mocklimit("fixed", 20, 10_000_000, 4.0),
          (Limit("requests", 20, 4.0, "fixed"),), 50, edges="clock", service_s=0.1),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.strangers")
    parser.add_argument("--only", metavar="SERVER", help="scenes whose name begins so")
    parser.add_argument("--quick", action="store_true", help="one small scene, nothing stored")
    parser.add_argument(
        "--virtual",
        action="store_true",
        help="simulated servers of the same kinds, in virtual time",
    )
    parser.add_argument("--busy", action="store_true", help="with both cores kept busy")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--keep", type=Path, help="a folder for the servers' logs")
    parser.add_argument("--jobs", type=int, default=1, help="scenes at the same time")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    if parsed.quick:
        found = [one for scene in QUICK for one in measure(scene, parsed.busy, parsed.keep)]
        print(_scene_table(found))
        return 0
    chosen = [scene for scene in SCENES
              if scene.name.lower().startswith((parsed.only or "").lower())]  # fmt: skip
    if parsed.virtual:
        for scene in chosen:
            found = [rehearse(scene, way) for way in VIRTUAL_WAYS if not is_delayed(scene)]
            for one in found:
                missed = ", ".join(misses(scene, one))
                print(
                    f"{scene.name:40} {one.way:8} {one.ratio:5.2f} of {one.bound_s:5.1f} s, "
                    f"{one.refused:4} refused, stall {one.stall_s:4.1f} s at "
                    f"{one.stall_at_s:5.1f} s  {missed and 'MISSED: ' + missed}",
                    flush=True,
                )
        return 0
    store = _Store(STORED)
    with spinning(BUSY if parsed.busy else 0), ThreadPoolExecutor(parsed.jobs) as threads:
        missing = [scene for scene in chosen
                   if parsed.again or not store.of(scene, parsed.busy)]  # fmt: skip
        say(f"{len(chosen) - len(missing)} scenes reused, {len(missing)} to run")
        work = {threads.submit(measure, scene, parsed.busy, parsed.keep): scene
                for scene in missing}  # fmt: skip
        for done in as_completed(work):
            scene = work[done]
            try:
                found = done.result()
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                say(f"{scene.name}: {error!r} {getattr(error, '__notes__', '')}")
                continue
            store.put(scene, parsed.busy, found)
            print(f"## {scene.name}\n\n{_scene_table(found)}", flush=True)
        if not parsed.only or "smollm".startswith(parsed.only.lower()):
            if parsed.again or not store.of(None, parsed.busy):
                store.put(None, parsed.busy, measure_model(parsed.busy))
            print(_model_table(store.of(None, parsed.busy)))
    if not parsed.only:
        parsed.output.parent.mkdir(parents=True, exist_ok=True)
        parsed.output.write_text(report(store))
    return 0


def measure(scene: Scene, is_busy: bool = False, keep: Path | None = None) -> list[Measured]:
    """All ways at once on a fresh server; then, on another fresh one, headway's second run."""
    say(f"{scene.name}: {scene.calls} calls, at least {least_s(scene, 0.0):.1f} s")
    ports = [free_port() for _ in WAYS]
    with tempfile.TemporaryDirectory(prefix="hw-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        first = _round(scene, WAYS, ports, folder, keep)
        # The second server is a new one: its limits are full, and by the memory not yet.
        sleep(max(limit.period_s for limit in scene.limits))
        second = _round(scene, ("headway",), ports, folder, keep)
    rows = [(way, one) for way, one in zip(WAYS, first, strict=True)]
    rows += [("profile", second[0])]
    return [
        judge(scene, way, is_busy, log, outcome) for way, (log, outcome) in rows
    ]  # fmt: skip


Heard = tuple[list[Visit], Outcome | None]


def _round(scene: Scene, ways: Sequence[str], ports: Sequence[int], folder: Path,
           keep: Path | None) -> list[Heard]:  # fmt: skip
    log = folder / f"{len(ways)}.log"
    with served(scene, log, ports) as urls, ThreadPoolExecutor(len(ways)) as threads:
        memory = folder / "memory"
        memory.mkdir(mode=0o700, exist_ok=True)
        outcomes = list(threads.map(
            lambda place: _sent(errand_of(scene, ways[place], urls[place]), memory, scene),
            range(len(ways))))  # fmt: skip
    read = nginx_visits if isinstance(scene.server, Nginx) else visits
    found = read(log)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{scene.name.replace(' ', '_')}-{len(ways)}.log").write_text(log.read_text())
    return [
        ([visit for visit in found if visit.key == f"sk-{way}"], outcome)
        for way, outcome in zip(ways, outcomes, strict=True)
    ]


def _sent(errand: Errand, memory: Path, scene: Scene) -> Outcome | None:
    cut_s = CUT_RATIO * least_s(scene, 0.0) + CUT_S
    try:
        return run_way(errand, memory=memory if errand.way == "headway" else None, timeout_s=cut_s)
    except subprocess.TimeoutExpired:
        return None


def errand_of(scene: Scene, way: str, url: str) -> Errand:
    """Calls of equal size."""
    prompts = tuple(
        f"Call {number:04} of {scene.calls:04}: what comes after the number {number:04}?"
        for number in range(scene.calls)
    )
    limits, period_s = {}, 60.0
    for limit in scene.limits:
        # aiolimiter has one period, in which the capacity is refilled.
        limits[limit.resource] = limit.amount if limit.burst is None else limit.burst
        if limit.kind != "gauge":
            period_s = limit.period_s * limits[limit.resource] / limit.amount
    return Errand(
        way, "openai", url, f"sk-{way}", MODEL, MAX_TOKENS, prompts,
        (int(scene.tokens) - MAX_TOKENS,) * scene.calls, {str(k): v for k, v in limits.items()},
        reserves=True, output_tokens_mean=float(MAX_TOKENS), period_s=period_s,
        retries=2 if way == "headway" else PATIENCE,
        is_streamed=not isinstance(scene.server, Mocklimit),
    )  # fmt: skip


@contextmanager
def served(scene: Scene, log: Path, ports: Sequence[int]) -> Iterator[list[str]]:
    """The server; its URL for each way."""
    server, port = scene.server, ports[0]
    urls = [f"http://{LOOPBACK}:{port}"] * len(ports)
    if isinstance(server, Mocklimit):
        with mocklimit(server, log, port):
            yield urls
        return
    if isinstance(server, Llmock):
        with llmock(server, log, port):
            yield urls
        return
    with upstream(scene.service_s) as behind:
        if isinstance(server, Envoy):
            with envoy(server, behind, log, ports):
                yield [f"http://{LOOPBACK}:{one}" for one in ports]
        elif isinstance(server, Nginx):
            with nginx(server, behind, log, port):
                yield urls
        else:
            python = peers_python("litellm", None)
            if python is None:
                raise RuntimeError("litellm could not be installed")
            with litellm(server, behind, log, port, python):
                yield urls


@contextmanager
def upstream(service_s: float) -> Iterator[int]:
    """A server without limits behind a proxy; its port."""
    command = [sys.executable, "-m", "headway", "sim", "serve", "--json", "--dialect", "plain",
               "--first-byte-s", f"{service_s:g}", "--per-token-s", "0"]  # fmt: skip
    with running(command) as process:
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port
        assert port is not None
        yield port


# What the limits as configured allow.


class Replay:
    """The limits of a scene, charged with what the log says."""

    def __init__(self, scene: Scene, now: float) -> None:
        self._scene = scene
        self._needs = Needs(scene.tokens, 0.0)
        self._end_s = -inf
        self._account = self._fresh(now)

    def when(self, now: float) -> float:
        """When the next call has room; infinite while only the end of a call can make it."""
        if self._scene.edges == "use" and now >= self._end_s:
            return now
        short = self._account.shortage(self._needs, now)
        return now if short is None else short[1]

    def room(self, now: float, calls: int) -> int:
        """How many of so many calls there is room for."""
        account = deepcopy(self._account)
        for count in range(calls):
            if account.shortage(self._needs, now) is not None:
                return count
            account.admit(self._needs, now, "")
        return calls

    def accept(self, now: float) -> None:
        """Charge a call."""
        if self._scene.edges == "use" and now >= self._end_s:
            self._account = self._fresh(now)
        self._account.admit(self._needs, now, "")

    def end(self, now: float) -> None:
        """A call has ended."""
        self._account.finish(self._needs, 0.0, now)

    def _fresh(self, now: float) -> SimulatedAccount:
        period_s = self._scene.limits[0].period_s or 1.0
        begins_s = now
        if self._scene.edges == "clock":
            begins_s = floor(now / period_s) * period_s
        elif self._scene.edges == "use" and self._scene.limits[0].kind != "gauge":
            begins_s = float(floor(now))
            self._end_s = begins_s + period_s
        elif self._scene.edges == "use":
            self._end_s = inf
        return SimulatedAccount(Terms(self._scene.limits, charging="kept"), begins_s)


def least_s(scene: Scene, start_s: float) -> float:
    """The least time for all calls of a scene, from its first arrival: they are all alike."""
    replay, now = Replay(scene, start_s), start_s
    ends: list[float] = []
    for _ in range(scene.calls):
        while True:
            while ends and ends[0] <= now:
                replay.end(heappop(ends))
            at_s = replay.when(now)
            if at_s <= now:
                break
            now = min(at_s, ends[0] if ends else inf)
        replay.accept(now)
        heappush(ends, now + scene.service_s)
    return now + scene.service_s - start_s


def judge(
    scene: Scene, way: str, is_busy: bool, log: Sequence[Visit], outcome: Outcome | None
) -> Measured:
    """The figures of one way, from the server's log."""
    if not log:
        raise RuntimeError(f"{scene.name}: {way} sent nothing")
    answered = [visit for visit in log if visit.status == 200]
    start_s = log[0].at_s
    end_s = max((visit.ended_s for visit in answered), default=start_s)
    stall_s, stall_at_s, stall_calls = longest_stall(scene, log)
    return Measured(
        scene.name, way, is_busy,
        time_s=end_s - start_s, bound_s=least_s(scene, start_s),
        refused=len(log) - len(answered), lost=scene.calls - len(answered),
        is_cut=outcome is None,
        stall_s=stall_s, stall_at_s=stall_at_s - start_s, stall_calls=stall_calls,
        first_s=outcome.first_s if outcome else inf,
        p95_s=outcome.service_p95_s if outcome else inf,
    )  # fmt: skip


def longest_stall(scene: Scene, log: Sequence[Visit]) -> tuple[float, float, int]:
    """The longest time with room, calls waiting and no arrival; when it began; for how many calls
    there was room in the middle of it."""
    start_s = log[0].at_s
    replay = Replay(scene, start_s)
    events = [(visit.at_s, 1, visit) for visit in log]
    events += [(visit.ended_s, 0, visit) for visit in log if visit.status == 200]
    events.sort(key=lambda event: event[:2])
    accepted, best, best_at, best_room = 0, 0.0, start_s, 0
    idle_from = inf
    """Since when there is room, or from when there will be."""
    for at_s, is_arrival, visit in events:
        if is_arrival and at_s - idle_from > best:
            best, best_at = at_s - idle_from, idle_from
            best_room = replay.room((idle_from + at_s) / 2.0, scene.calls - accepted)
        if not is_arrival:
            replay.end(at_s)
        elif visit.status == 200:
            replay.accept(at_s)
            accepted += 1
        if accepted == scene.calls:
            break
        room_s = replay.when(at_s)
        idle_from = room_s if is_arrival else min(idle_from, room_s)
    return best, best_at, best_room


# The same in virtual time: what the machine's load has no part in.

VIRTUAL_WAYS: Final = ("cold", "profile", "known")


class _LoggedProvider(Provider):
    """A simulated provider with an access log."""

    def __init__(self, spec: ProviderSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.log: list[Visit] = []
        self._began: dict[int, float] = {}

    def submit(self, call: SimulatedCall, now: float, key: str = "") -> Refused | None:
        refused = super().submit(call, now, key)
        if refused is None:
            self._began[call.id] = now
        else:
            self.log.append(Visit(key, now, now, REFUSED[0]))
        return refused

    def advance(self, now: float) -> list[Happening]:
        found = super().advance(now)
        for one in found:
            if isinstance(one, SimulatedEnd):
                self.log.append(Visit("", self._began[one.call_id], now, 200))
        return found


def spec_of(scene: Scene) -> ProviderSpec:
    """A simulated provider with the limits, headers and refusals of a scene's server."""
    server, faults = scene.server, FaultModel(retry_after="none")
    dialect = "plain"
    if isinstance(server, Envoy):
        dialect = "envoy" if server.has_headers else "plain"
    elif isinstance(server, Nginx):
        faults = replace(faults, refused_as="rate" if server.status == 429 else "overload")
    elif isinstance(server, Litellm):
        dialect, faults = "advice", FaultModel(retry_after="misleading")
    elif isinstance(server, Mocklimit):
        dialect, faults = "openai" if server.has_headers else "advice", FaultModel()
    else:
        dialect, faults = "openai", FaultModel()
    latency = Latency(0.75 * scene.service_s, 0.25 * scene.service_s / MAX_TOKENS)
    return ProviderSpec(scene.name, Terms(scene.limits, charging="kept"), latency, faults, dialect)


def rehearse(scene: Scene, way: str, seed: int = 1) -> Measured:
    """headway on a scene in virtual time."""
    spec, lengths = spec_of(scene), OutputLength()
    input_tokens = max(20.0, scene.tokens - MAX_TOKENS)
    work = WorkloadSpec(
        "strangers", scene.calls, 1, input_tokens, float(MAX_TOKENS), luck_spread=0.1,
        max_tokens=float(MAX_TOKENS), is_whole=isinstance(scene.server, Mocklimit),
    )  # fmt: skip

    def run(config: AccountConfig, drawn: int) -> tuple[AccountCalls, _LoggedProvider, Rehearsed]:
        calls, provider = AccountCalls(config, 0.0), _LoggedProvider(spec, drawn)
        provider.shows_progress = True
        door = PacedDoor(calls, lengths)
        found = Rehearsal(draw_workload(work, drawn), provider, door, Rules(ADAPTIVE)).run()
        return calls, provider, found

    config = AccountConfig(dialect_of(spec.dialect), scene.limits if way == "known" else ())
    if way == "profile":
        config = replace(config, profile=run(config, seed + WARM_UP)[0].account.profile())
    _, provider, found = run(config, seed)
    workload = draw_workload(work, seed)
    least = bound(spec, workload.calls, workload.needs).time_s
    log = sorted(provider.log, key=lambda visit: visit.at_s)
    stall_s, stall_at_s, stall_calls = longest_stall(replace(scene, edges="start"), log)
    first_s = min((one.ended_s for one in found.tasks if one.done), default=inf)
    latencies_s = sorted(found.latencies_s)
    return Measured(
        scene.name, way, False, found.makespan_s, least, found.refused, found.failed, False,
        stall_s, stall_at_s, stall_calls, first_s, latencies_s[ceil(0.95 * len(latencies_s)) - 1],
    )  # fmt: skip


# A real model.


def measure_model(is_busy: bool) -> list[Measured]:
    """headway and pools in turn on SmolLM2; the bound is the best pool's time."""
    with tempfile.TemporaryDirectory(prefix="hw-") as name, llama(slots=max(POOLS)) as url:
        errand = llama_errand(url, "smollm2", MODEL_CALLS)
        run_way(replace(errand, way="fixed:1", key="sk-warm", prompts=errand.prompts[:2]))
        found: dict[str, Outcome] = {}
        for way in (*(f"fixed:{width}" for width in POOLS), "headway", "profile"):
            own = replace(errand, way="headway" if way == "profile" else way, key="sk-model")
            is_paced = own.way == "headway"
            found[way] = run_way(own, memory=Path(name) if is_paced else None)
            say(f"SmolLM2: {way}: {found[way].makespan_s:.1f} s")
    best_s = min(found[f"fixed:{width}"].makespan_s for width in POOLS)
    return [
        Measured("SmolLM2 on llama.cpp", way, is_busy, one.makespan_s, best_s, one.refused,
                 MODEL_CALLS - one.answers, False, 0.0, 0.0, 0, one.first_s, one.service_p95_s)
        for way, one in found.items()
    ]  # fmt: skip


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """Processes that do nothing, as fast as they can."""
    processes = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()


def _spin() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


class _Store:
    """Finished scenes, a line each; a scene is stale when headway's code has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, list[Measured]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                # A line that was cut off by a kill, or has other fields, is no result.
                with suppress(ValueError, KeyError, ValidationError):
                    said = json.loads(line)
                    self._found[said["key"]] = convert(said["found"], list[Measured])

    def of(self, scene: Scene | None, is_busy: bool) -> list[Measured]:
        return self._found.get(_key(scene, is_busy), [])

    def put(self, scene: Scene | None, is_busy: bool, found: list[Measured]) -> None:
        self._found[_key(scene, is_busy)] = found
        self._path.parent.mkdir(parents=True, exist_ok=True)
        said = {"key": _key(scene, is_busy), "found": [as_dict(one) for one in found]}
        with self._path.open("a") as lines:
            lines.write(json.dumps(said) + "\n")


def _key(scene: Scene | None, is_busy: bool) -> str:
    return sha256(f"{scene!r} {is_busy} {code_hash(files_of(CODE))}".encode()).hexdigest()[:24]


# For people.


def is_delayed(scene: Scene) -> bool:
    """A queue at the server: the simulated provider has none."""
    return isinstance(scene.server, Nginx) and scene.server.is_delayed


def misses(scene: Scene, one: Measured) -> list[str]:
    """The musts that a run of headway does not keep."""
    found = []
    if one.lost:
        found.append(f"{one.lost} unfinished, cut off" if one.is_cut else f"{one.lost} lost")
    if one.stall_s > STALL_S_MAX:
        found.append(f"a stall of {one.stall_s:.1f} s with room for {one.stall_calls}")
    if one.ratio > RATIO_MAX[scene.headers]:
        found.append(f"{one.ratio:.2f} of the bound")
    return found


def report(store: _Store) -> str:
    """All scenes, quiet and busy."""
    parts = [
        "# Over HTTP on servers of others\n\nGenerated by `make bench-strangers` "
        "(`python -m bench.strangers`, and the same with `--busy`); edits are overwritten. "
        "headway has no limits configured; in its *second run* it has its memory of the first. "
        f"Pools retry as the SDK does, up to {PATIENCE} times; aiolimiter has the limits "
        "configured. The *bound* is the least time that the limits as configured allow. A "
        "*stall* is time without an arrival while the limits had room and calls were waiting, "
        "from the server's own log. "
        f"headway must lose no call, not stall for more than {STALL_S_MAX:g} s and take at most "
        f"{RATIO_MAX['headers']} times the bound where the server sends headers about its limits, "
        f"{RATIO_MAX['none']} times where it sends none; on the real model at most "
        f"{MODEL_RATIO_MAX} times the best pool's time.\n"
    ]
    for is_busy in (False, True):
        scenes = [(scene, store.of(scene, is_busy)) for scene in SCENES]
        model = store.of(None, is_busy)
        if not model and not any(found for _, found in scenes):
            continue
        parts.append("# Both cores kept busy\n" if is_busy else "# On a quiet machine\n")
        parts += [
            f"## {scene.name}\n\n{scene.calls} calls.\n\n{_scene_table(found)}"
            for scene, found in scenes
            if found
        ]
        parts += [f"## {model[0].scene}\n\n{_model_table(model)}"] if model else []
        missed = [
            f"- {scene.name}, {NAMES[one.way]}: {', '.join(misses(scene, one))}"
            for scene, found in scenes
            for one in found
            if one.way in ("headway", "profile") and misses(scene, one)
        ]
        parts.append("Missed:\n\n" + "\n".join(missed) + "\n" if missed else "Nothing missed.\n")
    return "\n".join(parts)


def _scene_table(found: Sequence[Measured]) -> str:
    headings = ("way", "time", "bound", "of the bound", "refused", "lost", "longest stall",
                "first result", "p95")  # fmt: skip
    order = list(NAMES)
    rows = [
        [NAMES[one.way], f"{one.time_s:.1f} s", f"{one.bound_s:.1f} s", f"{one.ratio:.2f}",
         f"{one.refused}", f"{one.lost} unfinished, cut off" if one.is_cut else f"{one.lost}",
         f"{one.stall_s:.1f} s (at {one.stall_at_s:.1f} s, room for {one.stall_calls})",
         f"{one.first_s:.1f} s", f"{one.p95_s:.1f} s"]
        for one in sorted(found, key=lambda one: order.index(one.way))
    ]  # fmt: skip
    return table(headings, rows)


def _model_table(found: Sequence[Measured]) -> str:
    headings = ("way", "time", "of the best pool", "first result", "p95")
    rows = [
        [NAMES.get(one.way, one.way.replace("fixed:", "pool of ")), f"{one.time_s:.1f} s",
         f"{one.ratio:.2f}", f"{one.first_s:.1f} s", f"{one.p95_s:.1f} s"]
        for one in found
    ]  # fmt: skip
    return table(headings, rows)


if __name__ == "__main__":
    sys.exit(main())
