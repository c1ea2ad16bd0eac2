"""Performs the catalogue on a framework, where that is installed: prints what came of it as JSON.

python -m bench.coherence_peers NAME [SAMPLE]
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from collections.abc import Sequence

from bench.coherence_peers import SEED
from bench.coherence_peers.gate import Runs
from headway.base.codec import as_dict
from tests.coherence import catalogue, catalogue_isolation
from tests.coherence.catalogue_plays import Case
from tests.coherence.harness import Counting, Tally, chosen, serial, steps


async def tallied(case: Case, runs: Runs, orders: Sequence[Sequence[int]]) -> Tally:
    """What these orders of a case lead to."""
    counting = Counting(serial(case))
    for order in orders:
        counting.add(await runs(order))
    return counting.tally()


def main(name: str, sample: str = "0") -> None:
    """The command."""
    logging.disable(logging.CRITICAL)
    adapter = importlib.import_module(f"bench.coherence_peers.{name}")
    for case in (*catalogue.CASES, *catalogue_isolation.CASES):
        orders = chosen(steps(case), int(sample), SEED)
        found = asyncio.run(tallied(case, adapter.prepare(case), orders))
        print(json.dumps([case.name, as_dict(found)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
