"""A model that writes what it is told to, for tests of planning: no network, no waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct, field

from headway.agents.prompt import PromptSettings
from headway.planner.planning import Draft, Goal, PlanningHow, drafted, goal_of
from headway.testing import FakeAdmission
from headway.wire.read import FORMATS
from headway.wire.values import Answer

KEYS = {"OPENAI_BASE_URL": "http://provider.test/v1", "OPENAI_API_KEY": "sk-o"}

GOOD = """\
headway: 1
name: good
tasks:
  study:
    each: [a, b]
    prompt: "Study {{ item }}"
  merge:
    reduce: study
    context: 32k
    prompt: Merge.
    output: out/merged.md
"""


class Author(Struct):
    """A model whose replies are given; after the last one it repeats that."""

    replies: Sequence[str]
    sent: list[dict[str, Any]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    is_cut: bool = False
    admission: FakeAdmission = field(default_factory=FakeAdmission)

    def reply(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(json.loads(request.content))
        text = self.replies[min(len(self.sent), len(self.replies)) - 1]
        answer = Answer("id", "m", text, 100, 200, is_cut=self.is_cut)
        parts = [
            FORMATS["openai-chat"].opening(answer), FORMATS["openai-chat"].piece(answer, 0, text),
            FORMATS["openai-chat"].closing(answer, True, 3),
        ]  # fmt: skip
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, content=b"".join(parts))

    def settings(self) -> PromptSettings:
        return PromptSettings(
            "plan", KEYS, self.admission, prices=lambda _, __: None,
            transport=httpx2.MockTransport(self.reply),
        )  # fmt: skip

    def plan(self, folder: Path, goal: str = "Study a and b", **how: Any) -> Draft:
        """What comes of asking this model."""
        return asyncio.run(drafted(wanted(folder, goal, **how), self.settings(), self.told.append))

    def turns(self, call: int = -1) -> list[str]:
        """What was said in a call, the system's words left out."""
        return [turn["content"] for turn in self.sent[call]["messages"][1:]]


def wanted(folder: Path, goal: str = "Study a and b", **how: Any) -> Goal:
    """A goal in a folder, by a user who has configured nothing."""
    options: PlanningHow = {"model": "openai/m", "folder": folder, **how}  # type: ignore[typeddict-item]
    return goal_of(goal, options, KEYS | {"XDG_CONFIG_HOME": str(folder / "no config")})


def fenced(text: str, language: str = "yaml") -> str:
    end = "" if text.endswith("\n") else "\n"
    return f"Here is the plan:\n\n```{language}\n{text}{end}```\nGood luck!\n"
