"""What of a run ran again because of what others wrote: what it cost, and what would avoid it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headway.core.engine.events import RunBegan, TaskProposed, TaskStale, TaskStarted
from headway.core.progress import Cast, Progress, ProgressStatistics
from headway.runtime.journal_reader import JournalReader
from headway.runtime.lessons import Lesson
from headway.watch.words import count, duration, one_line, usd

SHOWN_MAX: Final = 3
"""Pairs of tasks that are told one by one."""
WHAT_CELLS_MAX: Final = 60


def waste_of(reader: JournalReader) -> ProgressStatistics:
    """What the attempts took that were for nothing, since the run was last taken over."""
    kinds = ("run_began", "task_started", "task_proposed", "task_stale")
    progress = Progress(Cast("", ("",), (None,), lambda _: 0, str))
    for recorded in reader.events(kinds=kinds):
        event = recorded.event
        if isinstance(event, RunBegan):
            progress = Progress(progress.cast)
        elif isinstance(event, TaskStarted | TaskProposed | TaskStale):
            progress.hear((event,))
    return progress.statistics()


def again_lines(reader: JournalReader, lessons: Sequence[Lesson]) -> Iterator[str]:
    """One line for each pair of tasks, with what all of it cost in the first."""
    if not lessons:
        return
    waste = waste_of(reader)
    took = duration(waste.stale_s)
    if waste.stale_microusd:
        took += f", {usd(waste.stale_microusd)}"
    first = f"{count(waste.stale, 'attempt')} ran again ({took}): "
    for lesson in lessons[:SHOWN_MAX]:
        yield first + _words(lesson)
        first = "and "
    if len(lessons) > SHOWN_MAX:
        yield f"and {len(lessons) - SHOWN_MAX:,} more pairs of tasks"


def _words(lesson: Lesson) -> str:
    reader, writer = lesson.reader, lesson.writer
    what = one_line(", ".join(f"`{one}`" for one in lesson.what if one), WHAT_CELLS_MAX)
    if reader == writer:
        fix = f"to do them one by one, add `queue: {reader}` to `{reader}`"
        return f"tasks of `{reader}` read {what or 'all'} that others of them write; {fix}"
    needs = f"`needs: {writer}` in `{reader}`"
    if what:
        key = lesson.what[0] or "**"
        return (
            f"`{reader}` reads {what}, which `{writer}` writes. It waits next time; to say so in "
            f"the plan, add {needs}, or `writes: state:{key}` there and `reads: state:{key}` here"
        )
    return (
        f"`{reader}` is shown the whole state, and `{writer}` writes there. It waits next time; to "
        f"say so in the plan, add {needs}, or `reads: state:KEY` for what it really needs"
    )
