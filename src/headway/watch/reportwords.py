"""What the numbers of a report mean, in sentences: limits, causes, widths, and what bound it."""

from __future__ import annotations

from typing import Final

from headway.core.afterwards import Binding, Serial, Slow, variation
from headway.core.quota.waiting import BUDGETED, FOLLOWS
from headway.core.spent import Cause
from headway.watch.accounts import PERIODS
from headway.watch.afterwards import Afterwards
from headway.watch.words import count, duration, one_line

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
    "concurrency": "bound by how many calls the account takes at once, {share}{best}; "
    "more agents would not help",
    "peak": "bound by the provider's own speed, {share}{best}: more at once would be slower in all",
    "untried": "bound by a width that was still being explored, {share}{best}: "
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
    """Where time went, as a line of a table."""
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
    lines = [
        f"{serial.share:.0%} of {brief(serial.work_s)} of work is on the {path}, "
        f"{brief(serial.critical_path_s)}: {chain_words(run)}",
        _speed_words(serial),
    ]
    doubled = f"Amdahl's law: twice the width would take {brief(serial.doubled_s)} at best"
    binds = run.binding is not None and run.binding.cause in ("quota", "refused")
    lines.append(f"{doubled}, if the account allowed it" if binds else doubled)
    if not run.lineage.is_known:
        lines.append("who needs whom is not kept for this run: the longest task stands for it")
    return lines


def _speed_words(serial: Serial) -> str:
    most = f"with any width {serial.speed_up_max:.1f} times at most"
    if serial.speed_up < 1.0:
        return f"slower than its work alone, one after another: it mostly waited; {most}"
    return f"{serial.speed_up:.1f} times as fast as one task after another; {most}"


def slow_words(run: Afterwards, slow: Slow) -> str:
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
    vary = variation(runs) if not run.glance.verdict.is_live else None
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
    """`3 calls refused (rate: input), 2 attempts again, 1 stale; 1,200 tokens ($0.01) twice`."""
    refused = sum(run.refusals.values())
    why = ", ".join(f"{many:,} {one_line(word, 40)}" for word, many in run.refusals.items())
    words = [f"{count(refused, 'call')} refused" + (f" ({why})" if why else "")]
    words.append(f"{run.retries:,} retried")
    if run.stale:
        words.append(f"{count(run.stale, 'stale attempt')}")
    return ", ".join(words)


def advice(run: Afterwards) -> str:
    """What bound the run, and what would help."""
    bound = run.binding
    if bound is None:
        return "nothing took any time yet"
    if bound.straggler:
        return _straggler(run, bound)
    share = f"{bound.share:.0%} of the time"
    if bound.cause == "quota":
        return _quota(bound, share, _best(run))
    if bound.cause == "provider":
        return _path(run, share, _best(run))
    if bound.cause == "place":
        share += f" ({run.glance.standing.strategy})"
    return ADVICE.get(bound.cause, "{share}: " + CAUSES[bound.cause]).format(share=share)


def _quota(bound: Binding, share: str, best: str) -> str:
    if bound.what in WIDTHS:
        return WIDTHS[bound.what].format(share=share, best=best)
    if not bound.what:
        return f"bound by permits, {share}{best}; this journal does not say for which limit"
    return (
        f"bound by {limit_words(bound.what)}, waited for {share}{best}; more agents would not help"
    )


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


def _straggler(run: Afterwards, bound: Binding) -> str:
    name = one_line(run.names.get(bound.straggler, "?"), NAME_CELLS)
    return (
        f"one slow task: {name} took {brief(bound.straggler_s)}, its like "
        f"{brief(bound.usual_s)}; a `timeout:` would have ended it"
    )


def _best(run: Afterwards) -> str:
    """How near to the best possible time it came, where a bound was foreseen."""
    foreseen = run.forecast.foreseen
    if foreseen is None or run.elapsed_s <= 0.0 or run.glance.verdict.is_live:
        return ""
    return f", {min(1.0, foreseen.bound_s / run.elapsed_s):.0%} of the best possible speed"
