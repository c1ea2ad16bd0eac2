"""Who may start when: members, whole groups, empty ones, and those that are found at run time."""

from __future__ import annotations

import pytest

from headway.errors import InternalError
from headway.plans.graph import Graph, Need, Task, TaskGroup
from headway.plans.ready import ReadySet


def _single(**needs: str) -> ReadySet:
    """`_single(a="", b="a")`: tasks in order, with their needs separated by spaces."""
    return ReadySet(Graph.of(Task(name, tuple(before.split())) for name, before in needs.items()))


def _each(*needs: int) -> tuple[Need, ...]:
    return tuple(Need(need, block=1) for need in needs)


@pytest.mark.parametrize("state", ["done", "failed", "lost"])
def test_a_task_ends_once(state: str) -> None:
    ready = _single(a="", b="a")
    ready.open()
    if state == "done":
        ready.done(0)
    else:
        ready.fail(0)
    task = 1 if state == "lost" else 0
    with pytest.raises(InternalError, match=f"is {state} and ends a second time"):
        ready.done(task)
    with pytest.raises(InternalError, match=f"is {state} and ends a second time"):
        ready.fail(task)


def test_a_group_is_ready_as_one_range() -> None:
    ready = ReadySet(Graph([TaskGroup("a", 1000), TaskGroup("b", 500, (Need(0),))]))
    assert ready.open() == [range(1000)]
    for task in range(999):
        assert ready.done(task) == []
    assert not ready.is_done(0)
    assert ready.done(999) == [range(1000, 1500)]
    assert ready.is_done(0)


def test_a_failed_member_takes_all_along_that_need_the_whole_group() -> None:
    groups = [TaskGroup("a", 3), TaskGroup("b", 3, _each(0)), TaskGroup("all", 2, (Need(1),)),
              TaskGroup("behind", 2, _each(2))]  # fmt: skip
    ready = ReadySet(Graph(groups))
    ready.open()
    assert ready.doomed(1) == [range(4, 5), range(6, 8), range(8, 10)]
    assert ready.fail(1)[0] == [range(4, 5), range(6, 8), range(8, 10)]
    assert ready.is_lost[2]
    assert ready.fail(2)[0] == [range(5, 6)], "the rest was lost before"


def _blocks(group: int, block: int, *, is_lenient: bool = False) -> tuple[Need, ...]:
    return (Need(group, block, is_lenient),)


def test_a_million_in_blocks_are_a_few_ranges() -> None:
    groups = [TaskGroup("x"), TaskGroup("a", 10**6, (Need(0),)),
              TaskGroup("b", 250_000, _blocks(1, 4, is_lenient=True)),
              TaskGroup("all", 1, (Need(2),))]  # fmt: skip
    ready = ReadySet(Graph(groups))
    ready.open()
    lost, freed = ready.fail(0)
    assert lost == [range(1, 10**6 + 1)]
    assert freed == [range(10**6 + 1, 10**6 + 250_001)]
