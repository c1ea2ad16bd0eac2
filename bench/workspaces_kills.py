"""Kills of runs in workspaces: `python -m bench.workspaces_kills`; `--kills 10` for a look.

Each run has six tasks that edit one repository; headway, all of its processes, one of them or an
agent is killed with -9 at drawn moments, and the run is gone on with until it is done. It counts
as failed if what lands differs from the serial run, the checkout changes before it is applied, or
a mount, a process or a temporary file is left behind.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Final

from tests.workspaces.killing import killed

KILLS: Final = 200
PER_RUN: Final = 5


def campaign(kills: int, seed: int = 1) -> list[str]:
    """A row: runs, kills that hit by whom they hit, and failed runs."""
    hit, failed, first = Counter[str](), 0, seed
    while hit.total() - hit["nothing"] < kills:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                hit += killed(Path(folder, "run"), seed, PER_RUN)
            except Exception:
                # The boundary: a run that fails is a finding, and the campaign goes on.
                failed += 1
                hit["unknown"] += PER_RUN
                print(f"seed {seed}:\n{traceback.format_exc()}", flush=True)
        seed += 1
        print(f"{seed - first} runs, {dict(hit)}, {failed} failed", flush=True)
    whom = ", ".join(f"{whom} {count}" for whom, count in sorted(hit.items()))
    return [str(seed - first), str(hit.total() - hit["nothing"]), whom, str(failed)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args()
    sys.exit(campaign(parsed.kills, parsed.seed)[-1] != "0")


if __name__ == "__main__":
    main()
