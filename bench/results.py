"""Finished trials, kept on disk, so that an interrupted benchmark goes on where it was.

A line belongs to a trial and to the code that it ran: its key is a hash of both, so that an edit
runs again exactly what it can have changed. Baselines and the first version depend on a few modules
only, which `tests/test_bench_slice.py` proves: they are not run again when the law is tuned.
"""

from __future__ import annotations

import ast
import json
import multiprocessing
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct

from bench import first as first_module
from bench import trial as trial_module
from bench.trial import Outcome, Trial, run
from headway.base.codec import as_dict

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "headway"
RESULTS: Final = ROOT / "bench" / ".results"

PROCESSES: Final = 2

SAY_EVERY_S: Final = 5.0

FOLDERS: Final = ("base", "pacing", "plans", "engine", "state", "sim", "report")
"""The folders whose modules trials can execute."""

UNPACED: Final = (
    "base/numbers.py", "base/values.py", "engine/engine.py", "engine/events.py", "engine/state.py",
    "engine/strategy.py", "pacing/headers.py", "pacing/meters.py", "pacing/refusal.py",
    "plans/graph.py", "plans/links.py", "plans/ready.py", "report/bound.py", "sim/account.py",
    "sim/clients.py", "sim/draw.py", "sim/headers.py", "sim/provider.py", "sim/rehearsal.py",
    "sim/supply.py",
)  # fmt: skip
"""All that other ways than this tree's own execute: the provider and the engine."""


class StoreStatistics(Struct, frozen=True):
    """Finished trials at hand."""

    kept: int


class Store:
    """A file with one JSON line per finished trial; the last line of a key counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Outcome] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                self._read(line)

    def __repr__(self) -> str:
        return f"<Store {len(self._found)} trials in {self._path}>"

    def get(self, trial: Trial) -> Outcome | None:
        return self._found.get(key_of(trial))

    def put(self, trial: Trial, outcome: Outcome) -> None:
        key = key_of(trial)
        self._found[key] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        said = {"key": key, "provider": trial.spec.name, "workload": trial.work.name,
                "seed": trial.seed, "way": trial.way, "outcome": as_dict(outcome)}  # fmt: skip
        with self._path.open("a") as lines:
            lines.write(json.dumps(said) + "\n")

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(len(self._found))

    def _read(self, line: str) -> None:
        """A line that was cut off by a kill is no result."""
        try:
            said = json.loads(line)
            self._found[said["key"]] = Outcome(**said["outcome"])
        except (ValueError, KeyError, TypeError):
            return


def complete(
    trials: Iterable[Trial], store: Store, processes: int = PROCESSES
) -> dict[Trial, Outcome]:
    """Outcomes of all trials: the stored ones, and the others run now."""
    wanted = list(dict.fromkeys(trials))
    missing = [trial for trial in wanted if store.get(trial) is None]
    missing.sort(key=_weight, reverse=True)
    say(f"{len(wanted) - len(missing)} trials reused, {len(missing)} to run")
    if missing:
        _run_all(missing, store, processes)
    outcomes = {trial: store.get(trial) for trial in wanted}
    return {trial: outcome for trial, outcome in outcomes.items() if outcome is not None}


def say(text: str) -> None:
    """Progress, for people."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def key_of(trial: Trial) -> str:
    """What a stored outcome belongs to: the trial and the code that it runs."""
    code = code_hash(sources(trial.kind == "paced"))
    return sha256(f"{trial!r} {code}".encode()).hexdigest()[:24]


def _run_all(missing: Sequence[Trial], store: Store, processes: int) -> None:
    whole = sum(map(_weight, missing))
    done, began_s, said_s = 0.0, monotonic(), monotonic()
    with ExitStack() as stack:
        results: Iterable[tuple[Trial, Outcome]] = map(_run_one, missing)
        if processes > 1:
            pool = stack.enter_context(multiprocessing.Pool(processes))
            results = pool.imap_unordered(_run_one, missing)
        for count, (trial, outcome) in enumerate(results, 1):
            store.put(trial, outcome)
            done += _weight(trial)
            now_s = monotonic()
            if now_s - said_s >= SAY_EVERY_S:
                said_s = now_s
                left_s = (now_s - began_s) * (whole - done) / done
                say(f"{count} of {len(missing)} trials, about {left_s / 60:.1f} min left")


def _run_one(trial: Trial) -> tuple[Trial, Outcome]:
    return trial, run(trial)


def _weight(trial: Trial) -> float:
    """How long a trial takes, roughly and relative to others: refusals cost most of it."""
    if trial.kind == "bound":
        return 0.1 * trial.work.tasks
    if trial.kind in ("paced", "first"):
        return (16.0 if trial.way.endswith("profile") else 8.0) * trial.work.tasks
    _, _, size = trial.way.partition(":")
    refusals: float = (float(size or 20) / 20.0) ** 1.6
    return (1.0 + refusals) * trial.work.tasks


@cache
def sources(is_paced: bool) -> frozenset[Path]:
    """The files that count for stored trials."""
    return files_of(FOLDERS) if is_paced else frozenset(PACKAGE / path for path in UNPACED)


def files_of(folders: tuple[str, ...]) -> frozenset[Path]:
    """The modules of these folders of the package."""
    return frozenset(path for folder in folders for path in (PACKAGE / folder).glob("*.py"))


@cache
def code_hash(paths: frozenset[Path]) -> str:
    """A hash of the code that trials can execute; comments and layout do not count."""
    parts = [Path(trial_module.__file__).read_text(), Path(first_module.__file__).read_text()]
    parts += [path.read_text() for path in sorted(paths)]
    return sha256("\n".join(map(_meaning, parts)).encode()).hexdigest()


def _meaning(source: str) -> str:
    """A source without comments, layout and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_text(part)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
