"""Explains a task: why it has not started, or what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import inf

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from headway.agents.shell import ShimClient
from headway.engine.engine import replayed
from headway.engine.explain import ReasonNames, why
from headway.engine.record import TaskRow
from headway.engine.state import Rules, State
from headway.engine.strategy import parse
from headway.errors import BadValueError, PlanError
from headway.journal.documents import source_of
from headway.journal.reader import JournalReader
from headway.plans.expand import ExpandedPlan, graph_of
from headway.plans.fan_in import shapes_of, with_levels
from headway.plans.graph import Graph, TaskGroup
from headway.plans.resources import shown_key
from headway.plans.rounds import verdict_of, with_rounds
from headway.report.history import TaskHistory
from headway.report.text import runs
from headway.report.text.logs import event_words, stuck_words
from headway.report.text.run_view import NAMES_HINTED_MAX, RunView, find_row, match_name, task_hint
from headway.report.text.terminal import clean, print_lines
from headway.report.text.words import (
    clean_name,
    clock,
    count,
    duration,
    fault_line,
    mend_words,
    one_line,
)
from headway.run.each import EachSource, EachWork
from headway.run.plan_run import PlanSource
from headway.run.resume import plan_of_run
from headway.state.shared import decode


class KnownRun(Struct, frozen=True):
    """What a run was to do, as far as that is known without performing it."""

    graph: Graph
    rules: Rules
    label: Callable[[int, int], str]
    plan: ExpandedPlan | None = None


class Explanation(Struct, frozen=True):
    """Why a task is where it is, and what helps."""

    task: str
    state: str
    because: str
    events: tuple[str, ...] = ()
    advice: str = ""


def explain(reader: JournalReader, word: str, known: Callable[[], KnownRun | None]) -> Explanation:
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
        because, advice = _skipped(run, task)
    elif task.state in ("proposed", "stale"):
        because, advice = _judged(run, row, known)
    else:
        because, advice = _started(run, row)
        if run.header.kind == "plan" and (of_round := _round_words(run, row, known())):
            because = f"{because}; {of_round}"
    events = (
        f"{clock(one.event.at_s, run.now_s)}  {event_words(one.event, '').strip()}"
        for one in reader.events(key=row.key)
    )
    return Explanation(row.name, run.word_of(task), because, tuple(events), advice)


def _started(run: RunView, row: TaskRow) -> tuple[str, str]:
    task, name = run.history.tasks[row.key], run.header.run
    fault = one_line(fault_line(row.fault) or "no reason", 300)
    began = f"it started {duration(task.first_s)} after the run began: {task.reason}"
    if task.state == "finished":
        took = duration((task.ended_s or 0.0) - task.started_s)
        return f"{began}; attempt {row.attempt} gave its result in {took}", ""
    if task.state == "failed":
        because = f"{count(row.attempt, 'attempt')} failed, the last with {fault}"
        return because, mend_words(row.fault, name, row.name)
    if task.state == "delayed":
        again_s = run.again_s(task) if run.is_live else inf
        again = "" if again_s == inf else f", again at {clock(again_s, run.now_s)}"
        advice = "" if run.is_live else f"headway resume {name}"
        return f"attempt {row.attempt} failed: {fault}{again}", advice
    if not run.is_live:
        because = f"attempt {row.attempt} had no end when the run's process was gone"
        return because, f"headway resume {name}"
    since = duration(max(0.0, run.history.at(run.now_s) - task.started_s))
    because = f"attempt {row.attempt} for {since}; {began}"
    if not task.quiet_s:
        return because, ""
    advice = f"headway logs {name} '{clean_name(row.name)}'"
    return f"{because}; it {stuck_words(task.quiet_s)}", advice


def _round_words(run: RunView, row: TaskRow, found: KnownRun | None) -> str:
    """Which round of a loop it is, and why there is one."""
    groups = found.plan.groups if found is not None and found.plan is not None else ()
    name = run.group_of(row.key)
    part = next((group.round for group in groups if group.name == name), None)
    if part is None:
        return ""
    words = f"round {part.number} of at most {part.last}"
    if part.number == 1:
        return words
    if row.state == "finished" and row.ending.is_renewed:
        return f"{words}: `{part.judge}` accepted what was there, and nothing was done"
    for one in run.rows("finished"):
        body = run.reader.body(one.ending.body) if run.group_of(one.key) == part.judge else None
        verdict = None if body is None else verdict_of(body, part.revise.accept)
        if verdict is not None and not verdict.is_accepted:
            return f"{words}: `{one_line(one.name)}` rejected: {one_line(verdict.reason, 200)}"
    return words


def _judged(run: RunView, row: TaskRow, known: Callable[[], KnownRun | None]) -> tuple[str, str]:
    """An attempt has ended, and its task has not: those before it decide what becomes of it."""
    task = run.history.tasks[row.key]
    because = "has ended, and tasks before it may still change what it has read"
    if task.state == "stale":
        what = one_line(shown_key(row.fault.removeprefix("stale: ")), 200)
        because = f"was for nothing: `{what}`, which it had read, has changed since. It runs again"
    because = f"attempt {row.attempt} {because}"
    if not run.is_live:
        return f"{because}; no process performs the run", f"headway resume {run.header.run}"
    found = known()
    if task.state == "proposed" and found is not None:
        state, names = _replayed(run, found)
        # Events do not contain what an attempt has read: that is kept beside them.
        touched = run.reader.body(row.ending.access) if row.ending.access else None
        if touched is not None and state.coherence is not None and state.coherence.has(task.number):
            state.coherence.note(task.number, decode(touched))
            state.coherence.propose(task.number)
        because = why(state, task.number, run.now_s, names).words
    return because, ""


def _skipped(run: RunView, task: TaskHistory) -> tuple[str, str]:
    tasks = run.history.tasks.values()
    culprit = next((other.key for other in tasks if other.number == task.because), None)
    if culprit is None:
        return "something that it needs has failed", ""
    name = run.name(culprit)
    advice = f"headway why {run.header.run} '{clean_name(name)}'"
    return f"`{one_line(name)}`, which it needs, has failed", advice


def _pending(run: RunView, word: str, known: KnownRun) -> Explanation:
    state, names = _replayed(run, known)
    labels = [names.task(task) for task in range(state.ready_set.numbers.total)]
    name = match_name(word, labels)
    if name is None:
        raise _unknown(word, labels)
    task = labels.index(name)
    answer = why(state, task, run.now_s if run.is_live else run.history.last_s, names)
    words = answer.words
    if not run.is_live:
        words = f"no process performs the run ({runs.state_words(run)})"
        words = "; ".join([words, *answer.needs])
        return Explanation(name, "not started", words, advice=f"headway resume {run.header.run}")
    group = known.graph.groups[state.place(task)[0]]
    if not answer.blockers and group.is_local and state.local:
        words = f"this machine has no room beside {count(state.local, 'task')} of this run"
    return Explanation(name, "waiting for a task" if answer.needs else "queued", words)


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
    hint = task_hint(word, names)
    return BadValueError(f"this run has no task `{one_line(word)}`", hint=hint)


def draw_explanation(console: Console, found: Explanation) -> None:
    name = one_line(found.task, 80)
    line = Text.assemble((name, "bold"), f" is {found.state}: {clean(found.because)}")
    console.print(line, soft_wrap=True)
    print_lines(console, (f"  {fact}" for fact in found.events), "dim")
    if found.advice:
        console.print(f"hint: {found.advice}", soft_wrap=True)


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
    expanded = with_rounds(plan_of_run(reader, source).expanded)
    graph = with_levels(graph_of(expanded), expanded, shapes_of(expanded))

    def label(index: int, member: int) -> str:
        if index >= len(expanded.groups):
            return f"{graph.groups[index].name}[{member + 1}]"
        group = expanded.groups[index]
        # The members of a group that was found at run time are known from its results only.
        return f"{group.name}[{member}]" if group.count is None else group.label(member)

    return KnownRun(graph, Rules(ceiling=source.jobs or inf), label, expanded)
