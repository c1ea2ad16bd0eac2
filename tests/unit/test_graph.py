"""Declared order, edges, levels, the critical path, and who may start when."""

from __future__ import annotations

import sys
from time import perf_counter

import pytest

from headway.core.plan.graph import CYCLE_SHOWN_MAX, Graph, ReadySet, Task
from headway.errors import CycleError, DuplicateTaskError, InternalError, UnknownNeedError


def _graph(**needs: str) -> Graph:
    """`_graph(a="", b="a")`: tasks in order, with their needs separated by spaces."""
    return Graph(Task(name, tuple(before.split())) for name, before in needs.items())


DIAMOND = {"top": "", "left": "top", "right": "top", "bottom": "left right"}


def test_indices_follow_the_declared_order() -> None:
    graph = _graph(**DIAMOND)
    assert [task.name for task in graph.tasks] == list(DIAMOND)
    assert graph.index["right"] == 2
    assert graph.needs == ((), (0,), (0,), (1, 2))
    assert graph.dependents == ((1, 2), (3,), (3,), ())


def test_a_need_may_be_declared_later_and_more_than_once() -> None:
    graph = _graph(b="a a", a="")
    assert graph.needs == ((1,), ())
    assert graph.order == (1, 0)


def test_an_empty_graph_has_no_path() -> None:
    graph = Graph(())
    assert graph.critical_path(()) == (0.0, ())
    assert graph.width() == 0
    assert graph.order == ()
    assert ReadySet(graph).ready() == []


def test_a_cycle_is_shown_as_a_path() -> None:
    with pytest.raises(CycleError) as caught:
        _graph(start="", a="c start", b="a", c="b", behind="c")
    assert caught.value.message.endswith("in a circle: a -> c -> b -> a")
    assert caught.value.hint == "remove `c` from the needs of `a`, or cut the circle elsewhere"


def test_a_cycle_that_is_reached_from_outside_begins_at_its_first_task() -> None:
    with pytest.raises(CycleError, match=r"circle: a -> b -> a"):
        _graph(outside="b", a="b", b="a")


def test_a_task_that_needs_itself_is_a_cycle() -> None:
    with pytest.raises(CycleError, match=r"circle: a -> a"):
        _graph(a="a")


def test_a_long_cycle_is_not_written_out() -> None:
    size = 40
    tasks = [Task(f"t{number}", (f"t{(number + 1) % size}",)) for number in range(size)]
    with pytest.raises(CycleError) as caught:
        Graph(tasks)
    message = caught.value.message
    assert message.endswith(" -> t10 -> (29 more) -> t0")
    assert message.count("->") == CYCLE_SHOWN_MAX


def test_an_unknown_need_comes_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNeedError) as caught:
        _graph(enrich="", validate="enrch")
    assert caught.value.render() == (
        "error[HW002]: `validate` needs `enrch`, which the plan does not have\n"
        "  tasks.validate.needs\n"
        "hint: did you mean `enrich`?"
    )


@pytest.mark.parametrize(
    ("need", "hint"),
    [
        ("review-07x", "did you mean `review-07`?"),
        ("zebra", "add a task `zebra` or remove the need"),
    ],
)
def test_in_a_large_plan_only_names_that_begin_alike_are_offered(need: str, hint: str) -> None:
    tasks = [Task(f"review-{number:02}") for number in range(40)]
    tasks += [Task(f"merge-{number:02}") for number in range(40)]
    with pytest.raises(UnknownNeedError) as caught:
        Graph([*tasks, Task("last", (need,))])
    assert caught.value.hint == hint


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateTaskError) as caught:
        Graph([Task("a"), Task("b"), Task("a")])
    assert caught.value.message == "two tasks have the name `a`"
    assert caught.value.where == "tasks 1 and 3"


def test_upward_rank_is_the_longest_way_to_the_end() -> None:
    graph = _graph(**DIAMOND)
    assert graph.upward_rank([1.0, 2.0, 5.0, 3.0]) == [9.0, 5.0, 8.0, 3.0]


def test_the_critical_path_goes_through_the_longest_tasks() -> None:
    graph = _graph(**DIAMOND, alone="")
    assert graph.critical_path([1.0, 2.0, 5.0, 3.0, 8.5]) == (9.0, (0, 2, 3))
    assert graph.critical_path([1.0, 2.0, 5.0, 3.0, 9.5]) == (9.5, (4,))


def test_equal_paths_are_chosen_as_declared() -> None:
    assert _graph(**DIAMOND).critical_path([1.0, 1.0, 1.0, 1.0]) == (3.0, (0, 1, 3))


def test_weights_come_from_the_tasks_or_from_the_caller() -> None:
    graph = Graph([Task("a", weight_s=2.0), Task("b", ("a",), weight_s=3.0)])
    assert graph.weights() == (2.0, 3.0)
    assert graph.critical_path(graph.weights()) == (5.0, (0, 1))
    with pytest.raises(InternalError, match="1 weights for 2 tasks"):
        graph.upward_rank([1.0])


def test_width_counts_the_fullest_level() -> None:
    graph = _graph(**DIAMOND, third="top", alone="")
    assert graph.width() == 3
    assert graph.order == (0, 5, 1, 2, 4, 3)
    assert repr(graph) == "<Graph 6 tasks, 5 edges, 3 levels>"
    assert graph.statistics().width == 3
    assert len(graph) == 6


def test_a_task_is_ready_when_its_last_need_is_done() -> None:
    ready = ReadySet(_graph(**DIAMOND))
    assert ready.ready() == [0]
    assert ready.done(0) == [1, 2]
    assert ready.done(2) == []
    assert ready.done(1) == [3]
    assert ready.done(3) == []
    assert ready.ready() == []


def test_everything_behind_a_failure_is_lost_once() -> None:
    ready = ReadySet(_graph(**DIAMOND, alone="", after="bottom alone"))
    ready.done(0)
    assert ready.fail(1) == [3, 5]
    assert ready.fail(2) == []
    assert ready.done(4) == []
    assert repr(ready) == "<ReadySet 0 waiting, 0 ready, 2 done, 2 failed, 2 lost>"
    statistics = ready.statistics()
    assert (statistics.waiting, statistics.ready, statistics.lost) == (0, 0, 2)


def test_a_resume_may_report_what_is_done_in_any_order() -> None:
    ready = ReadySet(_graph(b="a", c="b", a=""))
    assert ready.done(0) == [1]
    assert ready.done(2) == [], "`b` was done before `a` was reported"
    assert ready.ready() == [1]


def test_a_failure_does_not_take_back_what_is_done() -> None:
    ready = ReadySet(_graph(a="", b="a", c="b"))
    ready.done(1)
    assert ready.fail(0) == []
    assert ready.ready() == [2]


@pytest.mark.parametrize("state", ["done", "failed", "lost"])
def test_a_task_ends_once(state: str) -> None:
    ready = ReadySet(_graph(a="", b="a"))
    if state == "done":
        ready.done(0)
    else:
        ready.fail(0)
    task = 1 if state == "lost" else 0
    with pytest.raises(InternalError, match=f"is {state} and ends a second time"):
        ready.done(task)
    with pytest.raises(InternalError, match=f"is {state} and ends a second time"):
        ready.fail(task)


def test_a_chain_of_a_hundred_thousand_tasks_is_a_plan_like_any_other() -> None:
    size = 100_000
    began = perf_counter()
    tasks = [Task(f"t{number}", (f"t{number - 1}",) if number else ()) for number in range(size)]
    graph = Graph(tasks)
    length_s, path = graph.critical_path([1.0] * size)
    ready = ReadySet(graph)
    freed = ready.ready()
    while freed:
        freed = ready.done(freed[0])
    elapsed_s = perf_counter() - began
    assert (length_s, len(path)) == (float(size), size)
    assert ready.statistics().done == size
    assert ReadySet(graph).fail(0) == list(range(1, size))
    if sys.gettrace() is None:
        assert elapsed_s < 5.0, "about one second on a quiet machine"
