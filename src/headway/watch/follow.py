"""Watching a run of another process: its journal is looked at again and again until it is over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headway.runtime.journal_reader import JournalReader, Recorded
from headway.watch.glance import Glance, look
from headway.watch.status import count_words, state_words, status_lines
from headway.watch.words import one_line

if TYPE_CHECKING:
    from rich.console import Console

LOOK_S: Final = 0.5
"""How often somebody who watches is shown something new."""

LINE_S: Final = 30.0
"""How often a line is written where nothing can be drawn."""


def watch_status(reader: JournalReader, console: Console) -> None:
    """Show a run until no process performs it."""
    if console.is_terminal and not console.is_dumb_terminal:
        _draw(reader, console)
    else:
        _write(reader, console)


def facts(reader: JournalReader, key: bytes | None, is_followed: bool) -> Iterator[Recorded]:
    """What happened, in order; followed, also what happens, until the run is over."""
    last = 0
    while True:
        is_over = not is_followed or not look(reader).verdict.is_live
        for recorded in reader.events(last, key):
            last = recorded.seq
            yield recorded
        if is_over:
            return
        time.sleep(LOOK_S)


def _draw(reader: JournalReader, console: Console) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            glance = look(reader)
            if not glance.verdict.is_live:
                return
            lines = status_lines(glance, reader, console.width)
            live.update(Group(*lines), refresh=True)
            _wait(reader)


def _write(reader: JournalReader, console: Console) -> None:
    said, said_s = "", 0.0
    while (glance := look(reader)).verdict.is_live:
        words = _words(glance)
        if words != said and time.monotonic() - said_s >= LINE_S:
            console.print(words, soft_wrap=True)
            said, said_s = words, time.monotonic()
        _wait(reader)


def _words(glance: Glance) -> str:
    return f"{one_line(glance.header.name, 40)}: {state_words(glance)}, {count_words(glance)}"


def _wait(reader: JournalReader) -> None:
    """Until something was written, or long enough that times have changed."""
    until_s = time.monotonic() + 2 * LOOK_S
    time.sleep(LOOK_S)
    while not reader.has_changed() and time.monotonic() < until_s:
        time.sleep(LOOK_S / 5)
