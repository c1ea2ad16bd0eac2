"""A folder in which a stranger uses headway from the shell, with a state of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]


class Said(Struct, frozen=True):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Stranger:
    """Starts headway as users do."""

    def __init__(self, home: Path) -> None:
        self.here = home / "work"
        self.here.mkdir()
        self.environment = os.environ | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADWAY_STATE_DIR": str(home / "state"),
            "HEADWAY_RUNTIME_DIR": str(home / "run"),
            "XDG_CONFIG_HOME": str(home / "config"),
        }

    def __call__(self, *arguments: str | bytes, **more: str) -> Said:
        ended = subprocess.run(
            [sys.executable, "-m", "headway", *arguments], capture_output=True, check=False,
            cwd=self.here, env=self.environment | more, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Said(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def runs(self) -> list[Path]:
        """The folders of all runs."""
        return sorted((self.here.parent / "state").glob("runs/*"))

    def shell(self, line: str) -> Said:
        """A line for a shell, in which `$headway` is the command."""
        ended = subprocess.run(
            ["/bin/bash", "-c", line], capture_output=True, check=False, cwd=self.here,
            env=self.environment | {"headway": f"{sys.executable} -m headway"}, timeout=120,
        )  # fmt: skip
        return Said(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def write(self, name: str, text: str) -> None:
        path = self.here / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def results(self) -> dict[str, Any]:
        """Outputs by task, in the order in which they were told."""
        lines = self("results", "--all").out.splitlines()
        told = [json.loads(line) for line in lines]
        assert len({one["task"] for one in told}) == len(told), "a task is there twice"
        return {one["task"]: one["output"] for one in told}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "--json").out)
        return found
