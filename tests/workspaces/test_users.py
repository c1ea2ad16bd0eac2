"""Workspaces are the same for an ordinary user, with another group of the folder, and at scale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from headway.workspaces.supervisor import gains_rights
from tests.workspaces.scene import CLEAN, Scene, do, git, has_overlay, make_repository, write

ROOT: Final = Path(__file__).resolve().parents[2]
NOBODY: Final = 65534

PROGRAM: Final = """
import os, sys
from pathlib import Path
from tests.workspaces.scene import Scene, do
home, user = Path(sys.argv[1]), int(sys.argv[2])
os.chdir(home)
if user:
    # Only now: the interpreter may be where only root can read.
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
store = Scene(home, home / "repo").open()
first = store.prepare("one", {}, "overlay")
do(first, "rm -r x a.txt; echo 1 > n; echo more >> b.txt; mkdir x; echo y > x/y")
landed = store.collect(first).changes
second = store.prepare("two", landed, "overlay")
print(do(second, "ls -R; cat b.txt; git status --porcelain; rm n; mkdir a.txt; mv x a.txt/x"))
print(sorted(store.collect(second).changes), store.left_out)
store.discard(first)
store.discard(second)
print(os.listdir(os.path.join(store.place, "attempts")))
"""


def run_as(home: Path, user: int) -> str:
    """What the program prints."""
    for folder, _, names in os.walk(home):
        for name in ("", *names):
            os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(home), str(user)], cwd=ROOT, capture_output=True,
        text=True, env=CLEAN | {"HOME": str(home)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_that_gain_rights_are_known_to_ordinary_users(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    status = os.stat(program)
    kinds = [gains_rights(status, status.st_uid + 1)]
    program.chmod(0o4755)
    status = os.stat(program)
    kinds += [gains_rights(status, status.st_uid + 1), gains_rights(status, 0)]
    assert kinds == [False, True, False]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not has_overlay(), reason="no overlay without privileges here")
def test_an_ordinary_user_gets_the_same_overlay_as_root(tmp_path: Path) -> None:
    # Folders of pytest are for their owner alone: another user needs one that can be entered.
    home = Path(f"/tmp/headway-user-{os.getpid()}")
    said = []
    for user in (0, NOBODY):
        files = {"a.txt": "a\n", "b.txt": "b\n", "x/z/1": "1\n", "x/2": "2\n"}
        make_repository(home / "repo", files)
        try:
            said.append(run_as(home, user))
        finally:
            shutil.rmtree(home)
    assert said[0] == said[1]
    assert said[0].endswith("['a.txt/x/y', 'n', 'x/y'] {}\n[]\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_files_of_other_groups_get_the_users_own(tmp_path: Path) -> None:
    scene = Scene(tmp_path, make_repository(tmp_path / "repo", {"a.txt": "a\n", "d/b": "b\n"}))
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 0, 1234)
    (tmp_path / "state").chmod(0o2700)
    for path in (scene.folder, *scene.folder.rglob("*")):
        os.chown(path, 0, 1234)
    store = scene.open()
    groups = {path.lstat().st_gid for path in Path(store.snapshot).rglob("*")}
    assert groups == {os.getegid()}


@pytest.mark.soak
def test_fifty_thousand_files_and_a_gigabyte(tmp_path: Path) -> None:
    files = {f"d{number % 500}/f{number}.py": f"{number}\n" for number in range(50_000)}
    scene = Scene(tmp_path, make_repository(tmp_path / "repo", files))
    with (scene.folder / "large").open("wb") as file:
        for _ in range(1024):
            file.write(os.urandom(1024) * 1024)
    git(scene.folder, "update-index", "--refresh")
    write(scene.folder, {".git/info/exclude": "large\n"})
    store = scene.open()
    mode = "overlay" if has_overlay() else "copy"
    ws = store.prepare("t", {}, mode)
    assert do(ws, "git status --porcelain; stat -c %s large; echo 1 > d1/f1.py; rm d2/f2.py") == (
        str(1 << 30)
    )
    assert store.collect(ws).changes.keys() == {"d1/f1.py", "d2/f2.py"}
    assert scene.open(run="two").base_tree == store.base_tree
