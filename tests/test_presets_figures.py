"""The figures of the documents, from the presets that were made for them.

"The Concurrency Trap": 22 agents all at once take 120 s, in waves of 4 they take 45 s, and the
best width is 3 to 5. "Concurrent vs. Parallel Execution": six scenarios around one account's
limits, and three times of day.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf

import pytest

from headway.report.tables import StrategyRow
from headway.sim.compare import Experiment, compare, parse_contenders, rehearse
from headway.sim.presets import PROVIDERS, WORKLOADS
from headway.sim.rehearsal import Rehearsed

SEEDS = (1, 2, 3, 4, 5)
ALL_AT_ONCE_S = pytest.approx(120.0, rel=0.1)
WAVES_S = pytest.approx(45.0, rel=0.1)
SEQUENTIAL_MIN = (28.0, 45.0)
"""What the document's stages take one after another, at any time of day."""


def _experiment(provider: str, seeds: tuple[int, ...] = SEEDS) -> Experiment:
    preset = PROVIDERS[provider]
    return Experiment(preset.spec, WORKLOADS[preset.workload], seeds)


@cache
def _row(provider: str, strategy: str, seeds: tuple[int, ...] = SEEDS) -> StrategyRow:
    return compare(_experiment(provider, seeds), parse_contenders(strategy)).rows[0]


@cache
def _sweep(provider: str) -> dict[int, StrategyRow]:
    rows = compare(_experiment(provider), parse_contenders("fixed:1..22")).rows
    return dict(enumerate(rows, start=1))


def _fastest_width(provider: str) -> int:
    sweep = _sweep(provider)
    return min(sweep, key=lambda width: sweep[width].makespan_s)


def _rehearse(provider: str, strategy: str) -> Rehearsed:
    contender = parse_contenders(strategy)[0]
    return rehearse(_experiment(provider), contender, 1)[0]


def _at_launch(ran: Rehearsed, kind: str) -> set[int]:
    return {stay.task for stay in ran.spans if stay.from_s == 0.0 and stay.kind == kind}


@pytest.mark.parametrize("provider", ["trap", "slots"])
@pytest.mark.parametrize("first", [1, 101, 1001])
def test_all_at_once_takes_120_s_and_waves_of_4_take_45_s(provider: str, first: int) -> None:
    seeds = tuple(range(first, first + 5))
    assert _row(provider, "all-at-once+aggressive", seeds).makespan_s == ALL_AT_ONCE_S
    assert _row(provider, "waves:4", seeds).makespan_s == WAVES_S


@pytest.mark.parametrize("provider", ["trap", "slots"])
def test_all_at_once_is_refused_and_loses_tasks_and_waves_of_4_are_not(provider: str) -> None:
    assert _row(provider, "all-at-once+aggressive").refused >= 22
    assert _row(provider, "all-at-once+sdk").failed >= 5
    assert _row(provider, "waves:4").refused_max == 0


def test_in_the_trap_all_at_once_runs_into_timeouts_and_pays_for_them() -> None:
    row = _row("trap", "all-at-once+aggressive")
    assert row.timeouts >= 10
    assert row.wasted_tokens >= 50_000


def test_in_the_trap_the_fastest_width_is_3_to_5() -> None:
    assert _fastest_width("trap") in (3, 4, 5)
    sweep = _sweep("trap")
    assert sweep[22].makespan_s > 2 * sweep[5].makespan_s


@pytest.mark.parametrize("strategy", ["headway", "headway+known"])
def test_in_the_trap_headway_settles_at_3_to_5_by_itself(strategy: str) -> None:
    row, sweep = _row("trap", strategy), _sweep("trap")
    assert 3.0 <= row.in_flight_mean <= 5.5
    assert row.makespan_s <= 1.03 * sweep[_fastest_width("trap")].makespan_s
    assert row.failed_max == 0


def test_in_the_slots_headway_settles_at_4() -> None:
    row = _row("slots", "headway+known")
    assert (row.in_flight_most, row.refused_max, row.failed_max) == (4, 0, 0)


@pytest.mark.parametrize("strategy", ["headway", "headway+known"])
def test_where_there_is_room_headway_does_not_settle_at_3_to_5(strategy: str) -> None:
    row = _row("wide", strategy)
    assert min(row.in_flight_most, _fastest_width("wide")) >= 20
    assert row.makespan_s <= 1.1 * _sweep("wide")[_fastest_width("wide")].makespan_s


@pytest.mark.parametrize("provider", ["trap", "slots"])
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=() if first % 20 == 1 else pytest.mark.soak)
        for first in range(1, 101, 5)
    ],
)
def test_headway_with_known_limits_is_refused_nothing_and_beaten_by_none(
    provider: str, first: int
) -> None:
    experiment = _experiment(provider, tuple(range(first, first + 5)))
    strategies = ("headway+known", "headway", "all-at-once+aggressive", "waves:4", "fixed:5")
    contenders = [parse_contenders(strategy)[0] for strategy in strategies]
    ours, *others = compare(experiment, contenders).rows
    assert (ours.refused_max, ours.failed_max) == (0, 0)
    for theirs in others:
        slower = 1.02 if theirs.strategy == "headway" else 1.0000001
        assert not theirs.loses_nothing or ours.makespan_s <= theirs.makespan_s * slower


@cache
def _minutes(time: str, strategy: str, seeds: tuple[int, ...]) -> tuple[float, ...]:
    """What the stages take, seed by seed, where company costs what it costs at this time of day."""
    experiment = _experiment(time, seeds)
    contender = parse_contenders(strategy)[0]
    return tuple(rehearse(experiment, contender, seed)[0].makespan_s / 60 for seed in seeds)


def _spans(minutes: Sequence[float], low: float, high: float) -> bool:
    """Whether times lie within a range and reach almost to its ends."""
    near, rounding = 0.1 * (high - low), 1e-9
    least, most = min(minutes), max(minutes)
    return low - rounding <= least <= low + near and high - near <= most <= high + rounding


@pytest.mark.parametrize("first", [1, 101, 1001])
@pytest.mark.parametrize(
    ("time", "low", "high"), [("off-peak", 18, 20), ("normal", 24, 35), ("peak", 32, 48)]
)
def test_four_at_once_take_as_many_minutes_as_the_document_says(
    time: str, low: float, high: float, first: int
) -> None:
    seeds = tuple(range(first, first + 40))
    one_by_one = _minutes(time, "fixed:1", seeds)
    at_once = _minutes(time, "all-at-once+aggressive", seeds)
    assert _spans(one_by_one, *SEQUENTIAL_MIN)
    assert _spans(at_once, low, high)
    gains = [1 - some / all_ for some, all_ in zip(at_once, one_by_one, strict=True)]
    # The small review of the document beside the small one, the large one beside the large one.
    ends = sorted(1 - some / all_ for some, all_ in zip((low, high), SEQUENTIAL_MIN, strict=True))
    assert [min(gains), max(gains)] == pytest.approx(ends, abs=0.02)


def test_the_stages_take_as_many_tokens_as_the_document_says() -> None:
    totals = []
    for seed in range(1, 41):
        calls = [call for task in WORKLOADS["stages"].draw(seed).calls for call in task]
        totals.append(sum(call.input_tokens + call.output_tokens for call in calls))
    assert 57_000 <= min(totals) < 58_500
    assert 66_000 < max(totals) <= 69_000


def test_at_peak_headway_that_has_learned_is_faster_than_one_by_one_and_than_four_at_once() -> None:
    ours = _row("peak", "headway+known")
    assert ours.makespan_s < 0.9 * _row("peak", "fixed:1").makespan_s
    assert ours.makespan_s < 0.8 * _row("peak", "all-at-once+aggressive").makespan_s
    assert ours.in_flight_mean < 2.5


def _stays(ran: Rehearsed) -> list[tuple[float, float]]:
    """Of each agent, when it was taken in and when it was done."""
    busy = sorted((stay.task, stay.from_s, stay.to_s) for stay in ran.spans if stay.kind == "busy")
    return [(from_s, to_s) for _, from_s, to_s in busy]


def test_in_the_best_timeline_all_four_are_done_after_2500_ms_and_one_by_one_after_10_000() -> None:
    ran = _rehearse("timeline-best", "all-at-once")
    assert _stays(ran) == [(0.0, 2.5)] * 4
    one_by_one = _rehearse("timeline-best", "fixed:1")
    assert one_by_one.makespan_s == pytest.approx(10.0)
    assert one_by_one.makespan_s / ran.makespan_s == pytest.approx(4.0)


def test_in_the_timeline_with_queueing_they_start_and_end_when_the_document_says() -> None:
    ran = _rehearse("timeline-queued", "all-at-once+aggressive")
    stays = [number for stay in _stays(ran) for number in stay]
    assert stays == pytest.approx([0.0, 1.01, 0.0, 2.0, 1.5, 3.0, 2.0, 3.5])
    assert ran.makespan_s == pytest.approx(3.5)
    assert ran.refused == 7
    assert 10.0 / ran.makespan_s == pytest.approx(2.86, abs=0.005)
    # The agents of this timeline do less than those of the other: one by one it is 6 s, not 10.
    one_by_one = _rehearse("timeline-queued", "fixed:1")
    assert one_by_one.makespan_s == pytest.approx(6.0, abs=0.02)
    assert one_by_one.makespan_s / ran.makespan_s == pytest.approx(1.71, abs=0.01)


def test_with_queueing_headway_asks_once_and_lets_the_longest_go_first() -> None:
    ran = compare(_experiment("timeline-queued", (1,)), parse_contenders("headway+known")).rows[0]
    assert ran.refused == 0
    assert ran.makespan_s == pytest.approx(3.01)
    assert ran.makespan_s == pytest.approx(ran.bound_s, rel=0.005)


def test_with_plenty_of_quota_all_four_agents_are_accepted() -> None:
    ran = _rehearse("launch-plenty", "all-at-once")
    assert (len(_at_launch(ran, "busy")), ran.refused) == (4, 0)
    one_by_one = _rehearse("launch-plenty", "fixed:1")
    assert 0.2 <= 1 - ran.makespan_s / one_by_one.makespan_s <= 0.31


@pytest.mark.parametrize(
    ("provider", "refused", "least_s", "most_s"),
    [
        ("launch-requests", set(range(20, 40)), 60.0, 70.0),
        ("launch-tokens", {2, 3}, 60.0, inf),
        ("limit-requests", {4}, 60.0, 62.0),
        ("limit-tokens", {4}, 60.0, inf),
    ],
)  # fmt: skip
def test_what_exceeds_a_limit_waits_for_the_next_minute(
    provider: str, refused: set[int], least_s: float, most_s: float
) -> None:
    ran = _rehearse(provider, "all-at-once")
    assert {stay.task for stay in ran.spans if stay.kind == "provider"} == refused
    if provider.startswith("launch-"):
        assert _at_launch(ran, "provider") == refused
        assert _at_launch(ran, "busy") == set(range(min(refused)))
    assert ran.refused == len(refused)
    assert least_s <= ran.makespan_s <= most_s


def test_with_17_agents_of_somebody_else_one_of_four_is_too_many() -> None:
    ran = _rehearse("limit-concurrency", "all-at-once")
    assert (len(_at_launch(ran, "busy")), len(_at_launch(ran, "provider"))) == (3, 1)
    assert ran.failed == 0


@pytest.mark.parametrize("provider", [one for one in PROVIDERS if one[:6] in ("launch", "limit-")])
@pytest.mark.parametrize("strategy", ["headway", "headway+known"])
def test_in_every_scenario_headway_loses_nothing(provider: str, strategy: str) -> None:
    assert _row(provider, strategy, (1,)).failed_max == 0


UNPACED_REFUSALS = {
    "launch-plenty": 0, "launch-requests": 20, "launch-tokens": 2,
    "limit-requests": 1, "limit-tokens": 1, "limit-concurrency": 7,
}  # fmt: skip
"""A client that tries again when it is told to, or sooner if it is told nothing."""


@pytest.mark.parametrize("provider", UNPACED_REFUSALS)
def test_who_has_seen_the_account_is_refused_nothing_and_no_slower(provider: str) -> None:
    """It knows limits, width and speed from before, and what the last response said is left."""
    unpaced = _row(provider, "all-at-once", (1,))
    assert unpaced.refused == UNPACED_REFUSALS[provider]
    ours = _row(provider, "headway+known+seen", (1,))
    assert (ours.refused, ours.failed) == (0, 0)
    assert ours.makespan_s <= 1.005 * unpaced.makespan_s


@pytest.mark.parametrize(
    ("provider", "refused"),
    [
        ("launch-requests", 2), ("launch-tokens", 2), ("limit-tokens", 1), ("limit-concurrency", 1),
    ],
)  # fmt: skip
def test_without_knowledge_what_others_took_before_costs_few_refusals(
    provider: str, refused: int
) -> None:
    assert _row(provider, "headway", (1,)).refused <= refused
