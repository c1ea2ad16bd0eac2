"""One account for threads and for processes: `python -m bench.sharing`.

The same calls through the same SDK, sixteen at a time: from threads of one process that paces
itself, from threads and from sixteen processes that share a broker, from the examples as they are,
and unpaced. A simulated provider (`headway sim serve`) enforces the limits in real time, each way
has an account and a broker of its own, and every figure is the provider's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from bench.markdown import table
from bench.results import ROOT, say
from bench.sharing_crowd import (
    MAX_TOKENS,
    MODEL,
    Caller,
    Errand,
    Work,
    environment,
    place_of_its_own,
    prompt_of,
)
from headway.base.codec import as_dict
from headway.base.values import Charging, Limit
from headway.report.bound import bound
from headway.sim.account import Terms
from headway.sim.models import SimulatedModels
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall
from headway.sim.server import account_of, launched, truth_of
from headway.sim.truth import input_tokens
from headway.wire.values import Conversation

REPORT: Final = ROOT / "docs" / "benchmarks" / "sharing.md"
ANSWERS: Final = "tokens-100-600"
"""What the provider answers, whatever the model is called."""

WIDTH: Final = 16
NAMES: Final = {
    "alone": f"one process alone, {WIDTH} threads",
    "threads": f"**{WIDTH} threads**, through the broker",
    "processes": f"**{WIDTH} processes**, through the broker",
    "unpaced threads": f"{WIDTH} threads, unpaced",
    "unpaced processes": f"{WIDTH} processes, unpaced",
}
RATIO_MAX: Final = 1.05


class Scene(Struct, frozen=True):
    """An account and the work on it."""

    calls: int = 300
    words: tuple[int, int] = (60, 700)
    """How long prompts are."""
    latency: Latency = Latency(0.2, 0.002)
    charging: Charging = "reserved"
    """Whether `max_tokens` counts at admission, the rest refunded, or output as it is written."""

    @property
    def spec(self) -> ProviderSpec:
        """For the bound."""
        limits = (
            Limit("requests", 500.0),
            Limit("tokens", 100_000.0),
            Limit("concurrency", 20.0, 0.0, "gauge"),
        )
        return ProviderSpec("served", Terms(limits, charging=self.charging), self.latency)

    @property
    def options(self) -> tuple[str, ...]:
        """For `headway sim serve`."""
        latency = self.latency
        return ("--charging", self.charging, "--rpm", "500", "--tpm", "100k",
                "--concurrent", "20", "--model", ANSWERS,
                "--sigma", "0", "--kappa", "0", "--first-byte-s", f"{latency.first_byte_s:g}",
                "--per-token-s", f"{latency.per_output_token_s:g}")  # fmt: skip


FULL: Final = Scene()
PRODUCED: Final = Scene(charging="produced")
"""Not what headway takes OpenAI's wire to mean."""


class Measured(Struct, frozen=True):
    """One way, as the provider saw it."""

    way: str
    calls: int
    makespan_s: float
    bound_s: float
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
    parser = argparse.ArgumentParser(prog="python -m bench.sharing")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    reserved, produced = (crowds(scene, tuple(NAMES)) for scene in (FULL, PRODUCED))
    own = examples(FULL)
    if parsed.json:
        print(json.dumps([as_dict(one) for one in (*reserved, *produced, *own)]))
        return 0
    text = report(reserved, produced, own)
    parsed.output.parent.mkdir(parents=True, exist_ok=True)
    parsed.output.write_text(text)
    print(text)
    return 0


def crowds(scene: Scene, ways: Sequence[str], seed: int = 1) -> list[Measured]:
    """Some ways at the same time, each on an account of its own."""
    calls = calls_of(scene, seed)
    least_s = bound(scene.spec, [(call,) for call in calls], [()] * len(calls)).time_s
    say(f"{', '.join(ways)}: {scene.calls} calls, at least {least_s:.1f} s")
    with ExitStack() as stack:
        url = stack.enter_context(launched(*scene.options, "--seed", str(seed)))
        callers: list[Caller] = []
        works = [stack.enter_context(Work(range(scene.calls))) for _ in ways]
        for way, work in zip(ways, works, strict=True):
            place = stack.enter_context(place_of_its_own())
            errand = errand_of(way, url, scene, seed)
            callers.append(stack.enter_context(Caller(errand, work, place)))
        for caller in callers:
            caller.ready()
        for work in works:
            work.begin()
        with ThreadPoolExecutor(len(callers)) as threads:
            done = list(threads.map(Caller.done, callers))
        truth = truth_of(url, "?arrivals=all")
    for one in done:
        if one.faults:
            say(f"{one.label}: {len(one.faults)} failed, the first with {one.faults[0]}")
    return [judged(way, truth, scene.calls, least_s) for way in ways]


def errand_of(way: str, url: str, scene: Scene, seed: int) -> Errand:
    """What a way does: sixteen calls at a time, from threads or from processes."""
    how = "unpaced" if way.startswith("unpaced") else "alone" if way == "alone" else "shared"
    crowd = (WIDTH, 1) if way.endswith("processes") else (1, WIDTH)
    return Errand(url, way, way, scene.words, *crowd, how, seed)


def examples(scene: Scene) -> list[Measured]:
    """The examples as they are, at the same time, with and without pacing."""
    calls = {"threads.py": scene.calls, "processes.py": 200}
    ways = [(name, flags) for name in calls for flags in ((), ("--unpaced",))]
    with ExitStack() as stack:
        url = stack.enter_context(launched(*scene.options))
        running = []
        for name, flags in ways:
            place = stack.enter_context(place_of_its_own())
            options = ["--tasks", str(calls[name])]
            options += ["--threads" if name == "threads.py" else "--processes", str(WIDTH)]
            command = [sys.executable, str(ROOT / "examples" / name), *options, *flags, "--json"]
            key = " ".join((name, *flags))
            say(f"examples/{key}")
            running.append(subprocess.Popen(
                command, env=environment(place, url, key), stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL))  # fmt: skip
        for process in running:
            process.communicate()
        truth = truth_of(url, "?arrivals=all")
    return [
        replace(
            judged(" ".join((name, *flags)), truth, calls[name] + 2 * (name != "threads.py"), 0.0),
            bound_s=_bound_of_example(scene, name, flags, truth),
        )
        for name, flags in ways
    ]


def _bound_of_example(
    scene: Scene, name: str, flags: tuple[str, ...], truth: dict[str, Any]
) -> float:
    """From what the provider counted: the example makes its own prompts."""
    key = account_of(" ".join((name, *flags)))
    visits = [visit for visit in truth["arrivals"] if visit["key"] == key and visit["is_accepted"]]
    calls = [
        SimulatedCall(
            number, float(visit["input_tokens"]), float(visit["output_tokens"]), float(MAX_TOKENS)
        )
        for number, visit in enumerate(visits)
    ]
    last = len(calls) - 1
    needs: list[tuple[int, ...]] = [()] * len(calls)
    if name != "threads.py":
        needs = [(), *[(0,)] * (last - 1), tuple(range(1, last))]
    return bound(scene.spec, [(call,) for call in calls], needs).time_s


def calls_of(scene: Scene, seed: int) -> list[SimulatedCall]:
    """What the provider will count."""
    models, calls = SimulatedModels(ANSWERS), []
    for number in range(scene.calls):
        prompt = prompt_of(number, scene.words, seed)
        said = Conversation(MODEL, "", (("user", prompt),), False, MAX_TOKENS)
        produced = min(MAX_TOKENS, len(models.reply(said).pieces))
        calls.append(
            SimulatedCall(number, float(input_tokens(said)), float(produced), float(MAX_TOKENS))
        )
    return calls


def judged(way: str, truth: dict[str, Any], calls: int, bound_s: float) -> Measured:
    """A way by the provider's record."""
    key = account_of(way)
    account = truth["accounts"][key]
    visits = [visit for visit in truth["arrivals"] if visit["key"] == key]
    return Measured(
        way, calls,
        makespan_s=max(visit["ended_s"] for visit in visits) - visits[0]["at_s"],
        bound_s=bound_s,
        refused=sum(account["refused"].values()),
        failures=calls - account["whole"],
        lost_tokens=sum(visit["output_tokens"] for visit in visits
                        if visit["is_accepted"] and visit["how"] != "whole"),
        in_flight_most=account["in_flight_max"],
    )  # fmt: skip


def report(
    reserved: Sequence[Measured], produced: Sequence[Measured], own: Sequence[Measured]
) -> str:
    """For people."""
    return "\n".join((
        "# Sharing: one account for threads and processes\n\n"
        "Generated by `python -m bench.sharing`; edits are overwritten. The provider is simulated "
        "(`headway sim serve`: 500 requests and 100,000 tokens a minute, 20 at once); processes, "
        "connections, the SDK and time are real. headway is told no limit. Every way has an "
        "account of its own and every figure is the provider's own, of one run. *Failed* calls "
        "are those that the SDK gave up on; a way that gives up early is fast.\n",
        f"## The same calls, {WIDTH} at a time\n\n*One process alone* paces itself; the others "
        "share a broker.\n\n### `max_tokens` counts at admission, and what is not used is refunded"
        "\n\nThe account of `headway sim serve --rpm 500 --tpm 100k --concurrent 20`.\n",
        _table(reserved),
        "### Output counts as it is written\n\nThe same with `--charging produced`. On OpenAI's "
        "wire headway takes `max_tokens` to be reserved, which this account does not do, so that "
        "it believes in more tokens than there are when the limit first runs dry.\n",
        _table(produced),
        "## The examples as they are\n\nOn the first account. Their prompts are short. "
        "`threads.py` has sixteen threads, `processes.py` sixteen processes.\n",
        _table(own),
    ))  # fmt: skip


def _table(measured: Sequence[Measured]) -> str:
    headings = ("way", "calls", "time", "of one process alone", "of the bound", "refused",
                "failed", "tokens lost", "most at once")  # fmt: skip
    return table(headings, [_row(one, measured[0].makespan_s) for one in measured])


def _row(one: Measured, alone_s: float) -> list[str]:
    is_whole = one.failures == 0
    is_example = one.way not in NAMES
    return [
        f"`examples/{one.way}`" if is_example else NAMES[one.way],
        f"{one.calls}",
        f"{one.makespan_s:.1f} s",
        f"{one.makespan_s / alone_s:.3f}" if is_whole and not is_example else "",
        f"{one.ratio:.2f}" if is_whole else "did not finish",
        f"{one.refused}",
        f"{one.failures}",
        f"{one.lost_tokens:,}",
        f"{one.in_flight_most}",
    ]


if __name__ == "__main__":
    sys.exit(main())
