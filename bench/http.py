"""headway against what else a client can do, over real HTTP: `python -m bench.http`.

A simulated provider (`headway sim serve`) enforces the limits in real time. Every way sends the
same calls through the same SDK, from a process of its own, on an API key and so an account of its
own, and all ways of a repetition run at the same time, so that the machine's load is the same for
all. What a client saw is checked against what the provider's `/truth` says, number by number.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from bench.http_peers import Errand, Outcome, Wire
from bench.llm import run_way
from bench.markdown import table
from bench.results import ROOT, say
from bench.servers import running
from headway.base.codec import as_dict
from headway.base.values import Charging, Limit
from headway.report.bound import bound
from headway.sim.account import Terms
from headway.sim.models import SimulatedModels
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall
from headway.sim.server import account_of, truth_of
from headway.sim.truth import filler, input_tokens
from headway.wire.values import Conversation

REPORT: Final = ROOT / "docs" / "benchmarks" / "http.md"
WAYS: Final = ("headway", "sdk", "fixed:5", "waves:4", "aiolimiter", "token-throttle", "aimd")
NAMES: Final = {
    "headway": "**headway**, no limits configured",
    "sdk": "all at once, the SDK's retries",
    "fixed:5": "`Semaphore(5)`",
    "waves:4": "waves of 4",
    "aiolimiter": "aiolimiter, told all limits",
    "token-throttle": "token-throttle, told all limits",
    "aimd": "AIMD on refusals",
}
MODEL: Final = "tokens-50-800"
MAX_TOKENS: Final = 1000
CALLS: Final = 120
SEEDS: Final = 3
LEAST_PYTHON: Final = (3, 12)
"""What token-throttle needs."""


class Scene(Struct, frozen=True):
    """An account, and how it is spoken to."""

    name: str
    wire: Wire
    limits: tuple[tuple[str, float], ...]
    latency: Latency = Latency(1.0, 0.01)
    calls: int = CALLS
    input_tokens: tuple[int, int] = (200, 1800)

    @property
    def spec(self) -> ProviderSpec:
        """The same account for the bound."""
        kinds: dict[str, Limit] = {
            "requests": Limit("requests", 0.0), "tokens": Limit("tokens", 0.0),
            "input": Limit("input", 0.0), "output": Limit("output", 0.0),
            "concurrency": Limit("concurrency", 0.0, 0.0, "gauge"),
        }  # fmt: skip
        limits = tuple(replace(kinds[name], amount=amount) for name, amount in self.limits)
        charging: Charging = "reserved" if self.reserves else "produced"
        return ProviderSpec("served", Terms(limits, charging=charging), self.latency)

    @property
    def reserves(self) -> bool:
        """Whether `max_tokens` is charged at admission: `headway sim serve` charges as OpenAI does
        where input and output have one limit."""
        return any(name == "tokens" for name, _ in self.limits)

    @property
    def options(self) -> list[str]:
        """The account as `headway sim serve` is told of it."""
        flags = {"requests": "--rpm", "tokens": "--tpm", "input": "--itpm", "output": "--otpm",
                 "concurrency": "--concurrent"}  # fmt: skip
        told = [word for name, amount in self.limits for word in (flags[name], f"{amount:g}")]
        latency = self.latency
        return [*told, "--first-byte-s", f"{latency.first_byte_s:g}",
                "--per-token-s", f"{latency.per_output_token_s:g}"]  # fmt: skip


SCENES: Final = (
    Scene("OpenAI's wire: 500 requests and 100,000 tokens a minute, 20 at once", "openai",
          (("requests", 500), ("tokens", 100_000), ("concurrency", 20))),
    Scene("Anthropic's wire: 500 requests, 80,000 input and 20,000 output tokens a minute, "
          "20 at once", "anthropic",
          (("requests", 500), ("input", 80_000), ("output", 20_000), ("concurrency", 20))),
)  # fmt: skip
QUICK: Final = (
    replace(SCENES[0], name="a small account for a test", calls=40, latency=Latency(0.3, 0.003),
            limits=(("requests", 300), ("tokens", 36_000), ("concurrency", 8))),
)  # fmt: skip
"""For a test: the same kind of account, a third of the work."""

QUICK_WAYS: Final = ("headway", "sdk", "fixed:5", "waves:4", "aiolimiter")


class Work(Struct, frozen=True):
    """What every way sends."""

    prompts: tuple[str, ...]
    inputs: tuple[int, ...]


class Measured(Struct, frozen=True):
    """One way on one account, as the provider saw it."""

    way: str
    seed: int
    makespan_s: float
    bound_s: float
    answers: int
    refused: int
    failures: int
    lost_tokens: int
    """Produced by the provider and delivered to nobody."""
    in_flight_most: int

    @property
    def ratio(self) -> float:
        return self.makespan_s / self.bound_s


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.http")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--quick", action="store_true", help="one small account, one seed")
    parser.add_argument(
        "--peers-python", metavar="PYTHON", help="3.12 or newer, for token-throttle"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="repetitions")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    if parsed.quick:
        measured = {scene: measure(scene, QUICK_WAYS, 1, {}) for scene in QUICK}
    else:
        with peers_python(parsed.peers_python) as python:
            measured = {scene: _all_seeds(scene, parsed.seeds, python) for scene in SCENES}
    if parsed.json:
        said = {scene.name: [as_dict(one) for one in found] for scene, found in measured.items()}
        print(json.dumps(said))
        return 0
    text = report(measured)
    if not parsed.quick:
        parsed.output.parent.mkdir(parents=True, exist_ok=True)
        parsed.output.write_text(text)
    print(text)
    return 0


def _all_seeds(scene: Scene, seeds: int, python: dict[str, str]) -> list[Measured]:
    ways = [way for way in WAYS if way != "token-throttle" or way in python]
    return [one for seed in range(1, seeds + 1) for one in measure(scene, ways, seed, python)]


def measure(scene: Scene, ways: Sequence[str], seed: int, python: dict[str, str]) -> list[Measured]:
    """All ways at the same time, on accounts of their own."""
    texts, calls = work_of(scene, seed)
    work = Work(texts, tuple(int(call.input_tokens) for call in calls))
    least_s = bound(scene.spec, [(call,) for call in calls], [()] * len(calls)).time_s
    say(f"{scene.wire}, seed {seed}: at least {least_s:.1f} s")
    with served(scene, seed) as url, ThreadPoolExecutor(len(ways)) as threads:
        errands = [_errand(scene, way, seed, url, work) for way in ways]
        interpreters = [python.get(way, sys.executable) for way in ways]
        outcomes = list(threads.map(run_way, errands, interpreters))
        truth = truth_of(url, "?arrivals=all")
    return [
        checked(errand, outcome, truth, least_s)
        for errand, outcome in zip(errands, outcomes, strict=True)
    ]


def work_of(scene: Scene, seed: int) -> tuple[tuple[str, ...], list[SimulatedCall]]:
    """Prompts of mixed lengths, and what the provider will count for them."""
    chance, models = random.Random(f"{scene.wire} {seed}"), SimulatedModels()
    texts, calls = [], []
    for number in range(scene.calls):
        tokens = chance.randint(*scene.input_tokens)
        text = f"Call {number} of {seed}:" + "".join(filler(tokens, chance.randrange(1000)))
        said = Conversation(MODEL, "", (("user", text),), True, MAX_TOKENS)
        texts.append(text)
        produced = float(min(MAX_TOKENS, len(models.reply(said).pieces)))
        calls.append(SimulatedCall(number, float(input_tokens(said)), produced, float(MAX_TOKENS)))
    return tuple(texts), calls


def checked(errand: Errand, outcome: Outcome, truth: dict[str, Any], bound_s: float) -> Measured:
    """The provider's own figures, once they are proved to be those that the client saw."""
    key = account_of(errand.key)
    account = truth["accounts"][key]
    visits = [visit for visit in truth["arrivals"] if visit["key"] == key]
    reported = account["reported"]
    seen = {
        "requests": outcome.sent, "answers": outcome.answers, "refusals": outcome.refused,
        "input tokens": outcome.input_tokens, "output tokens": outcome.output_tokens,
    }  # fmt: skip
    real = {
        "requests": account["calls"], "answers": account["whole"],
        "refusals": sum(account["refused"].values()),
        "input tokens": reported["input_tokens"], "output tokens": reported["output_tokens"],
    }  # fmt: skip
    if seen != real:
        raise AssertionError(f"{errand.way}: the client saw {seen}, the provider {real}")
    return Measured(
        errand.way, errand.seed,
        makespan_s=max(visit["ended_s"] for visit in visits) - visits[0]["at_s"],
        bound_s=bound_s,
        answers=account["whole"],
        refused=real["refusals"],
        failures=len(errand.prompts) - account["whole"],
        lost_tokens=sum(visit["output_tokens"] for visit in visits
                        if visit["is_accepted"] and visit["how"] != "whole"),
        in_flight_most=account["in_flight_max"],
    )  # fmt: skip


@contextmanager
def served(scene: Scene, seed: int) -> Iterator[str]:
    """A simulated provider in a process of its own."""
    command = [sys.executable, "-m", "headway", "sim", "serve", "--json", "--seed", str(seed)]
    with running([*command, *scene.options]) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise RuntimeError("`headway sim serve` did not start")
        yield json.loads(said)["url"]


@contextmanager
def peers_python(named: str | None) -> Iterator[dict[str, str]]:
    """An interpreter with token-throttle in a throw-away environment, if there can be one."""
    with ExitStack() as stack:
        python = named or _newer_python()
        if python is None:
            say("no Python 3.12 or newer: token-throttle is left out (--peers-python names one)")
            yield {}
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = str(Path(folder) / "bin" / "python")
        pip = [inside, "-m", "pip", "install", "-qq", "--disable-pip-version-check",
               "token-throttle", "openai", "anthropic"]  # fmt: skip
        if subprocess.run(pip, check=False).returncode != 0:
            say("token-throttle could not be installed and is left out")
            yield {}
            return
        yield {"token-throttle": inside}


def _newer_python() -> str | None:
    if sys.version_info >= LEAST_PYTHON:
        return sys.executable
    for minor in range(LEAST_PYTHON[1], LEAST_PYTHON[1] + 4):
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            said = subprocess.run([found, "-c", ""], capture_output=True, check=False)
            if said.returncode == 0:
                return found
    return None


def _errand(scene: Scene, way: str, seed: int, url: str, work: Work) -> Errand:
    return Errand(
        way, scene.wire, url, f"sk-{way}-{seed}-{os.getpid()}", MODEL, MAX_TOKENS, work.prompts,
        work.inputs,
        dict(scene.limits), reserves=scene.reserves, output_tokens_mean=250.0, seed=seed,
    )  # fmt: skip


def report(measured: dict[Scene, list[Measured]]) -> str:
    """For people."""
    parts = [
        "# Over HTTP: headway against what else a client can do\n\nGenerated by `make bench-http` "
        "(`python -m bench.http`); edits are overwritten. The provider is simulated "
        "(`headway sim serve`); connections, SDKs and time are real. All ways of a repetition run "
        "at the same time, each on an account of its own, with the same calls. Every figure is "
        "the provider's own and equals what the client saw. *Failed* calls are those that the "
        "SDK gave up on; a way that gives up early is fast. headway is told no limit; aiolimiter "
        "and token-throttle are told all of them, the exact size of every input and the mean "
        "length of an answer.\n"
    ]
    for scene, found in measured.items():
        seeds = sorted({one.seed for one in found})
        least = sorted({one.bound_s for one in found})
        rows = [_row(way, [one for one in found if one.way == way]) for way in WAYS]
        headings = (
            "way",
            "time",
            "of the bound",
            "refused",
            "failed",
            "tokens lost",
            "most at once",
        )
        parts.append(
            f"## {scene.name}\n\n{scene.calls} calls, means of {len(seeds)} seeds; the bound is "
            f"{least[0]:.0f} to {least[-1]:.0f} s.\n\n"
            + table(headings, [row for row in rows if row])
        )
    return "\n".join(parts)


def _row(way: str, found: Sequence[Measured]) -> list[str]:
    if not found:
        return []
    answered = sum(one.answers for one in found)
    asked = answered + sum(one.failures for one in found)
    is_whole = answered == asked
    ratio = f"{fmean(one.ratio for one in found):.2f}" if is_whole else "did not finish"
    return [
        NAMES[way],
        f"{fmean(one.makespan_s for one in found):.1f} s",
        ratio,
        f"{fmean(one.refused for one in found):.0f}",
        f"{fmean(one.failures for one in found):g}",
        f"{fmean(one.lost_tokens for one in found):,.0f}",
        f"{max(one.in_flight_most for one in found)}",
    ]


if __name__ == "__main__":
    sys.exit(main())
