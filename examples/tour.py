"""What `make run` shows: headway beside pools of workers, and two runs of real processes.

Nothing is configured and no key is needed. The accounts are simulated: in virtual time for the
table, behind real HTTP for the rows. Every figure printed is computed from what ran just now.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.report.tables import StrategyRow
from headway.sim.compare import Experiment, compare, parse_contenders
from headway.sim.draw import Neighbour
from headway.sim.presets import find_provider, find_workload
from headway.sim.provider import ProviderSpec
from headway.sim.server import launched

POOLS: Final = ("fixed:8", "fixed:32", "fixed:64")
TASKS: Final = 400
SEED: Final = 1
ROWS: Final = 60
WIDTH: Final = 8
EDITORS: Final = 8
ACCOUNT: Final = ("--rpm", "3000", "--first-byte-s", "0.1", "--per-token-s", "0")
HEADWAY: Final = (sys.executable, "-m", "headway")
EDIT: Final = """\
import sys, time
name, path = sys.argv[1], "shared.txt"
lines = open(path).read().splitlines(keepends=True)
time.sleep(0.5)  # an agent thinks
open(path, "w").writelines(one if one != f"{name}: ?\\n" else f"{name}: done\\n" for one in lines)
"""


class Scene(Struct, frozen=True):
    """One situation of the account: each way to run the work."""

    name: str
    pools: Mapping[str, StrategyRow]
    headway: StrategyRow

    @property
    def best(self) -> str:
        """The pool that ends first of those that lose the fewest calls."""
        return min(self.pools, key=lambda one: (self.pools[one].failed, self.pools[one].makespan_s))


class KilledRun(Struct, frozen=True):
    rows: int
    before_kill: int
    paid: int
    in_order: bool


class Edits(Struct, frozen=True):
    editors: int
    without: int
    with_headway: int


def scenes() -> list[Scene]:
    """The same work in virtual time; the account's limits, neighbours and changes differ."""
    spec = find_provider("burst-60s").spec
    terms = spec.terms
    situations = {
        "limits unknown": terms,
        "+ a neighbour takes half": replace(terms, neighbour=Neighbour(0.5, 4, start_s=20.0)),
        "+ limits halve after 1 min": replace(terms, changes=((60.0, 0.5),)),
    }
    return [_scene(name, replace(spec, terms=one)) for name, one in situations.items()]


def _scene(name: str, spec: ProviderSpec) -> Scene:
    workload = find_workload("tasks-1000")
    work = replace(workload, spec=replace(workload.spec, tasks=TASKS))
    words = [*POOLS, "headway"]
    ways = [replace(one, retry="sdk") for word in words for one in parse_contenders(word)]
    *pools, headway = compare(Experiment(spec, work, (SEED,)), ways).rows
    return Scene(name, dict(zip(POOLS, pools, strict=True)), headway)


def killed_run(folder: Path, environment: Mapping[str, str]) -> KilledRun:
    """Rows through a real process that `kill -9` ends half-way; the provider counts the calls."""
    (folder / "rows.txt").write_text("".join(f"row {number}\n" for number in range(ROWS)))
    out = folder / "out.jsonl"
    with launched(*ACCOUNT) as url:
        env = {**environment, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "tour"}
        ask = ("each", "-j", str(WIDTH), "--agent", "prompt", "--model", "openai/echo", "Say {}",
               "--rows", "rows.txt", "--out", out.name)  # fmt: skip
        process = subprocess.Popen([*HEADWAY, *ask], cwd=folder, env=env, stderr=subprocess.DEVNULL,
                                   start_new_session=True)  # fmt: skip
        while _lines(out) < ROWS / 2 and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = _lines(out)
        _headway(folder, env, "resume", "--quiet")
        with urllib.request.urlopen(f"{url}/truth") as answer:
            (account,) = json.load(answer)["accounts"].values()
    found = [json.loads(line) for line in out.read_text().splitlines()]
    in_order = [one["output"] for one in found] == [f"Say row {n}" for n in range(ROWS)]
    return KilledRun(ROWS, before, account["accepted"], in_order)


def edits(folder: Path, environment: Mapping[str, str]) -> Edits:
    """Programs that all read, think and write one file: side by side, and in workspaces."""
    names = [f"agent {number}" for number in range(EDITORS)]
    start = "".join(f"{name}: ?\n" for name in names)
    shared, script = folder / "shared.txt", folder / "edit.py"
    script.write_text(EDIT)
    shared.write_text(start)
    for process in [subprocess.Popen([sys.executable, "edit.py", name], cwd=folder)
                    for name in names]:  # fmt: skip
        process.wait()
    without = shared.read_text().count("done")
    shared.write_text(start)
    task = {"each": names, "run": f'{sys.executable} edit.py "$item"', "workspace": "on"}
    plan = {"headway": 1, "tasks": {"edit": {**task, "land": "merge"}}}
    (folder / "edit.json").write_text(json.dumps(plan))
    _headway(folder, environment, "run", "edit.json", "--quiet", "-j", str(EDITORS))
    _headway(folder, environment, "results", "--apply")
    return Edits(EDITORS, without, shared.read_text().count("done"))


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def _headway(folder: Path, environment: Mapping[str, str], *words: str) -> None:
    subprocess.run([*HEADWAY, *words], cwd=folder, env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def _cell(row: StrategyRow) -> str:
    return f"{row.makespan_s:.0f} s, {row.refused:.0f}, {row.failed:.0f}"


def table_lines(found: Sequence[Scene]) -> Iterator[str]:
    names = [f"pool of {pool.partition(':')[2]}" for pool in POOLS]
    cells = [["the account", *names, "headway"]]
    for scene in found:
        cells.append([scene.name, *map(_cell, scene.pools.values()), _cell(scene.headway)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def verdict(found: Sequence[Scene]) -> str:
    refused = sum(scene.headway.refused for scene in found)
    failed = sum(scene.headway.failed for scene in found)
    times = [scene.headway.makespan_s / scene.pools[scene.best].makespan_s for scene in found]
    return (
        f"headway: {refused:.0f} refused, {failed:.0f} lost; {min(times):.2f} to {max(times):.2f} "
        f"times the time of the pool that loses fewest"
    )


def main() -> None:
    print(
        f"{TASKS} calls on one simulated account, no limit configured: time, refusals, lost calls\n"
    )
    found = scenes()
    print(*table_lines(found), "", verdict(found), sep="\n")
    with tempfile.TemporaryDirectory(prefix="headway-") as root:
        folder, own = Path(root), {"RUNTIME": "r", "STATE": "s", "CONFIG": "c"}
        environment = os.environ | {
            f"HEADWAY_{name}_DIR": os.path.join(root, short) for name, short in own.items()
        }
        project = folder / "p"
        project.mkdir()
        run = killed_run(project, environment)
        order = "in order" if run.in_order else "NOT in order"
        print(
            f"\nkill -9 after {run.before_kill} of {run.rows} rows, then `headway resume`: all rows"
            f" {order}, {run.paid - run.rows} paid twice\n  (at most {WIDTH} were in flight);"
            f" without a journal it would be {run.before_kill}"
        )
        edit = edits(project, environment)
        print(
            f"\n{edit.editors} programs edit one file at the same time; edits that are left: "
            f"{edit.without} without workspaces, {edit.with_headway} with them"
        )


if __name__ == "__main__":
    main()
