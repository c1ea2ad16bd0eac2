"""Advice on 200 drawn cases, judged by the truth: within 5 % of the best way in 95 % of them."""

from __future__ import annotations

import pytest

from bench.advice import CASES, WANTED, close_share, judge_all, report

pytestmark = pytest.mark.soak


def test_advice_is_within_a_twentieth_of_the_best_way_in_95_of_100_cases() -> None:
    judged = judge_all(CASES)
    print(report(judged))
    assert close_share([one.score for one in judged]) >= WANTED
    assert {one.best for one in judged} >= {"one agent", "adaptive"}
    for thumb in range(3):
        assert close_share([one.thumbs[thumb] for one in judged]) < 0.6
