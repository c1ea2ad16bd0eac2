"""Pairs of tasks that merge cleanly as text and are wrong, done by headway and by others."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.markdown import table
from bench.results import say
from tests.workspaces.test_pairs import PAIRS, WAYS, Ending, through_git, through_headway


def pairs_table() -> str:
    """How many pairs of each kind end as the serial run; a sum at the end."""
    counts: dict[str, dict[str, int]] = {}
    for number, pair in enumerate(PAIRS, 1):
        say(f"pair {number} of {len(PAIRS)}")
        with tempfile.TemporaryDirectory() as folder:
            endings: dict[str, Ending] = {
                way: through_headway(Path(folder, str(place)), pair, way)
                for place, way in enumerate(WAYS)
            }
            endings |= through_git(Path(folder, "git"), pair)
        row = counts.setdefault(pair.kind, {"pairs": 0})
        row["pairs"] += 1
        for way, ending in endings.items():
            row[way] = row.get(way, 0) + (not ending.fault)
            if ending.fault and way in WAYS:
                print(f"{pair}, {way}: {ending.fault}", flush=True)
    names = list(next(iter(counts.values())))
    sums = {name: sum(row[name] for row in counts.values()) for name in names}
    rows = [[kind, *(str(row[name]) for name in names)] for kind, row in counts.items()]
    return table(["kind", *names], [*rows, ["**all**", *(str(sums[name]) for name in names)]])
