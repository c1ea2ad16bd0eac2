"""The record of the simulated provider, and its prompt cache."""

from __future__ import annotations

import pytest

from headway.base.values import Limit
from headway.sim import truth as record
from headway.sim.account import Needs, SimulatedAccount, Terms
from headway.sim.provider import PromptCache
from headway.sim.truth import Truth, Visit, audit


def visit(number: int, key: str = "k", at_s: float = 0.0) -> Visit:
    return Visit(number, at_s, key, "anthropic", "echo", False)


def test_a_call_is_over_once_and_every_call_is_somewhere() -> None:
    truth = Truth()
    visits = [visit(number) for number in range(6)]
    for each in visits:
        truth.came(each)
    for each in visits[:4]:
        truth.accepted(each)
    visits[4].refused_for = "input"
    for each, how in zip(visits, ("whole", "cancelled", "cut"), strict=False):
        truth.over(each, how, 1.0)
        truth.over(each, "cancelled", 2.0)
    truth.over(visits[4], "refused", 1.0)
    truth.over(visits[5], "500", 1.0)
    found = truth.account("k")
    assert (found.calls, found.accepted, found.whole, found.cancelled) == (6, 4, 1, 1)
    assert (found.refused, found.failures) == ({"input": 1}, {"cut": 1, "500": 1})
    assert found.in_flight == 1


def test_a_long_log_is_folded_and_nothing_of_the_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "CHARGES_MAX", 100)
    account = SimulatedAccount(Terms((Limit("requests", 60, 10.0, "sliding"),)), 0.0)
    truth = Truth()
    for number in range(200):
        # Half of the calls come in the first ten seconds, the others slowly.
        account.admit(Needs(1.0, 0.0), number / 10 if number < 100 else float(number), "1")
        log = truth.folded("k", account)
        if log is not None:
            truth.adopt("k", audit(account.terms, log))
    assert len(account.log) < 250
    found = truth.report({"k": account}, {})()["k"]
    assert isinstance(found, dict)
    assert found["charged"]["requests"] == pytest.approx(200)
    assert found["limits"][0]["worst"] == 100
    assert found["limits"][0]["is_exceeded"]


def test_forgetting_keeps_the_calls_in_flight() -> None:
    truth, account = Truth(), SimulatedAccount(Terms(), 0.0)
    over, running = visit(1), visit(2)
    for each in (over, running):
        truth.came(each)
        truth.accepted(each)
    truth.over(over, "whole", 1.0)
    truth.reset([account])
    assert (truth.account("k").calls, truth.account("k").in_flight) == (1, 1)
    truth.over(running, "whole", 2.0)
    assert (truth.account("k").whole, truth.account("k").in_flight) == (1, 0)


def test_a_beginning_is_read_for_five_minutes_after_its_last_use() -> None:
    cache, prompt = PromptCache(), ((("k", "m", "digest"), 2000),)
    longer = ((("k", "m", "longer"), 3000), *prompt)
    assert cache.read(prompt, 0.0) == (0, 2000, 0)
    cache.write(prompt, 300.0, 10.0)
    assert cache.read(prompt, 309.0) == (2000, 0, 0)
    assert cache.read(longer, 309.0) == (2000, 1000, 0)
    cache.write(longer, 300.0, 309.0)
    assert cache.read(longer, 608.0) == (3000, 0, 0)
    assert cache.read(longer, 609.0) == (0, 3000, 3000)
    assert cache.read(((("other", "m", "digest"), 2000),), 11.0) == (0, 2000, 0)
