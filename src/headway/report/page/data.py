"""What the page shows of a run, as JSON.

Laws:
- Every number is of the run's history or of its report; the page adds nothing up.
- The words of a fact are those of the terminal.
- A task is a row of its own, at one place for as long as the page is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

from headway.base.values import Budget
from headway.journal.documents import CAST, kept, kept_findings
from headway.report.history import Kind, TaskHistory, usage_by
from headway.report.text.report import (
    RunReport,
    as_json,
    brief,
    cause_words,
    facts,
    report_of,
)
from headway.report.text.run_view import RunView
from headway.report.text.runs import (
    count_words,
    failure_words,
    state_words,
    usage_json,
    used_words,
)
from headway.report.text.stage import rest_words
from headway.report.text.words import bound_words, clock, limit_words

if TYPE_CHECKING:
    from headway.journal.reader import JournalReader
    from headway.pacing.view import AccountView
    from headway.report.history import AttemptUsage

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""A piece is the number of its kind, plus eight times that of what it waited for."""

HAZARDS_MAX: Final = 50
CAUSES_MAX: Final = 5
"""Of failures, each with an example."""


class TaskRows:
    """The tasks of a run as rows: those that have changed since it was last asked."""

    def __init__(self, run: RunView) -> None:
        self.run = run
        self.whats: list[str] = [""]
        self.names: dict[bytes, tuple[int, str]] = {}
        self._row = 0
        self._groups: dict[str, int] = {}
        """Of names that no shape has, by a number after those that it has."""
        self.what: dict[str, int] = {"": 0}

    @property
    def groups(self) -> dict[str, int]:
        for one in self.run.groups():
            self._groups.setdefault(one.name, len(self._groups))
        return self._groups

    def changed(self, keys: Iterable[bytes] | None = None) -> list[tuple[int, list[object]]]:
        """Place and row of each task; None is of all."""
        for row, key, name in self.run.reader.names(self._row):
            self._row, self.names[key] = row, (len(self.names), name)
        tasks, groups = self.run.history.tasks, self.groups
        wanted = self.names if keys is None else keys
        return [
            (self.names[key][0], self._row_of(tasks[key], self.names[key][1], groups))
            for key in wanted
            if key in tasks and key in self.names
        ]

    def _row_of(self, task: TaskHistory, name: str, groups: dict[str, int]) -> list[object]:
        """As `COLUMNS` names it."""
        taken, (kind, since_s) = task.taken, task.where
        ended_s = task.ended_s
        pieces: list[int] = []
        at_ms = 0
        for piece in task.pieces:
            to_ms = round(1000.0 * piece.to_s)
            pieces += (self._code(piece.kind, piece.what), to_ms - at_ms)
            at_ms = to_ms
        is_open = self.run.is_live and ended_s is None
        # A run whose shape is not kept is one group.
        group = groups.setdefault(task.group.name, len(groups)) if self.run.shape else 0
        return [
            name, group, self.run.word_of(task),
            task.attempt, taken.calls, round(taken.input_tokens), round(taken.output_tokens),
            taken.microusd, taken.unpriced, round(task.lost.tokens), round(task.first_s, 3),
            None if ended_s is None else round(ended_s - task.first_s, 3),
            round(task.waited_s, 3), pieces,
            [KINDS.index(kind), round(1000.0 * since_s)] if is_open else 0,
            round(1000.0 * task.quiet_s),
        ]  # fmt: skip

    def _code(self, kind: Kind, what: str) -> int:
        shown = what if kind == "quota" else ""
        if shown not in self.what:
            self.what[shown] = len(self.whats)
            self.whats.append(limit_words(shown))
        return KINDS.index(kind) + 8 * self.what[shown]


COLUMNS: Final = (
    "name", "group", "state", "attempts", "calls", "input_tokens", "output_tokens", "microusd",
    "unpriced", "lost_tokens", "first_s", "took_s", "waited_s", "pieces", "open", "quiet_ms",
)  # fmt: skip
"""Of a row."""


def head(run: RunView, lanes: Sequence[AccountView] = ()) -> dict[str, Any]:
    """What changes all the time and is quickly known."""
    history, verdict = run.history, run.verdict
    budget = run.budget() or Budget()
    return {
        "id": run.header.run, "name": run.header.name, "kind": run.header.kind,
        "folder": run.header.folder, "created_s": run.header.created_s,
        "created": clock(run.header.created_s, run.now_s),
        "state": verdict.state, "state_words": state_words(run), "is_live": verdict.is_live,
        "resumable": verdict.is_resumable, "strategy": run.strategy,
        "elapsed_s": run.elapsed_s, "elapsed": brief(run.elapsed_s),
        "parts": history.parts, "total": run.total, "words": dict(run.words()),
        "count_words": count_words(run), "used_words": used_words(run),
        "taken": usage_json(history.taken), "microusd": history.taken.microusd,
        "refused": history.refused, "retries": history.retries, "stale": history.stale,
        "lost_tokens": round(history.lost.tokens), "lost_microusd": history.lost.microusd,
        "cut_calls": history.cut_calls, "cut_tokens": history.cut_tokens,
        "budget": {"tokens": budget.tokens, "microusd": budget.microusd},
        "groups": list(_groups(run)),
        "holds": [[from_s, min(to_s, run.elapsed_s)] for from_s, to_s in history.holds],
        "rest": list(rest_words(run.time_left(lanes))) if verdict.is_live else [],
    }  # fmt: skip


def _groups(run: RunView) -> Iterator[dict[str, Any]]:
    graph = None if run.shape is None else run.shape.graph
    cast = kept(run.reader, CAST, dict[str, Any]) or {}
    parts, counts = cast.get("parts") or {}, run.groups()
    places = {one.name: place for place, one in enumerate(counts)}
    for one in counts:
        index = None if graph is None else graph.index.get(one.name)
        needs = [] if graph is None or index is None else graph.needs[index]
        seen = run.history.groups.get(one.name)
        shown: dict[str, Any] = {
            "name": one.name, "total": one.total, "words": dict(one.words), "ended": one.ended,
            "waits_for": one.waits_for, "model": (parts.get(one.name) or ("",))[0],
            "needs": [places[graph.groups[other].name] for other in needs] if graph else [],
        }  # fmt: skip
        if seen is not None or graph is None:
            shown |= _usage(run.history.taken if seen is None else seen.taken)
        if seen is not None:
            shown |= {
                "lost_tokens": round(seen.lost.tokens),
                "p50": brief(seen.p50_s) if seen.times_s else "",
                "p95": brief(seen.p95_s) if seen.times_s else "",
            }
        yield shown


def _usage(taken: AttemptUsage) -> dict[str, Any]:
    return {**usage_json(taken), "microusd": taken.microusd, "unpriced": taken.unpriced}


def limits_since(run: RunView, seen: dict[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Looks at limits that are not in `seen`, which counts them, yet."""
    found = []
    for key, points in run.history.limits.items():
        new = points[seen.get(key, 0) :]
        if new:
            account, name = key
            words = limit_words(name) if not name.startswith("window ") else f"{name[7:]} window"
            found.append(
                {"account": account, "name": name, "words": words,
                 "points": [[round(one, 4) for one in point] for point in new]}
            )  # fmt: skip
            seen[key] = len(points)
    return found


def report_json(run: RunReport) -> dict[str, Any]:
    """What is known of a run only by looking at all of it."""
    view, foreseen, names = run.run, run.foreseen, run.run.name
    cast = kept(view.reader, CAST, dict[str, Any]) or {}
    models = {name: part[0] for name, part in (cast.get("parts") or {}).items() if part[0]}
    by_model = usage_by(view.history.groups.values(), models)
    line = None
    if foreseen is not None:
        time_s = foreseen.time_s
        line = {
            "bound_s": foreseen.bound_s, "low_s": time_s.low, "mid_s": time_s.mid,
            "high_s": time_s.high, "is_known": not foreseen.unknown,
            "words": bound_words(foreseen.bound_s, foreseen.binding, foreseen.fair_s,
                                 foreseen.fair_binding, brief),
            "bound": brief(foreseen.bound_s), "mid": brief(time_s.mid),
        }  # fmt: skip
    return {
        "facts": facts(run), "failures": list(failure_words(view, CAUSES_MAX)),
        "spent": [
            [cause_words(one), brief(one.wall_s), one.wall_s, brief(one.task_s), one.task_s]
            for one in run.spent.shares
        ],
        "wall_s": run.spent.wall_s, "task_s": run.spent.task_s,
        "effective": run.effective, "submitted": view.history.submitted,
        "chain": [names(key) for key in run.lineage.chain],
        "chain_is_known": run.lineage.is_known,
        "forecast": line,
        "models": [
            {"model": model or "no model, or one that is not known", **_usage(taken)}
            for model, taken in by_model.items()
            if taken.calls or taken.microusd
        ],
        "findings": [
            {"task": one.task, "words": one.words, "fix": one.fix, "kind": one.kind}
            for one in kept_findings(view.reader)[:HAZARDS_MAX]
        ],
        "report": as_json(run),
    }  # fmt: skip


def run_data(reader: JournalReader) -> tuple[dict[str, Any], RunReport, TaskRows]:
    """All of a run, without the texts of its tasks."""
    report = report_of(reader)
    rows = TaskRows(report.run)
    tasks = [row for _, row in rows.changed()]
    shown = {
        "head": head(report.run), "report": report_json(report), "tasks": tasks,
        "whats": rows.whats, "limits": limits_since(report.run, {}),
        "refused": [[round(at_s, 3), why] for at_s, why in report.history.refused_at],
        "texts": {},
    }  # fmt: skip
    return shown, report, rows
