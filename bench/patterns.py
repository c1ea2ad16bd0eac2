"""50 repositories three ways on one kind of account: `python -m bench.patterns`.

A serial tool loop, a plan that a model writes and headway executes, and an orchestrator with
sub-agents in threads, unpaced and paced. A simulated provider (`headway sim serve`) enforces the
limits of "Concurrent vs. Parallel Execution" in real time; every way has an account and a process
of its own, all go on at the same time, and every figure is the provider's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench.markdown import table
from bench.patterns_ways import MAX_TOKENS, WAYS, checked, found_in, names
from bench.results import ROOT, say
from bench.sharing_crowd import place_of_its_own
from headway.base.codec import as_dict
from headway.base.values import Limit
from headway.report.bound import bound
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall
from headway.sim.server import account_of, launched, truth_of

REPORT: Final = ROOT / "docs" / "patterns.md"
EXAMPLE: Final = ROOT / "examples" / "plans" / "repos"
SCRIPT: Final = ROOT / "bench" / "patterns.yaml"
MARK: Final = "patterns"
END_S_MAX: Final = 900.0

TITLES: Final = {
    "serial": "one serial tool loop",
    "plan": "**pattern 1**: plan, execute, summarise",
    "sub-agents unpaced": "pattern 2: sub-agents in threads, SDK retries",
    "sub-agents": "**pattern 2**: the same threads, paced",
}


class Scene(Struct, frozen=True):
    """The work, and how fast the provider is."""

    count: int = 50
    latency: Latency = Latency(0.5, 0.01)

    @property
    def spec(self) -> ProviderSpec:
        """For the bound."""
        limits = (Limit("requests", 500.0), Limit("tokens", 100_000.0),
                  Limit("concurrency", 20.0, 0.0, "gauge"))  # fmt: skip
        return ProviderSpec("served", Terms(limits, charging="produced"), self.latency)

    @property
    def options(self) -> tuple[str, ...]:
        """For `headway sim serve`."""
        return ("--rpm", "500", "--tpm", "100k", "--concurrent", "20", "--charging", "produced",
                "--first-byte-s", f"{self.latency.first_byte_s:g}", "--per-token-s",
                f"{self.latency.per_output_token_s:g}", "--script", str(SCRIPT))  # fmt: skip


FULL: Final = Scene()
QUICK: Final = Scene(5, Latency(1.0, 0.001))
"""For a test."""


class Measured(Struct, frozen=True):
    """One way, as the provider saw it, and what it found."""

    way: str
    time_s: float
    calls: int
    """Answered ones."""
    input_tokens: int
    output_tokens: int
    largest: int
    """Tokens of the largest call, both ways."""
    refused: int
    bound_s: float
    found: int
    """Outdated dependencies that it came to know of."""
    to_find: int
    is_right: bool
    """Whether it found these and no others."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.patterns")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--count", type=int, default=FULL.count, help="how many repositories")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    measured = measure(Scene(parsed.count))
    if parsed.json:
        print(json.dumps([as_dict(one) for one in measured]))
        return 0
    text = report(measured)
    parsed.output.write_text(between(parsed.output.read_text(), MARK, text))
    print(text)
    return 0


def measure(scene: Scene, ways: Sequence[str] = tuple(WAYS)) -> list[Measured]:
    """All ways at the same time."""
    with ExitStack() as stack:
        url = stack.enter_context(launched(*scene.options))
        folders = {way: stack.enter_context(_folder(scene.count)) for way in ways}
        running = {}
        for way in ways:
            place = stack.enter_context(place_of_its_own())
            told = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": way, "HEADWAY_IDLE_S": "2",
                    "HEADWAY_RUNTIME_DIR": place.runtime, "HEADWAY_STATE_DIR": place.state,
                    "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}  # fmt: skip
            command = [sys.executable, "-m", "bench.patterns_ways", way, str(folders[way])]
            running[way] = stack.enter_context(
                subprocess.Popen(command, env=os.environ | told, stdout=subprocess.PIPE, text=True)
            )
        said = {way: one.communicate(timeout=END_S_MAX)[0] for way, one in running.items()}
        truth = truth_of(url, "?arrivals=all")
        true = _true(folders[ways[0]])
    return [_judged(scene, way, truth, said[way], true) for way in ways]


@contextmanager
def _folder(count: int) -> Iterator[Path]:
    """A project with so many repositories; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hw-patterns-"))
    try:
        command = [sys.executable, "create.py", str(folder / "repositories"), str(count)]
        subprocess.run(command, cwd=EXAMPLE, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(EXAMPLE / "latest.txt", folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _true(folder: Path) -> dict[str, int]:
    return found_in("\n".join(checked(folder, name) for name in names(folder)))


def _judged(
    scene: Scene, way: str, truth: dict[str, Any], said: str, true: dict[str, int]
) -> Measured:
    key = account_of(way)
    visits = [visit for visit in truth["arrivals"] if visit["key"] == key]
    whole = [visit for visit in visits if visit["how"] == "whole"]
    found: dict[str, int] = json.loads(said) if said.strip() else {}
    one = Measured(
        way,
        time_s=max(visit["ended_s"] for visit in visits) - visits[0]["at_s"],
        calls=len(whole),
        input_tokens=sum(visit["input_tokens"] for visit in whole),
        output_tokens=sum(visit["output_tokens"] for visit in whole),
        largest=max(visit["input_tokens"] + visit["output_tokens"] for visit in whole),
        refused=sum(truth["accounts"][key]["refused"].values()),
        bound_s=_bound_s(scene, way, whole),
        found=sum(found.values()), to_find=sum(true.values()), is_right=found == true,
    )  # fmt: skip
    say(f"{TITLES[way]}: {one.time_s:.1f} s, {one.calls} calls, {one.tokens:,} tokens")
    return one


def _bound_s(scene: Scene, way: str, whole: Sequence[dict[str, Any]]) -> float:
    """The least time for these calls on this account: in a loop one after another; otherwise the
    first before all and the last after all, and between them in any order."""
    calls = [
        SimulatedCall(
            number, float(visit["input_tokens"]), float(visit["output_tokens"]), float(MAX_TOKENS)
        )
        for number, visit in enumerate(whole)
    ]
    if way == "serial":
        return bound(scene.spec, [calls], [()]).time_s
    last = len(calls) - 1
    needs: list[tuple[int, ...]] = [(), *[(0,)] * (last - 1), tuple(range(1, last))]
    return bound(scene.spec, [(call,) for call in calls], needs[: len(calls)]).time_s


def report(measured: Sequence[Measured]) -> str:
    """The table for `docs/patterns.md`."""
    serial = next(one for one in measured if one.way == "serial")
    headings = ("", "time", "of serial", "calls", "tokens", "of serial", "largest call", "refused",
                "found", "bound", "share of the bound")  # fmt: skip
    rows = [
        (
            TITLES[one.way], f"{one.time_s:.1f} s", f"{one.time_s / serial.time_s:.2f}",
            f"{one.calls}", f"{one.tokens:,}", f"{one.tokens / serial.tokens:.2f}",
            f"{one.largest:,}", f"{one.refused}", f"{one.found} of {one.to_find}",
            f"{one.bound_s:.1f} s", f"{one.bound_s / one.time_s:.0%}",
        )
        for one in measured
    ]  # fmt: skip
    return table(headings, rows)


def between(text: str, mark: str, new: str) -> str:
    """A document with something new between its two marks."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    assert pattern.search(text), f"the document has no mark `{mark}`"
    return pattern.sub(lambda found: f"{found[1]}{new}{found[2]}", text, count=1)


if __name__ == "__main__":
    sys.exit(main())
