"""When the last of many ends: the chance decides, not the mean."""

from __future__ import annotations

from math import log
from random import Random

import pytest

from headway.report.progress import SAMPLE_MAX, last_s

EVEN = tuple(float(number) for number in range(1, 101))
"""Times from 1 to 100 s, each as likely as any other."""


def test_whoever_takes_longer_than_all_others_takes_a_share_of_its_age_more() -> None:
    older, old = last_s(EVEN, [1000.0], 0, 0.0), last_s(EVEN, [200.0], 0, 0.0)
    assert old == pytest.approx(200.0 * (log(2.0) ** -0.5 - 1.0), rel=1e-3)
    assert older == pytest.approx(5.0 * old, rel=1e-3)
    assert last_s([0.0], [0.0], 0, 0.0) == pytest.approx(0.0, abs=1e-6)


def test_those_to_come_take_their_time_from_when_they_begin() -> None:
    assert last_s([7.0], [], 5, 20.0) == pytest.approx(27.0)
    assert last_s([7.0], [], 5_000, 20.0) == pytest.approx(27.0)
    assert last_s([7.0], [1.0], 0, 20.0) == pytest.approx(6.0)


@pytest.mark.parametrize(("going", "coming", "until_s"), [(3, 0, 0.0), (40, 0, 0.0), (5, 30, 60.0)])
def test_half_of_many_trials_end_sooner(going: int, coming: int, until_s: float) -> None:
    """By hand: all of them are drawn again and again."""
    random = Random(7)
    taken = sorted(random.gammavariate(2.0, 5.0) for _ in range(200))
    ages = [5.0 * number / going for number in range(going)]
    told = last_s(taken, ages, coming, until_s)
    sooner = 0
    for _ in range(2_000):
        ends = [random.choice([one for one in taken if one > age_s]) - age_s for age_s in ages]
        ends += [until_s * (n + 1) / coming + random.choice(taken) for n in range(coming)]
        sooner += max(ends) <= told
    assert 0.42 <= sooner / 2_000 <= 0.6


def test_a_sample_stands_for_thousands() -> None:
    ages = [float(number % 50) for number in range(10 * SAMPLE_MAX)]
    assert 95.0 < last_s(EVEN, ages, 0, 0.0) <= 99.0
    few = last_s(EVEN, ages[:50], 0, 0.0)
    assert few < last_s(EVEN, ages, 0, 0.0)
