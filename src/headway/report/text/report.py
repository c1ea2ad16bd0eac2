"""Shows a finished run: forecast and actual, where the time went, what limited it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from headway.base.codec import as_dict
from headway.base.numbers import short
from headway.report.afterwards import ForecastComparison, GroupAfter
from headway.report.text import afterwards as phrases
from headway.report.text.afterwards import Afterwards, brief
from headway.report.text.runs import STYLES, count_words, title_line
from headway.report.text.terminal import LABEL_CELLS, block, labelled
from headway.report.text.words import cost, count, known_usd, one_line, usd

if TYPE_CHECKING:
    from rich.text import Text

GROUPS_MAX: Final = 8
"""Groups that are shown; the others are added up in one line."""

SHARE_MIN: Final = 0.005
"""Causes that took less of both the run's and the tasks' time are added up in one line."""

CAUSES_MAX: Final = 8
CELLS_MIN: Final = 40

NO_FORECAST: Final = {
    "none": "nothing: this run began without a forecast",
    "spoilt": "its forecast cannot be read: forecast.json is spoilt",
    "unreadable": "its forecast cannot be read: forecast.json cannot be opened",
}


def report_lines(run: Afterwards, width: int) -> Iterator[Text]:
    from rich.text import Text

    verdict = run.glance.verdict
    yield title_line(run.glance.header, width)
    state = f"{verdict.state}, so far" if verdict.is_live else str(verdict.state)
    styled = (state, STYLES.get(verdict.state, ""))
    yield labelled("state", Text.assemble(styled, f": {count_words(run.glance)}"))
    yield from _folded("took", [_took_words(run)], width)
    yield from _folded("foreseen", _foreseen_lines(run), width)
    yield from _folded("width", [phrases.width_words(run)], width)
    yield from _folded("serial", phrases.serial_words(run), width)
    if run.spent.shares:
        yield Text()
        yield from _where(run)
        yield Text()
    yield from _folded("headway", [_overhead_words(run)], width)
    yield from _folded("refused", [phrases.refusal_words(run)], width)
    yield from _folded("twice", [_twice_words(run)], width)
    yield from block("groups", _group_lines(run))
    yield from _folded("slowest", [phrases.slow_words(run, slow) for slow in run.slow], width)
    yield from _folded("spread", phrases.steady_words(run), width)
    yield Text()
    yield from _folded("advice", [phrases.advice(run)], width, "bold")


def _took_words(run: Afterwards) -> str:
    words = brief(run.elapsed_s)
    if run.taken.calls or run.taken.tokens:
        words += f", {count(run.taken.calls, 'call')}, {short(run.taken.input_tokens)} tokens in"
        words += f" and {short(run.taken.output_tokens)} out"
    if run.taken.microusd or run.taken.unpriced:
        words += f", {cost(run.taken.microusd, run.taken.unpriced)}"
    if run.numbers.parts > 1:
        words += f"; resumed {count(run.numbers.parts - 1, 'time')}, the time between left out"
    return words


def _foreseen_lines(run: Afterwards) -> list[str]:
    if run.forecast.foreseen is None:
        return [NO_FORECAST[run.forecast.word]]
    rows = [_compared_cells(one) for one in run.compared]
    lines = _columns(rows)
    foreseen = run.forecast.foreseen
    lines.append(f"best possible {brief(foreseen.bound_s)}, bound by {foreseen.binding}")
    if run.glance.verdict.is_live:
        lines.append("the run goes on: what it took so far")
    return lines


def _compared_cells(one: ForecastComparison) -> tuple[str, ...]:
    low, mid, high, real = (
        _amount(one.name, value)
        for value in (one.foreseen.low, one.foreseen.mid, one.foreseen.high, one.real)
    )
    error = "" if one.error is None else f"{one.error:+.0%}"
    within = "within" if one.is_within else "outside"
    return one.name, f"{mid} ({low} to {high})", f"took {real}", error, within


def _amount(name: str, value: float) -> str:
    if name == "time":
        return brief(value)
    return usd(round(value)) if name == "cost" else short(value)


def _where(run: Afterwards) -> Iterator[Text]:
    """The table of causes: it adds up to the run's time, and to the tasks' time."""
    from rich.text import Text

    spent = run.spent
    large = [
        one
        for one in spent.shares
        if one.wall_s >= SHARE_MIN * spent.wall_s or one.task_s >= SHARE_MIN * spent.task_s
    ][:CAUSES_MAX]
    rows = [("where the time went", "of the run", "", "of the tasks", "")]
    for one in large:
        times = _pair(one.wall_s, spent.wall_s) + _pair(one.task_s, spent.task_s)
        rows.append((f"  {phrases.cause_words(one.cause, one.what)}", *times))
    wall_s = spent.wall_s - sum(one.wall_s for one in large)
    task_s = spent.task_s - sum(one.task_s for one in large)
    if len(large) < len(spent.shares):
        rest = _pair(max(0.0, wall_s), spent.wall_s) + _pair(max(0.0, task_s), spent.task_s)
        rows.append(("  the rest", *rest))
    rows.append(("  in all", *_pair(spent.wall_s, 0.0), *_pair(spent.task_s, 0.0)))
    for index, line in enumerate(_columns(rows, right=(1, 2, 3, 4))):
        yield Text(f"  {line}", "dim" if index == 0 else "")


def _pair(part_s: float, whole_s: float) -> tuple[str, str]:
    if not part_s:
        return "", ""
    return brief(part_s), f"{part_s / whole_s:.0%}" if whole_s > 0.0 else ""


def _overhead_words(run: Afterwards) -> str:
    numbers = run.numbers
    if not numbers.memory_bytes:
        is_live = run.glance.verdict.is_live
        return "told when the run ends" if is_live else "what it took itself was not recorded"
    share = numbers.cpu_s / run.elapsed_s if run.elapsed_s else 0.0
    words = f"{numbers.cpu_s:.2f} s of CPU, {share:.1%} of one processor"
    words += f"; at most {numbers.memory_bytes / 1e6:.0f} MB"
    extra = [] if numbers.is_measured else ["without the parts that were cut off"]
    if run.glance.header.kind == "python":
        extra.append("with the functions that ran in its process")
    if run.is_simulated:
        extra.append("with the simulated provider")
    return f"{words} ({', '.join(extra)})" if extra else words


def _twice_words(run: Afterwards) -> str:
    lost, words = run.lost, []
    if lost.tokens or lost.microusd:
        money = f", {cost(lost.microusd, lost.unpriced)}" if lost.microusd or lost.unpriced else ""
        words.append(f"{short(lost.tokens)} tokens{money} paid for attempts that gave nothing")
    if cut := run.total("cut_calls"):
        tokens = run.total("cut_tokens")
        most = f"up to {short(tokens)} tokens" if tokens else "their tokens"
        words.append(f"{count(cut, 'call')} cut off, {most} may be billed twice")
    return "; ".join(words) or "no calls cut off; no failed attempts paid"


def _group_lines(run: Afterwards) -> list[str]:
    groups = list(run.groups.values())
    rows: list[tuple[str, ...]] = [
        ("", "tasks", "p50", "p95", "p95/p50", "calls", "tokens", "cost", "lost")
    ]
    rows += [_group_cells(group) for group in groups[:GROUPS_MAX]]
    if len(groups) > GROUPS_MAX:
        others = GroupAfter(f"and {len(groups) - GROUPS_MAX:,} more")
        for group in groups[GROUPS_MAX:]:
            others.tasks += group.tasks
            others.taken.add(group.taken)
            others.lost.add(group.lost)
        rows.append(_group_cells(others))
    return _columns(rows, right=range(1, 9))


def _group_cells(group: GroupAfter) -> tuple[str, ...]:
    taken, p50, p95 = group.taken, "", ""
    if group.times_s:
        p50, p95 = brief(group.p50_s), brief(group.p95_s)
    money = usd(taken.microusd)
    if taken.unpriced:
        money = f"{money} + ?" if taken.microusd else "unknown"
    return (
        one_line(group.name, 24), f"{group.tasks:,}", p50, p95,
        f"{group.p95_s / group.p50_s:.1f}" if group.p50_s else "",
        f"{taken.calls:,}", short(taken.tokens), money, short(group.lost.tokens),
    )  # fmt: skip


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    from rich.cells import cell_len, set_cell_size

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            " " * (widths[n] - cell_len(cell)) + cell if n in right
            else set_cell_size(cell, widths[n])
            for n, cell in enumerate(row)
        ]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    return lines


def _folded(label: str, lines: Sequence[str], width: int, style: str = "") -> Iterator[Text]:
    cells = max(CELLS_MIN, width - LABEL_CELLS - 2)
    folded = (part for line in lines for part in wrap(line, cells, subsequent_indent="  "))
    return block(label, folded, style)


def as_json(run: Afterwards) -> dict[str, object]:
    header, verdict, taken, lost = run.glance.header, run.glance.verdict, run.taken, run.lost
    numbers, serial, bound = run.numbers, run.serial, run.binding
    cut_calls, cut_tokens = run.total("cut_calls"), run.total("cut_tokens")
    return {
        "run": header.run, "name": header.name, "kind": header.kind, "state": verdict.state,
        "is_live": verdict.is_live, "parts": numbers.parts, "elapsed_s": run.elapsed_s,
        "calls": taken.calls, "input_tokens": round(taken.input_tokens),
        "output_tokens": round(taken.output_tokens),
        "usd": known_usd(taken.microusd, taken.unpriced), "known_usd": taken.microusd / 1e6,
        "unpriced_calls": taken.unpriced,
        "foreseen": _foreseen_json(run),
        "submitted": run.submitted,
        "effective": run.effective,
        "serial": {
            "work_s": serial.work_s, "critical_path_s": serial.critical_path_s,
            "share": serial.share, "speed_up": serial.speed_up,
            "speed_up_max": serial.speed_up_max, "doubled_s": serial.doubled_s,
            "is_known": run.lineage.is_known,
            "chain": [run.names.get(key, "") for key in run.lineage.chain],
        },
        "spent": {
            "wall_s": run.spent.wall_s, "task_s": run.spent.task_s,
            "shares": [
                {"cause": one.cause, "what": one.what, "wall_s": one.wall_s, "task_s": one.task_s}
                for one in run.spent.shares
            ],
        },
        "headway": {
            "cpu_s": numbers.cpu_s, "memory_bytes": numbers.memory_bytes,
            "is_measured": numbers.is_measured and numbers.memory_bytes > 0,
        },
        "refused": dict(sorted(numbers.refusals.items())),
        "retries": run.total("retries"),
        "stale": run.total("stale"),
        "lost": {"tokens": round(lost.tokens), "usd": known_usd(lost.microusd, lost.unpriced)},
        "cut_off": {"calls": cut_calls,
                    "tokens": None if cut_calls and not cut_tokens else cut_tokens},
        "groups": [_group_json(group) for group in run.groups.values()],
        "slowest": [
            {"task": run.names.get(one.key, ""), "seconds": one.took_s, "mostly": one.kind,
             "what": one.what, "mostly_s": one.kind_s}
            for one in run.slow
        ],
        "earlier_s": list(run.earlier_s),
        "bound": None if bound is None else {
            "cause": bound.cause, "what": bound.what, "share": bound.share,
            "straggler": run.names.get(bound.straggler, "") or None,
        },
        "advice": phrases.advice(run),
    }  # fmt: skip


def _foreseen_json(run: Afterwards) -> dict[str, object] | None:
    foreseen = run.forecast.foreseen
    if foreseen is None:
        return None
    return {
        "bound_s": foreseen.bound_s, "binding": foreseen.binding,
        "learned_calls": foreseen.learned_calls,
        "compared": [
            {"name": one.name, **as_dict(one.foreseen), "real": one.real,
             "is_within": one.is_within, "error": one.error}
            for one in run.compared
        ],
    }  # fmt: skip


def _group_json(group: GroupAfter) -> dict[str, object]:
    taken, lost = group.taken, group.lost
    return {
        "group": group.name, "tasks": group.tasks, "finished": group.finished,
        "calls": taken.calls, "input_tokens": round(taken.input_tokens),
        "output_tokens": round(taken.output_tokens),
        "usd": known_usd(taken.microusd, taken.unpriced), "lost_tokens": round(lost.tokens),
        "lost_usd": known_usd(lost.microusd, lost.unpriced),
        "p50_s": group.p50_s, "p95_s": group.p95_s,
    }  # fmt: skip
