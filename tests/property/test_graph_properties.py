"""For any graph: orders respect needs, ranks match a naive search, readiness comes once."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import CycleError
from headway.plans.graph import Graph, Task
from headway.plans.ready import DONE, LOST, PENDING, READY, ReadySet
from tests.property.engine_runs import blocks_in, graphs


@st.composite
def plans(draw: st.DrawFn) -> tuple[Graph, list[float]]:
    """A graph without cycles, declared in any order, and durations."""
    size = draw(st.integers(0, 12))
    declared = draw(st.permutations(range(size)))
    tasks: dict[int, Task] = {}
    for task in range(size):
        needs = draw(st.lists(st.integers(0, task - 1), max_size=4)) if task else []
        tasks[task] = Task(str(task), tuple(map(str, needs)))
    weights = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    return Graph.of(tasks[task] for task in declared), [float(weight) for weight in weights]


def _numbers(ranges: list[range]) -> list[int]:
    return [task for tasks in ranges for task in tasks]


@given(plans())
def test_every_task_comes_after_its_needs(plan: tuple[Graph, list[float]]) -> None:
    graph, _ = plan
    place = {task: number for number, task in enumerate(graph.order)}
    assert sorted(place) == list(range(len(graph)))
    for task, needs in enumerate(graph.needs):
        assert all(place[need] < place[task] for need in needs)
        assert all(task in graph.dependents[need] for need in needs)
        assert needs == tuple(sorted({graph.index[name] for name in graph.tasks[task].needs}))


@given(plans())
def test_ranks_and_the_critical_path_match_a_naive_search(
    plan: tuple[Graph, list[float]],
) -> None:
    graph, weights = plan

    @cache
    def longest(task: int) -> float:
        return weights[task] + max(map(longest, graph.dependents[task]), default=0.0)

    rank = graph.upward_rank(weights)
    assert rank == [longest(task) for task in range(len(graph))]
    length_s, path = graph.critical_path(weights)
    assert length_s == sum(weights[task] for task in path) == max(rank, default=0.0)
    for task, after in pairwise(path):
        assert after in graph.dependents[task]


@given(plans(), st.data())
def test_each_task_is_ready_or_lost_exactly_once(
    plan: tuple[Graph, list[float]], data: st.DataObject
) -> None:
    graph, _ = plan
    ready = ReadySet(graph)
    active = _numbers(ready.open())
    started: list[int] = list(active)
    done: set[int] = set()
    lost: list[int] = []
    while active:
        task = active.pop(data.draw(st.integers(0, len(active) - 1)))
        assert all(need in done for need in graph.needs[task])
        if data.draw(st.integers(0, 4)):
            done.add(task)
            freed = _numbers(ready.done(task))
            active += freed
            started += freed
        else:
            doomed = ready.doomed(task)
            assert ready.fail(task) == (doomed, [])
            lost += _numbers(doomed)
        assert ready.states.count(READY) == len(active)
    assert sorted(started + lost) == list(range(len(graph)))
    assert PENDING not in ready.states
    assert READY not in ready.states
    assert (ready.states.count(DONE), ready.states.count(LOST)) == (len(done), len(lost))


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8))
def test_what_is_refused_as_a_cycle_is_one(needs: list[list[int]]) -> None:
    size = len(needs)
    tasks = [
        Task(str(task), tuple(str(need) for need in before if need < size))
        for task, before in enumerate(needs)
    ]
    try:
        graph = Graph.of(tasks)
    except CycleError as error:
        circle = error.message.rpartition(": ")[2].split(" -> ")
        assert circle[0] == circle[-1]
        assert len(set(circle)) == len(circle) - 1
        for task, need in pairwise(circle):
            assert need in tasks[int(task)].needs
    else:
        assert len(graph.order) == size
        with pytest.raises(CycleError):
            Graph.of([*tasks, Task("x", ("y",)), Task("y", ("x",))])


@settings(max_examples=60)
@given(graphs(), st.data())
def test_restoring_gives_what_reporting_one_by_one_gives(graph: Graph, data: st.DataObject) -> None:
    one_by_one, at_once = ReadySet(graph), ReadySet(graph)
    for ready in (one_by_one, at_once):
        ready.open()
        counts: dict[int, int] = {}
        for group in graph.order:
            if not ready.numbers.is_known(group):
                sources = [n for n in graph.blocks[group] if n.group in counts]
                sizes = [blocks_in(counts[need.group], need.block) for need in sources]
                counts[group] = (sizes[0] if sizes else None) or 3
                ready.expand(group, counts[group])
    total = one_by_one.numbers.total
    done = data.draw(st.lists(st.integers(0, max(total - 1, 0)), unique=True, max_size=total))
    for task in done:
        one_by_one.done(task)
    assert at_once.restore(done) == len(done)
    at_once.open()
    assert at_once.states == one_by_one.states
    for task in range(total):
        if at_once.states[task] < DONE:
            freed = sorted(_numbers(one_by_one.done(task)))
            assert sorted(_numbers(at_once.done(task))) == freed
