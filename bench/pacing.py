"""Time against the bound, per provider, workload and way to send: `python -m bench.pacing`.

    python -m bench.pacing                  everything, then docs/benchmarks/pacing.md
    python -m bench.pacing --tuning         the record and the worst cells of the tuning draws
    python -m bench.pacing --quick          one seed of a few draws, in less than a minute
    python -m bench.pacing --only provider=101?,workload=22,column=cold
    python -m bench.pacing --only set=twelve,provider=burst*

`--only` prints a line per cell, of the tuning draws unless a set is named and of headway's own
columns unless columns are. A key may be repeated, and values may be patterns. Finished trials are
kept, so every form can be interrupted and repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from bench.cells import COLUMNS, EXTRA, OURS, Choice, geometric_mean, line_of, measure
from bench.results import RESULTS, ROOT, Store, say
from bench.scenes import PROVIDERS, SEEDS

REPORT: Final = ROOT / "docs" / "benchmarks" / "pacing.md"

KEYS: Final = ("set", "provider", "workload", "column", "seed")

QUICK_DRAWS: Final = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.pacing", description=_first_line())
    parser.add_argument(
        "--only", action="append", metavar="KEY=VALUE,...", default=[],
        help="cells by set, provider, workload, column, seed; patterns allowed",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one seed of a few draws")
    parser.add_argument("--tuning", action="store_true", help="record and worst cells, for tuning")
    parser.add_argument("--results", type=Path, default=RESULTS / "pacing.jsonl",
                        help="where finished trials are kept")  # fmt: skip
    parsed = parser.parse_args(arguments)
    store = Store(parsed.results)
    if parsed.only:
        _print_cells(select(",".join(parsed.only)), store)
    elif parsed.quick:
        _print_cells(quick(), store)
    else:
        from bench.report import tuning, write

        if parsed.tuning:
            print(tuning(store))
        else:
            write(REPORT, store)
            say(f"wrote {REPORT.relative_to(ROOT)}")
    return 0


def select(text: str) -> list[Choice]:
    """The cells that `key=value,key=value` names; values of one key are alternatives."""
    named: dict[str, list[str]] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if key not in KEYS or not equals:
            raise SystemExit(f"{part!r}: say one of {', '.join(f'{key}=...' for key in KEYS)}")
        named.setdefault(key, []).append(value)
    named.setdefault("set", ["tuning"])
    if "tuning" in named["set"]:
        named.setdefault("workload", ["22"])
    columns = COLUMNS + EXTRA if "column" in named else OURS

    def wanted(key: str, value: str) -> bool:
        return any(fnmatchcase(value, pattern) for pattern in named.get(key, ["*"]))

    return [
        Choice(which, provider, workload, column, seeds)
        for which in PROVIDERS if wanted("set", which)
        for workload in SEEDS[which] if wanted("workload", workload)
        for provider in PROVIDERS[which] if wanted("provider", provider)
        for column in columns if wanted("column", column)
        if (seeds := tuple(s for s in SEEDS[which][workload] if wanted("seed", str(s))))
    ]  # fmt: skip


def quick() -> list[Choice]:
    """One seed of the first draws."""
    return [
        Choice("tuning", provider, "22", column, (1,))
        for provider in PROVIDERS["tuning"][:QUICK_DRAWS]
        for column in (*OURS, "first:cold")
    ]


def _print_cells(choices: Sequence[Choice], store: Store) -> None:
    """Run what is missing, then a line per cell and one per column."""
    if not choices:
        raise SystemExit("no cell matches")
    cells = measure(choices, store)
    for one in cells:
        print(line_of(one))
    for column in dict.fromkeys(one.column for one in cells):
        found = [one for one in cells if one.column == column]
        mean = geometric_mean(one.against_best for one in found)
        close = sum(one.against_best <= 1.05 for one in found)
        print(f"{column}: geometric mean x{mean:.3f} of the best, {close} of {len(found)} cells "
              f"within 5 %, x{geometric_mean(one.ratio for one in found):.3f} of the bound, "
              f"{sum(one.refused for one in found):g} refusals")  # fmt: skip


def _first_line() -> str:
    return (__doc__ or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
