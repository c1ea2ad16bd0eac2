"""The engine's state, rebuilt from what a journal holds: facts in, state out, nothing decided.

Law: `apply` is all that it uses; what an earlier process had finished is restored as a resume
does it, so that the state is the one that the last process had.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.engine.engine import Rules, State, apply, begin
from headway.core.engine.events import (
    GroupExpanded,
    RunBegan,
    TaskFinished,
    TaskReused,
    TaskStarted,
)
from headway.core.engine.record import (
    EffectDone,
    EffectIntended,
    Fact,
    MoneyReserved,
    ReplyKept,
)
from headway.core.engine.restore import restore
from headway.core.plan.graph import Graph


def replayed(graph: Graph, rules: Rules, facts: Iterable[Fact]) -> State:
    """The state after these facts, which may be of several processes in turn."""
    finished: set[int] = set()
    attempts: dict[int, int] = {}
    grown: dict[int, GroupExpanded] = {}
    last: list[Fact] = []
    for fact in facts:
        if isinstance(fact, RunBegan):
            _take(last, finished, attempts, grown)
            last = []
        last.append(fact)
    state = begin(graph, rules)
    for expansion in grown.values():
        apply(state, expansion)
    restore(state, finished, attempts)
    for fact in last:
        if isinstance(fact, MoneyReserved | ReplyKept | EffectIntended | EffectDone):
            continue
        if isinstance(fact, GroupExpanded) and fact.group in grown:
            continue
        apply(state, fact)
    return state


def _take(
    facts: list[Fact], finished: set[int], attempts: dict[int, int], grown: dict[int, GroupExpanded]
) -> None:
    """What a process left behind for the next one."""
    for fact in facts:
        if isinstance(fact, TaskFinished | TaskReused):
            finished.add(fact.task)
        elif isinstance(fact, TaskStarted):
            attempts[fact.task] = fact.attempt
        elif isinstance(fact, GroupExpanded):
            grown.setdefault(fact.group, fact)
