"""What observing reads costs: the same command by itself, observed, and in an overlay, by turns."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from bench.markdown import table
from bench.workspaces_sizes import commit, run
from headway.sim.server import launched
from headway.workspaces.observation import launch_argv, read_observation, write_spec
from tests.agents.agents import CLAUDE, Urls, is_installed

FILES: Final = 5_000
TESTS: Final = 100
TURNS: Final = 7
READ: Final = """
import os
names = sorted(os.path.join(top, name) for top, _, names in os.walk("src") for name in names)
for name in names[:500]:
    open(name).read()
"""
COMMANDS: Final[dict[str, Sequence[str]]] = {
    "`true`: what it takes to start": ["true"],
    "`git status`": ["git", "status", "--porcelain"],
    "`grep -r`": ["grep", "-rc", "value_77", "src"],
    "python reads 500 files": [sys.executable, "-c", READ],
    f"a suite of {TESTS} test modules": [sys.executable, "-B", "-m", "unittest", "-q"],
}


def reads_table(turns: int = TURNS) -> str:
    """The middle of the times and of the ratios of turns."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make(place / "repo")
        for what, argv in COMMANDS.items():
            rows.append([what, *ratios(place, argv, dict(os.environ), turns)])
        if is_installed():
            rows.append(["a turn of Claude Code", *a_turn(place, turns)])
    return table(["command", "alone, s", "observed, s", "in an overlay, s"], rows)


def make(folder: Path) -> None:
    (folder / "src").mkdir(parents=True)
    run(folder, "init", "-q")
    for number in range(FILES):
        path = folder / f"src/part{number // 100}/m{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"value_{number} = {number}\n" * 20)
    for number in range(TESTS):
        text = (f"import unittest\n\nclass Test(unittest.TestCase):\n    def test_one(self):\n"
                f"        names = {{}}\n        for part in range({number}, {number} + 5):\n"
                "            exec(open(f'src/part{part % 50}/m{part % 50 * 100}.py').read(), names)"
                "\n        self.assertTrue(names)\n")  # fmt: skip
        (folder / f"test_{number}.py").write_text(text)
    commit(folder)
    run(folder, "status")


def ratios(
    place: Path, argv: Sequence[str], env: dict[str, str], turns: int,
    prepare: Callable[[], None] = lambda: None,
) -> list[str]:  # fmt: skip
    ways = ("alone", "observe", "overlay")
    took: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(turns):
        for way in ways[number % 3 :] + ways[: number % 3]:
            prepare()
            began_s = monotonic()
            perform(place, way, argv, env)
            took[way].append(monotonic() - began_s)
    of_turn = [[one / alone for one, alone in zip(took[way], took["alone"], strict=True)]
               for way in ways[1:]]  # fmt: skip
    alone_s = statistics.median(took["alone"])
    return [f"{alone_s:.2f}", *(
        f"{statistics.median(took[way]):.2f} ({statistics.median(one):.2f}x)"
        for way, one in zip(ways[1:], of_turn, strict=True)
    )]  # fmt: skip


def perform(place: Path, way: str, argv: Sequence[str], env: dict[str, str]) -> None:
    """Do a command once; what is observed of it has to be whole."""
    repo, log = place / "repo", place / "log"
    words = list(argv)
    if way != "alone":
        for name in ("upper", "work"):
            shutil.rmtree(place / name, ignore_errors=True)
            (place / name).mkdir()
        spec = {"mode": way, "folder": str(repo), "log": str(log), "cwd": str(repo)}
        if way == "overlay":
            spec |= {"upper": str(place / "upper"), "work": str(place / "work")}
        # The folder itself is below, as nothing else writes to it here.
        write_spec(str(place / "spec"), {**spec, "lower": [str(repo)]})
        words = launch_argv(str(place / "spec"), words)
    subprocess.run(words, cwd=repo, env=env, check=True, capture_output=True)
    if way != "alone" and not (seen := read_observation(str(log))).is_whole:
        raise RuntimeError(f"{argv}: {seen.why}")


def a_turn(place: Path, turns: int) -> list[str]:
    """It reads, edits, commits and runs a check by the calls that a simulated model asks for."""
    prompt = ("Please run `grep -rn value_4242 src | head -n 3; cat test_1.py`, then "
              "`echo 1 >> src/part0/m0.py; git add -A; git -c user.name=a -c user.email=a@b "
              "commit -qm one`, then `git status --porcelain; ls src`.")  # fmt: skip
    home = place / "home"
    home.mkdir()
    with launched("--model", "agent", "--first-byte-s", "0.5", "--per-token-s", "0.0005") as url:
        launch = CLAUDE.launch(home, Urls.all_at(url), prompt)
        run(place / "repo", "tag", "first")

        def prepare() -> None:
            run(place / "repo", "reset", "-q", "--hard", "first")

        return ratios(place, launch.argv, {**launch.env}, turns, prepare)


if __name__ == "__main__":
    print(reads_table())
