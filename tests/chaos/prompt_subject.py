"""headway's prompts as a subject of kills: what a provider was asked for is what was paid for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from time import monotonic, sleep
from typing import Any, Final

from headway.sim.server import account_of, truth_of
from tests.chaos.effect import result_of, say
from tests.chaos.headway_subject import HeadwayEach, bodies, runs
from tests.chaos.subject import WIDTH, Home

SETTLE_S_MAX: Final = 10.0
"""How long a provider may take to notice that nobody listens any more."""

SCRIPT: Final = """
rules:
  - regex: 'task (\\S+)'
    answer: 'result {group.1}'
"""


def prompts_of(names: Iterable[str]) -> dict[str, object]:
    """The model's name says which task it is; an examined reply is kept before it is examined."""
    return {"each": list(names), "prompt": "task {{ item }}", "max_tokens": 50,
            "model": "anthropic/claude-{{ item }}", "verify": "grep -q result"}  # fmt: skip


class HeadwayPrompts(HeadwayEach, frozen=True):
    """A prompt for each name, to a provider that says in the end who asked for what."""

    name: str = "**headway** run, prompts"
    url: str = ""

    def command(self, home: Home, is_first: bool) -> list[str]:
        told = ["env", f"ANTHROPIC_BASE_URL={self.url}", f"ANTHROPIC_API_KEY={home.mark}",
                sys.executable, "-m", "headway"]  # fmt: skip
        if runs(home):
            return [*told, "resume", "last"]
        said = {"headway": 1, "name": "chaos", "strategy": f"fixed({WIDTH})",
                "budget": "1M", "tasks": self.tasks(home)}  # fmt: skip
        plan = home.folder / "plan.yaml"
        plan.write_text(json.dumps(said))
        return [*told, "run", str(plan)]

    def tasks(self, home: Home) -> dict[str, object]:
        return {"work": prompts_of(home.names)}

    def kept_outside(self, home: Home) -> frozenset[str]:
        """Replies that are durable although their task is not finished."""
        texts = [body.decode() for body in bodies(home)]
        names = {name for name in home.names for text in texts if f'{result_of(name)}"' in text}
        return frozenset(names)

    def observe(self, home: Home) -> None:
        """Write down what the provider was asked since this was last done."""
        seen = sum(line.startswith("start") for line in home.lines())
        for visit in self._visits(home)[seen:]:
            name = visit["model"].partition("-")[2]
            say(str(home.log), f"start {name}\n")
            if visit["how"] == "whole":
                say(str(home.log), f"end {name}\n")

    def _visits(self, home: Home) -> list[dict[str, Any]]:
        key, until_s = account_of(home.mark), monotonic() + SETTLE_S_MAX
        while True:
            told = truth_of(self.url, "?arrivals=all")["arrivals"]
            visits: list[dict[str, Any]] = [one for one in told if one["key"] == key]
            if all(one["ended_s"] is not None for one in visits) or monotonic() > until_s:
                return visits
            sleep(0.01)


class HeadwayReduction(HeadwayPrompts, frozen=True):
    """The last of the names brings the results of the others together."""

    name: str = "**headway** run, reduction"

    def tasks(self, home: Home) -> dict[str, object]:
        *names, last = home.names
        work = prompts_of(names)
        whole = {"reduce": "work", "prompt": f"task {last}", "max_tokens": 50,
                 "model": f"anthropic/claude-{last}", "retries": 3}  # fmt: skip
        return {"work": work, "whole": whole}
