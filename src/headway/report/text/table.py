"""Shows strategies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.report.tables import StrategyRow
from headway.report.text.terminal import print_lines
from headway.report.text.words import Glyphs, bound_words, glyphs_for

HEADERS: Final = (
    "strategy", "time\ns", "spread\ns", "refused", "time-\nouts", "failed", "wasted\ntokens",
    "first\nresult", "p95\ntask", "of\nbest",
)  # fmt: skip
"""Of best: bound over time, the share of the best possible speed. With these, a screen of 80
columns has room for the names of the demo."""

NOTABLE: Final = 1.2
"""A strategy that takes less than a fifth longer than the fastest is not worth a sentence."""


def draw_table(console: Console, rows: Sequence[StrategyRow], notes: Sequence[str] = ()) -> None:
    """One line per row; the fastest one that loses nothing stands out."""
    glyphs = glyphs_for(console)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for index, header in enumerate(HEADERS):
        table.add_column(
            header, justify="right" if index else "left", no_wrap=bool(index), overflow="fold"
        )
    best = fastest(rows)
    for row in rows:
        style = "bold green" if row is best else "dim" if not row.loses_nothing else ""
        table.add_row(*(Text(cell) for cell in _cells(row, glyphs)), style=style)
    console.print(table)
    print_lines(console, notes, "dim")


def caption(rows: Sequence[StrategyRow], by: str, fair_by: str) -> str:
    row = rows[0]
    of = f"median of {row.seeds} seeds" if row.seeds > 1 else "one seed"
    best = bound_words(row.bound_s, by, row.fair_s, fair_by, lambda time_s: f"{_seconds(time_s)} s")
    return f"Times in seconds, {of}. Best possible: {best}."


def conclusion(rows: Sequence[StrategyRow]) -> str:
    best = fastest(rows)
    if best is None:
        return "Every strategy lost tasks or never ended."
    refused = f"refused {_count(best.refused)} times" if best.refused else "nothing refused"
    sentences = [
        f"Fastest without losing a task: {best.strategy}, {_seconds(best.makespan_s)} s, "
        f"{refused}, {1 / best.ratio:.0%} of the best possible speed."
    ]
    worst = max((row for row in rows if row.loses_nothing), key=lambda row: row.makespan_s)
    times = worst.makespan_s / best.makespan_s
    if times == inf:
        sentences.append(f"Never ends: {worst.strategy}.")
    elif times >= NOTABLE:
        refused = f", refused {_count(worst.refused)} times" if worst.refused else ""
        sentences.append(f"Slowest: {worst.strategy}, {times:.1f} times as long{refused}.")
    ours = [row for row in rows if row.loses_nothing and row.strategy.startswith("headway")]
    mine = min(ours, key=lambda row: row.makespan_s, default=best)
    if mine.makespan_s > best.makespan_s:
        longer = mine.makespan_s / best.makespan_s - 1
        sentences.append(f"Behind by {longer:.1%}: {mine.strategy}.")
    lossy = max(rows, key=lambda row: row.failed)
    if lossy.failed:
        sentences.append(f"Loses {_count(lossy.failed)} tasks: {lossy.strategy}.")
    return " ".join(sentences)


def fastest(rows: Sequence[StrategyRow]) -> StrategyRow | None:
    safe = [row for row in rows if row.loses_nothing and row.makespan_s < inf]
    return min(safe, key=lambda row: row.makespan_s, default=None)


def _seconds(time_s: float) -> str:
    if time_s == inf:
        return "never"
    return f"{time_s:.1f}" if time_s < 100 else f"{time_s:,.0f}"


def _cells(row: StrategyRow, glyphs: Glyphs) -> tuple[str, ...]:
    tokens = row.wasted_tokens
    wasted = f"{tokens:,.0f}" if tokens < 10_000 else f"{tokens / 1000:,.0f}k"
    share = f"{1 / row.ratio:.0%}" if row.ratio < inf else glyphs.dash
    return (
        row.strategy, _seconds(row.makespan_s), _spread(row, glyphs), _count(row.refused),
        _count(row.timeouts), _count(row.failed), wasted,
        _seconds(row.first_result_s), _seconds(row.task_p95_s), share,
    )  # fmt: skip


def _spread(row: StrategyRow, glyphs: Glyphs) -> str:
    if row.seeds == 1:
        return glyphs.dash
    low_s, high_s = row.makespan_min_s, row.makespan_max_s
    if 20 <= high_s < inf:
        return f"{low_s:,.0f}{glyphs.dash}{high_s:,.0f}"
    return f"{_seconds(low_s)}{glyphs.dash}{_seconds(high_s)}"


def _count(count: float) -> str:
    """A mean of whole numbers: one in five is shown, three digits are enough."""
    return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"
