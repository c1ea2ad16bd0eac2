"""How headway finds the width of a server that says nothing: `python -m bench.llm`.

A real small model behind llama.cpp's own server has no limits, no headers and no refusals: more
calls at once are only slower, and beyond a few of them slower in total. Fixed widths and headway,
with nothing configured and nothing remembered, send the same calls in turns, in one run. The same
is done on a simulated server that is fastest with many calls at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench.http_peers import Errand, Outcome
from bench.markdown import table
from bench.results import ROOT, say
from bench.servers import llama
from headway.base.codec import as_dict
from headway.sim.account import Terms
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import serving

REPORT: Final = ROOT / "docs" / "benchmarks" / "llm.md"
WIDTHS: Final = (1, 2, 4, 8)
WIDTHS_SIMULATED: Final = (6, 12, 16, 24)
CALLS: Final = 24
CALLS_SIMULATED: Final = 640
OUTPUT_TOKENS: Final = 48
REPEATS: Final = 3
"""Of all tries the median counts: somebody else may be busy on the machine meanwhile."""

GOAL: Final = 0.9
"""Share of the best fixed width's throughput that headway must reach."""

BROKER_S_MAX: Final = 10.0
"""How long a broker is waited for that has nothing more to do."""

CROWDED: Final = 8
"""The width whose latency headway must stay below."""

WIDE: Final = ProviderSpec("wide-open", Terms(), Latency(0.25, 0.005, 0.01, 0.004), dialect="plain")
"""Fastest with 15 or 16 at once; it tells no limits and has none."""

TOPICS: Final = (
    "the tides", "a lighthouse", "bread", "the printing press", "snow", "a sailing ship", "bees",
    "the abacus", "tea", "a glacier", "maps", "the bicycle", "salt", "a violin", "clocks", "wool",
)  # fmt: skip


class Found(Struct, frozen=True):
    """One way, all its repetitions."""

    way: str
    tokens_per_s: float
    latency_p95_s: float
    tries: tuple[float, ...]


class Comparison(Struct, frozen=True):
    """Fixed widths and headway on one server."""

    server: str
    ways: tuple[Found, ...]

    def of(self, way: str) -> Found:
        return next(found for found in self.ways if found.way == way)

    @property
    def best(self) -> Found:
        """The best fixed width, in hindsight."""
        fixed = [found for found in self.ways if found.way != "headway"]
        return max(fixed, key=lambda found: found.tokens_per_s)

    @property
    def share(self) -> float:
        """What headway reached of the best fixed width's throughput."""
        return self.of("headway").tokens_per_s / self.best.tokens_per_s


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.llm")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    found = (real(parsed.repeats), simulated())
    if parsed.json:
        print(json.dumps([as_dict(one) for one in found]))
        return 0
    text = report(found)
    parsed.output.parent.mkdir(parents=True, exist_ok=True)
    parsed.output.write_text(text)
    print(text)
    return 0


def real(repeats: int = REPEATS, calls: int = CALLS) -> Comparison:
    """On SmolLM2, one engine thread, eight places."""
    with llama(slots=max(WIDTHS)) as url:
        errand = llama_errand(url, "smollm2", calls)
        run_way(replace(errand, way="fixed:1", key="sk-warm", prompts=errand.prompts[:2]))
        return compare("SmolLM2 135M on llama.cpp", errand, WIDTHS, repeats)


def simulated(repeats: int = 1, calls: int = CALLS_SIMULATED) -> Comparison:
    """On a server that is fastest with about 15 at once."""
    with serving(WIDE) as url:
        errand = llama_errand(url, "tokens-20-120", calls)
        return compare("simulated, fastest with 15 at once", errand, WIDTHS_SIMULATED, repeats)


def compare(server: str, errand: Errand, widths: Sequence[int], repeats: int) -> Comparison:
    """All ways in turns; each repetition begins with another one."""
    ways = [*(f"fixed:{width}" for width in widths), "headway"]
    tries: dict[str, list[Outcome]] = {way: [] for way in ways}
    for repeat in range(repeats):
        turned = ways[repeat % len(ways) :] + ways[: repeat % len(ways)]
        for way in turned:
            # An account of its own: nothing that an earlier try taught is known.
            outcome = run_way(replace(errand, way=way, key=f"sk-{way}-{repeat}"))
            if outcome.failures or outcome.answers != len(errand.prompts):
                raise RuntimeError(f"{way} failed: {outcome}")
            say(f"{server}: {way}: {_speed(outcome):.1f} tokens/s in {outcome.makespan_s:.1f} s")
            tries[way].append(outcome)
    return Comparison(server, tuple(_found(way, tries[way]) for way in ways))


def run_way(
    errand: Errand, python: str = sys.executable, memory: Path | None = None,
    timeout_s: float | None = None,
) -> Outcome:  # fmt: skip
    """Send an errand from a process of its own that remembers nothing but a folder given."""
    with ExitStack() as stack:
        folder = memory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        )
        ended = subprocess.run(
            [python, "-m", "bench.http_peers"], input=json.dumps(as_dict(errand)), cwd=ROOT,
            env=_environment(folder), stdout=subprocess.PIPE, text=True, check=True,
            timeout=timeout_s,
        )  # fmt: skip
        _wait_for_broker(folder)
    return Outcome(**json.loads(ended.stdout))


def _wait_for_broker(folder: Path) -> None:
    """A broker that has nothing to do ends by itself; its socket goes first."""
    until_s = monotonic() + BROKER_S_MAX
    while any(folder.glob("**/*.sock")) and monotonic() < until_s:
        sleep(0.05)


def _environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return dict(os.environ) | {
        "PYTHONPATH": paths,
        "HEADWAY_STATE_DIR": str(folder),
        "HEADWAY_RUNTIME_DIR": str(folder),
        "HEADWAY_IDLE_S": "1",
    }


def llama_errand(url: str, model: str, calls: int) -> Errand:
    """Short paragraphs about many things."""
    prompts = tuple(
        f"Number {number}. Write a short paragraph about {TOPICS[number % len(TOPICS)]}, as told by"
        f" somebody who saw it {number + 2} times."
        for number in range(calls)
    )
    return Errand(
        "", "openai", url, "", model, OUTPUT_TOKENS, prompts, (), {}, False, OUTPUT_TOKENS
    )


def _speed(outcome: Outcome) -> float:
    return outcome.output_tokens / outcome.makespan_s


def _found(way: str, tries: Sequence[Outcome]) -> Found:
    speeds = tuple(round(_speed(one), 2) for one in tries)
    return Found(way, median(speeds), median(one.service_p95_s for one in tries), speeds)


def report(found: Sequence[Comparison]) -> str:
    """For people."""
    parts = [
        "# A server that says nothing\n\nGenerated by `python -m bench.llm`; "
        "edits are overwritten. No headers, no refusals, only slowness: the width is all that "
        "there is to find. headway starts with nothing configured and nothing remembered.\n"
    ]
    for one in found:
        rows = [
            [way.way, f"{way.tokens_per_s:.1f}", f"{way.latency_p95_s:.1f} s",
             f"{way.tokens_per_s / one.best.tokens_per_s:.2f}",
             ", ".join(f"{speed:.1f}" for speed in way.tries)]
            for way in one.ways
        ]  # fmt: skip
        headings = ("way", "tokens/s", "p95 latency", "of the best width", "tries")
        parts.append(f"## {one.server}\n\n{table(headings, rows)}")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
