"""Every client bears to be held for minutes, and sends nothing again."""

from __future__ import annotations

import pytest

from bench.agents_report import HOLD_S
from tests.agents.agents import CLIENTS, is_installed
from tests.agents.holding import held

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]


def test_clients_that_are_held_for_minutes_finish_without_sending_anything_again() -> None:
    found = held(HOLD_S)
    assert set(found) == {client.name for client in CLIENTS}
    for one in found.values():
        assert one.turn.is_finished, one
        assert one.turn.took_s >= HOLD_S, one
        assert (one.resent, one.failed) == (0, 0), one
