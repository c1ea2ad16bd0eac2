"""The width that headway finds by itself, on a real model and on one that likes company."""

from __future__ import annotations

import pytest

from bench.llm import CROWDED, GOAL, WIDTHS_SIMULATED, real, simulated
from bench.servers import is_here

pytestmark = pytest.mark.llm

NOISE = 0.1
"""The same fixed width gives 40 to 50 tokens/s from try to try on a machine with two cores, and the
best of several widths is the luckiest: the goal itself is judged in `docs/benchmarks/llm.md`."""


@pytest.mark.skipif(not is_here("xllamacpp"), reason="xllamacpp is not installed")
def test_headway_finds_the_width_of_a_real_model_without_being_told_anything() -> None:
    found = real()
    headway = found.of("headway")
    assert found.share >= GOAL - NOISE, found
    assert headway.latency_p95_s < found.of(f"fixed:{CROWDED}").latency_p95_s, found


def test_the_same_build_finds_a_width_of_more_than_8_where_that_is_best() -> None:
    found = simulated()
    assert found.best.way in {f"fixed:{width}" for width in WIDTHS_SIMULATED if width >= 8}, found
    assert found.share >= GOAL - NOISE, found
