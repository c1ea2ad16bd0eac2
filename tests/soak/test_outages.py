"""Providers that restart in the middle of 300 calls, whatever they are called through."""

from __future__ import annotations

import pytest

from bench.outage import KINDS, OUTAGES_S, WAYS, Kind, measure

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("outage_s", OUTAGES_S)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_restart_loses_no_call_and_calls_do_not_crowd_at_the_dead_port(
    way: str, kind: Kind, outage_s: float
) -> None:
    found = measure(way, kind, outage_s)
    assert not found.lost, found.why
    # One a second, calls that had their permit at the kill, and those that it broke off.
    assert found.attempts <= found.outage_s + 2 + 2 * max(found.in_flight, found.early)
