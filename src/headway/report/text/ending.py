"""Says how a run ended: the last lines that its command prints.

Laws:
- At most eight lines: done and not done, time and bound, use, what may be billed twice, failures
  by cause, files, what to do next. What there is nothing of has no line.
- Failures of one cause are one line, with one example and a hint that fits the cause.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from headway.engine.record import TaskRow
from headway.pacing.view import AccountView
from headway.report.progress import bound_of
from headway.report.text.run_view import RunView
from headway.report.text.runs import count_words, next_words, twice_words, used_words
from headway.report.text.table import binding
from headway.report.text.why import advice_for
from headway.report.text.words import count, duration, fault_line, one_line

if TYPE_CHECKING:
    from headway.run.tasks import Plans

LINES_MAX: Final = 8
CAUSES_MAX: Final = 2
FILES_MAX: Final = 5
WORDS_MAX: Final = 160
EXAMPLE_MAX: Final = 60

VARYING: Final = re.compile(r"\d+|'[^']*'|\"[^\"]*\"|`[^`]*`")
"""What differs between failures of one cause: numbers, and what stands in quotes."""

HINTS: Final = (
    ("exit code 127", "the command was not found: install it, or correct its name"),
    ("exit code 126", "the command may not be executed: `chmod +x` it"),
    ("SIGKILL", "something ended it, memory perhaps: allow fewer at once with `-j`"),
    ("No such file", "a file is missing: correct its path"),
)
"""By a part of the reason: what helps, before what its kind alone says."""


class Failures(Struct):
    """Failures of one cause."""

    example: TaskRow
    count: int = 0


def ending_lines(
    run: RunView, lanes: Sequence[AccountView] = (), why: str = "", until_s: float = 0.0,
    files: Sequence[str] = (), budget: str = "",
) -> list[str]:  # fmt: skip
    """`why` it ended before its time, if it did, and when its usage window resets; `budget` is one
    with which it could go on."""
    head = f"{run.header.run}: {count_words(run)}"
    if why := why or (run.verdict.reason if run.verdict.state == "stopped" else ""):
        head += f"; {why}"
    if until_s:
        head += time.strftime("; it resets at %Y-%m-%d %H:%M:%S", time.localtime(until_s))
    lines = [head, f"time: {_time_words(run, lanes)}"]
    if used := used_words(run).removesuffix(", ".join(twice_words(run.history))).rstrip(", "):
        calls = f"{count(run.history.taken.calls, 'call')}, " if run.history.taken.calls else ""
        lines.append(f"used: {calls}{used}")
    lines += [f"twice: {words}" for words in twice_words(run.history)]
    failures = list(_failure_lines(run))
    if files:
        more = f" and {len(files) - FILES_MAX:,} more" if len(files) > FILES_MAX else ""
        failures.append(f"files: {', '.join(map(one_line, files[:FILES_MAX]))}{more}")
    is_over = run.verdict.state == "done"
    nexts = [] if is_over and not run.verdict.reason else [one_line(*_next(run, budget))]
    return [*lines, *failures, *nexts][:LINES_MAX]


def _next(run: RunView, budget: str) -> tuple[str, int]:
    words = next(iter(next_words(run)), "")
    if budget and words.startswith("headway resume"):
        words = f"headway resume {run.header.run} --budget {budget}   goes on where it was"
    return f"next: {words}", WORDS_MAX


def _time_words(run: RunView, lanes: Sequence[AccountView]) -> str:
    took_s, history = run.elapsed_s, run.history
    words = duration(took_s)
    if not history.taken.calls:
        return words  # No limit of an account bounds what makes no calls.
    bound_s, name = bound_of(history, [lane.limits for lane in lanes])
    if bound_s is None:
        return f"{words}; the least possible time is unknown"
    share = min(1.0, bound_s / took_s) if took_s else 1.0
    least = f"the limits alone need {duration(bound_s)}"
    by = f", bound by {binding(name)}, {share:.0%} of it" if bound_s >= 0.05 * took_s else ""
    return f"{words}; {least}{by}"


def _failure_lines(run: RunView) -> Iterator[str]:
    found: dict[str, Failures] = {}
    for row in run.rows("failed"):
        cause = _cause_of(row.fault)
        found.setdefault(cause, Failures(row)).count += 1
    causes = sorted(found.values(), key=lambda one: -one.count)
    for index, one in enumerate(causes[:CAUSES_MAX]):
        fault = one.example.fault
        hint = next((hint for part, hint in HINTS if part in fault), "")
        hint = hint or advice_for(fault, f"headway resume {run.header.run}")
        more = ""
        if index == CAUSES_MAX - 1 and len(causes) > CAUSES_MAX:
            more = f"; {count(len(causes) - CAUSES_MAX, 'other cause')}: headway status"
        what = one_line(fault_line(fault) or "no reason was kept", WORDS_MAX)
        example = one_line(one.example.name, EXAMPLE_MAX)
        yield f"failed: {one.count:,} with {what}, for instance {example}; {hint}{more}"


def _cause_of(fault: str) -> str:
    """What failures have in common: of a command how it ended, of others their words."""
    kind, _, detail = fault_line(fault).partition(": ")
    if kind == "command":
        return f"{kind}: {detail.partition(':')[0]}"
    return VARYING.sub("", f"{kind}: {detail}".partition("\n")[0])


def files_of(plans: Plans, run: RunView) -> list[str]:
    """The files that tasks of a plan wrote, in declared order."""
    from headway.run.tasks import output_of

    done = {row.name for row in run.rows("finished")}
    found: list[str] = []
    for group in plans.expanded.groups:
        for member in range(group.known.count if group.task.output else 0):
            if group.label(member) in done:
                with suppress(OSError):
                    found.append(output_of(group, member, {}))
    return found
