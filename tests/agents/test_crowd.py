"""More agents at once than the provider serves: with the gateway all of them just work."""

from __future__ import annotations

import pytest

from tests.agents.agents import is_installed
from tests.agents.scene import CROWDS, scene

pytestmark = [
    pytest.mark.agents,
    pytest.mark.wallclock,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]

OVER_IDEAL_MAX = 1.1
SPREAD_MAX = 1.5


@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_finishes_at_full_speed_and_together(name: str) -> None:
    for found in scene(name, paced=True):
        assert found.finished == found.agents, found
        assert (found.refused, found.duplicates, found.cancelled) == (0, 0, 0), found
        assert found.over_ideal <= OVER_IDEAL_MAX, found
        assert found.spread <= SPREAD_MAX, found


def test_without_the_gateway_the_same_crowd_is_refused() -> None:
    (found,) = scene("8 Codex", paced=False)
    assert found.refused > 0
    assert found.finished < found.agents
