"""Shows the tree of a reduction, from its result to its sources.

Laws:
- Of a run that goes on, or failed, it shows what the journal has so far.
- With a text, only branches are left that lead to a result which contains it; if none does, to
  those that share its rarest words, because a model says things in words of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import log
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.numbers import short
from headway.engine.events import NOTHING, Ending
from headway.engine.record import TaskRow
from headway.engine.reduction import Cover, decoded, span
from headway.errors import BadValueError, did_you_mean
from headway.journal.reader import JournalReader
from headway.plans.fan_in import FanInShape
from headway.report.text.terminal import clean
from headway.report.text.words import count, one_line
from headway.run.filling import text_in
from headway.run.plan_run import PlanSource
from headway.run.reduce import InnerWork, inner_works
from headway.run.resume import plans_of
from headway.run.run_context import Crew
from headway.run.tasks import Plans

WORD: Final = re.compile(r"\w[\w.-]*\w|\w")

SHARED_MIN: Final = 0.5
"""A result is shown that shares half as much with a text as the one that shares most."""

COMMON_MAX: Final = 0.5
"""A word that more than half of the results have says nothing of where a text is from."""


class Branch(Struct, frozen=True):
    """A task, what came of it, and what it was made of."""

    name: str
    kind: str
    """`reduction`, `inner` or `result`."""
    state: str
    cover: Cover | None = None
    ending: Ending = NOTHING
    text: str = ""
    is_passed_on: bool = False
    """It made no call: what is below it was small enough."""
    reason: str = ""
    """Why it has no result, or why it is shown."""
    below: tuple[Branch, ...] = ()

    def results(self) -> Iterator[Branch]:
        if self.kind == "result":
            yield self
        for branch in self.below:
            yield from branch.results()


def trace_of(reader: JournalReader, name: str, text: str = "") -> Branch:
    header = reader.header
    if header.kind != "plan":
        raise BadValueError(
            f"{header.run} is no run of a plan's file: it has no reductions",
            hint="`headway results` has what its tasks gave",
        )
    plans = plans_of(reader, PlanSource.kept(reader))
    groups = plans.expanded.groups
    found = next((group for group in groups if group.name == name), None)
    if found is None or not found.task.reduce:
        reductions = [group.name for group in groups if group.task.reduce]
        raise BadValueError(
            f"`{name}` is no reduction of this run", hint=did_you_mean(name, reductions)
        )
    if text.strip() and not header.keeps_bodies:
        raise BadValueError(
            f"the results of {header.run} were not kept: nobody knows where a text is from",
            hint=f"`--trace {name}` alone shows which tasks it was made of",
        )
    whole = _Reading(reader, plans, found.source, plans.shapes.get(found.index)).tree(found.index)
    if not text.strip():
        return whole
    results, wanted = list(whole.results()), _plain(text)
    hits = {one.name: "contains it" for one in results if wanted in _plain(one.text)}
    return _pruned(whole, hits or _sharing(results, text))


def draw_trace(branch: Branch) -> Iterator[str]:
    """A line for each task; those that only passed on what was below them are left out."""
    yield _line(branch)
    yield from _drawn(_shown(branch.below), "")


def as_json(branch: Branch) -> dict[str, object]:
    """The same for a program, with all nodes."""
    ending = branch.ending
    told: dict[str, object] = {
        "task": branch.name, "kind": branch.kind, "state": branch.state, "calls": ending.calls,
        "input_tokens": round(ending.input_tokens), "output_tokens": round(ending.output_tokens),
        "bytes": len(branch.text.encode()),
    }  # fmt: skip
    if branch.cover is not None:
        told["results"] = [branch.cover.first + 1, branch.cover.last + 1]
    if branch.kind == "inner":
        told["passed_on"] = branch.is_passed_on
    if branch.reason:
        told["reason"] = branch.reason
    told["below"] = [as_json(one) for one in branch.below]
    return told


class _Reading(Struct, frozen=True):
    reader: JournalReader
    plans: Plans
    source: int
    shape: FanInShape | None

    def tree(self, index: int) -> Branch:
        groups, shape = self.plans.expanded.groups, self.shape
        levels = 0 if shape is None else shape.levels
        results = groups[self.source].count
        below: list[Branch] = []
        if results is not None:
            sizes = (results, *(shape.sizes(results) if shape is not None else ()))
            # Of all reductions, because equal ones differ by which is first; then of this.
            shapes = tuple(self.plans.shapes.values()) if levels else ()
            every = inner_works(self.plans, Crew("", "", "", {}), shapes)
            works = [work for work in every if work.shape is self.shape]
            below = [self._branch(levels, member, sizes, works) for member in range(sizes[levels])]
        whole = self._task(groups[index].name, "reduction", self._row(index, 0))
        return replace(whole, below=tuple(below))

    def _branch(
        self, level: int, member: int, sizes: Sequence[int], works: Sequence[InnerWork]
    ) -> Branch:
        if level == 0:
            label = self.plans.expanded.groups[self.source].label(member)
            branch = self._task(label, "result", self._row(self.source, member))
            return replace(branch, cover=Cover(member, member))
        fan = self.shape.fit.fan if self.shape is not None else 1
        first, after = member * fan, min(sizes[level - 1], (member + 1) * fan)
        below = tuple(self._branch(level - 1, one, sizes, works) for one in range(first, after))
        work = works[level - 1]
        branch = self._task(work.label(member), "inner", self.reader.row(work.key(member)))
        covers = [one.cover for one in below if one.cover is not None]
        cover = Cover(covers[0].first, covers[-1].last) if covers else None
        is_passed_on = branch.state == "finished" and not branch.ending.calls
        return replace(branch, below=below, cover=cover, is_passed_on=is_passed_on)

    def _row(self, index: int, member: int) -> TaskRow | None:
        keys = self.plans.keys[index]
        return None if keys is None else self.reader.row(keys.key(member))

    def _task(self, name: str, kind: str, row: TaskRow | None) -> Branch:
        if row is None:
            return Branch(name, kind, "not started")
        body, text = None, ""
        if row.state == "finished" and row.ending.body:
            body = self.reader.body(row.ending.body)
        if body is not None and kind == "inner":
            text = "\n".join(item.text for item in decoded(body, name).items)
        elif body is not None:
            text = text_in(body)
        reason = "" if row.state == "finished" else row.fault
        return Branch(name, kind, row.state, ending=row.ending, text=text, reason=reason)


def _sharing(results: Sequence[Branch], text: str) -> dict[str, str]:
    wanted = dict.fromkeys(WORD.findall(text.casefold()))
    words = {one.name: set(WORD.findall(one.text.casefold())) for one in results}
    spread = Counter(word for found in words.values() for word in found if word in wanted)
    common = COMMON_MAX * len(results)
    worth = {word: 1.0 + log(len(results) / n) for word, n in spread.items() if n <= common}
    scores = {name: sum(worth.get(word, 0.0) for word in found) for name, found in words.items()}
    best = max(scores.values(), default=0.0)
    return {
        name: "shares " + ", ".join(w for w in wanted if w in worth and w in words[name])
        for name, score in scores.items()
        if best and score >= SHARED_MIN * best
    }


def _pruned(branch: Branch, hits: dict[str, str]) -> Branch:
    if branch.kind == "result":
        return replace(branch, reason=hits.get(branch.name, ""))
    kept = [
        _pruned(one, hits)
        for one in branch.below
        if any(result.name in hits for result in one.results())
    ]
    return replace(branch, below=tuple(kept))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _shown(below: Sequence[Branch]) -> list[Branch]:
    """What stands below a node, without those that passed it on."""
    shown: list[Branch] = []
    for branch in below:
        shown += _shown(branch.below) if branch.is_passed_on else [branch]
    return shown


def _drawn(below: Sequence[Branch], indent: str) -> Iterator[str]:
    for number, branch in enumerate(below, 1):
        is_last = number == len(below)
        yield f"{indent}{'└─' if is_last else '├─'} {_line(branch)}"
        yield from _drawn(_shown(branch.below), f"{indent}{'   ' if is_last else '│  '}")


def _line(branch: Branch) -> str:
    words, ending = [], branch.ending
    if branch.kind == "inner" and branch.cover is not None:
        words.append(span(branch.cover))
    if branch.state != "finished":
        words.append(branch.state)
    if ending.calls:
        words.append(count(ending.calls, "call"))
        words.append(f"{short(ending.input_tokens)} tokens in, {short(ending.output_tokens)} out")
    if branch.text:
        words.append(f"{len(branch.text.encode()):,} bytes")
    if branch.reason:
        words.append(one_line(branch.reason, 120))
    return f"{one_line(clean(branch.name))}  {'; '.join(words)}".rstrip()
