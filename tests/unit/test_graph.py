"""Declared order, groups, edges, levels, queues, the critical path, and the numbers of tasks."""

from __future__ import annotations

import sys
from time import process_time

import pytest

from headway.errors import (
    CycleError,
    InternalError,
    QueueOrderError,
    UnknownNeedError,
)
from headway.plans.graph import ARRIVALS_MAX, Graph, Need, Numbering, Task, TaskGroup
from headway.plans.ready import DONE, ReadySet


def _graph(**needs: str) -> Graph:
    """`_graph(a="", b="a")`: tasks in order, with their needs separated by spaces."""
    return Graph.of(Task(name, tuple(before.split())) for name, before in needs.items())


def test_an_empty_graph_has_no_path() -> None:
    graph = Graph.of(())
    assert graph.critical_path(()) == (0.0, ())
    assert graph.width() == 0
    assert graph.order == ()
    assert ReadySet(graph).open() == []


def test_a_cycle_is_shown_as_a_path() -> None:
    with pytest.raises(CycleError) as caught:
        _graph(start="", a="c start", b="a", c="b", behind="c")
    assert caught.value.message.endswith("in a circle: a -> c -> b -> a")
    assert caught.value.hint == "remove `c` from the needs of `a`, or cut the circle elsewhere"


def test_an_unknown_need_comes_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNeedError) as caught:
        _graph(enrich="", validate="enrch")
    assert caught.value.render() == (
        "error[HW002]: `validate` needs `enrch`, which the plan does not have\n"
        "  tasks.validate.needs\n"
        "hint: did you mean `enrich`?"
    )


def test_a_group_counts_once_in_a_path_and_with_all_its_members_in_the_width() -> None:
    graph = Graph([
        TaskGroup("fetch", 3),
        TaskGroup("parse", 3, (Need(0, block=1),)),
        TaskGroup("merge", 1, (Need(1),)),
        TaskGroup("found", None, (Need(2),)),
    ])  # fmt: skip
    assert graph.critical_path([2.0, 1.0, 5.0, 0.0]) == (8.0, (0, 1, 2, 3))
    assert (len(graph.levels), graph.width()) == (4, 3)
    assert Graph([TaskGroup("found", None)]).width() == 1


def test_members_that_need_each_other_are_equally_many() -> None:
    with pytest.raises(InternalError, match="`b` needs members of a group of another size"):
        Graph([TaskGroup("a", 3), TaskGroup("b", 4, (Need(0, block=1),))])
    with pytest.raises(InternalError, match="`b` needs members of a group of another size"):
        Graph([TaskGroup("a", 3), TaskGroup("b", None, (Need(0, block=1),))])


def test_what_a_byte_cannot_count_is_refused() -> None:
    count = ARRIVALS_MAX + 1
    groups = [TaskGroup(str(number), 2) for number in range(count)]
    last = TaskGroup("last", 2, tuple(Need(number, block=1) for number in range(count)))
    with pytest.raises(InternalError, match="each of `last` needs 256 members of others"):
        Graph([*groups, last])


def test_blocks_are_as_many_as_members_need_them() -> None:
    graph = Graph([
        TaskGroup("a", 9),
        TaskGroup("b", 3, (Need(0, block=4),)),
        TaskGroup("c", 1, (Need(1, block=4, is_lenient=True),)),
        TaskGroup("d", 3, (Need(1, block=1), Need(0, block=4, is_lenient=True), Need(2))),
    ])  # fmt: skip
    assert graph.blocks == ((), (Need(0, 4),), (), (Need(0, 4, is_lenient=True), Need(1, 1)))
    assert graph.arrivals == (0, 4, 0, 5)
    assert graph.memberwise == ((), (), (), (1,))
    assert graph.followers == (((1, 4, False), (3, 4, True)), ((3, 1, False),), (), ())
    assert graph.waiters == ((), (2,), (3,), ())
    assert [*map(set, graph.lenient)] == [set(), set(), {1}, {0}]
    with pytest.raises(InternalError, match="`b` needs members of a group of another size"):
        Graph([TaskGroup("a", 9), TaskGroup("b", 2, (Need(0, block=4),))])


def test_unknown_sizes_of_blocks_go_along_one_chain() -> None:
    first = [TaskGroup("a", None), TaskGroup("b", None, (Need(0, block=2),))]
    Graph([*first, TaskGroup("c", None, (Need(1, block=2), Need(0, block=4)))])
    with pytest.raises(InternalError, match="`c` needs members of two groups of unknown size"):
        Graph([*first, TaskGroup("c", None, (Need(1, block=2), Need(0, block=2)))])


@pytest.mark.parametrize("other", [Need(0), Need(0, block=2), Need(0, block=3, is_lenient=True)])
def test_a_group_is_not_needed_in_two_ways_that_contradict_each_other(other: Need) -> None:
    with pytest.raises(InternalError, match="`b` needs `a` in two ways"):
        Graph([TaskGroup("a", 6), TaskGroup("b", 2, (Need(0, block=3), other))])
    Graph([TaskGroup("a", 6), TaskGroup("b", 2, (Need(0, block=3), Need(0, block=3)))])


def test_a_queue_whose_order_contradicts_a_need_is_refused() -> None:
    with pytest.raises(QueueOrderError) as caught:
        Graph([TaskGroup("deploy", 1, (Need(1),), queue="live"), TaskGroup("build", queue="live")])
    assert "contradicts a need: deploy -> build -> deploy\n  tasks.deploy" in caught.value.render()


def test_tasks_are_numbered_group_by_group() -> None:
    numbers = Numbering(
        [TaskGroup("a", 2), TaskGroup("later", None), TaskGroup("none", 0), TaskGroup("b", 3)]
    )
    assert [numbers.place(task) for task in range(5)] == [(0, 0), (0, 1), (3, 0), (3, 1), (3, 2)]
    assert numbers.task_of(3, 1) == 3
    assert numbers.group_of(4) == 3
    assert numbers.members(3) == range(2, 5)
    assert len(numbers.members(2)) == len(numbers.members(1)) == 0
    assert numbers.is_known(2)
    assert not numbers.is_known(1)
    assert (numbers.total, numbers.unknown) == (5, 1)


def test_members_that_are_found_later_get_the_next_free_numbers() -> None:
    numbers = Numbering([TaskGroup("later", None), TaskGroup("a", 2), TaskGroup("last", None)])
    assert numbers.expand(2, 3) == range(2, 5)
    assert numbers.expand(0, 1) == range(5, 6)
    assert (numbers.place(4), numbers.place(5)) == ((2, 2), (0, 0))
    assert (numbers.total, numbers.unknown) == (6, 0)
    with pytest.raises(InternalError, match="group 0 has got its members before"):
        numbers.expand(0, 2)


def test_a_chain_of_a_hundred_thousand_tasks_is_a_plan_like_any_other() -> None:
    size = 100_000
    began = process_time()
    tasks = [Task(f"t{number}", (f"t{number - 1}",) if number else ()) for number in range(size)]
    graph = Graph.of(tasks)
    length_s, path = graph.critical_path([1.0] * size)
    ready = ReadySet(graph)
    freed = ready.open()
    while freed:
        freed = ready.done(freed[0].start)
    elapsed_s = process_time() - began
    assert (length_s, len(path)) == (float(size), size)
    assert ready.states.count(DONE) == size
    lost = ReadySet(graph)
    lost.open()
    assert sum(map(len, lost.fail(0)[0])) == size - 1
    if sys.gettrace() is None:
        assert elapsed_s < 5.0, "about one second on a quiet machine"
