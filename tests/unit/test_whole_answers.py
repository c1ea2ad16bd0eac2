"""Answers that come in one piece teach speed and width by their ends alone."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Amounts, Demand, Reading, Usage
from headway.pacing.account import QuotaConfig
from headway.pacing.headers import PLAIN
from headway.pacing.latency import Congestion, LengthLine, Tempo
from headway.pacing.quota import Quota
from headway.sim.draw import uniform

WHOLE = Demand(Amounts(100, 200), Amounts(100, 400), "", is_whole=True)


def used(tokens: float) -> Usage:
    return Usage(Amounts(100, tokens))


def test_whole_answers_tell_the_first_byte_from_the_rest() -> None:
    tempo = Tempo(0.0)
    for tokens in (20, 400, 90, 250, 30, 310, 150, 60, 500, 200) * 6:
        tempo.arrived(0.4 + 0.005 * tokens, tokens)
    assert tempo.first_byte_s == pytest.approx(0.4, rel=0.05)
    assert tempo.per_token_s == pytest.approx(0.005, rel=0.05)
    # An answer of any length then has the same time per token.
    assert tempo.arrived(0.4 + 0.005 * 40, 40) == pytest.approx(0.005, rel=0.05)
    assert tempo.arrived(0.4 + 0.005 * 900, 900) == pytest.approx(0.005, rel=0.05)


def test_answers_of_one_length_keep_the_ratio_that_was_believed() -> None:
    tempo = Tempo(0.0)
    for _ in range(30):
        tempo.arrived(3.0, 100)
    assert tempo.first_byte_s / tempo.per_token_s == pytest.approx(50.0, rel=0.01)
    assert tempo.first_byte_s + 100 * tempo.per_token_s == pytest.approx(3.0)


def test_times_that_fall_with_length_do_not_turn_the_line_around() -> None:
    line = LengthLine()
    for tokens, elapsed_s in ((500, 1.0), (20, 9.0)) * 20:
        first_byte_s, per_token_s = line.fit(tokens, elapsed_s, 50.0)
    assert first_byte_s > 0
    assert per_token_s > 0


def test_times_that_only_length_explains_leave_no_first_byte() -> None:
    line = LengthLine()
    for tokens in (100, 900) * 20:
        first_byte_s, per_token_s = line.fit(tokens, 0.01 * tokens, 50.0)
    assert first_byte_s == pytest.approx(1e-3, abs=0.05)
    assert per_token_s == pytest.approx(0.01, rel=0.02)


def test_width_grows_by_the_ends_of_whole_answers() -> None:
    quota = Quota(QuotaConfig(PLAIN), 0.0)
    for _ in range(200):
        quota.ask(WHOLE)
    now = 0.0
    for _ in range(5):
        granted = quota.decide(now).grants
        assert granted
        now += 2.0
        for grant in granted:
            quota.first_byte(grant.permit.id, Reading(), now)
            # The body follows its headers at once: that says nothing about the model's pace.
            quota.settle(grant.permit.id, "used", used(200.0), now + 0.001)
    assert quota.belief.width.allowed > 12


def test_noise_alone_makes_no_peak() -> None:
    congestion, draws = Congestion(), 0
    for width in (4, 6, 9, 14, 20):
        for _ in range(20):
            draws += 1
            congestion.sample(width, 0.01 * (1.0 + 0.5 * (uniform(7, 3, draws) - 0.5)))
        assert congestion.worth() == inf


def test_a_peak_is_found_through_noise() -> None:
    congestion, draws = Congestion(), 0
    for width in (1, 2, 4, 6, 9):
        slow = 1.0 + 0.05 * width * (width - 1)
        for _ in range(20):
            draws += 1
            congestion.sample(width, 0.01 * slow * (1.0 + 0.2 * (uniform(7, 3, draws) - 0.5)))
    assert 3.0 <= congestion.worth() <= 5.5


def test_an_adopted_whole_answer_teaches_no_width() -> None:
    quota = Quota(QuotaConfig(PLAIN), 10.0)
    permit = quota.adopt(WHOLE, ("",), 2.0, 10.0, 10.0)
    before = quota.belief.tempo.per_token_s
    quota.settle(permit.id, "used", used(200.0), 12.0)
    assert quota.belief.tempo.per_token_s == before
