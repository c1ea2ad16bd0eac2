"""Plays a reduction without a provider: the real works, and a model that remembers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct, field

from headway.agents.prompt import PromptAgent, PromptCall, PromptSettings
from headway.base.digest import digest
from headway.base.values import Spend
from headway.plans.load import plan_from
from headway.run.plan_run import PlanSource, plan_run
from headway.run.reduce import InnerWork
from headway.run.run_context import Crew
from headway.run.tasks import TaskWork
from headway.work import Attempt, Needed, Result

PLAN = """
headway: 1
model: openai/echo
tasks:
  probe:
    each: [{items}]
    prompt: "Look at {{{{ item }}}}"
  verdict:
    reduce: probe
    prompt: "{prompt}"
{more}
"""

ANSWER_ID = re.compile(r"answer-([0-9a-f]{12})")


class Model(PromptAgent):
    """Answers with a name for the prompt, and so many words; remembers what it was asked."""

    def __init__(self, words: int = 5, fails: Callable[[str], BaseException | None] | None = None):
        super().__init__(PromptSettings("run", {}))
        self.asked: list[PromptCall] = []
        self.words = words
        self.fails = fails or (lambda text: None)

    async def perform(self, call: PromptCall, attempt: Attempt) -> Result:
        await attempt.reserve(Spend(1, 1))
        attempt.waits()
        others = asyncio.Event()
        asyncio.get_running_loop().call_soon(others.set)
        await others.wait()  # Whoever else asks has asked by now.
        attempt.goes()
        problem = self.fails(call.prompt)
        if problem is not None:
            raise problem
        self.asked.append(call)
        name = digest(call.prompt.encode()).hex()[:12]
        text = " ".join([f"answer-{name}", *(["word"] * self.words)])
        return Result(text.encode(), text, 10.0, 2.0, 5, 1)


class Kept(Struct):
    """What attempts leave behind."""

    replies: list[bytes] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)


class Played(Struct):
    """A reduction that was played to its end."""

    asked: list[PromptCall]
    result: Result
    bodies: dict[str, bytes]
    notes: list[str]

    @property
    def texts(self) -> list[str]:
        return [call.prompt for call in self.asked]

    def depth(self) -> int:
        """Calls on the longest way from a result to the answer."""
        depths: dict[str, int] = {}
        for text in self.texts:
            below = [depths.get(name, 0) for name in ANSWER_ID.findall(text)]
            depths[digest(text.encode()).hex()[:12]] = 1 + max(below, default=0)
        return max(depths.values())


def crew_of(folder: Path, model: PromptAgent) -> Crew:
    crew = Crew(str(folder), str(folder), "run", {})
    crew._prompts = model
    return crew


def works_of(
    folder: Path, model: PromptAgent, count: int, more: str, prompt: str = "Sum up."
) -> tuple[Crew, tuple[TaskWork | InnerWork, ...], dict[int, tuple[int, ...]]]:
    """The works of a plan with so many results to reduce, and the sizes of its levels."""
    items = ", ".join(f"i{number}" for number in range(count))
    text = PLAN.format(items=items, prompt=prompt, more=more)
    crew = crew_of(folder, model)
    run = plan_run(plan_from(text, folder).expanded, PlanSource("", text), crew)
    sizes = {n: shape.sizes(count) for n, shape in run.plans.shapes.items()}
    return crew, run.works, sizes


def attempt_of(
    needed: Callable[[str], list[Needed]],
    missing: Callable[[str], list[str]] = lambda name: [],
    kept: Kept | None = None,
    name: str = "task",
) -> Attempt:
    store = kept or Kept()

    async def reserve(_: Spend) -> None: ...

    async def keep(reply: bytes) -> None:
        store.replies.append(reply)

    return Attempt(
        0, 0, 1, b"k" * 16, name, needed, lambda _="": store.heard.append("waits"),
        lambda _="": store.heard.append("goes"), reserve, keep, kept=tuple(store.replies),
        missing=missing,
    )  # fmt: skip


def play(
    folder: Path,
    leaves: Sequence[str | None],
    more: str,
    model: Model | None = None,
    shuffle: int | None = None,
) -> Played:
    """Perform all inner levels and the last call; None is a result that is missing."""
    model = model or Model()
    crew, works, sizes = works_of(folder, model, len(leaves), more)
    bodies: dict[str, bytes] = {}

    def below(name: str, first: int, after: int) -> tuple[list[Needed], list[str]]:
        if name == "probe":
            every = [(n, f"probe[i{n}]", leaves[n]) for n in range(first, min(after, len(leaves)))]
            there = [Needed(name, n, label, t.encode()) for n, label, t in every if t is not None]
            return there, [label for _, label, text in every if text is None]
        labels = [f"{name}[{n + 1}]" for n in range(first, after)]
        there = [Needed(name, n, one, bodies[one]) for n, one in enumerate(labels) if one in bodies]
        return there, []

    def performed(work: TaskWork | InnerWork, first: int, after: int) -> Awaitable[Result]:
        attempt = attempt_of(
            lambda name: below(name, first, after)[0], lambda name: below(name, first, after)[1]
        )
        return work.perform(attempt)

    async def perform() -> Result:
        for level, size in enumerate(sizes.get(1, ()), 1):
            work = works[1 + level]
            fan = work.shape.fit.fan if isinstance(work, InnerWork) else 1
            order = list(range(size))
            if shuffle is not None:
                Random(shuffle).shuffle(order)
            for member in order:
                result = await performed(work, member * fan, (member + 1) * fan)
                bodies[work.label(member)] = result.body
        return await performed(works[1], 0, 1_000)

    result = asyncio.run(perform())
    return Played(model.asked, result, bodies, crew.notes)
