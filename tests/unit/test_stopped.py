"""What is left of a run that a month's budget has stopped."""

from __future__ import annotations

import pytest

from headway.engine.events import Ending
from headway.engine.record import TaskRow, TaskState
from headway.pacing.memory import Spend
from headway.plans.graph import Graph, TaskGroup
from headway.report.health import BudgetRest
from headway.report.text.health import passed_of, rest_of

REFUSAL = "[HW205] this month's budget has no room for a call of up to 94 tokens, $0.0002; it is"
SPENT = Spend(1000.0, 500)


def row(name: str, tokens: float, state: TaskState = "finished") -> TaskRow:
    ending = Ending(b"", b"", tokens - 1.0, 1.0, 0, 1)
    return TaskRow(name.encode(), name, state, 1, ending=ending)


GRAPH = Graph((TaskGroup("ask", 5), TaskGroup("judge", 2), TaskGroup("grown", None)))


def test_each_group_needs_what_its_finished_tasks_took() -> None:
    rows = [row("ask[a]", 10.0), row("ask[b]", 30.0), row("judge[1]", 100.0)]
    rest = rest_of(GRAPH, [*rows, row("ask[c]", 999.0, "failed")], REFUSAL, SPENT)
    assert rest == BudgetRest(4, 3 * 20.0 + 100.0, 80.0, Spend(94.0, 200))


def test_a_group_without_results_is_like_the_others_and_a_run_without_like_its_call() -> None:
    rest = rest_of(GRAPH, [row("ask[a]", 10.0), row("ask[b]", 30.0)], REFUSAL, SPENT)
    assert rest == BudgetRest(5, 5 * 20.0, 50.0, Spend(94.0, 200))
    fresh = rest_of(GRAPH, [], REFUSAL, Spend())
    assert fresh is not None
    assert (fresh.tasks, fresh.tokens) == (7, 7 * 94.0)
    assert fresh.microusd == pytest.approx(7 * 200.0)


def test_whoever_was_not_refused_a_call_is_told_nothing() -> None:
    assert rest_of(GRAPH, [], "the budget of the run is reached", SPENT) is None


def test_half_a_day_has_passed_at_noon() -> None:
    assert passed_of(86400.0 * 20_000 + 43_200.0) == 0.5
