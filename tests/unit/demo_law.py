"""What the demo of coherence must show for every seed."""

from __future__ import annotations

from collections.abc import Sequence

from headway.sim.coherence_demo import DemoOutcome, Ordered, draw_orders, performed, run_loose


def the_three(records: int, seed: int) -> tuple[DemoOutcome, DemoOutcome, DemoOutcome]:
    """Loose, ordered, and ordered without `needs`."""
    orders = draw_orders(records, seed)
    free = Ordered(orders, has_needs=False)
    runs = (run_loose, Ordered(orders).run, free.run)
    loose, ordered, removed = (performed("", orders, seed, run) for run in runs)
    return loose, ordered, removed


def must_be_right(ways: Sequence[DemoOutcome], seed: int) -> None:
    """Every record is as it should be, and nobody was misled on the way."""
    for way in ways:
        assert (way.wrong_records, way.false_errors, way.contradictory) == (0, 0, 0), (seed, way)


def must_be_worse(loose: DemoOutcome, ordered: DemoOutcome, seed: int) -> None:
    """Wrong records, errors that do not exist, contradictory corrections, and more tokens."""
    assert loose.wrong_records > 0, (seed, loose)
    assert loose.false_errors > 0, (seed, loose)
    assert loose.contradictory > 0, (seed, loose)
    assert loose.tokens > ordered.tokens, (seed, loose, ordered)
