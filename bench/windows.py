"""Usage windows over HTTP, in minutes instead of hours: `python -m bench.windows`.

A simulated login has a usage window of one minute. Calls of each way go on over several windows: a
plan (with its forecast), commands through the gateway, and a client in `headway.pace`. The
provider's own log says which calls met an empty window, and how long after a reset the next came.
Other scenes: a window of one model while a client uses another model, a window with a name that
is not known, and one beyond which calls are let in and paid for. `--scenes MINUTES` runs these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.markdown import table
from bench.results import ROOT, say
from headway.sim.server import launched

REPORT: Final = ROOT / "docs" / "benchmarks" / "windows.md"
WINDOW_S: Final = 60.0
SIZES: Final = (22_000, 20_000)
"""Tokens in a window. The plan needs about 2.8 windows of the first size, by the run's share. Of
the second it needs exactly three: there a hundredth more or less of a window is a minute."""
CALL_TOKENS: Final = 120
LEARNING: Final = 40
"""Calls of the run before, which shows the size of the window."""
CALLS: Final = 400
OTHERS: Final = 240
"""Calls of the ways without a plan: more than one window holds."""
FORMATS: Final = {"unified 1m": "anthropic", "codex 1m": "codex"}
MODEL, OTHER = "tokens-100", "tokens-101"
SCENES: Final = {
    "one model": "1m_oi={}/60s@" + MODEL, "unknown name": "lunar={}/60s", "overage": "1m={}+",
}  # fmt: skip
WAYS: Final = ("plan", "gateway", "pace")
SOON_S: Final = 0.5
"""Calls that arrive so soon after the first refusal of a window were sent before it was known."""
HEADERS: Final = (
    "format", "way", "window", "calls", "foreseen s", "took s", "refused in flight",
    "refused later", "wake s", "share", "other model: longest gap s",
)  # fmt: skip

PLAN: Final = """\
headway: 1
model: {model}
strategy: fixed(8)
tasks:
  ask:
    each: {items}
    prompt: "Say {{{{ item }}}} at length, please, and then some more words about it."
    max_tokens: 200
"""

CALL: Final = """\
import json, os, sys, urllib.request
url = os.environ["{base}"] + "{path}"
body = {{"model": "{model}", "max_tokens": 200,
        "messages": [{{"role": "user", "content": "Say item" + sys.argv[1]}}]}}
headers = {{"content-type": "application/json", "x-api-key": "k", "authorization": "Bearer k"}}
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""

PACED: Final = """\
import asyncio, os, sys, httpx2, headway
async def main():
    client, places = headway.pace(httpx2.AsyncClient(timeout=300)), asyncio.Semaphore({width})
    async def call(n):
        body = {{"model": "{model}", "max_tokens": 200,
                "messages": [{{"role": "user", "content": f"Say item {{n}}"}}]}}
        headers = {{"x-api-key": "k", "authorization": "Bearer k"}}
        async with places:
            await client.post(os.environ["{base}"] + "{path}", json=body, headers=headers)
    await asyncio.gather(*(call(n) for n in range(int(sys.argv[1]))))
asyncio.run(main())
"""


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=float, metavar="MINUTES", help="each for so long")
    minutes = parser.parse_args().scenes
    if minutes is not None:
        calls = int(minutes * SIZES[0] / CALL_TOKENS)
        scenes = [(name, way, SIZES[0], calls) for name in SCENES for way in WAYS]
        with ThreadPoolExecutor(3) as pool:
            say(table(HEADERS, list(pool.map(lambda case: _measured(*case), scenes))))
        return 0
    ways = (*(("plan", size) for size in SIZES), ("gateway", SIZES[0]), ("pace", SIZES[0]))
    cases = [(name, way, size) for name in FORMATS for way, size in ways]
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda case: _measured(*case), cases))
    text = f"# Usage windows over HTTP\n\n{(__doc__ or '').partition(chr(10))[2].strip()}\n\n"
    text += (
        f"Windows last {WINDOW_S:.0f} s; a call takes about {CALL_TOKENS} tokens, 8 are in flight. "
    )
    text += "`refused in flight`: calls that met an empty window and were sent before the first "
    text += "refusal was known; `refused later`: all others until the reset. "
    text += f"Of windows of {SIZES[1]:,} tokens the plan needs exactly three, which is the worst "
    text += "case of a forecast. `wake`: the longest time from a reset to the next call. `share`: "
    text += "the most of one window that was taken; a plan and commands may take 80%, a paced "
    text += f"client all.\n\n{table(HEADERS, rows)}\n"
    REPORT.write_text(text, encoding="utf-8")
    say(text)
    return 0


def _measured(name: str, way: str, size: int, others: int = OTHERS) -> tuple[str, ...]:
    voice = FORMATS.get(name, "anthropic")
    is_openai = voice == "codex"
    window = SCENES.get(name, "1m={}").format(size)
    # What is beyond the window is for those who want all of it.
    share = ["--window-share", "100%"] if name == "overage" else []
    options = ["--window", window, "--model", MODEL, "--model", OTHER, "--rpm", "100k"]
    options += ["--first-byte-s", "0.3", "--per-token-s", "0.01"]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        launched(*options, "--dialect", voice) as url,
    ):
        environment = _environment(home, url)
        foreseen = ""
        if way == "plan":
            model = f"{'openai' if is_openai else 'anthropic'}/{MODEL}"
            _plan(home, model, LEARNING)
            _headway(home, environment, "run", "plan.yaml", "-q", "--yes")
            _plan(home, model, CALLS if name in FORMATS else others)
            said = _headway(home, environment, "check", "plan.yaml", "--forecast", "--json")
            ends = json.loads(said)["forecast"]["time_s"]
            foreseen = f"{ends['mid']:.0f} ({ends['low']:.0f} to {ends['high']:.0f})"
        base = "OPENAI_BASE_URL" if is_openai else "ANTHROPIC_BASE_URL"
        path = "/chat/completions" if is_openai else "/v1/messages"
        began_s, before = time.monotonic(), len(_arrivals(url))
        beside = None
        if name == "one model":
            code = PACED.format(base=base, path=path, model=OTHER, width=2)
            words = [sys.executable, "-c", code, str(20 * others)]
            beside = subprocess.Popen(words, env=environment)
        if way == "plan":
            _headway(home, environment, "run", "plan.yaml", "-q", "--yes", *share)
        elif way == "gateway":
            script = Path(home) / "call.py"
            script.write_text(CALL.format(base=base, path=path, model=MODEL), encoding="utf-8")
            items = [str(number) for number in range(others)]
            command = f"{sys.executable} {script} {{}}"
            _headway(home, environment, "each", "-j", "8", *share, command, ":::", *items)
        else:
            code = PACED.format(base=base, path=path, model=MODEL, width=8)
            subprocess.run([sys.executable, "-c", code, str(others)], env=environment, check=True)
        took_s = time.monotonic() - began_s
        arrivals = _arrivals(url)
        if beside is not None:
            beside.kill()
            beside.wait()
        times = [one["at_s"] for one in arrivals if one["model"] == OTHER and one["is_accepted"]]
        gap = f"{max(late - early for early, late in pairwise(times)):.1f}" if times else ""
        mine = [one for one in arrivals[before:] if one["model"] == MODEL]
        judged = _judged(arrivals[0]["at_s"], mine, size, foreseen, took_s)
        row = (name, way, f"{size:,}", *judged, gap)
        say(" ".join(row))
        return row


def _judged(
    first_s: float, ours: list[dict[str, Any]], size: int, foreseen: str, took_s: float
) -> tuple[str, ...]:
    in_flight = later = 0
    empty_s: dict[int, float] = {}
    taken: dict[int, float] = {}
    wakes: list[float] = []
    for one in ours:
        used = one["input_tokens"] + one["output_tokens"]
        number = int((one["at_s"] - first_s) // WINDOW_S)
        if not one["is_accepted"]:
            is_soon = one["at_s"] <= empty_s.setdefault(number, one["at_s"]) + SOON_S
            in_flight, later = in_flight + is_soon, later + (not is_soon)
        else:
            if number not in taken and taken:
                wakes.append(one["at_s"] - first_s - number * WINDOW_S)
            taken[number] = taken.get(number, 0.0) + used / size
    wake = f"{max(wakes):.1f}" if wakes else ""
    return (str(len(ours)), foreseen, f"{took_s:.0f}", str(in_flight), str(later), wake,
            f"{max(taken.values()):.0%}")  # fmt: skip


def _plan(home: str, model: str, calls: int) -> None:
    items = json.dumps([f"item-{number}" for number in range(calls)])
    (Path(home) / "plan.yaml").write_text(PLAN.format(model=model, items=items), encoding="utf-8")


def _environment(home: str, url: str) -> dict[str, str]:
    folders = {
        name: f"{home}/{name.lower()}"
        for name in ("XDG_RUNTIME_DIR", "HEADWAY_RUNTIME_DIR", "HEADWAY_STATE_DIR",
                     "HEADWAY_CONFIG_DIR")
    }  # fmt: skip
    for folder in folders.values():
        os.makedirs(folder, 0o700)
    return os.environ | folders | {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k",
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k",
    }  # fmt: skip


def _headway(home: str, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "headway", *arguments]
    done = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{arguments[:2]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _arrivals(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/truth") as answer:
        found: list[dict[str, Any]] = json.load(answer)["arrivals"]
    return found


if __name__ == "__main__":
    sys.exit(main())
