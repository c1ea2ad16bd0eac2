"""Shows a run after its end: forecast and actual, where the time went, what limited it.

Nothing of its plan is imported or executed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import inf
from textwrap import wrap
from typing import Final

from msgspec import Struct
from rich.text import Text

from headway.base.codec import as_dict
from headway.base.numbers import short
from headway.base.values import CacheTokens
from headway.engine.record import Header
from headway.engine.strategy import ADAPTIVE, parse
from headway.errors import HeadwayError
from headway.journal.documents import FORECAST, RunOutline, kept
from headway.journal.reader import JournalReader
from headway.report import time_use as use
from headway.report.forecast import Foreseen
from headway.report.history import GroupHistory, RunHistory, Standing
from headway.report.tables import effective_width, in_line
from headway.report.text.credit import objective_lines, scores_of
from headway.report.text.run_view import RunView
from headway.report.text.runs import (
    STYLES,
    count_words,
    cut_json,
    title_line,
    twice_words,
    usage_json,
)
from headway.report.text.terminal import LABEL_CELLS, block, labelled
from headway.report.text.words import (
    aligned,
    bound_words,
    cost,
    count,
    duration,
    known_usd,
    limit_words,
    one_line,
    usd,
)
from headway.report.time_use import Cause, Nature

SLOW_MAX: Final = 3
GROUPS_MAX: Final = 8
CAUSES_MAX: Final = 8

SHARE_MIN: Final = 0.005
"""Causes that took less of both the run's and the tasks' time are added up in one line."""

CHAIN_MAX: Final = 4
"""Tasks of the critical path that are named; the middle of a longer one is left out."""

NAME_CELLS: Final = 28
CELLS_MIN: Final = 40

SHORT_S: Final = 0.095
"""Below this, a time is shown in thousandths of a second."""

SEQUENTIAL_MAX: Final = 1.2
"""Up to this width on average, tasks ran one after another."""

PARALLEL_MIN: Final = 0.9
"""From this share of what was submitted on, tasks really ran at the same time."""

NATURES: Final = {
    "plan": Nature("provider"),
    "each": Nature("machine", is_local=True),
    "python": Nature("function"),
}
"""What tasks are where nothing else is known of them."""

CAUSES: Final[dict[Cause, str]] = {
    "refused": "refused by the provider",
    "held": "the run was held",
    "order": "its turn in the declared order",
    "room": "room on this machine",
    "place": "one of the places allowed at once",
    "provider": "models at work",
    "function": "functions at work",
    "machine": "commands at work",
    "fan-in": "results brought together",
    "lost": "work that gave nothing",
    "commit": "results that waited for those before",
    "again": "delays after faults",
    "needs": "tasks that are needed",
    "headway": "headway itself",
}

SLOW: Final[dict[str, str]] = {
    "service": "at work",
    "start": "before its first call",
    "refused": "refused by the provider",
    "lost": "in attempts that gave nothing",
    "again": "between attempts",
    "commit": "waiting for those before it",
}
"""What most of a slow task's time was, beside waits for a limit."""

WIDTHS: Final = {
    "concurrency": "bound by how many calls the account takes at once, {share}; "
    "more agents would not help",
    "peak": "bound by the provider's own speed, {share}: more at once would be slower in all",
    "untried": "bound by a width that was still being explored, {share}: "
    "the next run begins with what this one has learned",
}
"""Where the number of calls at once bound a run: whose number that was."""

ADVICE: Final[dict[Cause, str]] = {
    "refused": "bound by refusals, {share}: the provider gives less than is asked for; "
    "`headway limits` shows what is known of it",
    "held": "held for {share}: nothing could start",
    "order": "bound by the declared order, {share}: fewer tasks in one queue or on one key help",
    "room": "bound by this machine, {share}: more cores or memory help, more agents do not",
    "place": "bound by the width that was asked for, {share}: allow more at once",
    "headway": "headway itself took {share}: starting, loading, recording; long runs do not notice",
    "lost": "{share} went into attempts that gave nothing: `headway logs` says why",
}


class RunReport(Struct, frozen=True):
    """What there is to say of a run, beside what its history has."""

    run: RunView
    foreseen: Foreseen | None
    compared: tuple[use.ForecastComparison, ...]
    """Empty unless every task is done: only then a run is what was foreseen."""
    lineage: use.Lineage
    effective: float
    spent: use.Spent
    slow: list[use.Slow]
    binding: use.Binding | None

    @property
    def history(self) -> RunHistory:
        return self.run.history

    @property
    def elapsed_s(self) -> float:
        return self.spent.wall_s

    @property
    def work_s(self) -> float:
        return sum(one.task_s for one in self.spent.shares if one.cause in use.WORK)


def report_of(reader: JournalReader) -> RunReport:
    run = RunView(reader, is_whole=True)
    header, history, now_s = run.header, run.history, run.elapsed_s
    history.close(now_s)
    tasks = history.tasks.values()
    chain = use.lineage(tasks, None if run.shape is None else run.shape.graph)
    natures = _natures(header, run.shape)
    where = use.spent(
        tasks, chain.ready_s, lambda group: natures.get(group, NATURES[header.kind]),
        history.holds, _is_bounded(history.standing, run.shape), now_s,
    )  # fmt: skip
    foreseen = kept(reader, FORECAST, Foreseen)
    is_whole = run.verdict.state == "done"
    return RunReport(
        run, foreseen,
        use.compared(foreseen, now_s, history.taken) if is_whole and foreseen is not None else (),
        chain, effective_width(history, in_line(tasks)), where, use.slowest(tasks, SLOW_MAX),
        use.binding(where, chain, history.tasks, history.groups),
    )  # fmt: skip


def _natures(header: Header, shape: RunOutline | None) -> dict[str, Nature]:
    natures: dict[str, Nature] = {}
    groups = () if shape is None else shape.graph.groups
    for group in groups:
        service: use.Service = NATURES[header.kind].service
        if shape is not None and shape.models is not None:
            service = "provider" if group.name in shape.models else "function"
        # One that brings the results of several tasks together.
        if any(need.block != 1 and groups[need.group].count != 1 for need in group.needs):
            service = "fan-in"
        if group.is_local:
            service = "machine"
        is_ordered = bool(group.queue) or group.touches is not None
        natures[group.name] = Nature(service, group.is_local, is_ordered)
    return natures


def _is_bounded(standing: Standing, shape: RunOutline | None) -> bool:
    if shape is not None and shape.ceiling < inf:
        return True
    try:
        strategy = parse(standing.strategy) if standing.strategy else ADAPTIVE
    except HeadwayError:
        return False
    return strategy.size > 0


# What the numbers of a report mean, in sentences.


def brief(time_s: float) -> str:
    """`12 ms` where tenths of a second say nothing."""
    return f"{1000.0 * time_s:.0f} ms" if 0.0 < time_s < SHORT_S else duration(time_s)


def width_words(run: RunReport) -> str:
    submitted, effective = run.history.submitted, run.effective
    words = f"submitted {submitted:,}, effectively {effective:.1f} at once"
    if submitted <= 1:
        return f"{words}: sequential, one after another"
    if effective <= SEQUENTIAL_MAX:
        return f"{words}: submitted concurrently, served like a sequence"
    share = effective / submitted
    if share >= PARALLEL_MIN:
        return f"{words}: parallel, really at the same time"
    return f"{words}: concurrent, {share:.0%} of them at the same time"


def _name(run: RunReport, key: bytes) -> str:
    return one_line(run.run.name(key), NAME_CELLS)


def _chain(run: RunReport) -> str:
    """`list > explore[api] > map`."""
    names = [_name(run, key) for key in run.lineage.chain]
    if len(names) > CHAIN_MAX:
        names = [*names[: CHAIN_MAX - 2], f"({len(names) - CHAIN_MAX + 1} more)", names[-1]]
    return " > ".join(names)


def path_words(run: RunReport) -> str:
    """The part of the work that no width could have overlapped."""
    path_s, work_s = run.lineage.critical_path_s, run.work_s
    if not work_s or not path_s:
        return "no work has ended yet"
    share = f"{brief(path_s)} of {brief(work_s)} of work"
    if not run.lineage.is_known:
        return f"the longest task, {_chain(run)}, is {share}; what needs what is not known"
    most = f"no width is more than {work_s / path_s:.1f} times as fast as one task at a time"
    return f"{_chain(run)}: {share}; {most}"


def _slow_words(run: RunReport, slow: use.Slow) -> str:
    """`explore[api] 4.1 s: 3.9 s of it at work`."""
    is_wait = slow.kind == "quota"
    reason = f"waiting for {limit_words(slow.what)}" if is_wait else SLOW[slow.kind]
    return f"{_name(run, slow.key)} {brief(slow.took_s)}, {brief(slow.kind_s)} of it {reason}"


def _refusal_words(run: RunReport) -> str:
    """`3 calls refused (3 rate: input), 2 retried, 1 stale attempt`."""
    history = run.history
    if not (history.refused or history.retries or history.stale):
        return ""
    why = ", ".join(
        f"{many:,} {one_line(word, 40)}" for word, many in sorted(history.refusals.items())
    )
    words = [f"{count(history.refused, 'call')} refused" + (f" ({why})" if why else "")]
    words.append(f"{history.retries:,} retried")
    if history.stale:
        words.append(count(history.stale, "stale attempt"))
    return ", ".join(words)


def advice(run: RunReport) -> str:
    """What bound the run."""
    bound = run.binding
    if bound is None:
        return "nothing took any time yet"
    if bound.straggler:
        return (
            f"one slow task: {_name(run, bound.straggler)} took {brief(bound.straggler_s)}, its "
            f"like {brief(bound.usual_s)}; a `timeout:` would have ended it"
        )
    share, best = f"{bound.share:.0%} of the time", _best(run)
    if bound.cause == "quota":
        if bound.what in WIDTHS:
            return WIDTHS[bound.what].format(share=share)
        limit = limit_words(bound.what)
        return f"bound by {limit}, waited for {share}{best}; more agents would not help"
    if bound.cause == "provider":
        path_s = run.lineage.critical_path_s
        if run.lineage.is_known and len(run.lineage.chain) > 1 and path_s >= 0.5 * run.elapsed_s:
            return (
                f"bound by the critical path: {_chain(run)} took {brief(path_s)} of "
                f"{brief(run.elapsed_s)}{best}; only shorter or fewer stages help"
            )
        return f"bound by the work itself, {share}{best}: shorter tasks help, more agents hardly"
    if bound.cause == "place":
        share += f" ({run.run.strategy})"
    return ADVICE.get(bound.cause, "{share}: " + CAUSES[bound.cause]).format(share=share)


def _best(run: RunReport) -> str:
    """How near to the best possible time it came, where a bound was foreseen."""
    foreseen = run.foreseen
    if foreseen is None or run.elapsed_s <= 0.0 or run.run.is_live:
        return ""
    return f", {min(1.0, foreseen.bound_s / run.elapsed_s):.0%} of the best possible speed"


def _took_words(run: RunReport) -> str:
    words, taken = brief(run.elapsed_s), run.history.taken
    if taken.calls or taken.tokens:
        words += f", {count(taken.calls, 'call')}, {short(taken.input_tokens)} tokens in"
        words += f" and {short(taken.output_tokens)} out"
    if taken.microusd or taken.unpriced:
        words += f", {cost(taken.microusd, taken.unpriced)}"
    if run.history.parts > 1:
        words += f"; resumed {count(run.history.parts - 1, 'time')}, the time between left out"
    return words


def _cache_words(cache: CacheTokens) -> str:
    """`1.2M tokens read from prompt caches, 90k written, none of them twice`."""
    twice = f"{short(cache.rewritten)} of them twice" if cache.rewritten else "none of them twice"
    written = f"{short(cache.written)} written, {twice}"
    return f"{short(cache.read)} tokens read from prompt caches, {written}"


def _foreseen_lines(run: RunReport) -> list[str]:
    one = run.foreseen
    if one is None:
        return ["nothing: this run began without a forecast"]
    lines = _columns([_compared_cells(row) for row in run.compared])
    low, mid, high = brief(one.time_s.low), brief(one.time_s.mid), brief(one.time_s.high)
    if one.unknown:
        lines = [f"at least {low}: {'; '.join(one.unknown)}", *lines]
    elif not lines:
        lines = [f"{mid} ({low} to {high}) for a run in which every task is done"]
    least = bound_words(one.bound_s, one.binding, one.fair_s, one.fair_binding, brief)
    return [*lines, f"best possible {least}"]


def _compared_cells(one: use.ForecastComparison) -> tuple[str, ...]:
    values = (one.foreseen.low, one.foreseen.mid, one.foreseen.high, one.real)
    if one.name == "time":
        low, mid, high, real = map(brief, values)
    else:
        low, mid, high, real = (
            usd(round(value)) if one.name == "cost" else short(value) for value in values
        )
    error = "" if one.error is None else f"{one.error:+.0%}"
    within = "within" if one.is_within else "outside"
    return one.name, f"{mid} ({low} to {high})", f"took {real}", error, within


def _twice_words(run: RunReport) -> str:
    lost, words = run.history.lost, list[str]()
    if lost.tokens or lost.microusd:
        money = f", {cost(lost.microusd, lost.unpriced)}" if lost.microusd or lost.unpriced else ""
        words.append(f"{short(lost.tokens)} tokens{money} paid for attempts that gave nothing")
    return "; ".join([*words, *twice_words(run.history)]) or (
        "no calls cut off; no failed attempts paid"
    )


# The report as lines and as JSON.


def facts(run: RunReport) -> dict[str, list[str]]:
    """What there is to say of a run, by its subject; of some there is nothing."""
    refused, cache = _refusal_words(run), run.history.taken.cache
    return {
        "took": [_took_words(run)],
        "foreseen": _foreseen_lines(run),
        "width": [width_words(run)],
        "path": [path_words(run)],
        "refused": [refused] if refused else [],
        "cache": [_cache_words(cache)] if cache.read or cache.written else [],
        "twice": [_twice_words(run)],
        "slowest": [_slow_words(run, slow) for slow in run.slow],
        "advice": [advice(run)],
    }


def report_lines(run: RunReport, width: int) -> Iterator[Text]:
    def folded(label: str, style: str = "") -> Iterator[Text]:
        cells = max(CELLS_MIN, width - LABEL_CELLS - 2)
        parts = (part for line in said[label] for part in wrap(line, cells, subsequent_indent="  "))
        return block(label, parts, style)

    verdict, said = run.run.verdict, facts(run)
    yield title_line(run.run.header, width)
    state = f"{verdict.state}, so far" if verdict.is_live else str(verdict.state)
    styled = (state, STYLES.get(verdict.state, ""))
    yield labelled("state", Text.assemble(styled, f": {count_words(run.run)}"))
    for label in ("took", "foreseen", "width", "path"):
        yield from folded(label)
    if run.spent.shares:
        yield Text()
        yield from _where(run)
        yield Text()
    for label in ("refused", "cache", "twice"):
        yield from folded(label)
    yield from block("groups", _group_lines(run))
    yield from folded("slowest")
    yield from block("objective", objective_lines(scores_of(run.run.reader)))
    yield Text()
    yield from folded("advice", "bold")


def cause_words(one: use.CauseShare) -> str:
    return f"waited for {limit_words(one.what)}" if one.cause == "quota" else CAUSES[one.cause]


def _where(run: RunReport) -> Iterator[Text]:
    """The table of causes: it adds up to the run's time, and to the tasks' time."""
    spent = run.spent
    large = [
        one
        for one in spent.shares
        if one.wall_s >= SHARE_MIN * spent.wall_s or one.task_s >= SHARE_MIN * spent.task_s
    ][:CAUSES_MAX]
    rows = [("where the time went", "of the run", "", "of the tasks", "")]
    for one in large:
        times = _pair(one.wall_s, spent.wall_s) + _pair(one.task_s, spent.task_s)
        rows.append((f"  {cause_words(one)}", *times))
    wall_s = spent.wall_s - sum(one.wall_s for one in large)
    task_s = spent.task_s - sum(one.task_s for one in large)
    if len(large) < len(spent.shares):
        rest = _pair(max(0.0, wall_s), spent.wall_s) + _pair(max(0.0, task_s), spent.task_s)
        rows.append(("  the rest", *rest))
    rows.append(("  in all", *_pair(spent.wall_s, 0.0), *_pair(spent.task_s, 0.0)))
    for index, line in enumerate(_columns(rows, (1, 2, 3, 4))):
        yield Text(f"  {line}", "dim" if index == 0 else "")


def _pair(part_s: float, whole_s: float) -> tuple[str, str]:
    if not part_s:
        return "", ""
    return brief(part_s), f"{part_s / whole_s:.0%}" if whole_s > 0.0 else ""


def _groups(run: RunReport) -> list[GroupHistory]:
    """In declared order, as far as something has happened to them."""
    groups, shape = run.history.groups, run.run.shape
    declared = [] if shape is None else [group.name for group in shape.graph.groups]
    return [groups[name] for name in dict.fromkeys((*declared, *groups)) if name in groups]


def _group_lines(run: RunReport) -> list[str]:
    groups = _groups(run)
    rows: list[tuple[str, ...]] = [("", "tasks", "p50", "p95", "calls", "tokens", "cost", "lost")]
    rows += [_group_cells(group) for group in groups[:GROUPS_MAX]]
    others = len(groups) - GROUPS_MAX
    more = [f"and {others:,} more: headway report --json"] if others > 0 else []
    return [*_columns(rows, range(1, 8)), *more]


def _group_cells(group: GroupHistory) -> tuple[str, ...]:
    taken = group.taken
    p50, p95 = (brief(group.p50_s), brief(group.p95_s)) if group.times_s else ("", "")
    money = usd(taken.microusd) if taken.calls or taken.microusd else ""
    if taken.unpriced:
        money = f"{money} + ?" if taken.microusd else "unknown"
    return (
        one_line(group.name, 24), f"{group.tasks:,}", p50, p95, f"{taken.calls:,}",
        short(taken.tokens), money, short(group.lost.tokens),
    )  # fmt: skip


def _columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    return ["  ".join(cells).rstrip() for cells in aligned(rows, right)]


def as_json(run: RunReport) -> dict[str, object]:
    header, verdict, history = run.run.header, run.run.verdict, run.history
    bound, taken, lost, name = run.binding, run.history.taken, run.history.lost, run.run.name
    foreseen = run.foreseen
    return {
        "run": header.run, "name": header.name, "kind": header.kind, "state": verdict.state,
        "is_live": verdict.is_live, "parts": history.parts, "elapsed_s": run.elapsed_s,
        **usage_json(taken), "known_usd": taken.microusd / 1e6,
        "unpriced_calls": taken.unpriced,
        "foreseen": None if foreseen is None else {
            "bound_s": foreseen.bound_s, "binding": foreseen.binding,
            "fair_s": foreseen.fair_s, "fair_binding": foreseen.fair_binding,
            "learned_calls": foreseen.learned_calls,
            "compared": [
                {"name": one.name, **as_dict(one.foreseen), "real": one.real,
                 "is_within": one.is_within, "error": one.error}
                for one in run.compared
            ],
        },
        "submitted": history.submitted, "effective": run.effective,
        "path": {
            "work_s": run.work_s, "critical_path_s": run.lineage.critical_path_s,
            "is_known": run.lineage.is_known, "chain": list(map(name, run.lineage.chain)),
        },
        "spent": as_dict(run.spent),
        "refused": dict(sorted(history.refusals.items())),
        "retries": history.retries, "stale": history.stale, "revised": run.run.sent_back(),
        "lost": {"tokens": round(lost.tokens), "usd": known_usd(lost.microusd, lost.unpriced)},
        "cut_off": cut_json(history),
        "groups": [
            {"group": one.name, "tasks": one.tasks, "done": one.finished,
             **usage_json(one.taken), "lost_tokens": round(one.lost.tokens),
             "lost_usd": known_usd(one.lost.microusd, one.lost.unpriced),
             "p50_s": one.p50_s, "p95_s": one.p95_s}
            for one in _groups(run)
        ],
        "slowest": [
            {"task": name(one.key), "seconds": one.took_s, "mostly": one.kind,
             "what": one.what, "mostly_s": one.kind_s}
            for one in run.slow
        ],
        "bound": None if bound is None else {
            "cause": bound.cause, "what": bound.what, "share": bound.share,
            "straggler": name(bound.straggler) if bound.straggler else None,
        },
        "advice": advice(run),
        "objective": [as_dict(one) for one in scores_of(run.run.reader)],
    }  # fmt: skip
