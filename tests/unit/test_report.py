"""Folds of a run: the numbers of a table and the cells of a timeline."""

from __future__ import annotations

from math import inf

import pytest

from headway.report.bound import Bound
from headway.report.tables import Cell, StrategyRow, lanes_of, row_of, timeline
from headway.sim.rehearsal import (
    RehearsalSpan,
    Rehearsed,
    SpanKind,
    TaskTime,
)


def Ended(task: int, ended_s: float, done: bool = True) -> TaskTime:  # noqa: N802
    return TaskTime(task, 0.0, ended_s, done)


def outcome_of(ran: Rehearsed, bound_s: float) -> StrategyRow:
    return row_of("a", [ran], [Bound(bound_s, "width", bound_s, "width")])


SIGNS: dict[Cell, str] = {
    "here": ".", "provider": "-", "busy": "#", "done": "+", "failed": "x", "over": " ",
}  # fmt: skip


def test_numbers_of_a_run() -> None:
    spans = [RehearsalSpan(0, "here", 0.0, 4.0), RehearsalSpan(0, "provider", 4.0, 6.0)]
    ran = Rehearsed(
        tasks=[Ended(0, 9.0), Ended(1, 1.0, done=False), Ended(2, 2.5)],
        spans=[*spans, RehearsalSpan(0, "busy", 6.0, 9.0)],
        calls=[(0.0, 4.0), (2.0, 4.0)],
    )
    found = outcome_of(ran, 8.0)
    assert (found.first_result_s, found.in_flight_mean) == (2.5, 1.5)
    # A task's time begins when it first reaches the provider.
    assert outcome_of(Rehearsed(tasks=[Ended(0, 9.0)], spans=spans), 8.0).task_p95_s == 5.0
    nothing = outcome_of(Rehearsed(failed=1, tasks=[Ended(0, 1.0, done=False)]), 8.0)
    assert (nothing.first_result_s, nothing.task_p95_s, nothing.in_flight_mean) == (inf, inf, 0.0)


def test_a_row_takes_medians_of_times_and_means_of_counts() -> None:
    outcomes = [
        Rehearsed(makespan_s=makespan_s, refused=refused)
        for makespan_s, refused in ((12.0, 0), (10.0, 1), (30.0, 0), (11.0, 0), (13.0, 0))
    ]
    bounds = [Bound(8.0, "width", fair_s, "width") for fair_s in (9.0, 8.0, 20.0, 9.0, 10.0)]
    row = row_of("waves:4", outcomes, bounds)
    assert (row.makespan_s, row.makespan_min_s, row.makespan_max_s) == (12.0, 10.0, 30.0)
    assert (row.refused, row.refused_max, row.seeds) == (0.2, 1, 5)
    assert (row.bound_s, row.fair_s, row.ratio) == (8.0, 9.0, 12.0 / 8.0)
    assert row.loses_nothing


def test_a_strategy_that_loses_tasks_has_no_share_of_the_best() -> None:
    bounds = [Bound(8.0, "width", 8.0, "width")] * 2
    row = row_of("a", [Rehearsed(4.0), Rehearsed(4.0, failed=1)], bounds)
    assert not row.loses_nothing
    assert row.ratio == inf


@pytest.mark.parametrize(
    ("ends", "spans", "drawn"),
    [
        ([(8.0, True)], [("here", 0, 2), ("provider", 2, 5), ("busy", 5, 8)], "..---###+ "),
        ([(4.6, True)], [("busy", 1.4, 2.3), ("busy", 4.2, 4.6)], ".#..#+    "),
        ([(1.0, True)], [("provider", 0, 0.5), ("busy", 0.5, 1)], "#+        "),
        ([(2.0, False)], [("provider", 0, 2)], "--x       "),
        ([(0.0, True)], [], "+         "),
        ([], [("busy", 0, 3)], "###......."),
        ([(2.0, False), (5.0, True)], [("busy", 0, 2), ("busy", 3, 5)], "##.##+    "),
        ([(25.0, True)], [("busy", 8, 25), ("busy", 20, 22)], "........##"),
    ],
    ids=["where", "most", "tie", "lost", "at-once", "no-end", "last-end", "beyond"],
)
def test_a_cell_shows_what_a_task_did(
    ends: list[tuple[float, bool]], spans: list[tuple[SpanKind, float, float]], drawn: str
) -> None:
    ran = Rehearsed(
        tasks=[Ended(0, at_s, done) for at_s, done in ends],
        spans=[RehearsalSpan(0, *span) for span in spans],
    )
    (lane,) = timeline(lanes_of(ran, 1), 10.0, 10)
    assert "".join(SIGNS[cell] for cell in lane) == drawn
