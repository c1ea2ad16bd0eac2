"""What an earlier process has done, taken over at once."""

from __future__ import annotations

import sys
from time import process_time

import pytest

from headway.core.engine.engine import Rules, begin, step
from headway.core.engine.events import (
    Began,
    Expanded,
    Failed,
    Finished,
    RunFinished,
    Start,
    TaskDelayed,
    TaskFailed,
    Ticked,
)
from headway.core.engine.restore import restore
from headway.core.engine.strategy import AllAtOnce, Fixed
from headway.core.plan.graph import Graph, Group, Need
from headway.core.values import Fault
from headway.errors import InternalError

SERVER = Fault("server")


def test_what_is_finished_is_not_started_again() -> None:
    groups = [Group("a", 4), Group("b", 4, (Need(0, block=1),)), Group("merge", 1, (Need(1),))]
    state = begin(Graph(groups), Rules(AllAtOnce()))
    restore(state, [0, 1, 3, 4], {2: 3, 0: 1})
    assert step(state, Began(), 0.0).effects == (Start(2, 4), Start(5, 1), Start(7, 1))
    assert state.finished == 4


def test_a_run_that_was_complete_is_over_when_it_begins() -> None:
    state = begin(Graph([Group("a", 4), Group("b", 1, (Need(0),))]), Rules())
    restore(state, range(5), {})
    assert step(state, Began(), 0.0).events[-1] == RunFinished(0.0, 5, 0)


def test_attempts_of_before_are_numbered_but_not_counted_as_tries() -> None:
    state = begin(Graph([Group("a")]), Rules(AllAtOnce(), retries=1))
    restore(state, [], {0: 7})
    assert step(state, Began(), 0.0).effects == (Start(0, 8),)
    delayed = step(state, Failed(0, 8, SERVER), 0.0).events[0]
    assert delayed == TaskDelayed(0, 8, 0.0, 1.0, SERVER)
    assert step(state, Ticked(), 1.0).effects == (Start(0, 9),)
    assert isinstance(step(state, Failed(0, 9, SERVER), 1.0).events[0], TaskFailed)


def test_a_queue_goes_on_after_what_is_finished() -> None:
    groups = [Group("a", 3, queue="q"), Group("b", 3, queue="q")]
    state = begin(Graph(groups), Rules(AllAtOnce()))
    restore(state, [0, 1, 2, 4], {})
    assert step(state, Began(), 0.0).effects == (Start(3, 1),)
    assert step(state, Finished(3, 1), 1.0).effects == (Start(5, 1),)


def test_members_that_were_found_at_run_time_are_restored_too() -> None:
    groups = [Group("list"), Group("each", None, (Need(0),)), Group("merge", 1, (Need(1),))]
    state = begin(Graph(groups), Rules(AllAtOnce()))
    restore(state, [0], {})
    step(state, Expanded(1, 3), 0.0)
    restore(state, [2, 3], {})
    assert step(state, Began(), 0.0).effects == (Start(4, 1),)
    assert state.finished == 3


def test_a_run_that_has_begun_cannot_be_restored() -> None:
    state = begin(Graph([Group("a")]), Rules())
    step(state, Began(), 0.0)
    with pytest.raises(InternalError, match="has begun"):
        restore(state, [0], {})


def test_a_hundred_thousand_finished_tasks_are_restored_at_once() -> None:
    count = 100_000
    groups = [Group("a", count), Group("b", count, (Need(0, block=1),)), Group("c", 1, (Need(1),))]
    state = begin(Graph(groups), Rules(Fixed(4)))
    finished = [*range(count), *range(count, 2 * count, 2)]
    began = process_time()
    restore(state, finished, dict.fromkeys(finished, 1))
    elapsed_s = process_time() - began
    assert state.line.ready == count / 2
    if sys.gettrace() is None:
        assert elapsed_s < 1.5, "about 0.05 s on a quiet machine"
