"""A slice of the cases that advice is judged by; `make soak` has all of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.advice import CLOSE, SEED, Judged, case_of, close_share, judge, report

SLICE = 12
"""Cases: as many as take some seconds."""


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return [judge(case_of(number), has_hindsight=False) for number in range(SLICE)]


def test_advice_is_near_the_best_way(judged: list[Judged]) -> None:
    print(report(judged))
    assert sum(one.score > CLOSE for one in judged) <= 1
    assert all(one.score >= 1.0 for one in judged)


def test_no_rule_of_thumb_comes_near(judged: list[Judged]) -> None:
    best = close_share([one.score for one in judged])
    for thumb in range(3):
        assert close_share([one.thumbs[thumb] for one in judged]) < best


def test_a_case_is_the_same_every_time_and_told_with_errors() -> None:
    case = case_of(3)
    assert case == case_of(3)
    assert case != case_of(3, SEED + 1)
    assert case.told.tokens_each != case.truth.tokens_each
    assert replace(case.told, state=case.truth.state) != case.truth


def test_the_judge_sees_the_difference_between_a_good_choice_and_a_bad_one(
    judged: list[Judged],
) -> None:
    wrong = [max(one.thumbs) for one in judged]
    assert max(wrong) > 1.5
