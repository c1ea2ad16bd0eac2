"""The live view of a run on a terminal, redrawn by a thread.

Laws:
- The process that performs the run never waits for the view: it only adds events.
- At most four pictures a second, and one where nothing has happened.
- Nothing but the picture's own lines is ever erased; what others write stands above it.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import Event as Flag
from threading import RLock, Thread
from typing import Final, TextIO, cast

from rich.console import Group
from rich.live import Live

from headway.engine.events import Event
from headway.errors import HeadwayError
from headway.pacing.view import AccountView
from headway.report.progress import RunProgress, TaskNames
from headway.report.text.health import health_line
from headway.report.text.stage import RUNNING_MAX, LiveState, picture
from headway.report.text.terminal import CleanLines
from headway.report.text.words import console_for, glyphs_for

PICTURE_S: Final = 0.25
IDLE_S: Final = 1.0
"""Between pictures when nothing has happened: ages still grow."""

QUOTA_S: Final = 2.0
"""Between looks at the accounts: each is a question to the broker."""

Lanes = Callable[[], Sequence[AccountView]]


class LiveView:
    """Draws a run. Made when it begins; `close` leaves the terminal as it was."""

    def __init__(self, cast: TaskNames, stream: TextIO, lanes: Lanes | None = None) -> None:
        """`lanes` says what the accounts in use allow; without it no gauges are drawn."""
        self._progress = RunProgress(cast)
        self._console = console_for(stream)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False,
            redirect_stderr=stream is sys.stderr, vertical_overflow="crop",
        )  # fmt: skip
        self._lock = RLock()
        self._is_new = True
        self._look_lanes = lanes
        self._lanes: Sequence[AccountView] = ()
        self._lanes_s = 0.0
        self._refused_before: dict[tuple[str, str], int] = {}
        self._refused, self._notice, self._health = 0, "", ""
        self._own: tuple[float, int] | None = None
        self._own_cpu_s, self._own_s = time.process_time(), time.monotonic()
        self._began_s = time.time()
        self._closing = Flag()
        self._show()
        self._thread = Thread(target=self._draw_on, name="headway-view", daemon=True)
        self._thread.start()

    def events(self, events: Sequence[Event]) -> None:
        with self._lock:
            self._progress.hear(events)
            self._is_new = True

    def restored(self, counts: Sequence[int]) -> None:
        with self._lock:
            self._progress.restored(counts)
            self._is_new = True

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
                    self._is_new = True

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
        drawn_s = 0.0
        while not self._closing.wait(PICTURE_S):
            now_s = time.monotonic()
            if self._is_new or now_s - drawn_s >= IDLE_S:
                drawn_s = now_s
                self._draw()

    def _draw(self) -> None:
        self._look_quota()
        with self._lock:
            self._is_new = False
            view = self._view()
        lines = picture(view)
        with self._lock:
            if not self._closing.is_set():
                self._live.update(Group(*lines), refresh=True)

    def _view(self) -> LiveState:
        progress, now_s = self._progress, time.time()
        limits = [one for lane in self._lanes for one in lane.limits]
        first_s = progress.first_s
        return LiveState(
            self._console.width, glyphs_for(self._console), progress.cast, now_s,
            now_s - (self._began_s if first_s is None else first_s),
            progress.standing, progress.statistics(), list(progress.groups),
            list(islice(progress.running.values(), RUNNING_MAX)), progress.rest(limits, now_s),
            self._lanes, self._refused, self._look_own(), self._notice, self._health,
        )  # fmt: skip

    def _look_quota(self) -> None:
        """Read the limits of the accounts in use, unless they are recent enough."""
        now_s = time.monotonic()
        if self._look_lanes is None or now_s < self._lanes_s:
            return
        self._lanes_s = now_s + QUOTA_S
        try:
            self._lanes, self._notice = self._look_lanes(), ""
        except HeadwayError as error:
            # A view without gauges is better than none; calls fail with the same error.
            self._lanes, self._notice = (), error.message
        self._refused, self._health = 0, health_line(self._lanes)
        for lane in self._lanes:
            before = self._refused_before.setdefault((lane.account, lane.group), lane.refused)
            self._refused += max(0, lane.refused - before)

    def _look_own(self) -> tuple[float, int] | None:
        """What this process takes of a CPU over the last second or more, and of memory."""
        cpu_s, at_s = time.process_time(), time.monotonic()
        if at_s - self._own_s >= IDLE_S:
            self._own = ((cpu_s - self._own_cpu_s) / (at_s - self._own_s), _memory_bytes())
            self._own_cpu_s, self._own_s = cpu_s, at_s
        return self._own


def own_lanes() -> Lanes:
    """The accounts that this process calls, as the broker sees them; starts no broker by itself."""
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


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
