"""The bound against the true optimum: hundreds of small instances, each searched exhaustively.

The best schedule of the search is also played to the real `Provider`, which must accept it
call by call, and its log is audited. Left out of this last step are ceilings, which a provider
does not know, and windows where the provider counts more coarsely than the bound: sliding ones,
whose charges it keeps in grains, and any where output is charged as it is produced.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from statistics import median

import pytest
from msgspec.structs import replace

from bench.drawn import draw
from bench.trial import Trial
from bench.trial import run as run_trial
from headway.base.values import Limit, Resource
from headway.report.bound import bound, held_end, reserved_end
from headway.sim.account import Terms
from headway.sim.audit import violations
from headway.sim.draw import Neighbour
from headway.sim.provider import Latency, Provider, ProviderSpec, SimulatedEnd
from headway.sim.rehearsal import draw_workload
from headway.sim.supply import lay_out, rules_of, season_of
from tests.property.second_search import (
    Dice,
    Instance,
    amount_of,
    best_prompt,
    best_with_refunds,
    draw_call,
    draw_instance,
    draw_limit,
    lay,
)
from tests.property.stream_search import best_with_streams

INSTANCES = 400
BATCH = 100
"""Instances per test, so that several processes can share them."""

STEP_S = 1e-8
"""Starts are played so much apart, so that an end at the time of a start comes before it."""


def best_schedule(instance: Instance) -> dict[int, float]:
    if not instance.counts_output:
        return best_prompt(instance)
    if instance.is_reserved:
        return best_with_refunds(instance)
    return best_with_streams(instance)


@pytest.mark.parametrize("first", range(0, INSTANCES, BATCH))
def test_no_schedule_ends_before_the_bound(
    first: int, record_property: Callable[[str, object], None]
) -> None:
    gaps = []
    for seed in range(first, first + BATCH):
        one = draw_instance(seed)
        starts = best_schedule(one)
        found = bound(one.spec, one.tasks, one.needs, one.share)
        gaps.append(one.end(starts) / found.fair_s)
        assert gaps[-1] >= 1 - 1e-6, seed
        assert found.time_s <= found.fair_s
        if can_be_played(one):
            play(one, starts)
    record_property("median_gap", median(gaps))
    assert median(gaps) < 1.1, "the bound is loose"


def can_be_played(one: Instance) -> bool:
    is_streamed = one.counts_output and not one.is_reserved
    coarse = {"sliding", "fixed"} if is_streamed else {"sliding"}
    return one.share == 1.0 and not any(limit.kind in coarse for limit in one.limits)


def play(one: Instance, starts: dict[int, float]) -> None:
    """Every call is accepted, all is over when the schedule says, and no limit was exceeded."""
    provider = Provider(one.spec, seed=1)
    ends: dict[int, float] = {}
    for step, call in enumerate(sorted(starts, key=lambda call: starts[call])):
        now = starts[call] + (step + 1) * STEP_S
        provider.advance(now)
        assert provider.submit(one.calls[call], now) is None
        ends[call] = now + one.lengths[call]
    happened = provider.advance(max(ends.values()) + STEP_S)
    assert sum(isinstance(happening, SimulatedEnd) for happening in happened) > 0
    assert provider.in_flight == 0
    if not any(is_oversized(one, limit) for limit in one.limits):
        assert violations(one.spec.terms, provider.account().log, 1e-6) == []


def is_oversized(one: Instance, limit: Limit) -> bool:
    sizes = (amount_of(limit.resource, call, one.is_reserved) for call in one.calls)
    return max(sizes) > limit.capacity


def test_held_reservations_prove_no_more_than_the_optimum() -> None:
    asked = 0
    for seed in range(0, INSTANCES, 4):
        one = draw_instance(seed)
        if not (one.is_reserved and one.counts_output):
            continue
        optimum_s = one.end(best_with_refunds(one))
        layout = lay_out(one.spec.latency, one.tasks, one.needs)
        season = season_of(one.spec.terms, 0.0)
        for rule in rules_of(one.spec, one.calls, one.share):
            if any(rule.refunds):
                asked += 1
                known_s = reserved_end(rule, layout, season)
                assert held_end(rule, layout, season, known_s) <= optimum_s * (1 + 1e-6), seed
    assert asked > 50


@pytest.mark.parametrize("seed", range(40))
def test_no_run_at_a_real_provider_beats_the_bound(seed: int) -> None:
    """Twenty to forty calls, with congestion, neighbours, changing limits, both ways to charge and
    as much debt as the provider accepts."""
    dice = Dice(seed + 7000)
    reserved = dice() < 0.5
    names: tuple[Resource, ...] = ("requests", "input", "tokens", "output")
    calls = [draw_call(dice, seed, place) for place in range(int(dice(20, 40)))]
    limits = [draw_limit(dice, name, calls, (reserved, False, 1.0)) for name in names]
    limits.append(Limit("concurrency", int(dice(2, 30)), kind="gauge"))
    changes = ((dice(0, 30), dice(0.4, 1.0)), (dice(30, 90), dice(0.5, 2.0)))
    spec = ProviderSpec(
        "large",
        Terms(tuple(limits), charging="reserved" if reserved else "produced",
              changes=changes if dice() < 0.5 else (),
              neighbour=Neighbour(dice(0.1, 0.9)) if dice() < 0.3 else None),
        Latency(dice(0.2, 2.0), dice(0.005, 0.04), dice(0, 0.02), dice(0, 0.004), int(dice(0, 5))),
    )  # fmt: skip
    tasks = [tuple(calls[place : place + 2]) for place in range(0, len(calls), 2)]
    needs = [tuple(o for o in range(place) if dice() < 0.1) for place in range(len(tasks))]
    found = bound(spec, tasks, needs)
    assert found.time_s <= run(lay(spec, tasks, needs, 1.0)) * (1 + 1e-6)


def run(one: Instance) -> float:
    """Send every call as soon as it is ready and accepted; say when all is over."""
    provider = Provider(one.spec, seed=1)
    now = 0.0
    sent: set[int] = set()
    ended: set[int] = set()
    while len(ended) < len(one.calls):
        ended |= {one_end.call_id for one_end in provider.advance(now)
                  if isinstance(one_end, SimulatedEnd)}  # fmt: skip
        soonest = inf
        for place, call in enumerate(one.calls):
            if place not in sent and one.before[place] <= ended:
                answer = provider.submit(call, now)
                if answer is None:
                    sent.add(place)
                else:
                    soonest = min(soonest, answer.fault.retry_after_s or inf)
        if len(ended) < len(one.calls):
            now = min(provider.next_s(), now + soonest + STEP_S)
    return now


WAYS = ("fixed:4096", "fixed:30", "fixed:5", "waves:4", "aimd", "cold", "known")
"""All at once, pools, waves, a window that adapts; headway."""


@pytest.mark.parametrize(
    ("seed", "tasks"),
    [
        (5017, 22), (5037, 22), (5040, 60), (5036, 60),
        *(pytest.param(seed, tasks, marks=pytest.mark.soak)
          for tasks in (22, 300) for seed in range(5001, 5061)),
    ],
)  # fmt: skip
def test_no_way_to_send_ends_before_the_hard_bound_of_a_drawn_provider(
    seed: int, tasks: int
) -> None:
    one = draw(seed)
    work = one.sized(tasks)
    drawn_work = draw_workload(work, seed)
    least = bound(one.spec, drawn_work.calls, drawn_work.needs)
    assert least.time_s <= least.fair_s
    whole = 0
    for way in WAYS:
        found = run_trial(Trial(one.spec, work, seed, way))
        if not found.failed:
            whole += 1
            assert found.makespan_s >= least.time_s * (1 - 1e-6), way
    assert whole


@pytest.mark.parametrize("seed", range(60))
def test_a_smaller_ceiling_never_lowers_the_bound(seed: int) -> None:
    one = draw_instance(seed)
    whole = bound(one.spec, one.tasks, one.needs, 1.0)
    half = bound(one.spec, one.tasks, one.needs, 0.5)
    assert half.fair_s >= whole.fair_s * (1 - 1e-6)
    assert half.time_s == whole.time_s


@pytest.mark.parametrize("seed", range(60))
def test_doubling_a_limit_never_raises_the_bound(seed: int) -> None:
    one = draw_instance(seed)
    if any(is_oversized(one, limit) for limit in one.limits):
        return  # Less is proved of calls that go into debt.
    before = bound(one.spec, one.tasks, one.needs, one.share).time_s
    limits = one.spec.terms.limits
    for place, limit in enumerate(limits):
        burst = None if limit.burst is None else 2 * limit.burst
        doubled = replace(limit, amount=2 * limit.amount, burst=burst)
        terms = replace(one.spec.terms, limits=(*limits[:place], doubled, *limits[place + 1 :]))
        after = bound(replace(one.spec, terms=terms), one.tasks, one.needs, one.share).time_s
        assert after <= before * (1 + 1e-6)


@pytest.mark.parametrize("calls", [1, 5, 40])
def test_the_bound_of_a_chain_is_its_critical_path(calls: int) -> None:
    one = draw_instance(3)
    spec = replace(one.spec, terms=replace(one.spec.terms, limits=()))
    tasks = [(replace(one.calls[0], id=place),) for place in range(calls)]
    needs = [() if place == 0 else (place - 1,) for place in range(calls)]
    found = bound(spec, tasks, needs)
    assert found.time_s == pytest.approx(calls * one.lengths[0])
    assert found.binding == "critical path"
