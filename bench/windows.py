"""Usage windows over HTTP, in minutes instead of hours: `python -m bench.windows`.

A simulated login has a usage window of one minute. Calls of each way go on over several windows: a
plan (with its forecast), commands through the gateway, and a client in `headway.pace`. The
provider's own log says which calls met an empty window, and how long after a reset the next came.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
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
SOON_S: Final = 0.5
"""Calls that arrive so soon after the first refusal of a window were sent before it was known."""
HEADERS: Final = (
    "format", "way", "window", "calls", "foreseen s", "took s", "refused in flight",
    "refused later", "wake s", "share",
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
body = {{"model": "tokens-100", "max_tokens": 200,
        "messages": [{{"role": "user", "content": "Say item" + sys.argv[1]}}]}}
headers = {{"content-type": "application/json", "x-api-key": "k", "authorization": "Bearer k"}}
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""

PACED: Final = """\
import asyncio, os, sys, httpx2, headway
async def main():
    client, places = headway.pace(httpx2.AsyncClient(timeout=300)), asyncio.Semaphore(8)
    async def call(n):
        body = {{"model": "tokens-100", "max_tokens": 200,
                "messages": [{{"role": "user", "content": f"Say item {{n}}"}}]}}
        headers = {{"x-api-key": "k", "authorization": "Bearer k"}}
        async with places:
            await client.post(os.environ["{base}"] + "{path}", json=body, headers=headers)
    await asyncio.gather(*(call(n) for n in range(int(sys.argv[1]))))
asyncio.run(main())
"""


def main() -> int:
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


def _measured(name: str, way: str, size: int) -> tuple[str, ...]:
    voice = FORMATS[name]
    is_openai = voice == "codex"
    options = ["--window", f"1m={size}", "--model", "tokens-100", "--rpm", "100k"]
    options += ["--first-byte-s", "0.3", "--per-token-s", "0.01"]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        launched(*options, "--dialect", voice) as url,
    ):
        environment = _environment(home, url)
        foreseen_s = 0.0
        if way == "plan":
            model = f"{'openai' if is_openai else 'anthropic'}/tokens-100"
            _plan(home, model, LEARNING)
            _headway(home, environment, "run", "plan.yaml", "-q", "--yes")
            _plan(home, model, CALLS)
            said = _headway(home, environment, "check", "plan.yaml", "--forecast", "--json")
            foreseen_s = json.loads(said)["forecast"]["time_s"]["mid"]
        base = "OPENAI_BASE_URL" if is_openai else "ANTHROPIC_BASE_URL"
        path = "/chat/completions" if is_openai else "/v1/messages"
        began_s, before = time.monotonic(), len(_arrivals(url))
        if way == "plan":
            _headway(home, environment, "run", "plan.yaml", "-q", "--yes")
        elif way == "gateway":
            script = Path(home) / "call.py"
            script.write_text(CALL.format(base=base, path=path), encoding="utf-8")
            items = [str(number) for number in range(OTHERS)]
            command = f"{sys.executable} {script} {{}}"
            _headway(home, environment, "each", "-j", "8", command, ":::", *items)
        else:
            code = PACED.format(base=base, path=path)
            subprocess.run([sys.executable, "-c", code, str(OTHERS)], env=environment, check=True)
        took_s = time.monotonic() - began_s
        judged = _judged(_arrivals(url), before, size, foreseen_s, took_s)
        row = (name, way, f"{size:,}", *judged)
        say(" ".join(row))
        return row


def _judged(
    arrivals: list[dict[str, Any]], before: int, size: int, foreseen_s: float, took_s: float
) -> tuple[str, ...]:
    first_s = arrivals[0]["at_s"]
    ours = arrivals[before:]
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
    foreseen = f"{foreseen_s:.0f}" if foreseen_s else ""
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
