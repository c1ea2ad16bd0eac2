"""The demo of coherence as people see it: what three agents make of the same orders, five ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headway.simulator.coherence_demo import Outcome

RECORDS_MIN: Final = 8
"""With fewer, agents that are shown half a record may say so little that they cost less."""
RECORDS_MAX: Final = 1000
WAY_CELLS: Final = 34
HEAD: Final = (
    ("", "false", "contradictory", "wrong", "", "", "done"),
    ("", "errors", "corrections", "records", "tokens", "time", "again"),
)
CELLS: Final = (WAY_CELLS, 7, 14, 8, 8, 9, 6)


def show(records: int, seeds: Sequence[int], is_json: bool) -> int:
    """Perform every way with every seed, and print what came of it."""
    from headway.simulator.coherence_demo import compare

    outcomes = [compare(records, seed) for seed in seeds]
    if is_json:
        told = [
            {"seed": seed, **asdict(outcome)}
            for seed, every in zip(seeds, outcomes, strict=True)
            for outcome in every
        ]
        print(dumps(told, indent=2))
        return 0
    rows = [_Mean(ways) for ways in zip(*outcomes, strict=True)]
    means = f"means over {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    print(f"{records} orders, three agents (Parser, Enricher, Validator), {means}")
    print("Virtual time, simulated provider: no key, nothing is sent.\n")
    for line in (*HEAD, *(row.cells for row in rows)):
        print(_line(line))
    print(f"\n{_conclusion(records, rows)}")
    return 0


class _Mean:
    """One way over all seeds."""

    __slots__ = ("again", "contradictory", "false_errors", "seconds", "tokens", "way", "wrong")

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        count = len(outcomes)
        self.way = outcomes[0].way
        self.false_errors = sum(one.false_errors for one in outcomes) / count
        self.contradictory = sum(one.contradictory for one in outcomes) / count
        self.wrong = sum(one.wrong_records for one in outcomes) / count
        self.tokens = sum(one.tokens for one in outcomes) / count
        self.seconds = sum(one.seconds for one in outcomes) / count
        self.again = sum(one.reran for one in outcomes) / count

    def __repr__(self) -> str:
        return f"<{self.way}: {self.wrong:g} wrong, {self.tokens:g} tokens>"

    @property
    def cells(self) -> tuple[str, ...]:
        counts = (self.false_errors, self.contradictory, self.wrong)
        return (
            self.way, *(f"{number:.1f}" for number in counts), f"{self.tokens:,.0f}",
            f"{self.seconds:.1f} s", f"{self.again:.1f}",
        )  # fmt: skip


def _line(cells: Sequence[str]) -> str:
    """The first column to the left, numbers to the right."""
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], CELLS[1:], strict=True))
    return f"{cells[0].ljust(WAY_CELLS)}{''.join(rest)}".rstrip()


def _conclusion(records: int, rows: Sequence[_Mean]) -> str:
    """What the numbers say, in words."""
    _, loose, ordered, free, learned = rows
    return (
        f"Loose: {loose.wrong:.1f} of {records} records are wrong in the end, for "
        f"{loose.tokens / ordered.tokens:.1f} times the tokens.\n"
        f"With `needs` removed headway gives the same records, for "
        f"{free.tokens / ordered.tokens - 1:.0%} more tokens the first time and "
        f"{learned.tokens / ordered.tokens - 1:.0%} more\n"
        "when it has seen who reads what."
    )
