"""An account that reports nothing: drive, bracket the rate, blame one resource, doubt the blame."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, Demand
from headway.pacing.hidden_limits import (
    ALARM_MEMORY_S,
    ALARMS_MAX,
    PROBE_S_MAX,
    Blind,
)


def _demand(input_tokens: float = 100.0, output_tokens: float = 10.0) -> Demand:
    return Demand(Amounts(input_tokens, output_tokens), Amounts(input_tokens, 4 * output_tokens))


CALL = _demand()


def _widened(width: int = 4) -> Blind:
    """An account that has served so many at once by 1.0."""
    blind = Blind(0.0)
    for _ in range(width):
        blind.granted(CALL, 0.0)
    for company in range(1, width + 1):
        assert blind.accepted(CALL, 0.0, company, 1.0) is None
    return blind


def test_after_wrong_alarms_the_crowd_is_suspected_no_more_for_a_while() -> None:
    blind = _widened(4)
    now = 10.0
    for company in range(5, 5 + ALARMS_MAX):
        assert blind.refused(CALL, now, company, now + 0.5) == "crowd"
        assert blind.accepted(CALL, now + 1, company, now + 1.5) == "crowd"
        now += 2.0
    assert blind.refused(CALL, now, 9, now + 0.5) == "rate"
    assert blind.accepted(CALL, now + 1, 1, now + 1.5) is None
    later_s = now + ALARM_MEMORY_S
    assert blind.refused(CALL, later_s, 9, later_s + 0.5) == "crowd"


def test_after_refusals_in_a_row_tries_come_at_one_two_four_then_every_eight_seconds() -> None:
    blind = _widened(4)
    now = 2.0
    for expected_s in (1.0, 2.0, 4.0, PROBE_S_MAX, PROBE_S_MAX):
        blind.granted(CALL, now)
        blind.returned(CALL, now)
        assert blind.refused(CALL, now, 0, now + 0.1) == "rate"
        assert blind.when(CALL, now + 0.1) == pytest.approx(now + expected_s)
        now += expected_s
    assert blind.when(CALL, now + 60.0) == now + 60.0


def _bracketed() -> Blind:
    """Refusals at 2 and 12; in between, ten calls were let in, one a second."""
    blind = _widened(20)
    blind.refused(CALL, 1.5, 0, 2.0)
    for second in range(3, 12):
        blind.granted(CALL, float(second))
        blind.accepted(CALL, float(second), 1, second + 0.1)
    assert blind.refused(CALL, 11.5, 0, 12.0) == "rate"
    blind.granted(CALL, 13.0)
    blind.accepted(CALL, 13.0, 1, 13.1)
    return blind


def test_a_bracketed_rate_paces_the_calls_after_it() -> None:
    blind = _bracketed()
    learned = blind._brackets[blind._blamed]
    assert blind._blamed == "input"
    assert 80.0 < learned.low <= 100.0 <= learned.high < 120.0
    assert 13.5 < blind.when(CALL, 13.2) < 14.5


def _seconds_per_call(blind: Blind, now: float) -> float:
    """How far apart calls are kept once what was saved up is spent."""
    while blind.when(CALL, now) == now:
        blind.granted(CALL, now)
    first_s = blind.when(CALL, now)
    blind.granted(CALL, now)
    return blind.when(CALL, now) - first_s


def test_a_bound_that_is_not_confirmed_is_pushed_ever_faster() -> None:
    apart = [_seconds_per_call(_bracketed(), 13.2 + idle_s) for idle_s in (0.0, 24.0, 48.0, 600.0)]
    assert apart == sorted(apart, reverse=True)
    assert apart[0] / apart[1] < apart[1] / apart[2]
    # No push more than doubles the rate.
    assert apart[0] / apart[3] == pytest.approx(2.0, rel=0.01)


def test_a_small_bucket_is_pushed_sooner() -> None:
    def apart_s(burst: int) -> float:
        blind = Blind(0.0)
        for _ in range(burst):
            blind.granted(CALL, 0.0)
            blind.accepted(CALL, 0.0, burst, 0.1)
        blind.refused(CALL, 0.5, 0, 1.0)
        for second in range(2, 12):
            blind.granted(CALL, float(second))
            blind.accepted(CALL, float(second), 1, float(second))
        blind.refused(CALL, 11.5, 0, 12.0)
        blind.granted(CALL, 13.0)
        blind.accepted(CALL, 13.0, 1, 13.0)
        return _seconds_per_call(blind, 24.0)

    assert apart_s(2) < 0.95 * apart_s(10)


def test_contradictions_move_the_blame_to_the_resource_that_is_short() -> None:
    """One call a second is the limit; what calls take of anything else changes all the time."""
    blind = _widened(50)
    blind.refused(CALL, 1.5, 0, 2.0)
    assert blind._blamed == "input"
    start_s = 2.0
    for size in (1000.0, 1.0, 1000.0, 1.0):
        call = _demand(size, size)
        for second in range(1, 10):
            sent_s = start_s + second
            blind.granted(call, sent_s)
            blind.accepted(call, sent_s, 1, sent_s + 0.1)
            blind.settled(call, call.expected)
        assert blind.refused(call, start_s + 9.5, 0, start_s + 10.0) == "rate"
        start_s += 10.0
    learned = blind._brackets["requests"]
    assert blind._blamed == "requests"
    assert learned.low <= 1.0 <= learned.high
    assert blind.refusals == 5


def test_a_short_drought_is_no_window() -> None:
    blind = _widened(4)
    blind.refused(CALL, 1.5, 0, 2.0)
    blind.refused(CALL, 3.0, 0, 3.1)
    assert blind.accepted(CALL, 5.0, 1, 5.5) is None
    assert blind.when(_demand(1e6), 6.0) > 6.0


@pytest.mark.parametrize(
    ("used", "blamed"), [(16.0, "output"), (32.0, "requests"), (64.0, "reserved")]
)
def test_what_calls_really_took_tells_the_suspects_apart(used: float, blamed: str) -> None:
    """Calls expected to write 16 and allowed to write 64, one a second, then a refusal."""
    call = _demand(0.0, 16.0)
    blind = _widened(4)
    assert blind.refused(call, 1.5, 0, 2.0) == "rate"
    for second in range(3, 12):
        blind.granted(call, float(second))
        blind.accepted(call, float(second), 1, second + 0.1)
        blind.settled(call, Amounts(0.0, used))
    assert blind.refused(call, 11.5, 0, 12.0) == "rate"
    assert blind._blamed == blamed
