"""Schedules as texts, and who they choose."""

from __future__ import annotations

import pytest

from headway.errors import UsageError
from headway.plans.graph import Graph, TaskGroup
from headway.report.schedules import (
    Pair,
    pct_schedule,
    random_schedule,
    read_line,
    steps_schedule,
    written,
)
from headway.state.coherence import TaskPositions

PLACES = TaskPositions(Graph([TaskGroup("a"), TaskGroup("b", 3), TaskGroup("c")]))


@pytest.mark.parametrize(
    "text",
    [
        "serial",
        "serial:crash=3",
        "steps:0.0.1-2.2",
        "steps:0.1:crash=2",
        "random:seed=7",
        "random:seed=7:crash=1",
        "pct:seed=7:d=3",
        "pct:seed=0:d=1:crash=9",
        "pair:a=0:b=2:before",
        "pair:a=0:b=1-1:inside=2",
        "pair:a=0:b=2:around=1:late",
        "pair:a=1-0:b=1-1:before:late:crash=4",
    ],
)
def test_a_schedule_is_its_text(text: str) -> None:
    line = read_line(text, PLACES)
    again = written(line, PLACES)
    assert read_line(again, PLACES) == line
    assert again == text.replace("1-0", "1")


@pytest.mark.parametrize(
    "text",
    [
        "", "nobody", "serial:x=1", "steps:", "steps:9", "steps:x", "random", "random:seed=x",
        "pct:seed=1", "pct:d=1:seed=1", "pair:a=0:b=1", "pair:a=0:b=1:beside=1",
        "pair:b=0:a=1:before", "serial:crash=x", "steps:" + "0." * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no schedule of this plan"):
        read_line(text, PLACES)


def test_steps_are_taken_as_told_and_then_serially() -> None:
    steps = steps_schedule((5, 3))
    assert [steps([3, 5], number) for number in range(3)] == [5, 3, 3]
    with pytest.raises(UsageError, match="step 1 of the schedule cannot be taken"):
        steps([3], 0)


def test_draws_reach_everybody_and_are_the_same_again() -> None:
    ready = [3, 5, 7]
    chosen = [random_schedule(1)(ready, number) for number in range(50)]
    assert set(chosen) == set(ready)
    assert chosen == [random_schedule(1)(ready, number) for number in range(50)]


def test_priorities_hold_until_a_change_point() -> None:
    ready = [3, 5, 7]
    steady = pct_schedule(1, 1, 10)
    first = steady(ready, 0)
    assert all(steady(ready, number) == first for number in range(10))
    changing = pct_schedule(1, 2, 10)
    chosen = [changing(ready, number) for number in range(10)]
    assert chosen[0] == first
    assert chosen[-1] != first


def pair(way: str, *, is_late: bool = False, steps: int = 1) -> Pair:
    """The task at 2 is declared before that at 8; that at 4 comes before 8 in any case."""
    nobody: frozenset[int] = frozenset()
    return Pair(2, 8, way, steps, (nobody, frozenset({4})), is_late)  # type: ignore[arg-type]


def test_before_lets_the_second_task_run_with_what_it_waits_for() -> None:
    turned = pair("before")
    assert turned.choose([2, 4, 6], 0) == 4
    assert turned.choose([2, 6, 8], 1) == 8
    assert turned.choose([2, 6], 2) == 2


def test_late_keeps_all_others_in_their_places() -> None:
    turned = pair("before", is_late=True)
    assert turned.choose([2, 4, 6, 9], 0) == 4
    assert turned.choose([2, 6, 8, 9], 1) == 6
    assert turned.choose([2, 8, 9], 2) == 8
    assert turned.choose([2, 9], 3) == 2


def test_inside_lets_the_first_task_begin() -> None:
    turned = pair("inside", steps=2)
    assert [turned.choose([2, 8], number) for number in range(4)] == [2, 2, 8, 8]
    assert turned.choose([2], 4) == 2


def test_around_lets_the_second_task_begin() -> None:
    turned = pair("around")
    assert [turned.choose([2, 8], number) for number in range(3)] == [8, 2, 2]
    assert turned.choose([8], 3) == 8


def test_a_task_that_cannot_begin_is_not_waited_for() -> None:
    turned = pair("around")
    assert turned.choose([2, 6], 0) == 2
    blocked = pair("inside")
    assert blocked.choose([6, 8], 0) == 8
