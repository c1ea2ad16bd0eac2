"""A repository, a state folder and runs: what the tests of workspaces begin with.

Overlays are mounted as a run does it: in a user and mount namespace of their own.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from headway.workspaces.collection import Workspace
from headway.workspaces.store import WorkspaceStore

GIT: Final = ("git", "-c", "user.name=A User", "-c", "user.email=user@example.org",
              "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always")  # fmt: skip
CLEAN: Final = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}


class Scene(Struct):
    """Folders of one test."""

    home: Path
    folder: Path
    """The user's."""

    @property
    def run_folder(self) -> Path:
        return self.home / "state/runs/one"

    def open(self, base: str = "", run: str = "one", inner: str = "") -> WorkspaceStore:
        run_folder = self.home / "state/runs" / run
        run_folder.mkdir(parents=True, exist_ok=True)
        folder, state = str(self.folder / inner), str(self.home / "state")
        return WorkspaceStore.open(folder, str(run_folder), state, base)


def git(folder: Path | str, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, env=CLEAN, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def make_repository(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def has_overlay() -> bool:
    probe = "mkdir l u w m && mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w,userxattr m"
    command = ["unshare", "-Urm", "sh", "-c", f"cd $(mktemp -d) && {probe}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def do(ws: Workspace, script: str, cwd: str = ".") -> str:
    """Run a shell script in a workspace; what it prints."""
    inside = f"cd {shlex.quote(os.path.join(ws.place, cwd))} && {script}"
    command = ["sh", "-ec", inside]
    if ws.mode == "overlay":
        options = f"lowerdir={':'.join(ws.lower)},upperdir={ws.upper},workdir={ws.work},userxattr"
        mount = f"mount -t overlay headway -o {shlex.quote(options)} {shlex.quote(ws.folder)}"
        command = ["unshare", "-Um", "--map-current-user", "--keep-caps", "sh", "-ec",
                   f"{mount}; {inside}"]  # fmt: skip
    identity = {f"GIT_{role}_{part}": text for role in ("AUTHOR", "COMMITTER")
                for part, text in (("NAME", "agent"), ("EMAIL", "agent@example.org"))}  # fmt: skip
    done = subprocess.run(command, env={**CLEAN, **identity}, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")
