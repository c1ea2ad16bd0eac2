"""Shows a run after its end: forecast and actual, where the time went, what limited it.

Nothing of its plan is imported or executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from textwrap import wrap
from typing import Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from headway.base.codec import as_dict
from headway.base.numbers import short
from headway.base.values import CacheTokens
from headway.engine.record import Header
from headway.engine.strategy import ADAPTIVE, parse
from headway.errors import HeadwayError
from headway.journal.documents import RunOutline
from headway.journal.folder import RunPlace, list_runs
from headway.journal.reader import JournalReader
from headway.pacing.admission import BUDGETED, FOLLOWS
from headway.report import time_use as use
from headway.report.history import (
    GroupHistory,
    RunHistory,
    Standing,
    effective_width,
    in_line,
    standing_of,
    verdict,
)
from headway.report.text.accounts import PERIODS
from headway.report.text.run_view import RunView, state_folder
from headway.report.text.runs import (
    STYLES,
    count_words,
    cut_json,
    title_line,
    twice_words,
    usage_json,
)
from headway.report.text.table import bound_words
from headway.report.text.terminal import LABEL_CELLS, block, labelled
from headway.report.text.words import cost, count, duration, known_usd, one_line, usd
from headway.report.time_use import Cause, Nature
from headway.run.forecasts import KeptForecast, read_forecast

SLOW_MAX: Final = 3

NATURES: Final = {
    "plan": Nature("provider"),
    "each": Nature("machine", is_local=True),
    "python": Nature("function"),
}
"""What tasks are where nothing else is known of them."""

EARLIER_MAX: Final = 10
LOOKED_MAX: Final = 200
"""Earlier runs of the same plan that are compared, and runs that are looked at to find them."""


class Afterwards(Struct, frozen=True):
    """What there is to say of a run, beside what its history has."""

    run: RunView
    names: Mapping[bytes, str]
    forecast: KeptForecast
    compared: tuple[use.ForecastComparison, ...]
    """Empty while the run goes on, or if some of it was left: only a whole run is comparable."""
    serial: use.SerialShare
    lineage: use.Lineage
    effective: float
    spent: use.Spent
    slow: list[use.Slow]
    earlier_s: tuple[float, ...]
    """How long earlier runs of the same plan took, the newest first."""
    binding: use.Binding | None

    @property
    def history(self) -> RunHistory:
        return self.run.history

    @property
    def elapsed_s(self) -> float:
        return self.spent.wall_s


def afterwards(reader: JournalReader) -> Afterwards:
    run = RunView(reader, is_whole=True)
    header, history, now_s = run.header, run.history, run.elapsed_s
    history.close(now_s, run.is_live)
    tasks = history.tasks.values()
    chain = use.lineage(tasks, None if run.shape is None else run.shape.graph)
    natures = _natures(header, run.shape)
    where = use.spent(
        tasks, chain.ready_s, lambda group: natures.get(group, NATURES[header.kind]),
        history.holds, _is_bounded(history.standing, run.shape), now_s,
    )  # fmt: skip
    forecast = read_forecast(reader)
    is_whole = run.verdict.state in ("done", "failed") and forecast.foreseen is not None
    work_s = sum(one.task_s for one in where.shares if one.cause in use.WORK)
    return Afterwards(
        run, {row.key: row.name for row in reader.rows()}, forecast,
        use.compared(forecast.foreseen, now_s, history.taken)
        if is_whole and forecast.foreseen is not None else (),
        use.SerialShare(work_s, chain.critical_path_s, now_s), chain,
        effective_width(history, in_line(tasks)), where, use.slowest(tasks, SLOW_MAX),
        _earlier(header), use.binding(where, chain, history.tasks, history.groups),
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


def _earlier(header: Header) -> tuple[float, ...]:
    mine = _plan_of(header)
    found: list[float] = []
    for place in list_runs(state_folder(), LOOKED_MAX):
        took_s = _took(place, mine) if place.id < header.run else None
        if took_s is not None:
            found.append(took_s)
        if len(found) == EARLIER_MAX:
            break
    return tuple(found)


def _took(place: RunPlace, plan: tuple[str, ...]) -> float | None:
    try:
        with JournalReader(place.folder) as reader:
            if _plan_of(reader.header) != plan:
                return None
            standing = standing_of(one.event for one in reader.events(key=b""))
    except HeadwayError:
        return None  # `doctor` reports a journal that cannot be read.
    finished = standing.finished
    if finished is None or standing.parts > 1 or verdict(standing, False, 0.0).state != "done":
        return None
    return finished.at_s - standing.began_s


def _plan_of(header: Header) -> tuple[str, ...]:
    """What two runs of one plan have in common."""
    if header.kind != "plan":
        return header.kind, header.name, header.folder
    path = str(_source(header).get("path", header.name))
    return header.kind, os.path.abspath(os.path.join(header.folder, path))


def _source(header: Header) -> dict[str, object]:
    """What is kept of a plan and its options; empty of any other run."""
    try:
        source = json.loads(header.source) if header.kind == "plan" else {}
    except ValueError:
        return {}
    return source if isinstance(source, dict) else {}


# What the numbers of a report mean, in sentences: limits, causes, widths, and what bound it.

NAME_CELLS: Final = 28
SHORT_S: Final = 0.095
"""Below this, thousandths of a second are told."""

CHAIN_MAX: Final = 4
"""Tasks of the critical path that are named; the middle of a longer one is left out."""

STEADY: Final = 0.15
"""Runs of a plan whose times vary less than this, as a share of their mean, are predictable."""

ALIKE: Final = 2.0
"""A group whose slow tasks take less than this many times as long as its middle one is even."""

SEQUENTIAL_MAX: Final = 1.2
"""Up to so many at once on average, tasks ran one after another."""

PARALLEL_MIN: Final = 0.9
"""From this share of what was submitted on, tasks really ran at the same time."""

LIMITS: Final = {
    "": "a permit",
    "concurrency": "calls at once",
    "untried": "an untried width",
    "peak": "the provider's best width",
    "burst": "a burst, which was refused",
    "hidden limit": "a limit that the provider does not name",
    "account": "the account, which was held",
    "its turn": "its turn",
    FOLLOWS: "the first answer with the same cached beginning",
    BUDGETED: "the budget",
}
RESOURCES: Final = {"input": "input tokens", "output": "output tokens", "usage": "usage window of"}

CAUSES: Final[dict[Cause, str]] = {
    "refused": "turned away by the provider",
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


def brief(time_s: float) -> str:
    """`12 ms` where tenths of a second say nothing."""
    return f"{1000.0 * time_s:.0f} ms" if 0.0 < time_s < SHORT_S else duration(time_s)


def limit_words(name: str) -> str:
    """`input tokens a minute` of `input/60s`."""
    if name in LIMITS:
        return LIMITS[name]
    resource, _, period = name.partition("/")
    try:
        period_s = float(period.removesuffix("s"))
    except ValueError:
        return one_line(name, NAME_CELLS)
    if resource == "usage":
        return f"a usage window of {brief(period_s)}"
    return f"{RESOURCES.get(resource, resource)} {PERIODS.get(period_s, f'in {period}')}"


def width_words(run: Afterwards) -> str:
    submitted, effective = run.history.submitted, run.effective
    said = f"submitted {submitted:,}, effectively {effective:.1f} at once"
    if submitted <= 1:
        return f"{said}: sequential, one after another"
    if effective <= SEQUENTIAL_MAX:
        return f"{said}: submitted concurrently, served like a sequence"
    share = effective / submitted
    if share >= PARALLEL_MIN:
        return f"{said}: parallel, really at the same time"
    return f"{said}: concurrent, {share:.0%} of them at the same time"


def chain_words(run: Afterwards) -> str:
    """`list > explore[api] > map`."""
    names = [one_line(run.names.get(key, "?"), NAME_CELLS) for key in run.lineage.chain]
    if len(names) > CHAIN_MAX:
        names = [*names[: CHAIN_MAX - 2], f"({len(names) - CHAIN_MAX + 1} more)", names[-1]]
    return " > ".join(names)


def serial_words(run: Afterwards) -> list[str]:
    """What no width could have overlapped, and what Amdahl's law says of more of it."""
    serial = run.serial
    if not serial.work_s:
        return ["nothing was worked on to an end yet"]
    path = "longest task" if not run.lineage.is_known else "critical path"
    speed = f"{serial.speed_up:.1f} times as fast as one task after another"
    if serial.speed_up < 1.0:
        speed = "slower than its work alone, one after another: it mostly waited"
    lines = [
        f"{serial.share:.0%} of {brief(serial.work_s)} of work is on the {path}, "
        f"{brief(serial.critical_path_s)}: {chain_words(run)}",
        f"{speed}; with any width {serial.speed_up_max:.1f} times at most",
    ]
    doubled = f"Amdahl's law: twice the width would take {brief(serial.doubled_s)} at best"
    binds = run.binding is not None and run.binding.cause in ("quota", "refused")
    lines.append(f"{doubled}, if the account allowed it" if binds else doubled)
    if not run.lineage.is_known:
        lines.append("who needs whom is not kept for this run: the longest task stands for it")
    return lines


def slow_words(run: Afterwards, slow: use.Slow) -> str:
    """`explore[api] 4.1 s: 3.9 s of it at work`."""
    reasons = {
        "service": "at work",
        "start": "before its first call",
        "quota": f"waiting for {limit_words(slow.what)}",
        "refused": "turned away",
        "lost": "in attempts that gave nothing",
        "again": "between attempts",
        "commit": "waiting for those before it",
    }
    name = one_line(run.names.get(slow.key, "?"), NAME_CELLS)
    return f"{name} {brief(slow.took_s)}, {brief(slow.kind_s)} of it {reasons[slow.kind]}"


def steady_words(run: Afterwards) -> list[str]:
    """How far task times spread, and how far runs of the same plan do."""
    groups = run.history.groups.values()
    several = [one for one in groups if len(one.times_s) > 1 and one.p50_s > 0.0]
    lines = []
    if several:
        group = max(several, key=lambda one: one.p95_s - one.p50_s)
        word = "even" if group.p95_s < ALIKE * group.p50_s else "uneven"
        lines.append(
            f"{word} tasks: {one_line(group.name, NAME_CELLS)} takes {brief(group.p50_s)} in "
            f"the middle and {brief(group.p95_s)} at p95, {group.p95_s / group.p50_s:.1f} "
            "times as long"
        )
    runs = (run.elapsed_s, *run.earlier_s)
    vary = use.variation(runs) if not run.run.is_live else None
    if vary is not None:
        word = "predictable" if vary < STEADY else "not predictable"
        lines.append(
            f"{word}: the last {len(runs)} runs of this plan vary by {vary:.0%} "
            f"({brief(min(runs))} to {brief(max(runs))})"
        )
    else:
        lines.append("no earlier run of this plan to compare with")
    return lines


def refusal_words(run: Afterwards) -> str:
    """`3 calls refused (rate: input), 2 attempts again, 1 stale`."""
    history = run.history
    why = ", ".join(
        f"{many:,} {one_line(word, 40)}" for word, many in sorted(history.refusals.items())
    )
    words = [f"{count(history.refused, 'call')} refused" + (f" ({why})" if why else "")]
    words.append(f"{history.retries:,} retried")
    if history.stale:
        words.append(count(history.stale, "stale attempt"))
    return ", ".join(words)


def advice(run: Afterwards) -> str:
    bound = run.binding
    if bound is None:
        return "nothing took any time yet"
    if bound.straggler:
        name = one_line(run.names.get(bound.straggler, "?"), NAME_CELLS)
        return (
            f"one slow task: {name} took {brief(bound.straggler_s)}, its like "
            f"{brief(bound.usual_s)}; a `timeout:` would have ended it"
        )
    share = f"{bound.share:.0%} of the time"
    if bound.cause == "quota":
        if bound.what in WIDTHS:
            return WIDTHS[bound.what].format(share=share, best=_best(run))
        if not bound.what:
            return (
                f"bound by permits, {share}{_best(run)}; this journal does not say for which limit"
            )
        limit = limit_words(bound.what)
        return f"bound by {limit}, waited for {share}{_best(run)}; more agents would not help"
    if bound.cause == "provider":
        return _path(run, share, _best(run))
    if bound.cause == "place":
        share += f" ({run.history.standing.strategy})"
    return ADVICE.get(bound.cause, "{share}: " + CAUSES[bound.cause]).format(share=share)


def _path(run: Afterwards, share: str, best: str) -> str:
    serial = run.serial
    path_share = serial.critical_path_s / serial.elapsed_s if serial.elapsed_s else 0.0
    if run.lineage.is_known and len(run.lineage.chain) > 1 and path_share >= 0.5:
        return (
            f"bound by the critical path: {chain_words(run)} took "
            f"{brief(serial.critical_path_s)} of {brief(serial.elapsed_s)}{best}; "
            "only shorter or fewer stages help"
        )
    return f"bound by the work itself, {share}{best}: shorter tasks help, more agents hardly"


def _best(run: Afterwards) -> str:
    """How near to the best possible time it came, where a bound was foreseen."""
    foreseen = run.forecast.foreseen
    if foreseen is None or run.elapsed_s <= 0.0 or run.run.is_live:
        return ""
    return f", {min(1.0, foreseen.bound_s / run.elapsed_s):.0%} of the best possible speed"


# The report as lines and as JSON.

GROUPS_MAX: Final = 8

SHARE_MIN: Final = 0.005
"""Causes that took less of both the run's and the tasks' time are added up in one line."""

CAUSES_MAX: Final = 8
CELLS_MIN: Final = 40

NO_FORECAST: Final = {
    "none": "nothing: this run began without a forecast",
    "spoilt": "its forecast cannot be read: it is spoilt",
}


def report_lines(run: Afterwards, width: int) -> Iterator[Text]:
    verdict = run.run.verdict
    yield title_line(run.run.header, width)
    state = f"{verdict.state}, so far" if verdict.is_live else str(verdict.state)
    styled = (state, STYLES.get(verdict.state, ""))
    yield labelled("state", Text.assemble(styled, f": {count_words(run.run)}"))
    yield from _folded("took", [_took_words(run)], width)
    yield from _folded("foreseen", _foreseen_lines(run), width)
    yield from _folded("width", [width_words(run)], width)
    yield from _folded("serial", serial_words(run), width)
    if run.spent.shares:
        yield Text()
        yield from _where(run)
        yield Text()
    yield from _folded("headway", [_overhead_words(run)], width)
    yield from _folded("refused", [refusal_words(run)], width)
    if run.history.taken.cache.read or run.history.taken.cache.written:
        yield from _folded("cache", [cache_words(run.history.taken.cache)], width)
    yield from _folded("twice", [_twice_words(run)], width)
    yield from block("groups", _group_lines(run))
    yield from _folded("slowest", [slow_words(run, slow) for slow in run.slow], width)
    yield from _folded("spread", steady_words(run), width)
    yield Text()
    yield from _folded("advice", [advice(run)], width, "bold")


def _took_words(run: Afterwards) -> str:
    words, taken = brief(run.elapsed_s), run.history.taken
    if taken.calls or taken.tokens:
        words += f", {count(taken.calls, 'call')}, {short(taken.input_tokens)} tokens in"
        words += f" and {short(taken.output_tokens)} out"
    if taken.microusd or taken.unpriced:
        words += f", {cost(taken.microusd, taken.unpriced)}"
    if run.history.parts > 1:
        words += f"; resumed {count(run.history.parts - 1, 'time')}, the time between left out"
    return words


def cache_words(cache: CacheTokens) -> str:
    """`1.2M tokens read from prompt caches, 90k written, none of them twice`."""
    twice = f"{short(cache.rewritten)} of them twice" if cache.rewritten else "none of them twice"
    written = f"{short(cache.written)} written, {twice}"
    return f"{short(cache.read)} tokens read from prompt caches, {written}"


def _foreseen_lines(run: Afterwards) -> list[str]:
    if run.forecast.foreseen is None:
        return [NO_FORECAST[run.forecast.word]]
    one = run.forecast.foreseen
    lines = _columns([_compared_cells(row) for row in run.compared])
    if not lines:
        low, mid, high = brief(one.time_s.low), brief(one.time_s.mid), brief(one.time_s.high)
        lines = [f"{mid} ({low} to {high}) for the whole run, of which some is left"]
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


def _where(run: Afterwards) -> Iterator[Text]:
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
        is_limit = one.cause == "quota"
        cause = f"waited for {limit_words(one.what)}" if is_limit else CAUSES[one.cause]
        rows.append((f"  {cause}", *times))
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
    numbers = run.history
    if not numbers.memory_bytes:
        is_live = run.run.is_live
        return "told when the run ends" if is_live else "what it took itself was not recorded"
    share = numbers.cpu_s / run.elapsed_s if run.elapsed_s else 0.0
    words = f"{numbers.cpu_s:.2f} s of CPU, {share:.1%} of one processor"
    words += f"; at most {numbers.memory_bytes / 1e6:.0f} MB"
    extra = [] if numbers.is_measured else ["without the parts that were cut off"]
    if run.run.header.kind == "python":
        extra.append("with the functions that ran in its process")
    if run.run.source.get("sim") is not None:
        extra.append("with the simulated provider")
    return f"{words} ({', '.join(extra)})" if extra else words


def _twice_words(run: Afterwards) -> str:
    lost, words = run.history.lost, list[str]()
    if lost.tokens or lost.microusd:
        money = f", {cost(lost.microusd, lost.unpriced)}" if lost.microusd or lost.unpriced else ""
        words.append(f"{short(lost.tokens)} tokens{money} paid for attempts that gave nothing")
    return "; ".join([*words, *twice_words(run.history)]) or (
        "no calls cut off; no failed attempts paid"
    )


def _groups(run: Afterwards) -> list[GroupHistory]:
    """In declared order, as far as something has happened to them."""
    groups, shape = run.history.groups, run.run.shape
    declared = [] if shape is None else [group.name for group in shape.graph.groups]
    return [groups[name] for name in dict.fromkeys((*declared, *groups)) if name in groups]


def _group_lines(run: Afterwards) -> list[str]:
    groups = _groups(run)
    rows: list[tuple[str, ...]] = [
        ("", "tasks", "p50", "p95", "p95/p50", "calls", "tokens", "cost", "lost")
    ]
    rows += [_group_cells(group) for group in groups[:GROUPS_MAX]]
    if len(groups) > GROUPS_MAX:
        others = GroupHistory(f"and {len(groups) - GROUPS_MAX:,} more")
        for group in groups[GROUPS_MAX:]:
            others.states += group.states
            others.taken.add(group.taken)
            others.lost.add(group.lost)
        rows.append(_group_cells(others))
    return _columns(rows, right=range(1, 9))


def _group_cells(group: GroupHistory) -> tuple[str, ...]:
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
    header, verdict, history = run.run.header, run.run.verdict, run.history
    serial, bound, taken, lost = run.serial, run.binding, run.history.taken, run.history.lost
    return {
        "run": header.run, "name": header.name, "kind": header.kind, "state": verdict.state,
        "is_live": verdict.is_live, "parts": history.parts, "elapsed_s": run.elapsed_s,
        **usage_json(taken), "known_usd": taken.microusd / 1e6,
        "unpriced_calls": taken.unpriced,
        "foreseen": _foreseen_json(run),
        "submitted": history.submitted,
        "effective": run.effective,
        "serial": {
            "work_s": serial.work_s, "critical_path_s": serial.critical_path_s,
            "share": serial.share, "speed_up": serial.speed_up,
            "speed_up_max": serial.speed_up_max, "doubled_s": serial.doubled_s,
            "is_known": run.lineage.is_known,
            "chain": [run.names.get(key, "") for key in run.lineage.chain],
        },
        "spent": as_dict(run.spent),
        "headway": {
            "cpu_s": history.cpu_s, "memory_bytes": history.memory_bytes,
            "is_measured": history.is_measured and history.memory_bytes > 0,
        },
        "refused": dict(sorted(history.refusals.items())),
        "retries": history.retries,
        "stale": history.stale,
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
            {"task": run.names.get(one.key, ""), "seconds": one.took_s, "mostly": one.kind,
             "what": one.what, "mostly_s": one.kind_s}
            for one in run.slow
        ],
        "earlier_s": list(run.earlier_s),
        "bound": None if bound is None else {
            "cause": bound.cause, "what": bound.what, "share": bound.share,
            "straggler": run.names.get(bound.straggler, "") or None,
        },
        "advice": advice(run),
    }  # fmt: skip


def _foreseen_json(run: Afterwards) -> dict[str, object] | None:
    foreseen = run.forecast.foreseen
    if foreseen is None:
        return None
    return {
        "bound_s": foreseen.bound_s, "binding": foreseen.binding,
        "fair_s": foreseen.fair_s, "fair_binding": foreseen.fair_binding,
        "learned_calls": foreseen.learned_calls,
        "compared": [
            {"name": one.name, **as_dict(one.foreseen), "real": one.real,
             "is_within": one.is_within, "error": one.error}
            for one in run.compared
        ],
    }  # fmt: skip
