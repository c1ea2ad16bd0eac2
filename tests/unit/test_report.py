"""Folds of a run: the numbers of a table and the cells of a timeline."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.numbers import median, percentile
from headway.engine.state import Rules
from headway.engine.strategy import Strategy
from headway.report.tables import Cell, StrategyRow, lanes_of, row_of, timeline
from headway.sim.clients import PATIENT, UnpacedDoor
from headway.sim.provider import Latency, Provider, ProviderSpec
from headway.sim.rehearsal import (
    Rehearsal,
    RehearsalSetup,
    RehearsalSpan,
    Rehearsed,
    TaskTime,
    WorkloadSpec,
    draw_workload,
)


def Ended(task: int, ended_s: float, done: bool = True) -> TaskTime:  # noqa: N802
    return TaskTime(task, 0.0, ended_s, done)


def outcome_of(ran: Rehearsed, bound_s: float) -> StrategyRow:
    return row_of("a", [ran], [bound_s])


def _drawn(lane: list[Cell]) -> str:
    signs: dict[Cell, str] = {
        "here": ".", "provider": "-", "busy": "#", "done": "+", "failed": "x", "over": " ",
    }  # fmt: skip
    return "".join(signs[cell] for cell in lane)


def _draw(ran: Rehearsed, tasks: int = 1, until_s: float = 10.0, columns: int = 10) -> list[str]:
    return [_drawn(lane) for lane in timeline(lanes_of(ran, tasks), until_s, columns)]


def test_the_first_result_is_the_first_task_that_is_done() -> None:
    ran = Rehearsed(tasks=[Ended(0, 1.0, done=False), Ended(1, 3.0), Ended(2, 2.5)])
    assert outcome_of(ran, 8.0).first_result_s == 2.5


def test_a_run_without_a_result_never_has_a_first_one() -> None:
    outcome = outcome_of(Rehearsed(failed=1, tasks=[Ended(0, 1.0, done=False)]), 8.0)
    assert outcome.first_result_s == inf
    assert outcome.task_p95_s == inf


def test_a_tasks_time_begins_when_it_first_reaches_the_provider() -> None:
    ran = Rehearsed(
        tasks=[Ended(0, 9.0)],
        spans=[
            RehearsalSpan(0, "here", 0.0, 4.0),
            RehearsalSpan(0, "provider", 4.0, 6.0),
            RehearsalSpan(0, "busy", 6.0, 9.0),
        ],
    )
    assert outcome_of(ran, 8.0).task_p95_s == 5.0


def test_a_task_that_never_reached_the_provider_has_no_time() -> None:
    assert outcome_of(Rehearsed(tasks=[Ended(0, 0.0)]), 8.0).task_p95_s == inf


def test_the_mean_in_flight_is_weighted_by_time() -> None:
    assert outcome_of(Rehearsed(calls=[(0.0, 4.0), (2.0, 4.0)]), 8.0).in_flight_mean == 1.5
    assert outcome_of(Rehearsed(), 8.0).in_flight_mean == 0.0


def test_a_row_takes_medians_of_times_and_means_of_counts() -> None:
    outcomes = [
        Rehearsed(makespan_s=makespan_s, refused=refused)
        for makespan_s, refused in ((12.0, 0), (10.0, 1), (30.0, 0), (11.0, 0), (13.0, 0))
    ]
    row = row_of("waves:4", outcomes, [8.0] * 5)
    assert (row.makespan_s, row.makespan_min_s, row.makespan_max_s) == (12.0, 10.0, 30.0)
    assert (row.refused, row.refused_max, row.seeds) == (0.2, 1, 5)
    assert row.ratio == 12.0 / 8.0


def test_a_row_loses_nothing_only_if_no_seed_does() -> None:
    assert row_of("a", [Rehearsed(), Rehearsed()], [8.0, 8.0]).loses_nothing
    assert not row_of("a", [Rehearsed(), Rehearsed(failed=1)], [8.0, 8.0]).loses_nothing


def test_the_percentile_is_a_value_that_occurred() -> None:
    assert percentile([float(n) for n in range(1, 21)], 0.95) == 19.0
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([], 0.95) == inf


def test_the_median_of_an_even_number_is_between_the_middle_two() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    assert median([1.0, inf, 2.0]) == 2.0


def test_a_cell_shows_where_the_task_was() -> None:
    ran = Rehearsed(
        tasks=[Ended(0, 8.0)],
        spans=[
            RehearsalSpan(0, "here", 0.0, 2.0),
            RehearsalSpan(0, "provider", 2.0, 5.0),
            RehearsalSpan(0, "busy", 5.0, 8.0),
        ],
    )
    assert _draw(ran) == ["..---###+ "]


def test_a_cell_shows_what_filled_most_of_it() -> None:
    ran = Rehearsed(
        tasks=[Ended(0, 4.6)],
        spans=[RehearsalSpan(0, "busy", 1.4, 2.3), RehearsalSpan(0, "busy", 4.2, 4.6)],
    )
    assert _draw(ran) == [".#..#+    "]


def test_service_wins_a_tie() -> None:
    ran = Rehearsed(
        tasks=[Ended(0, 1.0)],
        spans=[RehearsalSpan(0, "provider", 0.0, 0.5), RehearsalSpan(0, "busy", 0.5, 1.0)],
    )
    assert _draw(ran, columns=5, until_s=5.0) == ["#+   "]


def test_a_task_before_its_start_is_queued_here() -> None:
    assert _draw(Rehearsed(tasks=[Ended(0, 3.0)], spans=[RehearsalSpan(0, "busy", 2.0, 3.0)])) == [
        "..#+      "
    ]


def test_a_lost_task_is_marked_where_it_was_given_up() -> None:
    ran = Rehearsed(
        tasks=[Ended(0, 2.0, done=False)], spans=[RehearsalSpan(0, "provider", 0.0, 2.0)]
    )
    assert _draw(ran) == ["--x       "]


def test_a_task_that_ended_at_once_is_done_from_the_first_cell() -> None:
    assert _draw(Rehearsed(tasks=[Ended(0, 0.0)])) == ["+         "]


def test_a_task_without_an_end_waits_to_the_last_cell() -> None:
    assert _draw(Rehearsed(spans=[RehearsalSpan(0, "busy", 0.0, 3.0)])) == ["###......."]


def test_the_last_end_of_a_task_counts() -> None:
    ran = Rehearsed(
        tasks=[Ended(0, 2.0, done=False), Ended(0, 5.0)],
        spans=[RehearsalSpan(0, "busy", 0.0, 2.0), RehearsalSpan(0, "busy", 3.0, 5.0)],
    )
    assert _draw(ran) == ["##.##+    "]


def test_what_lies_beyond_the_last_column_is_cut_off() -> None:
    ran = Rehearsed(
        tasks=[Ended(0, 25.0)],
        spans=[RehearsalSpan(0, "busy", 8.0, 25.0), RehearsalSpan(0, "busy", 20.0, 22.0)],
    )
    assert _draw(ran) == ["........##"]


@pytest.mark.parametrize("columns", [1, 7, 80])
def test_a_rehearsal_can_be_folded(columns: int) -> None:
    workload = draw_workload(WorkloadSpec("w", 5, output_spread=0.5), 1)
    provider = Provider(ProviderSpec("p", latency=Latency(1.0, 0.02)), 1)
    setup = RehearsalSetup(workload, provider, UnpacedDoor(PATIENT, 1), Rules(Strategy("fixed", 2)))
    ran = Rehearsal(setup).run()
    outcome = outcome_of(ran, 1.0)
    assert outcome.in_flight_most == 2
    assert 1.0 < outcome.in_flight_mean <= 2.0
    assert outcome.first_result_s < outcome.makespan_s
    lanes = timeline(lanes_of(ran, 5), ran.makespan_s, columns)
    assert [len(lane) for lane in lanes] == [columns] * 5
