"""A folder with a workspace, and commands that are run in it, as another user where asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.workspaces.observation import (
    HOME,
    Observation,
    launch_argv,
    read_observation,
    write_spec,
)

NOBODY = 65534

AS_USER = """
import ctypes, fcntl, os, select, sys, warnings
home, spec, *argv = sys.argv[1:]
for folder_of in ("", "base", "workspaces"):
    name = "headway." + folder_of if folder_of else "headway"
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [home + "/" + folder_of]
import headway.workspaces.supervisor
from headway.workspaces.enter import main
os.setgroups([])
os.setresgid(*[65534] * 3)
os.setresuid(*[65534] * 3)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
main(spec, argv)
"""
"""As `launch_argv` does it, but as another user, who may not be able to execute our interpreter."""

WITHOUT_NAMESPACES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
user, group = os.geteuid(), os.getegid()
if libc.unshare(0x10000000) < 0:
    sys.exit(77)
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"{user} {user} 1")
open("/proc/self/gid_map", "w").write(f"{group} {group} 1")
open("/proc/sys/user/max_user_namespaces", "w").write("0")
for number in range(64):
    libc.prctl(24, number, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""In a namespace of its own, user namespaces are forbidden from here on, and root has no rights."""


class Entered:
    """`repo` is the user's folder, `snapshot` what a workspace begins with (or the copy)."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.repo, self.snapshot, self.upper, self.work = (
            place / name for name in ("repo", "snapshot", "upper", "work")
        )
        for folder in (self.repo, self.snapshot, self.upper, self.work):
            folder.mkdir()
        self.put("kept", "kept\n")

    def put(self, name: str, text: str, mode: int = 0o644) -> None:
        """The same file in the folder and in what a workspace begins with."""
        for root in (self.repo, self.snapshot):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(mode)

    def link(self, name: str, target: str) -> None:
        for root in (self.repo, self.snapshot):
            (root / name).symlink_to(target)

    @property
    def log(self) -> Path:
        return self.place / "log"

    def launch(
        self, argv: Sequence[str], mode: str = "overlay", *, is_user: bool = False, **more: Any
    ) -> list[str]:
        spec: dict[str, Any] = {"mode": mode, "folder": str(self.repo), "log": str(self.log)}
        if mode == "overlay":
            spec |= {"lower": [str(self.snapshot)], "upper": str(self.upper)}
            spec["work"] = str(self.work)
        elif mode == "copy":
            spec["place"] = str(self.snapshot)
        path = self.place / "spec"
        write_spec(str(path), {**spec, **more})
        if not is_user:
            return launch_argv(str(path), argv)
        self._give_to(NOBODY)
        return [sys.executable, "-I", "-S", "-c", AS_USER, HOME, str(path), *argv]

    def run(
        self, *argv: str, mode: str = "overlay", is_user: bool = False, fds: Sequence[int] = (),
        **more: Any,
    ) -> tuple[subprocess.CompletedProcess[str], Observation]:  # fmt: skip
        self.log.unlink(missing_ok=True)
        ran = subprocess.run(
            self.launch(argv, mode, is_user=is_user, **more),
            capture_output=True, text=True, cwd=self.repo, pass_fds=fds, timeout=100,
            check=False,
        )  # fmt: skip
        return ran, read_observation(str(self.log))

    def files(self, root: Path | None = None) -> dict[str, str]:
        root = root or self.repo
        return {
            str(path.relative_to(root)): path.read_text()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    def _give_to(self, user: int) -> None:
        for path in (self.place, *self.place.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)
        for parent in self.place.parents:
            if parent.stat().st_mode & 0o001 == 0:
                parent.chmod(parent.stat().st_mode | 0o011)


def processes_with(word: str) -> list[int]:
    """The processes that have this word in their command line or their mounts."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            mounts = Path(f"/proc/{name}/mounts").read_bytes()
        except OSError:
            continue
        if word.encode() in command + mounts:
            found.append(int(name))
    return found
