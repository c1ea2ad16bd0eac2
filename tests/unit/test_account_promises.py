"""What an account promises over days, months, money, wall time and first words from a provider."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import (
    DAY_S,
    HOUR_S,
    Amounts,
    Demand,
    Fault,
    Limit,
    LimitKind,
    LimitReading,
    Reading,
    Wait,
)
from headway.pacing.account import AccountConfig, Profile
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls, Decision
from headway.pacing.headers import ANTHROPIC, GEMINI, PLAIN

MONTH_S = 30 * DAY_S
WALL_S = 1_767_225_600.0
"""The first of January 2026, in seconds since 1970."""

WIDE = Profile(width=100.0)


def _demand(input_tokens: float = 0.0, output_tokens: float = 0.0, spend: int = 0) -> Demand:
    amounts = Amounts(input_tokens, output_tokens, spend)
    return Demand(amounts, amounts)


def _used(spend: int = 0, input_tokens: float = 0.0) -> Amounts:
    return Amounts(input_tokens, 0.0, spend)


def _asked(calls: AccountCalls, count: int, demand: Demand) -> None:
    for _ in range(count):
        calls.ask(Call(("", calls.granted + calls.queued), demand=demand))


def _sent(calls: AccountCalls, demand: Demand, now: float) -> Call | None:
    """One call, if it may go now."""
    call = Call(("", calls.granted), demand=demand)
    calls.ask(call)
    if not calls.decide(now).sent:
        calls.leave(call)
        return None
    return call


def _ended(calls: AccountCalls, decision: Decision, now: float) -> int:
    """End at once what was sent, as expected; how many that were."""
    for call in decision.sent:
        calls.settle(call, "used", call.demand.expected, now)
    return len(decision.sent)


@pytest.mark.parametrize("period_s", [5 * HOUR_S, DAY_S, 7 * DAY_S, MONTH_S])
@pytest.mark.parametrize(
    ("limit", "demand"),
    [("requests", _demand()), ("input", _demand(100.0)), ("spend", _demand(spend=100))],
)
def test_a_limit_over_a_long_period_lets_all_of_it_through_and_then_waits_for_the_next(
    limit: str, demand: Demand, period_s: float
) -> None:
    amount = {"requests": 10.0, "input": 1001.0, "spend": 1000.0}[limit]
    resource = next(one for one in ("requests", "input", "spend") if one == limit)
    known = Limit(resource, amount, period_s, "fixed")
    calls = AccountCalls(AccountConfig(PLAIN, limits=(known,), profile=WIDE), 0.0)
    _asked(calls, 25, demand)
    assert _ended(calls, calls.decide(0.0), 0.0) == 10
    assert calls.decide(0.0).wait == Wait(known.name, period_s, "refilling")
    assert _ended(calls, calls.decide(period_s - 1.0), period_s - 1.0) == 0
    assert _ended(calls, calls.decide(period_s), period_s) == 10


def test_limits_of_all_lengths_hold_together() -> None:
    limits = (
        Limit("requests", 2.0, 60.0, "fixed"),
        Limit("requests", 5.0, DAY_S, "fixed"),
        Limit("requests", 8.0, MONTH_S, "fixed"),
    )
    calls = AccountCalls(AccountConfig(limits=limits, profile=WIDE), 0.0)
    _asked(calls, 20, _demand())
    now = 0.0
    starts: list[float] = []
    while now < inf and len(starts) < 9:
        decision = calls.decide(now)
        starts += [now] * _ended(calls, decision, now)
        now = decision.wake_s
    day_s = DAY_S
    assert starts == [0, 0, 60, 60, 120, day_s, day_s, day_s + 60, MONTH_S, MONTH_S]


@given(
    st.lists(
        st.tuples(st.integers(1, 120), st.floats(0.0, 1.0), st.floats(0.0, 80.0)),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from(("fixed", "gauge")),
)
@settings(max_examples=60)
def test_spent_and_the_ceilings_in_flight_never_exceed_the_money(
    calls: list[tuple[int, float, float]], kind: LimitKind
) -> None:
    """Calls may cost less than their ceiling, and last beyond the end of a period."""
    known = Limit("spend", 100.0, 50.0 if kind == "fixed" else 0.0, kind)
    account = AccountCalls(AccountConfig(limits=(known,), profile=WIDE), 0.0)
    running: list[tuple[float, Call, int]] = []
    paid: list[tuple[float, int]] = []
    for number, (ceiling, share, lasts_s) in enumerate(calls):
        now = 7.0 * number
        for ends_s, call, cost in sorted(running, key=lambda one: one[0]):
            if ends_s <= now:
                account.settle(call, "used", _used(cost), ends_s)
                paid.append((ends_s, cost))
        running = [one for one in running if one[0] > now]
        sent = _sent(account, _demand(spend=ceiling), now)
        assert ceiling <= known.amount or sent is None
        if sent is not None:
            running.append((now + lasts_s, sent, int(share * ceiling)))
        begins_s = now // 50.0 * 50.0 if kind == "fixed" else 0.0
        spent = sum(cost for at_s, cost in paid if at_s >= begins_s)
        held = sum(call.demand.ceiling.spend_microusd for _, call, _ in running)
        assert spent + held <= known.amount


@pytest.mark.parametrize("began_s", [0.0, WALL_S])
def test_an_account_on_wall_time_does_what_one_that_starts_at_zero_does(began_s: float) -> None:
    limits = (Limit("output", 600.0), Limit("input", 6000.0, kind="sliding"),
              Limit("requests", 6.0, kind="fixed"))  # fmt: skip
    config = AccountConfig(limits=limits, share=0.5, profile=Profile(cap=3.0, cap_probes=1))
    calls = AccountCalls(config, began_s)
    _asked(calls, 9, _demand(500.0, 50.0))
    now = began_s
    starts: list[int] = []
    while len(starts) < 9:
        decision = calls.decide(now)
        starts += [round(now - began_s)] * _ended(calls, decision, now)
        now = decision.wake_s
    assert starts == [0, 0, 0, 60, 60, 60, 120, 120, 120]


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_configured_cap_is_not_exceeded_even_after_it_was_lowered(share: float) -> None:
    limit = Limit("concurrency", 4.0, 0.0, "gauge")
    most = int(4 * share)
    calls = AccountCalls(AccountConfig(limits=(limit,), share=share, profile=WIDE), 0.0)
    _asked(calls, 40, _demand())
    sent = list(calls.decide(0.0).sent)
    assert len(sent) == most
    # Somebody else holds a slot for a while.
    calls.settle(sent.pop(), "throttled", _used(), 0.0, Fault("concurrency"))
    now = 0.0
    for _ in range(40):
        now += 60.0
        sent += calls.decide(now).sent
        assert len(sent) <= most
        for call in sent:
            calls.first_byte(call, Reading(), now)
    assert len(sent) == most


def _told(resource: str, period_s: float, remaining: float) -> LimitReading:
    known = next(one for one in ("requests", "input") if one == resource)
    return LimitReading(known, period_s, 100.0, remaining, 30.0)


def test_limits_that_a_refusal_reveals_count_the_calls_that_were_in_flight() -> None:
    calls = AccountCalls(AccountConfig(GEMINI, profile=WIDE), 0.0)
    _asked(calls, 4, _demand(10.0))
    sent = calls.decide(0.0).sent
    reading = Reading((_told("requests", 60.0, 1.0), _told("input", 60.0, 5.0)))
    calls.settle(sent[3], "throttled", _used(), 1.0, Fault("rate", "input", 30.0), reading)
    for call in sent[:3]:
        assert calls.settle(call, "used", _used(input_tokens=10.0), 2.0)
    assert _sent(calls, _demand(10.0), 2.0) is None


@pytest.mark.parametrize("kind", ["spend_cap", "billing"])
def test_a_closed_account_grants_nothing_whatever_comes_after(kind: str) -> None:
    calls = AccountCalls(AccountConfig(ANTHROPIC, profile=WIDE), 0.0)
    _asked(calls, 3, _demand())
    sent = calls.decide(0.0).sent
    closing = Fault("spend_cap" if kind == "spend_cap" else "billing", detail="no credit")
    calls.settle(sent[0], "unused", _used(), 0.0, closing)
    # What is still in flight neither opens the account nor shortens the wait.
    overload = Fault("overload", retry_after_s=1.0)
    calls.settle(sent[1], "throttled", _used(), 0.0, overload)
    calls.first_byte(sent[2], Reading(), 1.0)
    _asked(calls, 1, _demand())
    decision = calls.decide(1e6)
    assert decision.sent == ()
    assert decision.wait == Wait("account", inf, f"{kind}: no credit")
    assert decision.wake_s == inf


def test_a_usage_window_is_used_up_to_the_users_share_and_again_after_its_reset() -> None:
    calls = AccountCalls(AccountConfig(ANTHROPIC, share=0.5), 0.0)
    call = _sent(calls, _demand(), 0.0)
    assert call is not None
    told = LimitReading("tokens", 5 * HOUR_S, None, None, 600.0, 0.5, "5h")
    calls.first_byte(call, Reading((told,)), 1.0)
    _asked(calls, 1, _demand())
    decision = calls.decide(2.0)
    why = "usage window 5h is 50% used, and the ceiling is 50%"
    assert decision.wait == Wait("usage/5h", 602.0, why)
    assert len(calls.decide(decision.wake_s).sent) == 1
