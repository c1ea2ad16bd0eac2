"""A pytest plugin: tests of agents call a simulated provider, free of charge.

    @pytest.mark.headway_sim("--rpm", "60", "--model", "echo")
    def test_my_agent(headway_sim):
        my_agent()                                   # openai, anthropic, google-genai ...
        assert headway_sim.calls == 3

The variables by which SDKs find their provider lead to it for the length of the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


class SimulatedProvider:
    """A provider of one test: what it saw is the truth, whatever its clients believe."""

    def __init__(self, url: str) -> None:
        self.url = url

    def truth(self) -> dict[str, Any]:
        """The record of all accounts, by the digest of their keys."""
        from headway.sim.server import truth_of

        return truth_of(self.url)

    @property
    def calls(self) -> int:
        return self._sum("calls")

    @property
    def accepted(self) -> int:
        return self._sum("accepted")

    def _sum(self, name: str) -> int:
        return sum(int(one[name]) for one in self.truth()["accounts"].values())


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "headway_sim(*options): options of `headway sim serve` for this test's provider"
    )


@pytest.fixture
def headway_sim(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedProvider]:
    """A simulated provider that SDKs, agents and headway in this test call."""
    from headway.sim.server import launched, variables_of

    marker = request.node.get_closest_marker("headway_sim")
    with launched(*map(str, marker.args if marker is not None else ())) as url:
        for name, value in variables_of(url).items():
            monkeypatch.setenv(name, value)
        yield SimulatedProvider(url)
