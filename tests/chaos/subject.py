"""Who is killed: the same tasks, run by different programs that promise to go on after a kill."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

import headway
from tests.chaos import effect

ROOT: Final = Path(headway.__file__).resolve().parents[2]
WIDTH: Final = 4
MARK: Final = "HEADWAY_CHAOS_MARK"
"""In the environment of every process of a campaign, so that none can hide."""


class Home(Struct, frozen=True):
    folder: Path
    names: tuple[str, ...]
    milliseconds: int

    @property
    def log(self) -> Path:
        return self.folder / "effects.log"

    @property
    def mark(self) -> str:
        return str(self.folder)

    def environment(self, **more: str) -> dict[str, str]:
        paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        own = {
            "PYTHONPATH": paths,
            "HEADWAY_STATE_DIR": str(self.folder / "state"),
            MARK: self.mark,
        }
        return dict(os.environ) | own | more

    def task(self, name: str) -> list[str]:
        """The command of a task; `name` may be a place that somebody else fills in."""
        return [sys.executable, "-I", "-S", str(effect.__file__), str(self.log), name,
                str(self.milliseconds)]  # fmt: skip

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


class Subject(Protocol):
    """A program that runs the tasks and, started again, goes on."""

    @property
    def name(self) -> str:
        """As people know it."""

    def command(self, home: Home, is_first: bool) -> list[str]:
        """What starts it, or starts it again."""

    def durable(self, home: Home) -> frozenset[str]:
        """Tasks whose results are on disk now; nothing of the campaign runs."""

    def kept_outside(self, home: Home) -> frozenset[str]:
        """Tasks whose end is on disk, kept by a process that outlives the program."""

    def observe(self, home: Home) -> None:
        """Write effects down that the tasks do not write themselves; nothing runs."""

    def results(self, home: Home) -> dict[str, str]:
        """What it says in the end that the tasks gave."""
