"""What happens to a whole run: holds, stops, waves, queues, groups found late, this machine."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Fault
from headway.engine.engine import Step, advance, apply, begin, decide, step
from headway.engine.events import (
    Began,
    CallWaited,
    CancelAll,
    Continued,
    Ending,
    Expanded,
    Failed,
    Finished,
    GroupExpanded,
    Held,
    LocalRoom,
    Reused,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    StartAttempt,
    Stopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskReused,
    TaskSkipped,
    TaskStarted,
    Ticked,
    Waiting,
    WakeAt,
    WaveBegan,
)
from headway.engine.state import Halt, Rules, State, copied
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, LOOKAHEAD, Strategy
from headway.plans.graph import Graph, Need, TaskGroup

SERVER = Fault("server")
HOPELESS = Fault("request")
REFUSED = Fault("rate")


def _begun(groups: list[TaskGroup], rules: Rules) -> State:
    state = begin(Graph(groups), rules)
    step(state, Began(), 0.0)
    return state


def _started(taken: Step) -> list[int]:
    return [effect.task for effect in taken.effects if isinstance(effect, StartAttempt)]


def _finish(state: State, task: int, now: float = 1.0) -> Step:
    return step(state, Finished(task, state.active[task]), now)


def test_nothing_starts_before_the_run_began() -> None:
    state = begin(Graph([TaskGroup("a", 3)]), Rules(ALL_AT_ONCE))
    assert step(state, LocalRoom(4.0), 0.0) == Step((), ())
    assert step(state, Ticked(), 0.0) == Step((), ())
    assert step(state, Began(), 1.0).events[0] == RunBegan(1.0, "all-at-once")
    assert step(state, Began(), 2.0) == Step((), ()), "a run begins once"


def test_what_an_attempt_left_behind_goes_with_its_end() -> None:
    state = _begun([TaskGroup("a", 3)], Rules(ALL_AT_ONCE, retries=1))
    ending = Ending(b"digest", calls=2)
    assert step(state, Finished(0, 1, ending), 1.0).events == (TaskFinished(0, 1, 1.0, ending),)
    (failed,) = step(state, Failed(1, 1, HOPELESS, ending), 1.0).events
    assert failed == TaskFailed(1, 1, 1.0, HOPELESS, ending)
    (delayed,) = step(state, Failed(2, 1, SERVER, ending), 1.0).events
    assert delayed == TaskDelayed(2, 1, 1.0, 2.0, SERVER, ending)


def test_what_is_said_of_an_attempt_that_is_no_longer_current_is_ignored() -> None:
    state = _begun([TaskGroup("a")], Rules(ALL_AT_ONCE))
    step(state, Failed(0, 1, SERVER), 0.0)
    step(state, Ticked(), 1.0)
    for late in (Finished(0, 1), Failed(0, 1, SERVER), Reused(0, 1), Finished(0, 3)):
        assert step(state, late, 2.0) == Step((), ())
    assert step(state, Finished(0, 2), 3.0).events[0] == TaskFinished(0, 2, 3.0)


def test_an_earlier_result_is_taken_instead_of_an_attempt() -> None:
    state = _begun([TaskGroup("a"), TaskGroup("b", 1, (Need(0),))], Rules(ALL_AT_ONCE))
    taken = step(state, Reused(0, 1), 1.0)
    assert taken.events[0] == TaskReused(0, 1.0)
    assert _started(taken) == [1]
    assert step(state, Reused(1, 1), 1.0).events[-1] == RunFinished(1.0, 2, 0)


def test_a_fan_out_starts_member_by_member_in_order() -> None:
    state = _begun(
        [TaskGroup("a", 1000), TaskGroup("b", 2, (Need(0),))], Rules(Strategy("fixed", 2))
    )
    assert list(state.active) == [0, 1]
    assert [_started(_finish(state, task)) for task in range(998)] == [[n] for n in range(2, 1000)]
    assert _started(_finish(state, 998)) == []
    assert _started(_finish(state, 999)) == [1000, 1001]


def test_members_are_pipelined_without_a_barrier() -> None:
    chain = [
        TaskGroup("a", 3),
        TaskGroup("b", 3, (Need(0, block=1),)),
        TaskGroup("c", 3, (Need(1, block=1),)),
    ]
    state = _begun(chain, Rules(ALL_AT_ONCE))
    assert _started(_finish(state, 1)) == [4]
    assert _started(_finish(state, 4)) == [7]
    assert _started(_finish(state, 0)) == [3]


def test_higher_priority_goes_first_then_the_longer_way_then_declared_order() -> None:
    groups = [
        TaskGroup("a", 2, weight_s=1.0),
        TaskGroup("b", 2, weight_s=9.0),
        TaskGroup("c", 2, priority=1.0),
        TaskGroup("d", 2, weight_s=9.0),
    ]
    assert list(_begun(groups, Rules(ADAPTIVE, ceiling=8)).active) == [4, 5, 2, 3, 6, 7, 0, 1]
    assert list(_begun(groups, Rules(Strategy("fixed", 8))).active) == [4, 5, 0, 1, 2, 3, 6, 7]


def test_a_retried_member_goes_before_the_others_of_its_group() -> None:
    state = _begun([TaskGroup("a", 100)], Rules(Strategy("fixed", 3)))
    step(state, Failed(1, 1, SERVER), 1.0)
    _finish(state, 0, 1.5)
    assert _started(_finish(state, 2, 2.0)) == [1]
    assert _started(_finish(state, 3, 2.0)) == [5]


def test_the_ceiling_holds_for_every_strategy() -> None:
    for strategy in (ALL_AT_ONCE, Strategy("waves", 9), Strategy("fixed", 9), ADAPTIVE):
        state = _begun([TaskGroup("a", 20)], Rules(strategy, ceiling=4))
        assert len(state.active) == 4


def test_a_group_may_have_its_own_retries() -> None:
    groups = [TaskGroup("a", retries=0), TaskGroup("b", retries=2), TaskGroup("c")]
    state = _begun(groups, Rules(ALL_AT_ONCE, retries=1))
    kinds = [type(step(state, Failed(task, 1, SERVER), 0.0).events[0]) for task in range(3)]
    assert kinds == [TaskFailed, TaskDelayed, TaskDelayed]
    step(state, Ticked(), 1.0)
    kinds = [type(step(state, Failed(task, 2, SERVER), 1.0).events[0]) for task in (1, 2)]
    assert kinds == [TaskDelayed, TaskFailed]


def test_twenty_two_tasks_in_waves_of_four_are_six_waves() -> None:
    state = begin(Graph([TaskGroup("a", 22)]), Rules(Strategy("waves", 4)))
    waves, sizes = [], []
    taken = step(state, Began(), 0.0)
    while not state.over:
        waves += [event for event in taken.events if isinstance(event, WaveBegan)]
        sizes.append(len(state.active))
        for task in list(state.active):
            taken = _finish(state, task)
    assert [(wave.number, wave.of) for wave in waves] == [(n, 6) for n in range(1, 7)]
    assert sizes == [4, 4, 4, 4, 4, 2]


def test_a_wave_is_told_before_its_tasks_and_a_ceiling_makes_it_smaller() -> None:
    state = begin(Graph([TaskGroup("a", 5)]), Rules(Strategy("waves", 4), ceiling=2))
    events = step(state, Began(), 0.0).events
    assert events[1] == WaveBegan(1, 3, 0.0)
    assert [type(event) for event in events[2:]] == [TaskStarted, TaskStarted]


def test_nothing_starts_while_the_run_is_held() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    taken = step(state, Held(100.0, "usage window"), 1.0)
    assert taken == Step((RunHeld(1.0, 100.0, "usage window"),), (WakeAt(100.0),))
    assert _started(_finish(state, 0, 50.0)) == []
    assert _started(step(state, Ticked(), 99.9)) == []
    taken = step(state, Ticked(), 100.0)
    assert taken.events[0] == RunContinued(100.0)
    assert _started(taken) == [2]


def test_any_input_after_the_time_ends_the_hold() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    step(state, Held(5.0, "usage window"), 1.0)
    assert _started(_finish(state, 0, 6.0)) == [2]


def test_a_hold_may_be_moved_and_lifted() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    step(state, Held(5.0, "usage window"), 1.0)
    step(state, Held(9.0, "usage window"), 2.0)
    assert _started(_finish(state, 0, 6.0)) == []
    assert _started(step(state, Held(7.0, "it has reset"), 7.0)) == [2]
    assert step(state, Held(3.0, "long ago"), 8.0) == Step((), ())


def test_a_pause_lasts_until_somebody_lets_the_run_go_on() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    taken = step(state, Held(inf, "paused"), 1.0)
    assert taken == Step((RunHeld(1.0, inf, "paused"),), ())
    assert _started(_finish(state, 0, 1e9)) == []
    taken = step(state, Continued(), 1e9)
    assert taken.events[0] == RunContinued(1e9)
    assert _started(taken) == [2]
    assert step(state, Continued(), 1e9) == Step((), ())


def test_a_window_that_is_empty_outlasts_a_pause() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    _finish(state, 0)
    step(state, Held(10.0, "usage window"), 1.0)
    step(state, Held(inf, "paused"), 2.0)
    _finish(state, 1, 3.0)
    taken = step(state, Continued(), 4.0)
    assert taken.events == (RunContinued(4.0), RunHeld(4.0, 10.0, "usage window"))
    assert len(_started(step(state, Ticked(), 10.0))) == 1


def test_a_pause_outlasts_a_window_that_was_empty() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    step(state, Held(10.0, "usage window"), 1.0)
    step(state, Held(inf, "paused"), 2.0)
    _finish(state, 0, 3.0)
    assert step(state, Ticked(), 11.0) == Step((), ())
    taken = step(state, Continued(), 12.0)
    assert taken.events[0] == RunContinued(12.0)
    assert _started(taken) == [2]
    assert state.held_until_s == -inf


def test_a_user_may_go_on_before_the_window_resets() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    step(state, Held(10.0, "usage window"), 1.0)
    _finish(state, 0, 2.0)
    assert _started(step(state, Continued(), 3.0)) == [2]


def test_an_attempt_that_a_hold_refused_waits_and_is_not_counted() -> None:
    state = _begun([TaskGroup("a")], Rules(ALL_AT_ONCE, retries=0))
    step(state, Held(10.0, "usage window"), 1.0)
    assert isinstance(step(state, Failed(0, 1, REFUSED), 1.0).events[0], TaskDelayed)
    assert step(state, Ticked(), 10.0).effects == (StartAttempt(0, 2),)
    assert isinstance(step(state, Failed(0, 2, REFUSED), 11.0).events[0], TaskFailed)


def test_a_run_that_stops_lets_what_is_started_end() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 3)))
    step(state, Failed(0, 1, SERVER), 1.0)
    taken = step(state, Stopping("interrupted"), 2.0)
    assert taken == Step((RunStopping(2.0, "interrupted"),), ())
    assert step(state, Stopping("again"), 2.0) == Step((), ())
    assert step(state, Held(9.0, "usage window"), 2.0) == Step((), ())
    assert _started(_finish(state, 1, 5.0)) == []
    _finish(state, 2, 5.0)
    taken = step(state, Finished(3, 1), 6.0)
    assert taken.events == (TaskFinished(3, 1, 6.0), RunFinished(6.0, 3, 0, 0, left=6))


def test_a_run_that_stops_now_takes_back_what_is_started() -> None:
    state = _begun(
        [TaskGroup("a", 9), TaskGroup("b", 2, is_local=True)], Rules(Strategy("fixed", 11))
    )
    _finish(state, 0)
    step(state, Stopping("interrupted"), 1.0)
    taken = step(state, Stopping("interrupted twice", is_now=True), 2.0)
    assert taken.effects == (CancelAll(),)
    stop = RunStopping(2.0, "interrupted twice", is_now=True)
    assert taken.events == (stop, RunFinished(2.0, 1, 0, 0, left=10))
    assert not state.active
    assert not state.waiting
    assert state.local == 0
    assert state.tried == dict.fromkeys(range(1, 11), 1)
    assert step(state, Stopping("thrice", is_now=True), 3.0) == Step((), ())


def test_what_was_refused_by_a_stop_is_left_and_not_failed() -> None:
    state = _begun([TaskGroup("a")], Rules(ALL_AT_ONCE, retries=0))
    step(state, Stopping("budget"), 1.0)
    events = step(state, Failed(0, 1, REFUSED), 1.0).events
    assert events[-1] == RunFinished(1.0, 0, 0, 0, left=1)


def test_a_run_that_is_stopped_before_it_began_ends_when_it_begins() -> None:
    state = begin(Graph([TaskGroup("a", 2)]), Rules())
    step(state, Stopping("interrupted"), 1.0)
    assert step(state, Began(), 2.0).events[-1] == RunFinished(2.0, 0, 0, 0, left=2)


@pytest.mark.parametrize("is_now", [False, True])
def test_a_run_halts_after_so_many_failures(is_now: bool) -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 3), halt=Halt(2, is_now)))
    assert _started(step(state, Failed(0, 1, HOPELESS), 1.0)) == [3]
    taken = step(state, Failed(1, 1, HOPELESS), 2.0)
    assert taken.events[1] == RunStopping(2.0, "2 failed", is_now)
    assert state.over is is_now
    assert len(state.active) == (0 if is_now else 2)


def test_a_skipped_task_is_no_further_failure() -> None:
    groups = [TaskGroup("a"), TaskGroup("b", 5, (Need(0),)), TaskGroup("c", 5)]
    state = _begun(groups, Rules(Strategy("fixed", 1), halt=Halt(2)))
    taken = step(state, Failed(0, 1, HOPELESS), 1.0)
    assert [type(event) for event in taken.events[1:6]] == [TaskSkipped] * 5
    assert _started(taken) == [6]


def test_a_queue_runs_one_at_a_time_in_declared_order() -> None:
    groups = [
        TaskGroup("a", 2, queue="q"),
        TaskGroup("b", 2),
        TaskGroup("c", 2, queue="q", priority=9.0),
    ]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    assert sorted(state.active) == [0, 2, 3]
    assert _started(_finish(state, 0)) == [1]
    assert _started(_finish(state, 2)) == []
    assert _started(_finish(state, 1)) == [4]
    assert _started(step(state, Failed(4, 1, HOPELESS), 1.0)) == [5]


def test_the_first_of_a_queue_keeps_its_turn_while_it_is_not_ready() -> None:
    groups = [TaskGroup("x"), TaskGroup("a", 1, (Need(0),), queue="q"), TaskGroup("b", queue="q")]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    assert sorted(state.active) == [0]
    assert _started(_finish(state, 0)) == [1]
    assert _started(step(state, Failed(1, 1, SERVER), 1.0)) == [], "it is tried again first"
    assert _started(step(state, Ticked(), 2.0)) == [1]
    assert _started(_finish(state, 1, 2.0)) == [2]


def test_a_skipped_task_gives_its_turn_away() -> None:
    groups = [TaskGroup("x"), TaskGroup("a", 3, (Need(0),), queue="q"), TaskGroup("b", queue="q")]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    taken = step(state, Failed(0, 1, HOPELESS), 1.0)
    assert _started(taken) == [4]
    assert _finish(state, 4).events[-1] == RunFinished(1.0, 1, 1, 3)


def test_a_queue_waits_for_members_that_are_not_known_yet() -> None:
    groups = [
        TaskGroup("a", None, queue="q"),
        TaskGroup("b", queue="q"),
        TaskGroup("none", 0, queue="q"),
    ]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    assert not state.active
    assert state.sequencer.turn("q") == (0, 0)
    assert _started(step(state, Expanded(0, 0), 1.0)) == [0], "there are none"
    assert _finish(state, 0).events[-1] == RunFinished(1.0, 1, 0)
    assert state.sequencer.turn("q") is None


def test_a_queue_goes_on_when_a_group_will_never_be_known() -> None:
    groups = [
        TaskGroup("x"),
        TaskGroup("a", None, (Need(0),), queue="q"),
        TaskGroup("b", queue="q"),
    ]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    assert list(state.active) == [0]
    step(state, Failed(0, 1, HOPELESS), 1.0)
    assert list(state.active) == [1]


def test_a_group_is_found_at_run_time() -> None:
    groups = [
        TaskGroup("list"),
        TaskGroup("each", None, (Need(0),)),
        TaskGroup("merge", 1, (Need(1),)),
    ]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    assert _finish(state, 0).events == (TaskFinished(0, 1, 1.0),), "the run is not over"
    taken = step(state, Expanded(1, 2), 2.0)
    assert taken.events[0] == GroupExpanded(1, 2, 2.0)
    assert _started(taken) == [2, 3]
    assert (state.place(3), state.task_of(1, 0)) == ((1, 1), 2)
    assert step(state, Expanded(1, 5), 2.0) == Step((), ()), "its size is known"
    _finish(state, 2)
    assert _started(_finish(state, 3)) == [1]


def test_groups_that_follow_member_by_member_are_found_together() -> None:
    groups = [TaskGroup("a", None), TaskGroup("b", None, (Need(0, block=1),)),
              TaskGroup("c", None, (Need(0, block=1), Need(1, block=1)))]  # fmt: skip
    state = _begun(groups, Rules(ALL_AT_ONCE))
    taken = step(state, Expanded(0, 2), 1.0)
    assert taken.events[:3] == tuple(GroupExpanded(group, 2, 1.0) for group in range(3))
    assert _started(taken) == [0, 1]
    assert _started(_finish(state, 1)) == [3]
    assert _started(_finish(state, 3)) == [5]


def test_a_follower_that_was_lost_before_its_group_was_found_stays_lost() -> None:
    groups = [
        TaskGroup("x"),
        TaskGroup("a", None),
        TaskGroup("b", None, (Need(0), Need(1, block=1))),
    ]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    step(state, Failed(0, 1, HOPELESS), 1.0)
    taken = step(state, Expanded(1, 2), 1.0)
    assert taken.events[0] == GroupExpanded(1, 2, 1.0)
    assert _started(taken) == [1, 2]
    _finish(state, 1)
    assert _finish(state, 2).events[-1] == RunFinished(1.0, 2, 1)


def test_a_group_whose_source_failed_is_never_found_and_not_waited_for() -> None:
    groups = [
        TaskGroup("list"),
        TaskGroup("each", None, (Need(0),)),
        TaskGroup("merge", 1, (Need(1),)),
        TaskGroup("other"),
    ]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    step(state, Failed(0, 1, HOPELESS), 1.0)
    assert step(state, Expanded(1, 3), 1.0) == Step((), ())
    assert _finish(state, 2).events[-1] == RunFinished(1.0, 1, 1, 1)


def test_a_run_that_is_stopped_counts_a_group_that_it_did_not_find() -> None:
    state = _begun([TaskGroup("a"), TaskGroup("b", None, (Need(0),))], Rules(ALL_AT_ONCE))
    step(state, Stopping("interrupted"), 1.0)
    assert _finish(state, 0).events[-1] == RunFinished(1.0, 1, 0, 0, left=1)


def test_only_as_many_use_this_machine_as_it_has_places() -> None:
    groups = [TaskGroup("local", 9, is_local=True), TaskGroup("remote", 9)]
    state = begin(Graph(groups), Rules(Strategy("fixed", 6)))
    step(state, LocalRoom(2.9), 0.0)
    assert _started(step(state, Began(), 0.0)) == [0, 1, 9, 10, 11, 12]
    assert _started(_finish(state, 0)) == [2]
    assert _started(_finish(state, 9)) == [13]
    assert state.local == 2


def test_one_local_task_may_always_run() -> None:
    state = begin(Graph([TaskGroup("local", 3, is_local=True)]), Rules(Strategy("fixed", 6)))
    step(state, LocalRoom(0.0), 0.0)
    assert _started(step(state, Began(), 0.0)) == [0]
    assert _started(step(state, Ticked(), 0.0)) == []
    assert _started(step(state, LocalRoom(2.0), 1.0)) == [1]
    step(state, LocalRoom(1.0), 2.0)
    assert _started(_finish(state, 0)) == []
    assert _started(_finish(state, 1)) == [2]


def test_local_tasks_go_before_others_where_they_are_declared_before() -> None:
    groups = [TaskGroup("a"), TaskGroup("local", 2, is_local=True), TaskGroup("b"),
              TaskGroup("here", 2, is_local=True, priority=1.0)]  # fmt: skip
    state = begin(Graph(groups), Rules(ALL_AT_ONCE))
    step(state, LocalRoom(3.0), 0.0)
    assert _started(step(state, Began(), 0.0)) == [4, 5, 0, 1, 3]


def test_local_tasks_wait_for_no_permit_unless_they_say_so() -> None:
    count = LOOKAHEAD + 8
    state = _begun([TaskGroup("a", count, is_local=True)], Rules(ADAPTIVE))
    assert len(state.active) == count
    assert not state.waiting
    assert step(state, Waiting(3), 1.0).events == (CallWaited(3, 1.0),)
    assert state.waiting == {3}


def test_two_ends_may_be_decided_before_either_is_made_part_of_the_state() -> None:
    groups = [TaskGroup("a", 2), TaskGroup("b", 2, (Need(0),)), TaskGroup("c")]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    first = decide(state, Failed(0, 1, HOPELESS), 1.0)
    second = decide(state, Failed(1, 1, HOPELESS), 1.0)
    assert (first, second) == (
        [TaskFailed(0, 1, 1.0, HOPELESS)],
        [TaskFailed(1, 1, 1.0, HOPELESS)],
    )
    assert advance(state, first, 2.0).events == (TaskSkipped(2, 1.0, 0), TaskSkipped(3, 1.0, 0))
    assert advance(state, second, 2.0) == Step((), ())
    third = decide(state, Finished(4, 1), 3.0)
    assert advance(state, third, 4.0) == Step((RunFinished(4.0, 1, 2, 2),), ())


def test_what_was_decided_before_the_run_was_stopped_still_counts() -> None:
    groups = [TaskGroup("a", 3), TaskGroup("q", 2, queue="q")]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    finished = decide(state, Finished(0, 1), 1.0)
    delayed = decide(state, Failed(1, 1, SERVER), 1.0)
    of_queue = decide(state, Finished(3, 1), 1.0)
    apply(state, RunStopping(2.0, "interrupted", is_now=True))
    assert state.line.ready == 4, "three, and the first of the queue"
    for events in (delayed, of_queue, finished):
        for event in events:
            apply(state, event)
    assert (state.finished, state.left) == (2, 3)
    assert state.line.ready == 2
    assert state.delayed == {1: 2.0}
    assert state.line.first(9, 9, 9) == [2, 4]


def test_a_start_that_other_rules_made_can_be_replayed() -> None:
    state = _begun(
        [TaskGroup("a", 3, queue="q"), TaskGroup("b", 1, (Need(0),))], Rules(Strategy("fixed", 1))
    )
    apply(state, TaskStarted(2, 1, 1.0, "another plan had no queue"))
    apply(state, TaskStarted(3, 1, 1.0, "nor this need"))
    assert sorted(state.active) == [0, 2, 3]
    assert state.line.ready == 0


def test_what_was_delayed_may_have_started_or_ended_before_its_time_came() -> None:
    state = _begun([TaskGroup("a", 2)], Rules(ALL_AT_ONCE))
    for task in (0, 1):
        step(state, Failed(task, 1, SERVER), 1.0)
    apply(state, TaskStarted(0, 2, 1.5, "other rules had no delay"))
    apply(state, TaskFinished(1, 2, 1.5))
    assert step(state, Ticked(), 2.0) == Step((), ())
    assert _finish(state, 0).events[-1] == RunFinished(1.0, 2, 0)


def test_a_copy_of_a_state_without_shared_keys_sees_none() -> None:
    state = _begun([TaskGroup("a", 2)], Rules(ALL_AT_ONCE))
    twin, seen = copied(state)
    assert (seen, list(twin.active), twin.coherence) == ({}, list(state.active), None)
    assert twin.active is not state.active
