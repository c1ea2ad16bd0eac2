"""One run as a person wants to know of it: how far, what it took, what failed, what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Final

from headway.core.engine.events import TaskStale
from headway.core.engine.record import Row, TaskState
from headway.core.numbers import short
from headway.runtime.journal_reader import JournalReader
from headway.watch.doubts import done_words, doubt_lines, known_of
from headway.watch.glance import LISTED_MAX, Glance, slowest
from headway.watch.words import clock, cost, count, duration, fault_line, known_usd, one_line, usd

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES: Final = {
    "running": "bold cyan",
    "done": "bold green",
    "failed": "bold red",
    "interrupted": "bold yellow",
    "stopped": "bold yellow",
}
LABEL_CELLS: Final = 10

RANKED_MAX: Final = 10_000
"""Tasks that are looked through for the slowest while a run goes on: it is done again and again."""


def draw_status(console: Console, glance: Glance, reader: JournalReader) -> None:
    """Print it, a line for each thing there is to say."""
    for line in status_lines(glance, reader, console.width):
        console.print(line, soft_wrap=True)


def status_lines(glance: Glance, reader: JournalReader, width: int) -> Iterator[Text]:
    """The same as lines, at most as wide as the screen where text of tasks is in them."""
    from rich.text import Text

    from headway.watch.agents import account_lines

    header, verdict = glance.header, glance.verdict
    name = one_line(header.name, width - len(header.run) - 2)
    yield Text.assemble((name, "bold"), "  ", (header.run, "dim"))
    yield _labelled("state", Text(state_words(glance), STYLES.get(verdict.state, "")))
    yield _labelled("tasks", Text(count_words(glance)))
    if words := inner_words(glance):
        yield _labelled("reduces", Text(words))
    yield _labelled("time", Text(_time_words(glance)))
    if verdict.is_live:
        from headway.watch.outlook import outlook, source_of
        from headway.watch.stage import rest_words

        ahead = outlook(reader, glance, source_of(reader))
        for index, line in enumerate(rest_words(ahead.rest)):
            yield _labelled("" if index else "rest", Text(line))
    if spent := spent_words(glance):
        yield _labelled("used", Text(spent))
    if words := stale_words(reader):
        yield _labelled("again", Text(words))
    for index, line in enumerate(islice(account_lines(reader.folder, 400), LISTED_MAX)):
        yield _labelled("" if index else "agents", Text(line))
    is_ranked = not verdict.is_live or glance.of("finished") <= RANKED_MAX
    ranked = slowest(reader, glance) if is_ranked else []
    slow = [f"{one_line(row.name, 30)} {duration(took_s)}" for row, took_s in ranked]
    if slow:
        yield _labelled("slowest", Text(", ".join(slow)))
    failed = list(islice(glance.rows(reader, "failed"), LISTED_MAX))
    for index, row in enumerate(failed):
        yield _labelled("" if index else "failed", failure(row, width - LABEL_CELLS - 2))
    if glance.of("failed") > len(failed):
        yield _labelled("", Text(f"and {glance.of('failed') - len(failed):,} more", "dim"))
    if not verdict.is_live:
        yield from _effects(reader)
    for index, line in enumerate(next_words(glance, failed)):
        yield _labelled("" if index else "next", Text(line))


def _effects(reader: JournalReader) -> Iterator[Text]:
    """What was done to the world, and what may have been."""
    from rich.text import Text

    known = known_of(reader)
    if words := done_words(known):
        yield _labelled("effects", Text(words))
    for line in doubt_lines(reader, known):
        yield _labelled("", Text(line, "yellow"))


def state_words(glance: Glance) -> str:
    """`running, process 4711`; `waiting until 14:05:00: the window is empty`."""
    verdict = glance.verdict
    words = str(verdict.state)
    if glance.pid is not None:
        words += f", process {glance.pid}"
    if verdict.until_s is not None and verdict.until_s > glance.now_s:
        left = duration(verdict.until_s - glance.now_s)
        words += f", until {clock(verdict.until_s, glance.now_s)} (in {left})"
    if verdict.reason:
        words += f": {one_line(verdict.reason, 200)}"
    if verdict.is_live and glance.standing.waves:
        words += f", wave {glance.standing.wave} of {glance.standing.waves}"
    return words


def count_words(glance: Glance) -> str:
    """`18 of 22 finished, 3 running, 1 failed`."""
    words = [f"{glance.of('finished'):,} of {glance.total:,} finished"]
    states: dict[TaskState, str] = {
        "started": "running" if glance.verdict.is_live else "cut off",
        "proposed": "waiting to be committed",
        "stale": "to run again",
        "delayed": "to be tried again",
        "failed": "failed",
        "skipped": "skipped",
    }
    for state, word in states.items():
        if number := glance.of(state):
            words.append(f"{number:,} {word}")
    left = glance.total - sum(glance.summary.counts.values())
    if left:
        words.append(f"{left:,} not started")
    return ", ".join(words)


def inner_words(glance: Glance) -> str:
    """`verdict/1 12 of 36, verdict/2 0 of 9`: the levels of reductions, which are tasks too."""
    levels = (f"{name} {done:,} of {total:,}" for name, (done, total) in glance.inner.items())
    return ", ".join(levels)


def spent_words(glance: Glance) -> str:
    """`1.2M tokens in, 80k out, $1.20`."""
    summary, words = glance.summary, []
    if summary.input_tokens or summary.output_tokens:
        words.append(f"{short(summary.input_tokens)} tokens in, {short(summary.output_tokens)} out")
    if summary.spent_microusd or summary.unpriced:
        words.append(cost(summary.spent_microusd, summary.unpriced))
    if summary.reserved_microusd:
        words.append(f"up to {usd(summary.reserved_microusd)} more in flight")
    return ", ".join(words)


def stale_words(reader: JournalReader) -> str:
    """`3 attempts, $0.02: what they had read has changed`; nothing, if none had to run again."""
    stale = [recorded.event for recorded in reader.events(kinds=("task_stale",))]
    spent = sum(event.ending.spend_microusd for event in stale if isinstance(event, TaskStale))
    paid = f", {usd(spent)}" if spent else ""
    return f"{count(len(stale), 'attempt')}{paid}: what they had read has changed" if stale else ""


def failure(row: Row, cells_max: int) -> Text:
    """A task without a result and why, on one line."""
    from rich.text import Text

    name = one_line(row.name, 40)
    reason = fault_line(row.fault) or "no reason was kept"
    why = f"{reason} ({count(row.attempt, 'attempt')})"
    return Text.assemble((name, "red"), "  ", one_line(why, max(20, cells_max - len(name) - 2)))


def next_words(glance: Glance, failed: list[Row]) -> Iterator[str]:
    """What somebody may want to do now, as commands to paste."""
    run, state = glance.header.run, glance.verdict.state
    if state == "paused":
        yield f"headway resume {run}"
    elif glance.verdict.is_live:
        yield f"headway status {run} --watch"
    elif glance.verdict.is_resumable:
        again = "tries the failed tasks again" if state == "failed" else "goes on where it was"
        more = " --budget '$20'" if glance.verdict.reason.startswith("budget:") else ""
        yield f"headway resume {run}{more}   {again}"
    if failed:
        yield f"headway why {run} '{clean_name(failed[0].name)}'"
    if glance.of("finished"):
        yield f"headway results {run}"


def clean_name(name: str) -> str:
    """A task's name for a command line in single quotes."""
    return one_line(name, 200).replace("'", "'\\''")


def as_json(glance: Glance, reader: JournalReader) -> dict[str, object]:
    """Everything for a program."""
    from headway.watch.agents import accounts_by_key
    from headway.watch.agents import as_json as agent_json

    summary = glance.summary
    return {
        "run": glance.header.run,
        "name": glance.header.name,
        "kind": glance.header.kind,
        "folder": glance.header.folder,
        "state": glance.verdict.state,
        "reason": glance.verdict.reason,
        "until_s": glance.verdict.until_s,
        "resumable": glance.verdict.is_resumable,
        "pid": glance.pid,
        "strategy": glance.standing.strategy,
        "parts": glance.standing.parts,
        "tasks": {"total": glance.total, **{str(state): n for state, n in summary.counts.items()}},
        "reduces": {name: {"finished": n, "total": of} for name, (n, of) in glance.inner.items()},
        "input_tokens": round(summary.input_tokens),
        "output_tokens": round(summary.output_tokens),
        "usd": known_usd(summary.spent_microusd, summary.unpriced),
        "known_usd": summary.spent_microusd / 1e6,
        "unpriced_calls": summary.unpriced,
        "reserved_usd": summary.reserved_microusd / 1e6,
        "created_s": glance.header.created_s,
        "elapsed_s": glance.elapsed_s,
        **_rest_json(glance, reader),
        "slowest": [
            {"task": row.name, "seconds": took_s} for row, took_s in slowest(reader, glance)
        ],
        "failed": [
            {"task": row.name, "reason": row.fault, "attempts": row.attempt}
            for row in islice(glance.rows(reader, "failed"), LISTED_MAX)
        ],
        "effects": _effects_json(reader),
        "agents": {
            accounts[-1].task: agent_json(accounts)
            for accounts in accounts_by_key(reader.folder).values()
        },
        "finished": None if glance.standing.finished is None else asdict(glance.standing.finished),
    }


def _rest_json(glance: Glance, reader: JournalReader) -> dict[str, object]:
    """When it will be over, and at best, while it goes on."""
    if not glance.verdict.is_live:
        return {}
    from headway.watch.outlook import outlook, source_of

    ahead = outlook(reader, glance, source_of(reader))
    rest = ahead.rest
    return {
        "eta_s": rest.eta_s,
        "bound_s": rest.bound_s,
        "bound_by": rest.binding,
        "waits_for": ahead.waits_for,
    }


def _effects_json(reader: JournalReader) -> dict[str, object]:
    known = known_of(reader)
    return {**asdict(known.statistics()), "doubts": [doubt.key for doubt in known.doubts()]}


def _time_words(glance: Glance) -> str:
    words = f"{duration(glance.elapsed_s)} since {clock(glance.header.created_s, glance.now_s)}"
    if glance.standing.strategy:
        words += f", {glance.standing.strategy}"
    if glance.standing.parts > 1:
        words += f", resumed {count(glance.standing.parts - 1, 'time')}"
    return words


def _labelled(label: str, text: Text) -> Text:
    from rich.text import Text

    return Text.assemble("  ", (label.ljust(LABEL_CELLS), "dim"), text)
