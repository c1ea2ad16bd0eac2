"""A user's machine as a test has it: a folder with a plan, an environment, a provider."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from msgspec import Struct

from headway.sim.server import truth_of

WITHIN_S: Final = 400.0


class UserScene(Struct, frozen=True):
    """Where `headway` is started as its user would, and killed as nobody would."""

    folder: Path
    env: dict[str, str]
    url: str

    @property
    def calls(self) -> int:
        return int(truth_of(self.url, "?arrivals=0")["arrivals_total"])

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "headway", *words], cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def killed_after(self, calls: int, *words: str) -> None:
        """Start it, and kill it with -9 as soon as the provider has seen so many calls."""
        process = self.start(*words)
        until_s = monotonic() + WITHIN_S
        while process.poll() is None and self.calls < calls and monotonic() < until_s:
            sleep(0.02)
        process.kill()
        _, err = process.communicate()
        assert process.returncode == -9, err
