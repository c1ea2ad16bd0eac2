"""An account takes a call on every limit or on none, and writes down each charge."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Charging, Limit, LimitKind
from headway.sim.account import (
    Acceleration,
    Needs,
    SimulatedAccount,
    Terms,
)

SLOTS = Limit("concurrency", 2.0, 0.0, "gauge")


def _left(account: SimulatedAccount, now: float) -> list[float | None]:
    return [reading.remaining for reading in account.readings(now)]


def test_the_shortage_is_the_limit_that_holds_a_call_back_the_longest() -> None:
    account = SimulatedAccount(
        Terms((Limit("requests", 60.0), Limit("input", 600.0)), (Limit("spend", 60.0),)), 0.0
    )
    assert account.shortage(Needs(600.0, 1.0), 0.0) is None
    account.admit(Needs(600.0, 1.0, 60.0), 0.0, "1")
    assert account.shortage(Needs(100.0, 1.0, 5.0), 0.0) == ("input", 10.0)
    assert account.shortage(Needs(100.0, 1.0, 30.0), 0.0) == ("spend", 30.0)
    assert account.shortage(Needs(0.0, 1.0), 0.0) is None


@pytest.mark.parametrize(
    ("charging", "admitted", "ended", "charged"),
    [
        ("reserved", [200.0, 5500.0], [550.0, 5850.0], [400.0, -350.0]),
        ("kept", [200.0, 5500.0], [200.0, 5500.0], [400.0]),
        ("produced", [600.0, 5900.0], [550.0, 5850.0], [50.0]),
    ],
)
def test_output_is_charged_as_the_terms_say(
    charging: Charging, admitted: list[float], ended: list[float], charged: list[float]
) -> None:
    limits = (Limit("output", 600.0), Limit("tokens", 6000.0, 60.0, "sliding"))
    account = SimulatedAccount(Terms(limits, charging=charging), 0.0)
    needs = Needs(100.0, 400.0)
    account.admit(needs, 0.0, "1")
    assert _left(account, 0.0) == admitted
    account.produce(50.0, 0.0, 0.0)
    account.finish(needs, 50.0, 0.0)
    assert _left(account, 0.0) == ended
    assert [one.amount for one in account.log if one.resource == "output"] == charged


def test_a_charged_refusal_never_makes_a_debt() -> None:
    account = SimulatedAccount(Terms((Limit("requests", 60.0),), refusals_charged=True), 0.0)
    for _ in range(100):
        account.refuse(0.0)
    assert account.shortage(Needs(0.0, 0.0), 0.0) == ("requests", 1.0)


def test_where_output_is_charged_as_produced_a_call_needs_room_for_one_token_of_it() -> None:
    account = SimulatedAccount(Terms((Limit("output", 60.0), Limit("tokens", 600.0))), 0.0)
    account.produce(60.0, 0.0, 0.0)
    assert account.shortage(Needs(100.0, 4000.0), 0.0) == ("output", 1.0)
    assert account.shortage(Needs(100.0, 4000.0), 1.0) is None
    account.admit(Needs(600.0, 4000.0), 6.0, "1")
    assert account.shortage(Needs(0.0, 4000.0), 6.0) == ("tokens", 6.1)


@pytest.mark.parametrize("kind", ["bucket", "sliding", "fixed"])
def test_a_changed_limit_holds_from_its_time_on(kind: LimitKind) -> None:
    limit = Limit("input", 600.0, 60.0, kind, 60.0 if kind == "bucket" else None)
    account = SimulatedAccount(Terms((limit, SLOTS), changes=((10.0, 0.5), (30.0, 2.0))), 0.0)
    assert account.next_change_s(0.0) == 10.0
    account.advance(9.0)
    assert account.readings(9.0)[0].limit == 600.0
    account.advance(10.0)
    (reading,) = account.readings(10.0)
    assert reading.limit == 300.0
    assert reading.remaining == limit.capacity / 2
    assert account.next_change_s(10.0) == 30.0
    account.advance(30.0)
    assert account.readings(30.0)[0].limit == 1200.0
    assert account.next_change_s(30.0) == inf
    needs = Needs(0.0, 0.0)
    account.admit(needs, 30.0, "1")
    account.admit(needs, 30.0, "2")
    assert account.shortage(needs, 30.0) == ("concurrency", inf)


def test_too_sharp_a_rise_is_refused_until_the_window_ends() -> None:
    rule = Acceleration("input", floor=100.0, window_s=10.0, growth=2.0)
    account = SimulatedAccount(Terms((Limit("requests", 2.0),), acceleration=rule), 0.0)
    needs = Needs(80.0, 0.0)
    account.admit(needs, 0.0, "1")
    assert account.shortage(needs, 1.0) == ("input", 10.0)
    assert account.shortage(Needs(20.0, 0.0), 1.0) is None
    assert account.shortage(needs, 10.0) is None
    account.admit(needs, 10.0, "2")
    full = account.shortage(needs, 11.0)
    assert full is not None
    assert full[0] == "requests"
    assert full[1] == pytest.approx(30.0)


def test_a_stream_across_a_boundary_counts_in_each_fixed_window_for_its_part() -> None:
    account = SimulatedAccount(Terms((Limit("output", 600.0, 60.0, "fixed"),)), 0.0)
    account.produce(100.0, 55.0, 65.0)
    assert _left(account, 65.0) == [550.0]
    account.produce(50.0, 65.0, 70.0)
    assert _left(account, 70.0) == [500.0]


@pytest.mark.parametrize(("opened_s", "limit"), [(0.0, 1200.0), (10.0, 300.0), (20.0, 300.0)])
def test_an_account_opened_after_a_change_has_the_changed_limits(
    opened_s: float, limit: float
) -> None:
    changes = ((0.0, 2.0), (10.0, 0.5))
    account = SimulatedAccount(Terms((Limit("input", 600.0),), changes=changes), opened_s)
    assert account.readings(opened_s)[0].limit == limit
