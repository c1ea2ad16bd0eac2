"""What headway's engine takes by width and by the size of a fan-out: a part of `bench.engine`.

    python -m bench.engine_own KIND NUMBER FOLDER

Every figure is measured in a process of its own: kinds are `width`, `fan-out`, `pending` and
`again`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from msgspec import Struct

from bench.engine_headway import fan_out, start
from bench.results import ROOT, say
from headway.base.codec import as_dict

WIDTHS: Final = (1, 4, 22, 100, 1_000)
FAN_OUTS: Final = (1_000, 10_000, 100_000, 1_000_000)
PENDING: Final = 100_000
RESUMED: Final = 100_000
TASK_S: Final = 0.01
"""How long a task takes in the table of widths."""

TASKS_PER_WIDTH: Final = 20
TASKS_MIN: Final = 200
SECONDS_MAX: Final = 120.0


class Sized(Struct, frozen=True):
    """One fan-out."""

    number: int
    """Its width, or how many tasks it has."""
    tasks: int
    seconds: float = 0.0
    first_s: float = 0.0
    cpu_s: float = 0.0
    before_mb: float = 0.0
    memory_mb: float = 0.0
    pending_bytes: float = 0.0
    """Per task, when the first one started and all others waited."""
    why_not: str = ""

    @property
    def cpu_us_per_task(self) -> float:
        return 1e6 * self.cpu_s / self.tasks


class Own(Struct, frozen=True):
    """All figures that are headway's alone."""

    widths: tuple[Sized, ...]
    fan_outs: tuple[Sized, ...]
    pending: Sized
    resumed: Sized


def measured() -> Own:
    """Each in a process of its own; only what is resumed shares a folder with what it resumes."""
    widths = tuple(_alone("width", width) for width in WIDTHS)
    fan_outs = tuple(_alone("fan-out", count) for count in FAN_OUTS)
    with tempfile.TemporaryDirectory() as folder:
        first = _process("fan-out", RESUMED, folder)
        resumed = _process("again", RESUMED, folder) if not first.why_not else first
    return Own(widths, fan_outs, _alone("pending", PENDING), resumed)


def _alone(kind: str, number: int) -> Sized:
    with tempfile.TemporaryDirectory() as folder:
        return _process(kind, number, folder)


def _process(kind: str, number: int, folder: str) -> Sized:
    command = [sys.executable, "-m", "bench.engine_own", kind, str(number), folder]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
            timeout=SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Sized(number, number, why_not=f"not finished in {SECONDS_MAX:.0f} s")
    if ended.returncode != 0:
        return Sized(number, number, why_not="".join(ended.stderr.splitlines()[-1:])[:200])
    found = Sized(**json.loads(ended.stdout.splitlines()[-1]))
    say(f"{kind} {number:,}: {found.seconds:.2f} s, {found.cpu_us_per_task:.0f} us of CPU a task")
    return found


def environment() -> dict[str, str]:
    """The same headway and the same benches, whichever interpreter runs."""
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}


_first: list[tuple[float, int]] = []
"""When the first task started, and what memory was traced then."""


async def nothing(task: int) -> int:
    """A task that does nothing. What it is depends on nothing else: it is found again."""
    if not _first:
        _first.append((perf_counter(), tracemalloc.get_traced_memory()[0]))
        tracemalloc.stop()  # It slows everything down and has told what it was for.
    return task


async def wait(task: int) -> int:
    """A task that takes its time."""
    await asyncio.sleep(TASK_S)
    return await nothing(task)


def measure(kind: str, number: int, folder: Path) -> Sized:
    """One figure, in this process."""
    is_width = kind == "width"
    count = max(TASKS_MIN, TASKS_PER_WIDTH * number) if is_width else number
    start(folder / kind)
    if kind == "pending":
        tracemalloc.start()
    before_mb, cpu_s, begin_s = _memory_mb(), process_time(), perf_counter()
    traced = tracemalloc.get_traced_memory()[0]
    results = fan_out(count, wait if is_width else nothing, folder, number if is_width else None)
    seconds, cpu_s = perf_counter() - begin_s, process_time() - cpu_s
    if results != list(range(count)):
        raise AssertionError("wrong results")
    if bool(_first) == (kind == "again"):
        raise AssertionError("finished tasks were performed again, or none was performed")
    first_s, pending = _first[0] if _first else (begin_s, traced)
    return Sized(
        number, count, seconds, first_s - begin_s, cpu_s, before_mb, _memory_mb(),
        (pending - traced) / count,
    )  # fmt: skip


def _memory_mb() -> float:
    """The most that this process ever had; what getrusage says includes whoever started it."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    """Measure one figure and print it as JSON."""
    kind, number, folder = sys.argv[1:]
    print(json.dumps(as_dict(measure(kind, int(number), Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
