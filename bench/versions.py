"""This tree beside an earlier commit, in CPU time: `python -m bench.versions [COMMIT]`.

The commit is checked out below `.venv/versions` with an environment of its own, and kept there.
Both trees do the same work by turns, through their public doors only: no-op tasks, HTTP calls paced
by the broker, requests through the gateway, tasks that share a state, and five verbs. A figure is
the median over pairs of new / old; its interval contains 90 % of resampled medians. The order
within a pair alternates. `--only virtual` compares strategies in virtual time: a commit with the
same law gives the same figures.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from bench.engine_own import environment
from bench.gateway import CELLS, turn
from bench.gateway_ends import AT_ONCE, KEY
from bench.gateway_subjects import ROOM, brokers, cpu_s, end, headway, upstream
from bench.markdown import table
from bench.results import ROOT, say

COMMIT: Final = "447940f"
PAIRS: Final = 15
ALL: Final = ("engine", "http", "gateway", "state", "verbs", "virtual")
RESAMPLES: Final = 2_000
RATIO_MAX: Final = 1.03
VERB_MS_MAX: Final = {"--help": 45, "status": 300, "check": 300, "results": 300, "run": 300}
VERBS_BY_COMMAND: Final = {
    "--help": ("--help",),
    "status": ("status",),
    "check": ("check", "plan.yaml"),
    "run": ("run", "plan.yaml"),
    "results": ("results", "last"),
}
PLAN: Final = "headway: 1\ntasks:\n  one:\n    run: 'true'\n"
VIRTUAL: Final = [
    *[
        (provider, workload)
        for workload in ("agents-22", "graph")
        for provider in (
            "trap",
            "slots",
            "wide",
            "burst-60s",
            "burst-3s",
            "fixed-window",
            "reserved",
            "congested",
            "cap-7",
            "neighbour",
            "changing",
            "hidden",
            "sub-second",
            "worst-mix",
            "peak",
        )
    ],
    *[(provider, "tasks-1000") for provider in ("burst-3s", "cap-7", "worst-mix")],
]
STRATEGIES: Final = ("headway", "headway+known", "headway+hidden", "waves:4", "aimd", "cubic")
REPORT: Final = ROOT / "docs" / "benchmarks" / "versions.md"

# Each prints the CPU seconds of its own process after a warm-up.
ENGINE: Final = """
import time, headway
async def one(number):
    return number
headway.map(one, range(10), durable="warm", strategy="fixed:64")
began = time.process_time()
assert headway.map(one, range(20000), durable="bench", strategy="fixed:64") == list(range(20000))
print(time.process_time() - began)
"""
STATE: Final = """
import time, headway
async def one(number, ctx):
    ctx.get("setting")
    ctx.put(f"records/{number}", number)
    ctx.add("total", 1)
    return number
def run(count):
    plan = headway.Plan("bench", state={"total": "counter"})
    plan.task("task", one, each=range(count))
    assert plan.run(strategy="fixed:32").state["total"] == count
run(10)
began = time.process_time()
run(10000)
print(time.process_time() - began)
"""
PACED: Final = """
import asyncio, sys, time, headway, httpx2
URL, MODEL, KEY = sys.argv[1:]
BODY = {"model": MODEL, "max_tokens": 30, "messages": [{"role": "user", "content": "word " * 200}]}
async def main():
    client = headway.pace(httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}))
    async def some(count):
        for _ in range(count):
            (await client.post(URL, json=BODY)).raise_for_status()
    await asyncio.gather(*[some(5) for _ in range(8)])
    began = time.process_time()
    await asyncio.gather(*[some(100) for _ in range(8)])
    print(time.process_time() - began)
asyncio.run(main())
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.versions")
    parser.add_argument("commit", nargs="?", default=COMMIT)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--only", help=f"some of: {','.join(ALL)}")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    chosen = parsed.only.split(",") if parsed.only else list(ALL[:-1])
    old = checked_out(parsed.commit)
    found: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        port = stack.enter_context(upstream())
        scenes: dict[str, Callable[[str], float]] = {
            "engine": partial(script, ENGINE),
            "state": partial(script, STATE),
            "http": partial(paced, port),
            "gateway": partial(gateway, port),
        }
        if "verbs" in chosen:
            scenes |= {verb: partial(verb_cpu, verb) for verb in VERBS_BY_COMMAND}
            chosen += list(VERBS_BY_COMMAND)
        for number in range(parsed.pairs):
            for name in chosen:
                if name in scenes:
                    pair = one_pair(scenes[name], old, is_old_first=number % 2 == 0)
                    found.setdefault(name, []).append(pair)
                    say(f"{number + 1}/{parsed.pairs} {name}: {pair[0]:.3f} s, now {pair[1]:.3f} s")
    text = report(parsed.commit, found)
    if "virtual" in chosen:
        differ = [
            f"{provider} with {workload}"
            for provider, workload in VIRTUAL
            if rows(provider, workload, old) != rows(provider, workload, sys.executable)
        ]
        text += (
            f"\nIn virtual time {len(VIRTUAL)} pairs of provider and workload were compared, each "
        )
        text += f"with {len(STRATEGIES)} strategies and two seeds. Pairs with any other figure: "
        text += f"{', '.join(differ) or 'none'}.\n"
    if not parsed.only:
        parsed.output.write_text(text)
    print(text)
    return 0


def checked_out(commit: str) -> str:
    """The interpreter of an environment that has that commit."""
    folder = ROOT / ".venv" / "versions" / commit
    python, stamp = folder / ".venv" / "bin" / "python", folder / ".venv" / ".installed"
    if not stamp.exists():
        say(f"installing {commit} into an environment of its own")
        subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
        subprocess.run(["git", "-C", folder, "checkout", "-q", commit], check=True)
        subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "--editable", str(folder), "httpx2"], check=True)
        stamp.touch()
    return str(python)


def one_pair(scene: Callable[[str], float], old: str, *, is_old_first: bool) -> tuple[float, float]:
    """CPU seconds of the old tree and of this one."""
    if is_old_first:
        before = scene(old)
        return before, scene(sys.executable)
    after = scene(sys.executable)
    return scene(old), after


def home(folder: str) -> dict[str, str]:
    """Variables of an empty home."""
    kept = environment()
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        kept.pop(name, None)  # Each tree is its own, and is compiled once.
    own = {
        "HEADWAY_RUNTIME_DIR": f"{folder}/run",
        "HEADWAY_STATE_DIR": f"{folder}/state",
        "HEADWAY_CONFIG_DIR": f"{folder}/config",
        "HOME": folder,
    }
    return kept | own


def script(text: str, python: str, *arguments: str) -> float:
    """What a script measured, and what the broker that it started took."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        try:
            done = subprocess.run(
                [python, "-c", text, *arguments],
                env=home(folder),
                cwd=folder,
                check=True,
                capture_output=True,
                text=True,
            )
            return float(done.stdout) + sum(map(cpu_s, brokers(folder)))
        finally:
            for pid in brokers(folder):
                end(pid)


def paced(port: int, python: str) -> float:
    """800 calls of one program, eight at once."""
    return script(PACED, python, f"http://127.0.0.1:{port}/v1/chat/completions", AT_ONCE, KEY)


def gateway(port: int, python: str) -> float:
    """800 requests through the gateway: its CPU and the broker's."""
    cell = next(cell for cell in CELLS if cell.name == "busy request")
    with headway(port, [python, "-m", "headway", "gateway"], *ROOM, python=python) as server:
        return turn("headway", server, cell).cpu_us * cell.calls / 1e6


def verb_cpu(verb: str, python: str) -> float:
    """A whole process, after one that filled the caches of files."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        Path(folder, "plan.yaml").write_text(PLAN)
        command = [python, "-m", "headway", *VERBS_BY_COMMAND[verb]]
        first = [python, "-m", "headway", *VERBS_BY_COMMAND["run"]]
        for arguments in (first, command):
            began_s = _children_s()
            subprocess.run(arguments, env=home(folder), cwd=folder, check=True, capture_output=True)
        spent_s = _children_s() - began_s
        for pid in brokers(folder):
            end(pid)
    return spent_s


def rows(provider: str, workload: str, python: str) -> str:
    """What strategies take on a simulated provider, in virtual time."""
    command = [
        python,
        "-m",
        "headway",
        "sim",
        "compare",
        "--provider",
        provider,
        "--workload",
        workload,
        "--strategy",
        *STRATEGIES,
        "--seeds",
        "2",
        "--json",
    ]
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        done = subprocess.run(
            command, env=home(folder), cwd=folder, check=True, capture_output=True, text=True
        )
    return done.stdout


def _children_s() -> float:
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken.ru_utime + taken.ru_stime


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Where 90 % of the medians of resampled pairs are."""
    chance = random.Random(1)
    medians = sorted(median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 20], medians[-RESAMPLES // 20]


def report(commit: str, found: dict[str, list[tuple[float, float]]]) -> str:
    """A table of all scenes."""
    lines = []
    for name, pairs in found.items():
        ratios = [after / before for before, after in pairs]
        low, high = interval(ratios)
        after_s = median(after for _, after in pairs)
        most_ms = VERB_MS_MAX.get(name)
        is_kept = 1000 * after_s <= most_ms if most_ms else median(ratios) <= RATIO_MAX or low <= 1
        lines.append(
            [
                name,
                f"{1000 * median(before for before, _ in pairs):.0f}",
                f"{1000 * after_s:.0f}",
                f"{median(ratios):.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{most_ms} ms" if most_ms else f"ratio {RATIO_MAX}",
                "yes" if is_kept else "no",
            ]
        )
    head = ["scene", f"{commit}, ms", "now, ms", "ratio", "90 % of medians", "at most", "kept"]
    pairs_done = len(next(iter(found.values()), []))
    return INTRODUCTION.format(commit=commit, pairs=pairs_done) + table(head, lines)


INTRODUCTION: Final = """\
# CPU time beside an earlier commit

Generated by `python -m bench.versions`; edits are overwritten. CPU time of all processes of each
scene, {commit} and this tree by turns, {pairs} pairs: 20,000 no-op tasks, 800 paced HTTP calls, 800
requests through the gateway, 10,000 tasks that share a state, and whole processes of five verbs.

"""


if __name__ == "__main__":
    sys.exit(main())
