"""Draws from a seed: the same everywhere, independent of each other, of the promised shape."""

from __future__ import annotations

from math import log
from statistics import fmean, median, pstdev

from hypothesis import given
from hypothesis import strategies as st

from headway.sim.draw import lognormal, normal, uniform

INTEGERS = st.integers(-(2**70), 2**70)


@given(seed=INTEGERS, stream=INTEGERS, index=INTEGERS)
def test_a_uniform_draw_lies_strictly_between_the_ends(seed: int, stream: int, index: int) -> None:
    drawn = uniform(seed, stream, index)
    assert 0.0 < drawn < 1.0
    assert drawn == uniform(seed, stream, index)


def test_the_draw_of_a_place_is_the_same_on_every_machine() -> None:
    assert uniform(0, 0, 0) == 0.13870941014555432


def test_seed_stream_and_index_each_change_the_draw() -> None:
    places = [
        (seed, stream, index) for seed in range(8) for stream in range(8) for index in range(8)
    ]
    assert len({uniform(*place) for place in places}) == len(places)


def test_uniform_draws_fill_the_interval_evenly() -> None:
    drawn = [uniform(1, 2, index) for index in range(4000)]
    for tenth in range(10):
        share = sum(tenth <= 10 * draw < tenth + 1 for draw in drawn) / len(drawn)
        assert 0.08 < share < 0.12


def test_normal_draws_have_mean_zero_and_deviation_one() -> None:
    drawn = [normal(3, 4, index) for index in range(4000)]
    assert abs(fmean(drawn)) < 0.05
    assert abs(pstdev(drawn) - 1.0) < 0.05


def test_lognormal_factors_have_median_one_and_the_deviation_asked_for() -> None:
    drawn = [lognormal(5, 6, index, 0.5) for index in range(4000)]
    assert abs(median(drawn) - 1.0) < 0.05
    assert abs(pstdev(log(draw) for draw in drawn) - 0.5) < 0.03


def test_without_deviation_every_factor_is_one() -> None:
    assert {lognormal(5, 6, index, 0.0) for index in range(10)} == {1.0}
