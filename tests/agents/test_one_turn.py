"""One turn with a tool of each coding agent, straight to the simulated provider and through the
gateway."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from headway.sim.server import launched, truth_of
from tests.agents.agents import CLIENTS, Client, Urls, is_installed
from tests.agents.crowd import crowd
from tests.agents.gate import gateway, headway, own_place, under

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with launched("--model", "agent", "--first-byte-s", "0.05", "--per-token-s", "0.001") as url:
        yield url


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_turn_with_tools_straight_to_the_provider(client: Client, provider: str) -> None:
    (turn,) = crowd([client], Urls.all_at(provider), steps=2)
    assert turn.is_finished, turn
    arrivals = [v for v in truth_of(provider)["arrivals"] if v["wire"] == client.wire]
    assert len(arrivals) >= 3
    assert {visit["how"] for visit in arrivals} == {"whole"}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_turn_with_tools_through_the_gateway(client: Client, provider: str) -> None:
    before = truth_of(provider)["arrivals_total"]
    with gateway(provider) as gate:
        (turn,) = crowd([client], gate.urls, steps=2)
        status = gate.status()
    assert turn.is_finished, turn
    arrivals = truth_of(provider, "?arrivals=all")["arrivals"][before:]
    assert {visit["wire"] for visit in arrivals} == {client.wire}
    assert {visit["how"] for visit in arrivals} == {"whole"}
    assert status["total"]["calls"] == len(arrivals) >= 3
    assert status["total"]["failed"] == 0


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_that_is_started_by_the_gateway_is_paced_with_its_own_settings(
    client: Client, provider: str
) -> None:
    """Its settings name the provider; every call that arrives there was admitted before."""
    before = truth_of(provider)["arrivals_total"]
    with own_place() as place:
        (turn,) = crowd([under(client, place)], Urls.all_at(provider), steps=2)
        lanes = json.loads(headway(os.environ | place, "limits", "--json"))["accounts"]
    assert turn.is_finished, turn
    arrivals = truth_of(provider)["arrivals_total"] - before
    assert arrivals >= 3
    assert sum(lane["granted"] for lane in lanes) == arrivals
