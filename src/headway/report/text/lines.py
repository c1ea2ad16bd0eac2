"""The view of a run without a terminal: one line per finished task.

Laws:
- A line is written for something that happened, or every half minute; never more than a run of
  hundreds of tasks is worth reading.
- Nothing in a line is obeyed by a terminal.
- How the run ended is printed by the command that started it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from threading import Event as Flag
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from headway.errors import HeadwayError
from headway.journal.reader import JournalReader
from headway.pacing.view import AccountView
from headway.report.text.logs import told
from headway.report.text.run_view import RunView
from headway.report.text.runs import count_words
from headway.report.text.words import console_for, count, one_line

if TYPE_CHECKING:
    from headway.base.values import Budget
    from headway.report.text.live import LiveView

Lanes = Callable[[], Sequence[AccountView]]
"""The accounts that a run uses, as they are now."""

LOOK_S: Final = 0.1
LANES_S: Final = 1.0
"""Between looks at the accounts: each is a question to the broker."""

SUMMARY_S: Final = 30.0
TASKS_MAX: Final = 100
"""Runs of more tasks are shown in summaries."""

FAILURES_MAX: Final = 20
"""Failures that are written one by one; all of them are in `headway status`."""

RUN_KINDS: Final = ("WaveBegan", "RunHeld", "RunContinued", "RunStopping")
ENDS: Final = ("TaskFinished", "TaskProposed", "TaskStale")


class LineView:
    """Writes a run as lines, from its journal. Made when it begins."""

    def __init__(
        self, folder: str, stream: TextIO, lanes: Lanes = tuple, *, is_short: bool = False
    ) -> None:
        """`is_short` writes only what becomes of the run as a whole."""
        self._folder = folder
        self._lanes = lanes
        self._stream = stream
        self._is_short = is_short
        self._lock = RLock()
        self._failures = 0
        with JournalReader(folder) as reader:
            self._seq = reader.summary().events
        self._put_off: set[str] = set()
        """Why tasks were put off for the rest of the run: each reason is written once."""
        self._said_s = time.monotonic()
        self._look_s = 0.0
        self._closing = Flag()
        self._thread = Thread(target=self._follow, name="headway-lines", daemon=True)
        self._thread.start()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Write nothing meanwhile: the caller does."""
        with self._lock:
            yield

    def close(self) -> None:
        """What was written to the journal until now is written here, too."""
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        with suppress(HeadwayError), JournalReader(self._folder) as reader:
            run = RunView(reader)
            self._begin(run)
            while True:
                is_last = self._closing.wait(LOOK_S)
                if reader.has_changed():
                    self._read(run)
                    self._look(run)
                if is_last:
                    return
                if not self._is_short and time.monotonic() - self._said_s >= SUMMARY_S:
                    run.refresh()
                    self._say(self._summary(run))

    def _look(self, run: RunView) -> None:
        """Which accounts the run uses is seen while calls are in flight."""
        now_s, tasks = time.monotonic(), run.history.tasks
        if now_s >= self._look_s and any(tasks[key].is_sent for key in run.history.active):
            self._look_s = now_s + LANES_S
            with suppress(HeadwayError):
                self._lanes()

    def _begin(self, run: RunView) -> None:
        """Only what happens from now on is written; of what was before, how much is done."""
        new = sum(1 for _ in run.reader.events(self._seq, kinds=("task_finished",)))
        done = run.words()["reused"] + run.words()["done"] - new
        if self._seq and done and not self._is_short:
            self._say(f"{count(done, 'task')} done before")

    def _read(self, run: RunView) -> None:
        found = list(run.reader.events(self._seq))
        run.refresh()
        is_small, done = run.total <= TASKS_MAX, 0
        ends = [one for one in found if type(one.event).__name__ == "TaskFinished"]
        words = run.words()
        done = words["done"] + words["reused"] - len(ends)
        for one in found:
            self._seq, event = one.seq, one.event
            done += type(event).__name__ == "TaskFinished"
            if self._is_written(event, is_small, run):
                text = told(event, one_line(run.name(one.key)) if one.key else "")
                if type(event).__name__ == "TaskFinished":
                    text += f"  [{done:,}/{run.total:,}]"
                self._say(text)

    def _is_written(self, event: Any, is_small: bool, run: RunView) -> bool:
        kind = type(event).__name__
        if kind in RUN_KINDS or self._is_short:
            return kind in RUN_KINDS
        if kind == "TaskFailed":
            self._failures += 1
            return self._failures <= FAILURES_MAX
        if kind == "TaskDelayed":
            if event.again_s == inf:
                if event.fault.detail in self._put_off:
                    return False
                self._put_off.add(event.fault.detail)
            # A run that stops tries nothing again.
            return is_small and not run.history.standing.stopping_for
        return is_small and kind in ENDS

    def _say(self, words: str) -> None:
        with self._lock:
            self._stream.write(words + "\n")
            self._stream.flush()
        self._said_s = time.monotonic()

    def _summary(self, run: RunView) -> str:
        from headway.report.text.stage import rest_words

        rest = list(rest_words(run.time_left(())))
        return count_words(run) + (f"; left: {rest[0]}" if rest else "")


def own_lanes() -> Lanes:
    """The accounts that this process calls, or was seen to call, as the broker sees them; starts
    no broker by itself."""
    used: set[tuple[str, str]] = set()

    def look() -> Sequence[AccountView]:
        from headway.client.admission import admission

        port = admission()
        me = port.statistics().id
        if not me:
            return ()
        view, _ = port.describe()
        for lane in view.accounts:
            if any(caller.client == me for caller in lane.clients):
                used.add((lane.account, lane.group))
        return [lane for lane in view.accounts if (lane.account, lane.group) in used]

    return look


Watcher: TypeAlias = "LineView | LiveView"


def watcher_for(
    stream: TextIO, folder: str, lanes: Lanes = tuple, budget: Budget | None = None,
    foreseen_s: float | None = None,
) -> Watcher:  # fmt: skip
    """The best view that a stream can have."""
    console = console_for(stream)
    if console.is_terminal and not console.is_dumb_terminal:
        from headway.report.text.live import LiveView

        return LiveView(folder, stream, lanes, budget, foreseen_s)
    return LineView(folder, stream, lanes)
