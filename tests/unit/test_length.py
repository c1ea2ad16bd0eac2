"""How long replies will be: the prior, what is learned, and the cut at a ceiling."""

from __future__ import annotations

from math import exp
from random import Random

import pytest

from headway.base.numbers import REMEMBERED_MAX
from headway.pacing.estimate import OutputLength


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_with_nothing_learned_a_reply_is_the_prior_or_the_ceiling() -> None:
    lengths = OutputLength()
    assert lengths.expect("review", 1000.0, 4096) == 500.0
    assert lengths.expect("review", 1000.0, 200) == 200.0


def test_length_follows_input_where_it_does() -> None:
    lengths = OutputLength()
    draw = Random(3)
    for _ in range(300):
        size = draw.lognormvariate(7.0, 1.0)
        lengths.observe("translate", size, 1.1 * size * exp(draw.gauss(0, 0.2)))
    for size in (300.0, 1000.0, 5000.0):
        assert lengths.expect("translate", size, 1e30) == pytest.approx(1.12 * size, rel=0.1)


def test_a_change_of_length_is_followed() -> None:
    lengths = OutputLength()
    for output in [300.0] * 1000 + [1500.0] * 1500:
        lengths.observe("review", 1000.0, output)
    assert lengths.expect("review", 1000.0, 1e30) == pytest.approx(1500.0, rel=0.15)


def test_a_ceiling_cuts_the_mean() -> None:
    lengths = OutputLength()
    draw = Random(4)
    for _ in range(400):
        lengths.observe("review", 1000.0, draw.lognormvariate(6.0, 0.8))
    cut = [min(500.0, draw.lognormvariate(6.0, 0.8)) for _ in range(20_000)]
    assert lengths.expect("review", 1000.0, 500) == pytest.approx(_mean(cut), rel=0.05)
    assert lengths.expect("review", 1000.0, 0) == 0.0


def test_in_the_long_run_the_estimate_is_the_mean() -> None:
    lengths, draw = OutputLength(), Random(7)
    for _ in range(400):
        lengths.observe("review", 1000.0, 600.0 * exp(draw.gauss(0, 0.8)))
    expected = lengths.expect("review", 1000.0, 1e30)
    assert expected == pytest.approx(600.0 * exp(0.8**2 / 2), rel=0.1)


def test_only_the_kinds_of_late_are_remembered() -> None:
    lengths = OutputLength()
    lengths.observe("first", 1000.0, 50.0)
    for number in range(REMEMBERED_MAX):
        lengths.observe(f"kind {number}", 1000.0, 100.0)
    assert len(lengths._kinds) == REMEMBERED_MAX
    assert lengths.expect("first", 1000.0, 4096) == 500.0
