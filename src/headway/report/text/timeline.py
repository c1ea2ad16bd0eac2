"""Draws a timeline: waiting, refused, working; one line per agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from headway.journal.reader import JournalReader
from headway.report.history import TaskHistory
from headway.report.tables import Cell, TimelineLane, effective_width, in_line, stays, timeline
from headway.report.text.run_view import RunView
from headway.report.text.terminal import print_lines
from headway.report.text.words import count, duration, glyphs_for, one_line

LEAST_S: Final = 0.001
"""A picture of a run without any length still has a scale."""


class TimelineView(Struct, frozen=True):
    run: RunView
    tasks: Sequence[TaskHistory]
    names: Sequence[str]
    lines: dict[bytes, float]


def played(reader: JournalReader) -> TimelineView:
    run = RunView(reader, is_whole=True)
    history = run.history
    history.close(run.elapsed_s)
    tasks = sorted(history.tasks.values(), key=lambda task: (task.number, task.key))
    names = {row.key: row.name for row in reader.rows()}
    lines = in_line(tasks)
    return TimelineView(
        run, tasks, [names.get(task.key, task.key.hex()[:8]) for task in tasks], lines
    )


def draw_played(console: Console, run: TimelineView, *, is_whole: bool) -> None:
    if not run.tasks:
        console.print("nothing has started yet")
        return
    lanes_max = len(run.tasks) if is_whole else LANES_MAX
    lanes: list[TimelineLane] = []
    for task in run.tasks[:lanes_max]:
        end = None if task.ended_s is None else (task.ended_s, task.state == "finished")
        lanes.append((stays(task, run.lines.get(task.key, 0.0)), end))
    names = [one_line(name) for name in run.names]
    header = run.run.header
    title = f"{one_line(header.name)}, {count(len(run.tasks), 'task')}"
    draw_timeline(console, title, lanes, names, max(LEAST_S, run.run.elapsed_s), lanes_max)
    draw_legend(console, "queued at the provider")
    console.print()
    print_lines(console, sentences(run))
    if len(run.tasks) > lanes_max:
        console.print(f"All of them: headway timeline {header.run} --all", soft_wrap=True)


def sentences(run: TimelineView) -> list[str]:
    history = run.run.history
    effective = effective_width(history, run.lines)
    found = [f"Submitted {history.submitted:,}, effectively {effective:.1f} at once."]
    if run.lines:
        waited = duration(sum(run.lines.values()))
        found.append(
            f"{count(len(run.lines), 'answer')} took far longer per token than the fastest of "
            f"their group: {waited} in all, shown as queued at the provider."
        )
    if history.parts > 1:
        found.append(f"Resumed {count(history.parts - 1, 'time')}; the time between is left out.")
    return found


def as_json(run: TimelineView) -> dict[str, object]:
    """The same for a program: every stay of every task, in seconds since the run began."""
    history = run.run.history
    return {
        "run": run.run.header.run, "elapsed_s": run.run.elapsed_s, "submitted": history.submitted,
        "effective": effective_width(history, run.lines), "parts": history.parts,
        "tasks": [
            {"task": name, "state": run.run.word_of(task), "attempts": task.attempt,
             "started_s": task.started_s, "ended_s": task.ended_s,
             "stays": [dict(zip(("kind", "from_s", "to_s"), one, strict=True))
                       for one in stays(task, run.lines.get(task.key, 0.0))]}
            for task, name in zip(run.tasks, run.names, strict=True)
        ],
    }  # fmt: skip


LABEL_CELLS_MAX: Final = 20
"""Names are cut to this, so that there is room for time on a screen of 80 columns."""

LANES_MAX: Final = 40
"""Agents that are drawn; what the others do looks the same."""

TURNED_AWAY: Final = "turned away, waits to try again"
"""What standing in line at a provider is, where it has no line but refuses."""

SHORT_S: Final = 20.0

CELLS: Final[dict[Cell, tuple[str, str]]] = {
    "here": ("dim", "queued here"),
    "provider": ("red", TURNED_AWAY),
    "busy": ("cyan", "processing"),
    "done": ("green", "done"),
    "failed": ("bold red", "failed"),
}


def draw_timeline(
    console: Console, title: str, lanes: Sequence[TimelineLane], labels: Sequence[str],
    until_s: float, lanes_max: int = LANES_MAX,
) -> None:  # fmt: skip
    console.print()
    console.print(Text(title, "bold"), crop=False, soft_wrap=True)
    for line in _lines(lanes, labels, until_s, lanes_max, console):
        console.print(line, crop=False, soft_wrap=True)


def draw_legend(console: Console, provider: str = TURNED_AWAY) -> None:
    glyphs, legend = glyphs_for(console), Text()
    for cell, (style, meaning) in CELLS.items():
        words = provider if cell == "provider" else meaning
        legend.append(getattr(glyphs, cell), style).append(f" {words}   ")
    legend.rstrip()
    console.print()
    console.print(legend, soft_wrap=True)


def _lines(
    lanes: Sequence[TimelineLane], labels: Sequence[str], until_s: float, lanes_max: int,
    console: Console,
) -> Iterator[Text]:  # fmt: skip
    glyphs, shown = glyphs_for(console), labels[:lanes_max]
    label_cells = min(LABEL_CELLS_MAX, max(cell_len(label) for label in shown))
    columns = max(10, console.width - label_cells - 2)
    # The last column begins where the longest run ends, so that its end can be seen.
    rows = timeline(lanes[: len(shown)], until_s * columns / (columns - 1), columns)
    for label, lane in zip(shown, rows, strict=True):
        line = Text(set_cell_size(label, label_cells) + "  ")
        for cell in lane:
            style = CELLS[cell][0] if cell in CELLS else ""
            line.append(getattr(glyphs, cell, " "), style)
        line.rstrip()
        yield line
    if len(labels) > lanes_max:
        yield Text(f"... and {len(labels) - lanes_max:,} more", "dim")
    yield Text(" " * (label_cells + 2) + _scale(until_s, columns), "dim")


def _scale(until_s: float, columns: int) -> str:
    """`0 s`, the middle and the end, under the columns where they are."""
    digits = 0 if until_s >= SHORT_S else 1
    middle, end = f"{until_s / 2:.{digits}f} s", f"{until_s:.{digits}f} s"
    line = "0 s".ljust(columns // 2) + middle
    return line.ljust(columns - len(end)) + end
