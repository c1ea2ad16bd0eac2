"""The view of a run while it goes on: drawn on a terminal, elsewhere lines; both by a thread.

Laws:
- The process that performs the run never waits for the view, which reads the journal like any
  other one: `headway status` elsewhere shows the same numbers.
- At most four pictures a second, and one where nothing has happened. Nothing but the picture's own
  lines is ever erased; what others write stands above it.
- A line is written for something that happened, or every half minute; never more than is worth
  reading of a run of hundreds of tasks. How the run ended is printed by its command.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from threading import Event as Flag
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias, cast

from headway.errors import HeadwayError
from headway.journal.reader import JournalReader
from headway.report.text.logs import event_words
from headway.report.text.run_view import RunView
from headway.report.text.runs import count_words
from headway.report.text.terminal import CleanLines
from headway.report.text.words import console_for, count, glyphs_for, one_line

if TYPE_CHECKING:
    from headway.pacing.view import AccountView

Lanes: TypeAlias = "Callable[[], Sequence[AccountView]]"
"""The accounts that a run uses, as they are now."""

PICTURE_S: Final = 0.25
IDLE_S: Final = 1.0
"""Between pictures when nothing has happened: ages still grow."""

LANES_S: Final = 2.0
"""Between looks at the accounts: each is a question to the broker."""

LINES_S: Final = 0.1
SUMMARY_S: Final = 30.0
TASKS_MAX: Final = 100
"""Runs of more tasks are shown in summaries."""

FAILURES_MAX: Final = 20
"""Failures that are written one by one; all of them are in `headway status`."""

RUN_KINDS: Final = ("WaveBegan", "RunHeld", "RunContinued", "RunStopping")
ENDS: Final = ("TaskFinished", "TaskProposed", "TaskStale")


class LiveView:
    """Draws a run from its journal. Made when it begins; `close` leaves the terminal as it was."""

    def __init__(self, folder: str, stream: TextIO, lanes: Lanes | None = None) -> None:
        """`lanes`: the accounts in use; those that the run's process calls, if it is not given."""
        from rich.live import Live

        from headway.report.text.stage import LiveState

        self._folder = folder
        self._state = LiveState()
        self._console = console_for(stream)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False,
            redirect_stderr=stream is sys.stderr, vertical_overflow="crop",
        )  # fmt: skip
        self._lock = RLock()
        self._look_lanes = lanes
        self._lanes_s = 0.0
        self._closing = Flag()
        self._show()
        self._thread = Thread(target=self._draw_on, name="headway-view", daemon=True)
        self._thread.start()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the picture away while something else is written to the terminal."""
        with self._lock:
            self._live.stop()
            try:
                yield
            finally:
                if not self._closing.is_set():
                    self._show()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._live.stop()

    def _show(self) -> None:
        """Draw from now on; what others print to the same stream stands above the picture."""
        before = sys.stderr
        self._live.start()
        if sys.stderr is not before:
            # Rich takes control sequences in what is printed for styles and links.
            sys.stderr = cast("TextIO", CleanLines(sys.stderr))

    def _draw_on(self) -> None:
        with suppress(HeadwayError), JournalReader(self._folder) as reader:
            run, drawn_s = RunView(reader), 0.0
            while not self._closing.wait(PICTURE_S):
                now_s = time.monotonic()
                if reader.has_changed() or now_s - drawn_s >= IDLE_S:
                    drawn_s = now_s
                    run.refresh()
                    self._draw(run)

    def _draw(self, run: RunView) -> None:
        from rich.console import Group

        from headway.report.text.accounts import health_line
        from headway.report.text.stage import picture

        state, now_s = self._state, time.monotonic()
        if now_s >= self._lanes_s:
            self._lanes_s = now_s + LANES_S
            try:
                state.lanes, state.notice = (self._look_lanes or run.lanes)(), ""
            except HeadwayError as error:
                # A view without gauges is better than none; calls fail with the same error.
                state.lanes, state.notice = (), error.message
            state.health = health_line(state.lanes)
        lines = picture(run, state, self._console.width, glyphs_for(self._console))
        with self._lock:
            if not self._closing.is_set():
                self._live.update(Group(*lines), refresh=True)


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
            self._seq = reader.last_event()
        self._put_off: set[str] = set()
        """Why tasks were put off for the rest of the run: each reason is written once."""
        self._written_s = time.monotonic()
        self._lanes_s = 0.0
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
                is_last = self._closing.wait(LINES_S)
                if reader.has_changed():
                    self._read(run)
                    self._note_lanes(run)
                if is_last:
                    return
                if not self._is_short and time.monotonic() - self._written_s >= SUMMARY_S:
                    run.refresh()
                    self._write(self._summary(run))

    def _note_lanes(self, run: RunView) -> None:
        """Which accounts the run uses is seen while calls are in flight."""
        now_s, tasks = time.monotonic(), run.history.tasks
        if now_s >= self._lanes_s and any(tasks[key].is_sent for key in run.history.active):
            self._lanes_s = now_s + LANES_S / 2
            with suppress(HeadwayError):
                self._lanes()

    def _begin(self, run: RunView) -> None:
        """Only what happens from now on is written; of what was before, how much is done."""
        ended = run.reader.events(self._seq, kinds=("task_finished",))
        done = run.words()["reused"] + run.words()["done"]
        # The journal may have grown since the view read it.
        done -= sum(one.seq <= run.seq for one in ended)
        if self._seq and done and not self._is_short:
            self._write(f"{count(done, 'task')} done before")

    def _read(self, run: RunView) -> None:
        run.refresh()
        # What was written after that is read, and counted, the next time.
        found = [one for one in run.reader.events(self._seq) if one.seq <= run.seq]
        words, is_small = run.words(), run.total <= TASKS_MAX
        ends = sum(type(one.event).__name__ == "TaskFinished" for one in found)
        done = words["done"] + words["reused"] - ends
        for one in found:
            self._seq, event = one.seq, one.event
            is_done = type(event).__name__ == "TaskFinished"
            done += is_done
            if self._is_written(event, is_small, run):
                text = event_words(event, one_line(run.name(one.key)) if one.key else "")
                self._write(f"{text}  [{done:,}/{run.total:,}]" if is_done else text)

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

    def _write(self, words: str) -> None:
        with self._lock:
            self._stream.write(words + "\n")
            self._stream.flush()
        self._written_s = time.monotonic()

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
        if port.connection is None:
            return ()
        view, _ = port.describe()
        for lane in view.accounts:
            if any(caller.client == port.id for caller in lane.clients):
                used.add((lane.account, lane.group))
        return [lane for lane in view.accounts if (lane.account, lane.group) in used]

    return look


Watcher: TypeAlias = LineView | LiveView


def watcher_for(stream: TextIO, folder: str, lanes: Lanes | None = None) -> Watcher:
    """The best view that a stream can have."""
    console = console_for(stream)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(folder, stream, lanes)
    return LineView(folder, stream, lanes or tuple)


def watch_run(reader: JournalReader, stream: TextIO) -> None:
    """Show a run of another process until none performs it."""
    run = RunView(reader)
    view = watcher_for(stream, reader.folder)
    try:
        while run.is_live:
            time.sleep(IDLE_S)
            run.refresh()
    finally:
        view.close()
