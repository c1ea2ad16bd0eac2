"""A run where nothing can be drawn: lines for small runs, failures and waves for all."""

from __future__ import annotations

import io
from collections.abc import Iterator
from math import inf

import pytest

from headway.base.values import Fault
from headway.engine.events import (
    Event,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from headway.report.progress import TaskNames
from headway.report.text.lines import FAILURES_MAX, TASKS_MAX, LineView


class Told:
    """Lines of a run of so many tasks, and what they wrote."""

    def __init__(self, tasks: int) -> None:
        self.stream = io.StringIO()
        cast = TaskNames("a run", ("probe",), (tasks,), lambda task: 0, "probe[{}]\x1b[1m".format)
        self.lines = LineView(cast, self.stream)

    def hear(self, *events: Event) -> list[str]:
        self.lines.events(events)
        return self.stream.getvalue().splitlines()


@pytest.fixture
def small() -> Iterator[Told]:
    told = Told(4)
    yield told
    told.lines.close()


@pytest.fixture
def large() -> Iterator[Told]:
    told = Told(TASKS_MAX + 1)
    yield told
    told.lines.close()


def test_each_end_of_a_small_run_is_a_line(small: Told) -> None:
    small.hear(TaskStarted(0, 1, 0.0, "room"))
    assert small.hear(TaskFinished(0, 1, 1.0)) == ["probe[0]  finished  [1/4]"]


def test_a_large_run_tells_failures_only_and_not_all(large: Told) -> None:
    large.hear(*(TaskFinished(task, 1, 1.0) for task in range(50)))
    fault = Fault("server", detail="500")
    written = large.hear(*(TaskFailed(task, 1, 1.0, fault) for task in range(50, 90)))
    assert len(written) == FAILURES_MAX
    assert written[0] == "probe[50]  failed after 1 attempt: server: 500"


def test_what_was_finished_before_is_said_once(small: Told) -> None:
    small.lines.restored([3])
    assert small.hear(TaskFinished(3, 1, 1.0)) == [
        "3 tasks finished before",
        "probe[3]  finished  [4/4]",
    ]


def test_a_summary_says_what_is_left(large: Told) -> None:
    large.hear(TaskStarted(0, 1, 0.0, "room"), TaskFinished(1, 1, 0.0))
    assert large.lines._summary() == (
        "1 of 101 finished, 1 running; left: 100 tasks; the speed is not known yet"
    )


def test_why_tasks_are_put_off_is_written_once(small: Told) -> None:
    why, other = Fault("access", None, inf, "wrong key"), Fault("billing", None, inf, "pay")
    small.hear(TaskDelayed(0, 1, 1.0, inf, why), TaskDelayed(1, 1, 1.0, inf, why))
    told = small.hear(TaskDelayed(2, 1, 1.0, inf, other))
    whys = [line.partition("not sent: ")[2] for line in told]
    assert whys == ["access: wrong key", "billing: pay"]
