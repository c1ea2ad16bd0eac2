"""`headway each` beside GNU parallel and `xargs -P`: commands that wait, compute, or both.

    python -m bench.each_width            # writes docs/benchmarks/each.md; GNU parallel is needed

Each is run in turn, so that all meet the same machine. Start-up is apart: from each time the time
of the same program with one `true` is taken. Without a number parallel and xargs run as many
commands as there are processors. Judge it on an idle machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.markdown import table
from headway.run.machine import cores

ROUNDS: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 3
TASKS: Final = 40
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "each.md"
LOOP: Final = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done"
KINDS: Final = {
    "waiting": "sleep 2; true {}",
    "CPU-bound": f"{LOOP}; true {{}}",
    "mixed": f"sleep 1; {LOOP}; true {{}}",
}
MOST: Final = 1.15
"""What is required: so many times the better of the other two."""

HEAD: Final = """\
# `each` beside GNU parallel and xargs

`python -m bench.each_width` on {processors} processors, load average {load:.1f} at the start:
{tasks} commands, median of {rounds} rounds by turns, less the time of the same program with one
`true`. *waiting* is `sleep 2`, *CPU-bound* a loop in a shell, *mixed* `sleep 1` and the loop.
Without `-j` the other two run as many as there are processors; `each` runs what processors and
memory can serve.

"""


def commands_of(kind: str, jobs: int | None) -> dict[str, list[str]]:
    """The three programs with the same work; with fewer inputs, one that does nothing."""
    template, count = KINDS.get(kind, "true {}"), TASKS if kind in KINDS else 1
    inputs = [str(number) for number in range(count)]
    number = [] if jobs is None else [f"-j{jobs}"]
    most = str(cores() if jobs is None else jobs)
    each = [sys.executable, "-m", "headway", "each"]
    return {
        "headway each": [*each, *number, template, ":::", *inputs],
        "GNU parallel": ["parallel", "--will-cite", *number, template, ":::", *inputs],
        "xargs -P": [
            "sh", "-c", 'printf "%s\\n" "$@" | xargs -P "$0" -I{} sh -c "$TEMPLATE"', most, *inputs,
        ],
    }  # fmt: skip


def took_s(command: Sequence[str], template: str, state: str) -> float:
    environment = {
        **os.environ, "TEMPLATE": template, "PARALLEL_SHELL": "/bin/sh",
        "HEADWAY_STATE_DIR": state, "HEADWAY_RUNTIME_DIR": f"{state}/run",
    }  # fmt: skip
    began_s = time.monotonic()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began_s


def measured(kind: str, jobs: int | None, state: str) -> dict[str, float]:
    """Seconds of each program, without its start."""
    taken: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        idle = commands_of("", jobs)
        for name, command in commands_of(kind, jobs).items():
            start_s = took_s(idle[name], "true {}", state)
            whole_s = took_s(command, KINDS[kind], state)
            taken.setdefault(name, []).append(whole_s - start_s)
    return {name: median(times) for name, times in taken.items()}


def main() -> None:
    load, rows = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as state:
        for kind in KINDS:
            for jobs in (TASKS, cores(), None):
                times = measured(kind, jobs, state)
                ours, *others = times.values()
                ratio = ours / min(others)
                said = f"{ratio:.2f}" + (" (above)" if ratio > MOST else "")
                words = "without" if jobs is None else f"-j {jobs}"
                rows.append([kind, words, *(f"{one:.1f} s" for one in times.values()), said])
                print(*rows[-1], sep="\t", flush=True)
    names = ["commands", "number", "headway each", "GNU parallel", "xargs -P"]
    names.append(f"beside the better (at most {MOST})")
    head = HEAD.format(processors=cores(), load=load, tasks=TASKS, rounds=ROUNDS)
    PAGE.write_text(head + table(names, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
