"""A slice of `make bench-http`: headway loses nothing, and every figure is the provider's own."""

from __future__ import annotations

import pytest

from bench.http import QUICK, measure

pytestmark = pytest.mark.soak


def test_headway_finishes_everything_on_an_account_that_it_was_told_nothing_of() -> None:
    (scene,) = QUICK
    # `measure` fails if a figure that a client saw is not what the provider says.
    found = {one.way: one for one in measure(scene, ("headway", "sdk"), 1, {})}
    headway = found["headway"]
    assert (headway.answers, headway.failures, headway.lost_tokens) == (scene.calls, 0, 0)
    assert headway.refused <= scene.calls // 10
    assert headway.ratio <= 1.5
    assert found["sdk"].failures > 0, "all at once should be too much for this account"
