"""Minutes of almost good requests to a gateway: no failure of ours, no hang, no leak."""

from __future__ import annotations

import resource

import pytest

from tests.integration.gateway_fuzz import Fuzz
from tests.integration.gateway_scene import CALL, scene, statuses

ROUNDS = 12
PER_ROUND = 2_000
GROWN_KB_MAX = 40 * 1024
"""Allowed growth of memory after the first round: caches fill, then nothing more is kept."""


@pytest.mark.soak
def test_minutes_of_almost_good_requests_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(monkeypatch, key="sk-gateway") as here:
        before_kb = 0
        for seed in range(ROUNDS):
            fuzz = Fuzz(here, seed)
            fuzz.run(PER_ROUND)
            assert not fuzz.faults, fuzz.faults[:5]
            assert fuzz.answered > PER_ROUND / 4
            here.provider.arrivals.clear()
            here.until_quiet()
            peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            before_kb = before_kb or peak_kb
            assert peak_kb < before_kb + GROWN_KB_MAX
        assert statuses(here.talk(here.request(CALL, "Connection: close"))) == [200]
