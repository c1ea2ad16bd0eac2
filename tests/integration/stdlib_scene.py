"""Counts Python's standard library by the example plan, and kills headway on the way.

What is true is known twice: `ast` says what there is to count, and the simulated provider what it
was sent.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import headway
from headway.sim.server import account_of, launched, truth_of

ROOT: Final = Path(headway.__file__).resolve().parents[2]
EXAMPLE: Final = ROOT / "examples" / "plans" / "stdlib"
LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
LEFT_OUT: Final = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
KEY: Final = "stdlib"

WIDTH: Final = 32
"""Calls that the provider takes at once, and so the most that a kill can find in flight."""

INPUT_TOKENS_PER_MINUTE: Final = 6_000_000
BURST_S: Final = 2.0
PROVIDER: Final = (
    "--concurrent", str(WIDTH), "--itpm", str(INPUT_TOKENS_PER_MINUTE), "--burst-s", str(BURST_S),
    "--first-byte-s", "0.05", "--per-token-s", "0.001",
)  # fmt: skip

MAP_ANSWER: Final = 200
REDUCE_ANSWER: Final = 150
"""`max_tokens` of the plan."""

END_S_MAX: Final = 600.0
"""How long headway may take until something can be seen."""

SETTLE_S_MAX: Final = 20.0
"""How long a provider may take to notice that nobody listens any more."""


@dataclass(frozen=True, slots=True)
class Kill:
    """What there was when headway was killed."""

    answered: int
    """Calls, the same one sent again included."""
    cut_off: int
    """Calls that were under way, those of earlier kills included."""
    durable: int
    """Calls whose result was in the journal."""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a plan, by itself and by the provider."""

    total: dict[str, int]
    counts: dict[str, dict[str, Any]]
    """What the model found in each piece, by the piece's name."""
    tree: dict[str, Any]
    visits: list[dict[str, Any]]
    kills: tuple[Kill, ...]
    shown: int
    """Tasks that a resume said were in flight, and are tried again."""
    seconds: float

    @property
    def hows(self) -> Counter[str]:
        return Counter(one["how"] for one in self.visits)

    @property
    def bodies(self) -> Counter[str]:
        """How often each call was answered."""
        return Counter(one["body"] for one in self.visits if one["how"] == "whole")

    @property
    def paid_twice(self) -> int:
        return sum(times - 1 for times in self.bodies.values())

    @property
    def cut_off(self) -> int:
        return self.hows["cancelled"]

    @property
    def lost(self) -> int:
        """Answers that had come when a kill kept them from becoming durable."""
        found = 0
        for kill in self.kills:
            found += kill.answered - kill.durable - found
        return found

    @property
    def input_tokens(self) -> int:
        """Of all calls that the provider took."""
        return sum(one["input_tokens"] for one in self.visits if one["is_accepted"])

    @property
    def largest(self) -> int:
        """Tokens of the largest call, by the provider's count."""
        return max(int(one["input_tokens"] + one["output_tokens"]) for one in self.visits)

    @property
    def calls_s(self) -> float:
        """From the first call to the last answer."""
        ended = max(one["ended_s"] for one in self.visits)
        return float(ended - min(one["at_s"] for one in self.visits))

    @property
    def bound_s(self) -> float:
        """The least time in which the provider's input limit lets these tokens through."""
        rate = INPUT_TOKENS_PER_MINUTE / 60
        return max(0.0, self.input_tokens / rate - BURST_S)

    @property
    def levels(self) -> int:
        """Calls between a count and the total, at most, that one included."""
        return _levels(self.tree)

    @property
    def reductions(self) -> int:
        return _calls(self.tree) - len(self.counts)


def must_be_true(told: Told, context: int, every: int) -> None:
    """What the model said is what `ast` says, every byte was sent, and no call was too large."""
    sources = true_files(every)
    whole: Counter[str] = Counter()
    for name, source in sources.items():
        found, size = _found(told.counts, name, source)
        assert found == true_counts(source), name
        whole.update(found, bytes=size)
    assert told.total == whole
    assert len(told.counts) >= len(sources)
    largest = max(one["input_tokens"] for one in told.visits)
    assert largest + REDUCE_ANSWER <= context
    assert told.largest <= context
    assert set(told.hows) <= {"whole", "cancelled", "refused"}
    # Every call that was answered is one of the plan, and every one of the plan was.
    assert len(told.bodies) == len(told.counts) + told.reductions


def must_be_paid_once(told: Told) -> None:
    """Only what a kill found in flight was sent again, and the resume had said so."""
    assert told.paid_twice <= told.lost
    assert told.cut_off + told.lost <= told.shown
    assert told.hows["whole"] == len(told.bodies) + told.paid_twice


def _found(counts: dict[str, Any], name: str, source: str) -> tuple[dict[str, int], int]:
    """What was counted in all pieces of a file, which together are the file; and its bytes."""
    sums, size, place = Counter[str](), 0, 0
    pieces: list[tuple[int, int, str]] = []
    for piece in counts:
        file, _, span = piece.rpartition("/")
        if file == name:
            pieces.append((int(span.split("-")[0]), int(span.split("-")[1]), piece))
    for first, last, piece in sorted(pieces):
        assert first == place, piece
        sent = source[first:last].encode()
        assert counts[piece]["seal"] == sha256(sent).hexdigest(), piece
        assert counts[piece]["bytes"] == len(sent)
        sums.update(counts[piece]["counted"])
        size, place = size + len(sent), last
    assert place == len(source), name
    return dict(sums), size


def true_files(every: int) -> dict[str, str]:
    """What the plan is to count, found without its help."""
    found = (path for path in LIBRARY.rglob("*.py"))
    kept = sorted(
        path.relative_to(LIBRARY).as_posix()
        for path in found
        if not LEFT_OUT & set(path.relative_to(LIBRARY).parts)
    )
    return {name: (LIBRARY / name).read_bytes().decode() for name in kept[::every]}


def true_counts(source: str) -> dict[str, int]:
    """What `ast` counts in a file."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found["def"] += 1
        elif isinstance(node, ast.ClassDef):
            found["class"] += 1
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found["import"] += 1
    return dict(found)


def counted(folder: Path, context: int, every: int, kill_after: Sequence[int] = ()) -> Told:
    """Run the plan to its end; headway is killed when the provider has seen so many calls."""
    home = folder / "stdlib"
    shutil.copytree(EXAMPLE, home, ignore=shutil.ignore_patterns("build", "__pycache__"))
    plan = (home / "plan.yaml").read_text().replace("8000}", f"{context}, every: {every}}}")
    (home / "plan.yaml").write_text(plan.replace("context: 8000", f"context: {context}"))
    began_s, kills = monotonic(), list[Kill]()
    with launched("--script", str(home / "script.yaml"), *PROVIDER) as url:
        scene, arguments = Scene(home, url), ("run", "plan.yaml")
        for calls in (*kill_after, None):
            if not scene.is_killed(arguments, calls, len(kills)):
                break
            kills.append(scene.seen())
            arguments = ("resume", "last")
        visits = scene.visits()
    seconds = monotonic() - began_s
    counts = {
        line["task"].removeprefix("count[").removesuffix("]"): line["output"]
        for line in scene.lines("results", "--parse", "--task", "count")
    }
    (tree,) = scene.lines("results", "--trace", "total", "--json")
    total = json.loads((home / "build" / "total.json").read_text())
    shown = sum(map(scene.shown, range(1, len(kills) + 1)))
    return Told(total, counts, tree, visits, tuple(kills), shown, seconds)


@dataclass(frozen=True, slots=True)
class Scene:
    """One copy of the example, and its provider."""

    home: Path
    url: str

    def is_killed(self, arguments: Sequence[str], calls: int | None, number: int) -> bool:
        """Whether headway was killed, when so many calls had come in, before it came to its end."""
        command = [sys.executable, "-m", "headway", *arguments]
        said = self._said(number)
        with said.open("w") as file, subprocess.Popen(
            command, cwd=self.home, env=self.environment(), stdout=file, stderr=file,
            start_new_session=True,
        ) as process:  # fmt: skip
            until_s = monotonic() + END_S_MAX
            while process.poll() is None:
                is_late = monotonic() > until_s
                if is_late or (calls is not None and self._calls() >= calls):
                    # Every second time its commands die with it.
                    kill = os.killpg if number % 2 else os.kill
                    kill(process.pid, signal.SIGKILL)
                    process.wait()
                    assert not is_late, said.read_text()[-2000:]
                    return True
                sleep(0.02)
        assert process.returncode == 0, said.read_text()[-2000:]
        return False

    def seen(self) -> Kill:
        """What there is, now that headway is dead."""
        visits = self.visits()
        (tree,) = self.lines("results", "--trace", "total", "--json")
        hows = Counter(one["how"] for one in visits)
        return Kill(hows["whole"], hows["cancelled"], _calls(tree))

    def visits(self) -> list[dict[str, Any]]:
        """Every call that came in, when all have ended."""
        until_s = monotonic() + SETTLE_S_MAX
        while True:
            found: list[dict[str, Any]] = truth_of(self.url, "?arrivals=all")["arrivals"]
            if all(one["ended_s"] is not None for one in found) or monotonic() > until_s:
                return found
            sleep(0.02)

    def lines(self, *arguments: str) -> Iterator[dict[str, Any]]:
        """What headway says, as JSON; of a run that is not over it exits with 1."""
        command = [sys.executable, "-m", "headway", *arguments]
        ended = subprocess.run(command, cwd=self.home, env=self.environment(), check=False,
                               capture_output=True, text=True)  # fmt: skip
        assert ended.returncode in (0, 1), ended.stderr
        return (json.loads(line) for line in ended.stdout.splitlines())

    def shown(self, number: int) -> int:
        """Tasks that were in flight at a kill, as the resume after it said."""
        found = re.search(r"^in flight when it ended, so tried again: ([^;]*)",
                          self._said(number).read_text(), re.M)  # fmt: skip
        if found is None:
            return 0
        named, _, more = found[1].partition(" and ")
        return len(named.split(", ")) + int(
            more.split()[0] if more.endswith(" more") else bool(more)
        )

    def environment(self) -> dict[str, str]:
        return dict(os.environ) | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADWAY_STATE_DIR": str(self.home.parent / "state"),
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
        }

    def _said(self, number: int) -> Path:
        return self.home.parent / f"said-{number}"

    def _calls(self) -> int:
        found = truth_of(self.url, "?arrivals=0")["accounts"].get(account_of(KEY), {})
        return int(found.get("calls", 0))


def _calls(branch: dict[str, Any]) -> int:
    return sum(map(_calls, branch["below"]), int(branch["calls"]))


def _levels(branch: dict[str, Any]) -> int:
    is_reduction = branch["kind"] != "result" and branch["calls"] > 0
    return max(map(_levels, branch["below"]), default=0) + int(is_reduction)
