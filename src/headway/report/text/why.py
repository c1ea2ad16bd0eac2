"""Explains a task: why it has not started, or what happened to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from headway.agents.shell import ShimClient
from headway.engine.engine import replayed
from headway.engine.events import TaskSkipped, TaskStarted
from headway.engine.explain import ReasonNames, why
from headway.engine.record import Fact, Header, TaskRow
from headway.engine.state import Rules, State
from headway.engine.strategy import parse
from headway.errors import BadValueError, PlanError, did_you_mean
from headway.journal.folder import kept_source
from headway.journal.reader import JournalReader, RecordedEvent
from headway.plans.expand import graph_of
from headway.plans.fan_in import shapes_of, with_levels
from headway.plans.graph import Graph, TaskGroup
from headway.plans.load import plan_from
from headway.report.text.logs import told
from headway.report.text.runs import (
    NAMES_HINTED_MAX,
    Glance,
    clean_name,
    find_row,
    look,
    state_words,
)
from headway.report.text.terminal import clean
from headway.report.text.words import clock, count, duration, fault_line, one_line
from headway.run.each import EachSource, EachWork
from headway.run.plan_run import PlanSource
from headway.state.shared import decode

if TYPE_CHECKING:
    from rich.console import Console


NAME_CELLS_MAX: Final = 60

ADVICE: Final = {
    "access": "the key, the model's name or the address is wrong: correct it, then resume",
    "request": "the call itself is wrong: change the task, then resume",
    "billing": "the account has no credit: pay, then resume",
    "spend_cap": "the account's own spending limit is reached: raise it, then resume",
    "timeout": "give it more time (`timeout:`), or less to do",
    "function": "the function raised: mend it, then resume",
    "command": "the command failed: its output is in the logs",
    "unfit": "the answer is not what was asked for: change prompt or schema, then resume",
}
"""What helps against a fault that waiting does not mend."""


class KnownRun(Struct, frozen=True):
    """What a run was to do, as far as it can be told without performing it."""

    graph: Graph
    rules: Rules
    label: Callable[[int, int], str]
    """The name of a group's member."""


class Cause(Struct, frozen=True):
    """Where a task is, why, how it came there, and what can be done."""

    task: str
    state: str
    because: str
    story: tuple[str, ...] = ()
    advice: str = ""


def cause_of(reader: JournalReader, word: str, known: Callable[[], KnownRun | None]) -> Cause:
    """Why the task of this name is where it is; `known` is asked if it has not started."""
    glance = look(reader)
    row = find_row(reader, word)
    if row is not None and row.state == "skipped":
        return _skipped(reader, row, glance)
    if row is not None and row.state in ("proposed", "stale"):
        return _judged(reader, row, known, glance)
    if row is not None:
        return _started(reader, row, glance)
    found = known()
    if found is None:
        raise _unknown(word, (row.name for row in reader.rows()))
    return _pending(reader, word, found, glance)


def _story(facts: Iterable[Fact], now_s: float) -> tuple[str, ...]:
    return tuple(f"{clock(fact.at_s, now_s)}  {told(fact, '').strip()}" for fact in facts)


def _started(reader: JournalReader, row: TaskRow, glance: Glance) -> Cause:
    facts = [recorded.event for recorded in reader.events(key=row.key)]
    story = _story(facts, glance.now_s)
    first = next((fact for fact in facts if isinstance(fact, TaskStarted)), None)
    began = "" if first is None else (
        f"it started {duration(max(0.0, first.at_s - glance.summary.first_s))} after the run "
        f"began: {first.reason}"
    )  # fmt: skip
    took = duration(max(0.0, row.ended_s - row.started_s))
    if row.state == "finished":
        because = f"{began}; attempt {row.attempt} gave its result in {took}"
        return Cause(row.name, "finished", because, story)
    if row.state == "failed":
        because = f"{count(row.attempt, 'attempt')} failed, the last with {_said(row)}"
        kind = row.fault.partition(":")[0]
        advice = ADVICE.get(kind, f"headway resume {glance.header.run} tries it again")
        return Cause(row.name, "failed", because, story, advice)
    if not glance.verdict.is_live:
        because = f"attempt {row.attempt} had no end when the run's process was gone"
        advice = f"headway resume {glance.header.run}"
        return Cause(row.name, "cut off", because, story, advice)
    if row.state == "delayed":
        return Cause(row.name, "delayed", f"attempt {row.attempt} failed: {_said(row)}", story)
    since = duration(max(0.0, glance.now_s - row.started_s))
    return Cause(row.name, "running", f"attempt {row.attempt} for {since}; {began}", story)


def _judged(
    reader: JournalReader, row: TaskRow, known: Callable[[], KnownRun | None], glance: Glance
) -> Cause:
    """An attempt has ended, and its task has not: those before it decide what becomes of it."""
    story = _story((one.event for one in reader.events(key=row.key)), glance.now_s)
    if row.state == "stale":
        what = row.fault.removeprefix("stale: ")
        because = f"attempt {row.attempt} was for nothing: `{one_line(what, 200)}`, which it had "
        because += "read, has changed since. It runs again"
    else:
        because = f"attempt {row.attempt} has ended, and tasks before it may still change what it"
        because += " has read"
    if not glance.verdict.is_live:
        advice = f"headway resume {glance.header.run}"
        return Cause(row.name, row.state, f"{because}; no process performs the run", story, advice)
    found, number = known(), _number(reader, row.key)
    if row.state == "proposed" and found is not None and number is not None:
        state, names = _replayed(reader, found, glance)
        _propose(reader, row, state, number)
        because = why(state, number, glance.now_s, names).words
    return Cause(row.name, row.state, because, story)


def _propose(reader: JournalReader, row: TaskRow, state: State, task: int) -> None:
    """Facts do not tell what an attempt has read: that is kept beside them."""
    touched = reader.body(row.ending.access) if row.ending.access else None
    if touched is not None and state.coherence is not None and state.coherence.has(task):
        state.coherence.note(task, decode(touched))
        state.coherence.propose(task)


def _skipped(reader: JournalReader, row: TaskRow, glance: Glance) -> Cause:
    skips = [recorded.event for recorded in reader.events(key=row.key)]
    blamed = next((fact.because for fact in reversed(skips) if isinstance(fact, TaskSkipped)), None)
    failed = ((other.name, _number(reader, other.key)) for other in reader.rows("failed"))
    culprit = next((name for name, number in failed if number == blamed), None)
    if culprit is None:
        return Cause(row.name, "skipped", "something that it needs has failed")
    name = one_line(culprit, NAME_CELLS_MAX)
    advice = f"headway why {glance.header.run} '{clean_name(culprit)}'"
    return Cause(row.name, "skipped", f"`{name}`, which it needs, has failed", (), advice)


def _pending(reader: JournalReader, word: str, known: KnownRun, glance: Glance) -> Cause:
    state, names = _replayed(reader, known, glance)
    name = names.task
    task = _task_named(word, [name(task) for task in range(state.ready_set.numbers.total)])
    now_s = time.time() if glance.verdict.is_live else glance.summary.last_s
    answer = why(state, task, now_s, names)
    if not glance.verdict.is_live:
        advice = f"headway resume {glance.header.run}"
        because = f"no process performs the run ({state_words(glance)})"
        if any(one.kind == "needs" for one in answer.blockers):
            because += "; " + "; ".join(one.words for one in answer.blockers if one.kind == "needs")
        return Cause(name(task), "not started", because, (), advice)
    group = known.graph.groups[state.place(task)[0]]
    if answer.status == "free" and group.is_local and state.local:
        busy = count(state.local, "task")
        words = f"this machine has no room beside {busy} of this run"
        return Cause(name(task), "not started", words)
    return Cause(name(task), "not started", answer.words)


def _replayed(reader: JournalReader, known: KnownRun, glance: Glance) -> tuple[State, ReasonNames]:
    rules = known.rules
    if glance.standing.strategy:
        rules = Rules(parse(glance.standing.strategy), rules.retries, rules.halt, rules.ceiling)
    recorded = list(reader.events())
    state = replayed(known.graph, rules, (one.event for one in recorded))
    started = _started_names(reader, recorded)
    now_s = time.time() if glance.verdict.is_live else glance.summary.last_s

    def name(task: int) -> str:
        return started.get(task) or known.label(*state.place(task))

    return state, ReasonNames(name, lambda at_s: clock(at_s, now_s))


def _started_names(reader: JournalReader, recorded: list[RecordedEvent]) -> dict[int, str]:
    """Of tasks that have started the journal knows the names, also where the plan does not yet."""
    by_key = {row.key: row.name for row in reader.rows()}
    return {
        one.event.task: by_key[one.key]
        for one in recorded
        if isinstance(one.event, TaskStarted) and one.key in by_key
    }


def _task_named(word: str, names: list[str]) -> int:
    if word in names:
        return names.index(word)
    shown = " ".join(word.split())
    near = [number for number, name in enumerate(names) if shown in " ".join(name.split())]
    if len(near) != 1:
        raise _unknown(word, iter(names))
    return near[0]


def _unknown(word: str, names: Iterator[str]) -> BadValueError:
    known = list(islice(names, NAMES_HINTED_MAX))
    if not known:
        return BadValueError("this run has no tasks yet")
    return BadValueError(
        f"this run has no task `{one_line(word, NAME_CELLS_MAX)}`", hint=did_you_mean(word, known)
    )


def _number(reader: JournalReader, key: bytes) -> int | None:
    numbers = [getattr(recorded.event, "task", None) for recorded in reader.events(key=key)]
    return numbers[-1] if numbers else None


def _said(row: TaskRow) -> str:
    return one_line(fault_line(row.fault) or "no reason", 300)


# The answer to `why`, as a person reads it.


def draw_cause(console: Console, cause: Cause) -> None:
    from rich.text import Text

    name = one_line(cause.task, 80)
    line = Text.assemble((name, "bold"), f" is {cause.state}: {clean(cause.because)}")
    console.print(line, soft_wrap=True)
    for fact in cause.story:
        console.print(Text(f"  {fact}", "dim"), soft_wrap=True)
    if cause.advice:
        console.print(f"hint: {cause.advice}", soft_wrap=True)


# What a run was to do, by what is kept of it: a plan is read again, nothing of it is executed.


def known(header: Header, folder: str) -> KnownRun | None:
    """What the run was to do; nobody but its own process knows that of Python functions."""
    if header.kind == "each":
        return _known_each(header, folder)
    try:
        return _known_plan(header, folder) if header.kind == "plan" else None
    except PlanError:
        return None  # A file that the plan names is gone.


def _known_plan(header: Header, folder: str) -> KnownRun:
    source = PlanSource.kept(folder, header.source)
    path = Path(source.path)
    expanded = plan_from(source.text, path.parent, path.name, source.may_leave).expanded
    graph = with_levels(graph_of(expanded), expanded, shapes_of(expanded))

    def label(index: int, member: int) -> str:
        if index >= len(expanded.groups):
            return f"{graph.groups[index].name}[{member + 1}]"
        group = expanded.groups[index]
        # Who the members of a group are that was found at run time, only its results tell.
        return f"{group.name}[{member}]" if group.count is None else group.label(member)

    return KnownRun(graph, Rules(ceiling=source.jobs or inf), label)


def _known_each(header: Header, folder: str) -> KnownRun:
    source = EachSource.decoded(kept_source(folder, header.source))
    plan = source.plan()
    graph = Graph((TaskGroup("each", plan.count(), retries=source.retries, is_local=True),))
    work = EachWork(plan, header.folder, ShimClient(header.folder))
    return KnownRun(graph, Rules(ceiling=source.jobs), lambda _, member: work.label(member))
