"""Folds of a run into the rows of tables and timelines.

Laws:
- Times over several seeds are medians, counts are means: one refusal in five runs shows as 0.2.
- The time of a task begins when it first reaches the provider: waiting before that costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from headway.base.numbers import median, percentile
from headway.report.history import P95, RunHistory, StayKind, TaskHistory

if TYPE_CHECKING:
    from headway.report.bound import Bound
    from headway.sim.rehearsal import Rehearsed

Cell = Literal["here", "provider", "busy", "done", "failed", "over"]
"""What a task mostly did during one column of a timeline; `over` is after its end."""


TimelineLane = tuple[Sequence[tuple[StayKind, float, float]], tuple[float, bool] | None]
"""Of a task: where it was while it did not wait here; when it ended, and whether it is done."""


class StrategyRow(Struct, frozen=True):
    """A strategy over all seeds: medians of times, means of counts, and how far they spread."""

    strategy: str
    makespan_s: float
    bound_s: float
    fair_s: float
    """The bound if the ceiling holds, neighbours keep their share and no debt is left."""
    ratio: float
    """Time over bound, of the medians: 1 is the best possible, 2 is half as fast. Without end where
    tasks were lost."""
    refused: float
    timeouts: float
    failed: float
    wasted_tokens: float
    first_result_s: float
    task_p95_s: float
    makespan_min_s: float
    makespan_max_s: float
    refused_max: int
    failed_max: int
    in_flight_mean: float
    in_flight_most: int
    seeds: int

    @property
    def loses_nothing(self) -> bool:
        """Whether every task had a result in every run."""
        return self.failed_max == 0


def row_of(strategy: str, ran: Sequence[Rehearsed], bounds: Sequence[Bound]) -> StrategyRow:
    makespans = [one.makespan_s for one in ran]
    makespan_s, bound_s = median(makespans), median([one.time_s for one in bounds])
    ratio = inf if any(one.failed for one in ran) else makespan_s / bound_s
    firsts = [min((end.ended_s for end in one.tasks if end.done), default=inf) for one in ran]
    return StrategyRow(
        strategy, makespan_s, bound_s, median([one.fair_s for one in bounds]), ratio,
        _mean([one.refused for one in ran]), _mean([one.timeouts for one in ran]),
        _mean([one.failed for one in ran]), _mean([one.wasted_tokens for one in ran]),
        median(firsts),
        median([percentile(_task_times(one), P95) for one in ran]),
        min(makespans), max(makespans),
        max(one.refused for one in ran), max(one.failed for one in ran),
        median([_in_flight_mean(one) for one in ran]),
        max(one.in_flight_most for one in ran), len(ran),
    )  # fmt: skip


def lanes_of(ran: Rehearsed, tasks: int) -> list[TimelineLane]:
    """The lanes of the first tasks of a rehearsal."""
    stays: list[list[tuple[StayKind, float, float]]] = [[] for _ in range(tasks)]
    for one in ran.spans:
        if one.kind != "here" and one.task < tasks:
            stays[one.task].append((one.kind, one.from_s, one.to_s))
    ends = {end.task: (end.ended_s, end.done) for end in ran.tasks}
    return [(stays[task], ends.get(task)) for task in range(tasks)]


def timeline(lanes: Sequence[TimelineLane], until_s: float, columns: int) -> list[list[Cell]]:
    """A row for every task, of `columns` cells that together last `until_s`.

    A cell shows what filled most of it. The cell after a task's end tells how it ended.
    """
    step_s = until_s / columns
    rows: list[list[Cell]] = []
    for stays, end in lanes:
        spent = [[0.0, 0.0] for _ in range(columns)]
        for kind, from_s, to_s in stays:
            for index in range(int(from_s / step_s), min(columns, int(to_s / step_s) + 1)):
                overlap_s = min(to_s, (index + 1) * step_s) - max(from_s, index * step_s)
                spent[index][kind == "busy"] += overlap_s
        rows.append(_cells(spent, end, step_s))
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _task_times(ran: Rehearsed) -> list[float]:
    reached_s: dict[int, float] = {}
    for stay in ran.spans:
        if stay.kind != "here":
            reached_s.setdefault(stay.task, stay.from_s)
    return [
        end.ended_s - reached_s[end.task] for end in ran.tasks if end.done and end.task in reached_s
    ]


def _in_flight_mean(ran: Rehearsed) -> float:
    last_s = max((ended_s for _, ended_s in ran.calls), default=0.0)
    if last_s == 0.0:
        return 0.0
    return sum(ended_s - sent_s for sent_s, ended_s in ran.calls) / last_s


def _cells(spent: list[list[float]], end: tuple[float, bool] | None, step_s: float) -> list[Cell]:
    ended_s, is_done = end or (inf, False)
    cells: list[Cell] = []
    for index, (turned_away_s, busy_s) in enumerate(spent):
        begin_s = index * step_s
        if begin_s >= ended_s:
            is_first = not cells or cells[-1] not in ("done", "failed", "over")
            after: Cell = "done" if is_done else "failed"
            cells.append(after if is_first else "over")
            continue
        here_s = min(step_s, ended_s - begin_s) - turned_away_s - busy_s
        most = max(here_s, turned_away_s, busy_s)
        cells.append("busy" if busy_s == most else "provider" if turned_away_s == most else "here")
    return cells


# How wide a run really was: who was worked on, and who stood in line at the provider.

FAST_SHARE: Final = 0.1
"""The fastest tenth of a group shows how fast an answer comes when nothing is before it."""

FAST_TASKS_MIN: Final = 5
"""With fewer answers a slow one cannot be distinguished from a long one."""

QUEUED_FROM: Final = 2.0
"""An answer that takes more than this many times as long, per token, was queued at the provider."""


def in_line(tasks: Iterable[TaskHistory]) -> dict[bytes, float]:
    """For each answered task, how long it probably stood in line at the provider.

    The provider does not say. An answer's time per token tells: what is far beyond the fastest
    tenth of its group was not spent on the answer. Only one call's time can be read like this.
    """
    took: dict[str, list[tuple[bytes, float, float]]] = {}
    for one in tasks:
        if one.state == "finished" and one.output_tokens > 0.0 and one.calls == 1:
            last = one.last_service
            answer = (one.key, last.to_s - last.from_s, one.output_tokens)
            took.setdefault(one.group.name, []).append(answer)
    lines: dict[bytes, float] = {}
    for answers in took.values():
        if len(answers) < FAST_TASKS_MIN:
            continue
        fast_s = percentile([took_s / tokens for _, took_s, tokens in answers], FAST_SHARE)
        for key, took_s, tokens in answers:
            if took_s > QUEUED_FROM * fast_s * tokens:
                lines[key] = took_s - fast_s * tokens
    return lines


def stays(task: TaskHistory, line_s: float) -> list[tuple[StayKind, float, float]]:
    """Where a task was while it did not wait here; its last call began with so long in line."""
    shown: list[tuple[StayKind, float, float]] = [
        ("provider" if kind == "refused" else "busy", from_s, to_s)
        for kind, from_s, to_s, _ in task.pieces
        if kind in ("service", "lost", "refused")
    ]
    if line_s:
        _, from_s, to_s = shown.pop()
        shown += [("provider", from_s, from_s + line_s), ("busy", from_s + line_s, to_s)]
    return shown


def effective_width(history: RunHistory, lines: dict[bytes, float]) -> float:
    """How many were really worked on at once, on average over the time that any had started."""
    if history.active_s <= 0.0:
        return 0.0
    served_s = -sum(lines.values())
    for one in history.tasks.values():
        served_s += sum(to_s - from_s for kind, from_s, to_s in stays(one, 0.0) if kind == "busy")
    return served_s / history.active_s
