"""headway's gateway beside LiteLLM's, a bare pass-through and nothing: `python -m bench.gateway`.

The provider, the clients and what stands between them are processes of their own. All subjects are
up at the same time and take turns, so that what else happens on the machine meets them all; what a
figure says is the median of its rounds. LiteLLM is installed below `.venv/peers`, and kept there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct

from bench.engine_own import environment
from bench.gateway_ends import AT_ONCE, MODEL, Ended, Errand
from bench.gateway_report import report
from bench.gateway_subjects import NAMES, Server, peers_python, subject, upstream
from bench.results import ROOT, say
from headway.base.codec import as_dict

REPORT: Final = ROOT / "docs" / "benchmarks" / "gateway.md"
ROUNDS: Final = 5
STARTS: Final = 3
SETTLE_S: Final = 0.5
"""What is done after an answer, such as logging, is part of what it took."""


class Cell(Struct, frozen=True):
    """What the clients do in one turn."""

    name: str
    calls: int
    is_stream: bool = False
    model: str = MODEL
    body_bytes: int = 1000


CELLS: Final = (
    Cell("request", 480),
    Cell("stream", 160, is_stream=True),
    Cell("45 kB request", 320, body_bytes=45_000),
    Cell("busy request", 800, model=AT_ONCE),
    Cell("busy stream", 400, is_stream=True, model=AT_ONCE),
)


class Turn(Struct, frozen=True):
    """One subject, one cell, one round."""

    subject: str
    cell: str
    cpu_us: float
    """Of one call, in all its processes."""
    p50_ms: float
    p99_ms: float
    first_ms: float
    calls_per_s: float


class Stood(Struct, frozen=True):
    """What a subject is, apart from its turns. Memory: the gateway first, then the others."""

    subject: str
    start_s: float
    idle_mb: tuple[float, ...]
    after_mb: tuple[float, ...]


class Results(Struct, frozen=True):
    """Everything that was measured."""

    turns: tuple[Turn, ...]
    stood: tuple[Stood, ...]
    litellm: str
    """Its version."""
    rounds: int


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--only", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument("--cells", help=f"some of: {', '.join(cell.name for cell in CELLS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--peers-python", metavar="PYTHON", help="one that has LiteLLM")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    names = parsed.only.split(",") if parsed.only else list(NAMES)
    chosen = [cell for cell in CELLS if not parsed.cells or cell.name in parsed.cells.split(",")]
    pythons = {}
    for name in names:
        python = peers_python(name, parsed.peers_python)
        if python is None:
            say(f"{name} could not be installed and is left out")
        else:
            pythons[name] = python
    results = measure(pythons, chosen, parsed.rounds, parsed.starts)
    if parsed.json:
        print(json.dumps(as_dict(results)))
        return 0
    text = report(results)
    if not parsed.only and not parsed.cells:
        parsed.output.parent.mkdir(parents=True, exist_ok=True)
        parsed.output.write_text(text)
    print(text)
    return 0


def measure(pythons: Mapping[str, str], cells: Sequence[Cell], rounds: int, starts: int) -> Results:
    """Start-up of each by itself; then all of them up, in turns."""
    names = list(pythons)
    with ExitStack() as stack:
        port = stack.enter_context(upstream())
        start_s = {name: _start_s(name, port, python, starts) for name, python in pythons.items()}
        servers = {
            name: stack.enter_context(subject(name, port, python))
            for name, python in pythons.items()
        }
        time.sleep(SETTLE_S)
        idle = {name: server.memory_mb() for name, server in servers.items()}
        turns = [
            turn(name, servers[name], cell)
            for number in range(rounds)
            for cell in cells
            for name in (names if number % 2 == 0 else names[::-1])
        ]
        stood = [
            Stood(name, start_s[name], idle[name], servers[name].memory_mb()) for name in names
        ]
    return Results(tuple(turns), tuple(stood), _version(pythons.get("litellm")), rounds)


def turn(name: str, server: Server, cell: Cell) -> Turn:
    """Have the clients make their calls, in a process of its own."""
    errand = Errand(server.port, server.path, cell.calls, is_stream=cell.is_stream,
                    model=cell.model, body_bytes=cell.body_bytes)  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "bench.gateway_ends", "driver"], cwd=ROOT, env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as driver:  # fmt: skip
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write(json.dumps(as_dict(errand)) + "\n")
        driver.stdin.flush()
        if driver.stdout.readline() != "ready\n":
            raise RuntimeError(f"{name}: the clients were not served")
        time.sleep(SETTLE_S)
        before_s = server.cpu_s()
        driver.stdin.write("go\n")
        driver.stdin.flush()
        said = driver.stdout.readline()
        if not said:
            raise RuntimeError(f"{name}: the clients were not served")
        time.sleep(SETTLE_S)
        spent_s = server.cpu_s() - before_s
    ended = Ended(**json.loads(said))
    found = _turn(name, cell, spent_s, ended)
    say(f"{cell.name}: {name}: {found.cpu_us:,.0f} us of CPU, p50 {found.p50_ms:.1f} ms, "
        f"p99 {found.p99_ms:.1f} ms")  # fmt: skip
    return found


def _turn(name: str, cell: Cell, spent_s: float, ended: Ended) -> Turn:
    spread = sorted(ended.latencies_ms)
    last = len(spread) - 1
    return Turn(
        name, cell.name, 1e6 * spent_s / cell.calls, spread[last // 2], spread[round(last * 0.99)],
        median(ended.first_ms), cell.calls / ended.seconds,
    )  # fmt: skip


def _start_s(name: str, port: int, python: str, tries: int) -> float:
    found = []
    for _ in range(tries):
        with subject(name, port, python) as server:
            found.append(server.start_s)
    say(f"start-up: {name}: {', '.join(f'{one:.2f}' for one in found)} s")
    return median(found) if found else 0.0


def _version(python: str | None) -> str:
    if python is None:
        return ""
    asked = "from importlib.metadata import version; print(version('litellm'))"
    said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    return said.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
