"""What is left of a run that a month's budget has stopped."""

from __future__ import annotations

from headway.engine.events import Ending
from headway.engine.record import TaskRow, TaskState
from headway.plans.graph import Graph, TaskGroup
from headway.report.text.health import passed_of, rest_of


def row(name: str, tokens: float, state: TaskState = "finished") -> TaskRow:
    ending = Ending(b"", b"", tokens - 1.0, 1.0, 0, 1)
    return TaskRow(name.encode(), name, state, 1, ending=ending)


GRAPH = Graph((TaskGroup("ask", 5), TaskGroup("judge", 2), TaskGroup("grown", None)))


def test_each_group_needs_what_its_finished_tasks_took() -> None:
    rows = [row("ask[a]", 10.0), row("ask[b]", 30.0), row("judge[1]", 100.0)]
    assert rest_of(GRAPH, [*rows, row("ask[c]", 999.0, "failed")], 94.0) == (4, 3 * 20.0 + 100.0)


def test_a_group_without_results_is_like_the_others_and_a_run_without_like_its_call() -> None:
    assert rest_of(GRAPH, [row("ask[a]", 10.0), row("ask[b]", 30.0)], 94.0) == (5, 5 * 20.0)
    assert rest_of(GRAPH, [], 94.0) == (7, 7 * 94.0)


def test_half_a_day_has_passed_at_noon() -> None:
    assert passed_of(86400.0 * 20_000 + 43_200.0) == 0.5
