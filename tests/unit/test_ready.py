"""Who may start when: members, whole groups, empty ones, and those that are found at run time."""

from __future__ import annotations

import pytest

from headway.errors import InternalError
from headway.plans.graph import Graph, Need, Task, TaskGroup
from headway.plans.ready import DONE, FAILED, LOST, READY, ReadySet

DIAMOND = {"top": "", "left": "top", "right": "top", "bottom": "left right"}


def _single(**needs: str) -> ReadySet:
    """`_single(a="", b="a")`: tasks in order, with their needs separated by spaces."""
    return ReadySet(Graph.of(Task(name, tuple(before.split())) for name, before in needs.items()))


def _each(*needs: int) -> tuple[Need, ...]:
    return tuple(Need(need, block=1) for need in needs)


def _numbers(ranges: list[range]) -> list[int]:
    return [task for tasks in ranges for task in tasks]


def test_a_task_is_ready_when_its_last_need_is_done() -> None:
    ready = _single(**DIAMOND)
    assert ready.open() == [range(1)]
    assert _numbers(ready.done(0)) == [1, 2]
    assert ready.done(2) == []
    assert ready.done(1) == [range(3, 4)]
    assert ready.done(3) == []


def test_everything_behind_a_failure_is_lost_once() -> None:
    ready = _single(**DIAMOND, alone="", after="bottom alone")
    ready.open()
    ready.done(0)
    assert _numbers(ready.doomed(1)) == [3, 5]
    assert _numbers(ready.fail(1)[0]) == [3, 5]
    assert ready.fail(2)[0] == []
    assert ready.done(4) == []
    assert ready.states == bytes((DONE, FAILED, FAILED, LOST, DONE, LOST))


def test_a_resume_may_report_what_is_done_in_any_order() -> None:
    ready = _single(b="a", c="b", a="")
    ready.open()
    assert ready.done(0) == [range(1, 2)]
    assert ready.done(2) == [], "`b` was done before `a` was reported"


def test_a_failure_does_not_take_back_what_is_done() -> None:
    ready = _single(a="", b="a", c="b")
    ready.open()
    assert ready.done(1) == [range(2, 3)]
    assert ready.fail(0)[0] == []
    assert ready.states.count(READY) == 1


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


def test_a_member_follows_its_own_member_and_waits_for_no_other() -> None:
    ready = ReadySet(
        Graph([TaskGroup("a", 3), TaskGroup("b", 3, _each(0)), TaskGroup("c", 3, _each(0, 1))])
    )
    assert ready.open() == [range(3)]
    assert ready.done(1) == [range(4, 5)]
    assert ready.done(4) == [range(7, 8)]
    assert ready.done(2) == [range(5, 6)]


def test_a_failed_member_takes_only_its_own_followers_along() -> None:
    groups = [TaskGroup("a", 3), TaskGroup("b", 3, _each(0)), TaskGroup("c", 3, _each(1))]
    ready = ReadySet(Graph(groups))
    ready.open()
    assert _numbers(ready.fail(1)[0]) == [4, 7]
    assert ready.done(0) == [range(3, 4)]
    assert _numbers(ready.fail(3)[0]) == [6]


def test_a_failed_member_takes_all_along_that_need_the_whole_group() -> None:
    groups = [TaskGroup("a", 3), TaskGroup("b", 3, _each(0)), TaskGroup("all", 2, (Need(1),)),
              TaskGroup("behind", 2, _each(2))]  # fmt: skip
    ready = ReadySet(Graph(groups))
    ready.open()
    assert ready.doomed(1) == [range(4, 5), range(6, 8), range(8, 10)]
    assert ready.fail(1)[0] == [range(4, 5), range(6, 8), range(8, 10)]
    assert ready.is_lost[2]
    assert ready.fail(2)[0] == [range(5, 6)], "the rest was lost before"


def test_an_empty_group_is_done_when_its_own_needs_are() -> None:
    groups = [
        TaskGroup("a"),
        TaskGroup("none", 0, (Need(0),)),
        TaskGroup("none-too", 0, (Need(1),)),
        TaskGroup("last", 2, (Need(2),)),
    ]
    ready = ReadySet(Graph(groups))
    assert ready.open() == [range(1)]
    assert not ready.is_done(2)
    assert ready.done(0) == [range(1, 3)]
    assert ready.is_done(2)


def test_members_are_found_at_run_time() -> None:
    groups = [
        TaskGroup("list"),
        TaskGroup("each", None, (Need(0),)),
        TaskGroup("merge", 1, (Need(1),)),
    ]
    ready = ReadySet(Graph(groups))
    assert ready.open() == [range(1)]
    assert ready.unknown == 1
    assert ready.done(0) == []
    assert ready.expand(1, 3) == [range(2, 5)]
    assert ready.unknown == 0
    assert _numbers([*ready.done(2), *ready.done(3), *ready.done(4)]) == [1]


def test_what_was_done_before_is_counted_at_once() -> None:
    groups = [
        TaskGroup("a", 4),
        TaskGroup("b", 4, _each(0)),
        TaskGroup("merge", 2, (Need(1),)),
        TaskGroup("last"),
    ]
    ready = ReadySet(Graph(groups))
    ready.open()
    assert ready.restore([0, 1, 2, 4, 0]) == 4
    assert sorted(_numbers(ready.open())) == [3, 5, 6, 10]
    assert ready.restore([3, 5, 6, 7]) == 4
    assert sorted(_numbers(ready.open())) == [8, 9, 10]
    assert ready.is_done(1)


def test_a_group_that_is_done_entirely_frees_others_whatever_it_needs() -> None:
    groups = [TaskGroup("a"), TaskGroup("b", 2, (Need(0),)), TaskGroup("c", 1, (Need(1),))]
    ready = ReadySet(Graph(groups))
    ready.open()
    ready.restore([1, 2])
    assert ready.open() == [range(1), range(3, 4)]
    assert ready.done(0) == [], "what it frees is done"


def _blocks(group: int, block: int, *, is_lenient: bool = False) -> tuple[Need, ...]:
    return (Need(group, block, is_lenient),)


def test_a_member_is_ready_when_its_block_is_done() -> None:
    ready = ReadySet(Graph([TaskGroup("a", 5), TaskGroup("b", 2, _blocks(0, 3))]))
    assert ready.open() == [range(5)]
    assert _numbers([*ready.done(0), *ready.done(2), *ready.done(4)]) == []
    assert ready.done(3) == [range(6, 7)], "the last block is smaller"
    assert ready.done(1) == [range(5, 6)]


def test_a_lenient_need_is_met_by_whoever_has_ended() -> None:
    groups = [TaskGroup("a", 5), TaskGroup("b", 2, _blocks(0, 3, is_lenient=True)),
              TaskGroup("all", 1, (Need(1),))]  # fmt: skip
    ready = ReadySet(Graph(groups))
    ready.open()
    assert _numbers([*ready.done(0), *ready.done(1)]) == []
    assert ready.fail(2) == ([], [range(5, 6)])
    assert ready.fail(4) == ([], [])
    assert ready.fail(3) == ([], [range(6, 7)])
    assert _numbers([*ready.done(5), *ready.done(6)]) == [7]


def test_who_is_missing_is_forgiven_but_not_that_nobody_knows_them() -> None:
    groups = [TaskGroup("list"), TaskGroup("a", None, (Need(0),)),
              TaskGroup("b", None, _blocks(1, 4, is_lenient=True)),
              TaskGroup("all", 1, (Need(2, is_lenient=True),))]  # fmt: skip
    ready = ReadySet(Graph(groups))
    ready.open()
    assert ready.fail(0) == ([range(1, 2)], [])
    assert ready.unknown == 0


def test_a_million_in_blocks_are_a_few_ranges() -> None:
    groups = [TaskGroup("x"), TaskGroup("a", 10**6, (Need(0),)),
              TaskGroup("b", 250_000, _blocks(1, 4, is_lenient=True)),
              TaskGroup("all", 1, (Need(2),))]  # fmt: skip
    ready = ReadySet(Graph(groups))
    ready.open()
    lost, freed = ready.fail(0)
    assert lost == [range(1, 10**6 + 1)]
    assert freed == [range(10**6 + 1, 10**6 + 250_001)]
