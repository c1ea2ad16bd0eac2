"""Usage windows: when they hold, how large they seem, and what of that outlives a process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base.values import LimitReading
from headway.pacing.headers import decode, window_name
from headway.pacing.windows import (
    ALL_OF_EACH,
    MEMORY,
    RESET_STEP_S,
    RISE_MIN,
    RUNS_MAX,
    STEP,
    Allowances,
    WindowState,
)

FIVE_HOURS_S = 18_000.0
WEEK_S = 7 * 86_400.0


MODEL, RUN = "model", "run"


def usage(used: float, period_s: float, reset_s: float) -> LimitReading:
    name, is_empty = window_name(period_s), used >= 1.0
    return LimitReading("tokens", period_s, None, None, reset_s, used, name, is_empty)


def observe(windows: Allowances, told: LimitReading, now: float) -> None:
    windows.observe(told, MODEL, may_probe=False, sent_s=now, now=now)


def until_s(windows: Allowances, now: float) -> float:
    wait = windows.wait(MODEL, 1.0, now)
    assert wait is not None
    return wait.until_s


def only(windows: Allowances, now: float) -> WindowState:
    (one,) = windows.statistics(now)
    return one


def test_a_window_holds_what_we_used_while_its_share_rose() -> None:
    windows = Allowances()
    observe(windows, usage(0.30, FIVE_HOURS_S, 9_000.0), 0.0)
    assert only(windows, 0.0).size_tokens is None
    windows.use(MODEL, 50_000.0, RUN, 0.0)
    observe(windows, usage(0.35, FIVE_HOURS_S, 8_000.0), 1_000.0)
    # What ends after the reading is not in it yet.
    windows.use(MODEL, 9_999.0, RUN, 0.0)
    found = only(windows, 1_000.0)
    assert found.name == "5h"
    assert found.size_tokens == pytest.approx(1e6)
    assert (found.used, found.resets_s) == (0.35, 8_000.0)
    assert found.doubt == pytest.approx(0.2)


def test_a_small_rise_says_nothing_of_the_size() -> None:
    windows = Allowances()
    observe(windows, usage(0.10, FIVE_HOURS_S, 9_000.0), 0.0)
    windows.use(MODEL, 10_000.0, RUN, 0.0)
    observe(windows, usage(0.10 + RISE_MIN - STEP, FIVE_HOURS_S, 9_000.0), 0.0)
    assert only(windows, 0.0).size_tokens is None
    assert WindowState("5h", FIVE_HOURS_S, 0.5, 60.0, 0.0, 0.5).size_tokens is None
    assert (WindowState("7d", WEEK_S, 0.5, 60.0).doubt, window_name(WEEK_S)) == (1.0, "7d")


def test_a_new_window_begins_anew_and_the_old_one_counts_by_half() -> None:
    windows = Allowances()
    observe(windows, usage(0.0, FIVE_HOURS_S, 100.0), 0.0)
    windows.use(MODEL, 40_000.0, RUN, 0.0)
    observe(windows, usage(0.4, FIVE_HOURS_S, 50.0), 50.0)
    # The next one: the share went down, and what was used before is not its own.
    windows.use(MODEL, 5_000.0, RUN, 0.0)
    observe(windows, usage(0.1, FIVE_HOURS_S, FIVE_HOURS_S), 110.0)
    kept = only(windows, 110.0)
    assert (kept.tokens, kept.rise) == pytest.approx((MEMORY * 40_000.0, MEMORY * 0.4))
    windows.use(MODEL, 20_000.0, RUN, 0.0)
    observe(windows, usage(0.2, FIVE_HOURS_S, FIVE_HOURS_S), 120.0)
    assert only(windows, 120.0).size_tokens == pytest.approx((20_000 + 20_000) / (0.2 + 0.1))


def test_a_window_that_is_over_is_empty() -> None:
    windows = Allowances()
    observe(windows, usage(0.7, FIVE_HOURS_S, 100.0), 0.0)
    assert (only(windows, 100.0).used, only(windows, 100.0).resets_s) == (0.0, 0.0)


def test_what_was_before_is_known_and_one_call_finds_out_whether_it_still_is() -> None:
    before = Allowances()
    observe(before, usage(0.5, FIVE_HOURS_S, 9_000.0), 0.0)
    before.use(MODEL, 60_000.0, RUN, 0.0)
    observe(before, usage(1.0, FIVE_HOURS_S, 8_000.0), 1_000.0)
    windows = Allowances()
    windows.restore(before.statistics(1_000.0), 1_000.0)
    found = only(windows, 3_000.0)
    assert (found.used, found.resets_s) == (1.0, 6_000.0)
    assert found.size_tokens == pytest.approx(120_000.0)
    assert windows.wait(MODEL, 1.0, 3_000.0) is None
    observe(windows, usage(1.0, FIVE_HOURS_S, 5_900.0), 3_100.0)
    assert until_s(windows, 3_100.0) == 9_000.0 + RESET_STEP_S


@given(
    st.floats(1e4, 1e8),
    st.lists(st.floats(0.001, 0.05), min_size=1, max_size=15),
    st.floats(0.0, 0.01),
)
def test_a_size_is_never_far_off_and_neighbours_make_it_look_smaller(
    size: float, calls: list[float], others: float
) -> None:
    windows, used = Allowances(), 0.0
    observe(windows, usage(0.0, FIVE_HOURS_S, 9_000.0), 0.0)
    for call in calls:
        windows.use(MODEL, call * size, RUN, 0.0)
        used += call + others
        observe(windows, usage(int(used / STEP) * STEP, FIVE_HOURS_S, 9_000.0), 0.0)
    found = only(windows, 0.0)
    if found.size_tokens is not None:
        truth = size * sum(calls) / used
        assert found.size_tokens >= truth * 0.999
        assert found.size_tokens * (1.0 - found.doubt) <= truth * 1.001


def test_of_two_windows_that_hold_the_one_that_resets_last_is_named() -> None:
    windows = Allowances()
    observe(windows, usage(1.0, WEEK_S, 9_000.0), 0.0)
    observe(windows, usage(1.0, FIVE_HOURS_S, 600.0), 0.0)
    wait = windows.wait(MODEL, 1.0, 0.0)
    assert wait is not None
    assert (wait.resource, wait.until_s) == ("usage/7d", 9_000.0 + RESET_STEP_S)


def test_a_run_is_held_by_the_last_window_of_which_it_has_its_share() -> None:
    windows = Allowances()
    for used, tokens in ((0.0, 0.0), (0.1, 10_000.0)):
        windows.use(MODEL, tokens, RUN, 0.0)
        for period_s, reset_s in ((WEEK_S, 9_000.0), (FIVE_HOURS_S, 600.0)):
            observe(windows, usage(used, period_s, reset_s), 0.0)
    assert windows.share_wait(RUN, ALL_OF_EACH, 0.0, MODEL, 0.0) is None
    assert windows.share_wait(RUN, (0.5, 0.5), 0.0, MODEL, 0.0) is None
    wait = windows.share_wait(RUN, (0.1, 0.1), 0.0, MODEL, 0.0)
    assert wait is not None
    assert wait.resource == "usage/7d"
    # Calls in flight that are expected to use 40 % of it.
    windows.fly(RUN, 40_000.0)
    wait = windows.share_wait(RUN, (1.0, 0.5), 0.0, MODEL, 0.0)
    assert wait is not None
    assert wait.resource == "calls in flight/7d"


def test_only_the_last_runs_of_a_window_are_kept() -> None:
    windows = Allowances()
    observe(windows, usage(0.0, WEEK_S, 9_000.0), 0.0)
    for run in range(RUNS_MAX + 2):
        windows.use(MODEL, 1_000.0, f"run {run}", 0.0)
        observe(windows, usage(0.01 * (run + 1), WEEK_S, 9_000.0), 0.0)
    kept = [run for run, _ in only(windows, 0.0).runs]
    assert len(kept) == RUNS_MAX
    assert kept[-1] == f"run {RUNS_MAX + 1}"


def test_windows_are_named_by_their_period_and_one_without_a_share_says_nothing() -> None:
    unified = "anthropic-ratelimit-unified-5h-"
    told = {f"{unified}status": "allowed", f"{unified}reset": "1794988800"}
    assert decode(told, 1794900000.0).limits == ()
    codex = {"x-codex-primary-used-percent": "40", "x-codex-primary-window-minutes": "90"}
    assert [one.window for one in decode(codex, 0.0).limits] == ["90m"]
