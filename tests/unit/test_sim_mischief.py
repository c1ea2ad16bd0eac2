"""Faults by share: drawn from the seed, in the share that was asked for."""

from __future__ import annotations

import pytest

from headway.errors import BadValueError
from headway.sim.delivery import draw_faults, parse_shares


def test_shares_are_what_was_asked_for_and_the_same_for_the_same_seed() -> None:
    shares = parse_shares(["cut=10%", "500=0.2", "gzip=0.5"])
    drawn = [draw_faults(shares, 7, number) for number in range(4000)]
    assert drawn == [draw_faults(shares, 7, number) for number in range(4000)]
    assert drawn != [draw_faults(shares, 8, number) for number in range(4000)]
    for kind, share in (("cut", 0.1), ("500", 0.2), ("gzip", 0.5)):
        found = sum(kind in kinds for kinds in drawn) / len(drawn)
        assert found == pytest.approx(share, abs=0.03)
    assert not any("cut" in kinds and "500" in kinds for kinds in drawn)


@pytest.mark.parametrize(
    "words", ["cut", "cut=", "cut=x", "cut=1.5", "cut=-1", "bang=0.1", "=1", "cut=0.6 500=0.6"]
)
def test_a_wrong_share_is_refused(words: str) -> None:
    with pytest.raises(BadValueError):
        parse_shares(words.split())
