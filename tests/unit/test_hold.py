"""What holds everybody back: closed accounts, overloads, waits that nobody named."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Wait
from headway.pacing.account import (
    AGAIN_S,
    HOLD_S_MAX,
    OVERLOAD_S_MAX,
    UNTOLD_S,
    UNVERIFIED_S,
    Hold,
)


def _until_s(hold: Hold, now: float) -> float:
    wait = hold.wait(now)
    assert wait is not None
    assert wait.reason
    return wait.until_s


def test_nothing_holds_a_fresh_account_back() -> None:
    hold = Hold(1.0)
    assert hold.wait(0.0) is None


def test_a_closed_account_stays_closed_for_its_first_reason() -> None:
    hold = Hold(1.0)
    hold.close("billing: no credit")
    hold.close("spend_cap: reached")
    assert hold.wait(1e9) == Wait("account", inf, "billing: no credit")


def test_a_ceiling_of_nothing_closes_the_account() -> None:
    assert Hold(0.0).wait(0.0) == Wait("account", inf, "the ceiling leaves nothing of any limit")


def test_overloads_in_a_row_hold_longer_each_time_until_a_call_is_let_in() -> None:
    hold = Hold(1.0)
    for expected_s in (1.0, 2.0, 4.0, 8.0, 16.0, OVERLOAD_S_MAX, OVERLOAD_S_MAX):
        hold.overloaded(None, 100.0)
        assert hold.wait(100.0) == Wait("account", 100.0 + expected_s, "provider overloaded")
    hold.answered()
    hold.overloaded(None, 200.0)
    assert _until_s(hold, 200.0) == 201.0
    assert hold.wait(201.0) is None


def test_an_overload_holds_as_long_as_it_is_told_up_to_a_bound() -> None:
    hold = Hold(1.0)
    hold.overloaded(7.0, 0.0)
    assert _until_s(hold, 0.0) == 7.0
    hold.overloaded(3600.0, 0.0)
    assert _until_s(hold, 0.0) == OVERLOAD_S_MAX


def test_a_missing_slot_holds_nobody_while_one_of_ours_will_free_one() -> None:
    hold = Hold(1.0)
    hold.crowded(1, 0.0)
    assert hold.wait(0.0) is None


def test_a_missing_slot_with_nobody_of_ours_in_flight_waits_briefly_and_longer_each_time() -> None:
    hold = Hold(1.0)
    for expected_s in (0.5, 1.0, 2.0, 4.0, UNVERIFIED_S, UNVERIFIED_S):
        hold.crowded(0, 10.0)
        assert hold.wait(10.0) == Wait(
            "account", 10.0 + expected_s, "somebody else holds every slot"
        )
    hold.answered()
    hold.crowded(0, 20.0)
    assert _until_s(hold, 20.0) == 20.5


@pytest.mark.parametrize(("told_s", "held_s"), [(None, UNTOLD_S), (0.3, 0.3), (3600.0, HOLD_S_MAX)])
def test_a_refused_burst_waits_as_told_within_bounds(told_s: float | None, held_s: float) -> None:
    hold = Hold(1.0)
    hold.burst_refused(told_s, 0.0)
    assert hold.wait(0.0) == Wait("account", held_s, "a burst was refused")


def test_a_wait_that_nobody_named_is_tried_after_five_seconds() -> None:
    hold = Hold(1.0)
    hold.asked(40.0, 0.0)
    assert hold.wait(0.0) == Wait("account", UNVERIFIED_S, "asked to wait")
    assert hold.wait(UNVERIFIED_S) is None


def test_an_unnamed_wait_is_meant_when_the_try_is_refused_again_at_once() -> None:
    hold = Hold(1.0)
    hold.asked(40.0, 0.0)
    hold.asked(35.0, UNVERIFIED_S)
    assert _until_s(hold, UNVERIFIED_S) == UNVERIFIED_S + 35.0
    hold.asked(3600.0, 500.0)
    assert _until_s(hold, 500.0) == 500.0 + HOLD_S_MAX


def test_an_unnamed_wait_that_comes_long_after_another_does_not_confirm_it() -> None:
    hold = Hold(1.0)
    hold.asked(40.0, 0.0)
    later_s = UNVERIFIED_S + AGAIN_S
    hold.asked(40.0, later_s)
    assert _until_s(hold, later_s) == later_s + UNVERIFIED_S


def test_a_short_unnamed_wait_is_kept_to_the_letter() -> None:
    hold = Hold(1.0)
    hold.asked(2.0, 0.0)
    assert _until_s(hold, 0.0) == 2.0
