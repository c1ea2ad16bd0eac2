"""Why a task is where it is: from its facts if it has started, from the engine's state if not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from headway.core.engine.access import decode
from headway.core.engine.engine import Rules, State
from headway.core.engine.events import TaskSkipped, TaskStarted
from headway.core.engine.record import Fact, Row
from headway.core.engine.strategy import parse
from headway.core.engine.why import Blocked, Free, Names, why
from headway.core.plan.graph import Graph
from headway.core.replay import replayed
from headway.errors import BadValueError, did_you_mean
from headway.runtime.journal_reader import JournalReader, Recorded
from headway.watch.glance import Glance, find_row, look
from headway.watch.harvest import NAMES_HINTED_MAX
from headway.watch.status import clean_name, state_words
from headway.watch.telling import told
from headway.watch.words import clock, count, duration, fault_line, one_line

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


@dataclass(frozen=True, slots=True)
class Known:
    """What a run was to do, as far as it can be told without performing it."""

    graph: Graph
    rules: Rules
    label: Callable[[int, int], str]
    """The name of a group's member."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Where a task is, why, how it came there, and what can be done."""

    task: str
    state: str
    because: str
    story: tuple[str, ...] = ()
    advice: str = ""


def cause_of(reader: JournalReader, word: str, known: Callable[[], Known | None]) -> Cause:
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


def _started(reader: JournalReader, row: Row, glance: Glance) -> Cause:
    """From the facts alone: when it started and why, what came of each attempt."""
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
        return Cause(row.name, "failed", because, story, _advice(row, glance))
    if not glance.verdict.is_live:
        because = f"attempt {row.attempt} had no end when the run's process was gone"
        advice = f"headway resume {glance.header.run}"
        return Cause(row.name, "cut off", because, story, advice)
    if row.state == "delayed":
        return Cause(row.name, "delayed", f"attempt {row.attempt} failed: {_said(row)}", story)
    since = duration(max(0.0, glance.now_s - row.started_s))
    return Cause(row.name, "running", f"attempt {row.attempt} for {since}; {began}", story)


def _judged(
    reader: JournalReader, row: Row, known: Callable[[], Known | None], glance: Glance
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


def _propose(reader: JournalReader, row: Row, state: State, task: int) -> None:
    """Facts do not tell what an attempt has read: that is kept beside them."""
    touched = reader.body(row.ending.access) if row.ending.access else None
    if touched is not None and state.coherence is not None and state.coherence.has(task):
        state.coherence.note(task, decode(touched))
        state.coherence.propose(task)


def _skipped(reader: JournalReader, row: Row, glance: Glance) -> Cause:
    """Who is to blame: the task that it needs, by name."""
    skips = [recorded.event for recorded in reader.events(key=row.key)]
    blamed = next((fact.because for fact in reversed(skips) if isinstance(fact, TaskSkipped)), None)
    failed = ((other.name, _number(reader, other.key)) for other in reader.rows("failed"))
    culprit = next((name for name, number in failed if number == blamed), None)
    if culprit is None:
        return Cause(row.name, "skipped", "something that it needs has failed")
    name = one_line(culprit, NAME_CELLS_MAX)
    advice = f"headway why {glance.header.run} '{clean_name(culprit)}'"
    return Cause(row.name, "skipped", f"`{name}`, which it needs, has failed", (), advice)


def _pending(reader: JournalReader, word: str, known: Known, glance: Glance) -> Cause:
    """From the engine's state, as the journal gives it back."""
    state, names = _replayed(reader, known, glance)
    name = names.task
    task = _task_named(word, [name(task) for task in range(state.ready_set.numbers.total)])
    now_s = time.time() if glance.verdict.is_live else glance.summary.last_s
    answer = why(state, task, now_s, names)
    if not glance.verdict.is_live:
        advice = f"headway resume {glance.header.run}"
        because = f"no process performs the run ({state_words(glance)})"
        if isinstance(answer, Blocked) and any(one.kind == "needs" for one in answer.blockers):
            because += "; " + "; ".join(one.words for one in answer.blockers if one.kind == "needs")
        return Cause(name(task), "not started", because, (), advice)
    group = known.graph.groups[state.place(task)[0]]
    if isinstance(answer, Free) and group.is_local and state.local:
        busy = count(state.local, "task")
        words = f"this machine has no room beside {busy} of this run"
        return Cause(name(task), "not started", words)
    return Cause(name(task), "not started", answer.words)


def _replayed(reader: JournalReader, known: Known, glance: Glance) -> tuple[State, Names]:
    """The engine's state by all facts, and what its tasks are called."""
    rules = known.rules
    if glance.standing.strategy:
        rules = Rules(parse(glance.standing.strategy), rules.retries, rules.halt, rules.ceiling)
    recorded = list(reader.events())
    state = replayed(known.graph, rules, (one.event for one in recorded))
    started = _started_names(reader, recorded)
    now_s = time.time() if glance.verdict.is_live else glance.summary.last_s

    def name(task: int) -> str:
        return started.get(task) or known.label(*state.place(task))

    return state, Names(name, lambda at_s: clock(at_s, now_s))


def _started_names(reader: JournalReader, recorded: list[Recorded]) -> dict[int, str]:
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
    """The number that a task had last."""
    numbers = [getattr(recorded.event, "task", None) for recorded in reader.events(key=key)]
    return numbers[-1] if numbers else None


def _said(row: Row) -> str:
    return one_line(fault_line(row.fault) or "no reason", 300)


def _advice(row: Row, glance: Glance) -> str:
    kind = row.fault.partition(":")[0]
    return ADVICE.get(kind, f"headway resume {glance.header.run} tries it again")
