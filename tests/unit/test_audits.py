"""The audit finds what a tampered log exceeds, and nothing in the log of an honest account."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headway.base.values import Limit, LimitKind, Resource
from headway.sim.account import Charge, Needs, SimulatedAccount, Terms
from headway.sim.audit import (
    NEIGHBOUR,
    violations,
    worst_window,
)


def _at(now: float, amount: float, resource: Resource = "input", by: str = "1") -> Charge:
    return Charge(resource, now, now, amount, by)


def test_tokens_are_input_and_output_and_a_neighbours_tokens_stand_for_its_own() -> None:
    log = [
        _at(0.0, 1.0, "input"),
        _at(0.0, 2.0, "output"),
        _at(0.0, 4.0, "requests"),
        _at(0.0, 8.0, "tokens", NEIGHBOUR),
        _at(0.0, 16.0, "input", NEIGHBOUR),
    ]
    assert worst_window(log, "tokens", 60.0)[0] == 11.0
    assert worst_window(log, "input", 60.0)[0] == 17.0


@pytest.mark.parametrize(
    ("log", "worst"),
    [
        ([], (0.0, 0.0)),
        ([_at(0.0, 6.0), _at(59.0, 6.0)], (12.0, 0.0)),
        ([_at(0.0, 6.0), _at(60.0, 6.0)], (6.0, 60.0)),
        ([_at(0.0, 10.0), _at(30.0, -4.0), _at(40.0, 4.0)], (10.0, 0.0)),
        ([_at(0.0, 10.0), _at(40.0, 4.0), _at(50.0, -4.0)], (14.0, 0.0)),
        ([_at(0.0, 10.0), _at(70.0, -8.0), _at(80.0, 12.0)], (12.0, 80.0)),
    ],
)
def test_the_worst_window_is_shorter_than_the_period_and_counts_refunds_when_given(
    log: list[Charge], worst: tuple[float, float]
) -> None:
    assert worst_window(log, "input", 60.0) == worst


@pytest.mark.parametrize(
    ("kind", "log", "excess"),
    [
        ("bucket", [_at(0.0, 100.0), _at(6.0, 10.0)], None),
        ("bucket", [_at(0.0, 100.0), _at(6.0, 13.0)], 3.0),
        ("bucket", [_at(1000.0, 101.0)], 1.0),
        ("fixed", [_at(59.0, 80.0), _at(60.0, 80.0)], None),
        ("fixed", [_at(60.0, 80.0), _at(90.0, 80.0)], 60.0),
        ("bucket", [], None), ("sliding", [], None), ("fixed", [], None),
    ],
)  # fmt: skip
def test_each_kind_of_limit_has_its_own_excess(
    kind: LimitKind, log: list[Charge], excess: float | None
) -> None:
    found = violations(Terms((Limit("input", 100.0, 60.0, kind),)), log, 1e-6)
    assert [more for _, more in found] == ([] if excess is None else [pytest.approx(excess)])


LIMITS = (
    Limit("input", 60.0, 60.0, "bucket"),
    Limit("input", 60.0, 60.0, "sliding"),
    Limit("input", 60.0, 60.0, "fixed"),
)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.kind)
def test_an_interval_is_held_to_the_limit_in_force_during_it(limit: Limit) -> None:
    log = [_at(0.0, 60.0), _at(200.0, 50.0)]
    terms = Terms(limits=(limit,))
    assert violations(terms, log, 1e-6) == []
    lowered = replace(terms, changes=((100.0, 0.5),))
    ((exceeded, excess),) = violations(lowered, log, 1e-6)
    assert exceeded == limit
    assert excess == pytest.approx(20.0)
    assert violations(lowered, log, 0.5) == []


@given(
    gaps=st.lists(
        st.tuples(st.floats(0.0, 20.0), st.floats(1.0, 50.0), st.floats(0.0, 1.0)), max_size=25
    )
)
@settings(max_examples=40)
def test_the_log_of_an_honest_account_is_clean_and_a_tampered_one_is_not(
    gaps: list[tuple[float, float, float]],
) -> None:
    limits = (*LIMITS, Limit("output", 90.0, 60.0, "sliding"), Limit("output", 90.0, 30.0))
    account = SimulatedAccount(Terms(limits=limits, charging="reserved"), 0.0)
    now = 0.0
    for gap_s, input_tokens, used in gaps:
        now += gap_s
        needs = Needs(input_tokens, 30.0)
        if account.shortage(needs, now) is None:
            account.admit(needs, now, "1")
            account.finish(needs, 30.0 * used, now)
    assert violations(account.terms, account.log, 1e-6) == []
    tampered = [*account.log, _at(now, 61.0)]
    assert {limit.kind for limit, _ in violations(Terms(LIMITS), tampered, 1e-6)} == {
        "bucket",
        "sliding",
        "fixed",
    }
