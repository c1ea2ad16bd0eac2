"""Explains a task: why it has not started, or what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from typing import Final

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from headway.agents.shell import ShimClient
from headway.engine.engine import replayed
from headway.engine.explain import ReasonNames, why
from headway.engine.record import TaskRow
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
from headway.report.text.run_view import NAMES_HINTED_MAX, RunView, find_row, must_be_one
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
    run = RunView(reader, is_whole=True)
    row = find_row(reader, word)
    if row is None:
        found = known()
        if found is None:
            raise _unknown(word, [row.name for row in islice(reader.rows(), NAMES_HINTED_MAX)])
        return _pending(run, word, found)
    task = run.history.tasks[row.key]
    if task.state == "skipped":
        return _skipped(run, row)
    facts = [recorded.event for recorded in reader.events(key=row.key)]
    story = tuple(f"{clock(fact.at_s, run.now_s)}  {told(fact, '').strip()}" for fact in facts)
    if task.state in ("proposed", "stale"):
        return _judged(run, row, story, known)
    return _started(run, row, story)


def _started(run: RunView, row: TaskRow, story: tuple[str, ...]) -> Cause:
    task = run.history.tasks[row.key]
    word, fault = run.word_of(task), one_line(fault_line(row.fault) or "no reason", 300)
    began = f"it started {duration(task.first_s)} after the run began: {task.reason}"
    resume = f"headway resume {run.header.run}"
    if task.state == "finished":
        took = duration((task.ended_s or 0.0) - task.started_s)
        because = f"{began}; attempt {row.attempt} gave its result in {took}"
        return Cause(row.name, word, because, story)
    if task.state == "failed":
        because = f"{count(row.attempt, 'attempt')} failed, the last with {fault}"
        return Cause(row.name, word, because, story, advice_for(row.fault, resume))
    if not run.is_live:
        because = f"attempt {row.attempt} had no end when the run's process was gone"
        if task.state == "delayed":
            because = f"attempt {row.attempt} failed: {fault}"
        return Cause(row.name, word, because, story, resume)
    if task.state == "delayed":
        again = "" if task.again_s == inf else f", again at {clock(task.again_s, run.now_s)}"
        return Cause(row.name, word, f"attempt {row.attempt} failed: {fault}{again}", story)
    since = duration(max(0.0, run.history.at(run.now_s) - task.started_s))
    because = f"attempt {row.attempt} for {since}; {began}"
    if not task.quiet_s:
        return Cause(row.name, word, because, story)
    advice = f"headway logs {run.header.run} '{runs.clean_name(row.name)}'"
    return Cause(row.name, word, f"{because}; it {stuck_words(task.quiet_s)}", story, advice)


def advice_for(fault: str, resume: str) -> str:
    """What helps against a failure, by its kind."""
    return ADVICE.get(fault.partition(":")[0], f"{resume} tries it again")


def _judged(
    run: RunView, row: TaskRow, story: tuple[str, ...], known: Callable[[], KnownRun | None]
) -> Cause:
    """An attempt has ended, and its task has not: those before it decide what becomes of it."""
    task, word = run.history.tasks[row.key], run.word_of(run.history.tasks[row.key])
    because = "has ended, and tasks before it may still change what it has read"
    if task.state == "stale":
        what = one_line(row.fault.removeprefix("stale: "), 200)
        because = f"was for nothing: `{what}`, which it had read, has changed since. It runs again"
    because = f"attempt {row.attempt} {because}"
    if not run.is_live:
        because += "; no process performs the run"
        return Cause(row.name, word, because, story, f"headway resume {run.header.run}")
    found = known()
    if task.state == "proposed" and found is not None:
        state, names = _replayed(run, found)
        # Events do not contain what an attempt has read: that is kept beside them.
        touched = run.reader.body(row.ending.access) if row.ending.access else None
        if touched is not None and state.coherence is not None and state.coherence.has(task.number):
            state.coherence.note(task.number, decode(touched))
            state.coherence.propose(task.number)
        because = why(state, task.number, run.now_s, names).words
    return Cause(row.name, word, because, story)


def _skipped(run: RunView, row: TaskRow) -> Cause:
    tasks = run.history.tasks
    blamed = tasks[row.key].because
    culprit = next((other.key for other in tasks.values() if other.number == blamed), None)
    if culprit is None:
        return Cause(row.name, "skipped", "something that it needs has failed")
    name = run.name(culprit)
    because = f"`{one_line(name)}`, which it needs, has failed"
    advice = f"headway why {run.header.run} '{runs.clean_name(name)}'"
    return Cause(row.name, "skipped", because, (), advice)


def _pending(run: RunView, word: str, known: KnownRun) -> Cause:
    state, names = _replayed(run, known)
    labels = [names.task(task) for task in range(state.ready_set.numbers.total)]
    shown = " ".join(word.split())
    near = [number for number, name in enumerate(labels) if shown in " ".join(name.split())]
    if word not in labels:
        must_be_one(word, [labels[number] for number in near])
        if not near:
            raise _unknown(word, labels)
    task = labels.index(word) if word in labels else near[0]
    answer = why(state, task, run.now_s if run.is_live else run.history.last_s, names)
    words, advice = answer.words, ""
    if not run.is_live:
        needs = [one.words for one in answer.blockers if one.kind == "needs"]
        words = "; ".join([f"no process performs the run ({runs.state_words(run)})", *needs])
        return Cause(labels[task], "not started", words, (), f"headway resume {run.header.run}")
    group = known.graph.groups[state.place(task)[0]]
    if answer.status == "free" and group.is_local and state.local:
        words = f"this machine has no room beside {count(state.local, 'task')} of this run"
    needs_task = any(one.kind == "needs" for one in answer.blockers)
    return Cause(labels[task], "waiting for a task" if needs_task else "queued", words, (), advice)


def _replayed(run: RunView, known: KnownRun) -> tuple[State, ReasonNames]:
    rules, strategy = known.rules, run.history.standing.strategy
    if strategy:
        rules = Rules(parse(strategy), rules.retries, rules.halt, rules.ceiling)
    state = replayed(known.graph, rules, (one.event for one in run.reader.events()))
    # The journal has the names of started tasks, also where the plan does not have them yet.
    names = {row.key: row.name for row in run.reader.rows()}
    tasks = run.history.tasks.values()
    started = {task.number: names[task.key] for task in tasks if task.key in names}
    now_s = run.now_s if run.is_live else run.history.last_s

    def name(task: int) -> str:
        return started.get(task) or known.label(*state.place(task))

    return state, ReasonNames(name, lambda at_s: clock(at_s, now_s))


def _unknown(word: str, names: Sequence[str]) -> BadValueError:
    if not names:
        return BadValueError("this run has no tasks yet")
    hint = did_you_mean(word, names[:NAMES_HINTED_MAX])
    return BadValueError(f"this run has no task `{one_line(word)}`", hint=hint)


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
