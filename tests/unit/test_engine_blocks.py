"""Blocks and lenient needs in a run: who starts after a failure, sizes that follow, and why."""

from __future__ import annotations

from headway.base.values import Fault
from headway.engine.engine import Step, begin, restore, step
from headway.engine.events import (
    Began,
    Expanded,
    Failed,
    Finished,
    GroupExpanded,
    RunFinished,
    StartAttempt,
    TaskFailed,
    TaskSkipped,
)
from headway.engine.explain import must_end, why
from headway.engine.state import Rules, State
from headway.engine.strategy import ALL_AT_ONCE, Strategy
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.resources import Touches
from headway.state.coherence import Coherence
from headway.state.shared import Shared

HOPELESS = Fault("request")
FORGIVING = TaskGroup("sum", 1, (Need(0, is_lenient=True),))


def _begun(*groups: TaskGroup) -> State:
    state = begin(Graph(groups), Rules(ALL_AT_ONCE))
    step(state, Began(), 0.0)
    return state


def _started(taken: Step) -> list[int]:
    return [effect.task for effect in taken.effects if isinstance(effect, StartAttempt)]


def _words(state: State, task: int) -> list[str]:
    answer = why(state, task, 0.0)
    assert answer.status == "blocked"
    return [blocker.words for blocker in answer.blockers]


def test_a_failure_starts_whoever_only_waited_for_an_end() -> None:
    state = _begun(TaskGroup("map", 3), FORGIVING, TaskGroup("strict", 1, (Need(0),)))
    step(state, Finished(0, 1), 1.0)
    step(state, Finished(2, 1), 1.0)
    taken = step(state, Failed(1, 1, HOPELESS), 2.0)
    assert taken.events[:2] == (TaskFailed(1, 1, 2.0, HOPELESS), TaskSkipped(4, 2.0, 1))
    assert _started(taken) == [3]
    assert step(state, Finished(3, 1), 3.0).events[-1] == RunFinished(3.0, 3, 1, 1)


def test_a_task_that_is_skipped_starts_whoever_only_waited_for_its_end() -> None:
    state = _begun(
        TaskGroup("a"), TaskGroup("b", 1, (Need(0),)), TaskGroup("c", 1, (Need(1, 0, True),))
    )
    assert _started(step(state, Failed(0, 1, HOPELESS), 1.0)) == [2]


def test_a_failure_that_is_tried_again_starts_nobody() -> None:
    state = _begun(TaskGroup("map", 1), FORGIVING)
    assert _started(step(state, Failed(0, 1, Fault("server")), 1.0)) == []


def test_a_member_of_a_queue_that_is_freed_by_a_failure_waits_for_its_turn() -> None:
    late = TaskGroup("late", 1, (Need(0, is_lenient=True),), queue="q")
    state = _begun(TaskGroup("a"), TaskGroup("first", 1, queue="q"), late)
    assert _started(step(state, Failed(0, 1, HOPELESS), 1.0)) == []
    assert _started(step(state, Finished(1, 1), 2.0)) == [2]


def test_what_touches_the_state_may_be_freed_by_a_failure() -> None:
    shared = Touches(("k",), ())
    graph = Graph(
        [TaskGroup("a", 2), TaskGroup("sum", 1, (Need(0, is_lenient=True),), touches=shared)]
    )
    state = begin(graph, Rules(ALL_AT_ONCE), Coherence(graph, Shared()))
    step(state, Began(), 0.0)
    step(state, Finished(0, 1), 1.0)
    assert _started(step(state, Failed(1, 1, HOPELESS), 2.0)) == [2]


def test_levels_of_blocks_are_as_large_as_there_are_blocks() -> None:
    groups = (
        TaskGroup("list"),
        TaskGroup("last", None, (Need(2, block=2), Need(3, block=4))),
        TaskGroup("level", None, (Need(3, block=2),)),
        TaskGroup("map", None, (Need(0),)),
    )
    state = _begun(*groups)
    step(state, Finished(0, 1), 1.0)
    taken = step(state, Expanded(3, 9), 2.0)
    assert taken.events[:3] == (
        GroupExpanded(3, 9, 2.0), GroupExpanded(2, 5, 2.0), GroupExpanded(1, 3, 2.0),
    )  # fmt: skip
    for task in range(1, 9):
        step(state, Finished(task, 1), 3.0)
    assert _started(step(state, Finished(9, 1), 3.0)) == [14]


def test_a_level_that_is_lost_is_not_found() -> None:
    groups = (
        TaskGroup("x"),
        TaskGroup("map", None),
        TaskGroup("level", None, (Need(1, block=2), Need(0))),
    )
    state = _begun(*groups)
    step(state, Failed(0, 1, HOPELESS), 1.0)
    assert step(state, Expanded(1, 4), 2.0).events[0] == GroupExpanded(1, 4, 2.0)
    assert not state.ready_set.numbers.is_known(2)


def test_what_failed_before_is_waited_for_again_after_a_restore() -> None:
    graph = Graph([TaskGroup("map", 3), FORGIVING])
    state = begin(graph, Rules(ALL_AT_ONCE))
    restore(state, [0, 2], {1: 1})
    assert _started(step(state, Began(), 0.0)) == [1]
    assert _started(step(state, Failed(1, 2, HOPELESS), 1.0)) == [3]


def test_the_members_of_a_block_are_named() -> None:
    groups = [
        TaskGroup("map", 9),
        TaskGroup("sum/1", 2, (Need(0, 5),)),
        TaskGroup("all", 1, (Need(0, 0, True),)),
    ]
    state = begin(Graph(groups), Rules(Strategy("fixed", 1)))
    step(state, Began(), 0.0)
    assert _words(state, 9)[0] == "needs 5 of map, of which 5 are not finished"
    assert _words(state, 11)[0] == "needs all of map, of which 9 have not ended"
    for task in range(6):
        step(state, Finished(task, 1), 1.0)
    assert _words(state, 10)[0] == "needs map[6], map[7] and map[8], which are not finished"
    assert must_end(state, 10) == {0: {6, 7, 8}}
    step(state, Failed(6, 1, HOPELESS), 1.0)
    assert why(state, 10, 1.0).words == "it is skipped"
    assert _words(state, 11)[0] == "needs map[7] and map[8], which have not ended"
