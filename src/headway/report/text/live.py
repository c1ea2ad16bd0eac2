"""The live view of a run on a terminal, redrawn by a thread.

Laws:
- The process that performs the run never waits for the view, which reads the journal like any
  other one: `headway status` elsewhere shows the same numbers.
- At most four pictures a second, and one where nothing has happened.
- Nothing but the picture's own lines is ever erased; what others write stands above it.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event as Flag
from threading import RLock, Thread
from typing import Final, TextIO, cast

from rich.console import Group
from rich.live import Live

from headway.base.values import Budget
from headway.errors import HeadwayError
from headway.journal.reader import JournalReader
from headway.report.text.health import health_line
from headway.report.text.lines import Lanes
from headway.report.text.run_view import RunView
from headway.report.text.stage import LiveState, picture
from headway.report.text.terminal import CleanLines
from headway.report.text.words import console_for, glyphs_for

PICTURE_S: Final = 0.25
IDLE_S: Final = 1.0
"""Between pictures when nothing has happened: ages still grow."""

QUOTA_S: Final = 2.0
"""Between looks at the accounts: each is a question to the broker."""


class LiveView:
    """Draws a run from its journal. Made when it begins; `close` leaves the terminal as it was."""

    def __init__(
        self,
        folder: str,
        stream: TextIO,
        lanes: Lanes = tuple,
        budget: Budget | None = None,
        foreseen_s: float | None = None,
    ) -> None:
        """`lanes` says what the accounts in use allow."""
        self._folder = folder
        self._state = LiveState((), budget, foreseen_s)
        self._console = console_for(stream)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False,
            redirect_stderr=stream is sys.stderr, vertical_overflow="crop",
        )  # fmt: skip
        self._lock = RLock()
        self._look_lanes = lanes
        self._lanes_s = 0.0
        self._own_cpu_s, self._own_s = time.process_time(), time.monotonic()
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
        self._look_quota()
        self._look_own()
        lines = picture(run, self._state, self._console.width, glyphs_for(self._console))
        with self._lock:
            if not self._closing.is_set():
                self._live.update(Group(*lines), refresh=True)

    def _look_quota(self) -> None:
        """Read the limits of the accounts in use, unless they are recent enough."""
        now_s, state = time.monotonic(), self._state
        if now_s < self._lanes_s:
            return
        self._lanes_s = now_s + QUOTA_S
        try:
            state.lanes, state.notice = self._look_lanes(), ""
        except HeadwayError as error:
            # A view without gauges is better than none; calls fail with the same error.
            state.lanes, state.notice = (), error.message
        state.health = health_line(state.lanes)

    def _look_own(self) -> None:
        """What this process takes of a CPU over the last second or more, and of memory."""
        cpu_s, at_s = time.process_time(), time.monotonic()
        if at_s - self._own_s >= IDLE_S:
            share = (cpu_s - self._own_cpu_s) / (at_s - self._own_s)
            self._state.own = share, _memory_bytes()
            self._own_cpu_s, self._own_s = cpu_s, at_s


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
