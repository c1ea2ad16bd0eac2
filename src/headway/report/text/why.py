"""Explains a task: why it has not started, or what happened to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Final

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from headway.agents.shell import ShimClient
from headway.engine.engine import replayed
from headway.engine.events import AttemptStuck, TaskSkipped, TaskStarted
from headway.engine.explain import ReasonNames, why
from headway.engine.record import Fact, TaskRow
from headway.engine.state import Rules, State
from headway.engine.strategy import parse
from headway.errors import BadValueError, PlanError, did_you_mean
from headway.journal.documents import source_of
from headway.journal.reader import JournalReader
from headway.plans.expand import graph_of
from headway.plans.fan_in import shapes_of, with_levels
from headway.plans.graph import Graph, TaskGroup
from headway.report.text import runs
from headway.report.text.logs import stuck_words, told
from headway.report.text.runs import NAMES_HINTED_MAX, Glance, find_row, look
from headway.report.text.terminal import clean, print_lines
from headway.report.text.words import clock, count, duration, fault_line, one_line
from headway.run.each import EachSource, EachWork
from headway.run.plan_run import PlanSource
from headway.run.resume import plan_of_run
from headway.state.shared import decode

ADVICE: Final = {
    "access": "the key, the model's name or the address is wrong: correct it, then resume",
    "request": "the call itself is wrong: change the task, then resume",
    "billing": "the account has no credit: pay, then resume",
    "spend_cap": "the account's own spending limit is reached: raise it, then resume",
    "stuck": "see what it waited for (`headway logs`), or give it more time (`stuck:`)",
    "timeout": "give it more time (`timeout:`), or less to do",
    "function": "the function raised: mend it, then resume",
    "command": "the command failed: its output is in the logs",
    "unfit": "the answer is not what was asked for: change prompt or schema, then resume",
}


class KnownRun(Struct, frozen=True):
    """What a run was to do, as far as it can be told without performing it."""

    graph: Graph
    rules: Rules
    label: Callable[[int, int], str]


class Cause(Struct, frozen=True):
    task: str
    state: str
    because: str
    story: tuple[str, ...] = ()
    advice: str = ""


def cause_of(reader: JournalReader, word: str, known: Callable[[], KnownRun | None]) -> Cause:
    """Why the task of this name is where it is; `known` is called if it has not started."""
    glance = look(reader)
    row = find_row(reader, word)
    if row is None:
        found = known()
        if found is None:
            raise _unknown(word, (row.name for row in reader.rows()))
        return _pending(reader, word, found, glance)
    facts = [recorded.event for recorded in reader.events(key=row.key)]
    if row.state == "skipped":
        return _skipped(reader, row, facts, glance)
    story = tuple(f"{clock(fact.at_s, glance.now_s)}  {told(fact, '').strip()}" for fact in facts)
    if row.state in ("proposed", "stale"):
        return _judged(reader, row, story, known, glance)
    return _started(row, facts, story, glance)


def _started(row: TaskRow, facts: Sequence[Fact], story: tuple[str, ...], glance: Glance) -> Cause:
    first = next((fact for fact in facts if isinstance(fact, TaskStarted)), None)
    began, fault = "", one_line(fault_line(row.fault) or "no reason", 300)
    if first is not None:
        after = duration(max(0.0, first.at_s - glance.summary.first_s))
        began = f"it started {after} after the run began: {first.reason}"
    resume = f"headway resume {glance.header.run}"
    match row.state:
        case "finished":
            took = duration(max(0.0, row.ended_s - row.started_s))
            because = f"{began}; attempt {row.attempt} gave its result in {took}"
            return Cause(row.name, "finished", because, story)
        case "failed":
            because = f"{count(row.attempt, 'attempt')} failed, the last with {fault}"
            advice = ADVICE.get(row.fault.partition(":")[0], f"{resume} tries it again")
            return Cause(row.name, "failed", because, story, advice)
    if not glance.verdict.is_live:
        because = f"attempt {row.attempt} had no end when the run's process was gone"
        return Cause(row.name, "cut off", because, story, resume)
    if row.state == "delayed":
        return Cause(row.name, "delayed", f"attempt {row.attempt} failed: {fault}", story)
    since = duration(max(0.0, glance.now_s - row.started_s))
    because = f"attempt {row.attempt} for {since}; {began}"
    if isinstance(facts[-1], AttemptStuck) and facts[-1].quiet_s:
        return Cause(
            row.name, "running", f"{because}; it {stuck_words(facts[-1].quiet_s)}", story,
            f"headway logs {glance.header.run} '{runs.clean_name(row.name)}'",
        )  # fmt: skip
    return Cause(row.name, "running", because, story)


def _judged(
    reader: JournalReader,
    row: TaskRow,
    story: tuple[str, ...],
    known: Callable[[], KnownRun | None],
    glance: Glance,
) -> Cause:
    """An attempt has ended, and its task has not: those before it decide what becomes of it."""
    because = "has ended, and tasks before it may still change what it has read"
    if row.state == "stale":
        what = one_line(row.fault.removeprefix("stale: "), 200)
        because = f"was for nothing: `{what}`, which it had read, has changed since. It runs again"
    because = f"attempt {row.attempt} {because}"
    if not glance.verdict.is_live:
        because += "; no process performs the run"
        return Cause(row.name, row.state, because, story, f"headway resume {glance.header.run}")
    found, number = known(), _number(reader, row.key)
    if row.state == "proposed" and found is not None and number is not None:
        state, names = _replayed(reader, found, glance)
        # Events do not contain what an attempt has read: that is kept beside them.
        touched = reader.body(row.ending.access) if row.ending.access else None
        if touched is not None and state.coherence is not None and state.coherence.has(number):
            state.coherence.note(number, decode(touched))
            state.coherence.propose(number)
        because = why(state, number, glance.now_s, names).words
    return Cause(row.name, row.state, because, story)


def _skipped(reader: JournalReader, row: TaskRow, facts: Sequence[Fact], glance: Glance) -> Cause:
    blamed = next((fact.because for fact in reversed(facts) if isinstance(fact, TaskSkipped)), None)
    failed = ((other.name, _number(reader, other.key)) for other in reader.rows("failed"))
    culprit = next((name for name, number in failed if number == blamed), None)
    if culprit is None:
        return Cause(row.name, "skipped", "something that it needs has failed")
    because = f"`{one_line(culprit)}`, which it needs, has failed"
    advice = f"headway why {glance.header.run} '{runs.clean_name(culprit)}'"
    return Cause(row.name, "skipped", because, (), advice)


def _pending(reader: JournalReader, word: str, known: KnownRun, glance: Glance) -> Cause:
    state, names = _replayed(reader, known, glance)
    labels = [names.task(task) for task in range(state.ready_set.numbers.total)]
    shown = " ".join(word.split())
    near = [number for number, name in enumerate(labels) if shown in " ".join(name.split())]
    if word not in labels and len(near) != 1:
        raise _unknown(word, iter(labels))
    task = labels.index(word) if word in labels else near[0]
    now_s = time.time() if glance.verdict.is_live else glance.summary.last_s
    answer = why(state, task, now_s, names)
    words, advice = answer.words, ""
    group = known.graph.groups[state.place(task)[0]]
    if not glance.verdict.is_live:
        advice = f"headway resume {glance.header.run}"
        needs = [one.words for one in answer.blockers if one.kind == "needs"]
        words = "; ".join([f"no process performs the run ({runs.state_words(glance)})", *needs])
    elif answer.status == "free" and group.is_local and state.local:
        words = f"this machine has no room beside {count(state.local, 'task')} of this run"
    return Cause(labels[task], "not started", words, (), advice)


def _replayed(reader: JournalReader, known: KnownRun, glance: Glance) -> tuple[State, ReasonNames]:
    rules = known.rules
    if glance.standing.strategy:
        rules = Rules(parse(glance.standing.strategy), rules.retries, rules.halt, rules.ceiling)
    recorded = list(reader.events())
    state = replayed(known.graph, rules, (one.event for one in recorded))
    # The journal has the names of started tasks, also where the plan does not have them yet.
    by_key = {row.key: row.name for row in reader.rows()}
    started = {
        one.event.task: by_key[one.key]
        for one in recorded
        if isinstance(one.event, TaskStarted) and one.key in by_key
    }
    now_s = time.time() if glance.verdict.is_live else glance.summary.last_s

    def name(task: int) -> str:
        return started.get(task) or known.label(*state.place(task))

    return state, ReasonNames(name, lambda at_s: clock(at_s, now_s))


def _unknown(word: str, names: Iterator[str]) -> BadValueError:
    known = list(islice(names, NAMES_HINTED_MAX))
    if not known:
        return BadValueError("this run has no tasks yet")
    return BadValueError(f"this run has no task `{one_line(word)}`", hint=did_you_mean(word, known))


def _number(reader: JournalReader, key: bytes) -> int | None:
    numbers = [getattr(recorded.event, "task", None) for recorded in reader.events(key=key)]
    return numbers[-1] if numbers else None


def draw_cause(console: Console, cause: Cause) -> None:
    name = one_line(cause.task, 80)
    line = Text.assemble((name, "bold"), f" is {cause.state}: {clean(cause.because)}")
    console.print(line, soft_wrap=True)
    print_lines(console, (f"  {fact}" for fact in cause.story), "dim")
    if cause.advice:
        console.print(f"hint: {cause.advice}", soft_wrap=True)


def known(reader: JournalReader) -> KnownRun | None:
    """What the run was to do; of Python functions only their own process knows that."""
    header = reader.header
    if header.kind == "each":
        source = EachSource.decoded(source_of(reader))
        plan = source.plan()
        graph = Graph((TaskGroup("each", plan.count(), retries=source.retries, is_local=True),))
        work = EachWork(plan, header.folder, ShimClient(header.folder))
        return KnownRun(graph, Rules(ceiling=source.jobs), lambda _, member: work.label(member))
    try:
        return _known_plan(reader) if header.kind == "plan" else None
    except PlanError:
        return None  # A file that the plan names is gone.


def _known_plan(reader: JournalReader) -> KnownRun:
    source = PlanSource.kept(reader)
    expanded = plan_of_run(reader, source).expanded
    graph = with_levels(graph_of(expanded), expanded, shapes_of(expanded))

    def label(index: int, member: int) -> str:
        if index >= len(expanded.groups):
            return f"{graph.groups[index].name}[{member + 1}]"
        group = expanded.groups[index]
        # Who the members of a group are that was found at run time, only its results tell.
        return f"{group.name}[{member}]" if group.count is None else group.label(member)

    return KnownRun(graph, Rules(ceiling=source.jobs or inf), label)
