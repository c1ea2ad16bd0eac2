"""What workspaces take.

A repository with many files and one large pack: the first snapshot, the next one, many workspaces,
one commit in one of them, and what became of it. In the same run, by turns: workspaces by copy, `cp
-a`, `git worktree add` and `git clone --shared`. CPU time beside time on the wall, and each as a
ratio to one `cp -a` of the same folder, because other processes of the machine change both.
"""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from bench.markdown import table
from bench.results import say
from headway.workspaces.collection import Workspace
from headway.workspaces.store import WorkspaceStore

FILE_BYTES: Final = 6_000
"""The mean of the files in the repositories of CPython, Django and TypeScript is 5 to 12 kB."""
PACK_BYTES: Final = 70_000_000
GIT: Final = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org",
              "-c", "gc.auto=0", "-c", "core.bigFileThreshold=1m",
              "-c", "core.compression=0")  # fmt: skip
COPIES: Final = 4
"""Each takes as long as the one before it, so that more would only take longer."""
T = TypeVar("T")
Figures = dict[str, list[tuple[float, float]]]
"""Wall and CPU seconds of each turn, by what was done."""


def make_repository(folder: Path, files: int) -> None:
    folder.mkdir(parents=True)
    run(folder, "init", "-q", "-b", "main")
    (folder / "large").write_bytes(os.urandom(PACK_BYTES))
    commit(folder)
    (folder / "large").unlink()
    for number in range(files):
        path = folder / f"part{number // 400}/unit{number // 20 % 20}/module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = f"value_{number} = {number}\n"
        path.write_text(line * (FILE_BYTES // len(line)))
    commit(folder)
    run(folder, "gc", "-q")
    run(folder, "status")


def commit(folder: Path) -> None:
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", "some")


def run(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def used_s() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    spent = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def timed(figures: Figures, name: str, act: Callable[[], T]) -> T:
    began_s, before_s = monotonic(), used_s()
    result = act()
    figures.setdefault(name, []).append((monotonic() - began_s, used_s() - before_s))
    say(f"{name}: {figures[name][-1][0]:.2f} s, of which CPU {figures[name][-1][1]:.2f} s")
    return result


def size_bytes(folder: str) -> int:
    """What a folder takes on the disk beside what it shares with others by hard links."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            about = os.lstat(os.path.join(parent, name))
            total += about.st_blocks * 512 if about.st_nlink == 1 else 0
    return total


def enter(ws: Workspace, script: str) -> None:
    """Run a script in a workspace; an overlay is mounted in namespaces of its own."""
    command = ["sh", "-ec", f"cd {shlex.quote(ws.place)}; {script}"]
    if ws.mode == "overlay":
        layers = f"lowerdir={':'.join(ws.lower)},upperdir={ws.upper},workdir={ws.work}"
        mount = f"mount -t overlay o -o {layers},userxattr {shlex.quote(ws.folder)}"
        command = ["unshare", "-Um", "--map-current-user", "--keep-caps", "sh", "-ec",
                   f"{mount}; {command[-1]}"]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


SCRIPT: Final = (
    "git status --porcelain; echo 1 >> part1/unit1/module420.py; echo n > new; git add -A;"
    "git -c user.name=a -c user.email=a@b commit -q -m one; git gc -q"
)


def turn(home: Path, number: int, width: int, wide: int, figures: Figures) -> dict[str, int]:
    """Everything once; the sizes of one workspace each after a commit."""
    folder, state, sizes = home / "repo", home / "state", dict[str, int]()
    shutil.rmtree(state, ignore_errors=True)

    def opened(name: str) -> WorkspaceStore:
        place = state / "runs" / f"{number}-{name}"
        place.mkdir(parents=True)
        return WorkspaceStore.open(str(folder), str(place), str(state))

    timed(figures, "first snapshot", lambda: opened("a"))
    store = timed(figures, "snapshot again", lambda: opened("b"))
    for count in (width, wide):
        name = f"{count} workspaces, overlay, mounted"
        timed(figures, name, lambda count=count: overlays(store, count))  # type: ignore[misc]
    for mode in ("overlay", "copy"):
        ws = store.prepare(f"commit-{mode}", {}, mode)
        before = size_bytes(ws.home)
        enter(ws, SCRIPT)
        sizes[mode] = size_bytes(ws.home) - before
        found = timed(figures, f"collect, {mode}", lambda ws=ws: store.collect(ws))  # type: ignore[misc]
        changes = found.changes
        store.discard(ws)
    timed(
        figures, "a workspace with what landed", lambda: store.prepare("late", changes, "overlay")
    )

    def copies() -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda one: store.prepare(f"copy{one}", {}, "copy"), range(COPIES)))

    timed(figures, f"{COPIES} workspaces, copy", copies)
    shutil.rmtree(os.path.join(store.place, "attempts"))
    others = home / "others"
    each = {
        "cp -a": lambda one: subprocess.run(["cp", "-a", folder, others / str(one)], check=True),
        "git clone --shared": lambda one: run(home, "clone", "-q", "--shared", str(folder),
                                              str(others / str(one))),
        "git worktree add": lambda one: run(folder, "worktree", "add", "-q", "--detach",
                                            str(others / str(one))),
    }  # fmt: skip
    for name, act in each.items():
        shutil.rmtree(others, ignore_errors=True)
        others.mkdir()
        timed(figures, f"{COPIES} x {name}", lambda act=act: [act(one) for one in range(COPIES)])  # type: ignore[misc]
    shutil.rmtree(others)
    run(folder, "worktree", "prune")
    return sizes


def overlays(store: WorkspaceStore, count: int) -> None:
    """Prepare workspaces and mount each, which is when it is ready."""
    made = [store.prepare(f"overlay{count}", {}, "overlay") for _ in range(count)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda ws: enter(ws, "test -e .git"), made))


def measure(files: int, turns: int, width: int, wide: int) -> str:
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        make_repository(home / "repo", files)
        for number in range(turns):
            say(f"{files} files, turn {number + 1} of {turns}")
            sizes = turn(home, number, width, wide, figures)
    middle = {name: [statistics.median(column) for column in zip(*all, strict=True)]
              for name, all in figures.items()}  # fmt: skip
    copy_s = middle[f"{COPIES} x cp -a"][0] / COPIES
    rows = [[name, f"{wall_s:.2f}", f"{cpu_s:.2f}", f"{wall_s / copy_s:.2f}"]
            for name, (wall_s, cpu_s) in middle.items()]  # fmt: skip
    lines = [f"{files:,} files, a pack of {PACK_BYTES // 1_000_000} MB, "
             f"the middle of {turns} turns:\n",
             table(["what", "wall s", "CPU s", "in `cp -a` of the folder"], rows)]  # fmt: skip
    parts = [f"{size / 1e6:.2f} MB ({mode})" for mode, size in sizes.items()]
    lines.append(f"A workspace grew by {' and '.join(parts)} with a commit and `git gc`.\n")
    return "\n".join(lines)
