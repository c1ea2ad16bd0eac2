"""Tasks that touch the shared state, as the engine moves them: proposed, stale, parked, lost."""

from __future__ import annotations

from headway.base.values import Fault
from headway.engine.engine import Step, begin, step
from headway.engine.events import (
    Abandon,
    Abandoned,
    Began,
    Expanded,
    Failed,
    Finished,
    RunStopping,
    StartAttempt,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskSkipped,
    TaskStale,
)
from headway.engine.state import Rules, State
from headway.engine.strategy import ALL_AT_ONCE
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.resources import ANYTHING, Touches
from headway.state.coherence import Coherence
from headway.state.shared import Snapshot


class Stage:
    """A run whose every end is told by hand."""

    def __init__(self, *groups: TaskGroup, retries: int = 0) -> None:
        self.state: State = begin(Graph(groups), Rules(strategy=ALL_AT_ONCE, retries=retries))
        assert self.state.coherence is not None
        self.coherence: Coherence = self.state.coherence
        self.snapshots: dict[int, Snapshot] = {}
        self.attempts: dict[int, int] = {}
        self.last: Step = self.take(step(self.state, Began(), 0.0))

    def take(self, taken: Step) -> Step:
        for effect in taken.effects:
            if isinstance(effect, StartAttempt):
                self.attempts[effect.task] = effect.attempt
                if (snapshot := self.coherence.snapshot(effect.task)) is not None:
                    self.snapshots[effect.task] = snapshot
        self.last = taken
        return taken

    def ends(self, task: int, fault: Fault | None = None) -> list[type]:
        """An attempt ends; the kinds of events that follow."""
        if self.coherence.has(task):
            self.coherence.note(task, self.snapshots[task].access())
        attempt = self.attempts[task]
        happened = Finished(task, attempt) if fault is None else Failed(task, attempt, fault)
        return [type(event) for event in self.take(step(self.state, happened, 1.0)).events][:1]

    def started(self) -> list[int]:
        return [effect.task for effect in self.last.effects if isinstance(effect, StartAttempt)]


RAISED = Fault("function", detail="it raised")


def test_a_result_that_stays_right_goes_on_waiting_for_those_who_may_still_change_it() -> None:
    stage = Stage(TaskGroup("t", 4, touches=ANYTHING))
    stage.snapshots[0].put("a", 1)
    stage.ends(0)
    stage.snapshots[3].get("a")
    assert stage.ends(3) == [TaskProposed]
    stage.snapshots[2].put("a", 1)  # The same as before: nothing is stale, and one is to come.
    assert stage.ends(2) == [TaskFinished]
    assert [type(event) for event in stage.last.events] == [TaskFinished]
    stage.ends(1)
    assert [type(event) for event in stage.last.events][:2] == [TaskFinished, TaskFinished]
    assert stage.state.over


def test_a_stale_result_runs_again_at_once_and_that_is_no_try_of_its_own() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING))
    stage.snapshots[1].get("a")
    stage.ends(1)
    stage.snapshots[0].put("a", 1)
    stage.ends(0)
    assert [type(event) for event in stage.last.events][:2] == [TaskFinished, TaskStale]
    assert stage.started() == [1]
    assert stage.attempts[1] == 2
    assert stage.ends(1, RAISED) == [TaskFailed]


def test_a_failure_that_came_of_a_stale_read_is_none() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING))
    stage.snapshots[1].get("a")
    assert stage.ends(1, RAISED) == [TaskProposed]
    stage.snapshots[0].put("a", 1)
    stage.ends(0)
    assert stage.started() == [1]
    assert stage.ends(1) == [TaskFinished]


def test_a_failure_that_stands_takes_those_with_it_that_need_it() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING), TaskGroup("after", needs=(Need(0),)))
    stage.snapshots[1].get("a")
    stage.ends(1, RAISED)
    stage.ends(0)
    assert [type(event) for event in stage.last.events][1:3] == [TaskFailed, TaskSkipped]
    assert stage.state.over


def test_a_failure_that_is_nobodys_fault_is_tried_again_without_being_judged() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING), retries=1)
    stage.snapshots[1].get("a")
    assert stage.ends(1, Fault("timeout")) == [TaskDelayed]


def test_the_last_timeout_that_came_of_a_stale_read_is_none_either() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING))
    stage.snapshots[1].get("a")
    assert stage.ends(1, Fault("timeout")) == [TaskProposed]
    stage.snapshots[0].put("a", 1)
    stage.ends(0)
    assert stage.started() == [1]
    assert stage.ends(1) == [TaskFinished]


def test_an_attempt_that_works_on_what_has_changed_is_abandoned() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING))
    stage.snapshots[1].get("a")
    stage.snapshots[0].put("a", 1)
    stage.ends(0)
    assert stage.last.effects == (Abandon(1, 1),)
    stage.coherence.note(1, stage.snapshots[1].access())
    taken = stage.take(step(stage.state, Abandoned(1, 1), 2.0))
    assert isinstance(taken.events[0], TaskStale)
    assert taken.events[0].what == "a"
    assert stage.started() == [1]
    # What is said of an attempt that is over means nothing.
    assert step(stage.state, Abandoned(1, 1), 2.0).events == ()


def test_an_attempt_that_has_ended_already_is_not_abandoned() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING), retries=1)
    stage.snapshots[1].get("a")
    stage.take(step(stage.state, Failed(1, 1, Fault("timeout")), 1.0))
    stage.snapshots[0].put("a", 1)
    stage.ends(0)
    assert not any(isinstance(effect, Abandon) for effect in stage.last.effects)


def test_what_has_become_right_again_meanwhile_begins_anew_all_the_same() -> None:
    stage = Stage(TaskGroup("t", 1, touches=ANYTHING))
    stage.coherence.note(0, stage.snapshots[0].access())
    taken = stage.take(step(stage.state, Abandoned(0, 1), 2.0))
    assert isinstance(taken.events[0], TaskStale)
    assert taken.events[0].because == -1


def test_a_write_that_breaks_the_order_fails_with_what_to_declare() -> None:
    stage = Stage(
        TaskGroup("writer", touches=Touches((), ("a",), ())), TaskGroup("reader", touches=ANYTHING)
    )
    stage.snapshots[1].get("b")
    assert stage.ends(1) == [TaskFinished]
    stage.snapshots[0].put("b", 1)
    assert stage.ends(0) == [TaskFailed]
    (failed, *_) = stage.last.events
    assert isinstance(failed, TaskFailed)
    assert "add `writes: state:b`" in failed.fault.detail
    assert "`reader`" in failed.fault.detail


def test_a_parked_task_starts_when_those_before_it_have_ended_in_a_queue_too() -> None:
    for queue in ("", "q"):
        stage = Stage(
            TaskGroup("first", touches=ANYTHING),
            TaskGroup("second", touches=ANYTHING),
            TaskGroup("third", touches=ANYTHING, queue=queue),
        )
        for task in (1, 2):
            stage.snapshots[task].get("n")
            stage.snapshots[task].put("n", task)
            stage.ends(task)
        stage.snapshots[0].put("n", 0)
        stage.ends(0)
        assert stage.started() == [1]
        stage.ends(1)
        assert stage.started() == [2]
        stage.ends(2)
        assert stage.state.over


def found_at_run_time() -> Stage:
    """A group of unknown size, and a reader behind it that waits for it."""
    stage = Stage(
        TaskGroup("source"),
        TaskGroup("many", None, (Need(0),), touches=ANYTHING),
        TaskGroup("reader", touches=ANYTHING),
    )
    stage.snapshots[1].get("a")
    assert stage.ends(1) == [TaskProposed]
    return stage


def test_a_group_that_is_lost_before_it_is_known_keeps_nobody_waiting() -> None:
    stage = found_at_run_time()
    assert stage.ends(0, RAISED) == [TaskFailed]
    assert stage.state.finished == 1


def test_members_that_become_known_later_come_before_those_declared_after_them() -> None:
    stage = found_at_run_time()
    stage.ends(0)
    stage.take(step(stage.state, Expanded(1, 1), 1.0))
    stage.snapshots[2].put("a", 1)
    stage.ends(2)
    assert stage.started() == [1]


def test_a_run_that_stops_leaves_what_is_proposed() -> None:
    stage = Stage(TaskGroup("t", 2, touches=ANYTHING))
    stage.snapshots[1].get("a")
    stage.ends(1)
    stage.take(step(stage.state, RunStopping(2.0, "enough", is_now=True), 2.0))
    assert stage.state.over
    assert stage.state.left == 2
