"""A run where nothing can be drawn: lines for small runs, failures and waves for all."""

from __future__ import annotations

import io
from collections.abc import Sequence
from math import inf
from pathlib import Path

from headway.base.values import Fault
from headway.engine.events import (
    Event,
    RunBegan,
    RunStopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskReused,
    TaskStarted,
)
from headway.plans.graph import TaskGroup
from headway.report.text.live import FAILURES_MAX, TASKS_MAX, LineView
from tests.unit.viewed import live_run

BEGAN = RunBegan(0.0, "adaptive")


def written(
    path: Path, tasks: int, *events: Event, before: Sequence[Event] = (BEGAN,),
    is_short: bool = False,
) -> list[str]:  # fmt: skip
    """The lines of a run of so many tasks."""
    stream = io.StringIO()
    names = [f"probe[{task}]\x1b[1m" for task in range(tasks)]
    with live_run(path, [TaskGroup("probe", tasks)], names, *before) as run:
        lines = LineView(run.place.folder, stream, is_short=is_short)
        run.tell(*events)
        lines.close()
    return stream.getvalue().splitlines()


def test_each_end_of_a_small_run_is_a_line(tmp_path: Path) -> None:
    ended = TaskFinished(0, 1, 1.0)
    assert written(tmp_path, 4, TaskStarted(0, 1, 0.0, "room"), ended) == ["probe[0]  done  [1/4]"]


def test_a_large_run_tells_failures_only_and_not_all(tmp_path: Path) -> None:
    fault = Fault("server", detail="500")
    ends = [TaskFinished(task, 1, 1.0) for task in range(50)]
    failed = [TaskFailed(task, 1, 1.0, fault) for task in range(50, 90)]
    found = written(tmp_path, TASKS_MAX + 1, *ends, *failed)
    assert len(found) == FAILURES_MAX
    assert found[0] == "probe[50]  failed after 1 attempt: server: 500"


def test_what_was_done_before_is_said_once(tmp_path: Path) -> None:
    reused = [TaskReused(task, 0.0) for task in range(3)]
    before: list[Event] = [BEGAN, *reused, RunBegan(1.0, "adaptive")]
    found = written(tmp_path, 4, TaskFinished(3, 1, 2.0), before=before)
    assert found == ["3 tasks done before", "probe[3]  done  [4/4]"]


def test_why_tasks_are_put_off_is_written_once(tmp_path: Path) -> None:
    why, other = Fault("access", None, inf, "wrong key"), Fault("billing", None, inf, "pay")
    puts_off = [TaskDelayed(task, 1, 1.0, inf, why) for task in range(2)]
    found = written(tmp_path, 4, *puts_off, TaskDelayed(2, 1, 1.0, inf, other))
    whys = [line.partition("not sent: ")[2] for line in found]
    assert whys == ["access: wrong key", "billing: pay"]


def test_in_short_only_what_becomes_of_the_run_is_written(tmp_path: Path) -> None:
    found = written(
        tmp_path, 4, TaskFinished(0, 1, 1.0), RunStopping(2.0, "interrupted"), is_short=True
    )
    assert found == ["stops: interrupted"]
