"""A repository, scripted agents, and the `headway` command: what tests of workspaces need.

Nothing here imports headway: what a test says is what a user sees.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from tests.promises.user import User, user
from tests.workspaces.gate import Gate, opened

AGENT: Final = Path(__file__).with_name("agent.py")
PLAN: Final = "plan.yaml"

Tree = dict[str, tuple[str, str]]
"""What a folder has, by path: its kind (`file`, `exec`, `link`) and its content."""

GIT_CONFIG: Final = """\
[user]
name = Someone
email = someone@example.org
[init]
defaultBranch = main
[advice]
detachedHead = false
"""


def tree_of(folder: Path, ignored: Iterable[str] = (PLAN,)) -> Tree:
    """Every file and link of a folder, without what git keeps and what is ignored."""
    left_out = {".git", "__pycache__", *ignored}
    found: Tree = {}
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in left_out]
        links = [name for name in folders if Path(where, name).is_symlink()]
        for name in (*files, *links):
            path = Path(where, name)
            if name in left_out:
                continue
            key = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[key] = ("link", os.readlink(path))
            else:
                is_exec = path.stat().st_mode & stat.S_IXUSR
                found[key] = ("exec" if is_exec else "file", path.read_text(errors="replace"))
    return found


def difference(found: Tree, expected: Tree) -> str:
    """Which paths differ, and how; empty if none does."""
    return "\n".join(
        f"{path}: {found.get(path)!r}, expected {expected.get(path)!r}"
        for path in sorted(found.keys() | expected.keys())
        if found.get(path) != expected.get(path)
    )


def perform(
    command: str | list[str], folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Perform a command, or the text of one by a shell, and wait for its end."""
    return subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, env=env, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


def git(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    done = perform(["git", *words], folder, env)
    assert done.returncode == 0, f"git {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def lay_out(folder: Path, files: Mapping[str, str]) -> None:
    """Write files; `-> target` is a link, a first line `#!` makes a program."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        else:
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)


class Scene(Struct):
    """A user with a repository, whose agents perform scripts that lie outside of it."""

    user: User
    gate: Gate
    ran: list[subprocess.CompletedProcess[str]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.user.folder

    @property
    def scripts(self) -> Path:
        return self.user.root / "scripts"

    def repository(self, files: Mapping[str, str], plan: str) -> None:
        """The files and the plan, in one commit."""
        lay_out(self.folder, {**files, PLAN: plan})
        self.git("init", "-q")
        self.commit("Begin")

    def git(self, *words: str) -> str:
        return git(self.folder, *words, env=self.user.env)

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def script(self, name: str, text: str) -> str:
        """What performs it as a command: for `run:`, and for other ways than headway."""
        (self.scripts / name).write_text(text)
        return f"{sys.executable} -I -S {AGENT} {self.scripts} {name}"

    def headway(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        done = self.user.headway(*words, **more)
        assert "Traceback" not in done.stderr + done.stdout, done.stderr + done.stdout
        self.ran.append(done)
        return done

    def run(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.headway("run", PLAN, "--yes", *words, **more)

    def apply(self) -> subprocess.CompletedProcess[str]:
        return self.headway("results", "--apply")

    def tree(self) -> Tree:
        return tree_of(self.folder)

    def results(self) -> dict[str, Any]:
        """The row of each task."""
        rows = self.user.headway("results", "--all").stdout.splitlines()
        return {row["task"]: row for row in map(json.loads, rows)}


@contextmanager
def staged(root: Path, more: Mapping[str, str] | None = None) -> Iterator[Scene]:
    """A scene below a folder; its processes end with the block."""
    with user(root, more) as someone, opened() as gate:
        scene = Scene(someone, gate)
        scene.scripts.mkdir()
        (scene.scripts / "port").write_text(str(gate.port))
        (root / "home" / ".gitconfig").write_text(GIT_CONFIG)
        config = Path(someone.env["HEADWAY_CONFIG_DIR"])
        config.mkdir()
        command = [sys.executable, "-I", "-S", str(AGENT), str(scene.scripts)]
        (config / "config.toml").write_text(
            f"[agents.scripted]\ncommand = {json.dumps(command)}\nedit = []\nall = []\n"
        )
        yield scene
