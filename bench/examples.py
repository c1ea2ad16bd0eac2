"""What each worked example takes: `python -m bench.examples` renews the table in docs/examples.md.

Every example is performed as a user would, in a copy of its folder, with its own script as the
model. A simulated provider (`headway sim serve`) has the limits of "Concurrent vs. Parallel
Execution"; calls, tokens and times are its own, the cost is what headway says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench.markdown import table
from bench.patterns import between
from bench.results import ROOT, say
from bench.sharing_crowd import place_of_its_own
from headway.base.codec import as_dict
from headway.base.values import Limit
from headway.report.bound import bound
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall
from headway.sim.server import launched, truth_of

PAGE: Final = ROOT / "docs" / "examples.md"
PLANS: Final = ROOT / "examples" / "plans"
MARK: Final = "examples"
END_S_MAX: Final = 600.0
KEY: Final = "examples"

LIMITS: Final = (
    Limit("requests", 500.0), Limit("tokens", 100_000.0), Limit("concurrency", 20.0, 0.0, "gauge"),
)  # fmt: skip
SPEC: Final = ProviderSpec("served", Terms(LIMITS, charging="produced"), Latency(0.2, 0.005))
OPTIONS: Final = (
    "--rpm", "500", "--tpm", "100k", "--concurrent", "20", "--charging", "produced",
    "--first-byte-s", "0.2", "--per-token-s", "0.005",
)  # fmt: skip


class Example(Struct, frozen=True):
    """A plan, and what has to be made before it can be loaded."""

    title: str
    folder: str
    plan: str = "plan.yaml"
    made: str = ""
    has_last: bool = True
    """Whether its last call needs all others."""


EXAMPLES: Final = (
    Example("a git range reviewed from four perspectives", "review", "panel.yaml",
            "build/repository"),
    Example("the same review by one agent", "review", "single.yaml", "build/repository"),
    Example("22 code paths into a map", "explore"),
    Example("50 repositories checked for outdated dependencies", "repos"),
    Example("200 documents into a CSV, by schema", "documents", made="build/documents",
            has_last=False),
    Example("20 records through three stages", "records"),
)  # fmt: skip


class Measured(Struct, frozen=True):
    """One example, performed once."""

    title: str
    path: str
    time_s: float
    calls: int
    tokens: int
    usd: float
    refused: int
    bound_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.examples")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--output", type=Path, default=PAGE)
    parsed = parser.parse_args(arguments)
    measured = [measure(example) for example in EXAMPLES]
    if parsed.json:
        print(json.dumps([as_dict(one) for one in measured]))
        return 0
    text = report(measured)
    parsed.output.write_text(between(parsed.output.read_text(), MARK, text))
    print(text)
    return 0


def measure(example: Example) -> Measured:
    """One example on an account of its own."""
    with place_of_its_own() as place:
        home = Path(place.state).parent / example.folder
        left_out = shutil.ignore_patterns("build", "__pycache__")
        shutil.copytree(PLANS / example.folder, home, ignore=left_out)
        if example.made:
            command = [sys.executable, "create.py", example.made]
            subprocess.run(command, cwd=home, check=True, stdout=subprocess.DEVNULL)
        with launched(*OPTIONS, "--script", str(home / "script.yaml")) as url:
            told = os.environ | {
                "PYTHONPATH": str(ROOT / "src"), "HEADWAY_RUNTIME_DIR": place.runtime,
                "HEADWAY_STATE_DIR": place.state, "HEADWAY_IDLE_S": "2",
                "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY,
                "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY,
            }  # fmt: skip
            _headway(home, told, "run", example.plan, "--quiet")
            status = json.loads(_headway(home, told, "status", "--json"))
            visits = truth_of(url, "?arrivals=all")["arrivals"]
    return _judged(example, visits, status)


def _headway(home: Path, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "headway", *arguments]
    ended = subprocess.run(command, cwd=home, env=environment, check=True, timeout=END_S_MAX,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    return ended.stdout


def _judged(example: Example, visits: Sequence[dict[str, Any]], status: dict[str, Any]) -> Measured:
    whole = [visit for visit in visits if visit["how"] == "whole"]
    calls = [
        SimulatedCall(number, float(visit["input_tokens"]), float(visit["output_tokens"]), 0.0)
        for number, visit in enumerate(whole)
    ]
    needs: list[tuple[int, ...]] = [()] * len(calls)
    if example.has_last:
        needs[-1] = tuple(range(len(calls) - 1))
    one = Measured(
        example.title, f"examples/plans/{example.folder}/{example.plan}",
        time_s=max(visit["ended_s"] for visit in visits) - visits[0]["at_s"],
        calls=len(whole),
        tokens=sum(visit["input_tokens"] + visit["output_tokens"] for visit in whole),
        usd=float(status["usd"]), refused=len(visits) - len(whole),
        bound_s=bound(SPEC, [(call,) for call in calls], needs).time_s,
    )  # fmt: skip
    say(f"{one.title}: {one.time_s:.1f} s, {one.calls} calls")
    return one


def report(measured: Sequence[Measured]) -> str:
    """The table of the page of examples."""
    headings = ("example", "time", "calls", "tokens", "cost", "refused", "bound",
                "share of the bound")  # fmt: skip
    rows = [
        (
            f"[{one.title}](../{one.path})", f"{one.time_s:.1f} s", f"{one.calls}",
            f"{one.tokens:,}", f"${one.usd:.2f}", f"{one.refused}", f"{one.bound_s:.1f} s",
            f"{one.bound_s / one.time_s:.0%}",
        )
        for one in measured
    ]  # fmt: skip
    return table(headings, rows)


if __name__ == "__main__":
    sys.exit(main())
