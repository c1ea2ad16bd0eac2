"""How fast answers come, and in whose company."""

from __future__ import annotations

import pytest

from headway.pacing.latency import FIRST_BYTE_S, MEMORY, PER_TOKEN_S, Tempo
from headway.pacing.limits import HORIZON_S


def test_before_anything_is_measured_there_is_a_guess() -> None:
    told = Tempo(0.0)
    assert (told.first_byte_s, told.per_token_s, told.in_flight) == (FIRST_BYTE_S, PER_TOKEN_S, 0)


def test_the_first_measurement_replaces_the_guess_and_later_ones_move_it() -> None:
    tempo = Tempo(0.0)
    tempo.first_byte(3.0)
    assert tempo.first_byte_s == 3.0
    tempo.first_byte(5.0)
    assert tempo.first_byte_s == pytest.approx(3.0 + MEMORY * 2.0)


def test_a_piece_of_an_answer_gives_its_time_per_token() -> None:
    tempo = Tempo(0.0)
    tempo.first_byte(1.0)
    assert tempo.moved(2.0, 50.0) == 0.04
    assert tempo.per_token_s == 0.04


def test_a_longer_piece_moves_the_pace_more_but_never_more_than_half_way() -> None:
    def after(tokens: float) -> float:
        tempo = Tempo(0.0)
        tempo.moved(1.0, 100.0)
        tempo.moved(0.03 * tokens, tokens)
        return tempo.per_token_s

    assert after(10.0) < after(100.0) < after(1000.0)
    assert after(100.0) == pytest.approx(0.01 + MEMORY * 0.02)
    assert after(1e6) == pytest.approx(0.02)


def test_the_mean_width_is_weighed_by_time() -> None:
    tempo = Tempo(0.0)
    began = tempo.enter(0.0)
    tempo.enter(6.0)
    assert tempo.in_flight == 2
    assert tempo.mean_since(began, 0.0, 8.0) == pytest.approx((6 * 1 + 2 * 2) / 8)
    tempo.leave(9.0)
    assert tempo.mean_since(began, 0.0, 10.0) == pytest.approx((6 * 1 + 3 * 2 + 1 * 1) / 10)
    assert tempo.mean_since(tempo.integral(10.0), 10.0, 12.0) == pytest.approx(1.0)


def test_the_mean_over_no_time_is_the_present() -> None:
    tempo = Tempo(0.0)
    tempo.enter(1.0)
    reading = tempo.enter(1.0)
    assert tempo.mean_since(reading, 1.0, 1.0) == 2


def test_the_clock_of_calls_in_flight_ignores_a_time_before_the_last() -> None:
    tempo = Tempo(0.0)
    tempo.enter(0.0)
    assert tempo.integral(4.0) == 4.0
    assert tempo.integral(2.0) == 4.0
    assert tempo.integral(5.0) == 5.0


def test_an_answer_is_planned_to_flow_after_its_first_byte() -> None:
    tempo = Tempo(0.0)
    stream = tempo.plan(100.0, 10.0)
    assert stream.from_s == pytest.approx(10.0 + FIRST_BYTE_S)
    assert stream.to_s == pytest.approx(10.0 + FIRST_BYTE_S + 100.0 * PER_TOKEN_S)
    assert stream.tokens == 100.0


def test_an_answer_whose_first_byte_has_come_flows_at_once() -> None:
    stream = Tempo(0.0).replan(100.0, 10.0)
    assert stream.from_s == 10.0
    assert stream.to_s == pytest.approx(10.0 + 100.0 * PER_TOKEN_S)


@pytest.mark.parametrize(("tokens", "first_byte_s"), [(0.0, 1.0), (1e9, 1.0), (10.0, 1e6)])
def test_a_plan_takes_some_time_and_stays_within_the_horizon(
    tokens: float, first_byte_s: float
) -> None:
    tempo = Tempo(0.0)
    tempo.first_byte(first_byte_s)
    stream = tempo.plan(tokens, 50.0)
    assert stream.from_s < stream.to_s <= 50.0 + HORIZON_S
    assert stream.tokens == tokens
