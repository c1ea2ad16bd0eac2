"""A kill at any step loses nothing that was kept, and the next start cleans up after it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.workspaces.scene import CLEAN, Scene, git, make_repository, write

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = {"a.txt": "a\n", "b.txt": "b\n", "old.txt": "old\n", "c/d.txt": "d\n"}
WHOLE: Final = {"a.txt": "two\n", "b.txt": "two\n", "new/one": "1\n", "c/d.txt": "mine\n"}


def points() -> list[str]:
    texts = [path.read_text() for path in (ROOT / "src/headway/workspaces").glob("*.py")]
    return sorted(re.findall(r'crash_point\("(workspace-[a-z]+)"\)', "\n".join(texts)))


def start(home: Path, crash_at: str = "") -> tuple[int, list[list[str]]]:
    environment = CLEAN | ({"HEADWAY_CRASH_AT": crash_at} if crash_at else {})
    done = subprocess.run(
        [sys.executable, "-m", "tests.workspaces.steps", str(home)], cwd=ROOT, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, [line.split() for line in done.stdout.splitlines()]


def make_home(home: Path) -> Scene:
    make_repository(home / "repo", FILES)
    write(home / "repo", {"c/d.txt": "mine\n"})
    return Scene(home, home / "repo")


def look(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*")
            if ".git" not in path.parts and path.is_file()}  # fmt: skip


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", points())
def test_after_a_kill_the_next_start_ends_with_the_same_and_leaves_nothing(
    point: str, count: int, tmp_path: Path
) -> None:
    scene = make_home(tmp_path)
    code, said = start(tmp_path, f"{point}:{count}")
    assert code == -signal.SIGKILL or count > 1
    store_place = next(iter((scene.run_folder / "workspaces").iterdir()))
    for name, *rest in said:
        if name == "kept":
            assert git(store_place / "git", "rev-parse", rest[0]) == rest[1]
            git(store_place / "git", "diff", "--quiet", rest[1], rest[1])
    code, again = start(tmp_path)
    assert code == 0
    assert again[-1] == ["applied"]
    assert look(scene.folder) == WHOLE
    if tree := [rest for name, *rest in said if name == "landed"]:
        git(store_place / "git", "merge-base", "--is-ancestor", tree[-1][0], "refs/headway/landed")
    git(store_place / "git", "fsck", "--strict", "--no-dangling")
    for name in ("attempts", "trash"):
        assert not os.listdir(store_place / name)
    assert git(scene.folder, "log", "--format=%s") == "first"


def test_runs_of_one_folder_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    scene = make_home(tmp_path)
    program = ("import sys; from pathlib import Path; from tests.workspaces.scene import Scene;"
               "home = Path(sys.argv[1]); print(Scene(home, home / 'repo').open(run=sys.argv[2])"
               ".base_tree)")  # fmt: skip
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), f"r{number}"],
                                cwd=ROOT, env=CLEAN, stdout=subprocess.PIPE)
               for number in range(4)]  # fmt: skip
    trees = {process.communicate()[0].decode() for process in running}
    assert len(trees) == 1
    assert trees == {f"{scene.open().base_tree}\n"}
