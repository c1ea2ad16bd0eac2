"""A forecast and its truth over HTTP: a run teaches, `headway check` foresees, a run shows.

Providers are the served simulator, llmock and mocklimit; each case has a broker and folders of its
own, and is told nothing but a URL.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench.forecast_cases import LATER, LEARNED, OUTPUT_MAX, Case, Item
from bench.results import ROOT
from bench.servers import Llmock, Mocklimit, llmock, mocklimit
from bench.sharing_crowd import place_of_its_own
from headway.base.folders import Folders
from headway.journal.documents import FORECAST
from headway.journal.folder import list_runs
from headway.journal.reader import JournalReader
from headway.sim.draw import uniform
from headway.sim.server import launched
from headway.sim.truth import filler

RUN_S_MAX: Final = 400.0
LOOK_S: Final = 2.0
"""How often somebody asks when the run will be over."""

LENGTHS: Final = 48
"""Different answers that the scripted model has."""

MODEL: Final = "claude-haiku-4-5"

MOCK_MAX: Final = 300
"""The longest answer that is allowed on servers that reserve it."""

PLAN: Final = """\
headway: 1
name: forecast
model: {model}
tasks:
  ask:
    each: {{lines: items.txt}}
    prompt: "{{{{ item }}}}"
    max_tokens: {most}
"""


class Glimpse(Struct, frozen=True):
    """What was said of the end while a run went on."""

    at_s: float
    eta_s: float


class Served(Struct, frozen=True):
    """What was foreseen of a run over HTTP, and what it took."""

    case: str
    family: str
    count: int
    foreseen: dict[str, Any]
    time_s: float
    microusd: int
    glimpses: tuple[Glimpse, ...]


def served(case: Case) -> Served:
    """A case on the served simulator."""
    script = json.dumps({"rules": [
        {"regex": rf"\bL{length:02d}\b", "answer": "So it is.", "tokens": _tokens(length)}
        for length in range(LENGTHS)
    ]})  # fmt: skip
    with place_of_its_own() as place:
        home = Path(place.state).parent
        (home / "script.yaml").write_text(script)
        with launched(*_options(case), "--script", str(home / "script.yaml")) as url:
            wire = "openai" if case.spec.dialect == "openai" else "anthropic"
            texts = [_text(case, item, number) for number, item in _items(case)]
            asked = (f"{wire}/{MODEL}", OUTPUT_MAX)
            return _tried((case.kind, case.family), texts, url, asked, place)


def mocked(seed: int, which: str) -> Served:
    """A case on somebody else's server; the answers are its own."""
    rate = 60 + int(120 * uniform(seed, 911, 0))
    count = rate + int(rate * (0.4 + 0.5 * uniform(seed, 911, 1)))
    latency = 200 + int(800 * uniform(seed, 911, 2))
    texts = [
        "".join(filler(60 + int(300 * uniform(seed, 912, number)), seed + number))
        for number in range(LEARNED + count)
    ]
    # Of tokens there is about as much as of requests: either may bind.
    tokens = int(rate * (MOCK_MAX + 210) * (0.8 + 0.8 * uniform(seed, 911, 3)))
    with place_of_its_own() as place, _mock(which, rate, tokens, latency) as url:
        return _tried((which, "its own"), texts, url, ("openai/gpt-5-mini", MOCK_MAX), place)


@contextmanager
def _mock(which: str, rpm: int, tpm: int, latency_ms: int) -> Iterator[str]:
    if which == "llmock":
        with llmock(Llmock(rpm, tpm, latency_ms)) as url:
            yield url
    else:
        spread = (latency_ms * 8 // 10, latency_ms * 12 // 10)
        with mocklimit(Mocklimit("bucket", rpm, tpm, latency_ms=spread)) as url:
            yield url


def _tried(
    names: tuple[str, str], texts: Sequence[str], url: str, asked: tuple[str, int], place: Folders
) -> Served:
    """Learn, foresee, perform."""
    home = Path(place.state).parent
    told = os.environ | {
        "PYTHONPATH": str(ROOT / "src"), "HEADWAY_RUNTIME_DIR": place.runtime,
        "HEADWAY_STATE_DIR": place.state,
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "forecast",
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "forecast",
    }  # fmt: skip
    (home / "plan.yaml").write_text(PLAN.format(model=asked[0], most=asked[1]))
    (home / "items.txt").write_text("\n".join(texts[:LEARNED]) + "\n")
    _headway(home, told, "run", "plan.yaml", "--quiet", "--yes", "--json")
    (home / "items.txt").write_text("\n".join(texts[LEARNED:]) + "\n")
    glimpses = _watched(home, told)
    status = json.loads(_headway(home, told, "status", "--json"))
    # What the run itself foresaw as it began: between a check and a run limits refill.
    with JournalReader(list_runs(place.state)[0].folder) as reader:
        foreseen = json.loads(reader.document(FORECAST) or b"{}")
    return Served(
        *names, len(texts) - LEARNED, foreseen, float(status["elapsed_s"]),
        round(float(status["usd"]) * 1e6), glimpses,
    )  # fmt: skip


def _watched(home: Path, told: dict[str, str]) -> tuple[Glimpse, ...]:
    """Perform the plan, and ask now and then when it will be over."""
    command = [sys.executable, "-m", "headway", "run", "plan.yaml", "--quiet", "--yes", "--json"]
    glimpses: list[Glimpse] = []
    with subprocess.Popen(command, cwd=home, env=told, stdout=subprocess.DEVNULL) as process:
        began_s = time.monotonic()
        while process.poll() is None and time.monotonic() - began_s < RUN_S_MAX:
            time.sleep(LOOK_S)
            if process.poll() is not None:
                break
            said = json.loads(_headway(home, told, "status", "--json"))
            if said.get("eta_s") is not None:
                glimpses.append(Glimpse(float(said["elapsed_s"]), float(said["eta_s"])))
        process.kill()
    return tuple(glimpses)


def _headway(home: Path, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "headway", *arguments]
    ended = subprocess.run(command, cwd=home, env=environment, check=True, timeout=RUN_S_MAX,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    return ended.stdout


def _items(case: Case) -> list[tuple[int, Item]]:
    every = [*case.items(0, LEARNED), *case.items(LATER, case.count)]
    return list(enumerate(every))


def _text(case: Case, item: Item, number: int) -> str:
    """A prompt of about so many tokens, with a word that the script answers by."""
    words = " ".join("".join(filler(max(1, item.input_tokens - 8), case.seed + number)).split())
    return f"L{_length(item.output_tokens):02d} {number} {words}"


def _tokens(length: int) -> int:
    """From 4 to 2,000 tokens, each 14 % more than the one before."""
    return round(4.0 * 1.14**length)


def _length(tokens: int) -> int:
    return min(range(LENGTHS), key=lambda length: abs(_tokens(length) - tokens))


def _options(case: Case) -> list[str]:
    names = {"requests": "--rpm", "input": "--itpm", "output": "--otpm", "tokens": "--tpm",
             "concurrency": "--concurrent"}  # fmt: skip
    spec = case.spec
    told = ["--charging", spec.terms.charging]
    for limit in spec.terms.limits:
        told += [names[limit.resource], str(round(limit.amount))]
    latency = spec.latency
    told += ["--first-byte-s", f"{latency.first_byte_s:.4f}"]
    told += ["--per-token-s", f"{latency.per_output_token_s:.6f}"]
    return [*told, "--sigma", f"{latency.sigma:.5f}", "--kappa", f"{latency.kappa:.6f}"]
