"""Draws who waited, who was turned away and who worked: time to the right, one line per agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headway.core.report import Cell, Drawn, Lane, timeline
from headway.watch.screen import Glyphs, glyphs_for

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

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


@dataclass(frozen=True, slots=True)
class Picture:
    """One run to be drawn: its title, what it left behind, and its agents' names."""

    title: str
    ran: Drawn
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
    lanes = timeline(picture.ran, len(shown), until_s * columns / (columns - 1), columns)
    lines = []
    for label, lane in zip(shown, lanes, strict=True):
        line = Text(set_cell_size(label, label_cells) + "  ")
        lines.append(line.append_text(_drawn(lane, glyphs)))
    if len(picture.labels) > picture.lanes_max:
        more = len(picture.labels) - picture.lanes_max
        lines.append(Text(f"... and {more:,} more", "dim"))
    lines.append(Text(" " * (label_cells + 2) + _scale(until_s, columns), "dim"))
    return lines


def _drawn(lane: Lane, glyphs: Glyphs) -> Text:
    from rich.text import Text

    signs = _signs(glyphs)
    line = Text()
    for cell in lane.cells:
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
