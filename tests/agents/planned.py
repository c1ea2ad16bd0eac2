"""Plans whose tasks real agents perform: a machine of a user's own, a kill, and what came of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from headway.sim.server import launched
from tests.agents.agents import (
    CLAUDE,
    CODEX,
    GEMINI,
    HERE,
    INSTALLED,
    NOWHERE,
    OPENCODE,
    Urls,
)
from tests.agents.gate import own_place
from tests.integration.user_scene import WITHIN_S, UserScene

PROVIDER: Final = ("--model", "agent", "--first-byte-s", "0.2", "--per-token-s", "0.0005")

CLIENTS: Final = {"claude": CLAUDE, "codex": CODEX, "opencode": OPENCODE, "gemini": GEMINI}
"""By the names that plans have for them."""

STEPS: Final = 3
CALLS: Final = STEPS + 1
"""Each task runs three commands, one call each, and tells what they gave."""

MODELS: Final = {"claude": "claude-haiku-4-5", "codex": "gpt-5-mini"}
"""Names that have a price; the simulated provider answers to any."""


def plan_of(agent: str, members: int) -> str:
    """Each task writes a file, waits, and adds a line to it."""
    model = f"    model: {MODELS[agent]}\n" if agent in MODELS else ""
    return (
        f"headway: 1\npermissions: all\ntasks:\n  edit:\n    agent: {agent}\n{model}"
        f"    each: {list(range(1, members + 1))}\n    prompt: >-\n"
        "      Please run `echo first > {{ item }}.txt`, then `sleep 0.5`, then\n"
        "      `echo last >> {{ item }}.txt; cat {{ item }}.txt`.\n"
    )


class Machine(UserScene, frozen=True):
    """A folder with a plan, agents as their user has set them up, and a provider."""

    def finished(self) -> list[str]:
        told = json.loads(self.headway("status", "--json")[0])
        return [] if not told["tasks"]["done"] else self._names()

    def _names(self) -> list[str]:
        return [row["task"] for row in self.results() if row["state"] == "done"]

    def headway(self, *words: str) -> tuple[str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=WITHIN_S)
        # 1 is what `results` says of a run that is not complete.
        assert process.returncode == 0 or (words[0] == "results"), err + out
        return out, err

    def killed_in_the_plan(self, calls: int) -> None:
        """Perform the plan, and kill headway when the provider has seen so many calls."""
        self.killed_after(calls, "run", "plan.yaml", "--yes", "-j", "4")

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.headway("results", "--all")[0].splitlines()]


@contextmanager
def machine(agent: str, members: int) -> Iterator[Machine]:
    """Everything that such a plan needs; gone with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="hw-plans-") as folder,
        own_place() as place,
        launched(*PROVIDER) as url,
    ):
        home, project = Path(folder, "home"), Path(folder, "home", "project")
        project.mkdir(parents=True)
        path = os.pathsep.join((str(INSTALLED / "node_modules" / ".bin"), os.environ["PATH"]))
        env = {
            "PATH": path, "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8",
            "HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": HERE, **place,
        }  # fmt: skip
        env |= CLIENTS[agent].prepared(home, Urls.all_at(url))
        (project / "plan.yaml").write_text(plan_of(agent, members))
        yield Machine(project, env, url)
