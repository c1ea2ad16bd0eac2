"""Shows what `headway check`, the observation of a run and `headway doctor` found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.base.numbers import short
from headway.errors import PlanError
from headway.report.findings import ERRORS
from headway.report.text.terminal import print_lines
from headway.report.text.words import console_for, count, finite, one_line

if TYPE_CHECKING:
    from headway.plans.check import CheckReport, EdgeReport
    from headway.plans.hazards import Remark
    from headway.report.findings import Finding, Learned
    from headway.run.doctor import DoctorFinding


PATH_SHOWN_MAX: Final = 12
AFTER_SHOWN_MAX: Final = 6
GROUPS_SHOWN_MAX: Final = 60
"""Rows of the table: of a larger plan the beginning, and all of it as JSON."""

REMARKS_SHOWN_MAX: Final = 20


def print_check(report: CheckReport, stream: TextIO) -> None:
    console = console_for(stream)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("task", "does", "how many", "after", "tokens in"):
        table.add_column(column, justify="right" if column in ("how many", "tokens in") else "left")
    before: dict[str, list[EdgeReport]] = {}
    for edge in report.edges:
        before.setdefault(edge.after, []).append(edge)
    for group in report.groups[:GROUPS_SHOWN_MAX]:
        table.add_row(
            group.name,
            group.kind,
            "found at run time" if group.count is None else f"{group.count:,}",
            _after(before.get(group.name, [])),
            f"about {short(ceil(group.input_tokens))}" if group.input_tokens else "-",
        )
    console.print(table)
    if (hidden := len(report.groups) - GROUPS_SHOWN_MAX) > 0:
        console.print(f"and {hidden:,} more")
    console.print()
    print_lines(console, (*_lines(report), *_rights(report), "", *report.answers))
    _print_remarks(console, report.remarks)


def _lines(report: CheckReport) -> list[str]:
    path = " -> ".join(report.critical_path[:PATH_SHOWN_MAX])
    if len(report.critical_path) > PATH_SHOWN_MAX:
        path += f" -> ({len(report.critical_path) - PATH_SHOWN_MAX} more)"
    works = (
        (report.prompts, "prompt"),
        (report.commands, "command"),
        (report.functions, "function"),
    )
    kinds = [count(number, word) for number, word in works if number]
    unknown = [group.name for group in report.groups if group.count is None]
    lines = [
        f"{count(report.tasks, 'task')} on {count(report.levels, 'level')}: {', '.join(kinds)}",
        f"the longest chain is {path}",
    ]
    if unknown:
        lines.append(f"found at run time: {', '.join(unknown)}")
    return lines


def _rights(report: CheckReport) -> list[str]:
    agents = [group for group in report.groups if group.agent][:GROUPS_SHOWN_MAX]
    lines = [f"{group.name} ({group.agent}) may do: {group.may}" for group in agents]
    own = [group.name for group in report.groups if group.kind != "prompt"]
    if own:
        more = f", and {len(own) - PATH_SHOWN_MAX:,} more" if len(own) > PATH_SHOWN_MAX else ""
        lines.append(f"run with all your rights: {', '.join(own[:PATH_SHOWN_MAX])}{more}")
    return ["", *lines] if lines else []


def _after(edges: list[EdgeReport]) -> str:
    words = [
        edge.before + " (one by one)" * edge.memberwise + " (by reads)" * (edge.key == "reads")
        for edge in edges[:AFTER_SHOWN_MAX]
    ]
    if len(edges) > AFTER_SHOWN_MAX:
        words.append(f"{len(edges) - AFTER_SHOWN_MAX:,} more")
    return ", ".join(words) or "-"


def _print_remarks(console: Console, remarks: tuple[Remark, ...]) -> None:
    """The worst first: what, then where and what would go wrong, then what to write instead."""
    if remarks:
        console.print()
    for remark in remarks[:REMARKS_SHOWN_MAX]:
        style = "yellow" if remark.severity == "warning" else "dim"
        console.print(Text.assemble((remark.severity, style), f": {remark.message}"),
                      soft_wrap=True)  # fmt: skip
        place = "  ".join(part for part in (remark.where, remark.detail) if part)
        if place:
            console.print(Text(f"  {place}"), soft_wrap=True)
        if remark.hint:
            console.print(Text(f"hint: {remark.hint}"), soft_wrap=True)
    if (hidden := len(remarks) - REMARKS_SHOWN_MAX) > 0:
        console.print(f"and {hidden:,} more")


def refusal_of(error: PlanError) -> dict[str, object]:
    return {key: finite(value) for key, value in error.as_dict().items()}


SHOWN_MAX: Final = 10
LINE_CELLS_MAX: Final = 300


def print_findings(found: Sequence[Finding], stream: TextIO, hint: str) -> None:
    for one in found[:SHOWN_MAX]:
        others = one.count - 1
        more = f" (the same of {count(others, 'more task')})" if others else ""
        severity = "error" if one.kind in ERRORS else "warning"
        print(one_line(f"{severity}[{one.kind}]: {one.words}{more}", LINE_CELLS_MAX), file=stream)
        where = f"{one.where}  " if one.where else ""
        print(f"  {where}fix: {one_line(one.fix, LINE_CELLS_MAX)}", file=stream)
    if len(found) > SHOWN_MAX:
        print(f"and {len(found) - SHOWN_MAX} more: {hint}", file=stream)


def learned_lines(learned: Sequence[Learned]) -> Iterator[str]:
    yield "# what the tasks of this run touched, to be pasted under their names"
    yield "tasks:"
    for one in learned:
        yield from one.lines()


# What `headway doctor` found.

JUDGED: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def draw_findings(console: Console, findings: Sequence[DoctorFinding]) -> None:
    about = max(len(finding.about) for finding in findings)
    for finding in findings:
        mark = (finding.judgement.ljust(4), JUDGED[finding.judgement])
        line = Text.assemble(mark, "  ", finding.about.ljust(about), "  ", finding.detail)
        console.print(line, soft_wrap=True)
        if finding.fix:
            indent = " " * (about + 8)
            console.print(Text(f"{indent}fix: {finding.fix}", "dim"), soft_wrap=True)
    failed = sum(finding.judgement == "fail" for finding in findings)
    warned = sum(finding.judgement == "warn" for finding in findings)
    fit = f"Fit, with {count(warned, 'warning')}." if warned else "Fit."
    console.print(f"\n{count(failed, 'fault')} to correct first." if failed else f"\n{fit}")
