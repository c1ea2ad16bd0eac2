"""One frame of the live view: bars, gauges, time left, running tasks.

It computes lines from what it is given and knows no clock, no thread and no terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from headway.base.numbers import short
from headway.pacing.view import AccountView, LimitView
from headway.report.progress import TimeLeft
from headway.report.text.accounts import in_flight_words, interactive_words
from headway.report.text.logs import stuck_words
from headway.report.text.run_view import GroupCount, RunView
from headway.report.text.runs import state_words, twice_words, used_words, waiting_words
from headway.report.text.terminal import LABEL_CELLS, block, labelled
from headway.report.text.words import (
    Glyphs,
    bound_words,
    count,
    duration,
    limit_words,
    one_line,
)

GROUPS_MAX: Final = 8
RUNNING_MAX: Final = 6
LANES_MAX: Final = 3
"""More of each would not fit on a screen of 24 lines."""

ACTIVE: Final = ("in flight", "running here", "waiting for a limit")

BAR_CELLS_MAX: Final = 30
NAME_CELLS_MAX: Final = 24
LIMIT_CELLS: Final = 22
SHARE_MIN: Final = 0.01
"""Of the time to the end: a bound below it would be shown as 0.0 s."""

NARROW: Final = 60
"""Below this width, what stands behind a bar is left out."""


class LiveState(Struct):
    """What a picture shows beside the run itself."""

    lanes: Sequence[AccountView] = ()
    """The accounts that the run uses."""
    notice: str = ""
    health: str = ""
    """What is wrong with the accounts, if something is."""


def picture(run: RunView, state: LiveState, columns: int, glyphs: Glyphs) -> list[Text]:
    """The lines of a picture, none wider than its columns."""
    rest = run.time_left(state.lanes)
    lines = [_title(run), *_groups(run, columns, glyphs), *_gauges(state.lanes, rest, glyphs)]
    lines += block("windows", run.windows(state.lanes))
    lines += block("rest", rest_words(rest))
    lines += block("used", [used_words(run) or "nothing yet"])
    lines += block("twice", twice_words(run.history))
    lines += block("health", [state.health] if state.health else ())
    lines += _running(run, columns)
    lines += block("waiting", waiting_words(run, state.lanes))
    lines += block("note", [state.notice] if state.notice else ())
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    return lines


def rest_words(rest: TimeLeft) -> Iterator[str]:
    """Time to the end, never without the quota's bound beside it."""
    if not rest.left:
        return
    left = count(rest.left, "task")
    if rest.per_s is None:
        yield f"{left}; the speed is not known yet"
    elif rest.eta_s is None:
        yield f"{left} and more to come, {rate_words(rest.per_s)}"
    elif rest.bound_s is None:
        yield f"{left}, {rate_words(rest.per_s)}; bound unknown"
    else:
        share = min(1.0, rest.bound_s / rest.eta_s) if rest.eta_s else 1.0
        yield f"{left}, {duration(rest.eta_s)} at {rate_words(rest.per_s)}"
        if share < SHARE_MIN:
            return  # The limits are not what the rest waits for.
        fair_s = rest.bound_s if rest.fair_s is None else rest.fair_s
        least = bound_words(rest.bound_s, rest.binding, fair_s, rest.fair_binding)
        yield f"{share:.0%} of the best possible speed: at best {least}"


def rate_words(per_s: float) -> str:
    """`3.2 tasks a second`, `12 tasks a minute`."""
    if per_s >= 1.0:
        return f"{short(per_s)} tasks a second"
    return f"{short(per_s * 60.0)} tasks a minute"


def _title(run: RunView) -> Text:
    words = f"{duration(run.elapsed_s)}, {state_words(run, is_ours=True)}"
    return Text.assemble((one_line(run.header.name, 40), "bold"), f"  {one_line(words, 200)}")


def _groups(run: RunView, columns: int, glyphs: Glyphs) -> Iterator[Text]:
    groups = run.groups()
    if len(groups) > GROUPS_MAX:
        groups.sort(key=lambda group: (not group.of(*ACTIVE), group.ended == (group.total or 0)))
        shown, others = groups[: GROUPS_MAX - 1], groups[GROUPS_MAX - 1 :]
    else:
        shown, others = groups, []
    cells = max((cell_len(one_line(group.name, NAME_CELLS_MAX)) for group in shown), default=0)
    digits = max((len(_ended_of(group)) for group in shown), default=0)
    for group in shown:
        yield _bar_line(group, columns, glyphs, (cells, digits))
    if others:
        ended = sum(group.ended for group in others)
        total = sum(group.total or 0 for group in others)
        yield labelled("", f"and {count(len(others), 'group')} more, {ended:,}/{total:,}")


def _ended_of(group: GroupCount) -> str:
    total = "?" if group.total is None else f"{group.total:,}"
    return f"{group.ended:,}/{total}"


def _bar_line(group: GroupCount, columns: int, glyphs: Glyphs, widths: tuple[int, int]) -> Text:
    name_cells, digits = widths
    name = set_cell_size(one_line(group.name, NAME_CELLS_MAX), name_cells)
    cells = max(5, min(BAR_CELLS_MAX, columns - name_cells - 34))
    whole = max(1, group.total or 0, group.ended)
    # The last cell is filled when everything is over, and not a task earlier.
    full = int(cells * group.of("done", "reused") / whole)
    lost = int(cells * group.ended / whole) - full
    line = Text.assemble(
        "  ", name, "  ", (glyphs.busy * full, "green"), (glyphs.busy * lost, "red"),
        (glyphs.here * (cells - full - lost), "dim"), f" {_ended_of(group).rjust(digits)}",
    )  # fmt: skip
    if columns >= NARROW:
        for word in ACTIVE:
            if many := group.of(word):
                line.append(f"  {many:,} {word}")
    for word in ("failed", "skipped"):
        if many := group.of(word):
            line.append(f"  {many:,} {word}", "red")
    return line


def _gauges(lanes: Sequence[AccountView], rest: TimeLeft, glyphs: Glyphs) -> Iterator[Text]:
    """Each limit of the accounts in use: how much of it, where it is known from, which binds."""
    for lane in lanes[:LANES_MAX]:
        waiting = sum(caller.waiting for caller in lane.clients)
        words = f"{lane.account} {lane.group}: {in_flight_words(lane)}"
        yield labelled("quota", words + (f", {waiting} waiting" if waiting else ""))
        if lane.interactive:
            yield labelled("", interactive_words(lane.interactive))
        waits_for = "" if lane.wait is None else lane.wait.resource
        for shown in lane.limits:
            binds = shown.limit.name in (waits_for, rest.binding)
            yield gauge(shown, glyphs, binds)
        if not lane.limits and not lane.windows:
            yield Text(" " * (LABEL_CELLS + 2) + "no limit is known: learned from outcomes", "dim")


def gauge(shown: LimitView, glyphs: Glyphs, binds: bool) -> Text:
    limit = shown.limit
    share = min(1.0, shown.used / limit.capacity)
    cells = 10
    full = round(cells * share)
    label = limit_words(limit.name).ljust(LIMIT_CELLS)
    source = limit.source if shown.age_s is None else f"{limit.source}, {duration(shown.age_s)} ago"
    line = Text(" " * (LABEL_CELLS + 2))
    line.append(f"{label} ").append(glyphs.busy * full, "cyan")
    line.append(glyphs.here * (cells - full), "dim")
    line.append(f" {share:4.0%}  {short(shown.used)} of {short(limit.capacity)}")
    if binds:
        line.append("  binds", "yellow")
    return line.append(f"  {source}", "dim")


def _running(run: RunView, columns: int) -> Iterator[Text]:
    history = run.history
    active = [history.tasks[key] for key in history.active]
    shown = nsmallest(RUNNING_MAX, active, key=lambda one: (one.started_s, one.number))
    room = max(10, min(40, columns - LABEL_CELLS - 30))
    names = [one_line(run.name(one.key), room) for one in shown]
    cells = max(map(cell_len, names), default=0)
    now_s = history.at(run.now_s)
    for index, (one, name) in enumerate(zip(shown, names, strict=True)):
        words = duration(now_s - one.started_s).rjust(9)
        if one.attempt > 1:
            words += f"  attempt {one.attempt}"
        words += f"  {one.word}"
        if one.quiet_s:
            words += f", {stuck_words(one.quiet_s)}"
        yield labelled("" if index else "running", f"{set_cell_size(name, cells)} {words}")
    if len(active) > len(shown):
        yield labelled("", f"and {len(active) - len(shown):,} more")
