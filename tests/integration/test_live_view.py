"""The live view on a terminal: drawn, aligned, and gone without a trace when the run is over."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    RunBegan,
    TaskFinished,
    TaskStarted,
)
from headway.errors import BrokerUnavailableError
from headway.pacing.view import AccountView
from headway.plans.graph import TaskGroup
from headway.report.text.live import LineView, LiveView, watcher_for
from tests.unit.viewed import LiveRun, live_run

NAMES = ("탐색[코드 경로 탐색]", "탐색[path 1]", "탐색[path 2]")
DEADLINE_S = 10.0


class Terminal:
    """Both ends of a terminal: one to draw on, one to see what arrives."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self.seen = ""

    def until(self, is_there: Callable[[str], bool]) -> str:
        """Read until the text is as wanted."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_there(self.seen):
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, self.seen[-2000:]
            if select.select([self.master], [], [], left_s)[0]:
                self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        return self.seen

    def close(self) -> None:
        self.stream.close()
        os.close(self.master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    opened = Terminal()
    yield opened
    opened.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    now_s = time.time()
    ending = Ending(b"", b"", 1200.0, 80.0, 4100, 1)
    with live_run(
        tmp_path, [TaskGroup("탐색", 3)], NAMES, RunBegan(now_s, "adaptive"),
        TaskStarted(0, 1, now_s, "room"), CallAdmitted(0, now_s), TaskStarted(1, 1, now_s, "room"),
        CallWaited(1, now_s), TaskStarted(2, 1, now_s, "room"), CallAdmitted(2, now_s),
        TaskFinished(2, 1, now_s, ending),
    ) as begun:  # fmt: skip
        yield begun


def test_a_run_is_drawn_and_the_picture_is_gone_at_the_end(
    terminal: Terminal, run: LiveRun
) -> None:
    view = watcher_for(terminal.stream, run.place.folder)
    assert isinstance(view, LiveView)
    seen = terminal.until(lambda text: "코드 경로 탐색" in text and "1/3" in text)
    assert "waiting for a limit" in terminal.until(lambda text: "waiting for" in text)
    assert "\x1b[?25l" in seen
    view.close()
    terminal.stream.flush()
    ended = terminal.until(lambda text: text.rstrip().endswith("\x1b[2K") or "\x1b[?25h" in text)
    assert "\x1b[?25h" in ended


def test_others_may_write_while_the_picture_is_away(terminal: Terminal, run: LiveRun) -> None:
    view = LiveView(run.place.folder, terminal.stream)
    terminal.until(lambda text: "1/3" in text)
    with view.aside():
        print("a result of another", file=terminal.stream, flush=True)
    terminal.until(lambda text: "탐색" in text.partition("a result of another")[2])
    view.close()


def test_a_terminal_that_is_dumb_gets_lines(
    terminal: Terminal, run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    view = watcher_for(terminal.stream, run.place.folder)
    view.close()
    assert isinstance(view, LineView)


def test_a_broker_that_does_not_answer_costs_the_gauges_and_nothing_else(
    terminal: Terminal, run: LiveRun
) -> None:
    def gone() -> list[AccountView]:
        raise BrokerUnavailableError("the broker does not answer")

    view = LiveView(run.place.folder, terminal.stream, gone)
    terminal.until(lambda text: "the broker does not answer" in text and "1/3" in text)
    view.close()
