"""How calls reach a provider: with a permit, or by the rules of unpaced clients."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Amounts, Demand, Fault, FaultKind, Limit, Reading
from headway.pacing.account import AccountConfig
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.sim.clients import (
    AGGRESSIVE,
    LOSSES_MAX,
    PATIENT,
    SDK,
    Aimd,
    ClientPort,
    Cubic,
    PacedDoor,
    UnpacedDoor,
)

RATE = Fault("rate", "requests", 3.0)
USED = Amounts(100.0, 50.0)
DEMAND = Demand(Amounts(100.0, 50.0), Amounts(100.0, 200.0), "kind")


def _paced(requests: float = 60.0, burst: float = 2.1) -> PacedDoor:
    """A door behind which two calls may go at once and one more every second."""
    config = AccountConfig(limits=(Limit("requests", requests, burst=burst),))
    return PacedDoor(AccountCalls(config, 0.0), OutputLength())


def _knocked(door: ClientPort, calls: int) -> None:
    for call_id in range(1, calls + 1):
        door.knock(call_id, DEMAND, (0.0,))


def test_a_paced_door_lets_the_most_urgent_call_go_first() -> None:
    door = _paced(burst=1.1)
    for call_id, key in ((1, (1.0, -1.0)), (2, (0.0, -1.0)), (3, (0.0, -9.0))):
        door.knock(call_id, DEMAND, key)
    assert door.open(0.0) == [3]


@pytest.mark.parametrize("kind", ["request", "spend_cap", "billing"])
@pytest.mark.parametrize("is_paced", [True, False])
def test_what_waiting_does_not_mend_is_given_up(kind: FaultKind, is_paced: bool) -> None:
    door: ClientPort = _paced() if is_paced else UnpacedDoor(PATIENT, 1)
    _knocked(door, 1)
    door.open(0.0)
    assert not door.refused(1, Fault(kind), Reading(), 0.0)
    assert door.open(1e6) == []


def test_a_paced_door_learns_no_length_from_a_broken_answer() -> None:
    lengths = OutputLength()
    door = PacedDoor(AccountCalls(AccountConfig(), 0.0), lengths)
    _knocked(door, 1)
    door.open(0.0)
    before = lengths.expect("kind", 100.0, 200.0)
    assert door.ended(1, Amounts(100.0, 1.0), Fault("broken"), 1.0)
    assert lengths.expect("kind", 100.0, 200.0) == before


def test_a_paced_door_sends_a_lost_call_again_so_often_and_no_more() -> None:
    door = PacedDoor(AccountCalls(AccountConfig(), 0.0), OutputLength())
    _knocked(door, 1)
    kept = []
    for now in range(LOSSES_MAX + 1):
        assert door.open(float(now)) == [1]
        kept.append(door.ended(1, USED, Fault("broken"), now + 0.5))
    assert kept == [True] * LOSSES_MAX + [False]
    assert door.open(1e6) == []


def test_delays_double_up_to_a_maximum_and_jitter_takes_a_part_off() -> None:
    fault = Fault("server")
    assert [SDK.delay_s(tries, fault, 0.0) for tries in range(1, 7)] == [0.5, 1, 2, 4, 8, 8]
    assert SDK.delay_s(1, fault, 1.0) == 0.375
    assert PATIENT.delay_s(1_000_000, fault, 0.0) == 8.0
    # An aggressive client takes no advice and doubles without end.
    assert [AGGRESSIVE.delay_s(tries, RATE, 0.9) for tries in (1, 2, 11)] == [1.0, 2.0, 1024.0]
    assert AGGRESSIVE.delay_s(1_000_000, RATE, 0.9) < inf


@pytest.mark.parametrize("gate", [Aimd(2.0), Cubic(2.0)])
def test_a_gate_moves_how_many_may_be_in_flight(gate: Aimd | Cubic) -> None:
    door = UnpacedDoor(SDK, 1, gate)
    _knocked(door, 9)
    sent = door.open(0.0)
    assert sent == [1, 2]
    while len(sent) < 3:
        for call_id in sent:
            door.ended(call_id, USED, None, 1.0)
        sent = door.open(1.0)
    door.refused(sent[0], RATE, Reading(), 1.0)
    assert gate.limit < 3.0
