"""Draws a timeline: waiting, refused, working; one line per agent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from headway.journal.folder import kept_shape
from headway.journal.reader import JournalReader
from headway.report.history import Passage, Passages, effective_width, in_line, stays
from headway.report.tables import Cell, TimelineLane, timeline
from headway.report.text.runs import Glance, look
from headway.report.text.words import Glyphs, count, duration, glyphs_for, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


# A run that was performed, as a timeline: who waited where, who worked, how many at once.

NAME_CELLS_MAX: Final = 60
LEAST_S: Final = 0.001
"""A picture of a run without any length still has a scale."""


class TimelineView(Struct, frozen=True):
    """All that a timeline shows and says."""

    tasks: Sequence[Passage]
    names: Sequence[str]
    lines: dict[bytes, float]
    glance: Glance
    submitted: int
    effective: float
    elapsed_s: float
    parts: int


def played(reader: JournalReader) -> TimelineView:
    """Fold a journal."""
    facts = list(reader.events())
    names = {row.key: row.name for row in reader.rows()}
    kept = kept_shape(reader.folder)
    models = (kept and kept.models) or frozenset()
    history = Passages(lambda key: group_name(names.get(key, "")) not in models)
    for recorded in facts:
        history.hear(recorded.key, recorded.event)
    glance = look(reader)
    now_s = history.elapsed_s
    if glance.verdict.is_live:
        now_s += max(0.0, time.time() - glance.summary.last_s)
    history.close(now_s)
    tasks = sorted(history.tasks.values(), key=lambda task: (task.number, task.key))
    lines = in_line(tasks, lambda key: group_name(names.get(key, "")))
    return TimelineView(
        tasks, [names.get(task.key, task.key.hex()[:8]) for task in tasks], lines, glance,
        history.submitted, effective_width(history, lines), now_s, history.parts,
    )  # fmt: skip


def draw_played(console: Console, run: TimelineView, *, is_whole: bool) -> None:
    """Draw it, at most a screenful of tasks unless all are wanted."""
    if not run.tasks:
        console.print("nothing has started yet")
        return
    lanes_max = len(run.tasks) if is_whole else LANES_MAX
    lanes: list[TimelineLane] = []
    for task in run.tasks[:lanes_max]:
        end = None if task.ended_s is None else (task.ended_s, task.state == "finished")
        lanes.append((stays(task, run.lines.get(task.key, 0.0)), end))
    names = [one_line(name, NAME_CELLS_MAX) for name in run.names]
    header = run.glance.header
    title = f"{one_line(header.name, NAME_CELLS_MAX)}, {count(len(run.tasks), 'task')}"
    picture = Picture(title, lanes, names, lanes_max)
    draw_timelines(console, [picture], max(LEAST_S, run.elapsed_s), "queued at the provider")
    console.print()
    for line in sentences(run):
        console.print(line, soft_wrap=True)
    if len(run.tasks) > lanes_max:
        console.print(f"All of them: headway timeline {header.run} --all", soft_wrap=True)


def sentences(run: TimelineView) -> list[str]:
    """What the picture shows, in words."""
    said = [f"Submitted {run.submitted:,}, effectively {run.effective:.1f} at once."]
    if run.lines:
        waited = duration(sum(run.lines.values()))
        said.append(
            f"{count(len(run.lines), 'answer')} took far longer per token than the fastest of "
            f"their group: {waited} in all, shown as queued at the provider."
        )
    if run.parts > 1:
        said.append(f"Resumed {count(run.parts - 1, 'time')}; the time between is left out.")
    return said


def group_name(name: str) -> str:
    """`review` of `review[security]`."""
    return name.partition("[")[0]


def as_json(run: TimelineView) -> dict[str, object]:
    """The same for a program: every stay of every task, in seconds since the run began."""
    return {
        "run": run.glance.header.run,
        "elapsed_s": run.elapsed_s,
        "submitted": run.submitted,
        "effective": run.effective,
        "parts": run.parts,
        "tasks": [
            {
                "task": name,
                "state": task.state,
                "attempts": task.attempt,
                "started_s": task.started_s,
                "ended_s": task.ended_s,
                "stays": [
                    {"kind": kind, "from_s": from_s, "to_s": to_s}
                    for kind, from_s, to_s in stays(task, run.lines.get(task.key, 0.0))
                ],
            }
            for task, name in zip(run.tasks, run.names, strict=True)
        ],
    }


LABEL_CELLS_MAX: Final = 20
"""Names are cut to this, so that there is room for time on a screen of 80 columns."""

LANES_MAX: Final = 40
"""Agents that are drawn; what the others do looks the same."""

TURNED_AWAY: Final = "turned away, waits to try again"
"""What standing in line at a provider is, where it has no line but refuses."""

SHORT_S: Final = 20.0
"""Below this, tenths of a second matter."""

STYLES: Final[dict[Cell, str]] = {
    "here": "dim",
    "provider": "red",
    "busy": "cyan",
    "done": "green",
    "failed": "bold red",
    "over": "",
}


class Picture(Struct, frozen=True):
    """One run to be drawn: its title, what it left behind, and its agents' names."""

    title: str
    lanes: Sequence[TimelineLane]
    labels: Sequence[str]
    lanes_max: int = LANES_MAX


def draw_timelines(
    console: Console, pictures: Sequence[Picture], until_s: float, provider: str = TURNED_AWAY
) -> None:
    """Draw runs one below the other on the same scale, and what the signs mean."""
    from rich.text import Text

    glyphs = glyphs_for(console)
    for picture in pictures:
        console.print()
        console.print(Text(picture.title, "bold"), crop=False, soft_wrap=True)
        for line in _lines(picture, until_s, console.width, glyphs):
            console.print(line, crop=False, soft_wrap=True)
    console.print()
    console.print(_legend(glyphs, provider), soft_wrap=True)


def _lines(picture: Picture, until_s: float, width: int, glyphs: Glyphs) -> list[Text]:
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    shown = picture.labels[: picture.lanes_max]
    label_cells = min(LABEL_CELLS_MAX, max(cell_len(label) for label in shown))
    columns = max(10, width - label_cells - 2)
    # The last column begins where the longest run ends, so that its end can be seen.
    lanes = timeline(picture.lanes[: len(shown)], until_s * columns / (columns - 1), columns)
    lines = []
    for label, lane in zip(shown, lanes, strict=True):
        line = Text(set_cell_size(label, label_cells) + "  ")
        lines.append(line.append_text(_drawn(lane, glyphs)))
    if len(picture.labels) > picture.lanes_max:
        more = len(picture.labels) - picture.lanes_max
        lines.append(Text(f"... and {more:,} more", "dim"))
    lines.append(Text(" " * (label_cells + 2) + _scale(until_s, columns), "dim"))
    return lines


def _drawn(cells: Sequence[Cell], glyphs: Glyphs) -> Text:
    from rich.text import Text

    signs = _signs(glyphs)
    line = Text()
    for cell in cells:
        line.append(signs[cell], STYLES[cell])
    line.rstrip()
    return line


def _signs(glyphs: Glyphs) -> dict[Cell, str]:
    return {
        "here": glyphs.here,
        "provider": glyphs.provider,
        "busy": glyphs.busy,
        "done": glyphs.done,
        "failed": glyphs.failed,
        "over": " ",
    }


def _scale(until_s: float, columns: int) -> str:
    """`0 s`, the middle and the end, under the columns where they are."""
    digits = 0 if until_s >= SHORT_S else 1
    middle, end = f"{until_s / 2:.{digits}f} s", f"{until_s:.{digits}f} s"
    line = "0 s".ljust(columns // 2) + middle
    return line.ljust(columns - len(end)) + end


def _legend(glyphs: Glyphs, provider: str) -> Text:
    from rich.text import Text

    signs = _signs(glyphs)
    meanings: tuple[tuple[Cell, str], ...] = (
        ("here", "queued here"),
        ("provider", provider),
        ("busy", "processing"),
        ("done", "done"),
        ("failed", "failed"),
    )
    line = Text()
    for cell, meaning in meanings:
        line.append(signs[cell], STYLES[cell]).append(f" {meaning}   ")
    line.rstrip()
    return line
