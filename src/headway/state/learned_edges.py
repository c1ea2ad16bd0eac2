"""Conflicts of earlier runs, remembered as order for the next run of the plan.

Laws:
- A lesson is a hint: with it a task waits instead of running twice; without it the result is the
  same. So what cannot be read is as if it were not there, and what cannot be written is let go.
- Tasks are known by their names: a lesson about a task that is gone teaches nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from headway.base.codec import decode as decode_record
from headway.base.codec import encode
from headway.base.digest import digest
from headway.base.folders import folders
from headway.errors import WireError
from headway.journal.shim_log import write_file
from headway.plans.graph import Graph
from headway.plans.resources import above, is_every_file, prefix_of
from headway.state.coherence import Coherence, Hints

FOLDER: Final = "lessons"
VERSION: Final = 1
LESSONS_MAX: Final = 1_000
APART_MAX: Final = 8
"""Keys of one pair of tasks that are remembered one by one; of more, the folder they are in."""


class Lesson(Struct, frozen=True):
    """The tasks of one name made those of another run again, by what they wrote."""

    writer: str
    reader: str
    what: tuple[str, ...]


class Lessons(Struct, frozen=True):
    version: int
    plan: str
    lessons: tuple[Lesson, ...]


def lessons_of(graph: Graph, coherence: Coherence) -> tuple[Lesson, ...]:
    every = (
        (pair, [one for one in what if not is_every_file(one)])
        for pair, what in sorted(coherence.learned.items())
    )
    return tuple(
        Lesson(graph.groups[writer].name, graph.groups[reader].name, _few(map(prefix_of, what)))
        for (writer, reader), what in every
        if what
    )


def hints_for(graph: Graph, lessons: Iterable[Lesson]) -> Hints:
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
    try:
        with open(_path(environment, plan), "rb") as file:
            known = decode_record(Lessons, file.read())
    except (OSError, WireError):
        return ()
    is_ours = known.version == VERSION and known.plan == plan
    return known.lessons[:LESSONS_MAX] if is_ours else ()


def remember(environment: Mapping[str, str], plan: str, lessons: Iterable[Lesson]) -> None:
    every: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in (*recall(environment, plan), *lessons):
        pair = one.writer, one.reader
        every[pair] = _few((*every.get(pair, ()), *one.what))
    kept = tuple(Lesson(*pair, what) for pair, what in list(every.items())[-LESSONS_MAX:])
    path = _path(environment, plan)
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        own = f"{path}.{os.getpid()}"
        write_file(own, encode(Lessons(VERSION, plan, kept)), is_synced=False)
        os.replace(own, path)


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
