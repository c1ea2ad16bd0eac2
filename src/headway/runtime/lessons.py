"""What runs of a plan have taught: who made whom run again, kept for the next run of the plan.

Laws:
- A lesson is a hint: with it a task waits instead of running twice; without it the result is the
  same. So what cannot be read is as if it were not there, and what cannot be written is let go.
- Tasks are known by their names: a lesson about a task that is gone teaches nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headway.core.digest import digest
from headway.core.engine.coherence import Coherence, Hints
from headway.core.plan.graph import Graph
from headway.core.plan.paths import above
from headway.core.plan.resources import prefix_of
from headway.runtime.folders import folders

FOLDER: Final = "lessons"
VERSION: Final = 1
LESSONS_MAX: Final = 1_000
APART_MAX: Final = 8
"""Keys of one pair of tasks that are remembered one by one; of more, the folder they are in."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """The tasks of one name made those of another run again, by what they wrote."""

    writer: str
    reader: str
    what: tuple[str, ...]
    """Keys and folders."""


def lessons_of(graph: Graph, coherence: Coherence) -> tuple[Lesson, ...]:
    """What a run has taught."""
    return tuple(
        Lesson(graph.groups[writer].name, graph.groups[reader].name, _few(map(prefix_of, what)))
        for (writer, reader), what in sorted(coherence.learned.items())
    )


def hints_for(graph: Graph, lessons: Iterable[Lesson]) -> Hints:
    """Lessons as the engine takes them."""
    numbers = {group.name: index for index, group in enumerate(graph.groups)}
    reads: dict[int, tuple[str, ...]] = {}
    writes: dict[int, tuple[str, ...]] = {}
    for lesson in lessons:
        writer, reader = numbers.get(lesson.writer), numbers.get(lesson.reader)
        if writer is not None and reader is not None:
            reads[reader] = _few((*reads.get(reader, ()), *lesson.what))
            writes[writer] = _few((*writes.get(writer, ()), *lesson.what))
    return Hints(reads, writes)


def recall(environment: Mapping[str, str], plan: str) -> tuple[Lesson, ...]:
    """What earlier runs of the plan of this path have taught."""
    try:
        with open(_path(environment, plan), encoding="utf-8") as file:
            said = json.load(file)
        if said["version"] != VERSION or said["plan"] != plan:
            return ()
        return tuple(
            Lesson(str(one["writer"]), str(one["reader"]), tuple(map(str, one["what"])))
            for one in said["lessons"][:LESSONS_MAX]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()


def remember(environment: Mapping[str, str], plan: str, lessons: Iterable[Lesson]) -> None:
    """Keep these beside those that are known."""
    every: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in (*recall(environment, plan), *lessons):
        pair = one.writer, one.reader
        every[pair] = _few((*every.get(pair, ()), *one.what))
    told = [
        {"writer": writer, "reader": reader, "what": what}
        for (writer, reader), what in list(every.items())[-LESSONS_MAX:]
    ]
    path = _path(environment, plan)
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        draft = f"{path}.{os.getpid()}.draft"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"version": VERSION, "plan": plan, "lessons": told}, file)
        os.replace(draft, path)


def _few(what: Iterable[str]) -> tuple[str, ...]:
    """Each once and none within another; of many, the folder that all of them are in."""
    every = dict.fromkeys(what)
    outer = tuple(one for one in every if not any(folder in every for folder in above(one)))
    if len(outer) <= APART_MAX:
        return outer
    return (os.path.commonpath([f"/{one}" for one in outer])[1:],)


def _path(environment: Mapping[str, str], plan: str) -> str:
    name = digest(os.path.abspath(plan).encode("utf-8", "surrogateescape")).hex()
    return os.path.join(folders(environment).state, FOLDER, f"{name}.json")
