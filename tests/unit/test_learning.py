"""What an account learns from a simulated provider, and what that is worth in virtual time."""

from __future__ import annotations

from math import inf
from typing import Literal

import pytest
from msgspec import Struct
from msgspec.structs import replace

from bench.drawn import draw
from headway.base.values import Limit, LimitKind
from headway.engine.state import Rules
from headway.engine.strategy import ALL_AT_ONCE, Strategy
from headway.pacing.account import AccountConfig, Profile
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.pacing.width import ConcurrencyLimit, CongestionFit, Curve, Width
from headway.report.bound import bound
from headway.sim.account import Terms
from headway.sim.clients import PATIENT, PacedDoor, UnpacedDoor
from headway.sim.draw import Neighbour
from headway.sim.headers import dialect_of
from headway.sim.provider import FaultModel, Latency, Provider, ProviderSpec
from headway.sim.rehearsal import Rehearsal, Rehearsed, WorkloadSpec, draw_workload

MANY = WorkloadSpec("many", 300, output_tokens=50.0)
QUICK = Latency(0.5, 0.01)
Omitted = Literal["limit", "remaining", "reset"]
REFUSALS_MAX = 12
"""As many as it may take to find a limit that headers tell of."""


class Learned(Struct, frozen=True):
    """What came of a run, the least time that it could take, and what is known after it."""

    result: Rehearsed
    least_s: float
    calls: AccountCalls
    provider: Provider

    @property
    def time_s(self) -> float:
        assert self.result.failed == 0
        return self.result.makespan_s

    @property
    def limit(self) -> Limit:
        (tracked,) = self.calls.account.limits
        return tracked.limit

    @property
    def profile(self) -> Profile:
        return self.calls.account.profile()


def run(
    spec: ProviderSpec, work: WorkloadSpec = MANY, profile: Profile | None = None,
    limits: tuple[Limit, ...] = (), pool: int | None = None,
) -> Learned:  # fmt: skip
    """Paced, or with a pool of so many; cold, with a profile, or with limits that are known."""
    provider, drawn = Provider(spec, 1), draw_workload(work, 1)
    provider.shows_progress = True
    provider.advance(0.0)
    config = AccountConfig(dialect_of(spec.dialect), limits, profile=profile)
    calls = AccountCalls(config, 0.0)
    door = PacedDoor(calls, OutputLength()) if pool is None else UnpacedDoor(PATIENT, 1)
    rules = Rules(ALL_AT_ONCE if pool is None else Strategy("fixed", pool))
    result = Rehearsal(drawn, provider, door, rules).run()
    return Learned(result, bound(spec, drawn.calls, drawn.needs).time_s, calls, provider)


def _requests(amount: float, period_s: float, kind: LimitKind, dialect: str) -> ProviderSpec:
    return ProviderSpec(
        "one", Terms((Limit("requests", amount, period_s, kind),)), QUICK, dialect=dialect
    )


@pytest.mark.parametrize(("amount", "period_s"), [(5.0, 1.0), (40.0, 7.0), (30.0, 10.0)])
@pytest.mark.parametrize("kind", ["bucket", "sliding", "fixed"])
@pytest.mark.parametrize("dialect", ["openai", "bare"])
def test_a_period_that_no_header_names_is_learned(
    kind: LimitKind, amount: float, period_s: float, dialect: str
) -> None:
    learned = run(_requests(amount, period_s, kind, dialect))
    assert learned.limit.source == "learned"
    assert learned.limit.period_s == pytest.approx(period_s, rel=0.15)
    assert learned.time_s <= 1.2 * learned.least_s
    assert learned.result.refused <= REFUSALS_MAX
    # What was learned is worth as much to the next run.
    again = run(_requests(amount, period_s, kind, dialect), profile=learned.profile)
    assert again.time_s <= 1.1 * learned.time_s


@pytest.mark.parametrize("kind", ["bucket", "sliding", "fixed"])
def test_where_resets_are_exact_it_is_learned_how_a_limit_counts(kind: LimitKind) -> None:
    assert run(_requests(30.0, 10.0, kind, "openai")).limit.kind == kind


def test_a_period_that_was_revised_forgets_no_call_in_flight() -> None:
    """Answers take longer than the period: a change of the way of counting meets many."""
    spec = replace(_requests(30.0, 3.0, "fixed", "openai"), latency=Latency(4.0, 0.05))
    learned = run(spec)
    assert learned.time_s <= 1.3 * learned.least_s
    assert learned.result.refused <= REFUSALS_MAX


def test_whole_seconds_are_enough_to_learn_a_bucket() -> None:
    learned = run(_requests(40.0, 7.0, "bucket", "bare"))
    assert (learned.limit.kind, learned.result.refused) == ("bucket", 0)


CONGESTED = ProviderSpec("congested", latency=Latency(1.0, 0.02, 0.01, 0.02))
"""Its throughput peaks at seven calls in flight."""


@pytest.mark.parametrize("is_whole", [False, True])
def test_as_many_calls_are_in_flight_as_are_worth_it(is_whole: bool) -> None:
    work = WorkloadSpec("equal", 100, is_whole=is_whole)
    best_s = min(run(CONGESTED, work, pool=pool).time_s for pool in (4, 6, 7, 8, 10))
    cold = run(CONGESTED, work)
    assert cold.time_s <= (1.25 if is_whole else 1.1) * best_s
    assert cold.profile.is_measured
    known = run(CONGESTED, work, profile=cold.profile)
    assert known.time_s <= 1.02 * cold.time_s
    assert known.result.in_flight_most < 20


@pytest.mark.parametrize("is_whole", [False, True])
def test_where_company_costs_nothing_the_width_grows(is_whole: bool) -> None:
    work = WorkloadSpec("equal", 200, is_whole=is_whole)
    cold = run(ProviderSpec("calm"), work)
    assert cold.result.in_flight_most > 100
    assert cold.time_s <= 6 * cold.least_s
    assert run(ProviderSpec("calm"), work, profile=cold.profile).time_s <= 0.9 * cold.time_s


def test_calls_of_unequal_length_hide_no_peak() -> None:
    work = WorkloadSpec("unequal", 200, output_spread=0.6, luck_spread=0.2)
    best_s = min(run(CONGESTED, work, pool=pool).time_s for pool in (6, 8))
    assert run(CONGESTED, work).time_s <= 1.15 * best_s


def test_of_an_unknown_account_few_calls_find_out() -> None:
    slow = ProviderSpec("slow", latency=Latency(20.0, 0.02))
    calls = run(slow, WorkloadSpec("wide", 100)).result.calls
    assert sum(sent_s < 20.0 for sent_s, _ in calls) <= 4


@pytest.mark.parametrize("kind", ["bucket", "sliding", "fixed"])
@pytest.mark.parametrize("dialect", ["plain", "advice"])
def test_hidden_limits_are_learned_from_refusals(kind: LimitKind, dialect: str) -> None:
    """With and without advice on how long to wait."""
    limit = Limit("requests", 60.0, 60.0, kind, 10.0 if kind == "bucket" else None)
    spec = ProviderSpec("hidden", Terms((limit,)), QUICK, dialect=dialect)
    learned = run(spec)
    assert learned.time_s <= 1.4 * learned.least_s
    assert learned.result.refused <= (30 if dialect == "advice" else 150)
    # The next run starts with the rate that was found.
    again = run(spec, profile=learned.profile)
    assert again.time_s <= 1.1 * learned.time_s
    assert again.result.refused <= 1.2 * learned.result.refused + REFUSALS_MAX


@pytest.mark.parametrize("dialect", ["plain", "openai"])
@pytest.mark.parametrize("factor", [0.5, 4.0])
def test_a_limit_that_changes_under_way_is_followed(factor: float, dialect: str) -> None:
    limit = Limit("requests", 120.0, burst=10.0)
    steady = ProviderSpec("steady", Terms((limit,)), QUICK, dialect=dialect)
    spec = replace(steady, terms=Terms((limit,), changes=((60.0, factor),)))
    learned = run(spec)
    assert learned.time_s <= (2.0 if dialect == "plain" else 1.5) * learned.least_s
    assert (learned.time_s < run(steady).time_s) == (factor > 1.0)


def test_a_hidden_cap_on_concurrency_is_learned_from_refusals() -> None:
    slots = Terms((Limit("concurrency", 5.0, 0.0, "gauge"),))
    spec = ProviderSpec("slots", slots, dialect="plain")
    learned = run(spec, WorkloadSpec("equal", 60))
    assert learned.time_s <= 1.2 * run(spec, WorkloadSpec("equal", 60), pool=5).time_s
    assert learned.result.refused <= 20


@pytest.mark.parametrize("charging", ["kept", "reserved"])
def test_it_is_learned_whether_reservations_come_back(charging: str) -> None:
    is_kept = charging == "kept"
    terms = Terms((Limit("tokens", 60_000.0),), charging="kept" if is_kept else "reserved")
    spec = ProviderSpec("reserving", terms, QUICK, dialect="openai")
    learned = run(spec, WorkloadSpec("reserving", 100))
    assert learned.profile.kept == (("tokens/60s",) if is_kept else ())
    assert learned.profile.returned == (() if is_kept else ("tokens/60s",))
    config = AccountConfig(dialect_of("openai"), profile=learned.profile)
    restarted = AccountCalls(config, 0.0).account.profile()
    assert (restarted.kept, restarted.returned) == (learned.profile.kept, learned.profile.returned)
    assert learned.result.refused <= REFUSALS_MAX
    assert learned.time_s <= 1.2 * learned.least_s


@pytest.mark.parametrize("charging", ["reserved", "produced"])
def test_a_call_larger_than_the_burst_goes_when_the_bucket_is_full(charging: str) -> None:
    is_reserved = charging == "reserved"
    limit = Limit("tokens" if is_reserved else "output", 60_000.0, burst=300.0)
    terms = Terms((limit,), charging="reserved" if is_reserved else "produced")
    dialect = "cerebras" if is_reserved else "anthropic"
    spec = ProviderSpec("small burst", terms, QUICK, dialect=dialect)
    work = WorkloadSpec("large", 40, max_tokens=500.0)
    cold, known = run(spec, work), run(spec, work, limits=terms.limits)
    assert (known.result.refused, cold.result.refused <= REFUSALS_MAX) == (0, True)
    assert known.time_s <= 1.02 * cold.time_s <= 2.5 * known.time_s
    assert not is_reserved or known.time_s <= 1.1 * known.least_s


@pytest.mark.parametrize("way", ["cold", "known", "profile"])
def test_whole_answers_that_crowd_each_other_out_are_few_at_once(way: str) -> None:
    crowded = Latency(8.0, 0.085, sigma=0.09, kappa=0.06)
    terms = Terms((Limit("requests", 277.0),))
    spec = ProviderSpec("crowded", terms, crowded, dialect="openai")
    work = WorkloadSpec("whole", 100, output_tokens=144.0, is_whole=True)
    limits = terms.limits if way == "known" else ()
    profile = run(spec, work).profile if way == "profile" else None
    learned = run(spec, work, profile, limits)
    assert learned.time_s <= 1.5 * learned.least_s


def test_time_that_grows_faster_than_any_curve_is_not_taken_for_no_growth() -> None:
    seen = Curve()
    for width, time_s in ((12.1, 355.5), (14.2, 477.2), (15.7, 552.7), (19.5, 1250.0)):
        seen.take(width, time_s)
    seen.take(19.5, 1250.0)
    assert 1.0 < (seen.fit() or CongestionFit(0.0)).width(1.0) <= 15.0


def test_charged_refusals_do_not_keep_a_limit_empty_for_ever() -> None:
    terms = Terms((Limit("requests", 7.0, 20.0),), refusals_charged=True)
    faults = FaultModel(retry_after="none")
    learned = run(ProviderSpec("charging", terms, QUICK, faults, dialect="plain"))
    assert learned.time_s <= 3.0 * learned.least_s


def test_a_hidden_limit_is_used_although_answers_begin_long_after_calls_were_let_in() -> None:
    terms, late = Terms((Limit("requests", 29.0, burst=1.0),)), Latency(5.0, 0.02)
    spec = ProviderSpec("late", terms, late, FaultModel(retry_after="none"), dialect="plain")
    learned = run(spec, WorkloadSpec("few", 60))
    assert learned.time_s <= 1.65 * learned.least_s
    assert learned.result.refused <= 30


def test_tries_do_not_keep_step_with_the_bursts_of_a_neighbour() -> None:
    drawn = draw(1027)
    assert run(drawn.spec, drawn.sized(22)).time_s <= 40.0


def test_calls_that_are_larger_than_a_bucket_that_refills_at_once_do_not_wait_for_seconds() -> None:
    terms = Terms((Limit("tokens", 12_000_000.0, burst=1_600.0),), charging="reserved")
    spec = ProviderSpec("large", terms, Latency(0.2, 0.001), dialect="cerebras")
    work = WorkloadSpec("large", 200, input_tokens=3700.0, output_tokens=1000.0, input_error=0.05)
    for limits in (), terms.limits:
        learned = run(spec, work, limits=limits)
        assert learned.time_s <= 2.5 * learned.least_s


def test_answers_that_are_ahead_of_their_plans_are_charged_once() -> None:
    terms = Terms((Limit("output", 15_900.0, burst=7_850.0),))
    latency = Latency(0.2, 0.0016, sigma=0.08, kappa=0.012)
    spec = ProviderSpec("ahead", terms, latency, dialect="anthropic")
    work = WorkloadSpec("ahead", 22, output_tokens=870.0, output_spread=0.4, is_whole=True)
    learned = run(spec, work)
    assert learned.time_s <= 60.0
    assert not learned.calls.account.limits[0].shared


def test_a_bucket_of_output_that_refills_at_once_is_used_at_once() -> None:
    drawn = draw(1325)
    learned = run(drawn.spec, drawn.sized(22), limits=drawn.spec.terms.limits)
    assert learned.time_s <= 1.15 * learned.least_s


def test_one_late_first_byte_holds_no_others_back() -> None:
    width = Width(4.0, ConcurrencyLimit())
    width.began(2.0, 2.0, 500.0, 2.0)
    for company in (2.0, 2.0, 4.0, 4.0):
        width.moved(company, 0.002, 2.1)
    width.began(3.0, 2.4, 500.0, 2.4)
    assert width.allowed >= 8.0


def test_where_company_gains_nothing_it_costs_nothing() -> None:
    serial = ProviderSpec("serial", latency=Latency(1.0, 0.02, 1.0))
    work = WorkloadSpec("equal", 60)
    assert run(serial, work).time_s <= 1.02 * run(serial, work, pool=1).time_s


@pytest.mark.parametrize(("amount", "period_s"), [(5.0, 1.0), (40.0, 7.0), (30.0, 10.0)])
def test_without_resets_a_period_is_learned_from_what_comes_back(
    amount: float, period_s: float
) -> None:
    learned = run(replace(_requests(amount, period_s, "bucket", "bare"), omits=("reset",)))
    assert 0.3 * period_s <= learned.limit.period_s <= 1.5 * period_s
    assert learned.time_s <= 1.1 * learned.least_s
    assert learned.result.refused <= 60


@pytest.mark.parametrize("omits", [("reset",), ("limit",), ("remaining",)])
def test_headers_that_are_left_out_cost_little(omits: tuple[Omitted]) -> None:
    terms = Terms((Limit("requests", 60.0, burst=10.0),))
    whole = ProviderSpec("whole", terms, QUICK, dialect="openai")
    some = run(replace(whole, omits=omits))
    assert some.time_s <= 1.2 * some.least_s
    assert some.result.refused <= (40 if omits == ("reset",) else 150)


@pytest.mark.parametrize(
    "spec",
    [
        CONGESTED,
        _requests(120.0, 60.0, "bucket", "openai"),
        _requests(60.0, 60.0, "fixed", "bare"),
        ProviderSpec("minute", Terms((Limit("input", 200_000.0),)), QUICK),
        ProviderSpec("slots", Terms((Limit("concurrency", 7.0, 0.0, "gauge"),))),
    ],
    ids=lambda spec: f"{spec.name} {spec.dialect}",
)
def test_knowing_more_is_not_slower(spec: ProviderSpec) -> None:
    work = WorkloadSpec("equal", 60)
    cold = run(spec, work)
    known = run(spec, work, limits=spec.terms.limits)
    profiled = run(spec, work, profile=cold.profile)
    assert max(known.time_s, profiled.time_s) <= 1.02 * cold.time_s
    assert profiled.result.refused <= cold.result.refused


def test_a_neighbour_s_draw_is_noticed_and_left_to_it() -> None:
    terms = Terms((Limit("input", 300_000.0),), neighbour=Neighbour(0.3))
    learned = run(ProviderSpec("shared", terms, QUICK), replace(MANY, tasks=400))
    (tracked,) = learned.calls.account.limits
    assert tracked.draw_per_s == pytest.approx(0.3 * 5000.0, rel=0.5)
    assert learned.result.refused <= REFUSALS_MAX


def test_a_burst_that_is_refused_although_enough_is_left_is_not_repeated() -> None:
    second = Limit("requests", 8.0, 1.0)
    terms = Terms((Limit("requests", 2000.0),), hidden=(second,))
    learned = run(ProviderSpec("two", terms, QUICK))
    assert learned.result.refused <= 30
    assert learned.profile.per_second < inf
    assert run(ProviderSpec("two", terms, QUICK), profile=learned.profile).result.refused <= 15
