"""Accounts on which calls once waited although the provider would have let them in."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, Demand, Limit, Reading
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE
from headway.pacing.account import AccountConfig
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.pacing.headers import ANTHROPIC
from headway.sim.account import Terms
from headway.sim.clients import PacedDoor
from headway.sim.draw import Neighbour
from headway.sim.headers import dialect_of
from headway.sim.provider import Latency, Provider, ProviderSpec
from headway.sim.rehearsal import Rehearsal, Rehearsed, WorkloadSpec, draw_workload


def _run(spec: ProviderSpec, work: WorkloadSpec, *limits: Limit) -> Rehearsed:
    calls = AccountCalls(AccountConfig(dialect_of(spec.dialect), limits), 0.0)
    door = PacedDoor(calls, OutputLength())
    return Rehearsal(draw_workload(work, 1), Provider(spec, 1), door, Rules(ADAPTIVE)).run()


OUTPUT = Limit("output", 20_000.0, 60.0, "bucket", 10_000.0)
REPORTED = ProviderSpec(
    "reported", Terms((OUTPUT,)), Latency(0.5, 0.0025), dialect="anthropic", omits=("reset",)
)
ANSWERS = WorkloadSpec("answers", 22, 1, 400.0, 1300.0, output_spread=0.4, max_tokens=6000.0)


@pytest.mark.parametrize("limits", [(), (OUTPUT,)], ids=["reported", "configured"])
def test_knowing_an_output_limit_makes_no_run_slower(limits: tuple[Limit, ...]) -> None:
    """Answers in flight may use more than is left: calls are let in until nothing is left."""
    silent = ProviderSpec("silent", Terms((), (OUTPUT,)), REPORTED.latency, dialect="advice")
    without, told = _run(silent, ANSWERS), _run(REPORTED, ANSWERS, *limits)
    assert told.failed == 0
    assert told.makespan_s <= 1.05 * without.makespan_s


def test_tries_do_not_meet_a_neighbour_s_calls_each_time() -> None:
    """The advice is a second; the neighbour sends each second; refusals are charged."""
    requests = Limit("requests", 125.0, 60.0, "bucket", 1.2)
    terms = Terms((requests,), refusals_charged=True, neighbour=Neighbour(0.2, 0, on_s=90.0))
    spec = ProviderSpec("met", terms, Latency(0.5, 0.007), dialect="anthropic")
    found = _run(spec, WorkloadSpec("22", 22, 1, 400.0, 300.0, is_whole=True))
    assert found.failed == 0
    assert found.refused < 22
    assert found.makespan_s < 40.0


def test_calls_that_did_not_run_and_ask_again_write_nothing() -> None:
    """Their plans were extended as if they still answered, and used the limit up."""
    output = Limit("output", 600.0, 60.0)
    calls = AccountCalls(AccountConfig(ANTHROPIC, (output,)), 0.0)
    demand = Demand(Amounts(10.0, 200.0), Amounts(10.0, 1000.0))
    for second in range(20):
        call = Call(("", 1), demand=demand)
        calls.ask(call)
        assert calls.decide(float(second)).sent == (call,)
        if second < 19:
            calls.settle(call, "unused", Amounts(), float(second))
    calls.first_byte(call, Reading(), 20.0)
    for second in range(21, 25):
        other = Call(("", second), demand=Demand(Amounts(1.0, 1.0), Amounts(1.0, 1.0)))
        calls.ask(other)
        assert calls.decide(float(second)).sent == (other,)
        calls.settle(other, "used", Amounts(1.0, 1.0), float(second))
