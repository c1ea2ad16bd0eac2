"""A provider that cannot be reached: one call at a time finds out whether it is back."""

from __future__ import annotations

from math import inf
from typing import get_args

import pytest

from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    FaultKind,
    Limit,
    Reading,
    SettledAs,
)
from headway.pacing.account import AccountConfig
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.headers import PLAIN

BROKEN, UNREACHABLE = Fault("broken"), Fault("connection")


class Scene:
    """Many waiting calls of one account; some are answered, so that more than one is in flight."""

    def __init__(self) -> None:
        self.calls = AccountCalls(AccountConfig(), 0.0)
        demand = Demand(Amounts(100.0, 10.0), Amounts(100.0, 100.0))
        for number in range(400):
            self.calls.ask(Call(("", number), demand=demand))
        self.now = 0.0
        self.sent()
        while len(self.calls.in_flight) < 8:
            for call in list(self.calls.in_flight.values()):
                self.calls.first_byte(call, Reading(), self.now + 0.5)
                self.calls.settle(call, "used", Amounts(100.0, 10.0), self.now + 1.0)
            self.now += 2.0
            self.sent()

    def sent(self) -> list[Call]:
        """The calls that are sent now."""
        return list(self.calls.decide(self.now).sent)

    def fails(self, call: Call, fault: Fault) -> None:
        how: SettledAs = "unused" if fault is UNREACHABLE else "used"
        self.calls.settle(call, how, Amounts(), self.now, fault)


def test_when_connections_break_one_call_finds_out_whether_the_provider_is_there() -> None:
    scene = Scene()
    first, *others = scene.calls.in_flight.values()
    scene.fails(first, BROKEN)
    (trial,) = scene.sent()
    assert trial.waited_for == "connection"
    for call in others:
        scene.fails(call, BROKEN)
    assert not scene.sent()
    scene.fails(trial, UNREACHABLE)
    for _ in range(20):
        scene.now += 1.0
        (trial,) = scene.sent()
        scene.now += 0.1
        scene.fails(trial, UNREACHABLE)
        assert not scene.sent()
    scene.now += 1.0
    (trial,) = scene.sent()
    assert not scene.sent()
    scene.calls.reached()
    assert len(scene.sent()) > 1


def test_an_answer_to_a_call_that_was_sent_before_ends_no_outage() -> None:
    scene = Scene()
    older, failing, *_ = scene.calls.in_flight.values()
    scene.now += 0.1
    scene.fails(failing, UNREACHABLE)
    scene.calls.first_byte(older, Reading(), scene.now)
    scene.calls.settle(older, "used", Amounts(100.0, 10.0), scene.now)
    assert not scene.sent()
    scene.now += 1.0
    (trial,) = scene.sent()
    scene.calls.first_byte(trial, Reading(), scene.now + 0.1)
    scene.now += 0.1
    assert scene.sent()


def test_answers_that_go_on_end_the_trial_after_a_broken_connection() -> None:
    scene = Scene()
    broken, flowing, *_ = scene.calls.in_flight.values()
    scene.calls.first_byte(flowing, Reading(), scene.now)
    scene.fails(broken, BROKEN)
    scene.sent()
    assert not scene.sent()
    scene.now += 0.1
    scene.calls.progress(flowing, 5.0, scene.now)
    assert scene.calls.wait is None or not scene.calls.account.pauses.is_trial_due


def test_the_trial_may_be_a_call_that_passes_a_blocked_one() -> None:
    limit = Limit("input", 1000.0, 3600.0, "fixed")
    calls = AccountCalls(AccountConfig(PLAIN, (limit,)), 0.0)
    for number, tokens in enumerate((500.0, 900.0, 10.0, 10.0)):
        demand = Demand(Amounts(tokens, 10.0), Amounts(tokens, 100.0))
        calls.ask(Call(("", number), demand=demand))
    first, *_ = calls.decide(0.0).sent
    calls.settle(first, "used", Amounts(500.0), 1.0, BROKEN)
    assert [call.id[1] for call in calls.decide(1.0).sent] in ([2], [3])


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_an_account_survives_any_number_of_faults_in_a_row(kind: FaultKind) -> None:
    calls, now = AccountCalls(AccountConfig(PLAIN), 0.0), 0.0
    demand = Demand(Amounts(100.0, 10.0), Amounts(100.0, 100.0))
    for number in range(3000):
        calls.ask(Call(("", number), demand=demand))
        decision = calls.decide(now)
        for call in decision.sent:
            calls.settle(call, "throttled", Amounts(), now, Fault(kind))
        now = max(now, calls.decide(now).wake_s) if decision.wake_s < inf else now + 1.0
    if calls.wait is None or calls.wait.resource != "account":
        assert calls.granted > 2500
    assert now < 3000 * 61.0
