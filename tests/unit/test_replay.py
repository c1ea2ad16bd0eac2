"""The engine's state from a journal's facts: also of a run that several processes have had."""

from __future__ import annotations

from headway.engine.engine import begin, replayed, step
from headway.engine.events import (
    Admitted,
    Began,
    Expanded,
    Finished,
    GroupExpanded,
    RunBegan,
    TaskFinished,
    TaskReused,
    TaskStarted,
)
from headway.engine.explain import why
from headway.engine.record import Fact, MoneyReserved, ReplyKept
from headway.engine.state import Rules
from headway.engine.strategy import Strategy
from headway.plans.graph import Graph, Need, TaskGroup

RULES = Rules(Strategy("fixed", 2))


def graph() -> Graph:
    return Graph((TaskGroup("probe", 3), TaskGroup("verdict", 1, (Need(0),))))


def test_replay_gives_the_state_that_the_process_had() -> None:
    lived = begin(graph(), RULES)
    facts: list[Fact] = []
    for happened in (Began(), Admitted(0), Finished(0, 1), Admitted(1)):
        facts += step(lived, happened, 1.0).events
    facts += [MoneyReserved(1, 1, 1.0, 5), ReplyKept(1, 1, 1.0, b"digest")]
    again = replayed(graph(), RULES, facts)
    assert (again.active, again.waiting) == (lived.active, lived.waiting)
    assert (again.finished, again.is_begun) == (1, True)
    assert why(again, 3, 1.0) == why(lived, 3, 1.0)


def test_what_an_earlier_process_finished_is_finished() -> None:
    facts: list[Fact] = [
        RunBegan(0.0, "fixed:2"),
        TaskStarted(0, 1, 0.0, "room"),
        TaskStarted(1, 1, 0.0, "room"),
        TaskFinished(0, 1, 1.0),
        TaskStarted(2, 1, 1.0, "room"),
        TaskReused(2, 1.0),
        RunBegan(9.0, "fixed:2"),
        TaskStarted(1, 2, 9.0, "room"),
    ]
    state = replayed(graph(), RULES, facts)
    assert state.active == {1: 2}
    assert state.finished == 2
    answer = why(state, 3, 9.0)
    assert answer.status == "blocked"
    assert answer.words == "needs probe[1], which is started"


def test_a_group_that_an_earlier_process_found_is_known() -> None:
    spread = Graph((TaskGroup("list"), TaskGroup("each", None, (Need(0),))))
    first = begin(spread, RULES)
    facts: list[Fact] = []
    for happened in (Began(), Finished(0, 1), Expanded(1, 3), Finished(1, 1)):
        facts += step(first, happened, 1.0).events
    again: list[Fact] = [
        RunBegan(9.0, "fixed:2"),
        GroupExpanded(1, 3, 9.0),
        TaskStarted(2, 2, 9.0, "room"),
    ]
    state = replayed(spread, RULES, [*facts, *again])
    assert state.ready_set.numbers.total == 4
    assert (state.finished, state.active) == (2, {2: 2})
    fresh = replayed(spread, RULES, facts)
    assert fresh.ready_set.numbers.total == 4
