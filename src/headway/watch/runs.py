"""The runs of a user, newest first: what each is doing and which can be resumed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headway.errors import HeadwayError
from headway.runtime.journal_reader import JournalReader
from headway.runtime.runs import RunPlace, list_runs
from headway.watch.glance import Glance, look, state_folder
from headway.watch.status import STYLES, count_words
from headway.watch.words import duration, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

RUNS_MAX: Final = 10
"""Of the newest runs; the others are in the state folder."""

HEADERS: Final = ("run", "name", "state", "tasks", "age")
CELLS_MIN: Final = 8
"""Of a column on a narrow screen."""

NOTHING: Final = """\
No runs yet. To begin:
  headway each 'printf "%s\\n" {}' ::: a b c
  headway run plan.yaml
Everything: headway --help"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A run, or why nothing can be said of it."""

    place: RunPlace
    glance: Glance | None
    error: str = ""


def recent_runs(limit: int = RUNS_MAX) -> list[Listed]:
    """The newest runs."""
    found = []
    for place in list_runs(state_folder(), limit):
        try:
            with JournalReader(place.folder) as reader:
                found.append(Listed(place, look(reader)))
        except HeadwayError as error:
            # One journal that cannot be read does not hide the others.
            found.append(Listed(place, None, error.message))
    return found


def draw_runs(console: Console, runs: list[Listed]) -> None:
    """A table of runs, and what can be done with them."""
    from rich.table import Table
    from rich.text import Text

    if not runs:
        console.print(NOTHING, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in HEADERS:
        least = len("20261116-0423-a7k") if header == "run" else None
        table.add_column(header, no_wrap=True, overflow="ellipsis", min_width=least)
    for cells in _fitted([_cells(listed) for listed in runs], console.width):
        table.add_row(*cells)
    console.print(table)
    console.print()
    for line in advice(runs):
        console.print(Text(line, "dim"), soft_wrap=True)


def advice(runs: list[Listed]) -> list[str]:
    """The commands that fit these runs."""
    lines = []
    glances = [listed.glance for listed in runs if listed.glance is not None]
    for glance in glances:
        if glance.verdict.is_resumable or glance.verdict.state == "paused":
            lines.append(f"headway resume {glance.header.run}")
    for glance in glances[:1]:
        lines.append(f"headway status {glance.header.run}")
    return [*lines, "headway --help"]


def _cells(listed: Listed) -> tuple[Text, ...]:
    from rich.text import Text

    glance = listed.glance
    age = Text(duration(time.time() - listed.place.created_s))
    if glance is None:
        error = Text(one_line(listed.error, 40))
        return Text(listed.place.id), Text(), Text("unreadable"), error, age
    state = glance.verdict.state
    return (
        Text(glance.header.run), Text(one_line(glance.header.name, 30)),
        Text(state, STYLES.get(state, "")), Text(count_words(glance)), age,
    )  # fmt: skip


def _fitted(rows: list[tuple[Text, ...]], width: int) -> list[tuple[Text, ...]]:
    """What is too wide is taken from the names first, then from the counts."""
    widths = [
        max(len(header), *(row[column].cell_len for row in rows))
        for column, header in enumerate(HEADERS)
    ]
    over = sum(widths) + 2 * len(HEADERS) - width
    for column in (1, 3):
        cut = min(max(0, over), max(0, widths[column] - CELLS_MIN))
        over -= cut
        for row in rows:
            row[column].truncate(widths[column] - cut, overflow="ellipsis")
    return rows
