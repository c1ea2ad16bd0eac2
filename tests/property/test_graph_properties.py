"""For any graph: orders respect needs, ranks match a naive search, readiness comes once."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import CycleError
from headway.plans.graph import Graph, Task


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
