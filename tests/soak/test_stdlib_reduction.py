"""For minutes: Python's whole standard library, in three contexts, with kills at random points."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.integration.stdlib_scene import Told, counted, must_be_paid_once, must_be_true

pytestmark = pytest.mark.soak

CONTEXTS = (2_000, 8_000, 100_000)
KILLS = 5
SEED = 11


def row(context: int, told: Told) -> str:
    """For the table in `docs/reduce.md`."""
    hows = told.hows
    return (
        f"| {context:,} | {len(told.counts):,} | {told.reductions:,} | {told.levels} "
        f"| {told.input_tokens / 1e6:.2f} M | {told.largest:,} | {told.seconds:.0f} s "
        f"| {told.calls_s:.0f} s | {told.bound_s / told.calls_s:.0%} | {len(told.kills)} "
        f"| {told.cut_off} | {told.paid_twice} | {hows['refused']} |"
    )


def test_every_context_gives_what_ast_says_however_often_it_is_killed(tmp_path: Path) -> None:
    totals: list[dict[str, int]] = []
    for context in CONTEXTS:
        whole = counted(tmp_path / f"{context}", context, 1)
        print(row(context, whole), flush=True)
        must_be_true(whole, context, 1)
        assert whole.paid_twice == whole.cut_off == 0
        draw = Random(SEED + context)
        places = sorted(draw.sample(range(1, len(whole.visits)), KILLS))
        killed = counted(tmp_path / f"{context}-killed", context, 1, places)
        print(row(context, killed), flush=True)
        must_be_true(killed, context, 1)
        must_be_paid_once(killed)
        assert killed.kills
        # The very same calls, whatever was killed.
        assert set(killed.bodies) == set(whole.bodies)
        totals += [whole.total, killed.total]
    assert all(total == totals[0] for total in totals), json.dumps(totals)
