"""Who is killed: the same tasks, run by different programs that promise to go on after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

import headway
from tests.chaos import effect
from tests.chaos.effect import result_of

ROOT: Final = Path(headway.__file__).resolve().parents[2]
WIDTH: Final = 4
MARK: Final = "HEADWAY_CHAOS_MARK"
"""In the environment of every process of a campaign, so that none can hide."""


class Home(Struct, frozen=True):
    """Where one campaign lives."""

    folder: Path
    names: tuple[str, ...]
    """Of the tasks."""
    milliseconds: int

    @property
    def log(self) -> Path:
        return self.folder / "effects.log"

    @property
    def mark(self) -> str:
        return str(self.folder)

    def environment(self, **more: str) -> dict[str, str]:
        """Of every process of the campaign."""
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


class GnuParallel(Struct, frozen=True):
    """With a log of what ended, and `--resume`."""

    name: str = "GNU parallel --joblog --resume"

    def command(self, home: Home, is_first: bool) -> list[str]:
        del is_first  # The same command goes on.
        return ["parallel", "--joblog", str(home.folder / "joblog"), "--resume", f"-j{WIDTH}",
                *home.task("{}"), ":::", *home.names]  # fmt: skip

    def durable(self, home: Home) -> frozenset[str]:
        log = home.folder / "joblog"
        rows = [line.split("\t") for line in log.read_text().splitlines()] if log.exists() else []
        place = home.task("{}").index("{}")
        return frozenset(
            row[8].split()[place] for row in rows[1:] if len(row) > 8 and row[6] == "0"
        )

    def kept_outside(self, home: Home) -> frozenset[str]:
        return frozenset()

    def observe(self, home: Home) -> None:
        """Tasks write down themselves what they do."""

    def results(self, home: Home) -> dict[str, str]:
        # What it printed; with `--results` it takes a result that was begun for one that is there.
        said = {line.strip() for line in (home.folder / "said").read_text().splitlines()}
        return {name: result_of(name) for name in home.names if result_of(name) in said}


class LangGraph(Struct, frozen=True):
    """With its SQLite checkpointer and so many nodes at once, in its own environment."""

    python: str
    name: str = f"LangGraph, SQLite checkpointer, max_concurrency={WIDTH}"

    def command(self, home: Home, is_first: bool) -> list[str]:
        return [self.python, "-m", "tests.chaos.langgraph_subject", "run", str(home.folder),
                str(WIDTH), json.dumps({name: home.task(name) for name in home.names})]  # fmt: skip

    def durable(self, home: Home) -> frozenset[str]:
        return frozenset(self.results(home))

    def kept_outside(self, home: Home) -> frozenset[str]:
        return frozenset()

    def observe(self, home: Home) -> None:
        """Tasks write down themselves what they do."""

    def results(self, home: Home) -> dict[str, str]:
        command = [self.python, "-m", "tests.chaos.langgraph_subject", "read", str(home.folder)]
        said = subprocess.run(command, env=home.environment(), cwd=home.folder, check=True,
                              capture_output=True, text=True)  # fmt: skip
        found: dict[str, str] = json.loads(said.stdout)
        return found
