"""What earlier runs tell of the next one: sizes and times of their calls, from their journals.

Laws:
- Journals are read, and what a run kept beside its own; a spoilt one is passed over.
- The runs of the same plan tell of its parts; runs of other plans only of the models they asked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from headway.core.engine.record import Row
from headway.core.foresight.observed import Answered, seen_of
from headway.core.foresight.sizes import Seen
from headway.core.plan.spec import Prompt
from headway.core.plan.written import prompt_bytes
from headway.core.story import Story
from headway.errors import HeadwayError
from headway.runtime.eachsource import EachSource
from headway.runtime.journal_reader import JournalReader
from headway.runtime.planrun import PlanSource
from headway.runtime.planwork import Plans
from headway.runtime.runs import RunPlace, keep_file, kept_source

UNREADABLE: Final = (HeadwayError, OSError, ValueError, TypeError, KeyError)
"""What a journal, or what is kept beside it, may fail with: then another one has to do."""

CAST_NAME: Final = "cast.json"
EACH: Final = "each"
"""The one part of a command for each of many inputs."""

SIZES_MAX: Final = 2000
"""Prompts of a group whose size is kept."""

RUNS_MAX: Final = 30
"""The latest runs that are looked at."""

SAME_MAX: Final = 5
OTHERS_MAX: Final = 3
"""Of these, runs of the same plan, and runs of others, that are read."""

EVENTS_MAX: Final = 20_000
"""Facts of a run that are read, the latest: a few tenths of a second."""


@dataclass(slots=True)
class Earlier:
    """What earlier runs have shown, oldest first."""

    seen: dict[str, list[Seen]] = field(default_factory=dict)
    """By part of the plan, and by model."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """By part, what tasks that run on this machine took."""
    calls: dict[str, list[float]] = field(default_factory=dict)
    """By part, how many calls these made."""
    counts: dict[str, int] = field(default_factory=dict)
    """By part, how many tasks it had in the last of these runs; 0 if that was found as it ran."""
    hours: list[int] = field(default_factory=list)
    """Of the day, at which calls were made."""
    runs: int = 0
    active: int = 1
    """The most tasks that were active at once."""

    @property
    def words(self) -> str:
        """Where it is known from, for people."""
        return f"{self.runs} earlier run{'s' if self.runs != 1 else ''}" if self.runs else ""


@dataclass(frozen=True, slots=True)
class Cast:
    """What the tasks of a run are, kept beside its journal: files that the plan names change."""

    parts: Mapping[str, tuple[str, int | None]]
    """By name, the model that is asked, empty if none is, and how many tasks there are."""
    sizes_bytes: Mapping[str, int]
    """Of prompts, by the task's key, without results of other tasks."""

    def keep(self, run_folder: str) -> None:
        """Write it down; a run goes on without, if the disk is full."""
        told = {"parts": dict(self.parts), "sizes_bytes": dict(self.sizes_bytes)}
        with suppress(OSError):
            keep_file(run_folder, CAST_NAME, json.dumps(told).encode(), is_durable=False)

    @staticmethod
    def kept(run_folder: str) -> Cast:
        """As it was written; OSError or ValueError if it was not, or is spoilt."""
        with open(os.path.join(run_folder, CAST_NAME), encoding="utf-8") as file:
            told = json.load(file)
        parts = {str(name): (str(model), count) for name, (model, count) in told["parts"].items()}
        return Cast(parts, {str(key): int(size) for key, size in told["sizes_bytes"].items()})


def cast_of(plans: Plans) -> Cast:
    """The tasks of a plan that is about to run."""
    expanded = plans.expanded
    parts: dict[str, tuple[str, int | None]] = {}
    sizes: dict[str, int] = {}
    for group, keys in zip(expanded.groups, plans.keys, strict=True):
        work = group.task.work
        asks = isinstance(work, Prompt) and not group.task.is_command
        model = (work.model or expanded.spec.model) if isinstance(work, Prompt) and asks else ""
        parts[group.name] = (model, group.count)
        if not asks or keys is None:
            continue
        members = range(min(group.count or 0, SIZES_MAX))
        for member, size in zip(members, prompt_bytes(expanded, group, members), strict=True):
            sizes[keys.key(member).hex()] = round(size)
    return Cast(parts, sizes)


def earlier_plans(places: Iterable[RunPlace], path: str) -> Earlier:
    """What runs of the plan at this path have shown, and other runs of the models they asked."""
    found, same, others = Earlier(), list[RunPlace](), list[RunPlace]()
    for place in list(places)[:RUNS_MAX]:
        try:
            with JournalReader(place.folder) as reader:
                header = reader.header
            if header.kind != "plan":
                continue
            is_same = PlanSource.kept(place.folder, header.source).path == path
        except UNREADABLE:
            continue
        group, most = (same, SAME_MAX) if is_same else (others, OTHERS_MAX)
        if len(group) < most:
            group.append(place)
    for chosen, is_same in ((others, False), (same, True)):
        for place in reversed(chosen):
            with suppress(*UNREADABLE), JournalReader(place.folder) as reader:
                _hear(found, reader, Cast.kept(place.folder), is_same)
    return found


def earlier_each(places: Iterable[RunPlace], template: str) -> Earlier:
    """What runs of the same command have shown."""
    found, chosen = Earlier(), list[RunPlace]()
    for place in list(places)[:RUNS_MAX]:
        with suppress(*UNREADABLE), JournalReader(place.folder) as reader:
            source = kept_source(place.folder, reader.header.source)
            is_same = reader.header.kind == "each" and (
                EachSource.decoded(source).template == template
            )
            if is_same and len(chosen) < SAME_MAX:
                chosen.append(place)
    for place in reversed(chosen):
        with suppress(*UNREADABLE), JournalReader(place.folder) as reader:
            _hear(found, reader, Cast({EACH: ("", None)}, {}), True)
    return found


def _hear(found: Earlier, reader: JournalReader, cast: Cast, is_same: bool) -> None:
    """Add what one run has shown."""
    story = Story()
    for one in reader.events(max(0, reader.summary().events - EVENTS_MAX)):
        story.hear(one.key, one.event)
    answered: list[tuple[Answered, str]] = []
    measured = 0
    for row in reader.rows("finished"):
        part = EACH if EACH in cast.parts else row.name.partition("[")[0]
        tale = story.tales.get(row.key)
        if part not in cast.parts or tale is None or tale.state != "finished":
            continue
        model, _ = cast.parts[part]
        if not model and is_same:
            measured += 1
            found.seconds.setdefault(part, []).append(max(0.0, row.ended_s - row.started_s))
            found.calls.setdefault(part, []).append(float(row.ending.calls))
        spans = [span for span in tale.spans if span[0] == "busy"]
        if row.ending.calls and spans:
            found.hours.append(time.localtime(row.started_s).tm_hour)
            size = float(cast.sizes_bytes.get(row.key.hex(), 0))
            answered.append((_answered(part, spans[-1], row, size), model or part))
    if is_same:
        _add(found, [one for one, _ in answered])
        found.counts |= {name: count or 0 for name, (_, count) in cast.parts.items()}
    _add(found, [replace(one, part=model) for one, model in answered])
    if answered or measured:
        found.runs += 1
        found.active = max(found.active, story.statistics().submitted)


def _answered(part: str, span: tuple[str, float, float], row: Row, size: float) -> Answered:
    ending = row.ending
    return Answered(
        part, span[1], span[2], ending.input_tokens, ending.output_tokens, ending.calls, size,
        float(ending.spend_microusd),
    )  # fmt: skip


def _add(found: Earlier, answered: list[Answered]) -> None:
    for name, seen in seen_of(answered).items():
        found.seen.setdefault(name, []).extend(seen)


def mean(values: Iterable[float]) -> float:
    """Of a few numbers; 0 of none."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0
