"""What `report` shows of a run, from its journal and the files beside it, and in words.

Nothing of its plan is imported or executed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from math import inf
from typing import Final

from msgspec import Struct

from headway.engine.record import Header
from headway.engine.strategy import ADAPTIVE, parse
from headway.errors import HeadwayError
from headway.journal.folder import RunOutline, RunPlace, kept_shape, list_runs
from headway.journal.reader import JournalReader, RecordedEvent
from headway.pacing.admission import BUDGETED, FOLLOWS
from headway.report import afterwards as after
from headway.report.history import Standing, Story, effective_width, in_line, stand, verdict
from headway.report.text.accounts import PERIODS
from headway.report.text.runs import Glance, look, state_folder
from headway.report.text.timeline import grouping, loners
from headway.report.text.words import count, duration, one_line
from headway.report.time_use import (
    WORK,
    AttemptUsage,
    Cause,
    Lineage,
    Nature,
    Passages,
    Service,
    Spent,
    lineage,
    spent,
)
from headway.run.forecasts import KeptForecast, read_forecast

SLOW_MAX: Final = 3
"""Tasks that are named as the slowest."""

NATURES: Final = {
    "plan": Nature("provider"),
    "each": Nature("machine", is_local=True),
    "python": Nature("function"),
}
"""What tasks are where nothing else is known of them."""

LOOKS_MAX: Final = 3
"""A run that goes on is looked at again so often before what it did meanwhile is left out."""

EARLIER_MAX: Final = 10
LOOKED_MAX: Final = 200
"""Earlier runs of the same plan that are compared, and runs that are looked at to find them."""


class Afterwards(Struct, frozen=True):
    """All that a report says."""

    glance: Glance
    names: Mapping[bytes, str]
    forecast: KeptForecast
    compared: tuple[after.ForecastComparison, ...]
    serial: after.SerialShare
    lineage: Lineage
    submitted: int
    effective: float
    spent: Spent
    numbers: Passages
    taken: AttemptUsage
    lost: AttemptUsage
    groups: Mapping[str, after.GroupAfter]
    slow: list[after.Slow]
    earlier_s: tuple[float, ...]
    """How long earlier runs of the same plan took, the newest first."""
    binding: after.Binding | None

    @property
    def elapsed_s(self) -> float:
        return self.spent.wall_s

    @property
    def is_simulated(self) -> bool:
        """Whether its process was the provider too."""
        return _source(self.glance.header).get("sim") is not None

    def total(self, name: str) -> int:
        """A number of all tasks: `retries`, `stale`, `cut_calls`, `cut_tokens`."""
        return sum(getattr(one, name) for one in self.numbers.tasks.values())


def afterwards(reader: JournalReader, folder: str) -> Afterwards:
    """Fold a journal; `folder` is the run's."""
    glance, recorded = _seen(reader)
    header = reader.header
    shape = kept_shape(folder) or _planned_shape(header, folder)
    names = {row.key: row.name for row in reader.rows()}
    graph = None if shape is None else shape.graph
    group_of = grouping(header, names)
    works_alone = loners(header, shape, group_of)
    ways, story = Passages(works_alone), Story(works_alone)
    for one in recorded:
        story.hear(one.key, one.event)
        ways.hear(one.key, one.event)
    now_s = ways.elapsed_s
    if glance.verdict.is_live and recorded:
        now_s += max(0.0, time.time() - recorded[-1].event.at_s)
    ways.close(now_s, glance.verdict.is_live)
    passages = ways.tasks.values()
    kin = lineage(passages, graph, group_of)
    natures = _natures(header, shape)
    where = spent(
        passages, kin.ready_s, lambda key: natures.get(group_of(key), NATURES[header.kind]),
        ways.holds, _is_bounded(glance.standing, shape), now_s,
    )  # fmt: skip
    groups = after.groups_after(passages, group_of)
    if graph is not None:
        declared = [group.name for group in graph.groups if group.name in groups]
        groups = {name: groups[name] for name in dict.fromkeys((*declared, *groups))}
    taken, lost = AttemptUsage(), AttemptUsage()
    for group in groups.values():
        taken.add(group.taken)
        lost.add(group.lost)
    forecast = read_forecast(folder)
    work_s = sum(one.task_s for one in where.shares if one.cause in WORK)
    return Afterwards(
        glance, names, forecast,
        () if forecast.foreseen is None else after.compared(forecast.foreseen, now_s, taken),
        after.SerialShare(work_s, kin.critical_path_s, now_s), kin, story.submitted,
        effective_width(story, in_line(story.tales.values(), group_of), now_s), where, ways,
        taken, lost, groups, after.slowest(passages, SLOW_MAX), _earlier(header),
        after.binding(where, kin, ways.tasks, groups, group_of),
    )  # fmt: skip


def _seen(reader: JournalReader) -> tuple[Glance, list[RecordedEvent]]:
    """A run and its facts, of one moment as far as can be: it may go on meanwhile."""
    recorded = list(reader.events())
    for _ in range(LOOKS_MAX):
        glance = look(reader)
        later = list(reader.events(recorded[-1].seq if recorded else 0))
        recorded += later
        if not later:
            break
    return glance, recorded


def _planned_shape(header: Header, folder: str) -> RunOutline | None:
    """The shape of a run whose own is not kept, by reading its plan again."""
    from headway.report.text.why import known

    try:
        found = known(header, folder)
    except (HeadwayError, ValueError, TypeError, KeyError):
        return None
    return None if found is None else RunOutline(found.graph, found.rules.ceiling)


def _natures(header: Header, shape: RunOutline | None) -> dict[str, Nature]:
    natures: dict[str, Nature] = {}
    groups = () if shape is None else shape.graph.groups
    for group in groups:
        service: Service = NATURES[header.kind].service
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
    """Whether the user said how many may be active at once."""
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
            standing = Standing()
            for recorded in reader.events(key=b""):
                standing = stand(standing, recorded.event)
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
"""What bound a run, and what helps against it."""


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


def cause_words(cause: Cause, what: str) -> str:
    return f"waited for {limit_words(what)}" if cause == "quota" else CAUSES[cause]


def width_words(run: Afterwards) -> str:
    """Whether it was sequential, concurrent, or really at the same time."""
    submitted, effective = run.submitted, run.effective
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


def slow_words(run: Afterwards, slow: after.Slow) -> str:
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
    several = [one for one in run.groups.values() if len(one.times_s) > 1 and one.p50_s > 0.0]
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
    vary = after.variation(runs) if not run.glance.verdict.is_live else None
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
    refusals = sorted(run.numbers.refusals.items())
    why = ", ".join(f"{many:,} {one_line(word, 40)}" for word, many in refusals)
    words = [
        f"{count(sum(many for _, many in refusals), 'call')} refused" + (f" ({why})" if why else "")
    ]
    words.append(f"{run.total('retries'):,} retried")
    if stale := run.total("stale"):
        words.append(count(stale, "stale attempt"))
    return ", ".join(words)


def advice(run: Afterwards) -> str:
    """What bound the run, and what would help."""
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
        share += f" ({run.glance.standing.strategy})"
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
    if foreseen is None or run.elapsed_s <= 0.0 or run.glance.verdict.is_live:
        return ""
    return f", {min(1.0, foreseen.bound_s / run.elapsed_s):.0%} of the best possible speed"
