"""The view of a run without a terminal: one line per finished task.

Laws:
- A line is written for something that happened, or every half minute; never more than a run of
  hundreds of tasks is worth reading.
- Nothing in a line is obeyed by a terminal.
- How the run ended is printed by the command that started it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from threading import Event as Flag
from threading import RLock, Thread
from typing import TYPE_CHECKING, Final, TextIO, TypeAlias

from headway.engine import events as facts
from headway.engine.events import Event
from headway.report.progress import RunProgress, TaskNames
from headway.report.text.logs import told
from headway.report.text.words import console_for, count, counts, one_line

if TYPE_CHECKING:
    from headway.report.text.live import LiveView

SUMMARY_S: Final = 30.0
TASKS_MAX: Final = 100
"""Runs of more tasks are shown in summaries."""

FAILURES_MAX: Final = 20
"""Failures that are written one by one; all of them are in `headway status`."""


class LineView:
    """Writes a run as lines. Made when it begins."""

    def __init__(self, cast: TaskNames, stream: TextIO) -> None:
        self._progress = RunProgress(cast)
        self._stream = stream
        self._lock = RLock()
        self._failures = 0
        self._put_off: set[str] = set()
        """Why tasks were put off for the rest of the run: each reason is written once."""
        self._said_s = time.monotonic()
        self._closing = Flag()
        self._thread = Thread(target=self._summarise, name="headway-lines", daemon=True)
        self._thread.start()

    def events(self, events: Sequence[Event]) -> None:
        with self._lock:
            is_small = sum(group.total or 0 for group in self._progress.groups) <= TASKS_MAX
            for event in events:
                self._progress.hear((event,))
                if self._is_written(event, is_small):
                    self._say(self._words(event))

    def restored(self, numbers: Sequence[int]) -> None:
        with self._lock:
            self._progress.restored(numbers)
        if sum(numbers):
            self._say(f"{count(sum(numbers), 'task')} finished before")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Write nothing meanwhile: the caller does."""
        with self._lock:
            yield

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _is_written(self, event: Event, is_small: bool) -> bool:
        if isinstance(event, facts.TaskFailed):
            self._failures += 1
            return self._failures <= FAILURES_MAX
        if isinstance(event, facts.TaskDelayed):
            if event.again_s == inf:
                if event.fault.detail in self._put_off:
                    return False
                self._put_off.add(event.fault.detail)
            # A run that stops tries nothing again.
            return is_small and not self._progress.standing.stopping_for
        if isinstance(event, facts.TaskFinished | facts.TaskProposed | facts.TaskStale):
            return is_small
        run = facts.WaveBegan | facts.RunHeld | facts.RunContinued | facts.RunStopping
        return isinstance(event, run)

    def _words(self, event: Event) -> str:
        task: int | None = getattr(event, "task", None)
        if task is None:
            return told(event, "")
        words = told(event, one_line(self._progress.cast.label(task)))
        if not isinstance(event, facts.TaskFinished):
            return words
        now = self._progress.statistics()
        return f"{words}  [{now.finished:,}/{now.total:,}]"

    def _say(self, words: str) -> None:
        self._stream.write(words + "\n")
        self._stream.flush()
        self._said_s = time.monotonic()

    def _summarise(self) -> None:
        while not self._closing.wait(1.0):
            with self._lock:
                if time.monotonic() - self._said_s >= SUMMARY_S:
                    self._say(self._summary())

    def _summary(self) -> str:
        now = self._progress.statistics()
        words = counts(
            (now.running, "running"), (now.proposed, "waiting to be committed"),
            (now.delayed, "to be tried again"), (now.failed, "failed"), (now.skipped, "skipped"),
        )  # fmt: skip
        words.insert(0, f"{now.finished:,} of {now.total:,} finished")
        from headway.report.text.stage import rest_words

        rest = list(rest_words(self._progress.rest((), time.time())))
        return ", ".join(words) + (f"; left: {rest[0]}" if rest else "")


Watcher: TypeAlias = "LineView | LiveView"


def watcher_for(stream: TextIO, cast: TaskNames, *, sees_calls: bool = False) -> Watcher:
    """The best view that a stream can have; with gauges of the accounts if the run sees calls."""
    console = console_for(stream)
    if console.is_terminal and not console.is_dumb_terminal:
        from headway.report.text.live import LiveView, own_lanes

        return LiveView(cast, stream, own_lanes() if sees_calls else None)

    return LineView(cast, stream)
