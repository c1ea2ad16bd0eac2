"""Usage windows of a simulated account: counted by what was used, told as a share."""

from __future__ import annotations

from headway.base.values import Limit
from headway.pacing.headers import WINDOW_5H_S, WINDOW_7D_S, decode
from headway.sim.account import Needs, SimulatedAccount, Terms, UsageWindow
from headway.sim.headers import headers

FIVE_HOURS = UsageWindow(1000.0)
SHORT = UsageWindow(1000.0, WINDOW_5H_S, lasts_s=10.0)


def test_a_window_counts_input_at_once_and_output_at_the_end() -> None:
    account = SimulatedAccount(Terms(windows=(FIVE_HOURS,)), 0.0)
    account.admit(Needs(200.0, 700.0), 0.0, "a")
    assert [one.utilization for one in account.readings(1.0)] == [0.2]
    account.finish(Needs(200.0, 700.0), 300.0, 2.0)
    assert [one.utilization for one in account.readings(2.0)] == [0.5]


def test_calls_are_let_in_while_anything_is_left_and_refused_until_the_window_ends() -> None:
    account = SimulatedAccount(Terms(windows=(SHORT,)), 3.0)
    account.admit(Needs(999.0, 0.0), 4.0, "a")
    assert account.shortage(Needs(500.0, 0.0), 5.0) is None
    account.admit(Needs(500.0, 0.0), 5.0, "b")
    assert account.shortage(Needs(1.0, 0.0), 6.0) == ("tokens", 13.0)
    [told] = account.readings(6.0)
    assert (told.period_s, told.utilization, told.reset_s) == (WINDOW_5H_S, 1.0, 7.0)
    assert account.shortage(Needs(500.0, 0.0), 13.0) is None
    [told] = account.readings(13.0)
    assert (told.utilization, told.reset_s) == (0.0, 10.0)


def test_the_longest_wait_of_all_limits_is_the_one_that_is_told() -> None:
    terms = Terms((Limit("requests", 1),), windows=(UsageWindow(10.0, lasts_s=20.0),))
    account = SimulatedAccount(terms, 0.0)
    account.admit(Needs(10.0, 0.0), 0.0, "a")
    assert account.shortage(Needs(1.0, 0.0), 0.0) == ("requests", 60.0)
    assert account.shortage(Needs(1.0, 0.0), 19.0) == ("requests", 60.0)


def test_several_windows_are_reported_in_headers_of_anthropic_only() -> None:
    terms = Terms(windows=(FIVE_HOURS, UsageWindow(4000.0, WINDOW_7D_S)))
    account = SimulatedAccount(terms, 0.0)
    account.admit(Needs(1000.0, 0.0), 0.0, "a")
    said = headers("anthropic", account.readings(60.0), 0.0, None)
    assert ("anthropic-ratelimit-unified-5h-status", "rejected") in said
    assert ("anthropic-ratelimit-unified-7d-utilization", "0.25") in said
    assert [(one.period_s, one.utilization) for one in decode(said, 0.0).limits] == [
        (WINDOW_5H_S, 1.0), (WINDOW_7D_S, 0.25)
    ]  # fmt: skip
    assert len(headers("openai", account.readings(60.0), 0.0, None)) == 1
