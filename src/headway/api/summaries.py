"""`summarize`: combines many texts into one by calls that each fit a context window."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from headway.api.functions import must_be_known, wait_for
from headway.api.plan_files import Performed, PlanResults, budget_in, performed
from headway.api.plans import Run
from headway.engine.reduction import ReductionNode, decoded
from headway.errors import BadValueError, UsageError
from headway.journal.reader import JournalReader
from headway.plans.load import plan_from
from headway.plans.section import shown
from headway.plans.template import ESCAPED
from headway.run.plan_run import PlanRun, PlanSource
from headway.run.reduce import InnerWork
from headway.work import Attempt, Result, Work

PROMPT: Final = (
    "Summarise these results: what they say, what they agree and differ on, and what follows."
)
CONTEXT: Final = "32k"
"""A window that every current model has."""

RESULTS: Final = "results"
SUMMARY: Final = "summary"
NOTHING: Final = "(no result)"


class SummaryHow(TypedDict, total=False):
    """Options of a summary."""

    model: str
    """Who writes it: `anthropic/claude-sonnet-4`. Needed."""
    context: int | str
    """The most tokens of one call: 8000, "32k". What does not fit is brought together in a tree."""
    prompt: str
    """What is asked of the results."""
    max_tokens: int
    """The longest answer of a call."""
    budget: str | None
    """The most to spend: '$1', or tokens: '500k'."""


class SummaryPart(Struct, frozen=True):
    """A text, the results that it was made of, and what stands between them."""

    name: str
    text: str
    results: tuple[str, ...]
    """Names of all results below it, in order."""
    below: tuple[SummaryPart, ...] = ()
    """What the call that wrote it was given; of a result, nothing."""


class Summary(Struct, frozen=True):
    """A summary, and how it came about."""

    text: str
    run: str
    """For `headway results RUN`."""
    trace: SummaryPart
    calls: int = 0
    tokens: float = 0.0
    spend_microusd: int | None = 0
    """None if the price of any call is unknown."""

    def __str__(self) -> str:
        return self.text


def summarize(results: object, **how: Unpack[SummaryHow]) -> Summary:
    """One text of many results: a list or any iterable, a dict by name, a `Run`, a plan's results.

    summary = headway.summarize(answers, model="anthropic/claude-sonnet-4", context="32k")
    print(summary.text, summary.trace.below)

    No call is larger than `context`, and nothing is cut off: what is too large is read in pieces.
    """
    return wait_for(summarize_async(results, **how), "headway.summarize_async")


async def summarize_async(results: object, **how: Unpack[SummaryHow]) -> Summary:
    """`summarize`, for code that runs in an event loop."""
    must_be_known(how, SummaryHow)
    named = named_results(results)
    if not named:
        raise BadValueError("there are no results to summarise")
    if not how.get("model"):
        raise UsageError(
            "there is no model to ask", hint="summarize(..., model='openai/gpt-5-mini')"
        )
    budget = how.get("budget")
    text = _plan_text([name for name, _ in named], how)
    loaded = plan_from(text, Path(), "summary.json")
    source = PlanSource("summary.json", text, budget=None if budget is None else budget_in(budget))
    texts = [text for _, text in named]

    def stand_in(run: PlanRun) -> PlanRun:
        works = (_Given(run.works[0], texts), *run.works[1:])
        return replace(run, launch=replace(run.launch, works=works))

    done = await performed(loaded, source, stand_in=stand_in)
    told = done.checked()
    said = str(told.results[SUMMARY])
    return Summary(
        said, told.run, _trace(done, named, said), told.calls, told.tokens, told.spend_microusd
    )


def named_results(results: object) -> list[tuple[str, str]]:
    """Names and texts of what is to be summarised, in order."""
    if isinstance(results, Run | PlanResults):
        results = results.results
    if isinstance(results, Mapping):
        return [pair for name, value in results.items() for pair in _named(str(name), value)]
    if isinstance(results, str | bytes) or not isinstance(results, Iterable):
        results = [results]
    return [(str(number), _text(value)) for number, value in enumerate(results, 1)]


def given(name: str) -> str:
    """Stands in a summary's plan for results that only the program knows which asked for it."""
    raise UsageError(f"`{name}` was given by a Python program: run that again")


class _Given(Work):
    """Results that are there already, as the tasks of a group."""

    def __init__(self, planned: Work, texts: list[str]) -> None:
        self._planned, self._texts = planned, texts
        self.name = planned.name

    def label(self, member: int) -> str:
        return self._planned.label(member)

    def key(self, member: int) -> bytes:
        return self._planned.key(member)

    async def perform(self, attempt: Attempt) -> Result:
        return Result(self._texts[attempt.member].encode("utf-8", "replace"))


def _plan_text(names: list[str], how: SummaryHow) -> str:
    prompt = how.get("prompt", PROMPT).replace("{{", ESCAPED)
    summary: dict[str, object] = {
        "reduce": RESULTS, "context": how.get("context", CONTEXT), "prompt": prompt,
        "model": how.get("model", ""),
    }  # fmt: skip
    if "max_tokens" in how:
        summary["max_tokens"] = how["max_tokens"]
    source = {"each": names, "python": f"{__name__}:{given.__name__}"}
    return json.dumps({"headway": 1, "name": SUMMARY, "tasks": {RESULTS: source, SUMMARY: summary}})


def _named(name: str, value: object) -> list[tuple[str, str]]:
    name = name.encode(errors="replace").decode()  # No plan holds halves of characters.
    if isinstance(value, list | tuple):
        return [(f"{name}[{n}]", _text(one)) for n, one in enumerate(value, 1)]
    return [(name, _text(value))]


def _text(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, BaseException):
        return f"(failed: {type(value).__name__}: {value})"
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return repr(value)  # A circle, or keys that JSON cannot have: Python can say it.


def _trace(done: Performed, named: list[tuple[str, str]], said: str) -> SummaryPart:
    """The tree from the summary down; those that only passed on what was below are left out."""
    layer: list[tuple[SummaryPart, ...]] = [
        (SummaryPart(shown(name), text, (shown(name),)),) for name, text in named
    ]
    inner = [work for work in done.run.works if isinstance(work, InnerWork)]
    with JournalReader(done.folder) as reader:
        for work in inner:
            fan = work.shape.fit.fan
            above: list[tuple[SummaryPart, ...]] = []
            for member in range(work.known_count):
                below = tuple(one for parts in layer[member * fan :][:fan] for one in parts)
                row = reader.row(work.key(member))
                body = reader.body(row.ending.body) if row is not None else None
                node = ReductionNode(()) if body is None else decoded(body, work.label(member))
                text = "\n\n".join(item.text for item in node.items)
                above.append((_part(work.label(member), text, below),) if node.calls else below)
            layer = above
    return _part(SUMMARY, said, tuple(one for parts in layer for one in parts))


def _part(name: str, text: str, below: tuple[SummaryPart, ...]) -> SummaryPart:
    return SummaryPart(name, text, tuple(name for one in below for name in one.results), below)
