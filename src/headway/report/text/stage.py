"""One frame of the live view: bars, gauges, time left, running tasks.

It computes lines from what it is given and knows no clock, no thread and no terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from headway.base.numbers import short
from headway.pacing.view import AccountView, LimitView
from headway.report import progress
from headway.report.history import Standing
from headway.report.progress import GroupProgress, TaskNames, TimeLeft
from headway.report.text.accounts import PERIODS, interactive_words, window_lines
from headway.report.text.logs import stuck_words
from headway.report.text.table import bound_words
from headway.report.text.words import Glyphs, clock, cost, count, duration, one_line, usd

GROUPS_MAX: Final = 8
RUNNING_MAX: Final = 6
LANES_MAX: Final = 3
"""More of each would not fit on a screen of 24 lines."""

BAR_CELLS_MAX: Final = 30
LABEL_CELLS: Final = 9
NAME_CELLS_MAX: Final = 24
NARROW: Final = 60
"""Below this width, what stands behind a bar is left out."""


class LiveState(Struct, frozen=True):
    columns: int
    glyphs: Glyphs
    cast: TaskNames
    now_s: float
    elapsed_s: float
    standing: Standing
    counts: progress.ProgressStatistics
    groups: Sequence[GroupProgress]
    oldest: Sequence[progress.RunningAttempt]
    rest: TimeLeft
    lanes: Sequence[AccountView] = ()
    refused: int = 0
    own: tuple[float, int] | None = None
    """What headway itself takes: the share of a processor, and bytes of memory."""
    notice: str = ""
    health: str = ""
    """What is wrong with the accounts, if something is."""


def picture(view: LiveState) -> list[Text]:
    """The lines of a picture, none wider than its columns."""
    lines = [_title(view), *_groups(view), *_gauges(view), *_windows(view)]
    lines += [
        labelled("" if index else "rest", text) for index, text in enumerate(rest_words(view.rest))
    ]
    lines.append(labelled("used", used_words(view)))
    if view.health:
        lines.append(labelled("health", view.health))
    lines += _running(view)
    if view.counts.proposed:
        lines.append(
            labelled("proposed", f"{count(view.counts.proposed, 'result')} to be committed")
        )
    if view.own is not None:
        cpu, memory_bytes = view.own
        lines.append(labelled("headway", f"{cpu:.0%} of a CPU, {memory_bytes / 1e6:.0f} MB"))
    if view.notice:
        lines.append(labelled("note", view.notice))
    for line in lines:
        line.truncate(view.columns, overflow="ellipsis")
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
        fair_s = rest.bound_s if rest.fair_s is None else rest.fair_s
        least = bound_words(rest.bound_s, rest.binding, fair_s, rest.fair_binding)
        yield f"{share:.0%} of the best possible speed: at best {least}"


def rate_words(per_s: float) -> str:
    """`3.2 tasks a second`, `12 tasks a minute`."""
    if per_s >= 1.0:
        return f"{short(per_s)} tasks a second"
    return f"{short(per_s * 60.0)} tasks a minute"


def used_words(view: LiveState) -> str:
    counts, cast, words = view.counts, view.cast, []
    if counts.input_tokens or counts.output_tokens or cast.budget_tokens:
        tokens = f"{short(counts.input_tokens)} tokens in, {short(counts.output_tokens)} out"
        words.append(tokens + (f" of {short(cast.budget_tokens)}" if cast.budget_tokens else ""))
    if counts.spent_microusd or counts.unpriced or cast.budget_microusd is not None:
        money = cost(counts.spent_microusd, counts.unpriced)
        if cast.budget_microusd is not None:
            money += f" of {usd(cast.budget_microusd)}"
        words.append(money)
    if counts.paid_twice_microusd:
        words.append(f"{usd(counts.paid_twice_microusd)} for nothing")
    words.append(f"{view.refused + counts.refused:,} refused")
    if counts.retries:
        words.append(f"{counts.retries:,} tried again")
    if counts.stale:
        words.append(f"{counts.stale:,} stale, run again")
    if counts.reused:
        words.append(f"{counts.reused:,} from before")
    return ", ".join(words)


def _title(view: LiveState) -> Text:
    standing, words = view.standing, duration(view.elapsed_s)
    if standing.waves:
        words += f", wave {standing.wave} of {standing.waves}"
    if standing.stopping_for is not None:
        words += f", stopping: {standing.stopping_for}"
    elif standing.held_until_s == inf:
        words += f", paused: {standing.held_for}"
    elif standing.held_until_s is not None and standing.held_until_s > view.now_s:
        until = clock(standing.held_until_s, view.now_s)
        left = duration(standing.held_until_s - view.now_s)
        words += f", waiting until {until} (in {left}): {standing.held_for}"
    return Text.assemble((one_line(view.cast.title, 40), "bold"), f"  {one_line(words, 200)}")


def _groups(view: LiveState) -> Iterator[Text]:
    groups = list(view.groups)
    if len(groups) > GROUPS_MAX:
        groups.sort(key=lambda group: (not group.active, group.ended == (group.total or 0)))
        shown, others = groups[: GROUPS_MAX - 1], groups[GROUPS_MAX - 1 :]
    else:
        shown, others = groups, []
    cells = max((cell_len(one_line(group.name, NAME_CELLS_MAX)) for group in shown), default=0)
    digits = max((len(_ended_of(group)) for group in shown), default=0)
    for group in shown:
        yield _bar_line(view, group, cells, digits)
    if others:
        ended = sum(group.ended for group in others)
        total = sum(group.total or 0 for group in others)
        yield labelled("", f"and {count(len(others), 'group')} more, {ended:,}/{total:,}")


def _ended_of(group: GroupProgress) -> str:
    total = "?" if group.total is None else f"{group.total:,}"
    return f"{group.ended:,}/{total}"


def _bar_line(view: LiveState, group: GroupProgress, name_cells: int, digits: int) -> Text:
    name = set_cell_size(one_line(group.name, NAME_CELLS_MAX), name_cells)
    cells = max(5, min(BAR_CELLS_MAX, view.columns - name_cells - 34))
    whole = max(1, group.total or 0, group.ended)
    # The last cell is filled when everything is over, and not a task earlier.
    full = int(cells * group.finished / whole)
    lost = int(cells * group.ended / whole) - full
    glyphs = view.glyphs
    line = Text.assemble(
        "  ", name, "  ", (glyphs.busy * full, "green"), (glyphs.busy * lost, "red"),
        (glyphs.here * (cells - full - lost), "dim"), f" {_ended_of(group).rjust(digits)}",
    )  # fmt: skip
    if group.active and view.columns >= NARROW:
        line.append(f"  {group.active:,} running")
    if group.failed:
        line.append(f"  {group.failed:,} failed", "red")
    return line


def _gauges(view: LiveState) -> Iterator[Text]:
    """Each limit of the accounts in use: how much of it, where it is known from, which binds."""
    for lane in view.lanes[:LANES_MAX]:
        waiting = sum(caller.waiting for caller in lane.clients)
        width = "" if lane.width == inf else f" of {int(lane.width)}"
        words = f"{lane.account} {lane.group}: {lane.in_flight}{width} in flight"
        yield labelled("quota", words + (f", {waiting} waiting" if waiting else ""))
        if lane.interactive:
            yield labelled("", interactive_words(lane.interactive))
        waits_for = "" if lane.wait is None else lane.wait.resource
        for shown in lane.limits:
            binds = shown.limit.resource == waits_for or shown.limit.name == view.rest.binding
            yield gauge(shown, view.glyphs, binds)
        if not lane.limits and not lane.windows:
            yield Text(" " * (LABEL_CELLS + 2) + "no limit is known: learned from outcomes", "dim")


def _windows(view: LiveState) -> Iterator[Text]:
    counts = view.counts
    performed = max(1, counts.finished - counts.reused)
    left = (counts.input_tokens + counts.output_tokens) / performed * view.rest.left
    for index, words in enumerate(window_lines(view.lanes, view.cast.run, left)):
        yield labelled("" if index else "windows", words)


def gauge(shown: LimitView, glyphs: Glyphs, binds: bool) -> Text:
    limit = shown.limit
    share = min(1.0, shown.used / limit.amount)
    cells = 10
    full = round(cells * share)
    period = "" if limit.kind == "gauge" else PERIODS.get(limit.period_s, f"{limit.period_s:g} s")
    label = f"{limit.resource} {period}".strip().ljust(18)
    source = limit.source if shown.age_s is None else f"{limit.source}, {duration(shown.age_s)} ago"
    line = Text(" " * (LABEL_CELLS + 2))
    line.append(f"{label} ").append(glyphs.busy * full, "cyan")
    line.append(glyphs.here * (cells - full), "dim")
    line.append(f" {share:4.0%}  {short(shown.used)} of {short(limit.amount)}")
    if binds:
        line.append("  binds", "yellow")
    return line.append(f"  {source}", "dim")


def _running(view: LiveState) -> Iterator[Text]:
    shown = view.oldest[:RUNNING_MAX]
    room = max(10, min(40, view.columns - LABEL_CELLS - 30))
    names = [one_line(view.cast.label(running.task), room) for running in shown]
    cells = max(map(cell_len, names), default=0)
    for index, (running, name) in enumerate(zip(shown, names, strict=True)):
        words = duration(view.now_s - running.started_s).rjust(9)
        if running.attempt > 1:
            words += f"  attempt {running.attempt}"
        if running.quiet_s:
            words += f"  {stuck_words(running.quiet_s)}"
        elif running.admitted_s is None:
            words += "  waits for a permit"
        yield labelled("" if index else "running", f"{set_cell_size(name, cells)} {words}")
    if view.counts.running > len(shown):
        yield labelled("", f"and {view.counts.running - len(shown):,} more")


def labelled(label: str, words: str) -> Text:
    return Text.assemble("  ", (label.ljust(LABEL_CELLS), "dim"), words)
