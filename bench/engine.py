"""headway's engine beside others, on tasks that do nothing: `python -m bench.engine`.

What is left when a task takes no time is what the engine takes. Every engine performs the same
graphs in a process of its own, one after another, and its results are compared with the right ones.
Peers are installed into environments of their own, below `.venv/peers`, and are kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct

from bench.engine_own import environment, measured
from bench.engine_peers import PEERS, Peer, Shape, Taken, descendants
from bench.engine_report import report
from bench.results import ROOT, say
from headway.base.codec import as_dict

REPORT: Final = ROOT / "docs" / "benchmarks" / "engine.md"
ENVIRONMENTS: Final = ROOT / ".venv" / "peers"
CELL_S_MAX: Final = 120.0
QUICK_TRIES: Final = 5
"""Of engines that take well under a second; the median counts. The others are measured once."""

LOOK_EVERY_S: Final = 0.1
CELLS: Final = {
    "1,000 no-ops": Shape(1, 1_000),
    "10,000 no-ops": Shape(1, 10_000),
    "three stages x 1,000": Shape(3, 1_000),
    "10 layers x 1,000, each task needs 2": Shape(10, 1_000, 2),
}


class Found(Struct, frozen=True):
    """One engine on one graph, or why there is no figure."""

    peer: str
    cell: str
    taken: Taken | None = None
    tree_mb: float = 0.0
    """The most that all its processes had together, shared pages counted once."""
    why_not: str = ""

    @property
    def tasks_per_s(self) -> float:
        return CELLS[self.cell].tasks / self.taken.seconds if self.taken else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine")
    parser.add_argument("--json", action="store_true", help="print the numbers only")
    parser.add_argument("--only", help=f"some of: {', '.join(PEERS)}")
    parser.add_argument("--no-own", action="store_true", help="leave out what is headway's alone")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    names = parsed.only.split(",") if parsed.only else list(PEERS)
    found = [one for cell in CELLS for one in compare(cell, names)]
    own = None if parsed.no_own else measured()
    if parsed.json:
        said = {"engines": [as_dict(one) for one in found], "own": own and as_dict(own)}
        print(json.dumps(said))
        return 0
    text = report(found, own)
    if not parsed.only and own is not None:
        parsed.output.parent.mkdir(parents=True, exist_ok=True)
        parsed.output.write_text(text)
    print(text)
    return 0


def compare(cell: str, names: Iterable[str]) -> list[Found]:
    """All engines on one graph. Quick ones take turns, so that what else happens meets them all."""
    slow = [name for name in names if PEERS[name].packages]
    quick = [name for name in names if not PEERS[name].packages]
    tries = [[_said(name, cell) for name in quick] for _ in range(QUICK_TRIES)]
    found = [_middle([turn[place] for turn in tries]) for place in range(len(quick))]
    return found + [_said(name, cell) for name in slow]


def _middle(tries: Sequence[Found]) -> Found:
    whole = sorted((one for one in tries if one.taken), key=lambda one: one.tasks_per_s)
    return whole[len(whole) // 2] if whole else tries[0]


def _said(name: str, cell: str) -> Found:
    found = one(name, cell)
    said = f"{found.tasks_per_s:,.0f} tasks/s" if found.taken else found.why_not
    say(f"{cell}: {name}: {said}")
    return found


def one(name: str, cell: str) -> Found:
    """One engine on one graph, in a process of its own."""
    python = interpreter(PEERS[name])
    if python is None:
        return Found(name, cell, why_not="could not be installed")
    shape = CELLS[cell]
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-m", "bench.engine_peers", name, str(shape.layers), str(shape.width),
                   str(shape.spread), folder]  # fmt: skip
        with (Path(folder) / "said").open("w+") as said, \
                (Path(folder) / "complaints").open("w+") as complaints:  # fmt: skip
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment(), stdout=said, stderr=complaints,
                start_new_session=True,
            )  # fmt: skip
            tree_mb, is_whole = watched(process, CELL_S_MAX)
            said.seek(0)
            complaints.seek(0)
            lines, last = said.read().splitlines(), complaints.read().splitlines()[-1:]
    if not is_whole:
        return Found(name, cell, why_not=f"not finished in {CELL_S_MAX:.0f} s")
    if process.returncode != 0 or not lines:
        return Found(name, cell, why_not="".join(last)[:200] or f"exit {process.returncode}")
    return Found(name, cell, Taken(**json.loads(lines[-1])), tree_mb)


def watched(process: subprocess.Popen[bytes], seconds_max: float) -> tuple[float, bool]:
    """Wait for a process: the most memory of its tree, and whether it ended by itself."""
    until_s, most_mb, seen = monotonic() + seconds_max, 0.0, set[int]()
    while monotonic() < until_s:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_EVERY_S)
            return most_mb, True
        tree = [process.pid, *descendants(process.pid)]
        seen.update(tree)
        most_mb = max(most_mb, sum(map(_memory_mb, tree)))
    for pid in seen:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    return most_mb, False


def _memory_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def interpreter(peer: Peer) -> str | None:
    """The interpreter that has what this engine needs; made when it is first wanted."""
    if not peer.packages:
        return sys.executable
    folder = ENVIRONMENTS / peer.packages[0]
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists():
        say(f"installing {' '.join(peer.packages)} into an environment of its own")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        if subprocess.run([*pip, *peer.packages], check=False).returncode != 0:
            return None
        stamp.touch()
    return str(python)


if __name__ == "__main__":
    sys.exit(main())
