"""Every term of the bound on work small enough to compute by hand."""

from __future__ import annotations

import pytest

from headway.base.values import Charging, Limit, LimitKind
from headway.report.bound import bound, width_of
from headway.sim.account import Terms
from headway.sim.draw import Neighbour
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall
from headway.sim.supply import rules_of, season_of, supply_of

SLOTS = Limit("concurrency", 4, kind="gauge")


def _spec(
    *limits: Limit, charging: Charging = "produced", latency: Latency = Latency(1.0, 0.01)
) -> ProviderSpec:
    return ProviderSpec("p", Terms(limits, charging=charging), latency)


def _call(
    place: int, inputs: float = 100.0, output: float = 0.0, most: float = 0.0
) -> SimulatedCall:
    return SimulatedCall(place, inputs, output, most)


def _many(
    count: int, inputs: float = 100.0, output: float = 0.0
) -> list[tuple[SimulatedCall, ...]]:
    return [(_call(place, inputs, output),) for place in range(count)]


def _alone(count: int) -> list[tuple[int, ...]]:
    return [()] * count


def test_congestion_makes_more_at_once_no_faster_than_the_best_width() -> None:
    latency = Latency(1.0, 0.01, sigma=0.2, kappa=0.1)
    best = max(n / latency.slowdown(n) for n in range(1, 41))
    found = bound(_spec(latency=latency), _many(40), _alone(40))
    assert found.time_s == pytest.approx(40.0 / best)
    assert found.binding == "width"


def test_a_neighbour_that_stays_takes_its_slots_and_a_ceiling_its_share_of_them() -> None:
    def spec(neighbour: Neighbour) -> ProviderSpec:
        limits = (Limit("concurrency", 10, kind="gauge"), Limit("concurrency", 99, kind="gauge"))
        return ProviderSpec("p", Terms(limits[:1], limits[1:], neighbour=neighbour))

    assert width_of(spec(Neighbour(slots=3))) == 7
    assert width_of(spec(Neighbour(slots=3, on_s=5.0, off_s=5.0))) == 10
    assert width_of(spec(Neighbour(slots=3, start_s=5.0))) == 10
    assert width_of(spec(Neighbour(slots=3)), 0.5) == 5
    assert width_of(spec(Neighbour(slots=30))) == 1
    assert width_of(spec(Neighbour()), 0.01) == 1
    assert width_of(ProviderSpec("p")) is None


@pytest.mark.parametrize(
    ("limit", "time_s"),
    [
        # 1,000 at once, then 600 more at 10 a second, and the last call takes a second.
        (Limit("input", 600.0, burst=1000.0), 61.0),
        # Six calls per window: the third window begins with the second period.
        (Limit("input", 600.0, 60.0, "fixed"), 121.0),
        (Limit("input", 600.0, 60.0, "sliding"), 121.0),
        (Limit("requests", 8.0, 60.0, "sliding"), 61.0),
        (Limit("spend", 16.0, 60.0, "fixed"), 1.0),
    ],
    ids=lambda value: f"{value.resource}-{value.kind}" if isinstance(value, Limit) else None,
)
def test_a_limit_lets_calls_through_as_it_counts(limit: Limit, time_s: float) -> None:
    found = bound(_spec(limit), _many(16), _alone(16))
    assert found.time_s == pytest.approx(time_s)
    assert found.binding == (limit.name if time_s > 1 else "critical path")


def test_output_as_it_is_produced_cannot_use_what_refills_before_the_first_byte() -> None:
    limit = Limit("output", 600.0, burst=1000.0)
    found = bound(_spec(limit), _many(20, output=100.0), _alone(20))
    assert found.fair_s == pytest.approx(1.0 + (2000.0 - 1000.0) / 10.0)
    assert found.fair_binding == "output/60s"


def test_output_may_be_owed_by_all_calls_that_can_be_in_flight() -> None:
    """20 calls of 2 s write 2,000 of which 1,000 are there and 10 come every second."""
    limit, calls = Limit("output", 600.0, burst=1000.0), _many(20, output=100.0)
    at_once = bound(_spec(limit), calls, _alone(20))
    assert (at_once.time_s, at_once.binding) == (2.0, "critical path")
    # When the last one goes, all but what four of them write is written.
    slots = bound(_spec(limit, SLOTS), calls, _alone(20))
    assert slots.time_s == pytest.approx((2000.0 - 1000.0 - 400.0) / 10.0 + 2.0)
    # Of 30 a minute with a burst of one, two can be in flight.
    requests = Limit("requests", 30.0, burst=1.0)
    slow = bound(_spec(limit, requests), calls, _alone(20))
    assert slow.time_s == pytest.approx((2000.0 - 1000.0 - 200.0) / 10.0 + 2.0)


def test_a_neighbour_and_a_ceiling_delay_only_the_fair_bound() -> None:
    limit = Limit("input", 600.0, burst=1000.0)
    terms = Terms((limit,), neighbour=Neighbour(0.5))
    beside = bound(ProviderSpec("p", terms, Latency(1.0, 0.01)), _many(16), _alone(16))
    assert (beside.time_s, beside.fair_s) == pytest.approx((61.0, 121.0))
    half = bound(_spec(limit), _many(16), _alone(16), 0.5)
    assert half.time_s == pytest.approx(61.0)
    assert half.fair_binding == "input/60s ceiling"
    assert half.fair_s > 121.0


@pytest.mark.parametrize("kind", ["bucket", "fixed", "sliding"])
@pytest.mark.parametrize("charging", ["reserved", "produced"])
def test_a_call_larger_than_its_limit_does_not_wait_for_ever(
    kind: LimitKind, charging: Charging
) -> None:
    limit = Limit("tokens", 100.0, 60.0, kind, 50.0 if kind == "bucket" else None)
    spec = _spec(limit, charging=charging)
    call = SimulatedCall(0, 300.0, 200.0, 400.0)
    assert bound(spec, [(call,)], [()]).time_s == pytest.approx(3.0)


def test_reservations_wait_for_each_others_refunds() -> None:
    """Each holds 1,000 for 11 s and uses 100: of 60 at once and one refilled per second."""
    spec = _spec(Limit("output", 60_000.0), charging="reserved", latency=Latency(1.0, 0.1))
    tasks = [(SimulatedCall(place, 0.0, 100.0, 1000.0),) for place in range(400)]
    found = bound(spec, tasks, _alone(400))
    # Net use alone: 40,000 fit into the burst. With what is held, k rows of calls started by
    # k x 11 s are at most 60 + 11 k + 0.9 x the rows before: 50 s are not enough for 400.
    started = 0.0
    for row in range(5):
        started = 60.0 + 11.0 * row + 0.9 * started
    assert started < 400.0
    assert 40.0 < found.time_s < 110.0
    assert found.binding == "output/60s"


def test_reservations_that_are_kept_have_to_be_waited_for() -> None:
    tasks = [(SimulatedCall(place, 10.0, 40.0, 590.0),) for place in range(200)]
    kept, back = (
        bound(_spec(Limit("tokens", 60_000.0), charging=charging), tasks, _alone(200))
        for charging in ("kept", "reserved")
    )
    # 600 of each, of which 60,000 are there, and 1,000 come every second.
    assert kept.time_s >= 60.0
    assert back.time_s < 10.0


@pytest.mark.parametrize("kind", ["bucket", "fixed", "sliding"])
def test_a_changed_limit_lets_through_what_it_says_at_the_time(kind: LimitKind) -> None:
    # 1,000 at first. At half, 60 s give 500 in a bucket; the second window has 500, the third all.
    changes = ((0.0, 1.0), (60.0, 0.5), (120.0, 1.0))
    terms = Terms((Limit("input", 1000.0, 60.0, kind),), changes=changes)
    spec = ProviderSpec("p", terms, Latency(1.0, 0.01))
    calls = 25 if kind == "bucket" else 16
    assert bound(spec, _many(calls), _alone(calls)).time_s == pytest.approx(121.0)


@pytest.mark.parametrize(
    ("neighbour", "refill_s"),
    [
        (Neighbour(0.25), 45.0),
        (Neighbour(0.9), 30.0),
        (Neighbour(0.5, on_s=10.0, off_s=10.0), 45.0),
        (Neighbour(0.5, start_s=30.0), 45.0),
        (Neighbour(0.05, shape="burst", on_s=10.0, off_s=0.0), 57.0),
    ],
    ids=["always", "greedy", "on and off", "late", "bursts"],
)
def test_what_a_neighbour_is_owed_is_not_ours(neighbour: Neighbour, refill_s: float) -> None:
    season = season_of(Terms(neighbour=neighbour), 200.0)
    assert season.refill_by(60.0) == pytest.approx(refill_s)
    assert season.owed_by(60.0) == pytest.approx(60.0 - refill_s)


@pytest.mark.parametrize("kind", ["fixed", "sliding"])
def test_a_window_is_ours_but_for_the_neighbours_part_except_the_last_and_under_a_ceiling(
    kind: LimitKind,
) -> None:
    terms = Terms((Limit("input", 1000.0, 60.0, kind),), neighbour=Neighbour(0.5))
    spec = ProviderSpec("p", terms)
    rule, ceiling = rules_of(spec, [_call(0)], 0.8)
    season = season_of(terms, 1000.0)
    supply = supply_of(rule, season, 0.0, 2100.0)
    assert [supply.by(now) for now in (-1.0, 0.0, 59.0, 60.0, 120.0, 180.0)] == [
        0.0, 1000.0, 1000.0, 1500.0, 2000.0, 2500.0,
    ]  # fmt: skip
    assert supply_of(ceiling, season, 0.0, 1600.0).by(60.0) == pytest.approx(1600.0)
