"""Time against the bound, per provider, workload and way to send: `python -m bench.pacing`.

    python -m bench.pacing                  everything, then docs/benchmarks/pacing.md
    python -m bench.pacing --quick          one seed of a few cells, in less than a minute
    python -m bench.pacing --only provider=burst*,workload=1000,column=cold
    python -m bench.pacing --only set=held-out,provider=neighbour

`--only` prints a line per cell of the tuning set unless a set is named. A key may be repeated, and
values may be patterns. Finished trials are kept, so every form can be interrupted and repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from bench.cells import COLUMNS, EXTRA, OURS, Cell, Choice, measure
from bench.results import RESULTS, ROOT, Store, say
from bench.scenes import PRESETS, PROVIDERS, SEEDS, SETS, WORKLOADS, is_steady
from bench.verdict import verdicts

REPORT: Final = ROOT / "docs" / "benchmarks" / "pacing.md"

KEYS: Final = ("set", "provider", "workload", "column", "seed")

QUICK_PROVIDERS: Final = (
    "burst-60s",
    "burst-3s",
    "fixed-window",
    "congested",
    "cap-7",
    "neighbour",
)
QUICK_SEED: Final = 101


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.pacing", description=_first_line())
    parser.add_argument(
        "--only", action="append", metavar="KEY=VALUE,...", default=[],
        help="cells by set, provider, workload, column, seed; patterns allowed",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one seed of a few cells")
    parser.add_argument("--results", type=Path, default=RESULTS / "pacing.jsonl",
                        help="where finished trials are kept")  # fmt: skip
    parsed = parser.parse_args(arguments)
    store = Store(parsed.results)
    if parsed.only:
        _print_cells(select(",".join(parsed.only)), store)
    elif parsed.quick:
        _print_cells(quick(), store)
    else:
        from bench.report import write

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
    columns = COLUMNS + EXTRA if "column" in named else COLUMNS

    def wanted(key: str, value: str) -> bool:
        return any(fnmatchcase(value, pattern) for pattern in named.get(key, ["*"]))

    return [
        Choice(which, provider, workload, column, seeds)
        for which in SETS if wanted("set", which)
        for workload in WORKLOADS if wanted("workload", workload)
        for provider in PROVIDERS if wanted("provider", provider)
        for column in columns
        if wanted("column", column) and (column != "known" or is_steady(PRESETS[provider]))
        if (seeds := tuple(s for s in SEEDS[which][workload] if wanted("seed", str(s))))
    ]  # fmt: skip


def quick() -> list[Choice]:
    """One held-out seed of the cells that say most."""
    return [
        Choice("held-out", provider, workload, column, (QUICK_SEED,))
        for workload, providers, columns in (
            ("22", QUICK_PROVIDERS, OURS),
            ("graph", ("burst-3s", "cap-7", "neighbour"), ("cold", "profile")),
        )
        for provider in providers
        for column in columns
    ]


def line_of(one: Cell) -> str:
    """A cell on one line, for tuning."""
    first = one.seeds[0]
    parts = [
        f"{one.provider:12} {one.workload:5} {one.column:10}",
        f"{one.ratio:6.3f} worst {one.ratio_worst:6.3f}",
        f"refused {one.refused:5g}",
    ]
    if one.failed:
        parts.append(f"LOST {one.failed}")
    if first.scene.spec.terms.neighbour is not None:
        parts.append(f"kept {one.kept:.2f}")
    parts.append(f"p95 {one.latency_p95_s:.1f}s")
    parts.append(f"bound {first.bound_s:.1f}s {first.binding}")
    if first.best:
        worst = max(one.seeds, key=lambda seed: seed.against_best)
        parts.append(f"x{worst.against_best:.3f} of {worst.best}")
    found = verdicts(one)
    if found:
        missed = [goal for goal, met in found.items() if not met]
        parts.append("MISSED " + ", ".join(missed) if missed else "ok")
    return " | ".join(parts)


def _print_cells(choices: Sequence[Choice], store: Store) -> None:
    """Run what is missing, then a line per cell."""
    if not choices:
        raise SystemExit("no cell matches")
    for one in measure(choices, store):
        print(line_of(one))


def _first_line() -> str:
    return (__doc__ or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
