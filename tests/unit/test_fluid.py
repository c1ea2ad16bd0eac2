"""The fluid model: each of its terms can bind, and says how long the work takes."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Amounts, Limit
from headway.plans.graph import Need
from headway.report.forecast import Flow, LimitRoom, Rooms, best_width, flow_of, path_s
from headway.report.outline import DrawnPlan, Outline, OutlinePart, needs_of
from headway.sim.provider import Latency, SimulatedCall

LATENCY = Latency(1.0, 0.01)
"""A call of 100 tokens takes two seconds alone."""


def work(
    count: int, tokens: float = 100.0, chain: bool = False, seconds: float = 0.0, priced: int = 0
) -> DrawnPlan:
    """So many calls of 1,000 tokens in, all at once or one after another."""
    parts = tuple(OutlinePart(f"p{at}", 1, (Need(at - 1),) if at and chain else (), "m")
                  for at in range(count))  # fmt: skip
    outline = Outline(parts)
    calls = tuple((SimulatedCall(at, 1000.0, tokens, 4096.0),) for at in range(count))
    amounts = Amounts(1000.0 * count, tokens * count, priced * count)
    return DrawnPlan(outline, calls, needs_of(outline), amounts, (seconds,) * count)


def room(limit: Limit, free: float = 0.0) -> LimitRoom:
    return LimitRoom(limit, free, limit.rate_per_s)


def flow(one: DrawnPlan, *limits: LimitRoom, times: float = 1.0, width: float = inf) -> Flow:
    return flow_of(one, LATENCY, Rooms(limits, width), times)


def test_where_reservations_are_kept_the_longest_answers_count() -> None:
    limits = (room(Limit("tokens", 60_000.0)), room(Limit("input", 60_000.0)))
    kept = flow_of(work(10), LATENCY, Rooms(limits, keeps=True))
    assert kept.time_s == pytest.approx(10 * (1000 + 4096) / 1000.0 + 2.0)
    assert flow_of(work(10), LATENCY, Rooms(limits)).time_s == pytest.approx(13.0)


def test_without_limits_the_longest_chain_binds() -> None:
    found = flow(work(5, chain=True))
    assert (found.binding, found.time_s, found.least_s) == ("critical path", 10.0, 10.0)
    assert flow(work(5)).time_s == 2.0


@pytest.mark.parametrize(
    ("limit", "need"),
    [
        (Limit("requests", 60.0), 100.0),
        (Limit("input", 60_000.0), 100.0),
        (Limit("output", 6000.0), 100.0),
        (Limit("tokens", 66_000.0), 100.0),
        (Limit("spend", 60.0), 200.0),
    ],
)
def test_each_limit_can_bind(limit: Limit, need: float) -> None:
    """What is needed flows in, then the last call takes its time."""
    wide = [room(Limit(one, 1e9)) for one in ("requests", "input", "output", "tokens")]
    found = flow(work(100, priced=2), *wide, room(limit))
    assert found.binding == limit.name
    assert found.time_s == pytest.approx(need + 2.0)
    assert dict(found.terms)["critical path"] == 2.0


def test_what_is_free_need_not_flow_in() -> None:
    limit = Limit("input", 60_000.0)
    assert flow(work(100), room(limit, 40_000.0)).time_s == pytest.approx(62.0)
    # All of it fits: the limit has nothing to say.
    fits = flow(work(100), room(limit, 100_000.0))
    assert (fits.binding, len(fits.terms)) == ("critical path", 3)
    # A limit that gives nothing, such as a gauge, is no flow.
    gauge = room(Limit("concurrency", 4.0, 0.0, "gauge"))
    assert flow(work(100), gauge).binding == "critical path"


def test_a_part_of_the_work_stands_for_all_of_it() -> None:
    limit = Limit("requests", 60.0)
    found = flow(work(100), room(limit), times=5.0)
    assert found.time_s == pytest.approx(502.0)
    # Its chains are no longer, its tasks here are more.
    assert flow(work(5, chain=True), times=3.0).time_s == 10.0
    here = flow_of(work(10, seconds=3.0), LATENCY, Rooms(places=2.0), 4.0)
    assert (here.binding, here.time_s) == ("this machine", 60.0)


def test_how_many_may_be_in_flight_can_bind() -> None:
    found = flow(work(100), width=4.0)
    assert (found.binding, found.time_s, found.least_s) == ("width", 50.0, 50.0)
    assert found.width == pytest.approx(4.0)


def test_company_makes_the_best_width_the_widest_that_pays() -> None:
    crowded = Latency(1.0, 0.01, 0.0, 0.02)
    # n / (1 + 0.02 n (n - 1)) is largest at 7.
    assert best_width(crowded, inf) == 7.0
    assert best_width(crowded, 4.0) == 4.0
    assert best_width(Latency(), 64.0) == 64.0
    assert best_width(Latency(), 0.0) == 1.0
    found = flow_of(work(70), crowded, Rooms())
    assert found.binding == "width"
    assert found.time_s == pytest.approx(140.0 * crowded.slowdown(7.0) / 7.0)


def test_calls_in_flight_are_as_many_as_the_time_needs() -> None:
    """200 s of work in 102 s: two at once on average, though there is room for more."""
    found = flow(work(100), room(Limit("requests", 60.0)))
    assert found.width == pytest.approx(200.0 / 102.0)


def test_nothing_is_faster_than_with_the_shortest_call_as_the_last() -> None:
    one = work(100)
    short = DrawnPlan(
        one.outline,
        ((SimulatedCall(0, 1000.0, 0.0, 4096.0),), *one.calls[1:]),
        one.needs,
        one.amounts,
        one.seconds,
    )
    found = flow(short, room(Limit("requests", 60.0)))
    assert (found.time_s, found.least_s) == pytest.approx((102.0, 101.0))


def test_tasks_that_ask_nobody_take_what_they_take_here() -> None:
    none = DrawnPlan(Outline((OutlinePart("p", 2),)), ((), ()), ((), ()), Amounts(), (3.0, 4.0))
    found = flow(none, room(Limit("requests", 60.0)))
    assert (found.binding, found.time_s) == ("critical path", 4.0)
    assert found.width == 0.0
    assert path_s(DrawnPlan(Outline(()), (), (), Amounts(), ()), LATENCY) == 0.0


def test_time_here_is_part_of_the_longest_chain() -> None:
    assert path_s(work(3, chain=True, seconds=5.0), LATENCY) == 21.0
