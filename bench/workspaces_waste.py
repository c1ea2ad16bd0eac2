"""What running again costs: `python -m bench.workspaces_waste`; `--think 1 --tasks 4` for a look.

Sixteen scripted agents on one repository: each searches all of it, waits as for a model, runs the
tests, edits three files, commits, touches the lock file and runs the tests again. Three shapes:
tasks with files of their own, four clusters of four that share a file each, one file that all
edit. Beside headway stand the serial run, and worktrees with a merge queue that tests each merge.
An attempt counts as 1,000 tokens; times are in units of one task alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench.markdown import table
from bench.workspaces_sizes import used_s
from tests.workspaces.peers import merge_queue, serial
from tests.workspaces.stage import Scene, Tree, staged

TOKENS: Final = 1_000
TASKS: Final = 16
THINK_S: Final = 8.0
TEST: Final = "sh tests/run.sh"
OTHERS: Final = 200
"""Files that no task edits, and every search and test reads."""

SHAPES: Final[Mapping[str, Callable[[int], int | None]]] = {
    "independent": lambda _: None,
    "clustered, 4 x 4": lambda task: task // 4,
    "one hot file": lambda _: 0,
}
"""By the number of a task: the shared file that it edits, if any."""


class Row(Struct, frozen=True):
    shape: str
    way: str
    attempts: int
    most: int
    """Of one task; 0 where nothing counts that."""
    units: float
    cpu_s: float
    """Of all processes of the way: what a busy machine does not change much."""
    is_right: bool

    def cells(self) -> list[str]:
        most, right = str(self.most or "-"), "yes" if self.is_right else "**no**"
        return [self.shape, self.way, str(self.attempts), most, f"{self.attempts * TOKENS:,}",
                f"{self.units:.2f}", f"{self.cpu_s:.1f}", right]  # fmt: skip


def files_of(shape: str, tasks: int) -> dict[str, str]:
    files = {f"src/other_{n}.py": f"def other_{n}():\n    return {n}\n" for n in range(OTHERS)}
    for task in range(tasks):
        for part in range(3):
            files[f"src/own_{task}_{part}.py"] = f"STATE = 'open'  # goal-{task}.\n"
        if (shared := SHAPES[shape](task)) is not None:
            files[f"src/shared_{shared}.py"] = "DONE = [\n]\n"
    files["tests/run.sh"] = (
        "cat src/*.py > /dev/null\n"
        "for f in src/shared_*.py; do [ ! -e $f ] || python3 -B $f || exit 1; done\n"
    )
    return files | {"package.lock": "locked\n", ".gitignore": "__pycache__/\n"}


def script_of(shape: str, task: int, think_s: float) -> str:
    shared = SHAPES[shape](task)
    own = 3 if shared is None else 2
    edit = f"sed -i s/open/done/ $(echo $found | cut -d ' ' -f 1-{own})\n"
    if shared is not None:
        edit += f"sed -i 's/^]$/    {task},\\n]/' src/shared_{shared}.py\n"
    return (
        f'found=$(grep -rl "goal-{task}[.]" . --include=*.py | LC_ALL=C sort | tr "\\n" " ")\n'
        f"sleep {think_s / 2}\n{TEST}\n{edit}git add -A\ngit commit -qm 'Task {task}'\n"
        f"touch package.lock\nsleep {think_s / 2}\n{TEST}\n"
    )


def is_right(shape: str, tasks: int, tree: Tree) -> bool:
    """Whether every edit of every task is there."""
    edited = 3 if shape == "independent" else 2
    texts = {path: content for path, (_, content) in tree.items()}
    lists = [text.split() for path, text in texts.items() if path.startswith("src/shared_")]
    return all(
        sum("done" in texts[f"src/own_{task}_{part}.py"] for part in range(3)) == edited
        and (shape == "independent" or any(f"{task}," in one for one in lists))
        for task in range(tasks)
    )


def through_headway(root: Path, shape: str, tasks: int, think_s: float) -> tuple[Row, str]:
    with staged(root) as scene:
        _scripts(scene, shape, tasks, think_s)
        members = list(range(tasks))
        plan = (
            f"headway: 1\nland: verified\nchecks: ['{TEST}']\n"
            f"tasks:\n  task:\n    each: {members}\n"
            "    agent: scripted\n    prompt: 'Please perform task-{{ item }}.'\n"
            f"    verify: {TEST}\n"
        )
        scene.repository(files_of(shape, tasks), plan)
        began_s, before_s = monotonic(), used_s()
        done = scene.run("-j", str(tasks))
        took_s, cpu_s = monotonic() - began_s, used_s() - before_s
        said = done.stdout + done.stderr
        scene.apply()
        starts = scene.gate.starts()
        right = done.returncode == 0 and is_right(shape, tasks, scene.tree())
        most = max(starts.values(), default=0)
        return Row(shape, "headway", starts.total(), most, took_s, cpu_s, right), said


def through_git(root: Path, shape: str, tasks: int, think_s: float) -> list[Row]:
    """The serial run, and a merge queue."""
    rows = []
    with staged(root) as scene:
        commands = _scripts(scene, shape, tasks, think_s)
        scene.repository(files_of(shape, tasks), "headway: 1\n")
        for way in ("serial", "merge queue"):
            before, began_s, before_s = scene.gate.starts(), monotonic(), used_s()
            if way == "serial":
                found = serial(scene, root / "serial", commands)
            else:
                found = merge_queue(scene, root / "queue", commands, TEST)
            took_s, starts = monotonic() - began_s, scene.gate.starts() - before
            cpu_s = used_s() - before_s
            right = found.is_merged and is_right(shape, tasks, found.tree)
            most = max(starts.values(), default=0)
            rows.append(Row(shape, way, found.attempts, most, took_s, cpu_s, right))
    return rows


def one_alone(root: Path, think_s: float) -> float:
    """How long a task takes that has the machine to itself: the unit of all times."""
    with staged(root) as scene:
        commands = _scripts(scene, "independent", 1, think_s)
        scene.repository(files_of("independent", 1), "headway: 1\n")
        began_s = monotonic()
        serial(scene, root / "alone", commands)
        return monotonic() - began_s


def _scripts(scene: Scene, shape: str, tasks: int, think_s: float) -> dict[str, str]:
    return {
        f"task-{task}": scene.script(f"task-{task}", script_of(shape, task, think_s))
        for task in range(tasks)
    }


def waste(think_s: float = THINK_S, tasks: int = TASKS, only: str = "") -> str:
    """A table of all shapes and ways."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        unit_s = one_alone(Path(folder, "alone"), think_s)
        print(f"one task alone: {unit_s:.2f} s", flush=True)
        for number, shape in enumerate(one for one in SHAPES if only in one):
            row, said = through_headway(Path(folder, f"headway-{number}"), shape, tasks, think_s)
            if not row.is_right:
                print(said)
            place = Path(folder, f"git-{number}")
            for one in [row, *through_git(place, shape, tasks, think_s)]:
                rows.append(replace(one, units=one.units / unit_s))
                print(rows[-1], flush=True)
    headings = [
        "shape",
        "way",
        "attempts",
        "most of one",
        "tokens",
        "time, units",
        "CPU s",
        "right",
    ]
    return table(headings, [row.cells() for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--think", type=float, default=THINK_S, help="seconds of a task's model")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--only", default="", help="a shape")
    parsed = parser.parse_args()
    print(waste(parsed.think, parsed.tasks, parsed.only))


if __name__ == "__main__":
    main()
