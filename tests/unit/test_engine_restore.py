"""What an earlier process has done, taken over at once."""

from __future__ import annotations

import pytest

from headway.base.values import Fault
from headway.engine.engine import begin, restore, step
from headway.engine.events import (
    Began,
    Expanded,
    Failed,
    Finished,
    RunFinished,
    StartAttempt,
    TaskDelayed,
    TaskFailed,
    Ticked,
)
from headway.engine.state import Rules
from headway.engine.strategy import ALL_AT_ONCE
from headway.errors import InternalError
from headway.plans.graph import Graph, Need, TaskGroup

SERVER = Fault("server")


def test_what_is_finished_is_not_started_again() -> None:
    groups = [
        TaskGroup("a", 4),
        TaskGroup("b", 4, (Need(0, block=1),)),
        TaskGroup("merge", 1, (Need(1),)),
    ]
    state = begin(Graph(groups), Rules(ALL_AT_ONCE))
    restore(state, [0, 1, 3, 4], {2: 3, 0: 1})
    assert step(state, Began(), 0.0).effects == (
        StartAttempt(2, 4),
        StartAttempt(5, 1),
        StartAttempt(7, 1),
    )
    assert state.finished == 4


def test_a_run_that_was_complete_is_over_when_it_begins() -> None:
    state = begin(Graph([TaskGroup("a", 4), TaskGroup("b", 1, (Need(0),))]), Rules())
    restore(state, range(5), {})
    assert step(state, Began(), 0.0).events[-1] == RunFinished(0.0, 5, 0)


def test_attempts_of_before_are_numbered_but_not_counted_as_tries() -> None:
    state = begin(Graph([TaskGroup("a")]), Rules(ALL_AT_ONCE, retries=1))
    restore(state, [], {0: 7})
    assert step(state, Began(), 0.0).effects == (StartAttempt(0, 8),)
    delayed = step(state, Failed(0, 8, SERVER), 0.0).events[0]
    assert delayed == TaskDelayed(0, 8, 0.0, 1.0, SERVER)
    assert step(state, Ticked(), 1.0).effects == (StartAttempt(0, 9),)
    assert isinstance(step(state, Failed(0, 9, SERVER), 1.0).events[0], TaskFailed)


def test_a_queue_goes_on_after_what_is_finished() -> None:
    groups = [TaskGroup("a", 3, queue="q"), TaskGroup("b", 3, queue="q")]
    state = begin(Graph(groups), Rules(ALL_AT_ONCE))
    restore(state, [0, 1, 2, 4], {})
    assert step(state, Began(), 0.0).effects == (StartAttempt(3, 1),)
    assert step(state, Finished(3, 1), 1.0).effects == (StartAttempt(5, 1),)


def test_members_that_were_found_at_run_time_are_restored_too() -> None:
    groups = [
        TaskGroup("list"),
        TaskGroup("each", None, (Need(0),)),
        TaskGroup("merge", 1, (Need(1),)),
    ]
    state = begin(Graph(groups), Rules(ALL_AT_ONCE))
    restore(state, [0], {})
    step(state, Expanded(1, 3), 0.0)
    restore(state, [2, 3], {})
    assert step(state, Began(), 0.0).effects == (StartAttempt(4, 1),)
    assert state.finished == 3


def test_a_run_that_has_begun_cannot_be_restored() -> None:
    state = begin(Graph([TaskGroup("a")]), Rules())
    step(state, Began(), 0.0)
    with pytest.raises(InternalError, match="has begun"):
        restore(state, [0], {})
