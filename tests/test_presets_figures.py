"""The figures of the documents, from the presets that were made for them.

"The Concurrency Trap": 22 agents all at once take 120 s, in waves of 4 they take 45 s, and the
best width is 3 to 5. "Concurrent vs. Parallel Execution": six scenarios around one account's
limits, and three times of day.
"""

from __future__ import annotations

from functools import cache

import pytest

from headway.core.foresight.rehearsal import Rehearsed
from headway.core.report import Row
from headway.simulator.compare import Experiment, compare, parse_contenders, rehearse
from headway.simulator.presets import PROVIDERS, WORKLOADS

SEEDS = (1, 2, 3, 4, 5)
ALL_AT_ONCE_S = pytest.approx(120.0, rel=0.1)
WAVES_S = pytest.approx(45.0, rel=0.1)


def _experiment(provider: str, seeds: tuple[int, ...] = SEEDS) -> Experiment:
    preset = PROVIDERS[provider]
    return Experiment(preset.spec, WORKLOADS[preset.workload], seeds)


@cache
def _row(provider: str, strategy: str, seeds: tuple[int, ...] = SEEDS) -> Row:
    return compare(_experiment(provider, seeds), parse_contenders(strategy)).rows[0]


@cache
def _sweep(provider: str) -> dict[int, Row]:
    rows = compare(_experiment(provider), parse_contenders("fixed:1..22")).rows
    return dict(enumerate(rows, start=1))


def _fastest_width(provider: str) -> int:
    sweep = _sweep(provider)
    return min(sweep, key=lambda width: sweep[width].makespan_s)


def _rehearse(provider: str, strategy: str) -> Rehearsed:
    contender = parse_contenders(strategy)[0]
    return rehearse(_experiment(provider), contender, 1)[0]


def _accepted_at_launch(ran: Rehearsed) -> set[int]:
    return {stay.task for stay in ran.spans if stay.from_s == 0.0 and stay.kind == "busy"}


def _refused_at_launch(ran: Rehearsed) -> set[int]:
    return {stay.task for stay in ran.spans if stay.from_s == 0.0 and stay.kind == "provider"}


@pytest.mark.parametrize("provider", ["trap", "slots"])
@pytest.mark.parametrize("first", [1, 101, 1001])
def test_all_at_once_takes_120_s_and_waves_of_4_take_45_s(provider: str, first: int) -> None:
    seeds = tuple(range(first, first + 5))
    assert _row(provider, "all-at-once+aggressive", seeds).makespan_s == ALL_AT_ONCE_S
    assert _row(provider, "waves:4", seeds).makespan_s == WAVES_S


@pytest.mark.parametrize("provider", ["trap", "slots"])
def test_all_at_once_is_refused_and_waves_of_4_are_not(provider: str) -> None:
    assert _row(provider, "all-at-once+aggressive").refused >= 22
    assert _row(provider, "waves:4").refused_max == 0


@pytest.mark.parametrize("provider", ["trap", "slots"])
def test_two_retries_as_in_the_sdks_lose_tasks(provider: str) -> None:
    assert _row(provider, "all-at-once+sdk").failed >= 5


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


def test_where_there_is_room_the_fastest_width_is_20_or_more() -> None:
    assert _fastest_width("wide") >= 20


@pytest.mark.parametrize("strategy", ["headway", "headway+known"])
def test_where_there_is_room_headway_does_not_settle_at_3_to_5(strategy: str) -> None:
    row = _row("wide", strategy)
    assert row.in_flight_most >= 20
    assert row.makespan_s <= 1.1 * _sweep("wide")[_fastest_width("wide")].makespan_s


@pytest.mark.parametrize("provider", ["trap", "slots"])
@pytest.mark.parametrize("first", range(1, 101, 5))
def test_headway_with_known_limits_is_refused_nothing_and_beaten_by_none(
    provider: str, first: int
) -> None:
    experiment = _experiment(provider, tuple(range(first, first + 5)))
    strategies = ("headway+known", "headway", "all-at-once+aggressive", "waves:4", "fixed:5")
    contenders = [parse_contenders(strategy)[0] for strategy in strategies]
    ours, *others = compare(experiment, contenders).rows
    assert (ours.refused_max, ours.failed_max) == (0, 0)
    for theirs in others:
        assert not theirs.loses_nothing or ours.makespan_s <= theirs.makespan_s * 1.0000001


def test_the_more_load_from_others_the_less_is_gained_by_four_at_once() -> None:
    gains = {
        time: 1 - _row(time, "all-at-once+aggressive").makespan_s / _row(time, "fixed:1").makespan_s
        for time in ("off-peak", "normal", "peak")
    }
    assert gains["off-peak"] == pytest.approx(0.4, abs=0.05)
    assert gains["normal"] == pytest.approx(0.3, abs=0.05)
    assert gains["peak"] < 0


def test_with_plenty_of_quota_all_four_agents_are_accepted() -> None:
    ran = _rehearse("launch-plenty", "all-at-once")
    assert len(_accepted_at_launch(ran)) == 4
    assert ran.refused == 0
    one_by_one = _rehearse("launch-plenty", "fixed:1")
    assert 0.2 <= 1 - ran.makespan_s / one_by_one.makespan_s <= 0.31


def test_near_the_request_limit_the_last_two_agents_wait_for_the_next_minute() -> None:
    ran = _rehearse("launch-requests", "all-at-once")
    assert _accepted_at_launch(ran) == set(range(20))
    assert _refused_at_launch(ran) == set(range(20, 40))
    assert 60.0 <= ran.makespan_s <= 70.0


def test_at_the_token_limit_two_agents_are_accepted_and_two_rejected() -> None:
    ran = _rehearse("launch-tokens", "all-at-once")
    assert _accepted_at_launch(ran) == {0, 1}
    assert _refused_at_launch(ran) == {2, 3}
    assert ran.makespan_s >= 60.0


def test_after_500_requests_in_a_minute_the_next_one_is_rejected() -> None:
    ran = _rehearse("limit-requests", "all-at-once")
    assert ran.refused == 1
    assert {stay.task for stay in ran.spans if stay.kind == "provider"} == {4}
    assert 60.0 <= ran.makespan_s <= 62.0


def test_after_95_000_tokens_in_a_minute_an_agent_of_25_000_is_rejected() -> None:
    ran = _rehearse("limit-tokens", "all-at-once")
    assert ran.refused == 1
    assert {stay.task for stay in ran.spans if stay.kind == "provider"} == {4}
    assert ran.makespan_s >= 60.0


def test_with_17_agents_of_somebody_else_one_of_four_is_too_many() -> None:
    ran = _rehearse("limit-concurrency", "all-at-once")
    assert len(_accepted_at_launch(ran)) == 3
    assert len(_refused_at_launch(ran)) == 1
    assert ran.failed == 0


@pytest.mark.parametrize(
    "provider", [name for name in PROVIDERS if name.startswith(("launch-", "limit-"))]
)
@pytest.mark.parametrize("strategy", ["headway", "headway+known"])
def test_in_every_scenario_headway_loses_nothing(provider: str, strategy: str) -> None:
    assert _row(provider, strategy, (1,)).failed_max == 0
