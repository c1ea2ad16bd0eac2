"""Why a task has not started, in words."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Fault
from headway.engine.engine import begin, step
from headway.engine.events import (
    Began,
    Expanded,
    Failed,
    Finished,
    Input,
    LocalRoom,
    RunHeld,
    RunStopping,
)
from headway.engine.explain import ReasonNames, why
from headway.engine.state import Rules, State
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, LOOKAHEAD, Strategy
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.resources import ANYTHING, Touches
from headway.state.coherence import Coherence, Hints
from headway.state.shared import Access, Shared, StateLook


def _state(
    groups: list[TaskGroup], strategy: Strategy, *inputs: Input, ceiling: float = inf
) -> State:
    state = begin(Graph(groups), Rules(strategy, ceiling=ceiling))
    for happened in (Began(), *inputs):
        step(state, happened, 0.0)
    return state


def _words(state: State, task: int) -> list[str]:
    answer = why(state, task, 0.0)
    assert answer.blockers
    return [*answer.blockers]


def test_a_task_that_has_ended_says_how() -> None:
    groups = [TaskGroup("a"), TaskGroup("b"), TaskGroup("c", 1, (Need(1),))]
    state = _state(groups, ALL_AT_ONCE, Finished(0, 1), Failed(1, 1, Fault("request")))
    assert [why(state, task, 0.0).words for task in range(3)] == [
        "it is finished", "it is failed", "it is skipped",
    ]  # fmt: skip
    state = _state([TaskGroup("a", 2)], Strategy("fixed", 1))
    del state.active[0]
    assert why(state, 1, 0.0).words == "it starts at the next step"


def test_a_need_is_named_with_where_it_is() -> None:
    groups = [TaskGroup("fetch"), TaskGroup("load"), TaskGroup("parse", 1, (Need(0), Need(1))),
              TaskGroup("last", 1, (Need(2),))]  # fmt: skip
    state = _state(groups, Strategy("fixed", 2), Failed(1, 1, Fault("server")))
    assert _words(state, 2) == ["needs fetch, which is in flight", "needs load, which is queued"]
    assert _words(state, 3) == ["needs parse, which is waiting for a task"]
    assert why(state, 2, 0.0).words == (
        "needs fetch, which is in flight, and needs load, which is queued"
    )


def test_the_member_that_is_needed_is_named() -> None:
    groups = [
        TaskGroup("parse", 5),
        TaskGroup("enrich", 5, (Need(0, block=1),)),
        TaskGroup("merge", 1, (Need(1),)),
    ]
    state = _state(groups, Strategy("fixed", 2), Finished(0, 1))
    assert _words(state, 8) == ["needs parse[3], which is queued"]
    assert _words(state, 10) == ["needs all of enrich, of which 5 are not finished"]
    for task in (1, 2, 3, 4):
        step(state, Finished(task, 1), 0.0)
    for task in (5, 6):
        step(state, Finished(task, 1), 0.0)
    assert _words(state, 10) == ["needs enrich[2], enrich[3] and enrich[4], which are not finished"]


def test_names_and_times_are_told_as_the_caller_likes() -> None:
    state = _state(
        [TaskGroup("a"), TaskGroup("b", 1, (Need(0),))],
        ALL_AT_ONCE,
        RunHeld(0.0, 64800.0, "window"),
    )
    names = ReasonNames(lambda task: f"number {task}", lambda at_s: f"{at_s / 3600:.0f} o'clock")
    answer = why(state, 1, 0.0, names)
    assert [*answer.blockers] == [
        "the run is held until 18 o'clock: window", "needs number 0, which is in flight",
    ]  # fmt: skip
    assert _words(state, 1)[0] == "the run is held until 64800 s: window"


def test_a_group_that_is_not_known_yet_is_named() -> None:
    groups = [
        TaskGroup("list"),
        TaskGroup("each", None, (Need(0),)),
        TaskGroup("merge", 1, (Need(1),)),
        TaskGroup("none", 0, (Need(0),)),
        TaskGroup("after", 1, (Need(3),)),
    ]
    state = _state(groups, ALL_AT_ONCE)
    assert _words(state, 1) == ["needs each, whose tasks are not known yet"]
    assert _words(state, 2) == ["needs none, which is empty but needs others"]


def test_a_queue_tells_where_it_is() -> None:
    groups = [TaskGroup("build", 2, queue="deploy"), TaskGroup("release", None, queue="deploy"),
              TaskGroup("last", queue="deploy")]  # fmt: skip
    state = _state(groups, ALL_AT_ONCE, Finished(0, 1))
    assert _words(state, 2) == ["queue `deploy` is at build[1]"]
    step(state, Finished(1, 1), 0.0)
    assert _words(state, 2) == ["queue `deploy` is at release, whose tasks are not known yet"]
    step(state, Expanded(1, 1), 0.0)
    assert _words(state, 2) == ["queue `deploy` is at release"]


def test_a_delayed_task_tells_when_it_is_tried_again() -> None:
    state = _state([TaskGroup("a")], ALL_AT_ONCE, Failed(0, 1, Fault("server")))
    assert _words(state, 0) == ["attempt 2 is due at 1 s"]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (Strategy("fixed", 4), "all 4 places are taken"),
        (Strategy("waves", 4), "wave 1 has 4 left"),
        (ADAPTIVE, f"{LOOKAHEAD} started tasks wait for a permit"),
    ],
)
def test_a_strategy_says_why_it_has_no_room(strategy: Strategy, words: str) -> None:
    state = _state([TaskGroup("a", LOOKAHEAD + 1)], strategy)
    task = len(state.active)
    assert _words(state, task) == [words]


def test_a_ceiling_is_named() -> None:
    state = _state([TaskGroup("a", 3)], ALL_AT_ONCE, ceiling=2)
    assert _words(state, 2) == ["no more than 2 may be active"]


def test_a_full_machine_is_named_for_those_that_use_it() -> None:
    groups = [TaskGroup("local", 4, is_local=True), TaskGroup("remote", 1)]
    state = begin(Graph(groups), Rules(Strategy("fixed", 3)))
    step(state, LocalRoom(2.0), 0.0)
    step(state, Began(), 0.0)
    assert _words(state, 2) == [
        "all 3 places are taken", "this machine is full: 2 of 2 places are taken",
    ]  # fmt: skip


def test_the_state_of_the_run_is_named() -> None:
    state = begin(Graph([TaskGroup("a", 2)]), Rules(Strategy("fixed", 1)))
    assert _words(state, 0) == ["the run has not begun"]
    step(state, Began(), 0.0)
    step(state, Finished(0, 1), 0.0)
    step(state, RunStopping(0.0, "interrupted", is_now=True), 0.0)
    assert _words(state, 1) == ["the run is over", "the run is stopping"]
    paused = _state(
        [TaskGroup("a"), TaskGroup("b")],
        Strategy("fixed", 1),
        RunHeld(0.0, inf, "by hand"),
        Finished(0, 1),
    )
    assert _words(paused, 1) == ["the run is held: by hand"]


def _shared(groups: list[TaskGroup], hints: Hints | None = None) -> State:
    graph = Graph(groups)
    state = begin(graph, Rules(ALL_AT_ONCE), Coherence(graph, Shared(), hints))
    step(state, Began(), 0.0)
    return state


def _end(state: State, task: int, *read: str, attempt: int = 1) -> None:
    """An attempt ends that has read these keys, of which none had a value."""
    assert state.coherence is not None
    state.coherence.note(task, Access(tuple(StateLook(what, b"") for what in read)))
    step(state, Finished(task, attempt), 0.0)


def test_a_result_that_waits_names_whom_and_for_what() -> None:
    touches = Touches((), ("a", "records"), (), lambda n: Touches((), (f"records/{n}",), ()))
    groups = [TaskGroup("parse", 2, touches=touches), TaskGroup("check", touches=ANYTHING)]
    state = _shared(groups)
    _end(state, 2, "records/0", "records/1")
    assert why(state, 2, 0.0).words == (
        "attempt 1 has ended and waits for parse[0], which may still write `records/0`"
    )
    _end(state, 0)
    assert why(state, 2, 0.0).words.endswith(
        "waits for parse[1], which may still write `records/1`"
    )


def test_who_declares_nothing_may_write_what_was_read_or_anything() -> None:
    state = _shared([TaskGroup("parse", touches=ANYTHING), TaskGroup("check", 2, touches=ANYTHING)])
    _end(state, 1, "total")
    assert why(state, 1, 0.0).words.endswith("waits for parse, which may still write `total`")
    assert state.coherence is not None
    state.coherence.note(2, Access((StateLook("**", state.coherence.shared.look("**", 1 << 60)),)))
    step(state, Finished(2, 1), 0.0)
    assert why(state, 2, 0.0).words.endswith("waits for parse, which may still write anything")


def test_whoever_is_not_known_yet_may_write_too() -> None:
    groups = [
        TaskGroup("list"),
        TaskGroup("parse", None, (Need(0),), touches=Touches((), ("r",), ())),
        TaskGroup("check", touches=Touches(("r/1",), (), ())),
    ]
    state = _shared(groups)
    _end(state, 1, "r/1")
    assert why(state, 1, 0.0).words.endswith(
        "waits for parse, whose tasks are not known yet, which may still write `r`"
    )


def test_a_need_that_waits_to_be_committed_is_named_so() -> None:
    groups = [TaskGroup("parse", touches=ANYTHING), TaskGroup("check", touches=ANYTHING),
              TaskGroup("report", 1, (Need(1),))]  # fmt: skip
    state = _shared(groups)
    _end(state, 1, "x")
    assert _words(state, 2) == ["needs check, which is held"]


def test_a_task_that_is_known_to_read_what_another_writes_waits_for_it() -> None:
    hints = Hints({1: ("total",)}, {0: ("total",)})
    groups = [TaskGroup("parse", touches=ANYTHING), TaskGroup("check", touches=ANYTHING)]
    state = _shared(groups, hints)
    assert _words(state, 1) == ["waits for parse, which is known to write `total`"]
    _end(state, 0)
    assert why(state, 1, 0.0).words.startswith("attempt 1 ")
