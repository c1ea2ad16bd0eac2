"""Shows what `headway check` found out about a plan."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, TextIO

from headway.core.numbers import short
from headway.watch.screen import console_for
from headway.watch.words import count

if TYPE_CHECKING:
    from headway.core.plan.check import CheckReport, EdgeReport, GroupReport

PATH_SHOWN_MAX: Final = 12


def print_check(report: CheckReport, stream: TextIO) -> None:
    """A line for each task, in declared order, then the plan as a whole."""
    from rich.table import Table

    console = console_for(stream)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("task", "does", "how many", "after", "tokens in"):
        table.add_column(column, justify="right" if column in ("how many", "tokens in") else "left")
    for group in report.groups:
        table.add_row(
            group.name,
            group.kind,
            "found at run time" if group.count is None else f"{group.count:,}",
            ", ".join(_after(edge) for edge in report.edges if edge.after == group.name) or "-",
            f"about {short(ceil(group.input_tokens))}" if group.input_tokens else "-",
        )
    console.print(table)
    console.print()
    for line in _lines(report):
        console.print(line, soft_wrap=True)


def _lines(report: CheckReport) -> list[str]:
    path = " -> ".join(report.critical_path[:PATH_SHOWN_MAX])
    if len(report.critical_path) > PATH_SHOWN_MAX:
        path += f" -> ({len(report.critical_path) - PATH_SHOWN_MAX} more)"
    kinds = [
        count(number, word)
        for number, word in (
            (report.prompts, "prompt"),
            (report.commands, "command"),
            (report.functions, "function"),
        )
        if number
    ]
    unknown = [group.name for group in report.groups if group.count is None]
    lines = [
        f"{count(report.tasks, 'task')} on {count(report.levels, 'level')}: {', '.join(kinds)}",
        f"at most {report.width:,} at once; the longest chain is {path}",
    ]
    if unknown:
        lines.append(f"found at run time: {', '.join(unknown)}")
    alone = _independent(report.groups)
    if alone:
        lines.append(f"nothing keeps the members of these apart: {', '.join(alone)}")
    return [*lines, *(f"warning: {warning}" for warning in report.warnings)]


def _after(edge: EdgeReport) -> str:
    words = edge.before
    if edge.memberwise:
        words += " (one by one)"
    return f"{words} (by reads)" if edge.key == "reads" else words


def _independent(groups: tuple[GroupReport, ...]) -> list[str]:
    return [group.name for group in groups if group.is_independent and group.count != 1]
