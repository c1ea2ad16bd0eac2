"""A process goes on where another one stopped: levels, windows, ceilings, calls in flight."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, Demand, Limit, LimitKind, LimitReading
from headway.pacing.account import Account, AccountConfig
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.limits import TrackedLimit
from headway.pacing.meters import PlannedStream

CALL = Demand(Amounts(100.0, 50.0), Amounts(100.0, 400.0))
STREAM = PlannedStream(0.0, 1.0, 50.0)


def _call() -> Call:
    return Call(("", 0), demand=CALL, stream=STREAM, sent_s=0.0)


def _account(limit: Limit, now: float, share: float = 1.0) -> Account:
    return Account(AccountConfig(limits=(limit,), share=share), now)


def _restored(
    limit: Limit, told: LimitReading, at_s: float, now: float, share: float = 1.0
) -> Account:
    account = _account(limit, now, share)
    account.restore((told,), at_s, now)
    return account


def _moved(
    limit: Limit, at_s: float, now: float, share: float = 1.0, uses: int = 1
) -> TrackedLimit:
    """A limit of which so many calls were charged at 0 s, seen at one time, gone on at another."""
    before = _account(limit, 0.0, share)
    for _ in range(uses):
        call = _call()
        before.charge(call, 0.0)
        before.settle(call, CALL.expected, 0.0)
    return _restored(limit, before.standing(at_s)[0], at_s, now, share).limits[0]


def test_a_standing_reads_like_a_report() -> None:
    account = _account(Limit("input", 6000.0), 0.0)
    account.charge(_call(), 0.0)
    assert account.standing(0.5) == (LimitReading("input", 60.0, 6000.0, 5950.0, None),)
    window = _account(Limit("input", 6000.0, kind="fixed"), 0.0, share=0.5)
    window.charge(_call(), 0.0)
    (told,) = window.standing(10.0)
    assert (told.remaining, told.reset_s) == (5900.0, 50.0)
    assert told.utilization == pytest.approx(100.0 / 6000.0)


def test_a_bucket_has_refilled_meanwhile() -> None:
    limit = Limit("input", 6000.0)
    assert _moved(limit, 0.0, 0.5).level(0.5) == 5950.0
    assert _moved(limit, 0.0, 9.0).level(9.0) == 6000.0


def test_a_window_ends_when_it_would_have_ended() -> None:
    limit = Limit("input", 6000.0, kind="fixed")
    within = _moved(limit, 10.0, 30.0)
    assert within.level(59.0) == 5900.0
    assert within.level(60.0) == 6000.0
    assert within.level(119.0) == 6000.0
    assert _moved(limit, 10.0, 130.0).level(130.0) == 6000.0


def test_a_window_of_which_the_edge_is_not_known_begins_now() -> None:
    told = LimitReading("input", 60.0, 6000.0, 5000.0, None)
    limit = _restored(Limit("input", 6000.0, kind="fixed"), told, 4.0, 5.0).limits[0]
    assert (limit.level(64.0), limit.level(65.0)) == (5000.0, 6000.0)


def test_a_sliding_window_holds_everything_for_a_period_from_when_it_was_seen() -> None:
    mirror = _moved(Limit("input", 6000.0, kind="sliding"), 10.0, 30.0)
    assert mirror.level(69.0) == 5900.0
    assert mirror.level(71.0) == 6000.0


def test_a_limit_that_was_changed_meanwhile_keeps_what_was_used() -> None:
    before = _account(Limit("requests", 50.0, kind="sliding"), 0.0)
    for _ in range(30):
        before.charge(_call(), 0.0)
    (told,) = before.standing(1.0)
    after = _restored(Limit("requests", 20.0, kind="sliding"), told, 1.0, 1.0)
    assert after.limits[0].level(1.0) == -10.0


def test_money_that_was_spent_stays_spent() -> None:
    told = LimitReading("spend", 60.0, 1000.0, 600.0, None, 0.4)
    limit = _restored(Limit("spend", 1000.0, kind="gauge"), told, 0.0, 1e6, share=0.5).limits[0]
    assert limit.level(1e6) == 600.0
    assert limit.ceiling is not None
    assert limit.ceiling.level(1e6) == 100.0


@pytest.mark.parametrize("resource", ["input", "output"])
def test_a_ceiling_remembers_what_we_took_for_a_period(resource: str) -> None:
    limit = Limit("input" if resource == "input" else "output", 1000.0)
    mirror = _moved(limit, 20.0, 21.0, share=0.5, uses=4)
    assert mirror.ceiling is not None
    took = 400.0 if resource == "input" else 200.0
    assert mirror.ceiling.level(30.0) == pytest.approx(500.0 - took)
    assert mirror.ceiling.level(90.0) == pytest.approx(500.0)
    late = _moved(limit, 20.0, 81.0, share=0.5, uses=4)
    assert late.ceiling is not None
    assert late.ceiling.level(81.0) == 500.0


@pytest.mark.parametrize(
    ("kind", "left"), [("sliding", 300.0), ("fixed", 300.0), ("bucket", 400.0)]
)
def test_a_ceiling_that_is_new_counts_what_a_window_knows(kind: LimitKind, left: float) -> None:
    limit = Limit("input", 800.0, kind=kind)
    before = _account(limit, 0.0)
    before.charge(_call(), 0.0)
    (told,) = before.standing(1.0)
    ceiling = _restored(limit, told, 1.0, 1.0, share=0.5).limits[0].ceiling
    assert ceiling is not None
    assert ceiling.level(1.0) == left


def _adopted(calls: AccountCalls, sent_s: float, known_s: float, now: float) -> Call:
    call = Call(("", 1), demand=CALL)
    calls.adopt(call, sent_s, known_s, now)
    return call


@pytest.mark.parametrize(("known_s", "left"), [(0.5, 5900.0), (2.0, 6000.0)])
def test_an_adopted_call_is_charged_unless_that_is_known_already(
    known_s: float, left: float
) -> None:
    calls = AccountCalls(AccountConfig(limits=(Limit("input", 6000.0),)), 3.0)
    call = _adopted(calls, 1.0, known_s, 3.0)
    assert calls.account.limits[0].level(3.0) == left
    assert (call.sent_s, call.waited_for, list(calls.in_flight.values())) == (1.0, "", [call])
    assert calls.account.speed.in_flight == 1


def test_an_adopted_call_above_a_ceiling_of_ours_is_charged_there_too() -> None:
    calls = AccountCalls(AccountConfig(limits=(Limit("input", 6000.0),), share=0.5), 3.0)
    _adopted(calls, 1.0, 0.0, 3.0)
    ceiling = calls.account.limits[0].ceiling
    assert ceiling is not None
    assert ceiling.level(3.0) == 2900.0


@pytest.mark.parametrize("known_s", [0.0, 1.5, 10.0])
def test_the_answer_of_an_adopted_call_is_charged_once(known_s: float) -> None:
    """Sent at 0 s, first byte expected at 1 s, fifty tokens until 2 s; adopted at 10 s."""
    limit = Limit("output", 600.0, period_s=1e9)
    calls = AccountCalls(AccountConfig(limits=(limit,)), 10.0)
    produced = {0.0: 0.0, 1.5: 25.0, 10.0: 50.0}[known_s]
    seen = LimitReading("output", 1e9, 600.0, 600.0 - produced, None)
    calls.account.restore((seen,), known_s, 10.0)
    call = _adopted(calls, 0.0, known_s, 10.0)
    assert calls.account.limits[0].level(10.0) == pytest.approx(550.0, abs=0.1)
    calls.settle(call, "used", Amounts(100.0, 80.0), 10.0)
    assert calls.account.limits[0].level(10.0) == pytest.approx(520.0, abs=0.1)
