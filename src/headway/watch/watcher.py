"""Chooses how a run is shown while it goes on: drawn on a terminal, in lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TextIO

from headway.core.engine.events import Event
from headway.core.progress import Cast, ProgressStatistics
from headway.watch.live import Lanes


class Watcher(Protocol):
    """Somebody who is told of a run and shows it."""

    def events(self, events: Sequence[Event]) -> None:
        """Take what happened."""

    def restored(self, counts: Sequence[int]) -> None:
        """So many members of each group were finished before."""

    def aside(self) -> AbstractContextManager[None]:
        """Make room for somebody who writes to the same place."""

    def statistics(self) -> ProgressStatistics:
        """How far the run is."""

    def close(self) -> None:
        """The run is over."""


def watcher_for(stream: TextIO, cast: Cast, lanes: Lanes | None = None) -> Watcher:
    """The best view that a stream can have; `lanes` gives it gauges."""
    from headway.watch.screen import console_for

    console = console_for(stream)
    if console.is_terminal and not console.is_dumb_terminal:
        from headway.watch.live import LiveView

        return LiveView(cast, stream, lanes)
    from headway.watch.lines import Lines

    return Lines(cast, stream)
