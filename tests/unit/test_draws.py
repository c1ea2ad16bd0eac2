"""Draws from a seed: the same everywhere, independent of each other, of the promised shape."""

from __future__ import annotations

from math import log
from statistics import median, pstdev

from hypothesis import given
from hypothesis import strategies as st

from headway.sim.draw import lognormal, uniform

INTEGERS = st.integers(-(2**70), 2**70)


@given(seed=INTEGERS, stream=INTEGERS, index=INTEGERS)
def test_a_uniform_draw_lies_strictly_between_the_ends(seed: int, stream: int, index: int) -> None:
    drawn = uniform(seed, stream, index)
    assert 0.0 < drawn < 1.0
    assert drawn == uniform(seed, stream, index)


def test_the_draw_of_a_place_is_the_same_on_every_machine() -> None:
    assert uniform(0, 0, 0) == 0.13870941014555432


def test_lognormal_factors_have_median_one_and_the_deviation_asked_for() -> None:
    drawn = [lognormal(5, 6, index, 0.5) for index in range(4000)]
    assert abs(median(drawn) - 1.0) < 0.05
    assert abs(pstdev(log(draw) for draw in drawn) - 0.5) < 0.03
