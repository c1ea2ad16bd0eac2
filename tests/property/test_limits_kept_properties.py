"""What is admitted, judged by the provider: every limit holds, every ceiling, no refusal.

Each property is recomputed from the provider's own log by `audit.py`, which trusts no meter. The
last tests prove that they can fail: on a provider that allows less than is configured, and on a
log that was tampered with.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from headway.base.values import Limit
from headway.pacing.limits import DEBT_S
from headway.report.bound import bound
from headway.sim.account import Terms
from headway.sim.audit import violations, worst_window
from headway.sim.provider import Latency
from tests.property.exact_runs import Case, Played, cases, play, steady_cases

TOLERANCE = 1e-6
"""Share of a limit that rounding may take."""

LONGEST = 600.0 + 3000.0
"""What one call takes at most: alone it goes into debt."""

HALF = 0.5

WITHIN = 1.05
"""Makespan over bound, beyond one call's latency (its 95th percentile)."""


def _p95_s(played: Played) -> float:
    latencies = sorted(played.result.latencies_s)
    return latencies[int(0.95 * len(latencies))]


def _assert_clean(case: Case, played: Played) -> None:
    result, log = played.result, played.provider.account().log
    assert result.failed == 0
    assert result.refused == 0 or case.is_counted_coarsely
    for limit, excess in violations(case.spec.terms, log, TOLERANCE):
        # What is charged as it is produced: a provider lets calls in while anything is left.
        assert case.charging == "produced"
        assert limit.resource in ("output", "tokens")
        assert excess <= DEBT_S * limit.rate_per_s + LONGEST + TOLERANCE * limit.amount, limit.name
    assert result.in_flight_most <= case.slots


@given(cases())
@settings(max_examples=150)
def test_known_limits_are_never_exceeded_and_nothing_is_refused(case: Case) -> None:
    played = play(case)
    _assert_clean(case, played)
    assert not played.calls.in_flight


@given(cases(share=HALF))
@settings(max_examples=120)
def test_a_ceiling_of_half_is_kept_in_the_worst_period_of_every_limit(case: Case) -> None:
    played = play(case, share=HALF)
    _assert_clean(case, played)
    log = played.provider.account().log
    for limit in case.rates:
        most, _ = worst_window(log, limit.resource, limit.period_s)
        assert most <= HALF * limit.amount * (1 + TOLERANCE), limit.name
    assert played.result.in_flight_most <= HALF * case.slots


@given(steady_cases(share=HALF))
@settings(max_examples=50)
def test_under_a_ceiling_a_run_takes_as_long_as_its_bound_and_one_call(case: Case) -> None:
    played = play(case, share=HALF)
    _assert_clean(case, played)
    workload = case.workload
    least_s = bound(case.spec, workload.calls, workload.needs, share=HALF).fair_s
    assert played.result.makespan_s <= WITHIN * least_s + _p95_s(played)


BUSY = Case(
    (Limit("requests", 40.0, kind="fixed"), Limit("input", 60_000.0, burst=20_000.0)),
    tuple((1000.0 + 10.0 * i, 100.0 + i) for i in range(100)),
    "produced",
    Latency(0.5, 0.01),
)
"""Three minutes of work."""


@pytest.mark.parametrize("lowered", ["requests", "input"])
def test_a_provider_that_allows_a_tenth_less_than_configured_refuses(lowered: str) -> None:
    assert play(BUSY).result.refused == 0
    less = tuple(
        replace(limit, amount=0.9 * limit.amount) if limit.resource == lowered else limit
        for limit in BUSY.limits
    )
    played = play(BUSY, spec=replace(BUSY.spec, terms=Terms(less)))
    assert played.result.refused > 0
    assert played.result.failed == 0


@pytest.mark.parametrize("resource", ["requests", "input"])
def test_the_audit_sees_a_log_in_which_more_was_taken(resource: str) -> None:
    played = play(BUSY)
    log = played.provider.account().log
    assert violations(BUSY.spec.terms, log, TOLERANCE) == []
    tampered = [
        replace(line, amount=1.1 * line.amount) if line.resource == resource else line
        for line in log
    ]
    found = violations(BUSY.spec.terms, tampered, TOLERANCE)
    assert [limit.resource for limit, _ in found] == [resource]


def test_without_a_ceiling_more_than_half_is_used() -> None:
    log = play(BUSY).provider.account().log
    for limit in BUSY.limits:
        assert worst_window(log, limit.resource, limit.period_s)[0] > HALF * limit.amount
