"""Schedules as texts, and who they choose."""

from __future__ import annotations

import pytest

from headway.errors import UsageError
from headway.plans.graph import Graph, TaskGroup
from headway.report.schedules import ScheduleText, pair_schedule, pct_schedule, read_line, written
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


def test_priorities_hold_until_a_change_point() -> None:
    ready = [3, 5, 7]
    steady = pct_schedule(1, 1, 10)
    first = steady(ready, 0)
    assert all(steady(ready, number) == first for number in range(10))
    changing = pct_schedule(1, 2, 10)
    chosen = [changing(ready, number) for number in range(10)]
    assert chosen[0] == first
    assert chosen[-1] != first


Choices = tuple[tuple[tuple[int, ...], int], ...]
"""Which places can take a step, and which one takes it, step by step."""

PAIRS: dict[str, tuple[str, int, bool, Choices]] = {
    "with what the second task waits for": (
        "before", 1, False, (((2, 4, 6), 4), ((2, 6, 8), 8), ((2, 6), 2)),
    ),
    "late: all others keep their places": (
        "before", 1, True, (((2, 4, 6, 9), 4), ((2, 6, 8, 9), 6), ((2, 8, 9), 8), ((2, 9), 2)),
    ),
    "inside the first task": ("inside", 2, False, (*(((2, 8), 2),) * 2, ((2, 8), 8), ((2,), 2))),
    "around the first task": ("around", 1, False, (((2, 8), 8), ((2, 8), 2), ((8,), 8))),
    "a second task that cannot begin": ("around", 1, False, (((2, 6), 2),)),
    "a first task that cannot begin": ("inside", 1, False, (((6, 8), 8),)),
}  # fmt: skip
"""The task at 2 is declared before that at 8; that at 4 comes before 8 in any case."""


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_turned_around(name: str) -> None:
    way, steps, is_late, choices = PAIRS[name]
    before = (frozenset[int](), frozenset({4}))
    line = ScheduleText("pair", (2, 8), way, steps, is_late)  # type: ignore[arg-type]
    choose = pair_schedule(line, before)
    assert [choose(ready, 0) for ready, _ in choices] == [chosen for _, chosen in choices]
