"""The demo of coherence holds for a thousand seeds, and for more orders."""

from __future__ import annotations

import pytest

from tests.unit.demo_law import must_be_right, must_be_worse, the_three

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(("records", "seeds"), [(12, 1000), (60, 20)])
def test_loose_is_wrong_and_dear_and_headway_is_right_for_every_seed(
    records: int, seeds: int
) -> None:
    for seed in range(seeds):
        loose, ordered, free = the_three(records, seed)
        must_be_worse(loose, ordered, seed)
        must_be_right((ordered, free), seed)
