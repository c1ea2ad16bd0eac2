"""Shows a run's state, how it ended, and a user's runs, newest first.

Laws of the last lines of a run:
- At most eight lines: done and not done, time and bound, use, what may be billed twice, failures
  by cause, files, what to do next. What there is nothing of has no line.
- Failures of one cause are one line, with one example and a hint that fits the cause.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from headway.base.numbers import short
from headway.base.values import Budget, CacheTokens
from headway.engine.effects import KnownEffects
from headway.engine.record import Header, TaskRow
from headway.errors import HeadwayError
from headway.journal.documents import LANDED, Landing, kept
from headway.journal.folder import list_runs
from headway.journal.reader import JournalReader
from headway.plans.resources import FILES, NAMES, shown_key
from headway.report.history import AttemptUsage, RunHistory
from headway.report.progress import bound_of
from headway.report.text.agents import account_lines, accounts_by_key, agents_as_json
from headway.report.text.run_view import RunView, state_folder
from headway.report.text.terminal import block, labelled, print_lines
from headway.report.text.words import (
    aligned,
    clean_name,
    clock,
    count,
    counts,
    duration,
    fault_line,
    known_usd,
    limit_words,
    mend_words,
    one_line,
    usage_words,
    usd,
    wait_words,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from headway.pacing.view import AccountView
    from headway.run.tasks import Plans
    from headway.state.learned_edges import Lesson

LISTED_MAX: Final = 10

SHOWN_MAX: Final = 3
WHAT_CELLS_MAX: Final = 60


def again_lines(history: RunHistory, lessons: Sequence[Lesson]) -> Iterator[str]:
    """Which tasks of a run worked on what others changed meanwhile, and what prevents it."""
    first = f"{count(history.stale, 'attempt')} ran again: "
    if not lessons:
        yield f"{first}what they had read has changed"
    for lesson in lessons[:SHOWN_MAX]:
        yield first + _words(lesson)
        first = "and "
    if len(lessons) > SHOWN_MAX:
        yield f"and {len(lessons) - SHOWN_MAX:,} more pairs of tasks"


def _words(lesson: Lesson) -> str:
    reader, writer = lesson.reader, lesson.writer
    keys = [shown_key(one) for one in lesson.what if one]
    what = one_line(", ".join(f"`{one}`" for one in keys), WHAT_CELLS_MAX)
    if reader == writer:
        fix = f"to do them one by one, add `queue: {reader}` to `{reader}`"
        return f"tasks of `{reader}` read {what or 'all'} that others of them write; {fix}"
    needs = f"`needs: {writer}` in `{reader}`"
    if what:
        key, is_file = lesson.what[0] or "**", lesson.what[0].startswith((FILES, NAMES))
        state = f", or `writes: state:{key}` there and `reads: state:{key}` here"
        return (
            f"`{reader}` reads {what}, which `{writer}` writes. It waits next time; to say so in "
            f"the plan, add {needs}{'' if is_file else state}"
        )
    return (
        f"`{reader}` is shown the whole state, and `{writer}` writes there. It waits next time; to "
        f"say so in the plan, add {needs}, or `reads: state:KEY` for what it really needs"
    )


def landing_lines(landing: Landing, run: str) -> Iterator[str]:
    """What landed, and the command that applies it."""
    for one in landing.folders:
        where = "" if one.root == "." else f" in {one.root}"
        count = f"{len(one.tasks)} task{'s' if len(one.tasks) != 1 else ''}"
        yield f"landed{where}: {count}; {one.diffstat or 'no file has changed'}"
    yield from (f"note: {remark}" for remark in landing.remarks)
    if any(one.diffstat for one in landing.folders):
        yield f"apply: headway results {run} --apply   (or --branches, one for each task; --patch)"


DOUBTS_LISTED_MAX: Final = 20
"""Effects in doubt that are named one by one: a crash leaves at most one for each channel."""


def doubt_lines(reader: JournalReader, known: KnownEffects) -> Iterator[str]:
    doubts = list(known.doubts.values())
    for task, doubt in doubts[:DOUBTS_LISTED_MAX]:
        row = reader.row(task)
        name = one_line(row.name if row is not None else task.hex())
        channel = one_line(doubt.channel)
        again = "it is sent again with the same key"
        if doubt.is_now:
            again = "it is outside the guarantee, and sent again if its task runs again"
        yield f"in doubt: {channel} of {name}, key {doubt.key}: it may have been sent; {again}"
    if len(doubts) > DOUBTS_LISTED_MAX:
        yield f"in doubt: {len(doubts) - DOUBTS_LISTED_MAX} more"


def done_words(known: KnownEffects) -> str:
    """`12 performed, 3 at once, outside the guarantee`; empty if there was none."""
    if not (known.done or known.doubts):
        return ""
    words = f"{len(known.done):,} performed"
    return f"{words}, {len(known.now)} at once, outside the guarantee" if known.now else words


STYLES: Final = {
    "running": "bold cyan",
    "done": "bold green",
    "failed": "bold red",
    "interrupted": "bold yellow",
    "stopped": "bold yellow",
}


def status_lines(run: RunView, width: int) -> Iterator[Text]:
    """A line for each fact, at most as wide as the screen where text of tasks is in them."""
    state, history = run.verdict, run.history
    yield title_line(run.header, width)
    yield from block("state", [state_words(run)], STYLES.get(state.state, ""))
    yield from block("tasks", [count_words(run)])
    inner = (f"{name} {done:,} of {total:,}" for name, (done, total) in run.inner().items())
    yield from block("reduces", [", ".join(inner)])
    yield from block("time", [_time_words(run)])
    if state.is_live:
        from headway.report.text.stage import rest_words

        lanes = run.lanes()
        yield from block("rest", rest_words(run.time_left(lanes)))
        yield from block("waiting", waiting_words(run, lanes))
        yield from block("windows", run.windows(lanes))
    yield from block("used", [used_words(run)])
    yield from block("twice", twice_words(history))
    yield from block("again", [stale_words(history)])
    landing = kept(run.reader, LANDED, Landing)
    sent_back = (f"{name} {count(many, 'time')}" for name, many in run.sent_back().items())
    yield from block("revised", [", ".join(sent_back)])
    yield from block("files", [] if landing is None else landing_lines(landing, run.header.run))
    yield from block("agents", islice(account_lines(run.reader, 400), LISTED_MAX))
    yield from block("failed", failure_words(run, LISTED_MAX), "red")
    if not state.is_live:
        yield from block("effects", [done_words(history.effects)])
        for line in doubt_lines(run.reader, history.effects):
            yield labelled("", line, "yellow")
    yield from block("next", next_words(run, is_whole=True))


def title_line(header: Header, width: int) -> Text:
    from rich.text import Text

    name = one_line(header.name, width - len(header.run) - 2)
    return Text.assemble((name, "bold"), "  ", (header.run, "dim"))


def state_words(run: RunView, *, is_ours: bool = False) -> str:
    """`running, process 4711`; `waiting until 14:05:00: the window is empty`."""
    state, standing = run.verdict, run.history.standing
    words = str(state.state)
    if run.pid is not None and not is_ours:
        words += f", process {run.pid}"
    if state.until_s is not None and state.until_s > run.now_s:
        left = duration(state.until_s - run.now_s)
        words += f", until {clock(state.until_s, run.now_s)} (in {left})"
    if state.reason:
        words += f": {one_line(state.reason, 200)}"
    if state.is_live and standing.waves:
        words += f", wave {standing.wave} of {standing.waves}"
    return words


ORDER: Final = (
    "in flight", "running here", "waiting for a limit", "held", "cut off", "queued",
    "waiting for a task", "failed", "skipped", "not started",
)  # fmt: skip


def count_words(run: RunView) -> str:
    """`18 of 22 done, 3 in flight, 1 failed`; `2 failed (1 of them stuck)`."""
    words = run.words()
    stuck = len(run.history.stuck)
    failed = f"failed ({stuck:,} of them stuck)" if stuck else "failed"
    done = f"{words['done'] + words['reused']:,} of {run.total:,} done"
    if words["reused"]:
        done += f" ({words['reused']:,} of them reused)"
    return ", ".join([done, *counts(*(
        (words[word], failed if word == "failed" else word) for word in ORDER
    ))])  # fmt: skip


def used_words(run: RunView) -> str:
    """`1.2M tokens in, 80k out, $1.20, of a budget of $5.00, 3 refused, 2 tried again`."""
    history, taken, budget = run.history, run.history.taken, run.budget() or Budget()
    words = usage_words(taken.input_tokens, taken.output_tokens, taken.microusd, taken.unpriced)
    if most := in_flight_microusd(run):
        words.append(f"up to {usd(most)} more in flight")
    if budget.tokens is not None:
        words.append(f"of a budget of {short(budget.tokens)} tokens")
    if budget.microusd is not None:
        words.append(f"of a budget of {usd(budget.microusd)}")
    if history.lost.microusd:
        words.append(f"{usd(history.lost.microusd)} for nothing")
    words += counts((history.refused, "refused"), (history.retries, "tried again"))
    return ", ".join(words)


def in_flight_microusd(run: RunView) -> int:
    """What calls in flight can cost at most."""
    history = run.history
    return sum(history.tasks[key].reserved_microusd for key in history.active) * run.is_live


def twice_words(history: RunHistory) -> list[str]:
    """`2 calls cut off, up to 3k tokens may be billed twice`."""
    if not history.cut_calls:
        return []
    tokens = history.cut_tokens
    most = f"up to {short(tokens)} tokens" if tokens else "their tokens"
    return [f"{count(history.cut_calls, 'call')} cut off, {most} may be billed twice"]


def waiting_words(run: RunView, lanes: Sequence[AccountView]) -> Iterator[str]:
    """Why each task waits that has not ended and is not worked on, by what it waits for."""
    standing, history = run.history.standing, run.history
    words = run.words()
    if many := words["waiting for a limit"]:
        yield f"{many:,} waiting for a limit: {wait_words(lanes) or 'a permit'}"
    if many := words["held"]:
        yield f"{many:,} held: earlier tasks may change what they read"
    later = [one for one in history.tasks.values() if one.state == "delayed"]
    if later:
        soon_s = min(run.again_s(one) for one in later)
        when = "when the run is resumed"
        if soon_s < inf:
            when = f"{clock(soon_s, run.now_s)} at first"
        yield f"{len(later):,} queued to be tried again, {when}"
    if (many := words["queued"] - len(later)) > 0:
        if standing.stopping_for is not None:
            why = "the run is stopping"
        elif standing.held_until_s is not None and standing.held_until_s > run.now_s:
            why = f"the run is held, {standing.held_for}"
        else:
            why = f"as many as the run ({run.strategy}) starts now are started"
        yield f"{many:,} queued: {why}"
    for group in run.groups():
        if many := group.of("waiting for a task"):
            yield f"{many:,} of {group.name} waiting for a task: {group.waits_for} is not done"


def stale_words(history: RunHistory) -> str:
    """`3 attempts: what they had read has changed`; nothing, if none had to run again."""
    many = count(history.stale, "attempt")
    return f"{many}: what they had read has changed" if history.stale else ""


def next_words(run: RunView, *, is_whole: bool = False) -> Iterator[str]:
    """Commands that go on from here: the most useful one first; all of them, if asked."""
    name, state = run.header.run, run.verdict.state
    if state == "paused":
        yield f"headway resume {name}"
    elif run.verdict.is_live:
        yield f"headway status {name} --watch"
    elif run.verdict.is_resumable:
        again = "tries the failed tasks again" if state == "failed" else "goes on where it was"
        more = " --budget '$20'" if run.verdict.reason.startswith("budget:") else ""
        yield f"headway resume {name}{more}   {again}"
    failed = next(run.rows("failed"), None) if is_whole else None
    if failed is not None:
        yield f"headway why {name} '{clean_name(failed.name)}'"
    if run.history.performed:
        yield f"headway results {name}"


def as_json(run: RunView) -> dict[str, Any]:
    header, state, history = run.header, run.verdict, run.history
    taken = history.taken
    rest: dict[str, object] = {}
    if state.is_live:
        lanes = run.lanes()
        left = run.time_left(lanes)
        rest = {"eta_s": left.eta_s, "bound_s": left.bound_s, "bound_by": left.binding,
                "fair_s": left.fair_s, "fair_by": left.fair_binding,
                "waits_for": wait_words(lanes),
                "waiting": list(waiting_words(run, lanes)),
                "windows": list(run.windows(lanes))}  # fmt: skip
    return {
        "run": header.run, "name": header.name, "kind": header.kind, "folder": header.folder,
        "state": state.state, "reason": state.reason, "until_s": state.until_s,
        "resumable": state.is_resumable, "pid": run.pid, "strategy": history.standing.strategy,
        "parts": history.parts,
        "tasks": tasks_json(run),
        "reduces": {name: {"done": n, "total": of} for name, (n, of) in run.inner().items()},
        "revised": run.sent_back(),
        **usage_json(taken), "known_usd": taken.microusd / 1e6, "unpriced_calls": taken.unpriced,
        "reserved_usd": in_flight_microusd(run) / 1e6,
        "refused": history.refused,
        "cut_off": cut_json(history),
        "created_s": header.created_s,
        "elapsed_s": run.elapsed_s,
        **rest,
        "failed": [
            {"task": row.name, "reason": row.fault, "attempts": row.attempt}
            for row in islice(run.rows("failed"), LISTED_MAX)
        ],
        "effects": {"done": len(history.effects.done), "in_doubt": len(history.effects.doubts),
                    "now": len(history.effects.now), "doubts": list(history.effects.doubts)},
        "agents": {
            accounts[-1].task: agents_as_json(accounts)
            for accounts in accounts_by_key(run.reader).values()
        },
    }  # fmt: skip


def tasks_json(run: RunView) -> dict[str, int]:
    words = {word.replace(" ", "_"): many for word, many in run.words().items()}
    stuck = len(run.history.stuck)
    return {"total": run.total, "done": 0, **words, **({"stuck": stuck} if stuck else {})}


def cache_json(cache: CacheTokens) -> dict[str, object]:
    return {
        "cache_read_tokens": round(cache.read), "cache_write_tokens": round(cache.written),
        "cache_rewrite_tokens": round(cache.rewritten),
    }  # fmt: skip


def usage_json(taken: AttemptUsage) -> dict[str, object]:
    return {
        "calls": taken.calls, "input_tokens": round(taken.input_tokens),
        "output_tokens": round(taken.output_tokens),
        "usd": known_usd(taken.microusd, taken.unpriced), **cache_json(taken.cache),
    }  # fmt: skip


def cut_json(history: RunHistory) -> dict[str, object]:
    calls, tokens = history.cut_calls, history.cut_tokens
    return {"calls": calls, "tokens": None if calls and not tokens else tokens}


def _time_words(run: RunView) -> str:
    standing = run.history.standing
    words = f"{duration(run.elapsed_s)} since {clock(run.header.created_s, run.now_s)}"
    if run.strategy:
        words += f", {run.strategy}"
    if standing.parts > 1:
        words += f", resumed {count(standing.parts - 1, 'time')}, the time between left out"
    return words


RUNS_MAX: Final = 10

HEADERS: Final = ("run", "name", "state", "tasks", "age")

NOTHING: Final = """\
No runs yet. To begin:
  headway each 'printf "%s\\n" {}' ::: a b c
  headway run plan.yaml
Everything: headway --help"""


def last_runs() -> Iterator[tuple[str, float, RunView | HeadwayError]]:
    """The newest runs: id, age, and what there is; a journal that cannot be read hides no other."""
    for place in list_runs(state_folder(), RUNS_MAX):
        age_s = time.time() - place.created_s
        try:
            with JournalReader(place.folder) as reader:
                run = RunView(reader)
                run.words()
            yield place.id, age_s, run
        except HeadwayError as error:
            yield place.id, age_s, error


def runs_json() -> list[dict[str, object]]:
    return [
        {"run": name, "age_s": age_s, "state": "unreadable", "reason": run.message}
        if isinstance(run, HeadwayError)
        else {
            "run": name, "age_s": age_s, "state": run.verdict.state, "name": run.header.name,
            "kind": run.header.kind, "resumable": run.verdict.is_resumable,
            "tasks": tasks_json(run),
        }
        for name, age_s, run in last_runs()
    ]  # fmt: skip


def draw_runs(console: Console) -> None:
    from rich.text import Text

    rows, lines = [HEADERS], list[str]()
    for id, age_s, run in last_runs():
        age = duration(age_s)
        if isinstance(run, HeadwayError):
            rows.append((id, "", "unreadable", one_line(run.message, 40), age))
            continue
        state = str(run.verdict.state)
        rows.append((id, one_line(run.header.name, 30), state, count_words(run), age))
        if run.verdict.is_resumable or state == "paused":
            lines.append(f"headway resume {id}")
    if len(rows) == 1:
        console.print(NOTHING, soft_wrap=True)
        return
    # What is too wide is taken from the names first, then from the counts.
    table = aligned(rows, width=console.width, shortened=(1, 3))
    for number, (id, name, state, tasks, age) in enumerate(table):
        style = STYLES.get(state.strip(), "")
        line = Text.assemble(f"{id}  {name}  ", (state, style), f"  {tasks}  {age}")
        line.stylize("" if number else "dim")
        console.print(line, soft_wrap=True)
    console.print()
    print_lines(console, (*lines, f"headway status {rows[1][0]}", "headway --help"), "dim")


# How a run ended: the last lines that its command prints.

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
    ("cut at max_tokens", "raise `max_tokens` in the plan, or ask for less, then resume it"),
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
    lines = [head, f"time: {_end_words(run, lanes)}"]
    if used := used_words(run):
        calls = f"{count(run.history.taken.calls, 'call')}, " if run.history.taken.calls else ""
        lines.append(f"used: {calls}{used}")
    lines += [f"twice: {words}" for words in twice_words(run.history)]
    failures = [f"failed: {words}" for words in failure_words(run, CAUSES_MAX)]
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


def _end_words(run: RunView, lanes: Sequence[AccountView]) -> str:
    took_s, history = run.elapsed_s, run.history
    words = duration(took_s)
    if not history.taken.calls:
        return words  # No limit of an account bounds what makes no calls.
    bound_s, name = bound_of(history, [lane.limits for lane in lanes])
    if bound_s is None:
        return f"{words}; the least possible time is unknown"
    share = min(1.0, bound_s / took_s) if took_s else 1.0
    least = f"the limits alone need {duration(bound_s)}"
    by = f", bound by {limit_words(name)}, {share:.0%} of it" if bound_s >= 0.05 * took_s else ""
    return f"{words}; {least}{by}"


def failure_words(run: RunView, causes_max: int) -> Iterator[str]:
    """Failures by cause, the most frequent first: how many, one example, and what helps."""
    found: dict[str, Failures] = {}
    for row in run.rows("failed"):
        cause = _cause_of(row.fault)
        found.setdefault(cause, Failures(row)).count += 1
    causes = sorted(found.values(), key=lambda one: -one.count)
    for index, one in enumerate(causes[:causes_max]):
        fault = one.example.fault
        hint = next((hint for part, hint in HINTS if part in fault), "")
        hint = hint or mend_words(fault, run.header.run, one.example.name)
        more = ""
        if index == causes_max - 1 and len(causes) > causes_max:
            more = f"; {count(len(causes) - causes_max, 'other cause')}: headway status"
        what = one_line(fault_line(fault) or "no reason was kept", WORDS_MAX)
        example = one_line(one.example.name, EXAMPLE_MAX)
        yield f"{one.count:,} with {what}, for instance {example}; {hint}{more}"


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
    return list(dict.fromkeys(found))
