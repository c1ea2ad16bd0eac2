"""A run that was performed, as a timeline: who waited where, who worked, how many at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headway.core.story import Story, Tale, effective_width, in_line, scene, with_lines
from headway.runtime.journal_reader import JournalReader
from headway.runtime.shapes import kept_shape
from headway.watch.glance import Glance, look
from headway.watch.timeline import LANES_MAX, Picture, draw_timelines
from headway.watch.words import count, duration, one_line

if TYPE_CHECKING:
    from rich.console import Console

NAME_CELLS_MAX: Final = 60
LEAST_S: Final = 0.001
"""A picture of a run without any length still has a scale."""


@dataclass(frozen=True, slots=True)
class Played:
    """All that a timeline shows and says."""

    tales: Sequence[Tale]
    names: Sequence[str]
    lines: dict[bytes, float]
    glance: Glance
    submitted: int
    effective: float
    elapsed_s: float
    parts: int


def played(reader: JournalReader) -> Played:
    """Fold a journal."""
    facts = list(reader.events())
    names = {row.key: row.name for row in reader.rows()}
    kept = kept_shape(reader.folder)
    models = (kept and kept.models) or frozenset()
    story = Story(lambda key: group_name(names.get(key, "")) not in models)
    for recorded in facts:
        story.hear(recorded.key, recorded.event)
    glance = look(reader)
    tales = story.in_order()
    lines = in_line(tales, lambda key: group_name(names.get(key, "")))
    shape = story.statistics()
    now_s = shape.elapsed_s
    if glance.verdict.is_live:
        now_s += max(0.0, time.time() - glance.summary.last_s)
    return Played(
        tales, [names.get(tale.key, tale.key.hex()[:8]) for tale in tales], lines, glance,
        shape.submitted, effective_width(story, lines, now_s), now_s, shape.parts,
    )  # fmt: skip


def draw_played(console: Console, run: Played, *, is_whole: bool) -> None:
    """Draw it, at most a screenful of tasks unless all are wanted."""
    if not run.tales:
        console.print("nothing has started yet")
        return
    lanes_max = len(run.tales) if is_whole else LANES_MAX
    shown = [with_lines(tale, run.lines.get(tale.key, 0.0)) for tale in run.tales[:lanes_max]]
    names = [one_line(name, NAME_CELLS_MAX) for name in run.names]
    header = run.glance.header
    title = f"{one_line(header.name, NAME_CELLS_MAX)}, {count(len(run.tales), 'task')}"
    picture = Picture(title, scene(shown, run.elapsed_s), names, lanes_max)
    draw_timelines(console, [picture], max(LEAST_S, run.elapsed_s), "queued at the provider")
    console.print()
    for line in sentences(run):
        console.print(line, soft_wrap=True)
    if len(run.tales) > lanes_max:
        console.print(f"All of them: headway timeline {header.run} --all", soft_wrap=True)


def sentences(run: Played) -> list[str]:
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


def as_json(run: Played) -> dict[str, object]:
    """The same for a program: every stay of every task, in seconds since the run began."""
    tales = [with_lines(tale, run.lines.get(tale.key, 0.0)) for tale in run.tales]
    return {
        "run": run.glance.header.run,
        "elapsed_s": run.elapsed_s,
        "submitted": run.submitted,
        "effective": run.effective,
        "parts": run.parts,
        "tasks": [
            {
                "task": name,
                "state": tale.state,
                "attempts": tale.attempt,
                "started_s": tale.started_s,
                "ended_s": tale.ended_s,
                "stays": [
                    {"kind": kind, "from_s": from_s, "to_s": to_s}
                    for kind, from_s, to_s in tale.spans
                ],
            }
            for tale, name in zip(tales, run.names, strict=True)
        ],
    }
