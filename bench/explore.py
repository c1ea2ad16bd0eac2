"""How many schedules `headway explore` tries in a second, by plan: `python -m bench.explore`.

CPU time, the best of some rounds. The engine is that of real runs; what two schedules have in
common is executed once.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from time import process_time
from typing import Final

from msgspec import Struct

from bench.markdown import table
from headway.plans.document import parse_document
from headway.plans.expand import Sources, expand
from headway.plans.schema import plan_of
from headway.report.explore import Explored, ExploreOptions, Explorer, ExploreSubject, subject_of

SCHEDULES: Final = 5_000
ROUNDS: Final = 5
PER_S_MIN: Final = 2_000
NAMES: Final = "abcde"


class Kind(Struct, frozen=True):
    """A plan of five tasks that are alike."""

    name: str
    state: str
    declared: str
    """What each of them declares; `#` is its name."""


KINDS: Final = (
    Kind("touch nothing in common", "", ""),
    Kind("declare keys of their own", "total: counter",
         "reads: 'state:in/#', writes: 'state:out/#'"),
    Kind("add to one counter", "total: counter", "reads: 'state:in/#', writes: 'state:total'"),
    Kind("read everything, write a key of their own", "total: counter", "writes: 'state:out/#'"),
    Kind("read everything, write the same key", "total: counter", "writes: 'state:x'"),
    Kind("read everything, write a key and a list", "log: append",
         "writes: ['state:log', 'state:out/#']"),
)  # fmt: skip
"""From what never meets to where everything conflicts, and every task runs again and again."""

HEADINGS: Final = ("five tasks that", "schedules/s", "with attempts done again")


def subject(kind: Kind) -> ExploreSubject:
    """The plan, as the verb tries it."""
    lines = ["headway: 1", f"name: {kind.name.replace(' ', '-').replace(',', '')}"]
    lines += [f"state: {{{kind.state}}}"] if kind.state else []
    lines.append("tasks:")
    for name in NAMES:
        declared = f", {kind.declared.replace('#', name)}" if kind.declared else ""
        lines.append(f"  {name}: {{run: ./work.sh {name}{declared}}}")
    spec = plan_of(parse_document("\n".join(lines), "plan.yaml"))
    return subject_of(expand(spec, Sources()))


def measured(
    kind: Kind, schedules: int = SCHEDULES, rounds: int = ROUNDS
) -> tuple[float, Explored]:
    """Schedules in a second of CPU time, and what was found."""
    rates: list[float] = []
    for _ in range(rounds):
        gc.collect()
        explorer = Explorer(subject(kind), ExploreOptions(schedules=schedules), lambda *_: None)
        began_s = process_time()
        explorer.search()
        found = explorer.found
        rates.append(found.schedules / (process_time() - began_s))
        if found.differs:
            raise SystemExit(f"{kind.name}: {found.failures[0]}")
    return max(rates), found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 1 if a plan is tried too slowly."""
    parser = argparse.ArgumentParser(prog="python -m bench.explore")
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parsed = parser.parse_args(arguments)
    rates = [(kind, *measured(kind, parsed.schedules, parsed.rounds)) for kind in KINDS]
    rows = [
        [kind.name, f"{rate:,.0f}", f"{found.reran / found.schedules:.0%}"]
        for kind, rate, found in rates
    ]
    print(table(HEADINGS, rows))
    return int(min(rate for _, rate, _ in rates) < PER_S_MIN)


if __name__ == "__main__":
    sys.exit(main())
