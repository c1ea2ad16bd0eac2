"""How many calls may leave within one second, once a burst was refused."""

from __future__ import annotations

from math import inf

import pytest

from headway.pacing.width import (
    RAMP_BURST,
    RAMP_CAUTION,
    RAMP_GROW_S,
    RAMP_GROWTH,
    RAMP_LEAST,
    RAMP_PATIENCE,
    Ramp,
)


def _burst(ramp: Ramp, calls: int, now: float) -> None:
    for _ in range(calls):
        ramp.sent(now)


def test_until_a_burst_is_refused_any_number_may_leave_at_once() -> None:
    ramp = Ramp()
    _burst(ramp, 1000, 0.0)
    assert ramp.when(0.0) == 0.0
    assert ramp.most == inf


def test_a_refused_burst_bounds_what_may_leave_within_a_second() -> None:
    ramp = Ramp()
    _burst(ramp, 20, 10.0)
    ramp.refused(10.0)
    assert ramp.most == RAMP_CAUTION * 20
    assert ramp.when(10.0) == 11.0
    assert ramp.when(11.0) == 11.0
    _burst(ramp, 17, 11.0)
    assert ramp.when(11.0) == 11.0
    _burst(ramp, 1, 11.0)
    assert ramp.when(11.5) == 12.0


def test_the_refusal_of_a_few_is_no_sign_of_a_ramp() -> None:
    ramp = Ramp()
    _burst(ramp, 100, 8.0)
    _burst(ramp, RAMP_BURST - 1, 10.0)
    ramp.refused(10.0)
    assert ramp.most == inf


def test_what_left_a_second_ago_is_no_part_of_a_burst() -> None:
    ramp = Ramp()
    _burst(ramp, 100, 9.0)
    _burst(ramp, RAMP_BURST, 10.0)
    ramp.refused(10.0)
    assert ramp.most == RAMP_CAUTION * RAMP_BURST


def test_a_ramp_that_is_not_refused_grows_on_and_on() -> None:
    ramp = Ramp()
    _burst(ramp, 20, 0.0)
    ramp.refused(0.0)
    for tries in range(1, 6):
        ramp.when(tries * RAMP_GROW_S - 0.01)
        ramp.when(tries * RAMP_GROW_S)
        assert ramp.most == pytest.approx(RAMP_CAUTION * 20 * RAMP_GROWTH**tries)


def test_a_call_that_was_not_let_in_does_not_count() -> None:
    ramp = Ramp()
    ramp.returned()
    _burst(ramp, RAMP_BURST, 0.0)
    ramp.returned()
    ramp.refused(0.0)
    assert ramp.most == inf


def test_a_ramp_never_falls_below_its_least_and_a_later_refusal_never_raises_it() -> None:
    ramp = Ramp(3.0)
    _burst(ramp, 50, 0.0)
    ramp.refused(0.0)
    assert ramp.most == 3.0
    low = Ramp(RAMP_LEAST / 2)
    _burst(low, 50, 0.0)
    low.refused(0.0)
    assert low.most == RAMP_LEAST


def test_a_ramp_grows_after_a_while_and_waits_longer_after_each_refused_try() -> None:
    ramp = Ramp()
    _burst(ramp, 20, 0.0)
    ramp.refused(0.0)
    ramp.refused(0.1)
    before = ramp.most
    ramp.when(RAMP_GROW_S)
    assert ramp.most == before
    ramp.when(0.1 + RAMP_GROW_S)
    assert ramp.most == RAMP_GROWTH * before
    again_s = 0.2 + 2 * RAMP_GROW_S
    _burst(ramp, 20, again_s)
    ramp.refused(again_s)
    before = ramp.most
    ramp.when(again_s + RAMP_GROW_S)
    assert ramp.most == before
    ramp.when(again_s + RAMP_PATIENCE * RAMP_GROW_S)
    assert ramp.most == RAMP_GROWTH * before


def test_a_ramp_from_a_profile_is_tried_again_too() -> None:
    ramp = Ramp(5.0, now=100.0)
    ramp.when(100.0)
    assert ramp.most == 5.0
    ramp.when(100.0 + RAMP_GROW_S)
    assert ramp.most == 5.0
    ramp.when(100.0 + RAMP_GROW_S * RAMP_PATIENCE**2)
    assert ramp.most == 5.0 * RAMP_GROWTH
