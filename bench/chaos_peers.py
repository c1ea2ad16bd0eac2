"""Other programs that promise to go on after a kill."""

from __future__ import annotations

import json
import subprocess

from msgspec import Struct

from tests.chaos.effect import result_of
from tests.chaos.subject import WIDTH, Home


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
        del home
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
        del is_first
        return [self.python, "-m", "bench.chaos_langgraph", "run", str(home.folder),
                str(WIDTH), json.dumps({name: home.task(name) for name in home.names})]  # fmt: skip

    def durable(self, home: Home) -> frozenset[str]:
        return frozenset(self.results(home))

    def kept_outside(self, home: Home) -> frozenset[str]:
        del home
        return frozenset()

    def observe(self, home: Home) -> None:
        """Tasks write down themselves what they do."""

    def results(self, home: Home) -> dict[str, str]:
        command = [self.python, "-m", "bench.chaos_langgraph", "read", str(home.folder)]
        said = subprocess.run(command, env=home.environment(), cwd=home.folder, check=True,
                              capture_output=True, text=True)  # fmt: skip
        found: dict[str, str] = json.loads(said.stdout)
        return found
