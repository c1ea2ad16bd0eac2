"""What happens next: starts, ends, delays, failures, and the facts that are left behind."""

from __future__ import annotations

import pytest

from headway.base.values import Fault, FaultKind
from headway.engine.engine import RETRY_S_MAX, Step, apply, begin, decide, starts, step
from headway.engine.events import (
    Admitted,
    Began,
    CallAdmitted,
    CallWaited,
    Failed,
    Finished,
    Input,
    RunBegan,
    RunFinished,
    StartAttempt,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskSkipped,
    TaskStarted,
    Ticked,
    Waiting,
    WakeAt,
)
from headway.engine.state import Rules, State
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, LOOKAHEAD, Strategy
from headway.plans.graph import Graph, Task

SERVER = Fault("server")
HOPELESS = Fault("request")


def _run(needs: dict[str, str], strategy: Strategy, retries: int = 3) -> State:
    """A run before its first input; `{"c": "a b"}` is a task c that needs a and b."""
    graph = Graph.of(Task(name, tuple(before.split())) for name, before in needs.items())
    return begin(graph, Rules(strategy, retries))


def _started(taken: Step) -> list[int]:
    return [effect.task for effect in taken.effects if isinstance(effect, StartAttempt)]


def test_an_empty_run_is_over_when_it_begins() -> None:
    state = _run({}, ADAPTIVE)
    taken = step(state, Began(), 1.0)
    assert taken == Step((RunBegan(1.0, "adaptive"), RunFinished(1.0, 0, 0)), ())
    assert state.over
    assert step(state, Began(), 2.0) == Step((), ())


def test_what_needs_nothing_starts_and_the_reason_is_recorded() -> None:
    state = _run({"a": "", "b": "a"}, ALL_AT_ONCE)
    taken = step(state, Began(), 2.0)
    began = RunBegan(2.0, "all-at-once")
    assert taken.events == (began, TaskStarted(0, 1, 2.0, "everything starts at once"))
    assert taken.effects == (StartAttempt(0, 1),)


def test_a_task_starts_as_soon_as_its_own_needs_are_finished() -> None:
    state = _run({"a": "", "b": "", "after-a": "a", "after-both": "a b"}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    assert _started(step(state, Finished(0, 1), 1.0)) == [2]
    assert _started(step(state, Finished(1, 1), 2.0)) == [3]


def test_the_last_end_ends_the_run() -> None:
    state = _run({"a": "", "b": "a"}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    step(state, Finished(0, 1), 1.0)
    taken = step(state, Finished(1, 1), 2.0)
    assert taken.events == (TaskFinished(1, 1, 2.0), RunFinished(2.0, 2, 0))
    assert step(state, Ticked(), 3.0) == Step((), ())
    assert not state.active
    assert not state.waiting


def test_a_wave_waits_for_the_slowest_of_the_one_before() -> None:
    state = _run(dict.fromkeys("abcde", ""), Strategy("waves", 2))
    assert _started(step(state, Began(), 0.0)) == [0, 1]
    assert _started(step(state, Finished(0, 1), 1.0)) == []
    assert _started(step(state, Finished(1, 1), 9.0)) == [2, 3]
    step(state, Finished(2, 1), 10.0)
    assert _started(step(state, Finished(3, 1), 11.0)) == [4]


def test_a_free_place_is_taken_at_once() -> None:
    state = _run(dict.fromkeys("abcde", ""), Strategy("fixed", 2))
    assert _started(step(state, Began(), 0.0)) == [0, 1]
    assert _started(step(state, Finished(1, 1), 1.0)) == [2]
    assert _started(step(state, Finished(2, 1), 1.5)) == [3]


def test_adaptive_starts_another_task_when_one_got_its_permit() -> None:
    state = _run({str(name): "" for name in range(100)}, ADAPTIVE)
    assert len(_started(step(state, Began(), 0.0))) == LOOKAHEAD
    taken = step(state, Admitted(5), 1.0)
    assert taken.events[0] == CallAdmitted(5, 1.0)
    assert _started(taken) == [LOOKAHEAD]


def test_a_task_that_waits_for_its_next_permit_keeps_others_from_starting() -> None:
    state = _run({str(name): "" for name in range(100)}, ADAPTIVE)
    step(state, Began(), 0.0)
    step(state, Admitted(5), 1.0)
    assert step(state, Waiting(5), 2.0).events == (CallWaited(5, 2.0),)
    assert len(state.waiting) == LOOKAHEAD + 1
    assert _started(step(state, Admitted(5), 3.0)) == []
    assert _started(step(state, Admitted(6), 3.0)) == [LOOKAHEAD + 1]


def test_a_lost_attempt_is_tried_again_after_a_while() -> None:
    state = _run({"a": ""}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    taken = step(state, Failed(0, 1, SERVER), 5.0)
    assert taken.events == (TaskDelayed(0, 1, 5.0, 6.0, SERVER),)
    assert taken.effects == (WakeAt(6.0),)
    assert step(state, Ticked(), 5.9) == Step((), ())
    assert step(state, Ticked(), 6.0).effects == (StartAttempt(0, 2),)


def test_delays_double_up_to_a_maximum() -> None:
    state = _run({"a": ""}, ALL_AT_ONCE, retries=2000)
    now, delays = 0.0, []
    step(state, Began(), now)
    for _ in range(1100):
        (wake,) = step(state, Failed(0, state.active[0], SERVER), now).effects
        assert isinstance(wake, WakeAt)
        delays.append(wake.at_s - now)
        now = wake.at_s
        step(state, Ticked(), now)
    assert delays[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, RETRY_S_MAX, RETRY_S_MAX]
    assert set(delays[6:]) == {RETRY_S_MAX}


def test_a_delayed_task_leaves_its_place_to_another() -> None:
    state = _run({"a": "", "b": "", "c": ""}, Strategy("fixed", 1))
    step(state, Began(), 0.0)
    assert _started(step(state, Failed(0, 1, SERVER), 1.0)) == [1]
    assert _started(step(state, Ticked(), 2.0)) == []
    # Declared first, and its time has come: it goes before c.
    assert _started(step(state, Finished(1, 1), 3.0)) == [0]
    assert _started(step(state, Finished(0, 2), 4.0)) == [2]


def test_attempts_are_bounded() -> None:
    state = _run({"a": ""}, ALL_AT_ONCE, retries=1)
    step(state, Began(), 0.0)
    step(state, Failed(0, 1, SERVER), 0.0)
    step(state, Ticked(), 1.0)
    taken = step(state, Failed(0, 2, SERVER), 2.0)
    assert taken.events == (TaskFailed(0, 2, 2.0, SERVER), RunFinished(2.0, 0, 1))
    assert not state.active
    assert not state.waiting


@pytest.mark.parametrize("kind", ["request", "spend_cap", "billing"])
def test_what_another_attempt_would_meet_too_fails_at_once(kind: FaultKind) -> None:
    state = _run({"a": ""}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    assert TaskFailed(0, 1, 1.0, Fault(kind)) in step(state, Failed(0, 1, Fault(kind)), 1.0).events


@pytest.mark.parametrize(
    "kind", ["overload", "broken", "server", "timeout", "connection", "rate", "concurrency"]
)
def test_what_another_attempt_may_not_meet_is_delayed(kind: FaultKind) -> None:
    state = _run({"a": ""}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    assert isinstance(step(state, Failed(0, 1, Fault(kind)), 1.0).events[0], TaskDelayed)


def test_what_needs_a_failed_task_is_skipped_once_and_the_rest_goes_on() -> None:
    needs = {"a": "", "b": "", "after-a": "a", "after-both": "a b", "last": "after-a after-both"}
    state = _run(needs, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    taken = step(state, Failed(0, 1, HOPELESS), 1.0)
    assert taken.events == (
        TaskFailed(0, 1, 1.0, HOPELESS),
        *(TaskSkipped(task, 1.0, 0) for task in (2, 3, 4)),
    )
    taken = step(state, Failed(1, 1, HOPELESS), 2.0)
    assert taken.events == (TaskFailed(1, 1, 2.0, HOPELESS), RunFinished(2.0, 0, 2, 3))


@pytest.mark.parametrize(
    "nonsense",
    [
        Finished(1, 1),
        Finished(7, 1),
        Finished(-1, 1),
        Failed(1, 1, SERVER),
        Waiting(9),
        Admitted(1),
    ],
)
def test_an_input_about_a_task_that_is_not_active_means_nothing(nonsense: Input) -> None:
    state = _run({"a": "", "b": "a"}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    assert step(state, nonsense, 1.0) == Step((), ())


def test_deciding_changes_nothing() -> None:
    state = _run({"a": "", "b": "", "c": "a", "d": ""}, Strategy("fixed", 2))
    step(state, Began(), 0.0)
    for happened in (Finished(0, 1), Failed(0, 1, HOPELESS), Failed(1, 1, SERVER)):
        meant = decide(state, happened, 1.0)
        assert decide(state, happened, 1.0) == meant
    apply(state, TaskFinished(1, 1, 1.0))
    assert (
        starts(state, 1.0)
        == starts(state, 1.0)
        == [TaskStarted(3, 1, 1.0, "one of 2 places is free")]
    )
    assert state.active == {0: 1}
    assert (state.finished, state.failed) == (1, 0)


def test_the_best_of_many_ready_tasks_start_in_order() -> None:
    tasks = [Task(str(i), weight_s=float((i * 37) % 101)) for i in range(101)]
    state = begin(Graph.of(tasks), Rules(ADAPTIVE, ceiling=30))
    started = _started(step(state, Began(), 0.0))
    assert [tasks[task].weight_s for task in started] == [float(w) for w in range(100, 70, -1)]
