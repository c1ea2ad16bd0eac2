"""Shows a run's state, and a user's runs, newest first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from headway.base.codec import as_dict
from headway.base.numbers import short
from headway.base.values import CacheTokens
from headway.engine.effects import KnownEffects
from headway.engine.record import Header, TaskRow
from headway.errors import HeadwayError
from headway.journal.folder import list_runs
from headway.journal.reader import JournalReader
from headway.report.history import AttemptUsage, RunHistory
from headway.report.text.agents import account_lines, accounts_by_key, agents_as_json
from headway.report.text.run_view import RunView, state_folder
from headway.report.text.terminal import LABEL_CELLS, block, labelled, print_lines
from headway.report.text.words import (
    clock,
    count,
    counts,
    duration,
    fault_line,
    known_usd,
    one_line,
    usage_words,
    usd,
)
from headway.report.time_use import slowest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from headway.pacing.view import AccountView
    from headway.state.learned_edges import Lesson

LISTED_MAX: Final = 10
SLOW_MAX: Final = 3

SHOWN_MAX: Final = 3
WHAT_CELLS_MAX: Final = 60


def again_lines(history: RunHistory, lessons: Sequence[Lesson]) -> Iterator[str]:
    """Which tasks of a run worked on what others changed meanwhile, and what prevents it."""
    took = duration(history.stale_s)
    if history.stale_microusd:
        took += f", {usd(history.stale_microusd)}"
    first = f"{count(history.stale, 'attempt')} ran again ({took}): "
    for lesson in lessons[:SHOWN_MAX]:
        yield first + _words(lesson)
        first = "and "
    if len(lessons) > SHOWN_MAX:
        yield f"and {len(lessons) - SHOWN_MAX:,} more pairs of tasks"


def _words(lesson: Lesson) -> str:
    reader, writer = lesson.reader, lesson.writer
    what = one_line(", ".join(f"`{one}`" for one in lesson.what if one), WHAT_CELLS_MAX)
    if reader == writer:
        fix = f"to do them one by one, add `queue: {reader}` to `{reader}`"
        return f"tasks of `{reader}` read {what or 'all'} that others of them write; {fix}"
    needs = f"`needs: {writer}` in `{reader}`"
    if what:
        key = lesson.what[0] or "**"
        return (
            f"`{reader}` reads {what}, which `{writer}` writes. It waits next time; to say so in "
            f"the plan, add {needs}, or `writes: state:{key}` there and `reads: state:{key}` here"
        )
    return (
        f"`{reader}` is shown the whole state, and `{writer}` writes there. It waits next time; to "
        f"say so in the plan, add {needs}, or `reads: state:KEY` for what it really needs"
    )


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
        from headway.report.text.health import lanes_of, left_of, run_windows
        from headway.report.text.stage import rest_words

        lanes = lanes_of(run)
        yield from block("rest", rest_words(left_of(run, lanes)))
        yield from block("waiting", waiting_words(run, lanes))
        yield from block("windows", run_windows(run))
    yield from block("used", [used_words(run)])
    yield from block("again", [stale_words(history)])
    yield from block("agents", islice(account_lines(run.reader, 400), LISTED_MAX))
    slow = [
        f"{one_line(run.name(one.key), 30)} {duration(one.took_s)}"
        for one in slowest(history.tasks.values(), SLOW_MAX)
    ]
    yield from block("slowest", [", ".join(slow)])
    failed = list(islice(run.rows("failed"), LISTED_MAX))
    yield from block("failed", [failure(row, width - LABEL_CELLS - 2) for row in failed])
    if (more := run.words()["failed"] - len(failed)) > 0:
        yield labelled("", f"and {more:,} more", "dim")
    if not state.is_live:
        yield from block("effects", [done_words(history.effects)])
        for line in doubt_lines(run.reader, history.effects):
            yield labelled("", line, "yellow")
    yield from block("next", next_words(run, failed))


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
    """`18 of 22 done, 3 in flight, 1 failed`."""
    words = run.words()
    done = f"{words['done'] + words['reused']:,} of {run.total:,} done"
    if words["reused"]:
        done += f" ({words['reused']:,} of them reused)"
    return ", ".join([done, *counts(*((words[word], word) for word in ORDER))])


def used_words(run: RunView) -> str:
    """`1.2M tokens in, 80k out, $1.20, 3 refused`; what is in flight or was cut off beside it."""
    history, taken = run.history, run.history.taken
    words = usage_words(taken.input_tokens, taken.output_tokens, taken.microusd, taken.unpriced)
    if most := in_flight_microusd(run):
        words.append(f"up to {usd(most)} more in flight")
    if history.refused:
        words.append(f"{history.refused:,} refused")
    return ", ".join([*words, *twice_words(history)])


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
        whats = dict.fromkeys(lane.wait.words for lane in lanes if lane.wait is not None)
        yield f"{many:,} waiting for a limit: {'; '.join(whats) or 'a permit'}"
    if many := words["held"]:
        yield f"{many:,} held: earlier tasks may change what they read"
    later = [one for one in history.tasks.values() if one.state == "delayed"]
    if later:
        soon_s = min(one.again_s for one in later)
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
            why = f"as many as {standing.strategy or 'the run'} allows now are started"
        yield f"{many:,} queued: {why}"
    for group in run.groups():
        if many := group.of("waiting for a task"):
            yield f"{many:,} of {group.name} waiting for a task: {group.waits_for} is not done"


def stale_words(history: RunHistory) -> str:
    """`3 attempts, $0.02: what they had read has changed`; nothing, if none had to run again."""
    paid = f", {usd(history.stale_microusd)}" if history.stale_microusd else ""
    many = count(history.stale, "attempt")
    return f"{many}{paid}: what they had read has changed" if history.stale else ""


def failure(row: TaskRow, cells_max: int) -> Text:
    from rich.text import Text

    name = one_line(row.name, 40)
    reason = fault_line(row.fault) or "no reason was kept"
    why = f"{reason} ({count(row.attempt, 'attempt')})"
    return Text.assemble((name, "red"), "  ", one_line(why, max(20, cells_max - len(name) - 2)))


def next_words(run: RunView, failed: Sequence[TaskRow] = ()) -> Iterator[str]:
    name, state = run.header.run, run.verdict.state
    if state == "paused":
        yield f"headway resume {name}"
    elif run.verdict.is_live:
        yield f"headway status {name} --watch"
    elif run.verdict.is_resumable:
        again = "tries the failed tasks again" if state == "failed" else "goes on where it was"
        more = " --budget '$20'" if run.verdict.reason.startswith("budget:") else ""
        yield f"headway resume {name}{more}   {again}"
    if failed:
        yield f"headway why {name} '{clean_name(failed[0].name)}'"
    if run.history.performed:
        yield f"headway results {name}"


def clean_name(name: str) -> str:
    """A task's name for a command line in single quotes."""
    return one_line(name, 200).replace("'", "'\\''")


def as_json(run: RunView) -> dict[str, object]:
    header, state, history = run.header, run.verdict, run.history
    taken, rest = history.taken, {}
    if state.is_live:
        from headway.report.text.health import lanes_of, left_of, run_windows

        lanes = lanes_of(run)
        left = left_of(run, lanes)
        rest = {"eta_s": left.eta_s, "bound_s": left.bound_s, "bound_by": left.binding,
                "fair_s": left.fair_s, "fair_by": left.fair_binding,
                "waits_for": "; ".join(dict.fromkeys(
                    lane.wait.words for lane in lanes if lane.wait is not None)),
                "waiting": list(waiting_words(run, lanes)),
                "windows": list(run_windows(run))}  # fmt: skip
    return {
        "run": header.run, "name": header.name, "kind": header.kind, "folder": header.folder,
        "state": state.state, "reason": state.reason, "until_s": state.until_s,
        "resumable": state.is_resumable, "pid": run.pid, "strategy": history.standing.strategy,
        "parts": history.parts,
        "tasks": tasks_json(run),
        "reduces": {name: {"done": n, "total": of} for name, (n, of) in run.inner().items()},
        **usage_json(taken), "known_usd": taken.microusd / 1e6, "unpriced_calls": taken.unpriced,
        "reserved_usd": in_flight_microusd(run) / 1e6,
        "refused": history.refused,
        "cut_off": cut_json(history),
        "created_s": header.created_s,
        "elapsed_s": run.elapsed_s,
        **rest,
        "slowest": [
            {"task": run.name(one.key), "seconds": one.took_s}
            for one in slowest(history.tasks.values(), SLOW_MAX)
        ],
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
        "finished": None if history.standing.finished is None
        else as_dict(history.standing.finished),
    }  # fmt: skip


def tasks_json(run: RunView) -> dict[str, int]:
    words = {word.replace(" ", "_"): many for word, many in run.words().items()}
    return {"total": run.total, "done": 0, **words}


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
    if standing.strategy:
        words += f", {standing.strategy}"
    if standing.parts > 1:
        words += f", resumed {count(standing.parts - 1, 'time')}, the time between left out"
    return words


RUNS_MAX: Final = 10

HEADERS: Final = ("run", "name", "state", "tasks", "age")
CELLS_MIN: Final = 8

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
    from rich.table import Table
    from rich.text import Text

    rows: list[tuple[Text, ...]] = []
    lines: list[str] = []
    for id, age_s, run in last_runs():
        age = Text(duration(age_s))
        if isinstance(run, HeadwayError):
            why = Text(one_line(run.message, 40))
            rows.append((Text(id), Text(), Text("unreadable"), why, age))
            continue
        state = Text(run.verdict.state, STYLES.get(run.verdict.state, ""))
        rows.append((Text(id), Text(one_line(run.header.name, 30)), state,
                     Text(count_words(run)), age))  # fmt: skip
        if run.verdict.is_resumable or run.verdict.state == "paused":
            lines.append(f"headway resume {id}")
    if not rows:
        console.print(NOTHING, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in HEADERS:
        least = len("20261116-0423-a7k") if header == "run" else None
        table.add_column(header, no_wrap=True, overflow="ellipsis", min_width=least)
    for cells in _fitted(rows, console.width):
        table.add_row(*cells)
    console.print(table)
    console.print()
    print_lines(console, (*lines, f"headway status {rows[0][0]}", "headway --help"), "dim")


def _fitted(rows: list[tuple[Text, ...]], width: int) -> list[tuple[Text, ...]]:
    """What is too wide is taken from the names first, then from the counts."""
    widths = [
        max(len(header), *(row[column].cell_len for row in rows))
        for column, header in enumerate(HEADERS)
    ]
    over = sum(widths) + 2 * len(HEADERS) - width
    for column in (1, 3):
        cut = min(max(0, over), max(0, widths[column] - CELLS_MIN))
        over -= cut
        for row in rows:
            row[column].truncate(widths[column] - cut, overflow="ellipsis")
    return rows
