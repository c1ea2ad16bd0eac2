"""How fast answers come, recovered from calls that were generated with known numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.report.sizes import SPEED_SEEN_MIN, UNKNOWN, UNKNOWN_LUCK, SeenCall, speed_of
from headway.sim.draw import lognormal, uniform
from headway.sim.provider import Latency

Tokens = Callable[[int], float]


def various(at: int) -> float:
    return 20.0 + 600.0 * uniform(3, 1, at)


def made(
    latency: Latency, count: int, luck: float = 0.0, tokens: Tokens = various, widest: int = 1
) -> list[SeenCall]:
    """Calls as this provider would have answered them, in the company of up to `widest`."""
    found = []
    for at in range(count):
        beside = 1.0 + (widest - 1) * uniform(5, 2, at)
        took_s = latency.work_s(tokens(at)) * latency.slowdown(beside)
        took_s *= lognormal(7, 3, at, luck)
        found.append(SeenCall(1000.0, tokens(at), took_s=took_s, beside=beside))
    return found


def test_first_byte_and_time_per_token_are_recovered() -> None:
    found = speed_of(made(Latency(0.8, 0.012), 40))
    assert found.latency.first_byte_s == pytest.approx(0.8, rel=0.05)
    assert found.latency.per_output_token_s == pytest.approx(0.012, rel=0.02)
    assert (found.latency.sigma, found.latency.kappa) == pytest.approx((0.0, 0.0), abs=1e-3)
    assert found.calls == 40
    assert found.luck < 0.02


@pytest.mark.parametrize(("sigma", "kappa"), [(0.0, 0.0), (0.08, 0.0), (0.0, 0.004), (0.05, 0.003)])
def test_what_company_costs_is_recovered(sigma: float, kappa: float) -> None:
    truth = Latency(0.5, 0.01, sigma, kappa)
    found = speed_of(made(truth, 400, 0.1, widest=24)).latency
    for width in (1.0, 8.0, 16.0, 24.0):
        assert found.slowdown(width) == pytest.approx(truth.slowdown(width), rel=0.05)
    assert found.work_s(300.0) == pytest.approx(truth.work_s(300.0), rel=0.03)


def test_luck_is_the_spread_of_single_calls_and_doubt_that_of_their_mean() -> None:
    found = speed_of(made(Latency(0.8, 0.012), 100, 0.3))
    assert found.luck == pytest.approx(0.3, rel=0.25)
    assert found.doubt == pytest.approx(found.luck / 10.0)
    wild = speed_of(made(Latency(0.8, 0.012), 100, 4.0))
    assert wild.luck == 1.0


def test_too_few_calls_change_nothing_that_was_believed() -> None:
    believed = Latency(0.3, 0.005)
    few = made(Latency(9.0, 0.9), SPEED_SEEN_MIN - 1)
    assert speed_of(few) == UNKNOWN
    kept = speed_of(few, believed)
    assert kept.latency == believed
    assert kept.calls == 0
    assert kept.luck == UNKNOWN_LUCK
    assert kept.doubt < UNKNOWN.doubt
    enough = speed_of(made(Latency(9.0, 0.9), SPEED_SEEN_MIN), believed)
    assert enough.latency.work_s(100.0) == pytest.approx(99.0, rel=0.02)


def test_no_time_is_negative_however_calls_look() -> None:
    rising = [SeenCall(1.0, tokens, took_s=tokens**2 / 1e4) for tokens in range(50, 450, 10)]
    found = speed_of(rising).latency
    assert found.first_byte_s == 0.0
    assert found.per_output_token_s > 0.0
    falling = [SeenCall(1.0, tokens, took_s=500.0 / tokens) for tokens in range(50, 450, 10)]
    found = speed_of(falling).latency
    assert found.first_byte_s > 0.0
    assert 0.0 < found.per_output_token_s <= 1e-6


@pytest.mark.parametrize(
    ("slower", "sigma", "kappa"),
    [
        (lambda at: 1.0 / (1.0 + at / 20.0), (0.0, 0.0), (0.0, 0.0)),
        (lambda at: 1.0 + at**0.5, (0.05, 9.0), (0.0, 0.0)),
        (lambda at: 1.0 + at**3 / 2e3, (0.0, 0.0), (0.005, 9.0)),
    ],
    ids=["faster", "less than linear", "more than linear"],
)
def test_company_never_makes_calls_faster(
    slower: Tokens, sigma: tuple[float, float], kappa: tuple[float, float]
) -> None:
    seen = []
    for at in range(40):
        took_s = Latency(0.5, 0.01).work_s(various(at)) * slower(at)
        seen.append(SeenCall(1.0, various(at), took_s=took_s, beside=1.0 + at))
    found = speed_of(seen).latency
    assert sigma[0] <= found.sigma <= sigma[1]
    assert kappa[0] <= found.kappa <= kappa[1]
