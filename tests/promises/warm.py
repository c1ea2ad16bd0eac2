"""`headway` without the time that its imports take: forks of one process that has imported it.

For campaigns of hundreds of commands. Each command has its own process, folder, environment, exit
code and output, as `python -m headway` has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.promises.user import User

HANG_S: Final = 120
"""A command that takes longer hangs: each takes a fraction of a second."""

PROGRAM: Final = """
import importlib, json, os, pkgutil, runpy, select, signal, sys
import headway
for found in pkgutil.walk_packages(headway.__path__, "headway."):
    if ".mcp" not in found.name and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print("ready", flush=True)
for line in sys.stdin:
    words, folder, env, out, err, hang_s = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        for place, name in ((0, os.devnull), (1, out), (2, err)):
            flags = os.O_RDONLY if place == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags), place)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
        sys.argv = ["headway", *words]
        code = 70
        try:
            runpy.run_module("headway", run_name="__main__", alter_sys=False)
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    handle = os.pidfd_open(pid)
    if not select.select([handle], [], [], hang_s)[0]:
        os.killpg(pid, signal.SIGKILL)
    os.close(handle)
    status = os.waitpid(pid, 0)[1]
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Said(Struct, frozen=True):
    code: int
    out: str
    err: str


class Warm(Struct):
    process: subprocess.Popen[str]
    folder: Path

    def headway(self, user: User, *words: str) -> Said:
        """Run a command to its end, as this user; -9 if it hangs."""
        out, err = self.folder / "out", self.folder / "err"
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        given = (words, str(user.folder), user.env, str(out), str(err), HANG_S)
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return Said(code, out.read_text(), err.read_text())


@contextmanager
def warm() -> Iterator[Warm]:
    """A process to fork from, for as long as it is needed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with tempfile.TemporaryDirectory() as folder:
            yield Warm(process, Path(folder))
    finally:
        process.kill()
        process.communicate()
