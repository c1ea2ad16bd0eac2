"""What happens next: starts, ends, delays, failures, holds, stops, and runs taken over."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Fault, FaultKind
from headway.engine.engine import (
    RETRIED,
    RETRY_S_MAX,
    Step,
    apply,
    begin,
    decide,
    replayed,
    restore,
    starts,
    step,
)
from headway.engine.events import (
    Began,
    CallAdmitted,
    CallWaited,
    CancelAll,
    Ending,
    Event,
    Expanded,
    Failed,
    Finished,
    GroupExpanded,
    Input,
    LocalRoom,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    StartAttempt,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Ticked,
    WakeAt,
    WaveBegan,
)
from headway.engine.explain import why
from headway.engine.record import Fact, MoneyReserved, ReplyKept
from headway.engine.state import Halt, Rules, State
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, LOOKAHEAD, Strategy
from headway.errors import InternalError
from headway.plans.graph import Graph, Need, Task, TaskGroup
from headway.plans.resources import Touches
from headway.state.coherence import Coherence
from headway.state.shared import Shared

SERVER = Fault("server")
HOPELESS = Fault("request")


def _run(needs: dict[str, str], strategy: Strategy, retries: int = 3) -> State:
    """A run before its first input; `{"c": "a b"}` is a task c that needs a and b."""
    graph = Graph.of(Task(name, tuple(before.split())) for name, before in needs.items())
    return begin(graph, Rules(strategy, retries))


def _started(taken: Step) -> list[int]:
    return [effect.task for effect in taken.effects if isinstance(effect, StartAttempt)]


def test_what_needs_nothing_starts_and_the_reason_is_recorded() -> None:
    state = _run({"a": "", "b": "a"}, ALL_AT_ONCE)
    taken = step(state, Began(), 2.0)
    began = RunBegan(2.0, "all-at-once")
    assert taken.events == (began, TaskStarted(0, 1, 2.0, "everything starts at once"))
    assert taken.effects == (StartAttempt(0, 1),)


def test_adaptive_starts_another_task_when_one_got_its_permit() -> None:
    state = _run({str(name): "" for name in range(100)}, ADAPTIVE)
    assert len(_started(step(state, Began(), 0.0))) == LOOKAHEAD
    taken = step(state, CallAdmitted(5, 1.0), 1.0)
    assert taken.events[0] == CallAdmitted(5, 1.0)
    assert _started(taken) == [LOOKAHEAD]


def test_a_task_that_waits_for_its_next_permit_keeps_others_from_starting() -> None:
    state = _run({str(name): "" for name in range(100)}, ADAPTIVE)
    step(state, Began(), 0.0)
    step(state, CallAdmitted(5, 1.0), 1.0)
    assert step(state, CallWaited(5, 2.0), 2.0).events == (CallWaited(5, 2.0),)
    assert len(state.waiting) == LOOKAHEAD + 1
    assert _started(step(state, CallAdmitted(5, 3.0), 3.0)) == []
    assert _started(step(state, CallAdmitted(6, 3.0), 3.0)) == [LOOKAHEAD + 1]


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


@pytest.mark.parametrize(
    "nonsense",
    [
        Finished(1, 1),
        Finished(7, 1),
        Finished(-1, 1),
        Failed(1, 1, SERVER),
        CallWaited(9, 0.0),
        CallAdmitted(1, 1.0),
    ],
)
def test_an_input_about_a_task_that_is_not_active_means_nothing(nonsense: Input) -> None:
    state = _run({"a": "", "b": "a"}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    assert step(state, nonsense, 1.0) == Step((), ())


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        *((kind, TaskFailed) for kind in ("request", "spend_cap", "billing", "command", "unfit")),
        *((kind, TaskDelayed) for kind in sorted(RETRIED)),
    ],
)
def test_a_fault_is_tried_again_if_it_may_pass(kind: FaultKind, event: type) -> None:
    state = _run({"a": ""}, ALL_AT_ONCE)
    step(state, Began(), 0.0)
    assert isinstance(step(state, Failed(0, 1, Fault(kind)), 1.0).events[0], event)


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


REFUSED = Fault("rate")


def _begun(groups: list[TaskGroup], rules: Rules) -> State:
    state = begin(Graph(groups), rules)
    step(state, Began(), 0.0)
    return state


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


def test_higher_priority_goes_first_then_the_longer_way_then_declared_order() -> None:
    groups = [
        TaskGroup("a", 2, weight_s=1.0),
        TaskGroup("b", 2, weight_s=9.0),
        TaskGroup("c", 2, priority=1.0),
        TaskGroup("d", 2, weight_s=9.0),
    ]
    assert list(_begun(groups, Rules(ADAPTIVE, ceiling=8)).active) == [4, 5, 2, 3, 6, 7, 0, 1]
    assert list(_begun(groups, Rules(Strategy("fixed", 8))).active) == [4, 5, 0, 1, 2, 3, 6, 7]


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


def test_nothing_starts_while_the_run_is_held() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    taken = step(state, RunHeld(1.0, 100.0, "usage window"), 1.0)
    assert taken == Step((RunHeld(1.0, 100.0, "usage window"),), (WakeAt(100.0),))
    assert _started(_finish(state, 0, 50.0)) == []
    assert _started(step(state, Ticked(), 99.9)) == []
    taken = step(state, Ticked(), 100.0)
    assert taken.events[0] == RunContinued(100.0)
    assert _started(taken) == [2]


def test_a_hold_may_be_moved_and_lifted() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    step(state, RunHeld(1.0, 5.0, "usage window"), 1.0)
    step(state, RunHeld(2.0, 9.0, "usage window"), 2.0)
    assert _started(_finish(state, 0, 6.0)) == []
    assert _started(step(state, RunHeld(7.0, 7.0, "it has reset"), 7.0)) == [2]
    assert step(state, RunHeld(8.0, 3.0, "long ago"), 8.0) == Step((), ())


def test_a_pause_lasts_until_somebody_lets_the_run_go_on() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    taken = step(state, RunHeld(1.0, inf, "paused"), 1.0)
    assert taken == Step((RunHeld(1.0, inf, "paused"),), ())
    assert _started(_finish(state, 0, 1e9)) == []
    taken = step(state, RunContinued(1e9), 1e9)
    assert taken.events[0] == RunContinued(1e9)
    assert _started(taken) == [2]
    assert step(state, RunContinued(1e9), 1e9) == Step((), ())


def test_a_window_that_is_empty_outlasts_a_pause() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    _finish(state, 0)
    step(state, RunHeld(1.0, 10.0, "usage window"), 1.0)
    step(state, RunHeld(2.0, inf, "paused"), 2.0)
    _finish(state, 1, 3.0)
    taken = step(state, RunContinued(4.0), 4.0)
    assert taken.events == (RunContinued(4.0), RunHeld(4.0, 10.0, "usage window"))
    assert len(_started(step(state, Ticked(), 10.0))) == 1


def test_a_pause_outlasts_a_window_that_was_empty() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 2)))
    step(state, RunHeld(1.0, 10.0, "usage window"), 1.0)
    step(state, RunHeld(2.0, inf, "paused"), 2.0)
    _finish(state, 0, 3.0)
    assert step(state, Ticked(), 11.0) == Step((), ())
    taken = step(state, RunContinued(12.0), 12.0)
    assert taken.events[0] == RunContinued(12.0)
    assert _started(taken) == [2]
    assert state.held_until_s == -inf


def test_an_attempt_that_a_hold_refused_waits_and_is_not_counted() -> None:
    state = _begun([TaskGroup("a")], Rules(ALL_AT_ONCE, retries=0))
    step(state, RunHeld(1.0, 10.0, "usage window"), 1.0)
    assert isinstance(step(state, Failed(0, 1, REFUSED), 1.0).events[0], TaskDelayed)
    assert step(state, Ticked(), 10.0).effects == (StartAttempt(0, 2),)
    assert isinstance(step(state, Failed(0, 2, REFUSED), 11.0).events[0], TaskFailed)


def test_a_run_that_stops_lets_what_is_started_end() -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 3)))
    step(state, Failed(0, 1, SERVER), 1.0)
    taken = step(state, RunStopping(2.0, "interrupted"), 2.0)
    assert taken == Step((RunStopping(2.0, "interrupted"),), ())
    assert step(state, RunStopping(2.0, "again"), 2.0) == Step((), ())
    assert step(state, RunHeld(2.0, 9.0, "usage window"), 2.0) == Step((), ())
    assert _started(_finish(state, 1, 5.0)) == []
    _finish(state, 2, 5.0)
    taken = step(state, Finished(3, 1), 6.0)
    assert taken.events == (TaskFinished(3, 1, 6.0), RunFinished(6.0, 3, 0, 0, left=6))


def test_a_run_that_stops_now_takes_back_what_is_started() -> None:
    state = _begun(
        [TaskGroup("a", 9), TaskGroup("b", 2, is_local=True)], Rules(Strategy("fixed", 11))
    )
    _finish(state, 0)
    step(state, RunStopping(1.0, "interrupted"), 1.0)
    taken = step(state, RunStopping(2.0, "interrupted twice", is_now=True), 2.0)
    assert taken.effects == (CancelAll(),)
    stop = RunStopping(2.0, "interrupted twice", is_now=True)
    assert taken.events == (stop, RunFinished(2.0, 1, 0, 0, left=10))
    assert not state.active
    assert not state.waiting
    assert state.local == 0
    assert state.tried == dict.fromkeys(range(1, 11), 1)
    assert step(state, RunStopping(3.0, "thrice", is_now=True), 3.0) == Step((), ())


def test_what_was_refused_by_a_stop_is_left_and_not_failed() -> None:
    state = _begun([TaskGroup("a")], Rules(ALL_AT_ONCE, retries=0))
    step(state, RunStopping(1.0, "budget"), 1.0)
    events = step(state, Failed(0, 1, REFUSED), 1.0).events
    assert events[-1] == RunFinished(1.0, 0, 0, 0, left=1)


def test_a_run_that_is_stopped_before_it_began_ends_when_it_begins() -> None:
    state = begin(Graph([TaskGroup("a", 2)]), Rules())
    step(state, RunStopping(1.0, "interrupted"), 1.0)
    assert step(state, Began(), 2.0).events[-1] == RunFinished(2.0, 0, 0, 0, left=2)


@pytest.mark.parametrize("is_now", [False, True])
def test_a_run_halts_after_so_many_failures(is_now: bool) -> None:
    state = _begun([TaskGroup("a", 9)], Rules(Strategy("fixed", 3), halt=Halt(2, is_now)))
    assert _started(step(state, Failed(0, 1, HOPELESS), 1.0)) == [3]
    taken = step(state, Failed(1, 1, HOPELESS), 2.0)
    assert taken.events[1] == RunStopping(2.0, "2 failed", is_now)
    assert state.over is is_now
    assert len(state.active) == (0 if is_now else 2)


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


def test_a_follower_that_was_lost_before_its_group_was_found_stays_lost() -> None:
    blocks = (Need(0), Need(1, block=1))
    groups = [TaskGroup("x"), TaskGroup("a", None), TaskGroup("b", None, blocks)]
    state = _begun(groups, Rules(ALL_AT_ONCE))
    step(state, Failed(0, 1, HOPELESS), 1.0)
    assert _started(step(state, Expanded(1, 2), 1.0)) == [1, 2]


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
    assert step(state, CallWaited(3, 1.0), 1.0).events == (CallWaited(3, 1.0),)
    assert state.waiting == {3}


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


def _words(state: State, task: int) -> list[str]:
    answer = why(state, task, 0.0)
    assert answer.blockers
    return [*answer.blockers]


def test_what_touches_the_state_may_be_freed_by_a_failure() -> None:
    shared = Touches(("k",), ())
    graph = Graph(
        [TaskGroup("a", 2), TaskGroup("sum", 1, (Need(0, is_lenient=True),), touches=shared)]
    )
    state = begin(graph, Rules(ALL_AT_ONCE), Coherence(graph, Shared()))
    step(state, Began(), 0.0)
    step(state, Finished(0, 1), 1.0)
    assert _started(step(state, Failed(1, 1, HOPELESS), 2.0)) == [2]


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
    step(state, Failed(6, 1, HOPELESS), 1.0)
    assert why(state, 10, 1.0).words == "it is skipped"
    assert _words(state, 11)[0] == "needs map[7] and map[8], which have not ended"


def test_what_is_finished_is_not_started_again() -> None:
    groups = [
        TaskGroup("a", 4),
        TaskGroup("b", 4, (Need(0, block=1),)),
        TaskGroup("merge", 1, (Need(1),)),
    ]
    state = begin(Graph(groups), Rules(ALL_AT_ONCE))
    restore(state, [0, 1, 3, 4], {2: 3, 0: 1})
    assert step(state, Began(), 0.0).effects == (
        StartAttempt(2, 4),
        StartAttempt(5, 1),
        StartAttempt(7, 1),
    )
    assert state.finished == 4


def test_attempts_of_before_are_numbered_but_not_counted_as_tries() -> None:
    state = begin(Graph([TaskGroup("a")]), Rules(ALL_AT_ONCE, retries=1))
    restore(state, [], {0: 7})
    assert step(state, Began(), 0.0).effects == (StartAttempt(0, 8),)
    delayed = step(state, Failed(0, 8, SERVER), 0.0).events[0]
    assert delayed == TaskDelayed(0, 8, 0.0, 1.0, SERVER)
    assert step(state, Ticked(), 1.0).effects == (StartAttempt(0, 9),)
    assert isinstance(step(state, Failed(0, 9, SERVER), 1.0).events[0], TaskFailed)


def test_members_that_were_found_at_run_time_are_restored_too() -> None:
    groups = [
        TaskGroup("list"),
        TaskGroup("each", None, (Need(0),)),
        TaskGroup("merge", 1, (Need(1),)),
    ]
    state = begin(Graph(groups), Rules(ALL_AT_ONCE))
    restore(state, [0], {})
    step(state, Expanded(1, 3), 0.0)
    restore(state, [2, 3], {})
    assert step(state, Began(), 0.0).effects == (StartAttempt(4, 1),)
    assert state.finished == 3


def test_a_run_that_has_begun_cannot_be_restored() -> None:
    state = begin(Graph([TaskGroup("a")]), Rules())
    step(state, Began(), 0.0)
    with pytest.raises(InternalError, match="has begun"):
        restore(state, [0], {})


PUT_OFF = Fault("access", retry_after_s=inf, detail="HTTP 401")


def _last(state: State, happened: object, now: float = 1.0) -> Event | None:
    events = step(state, happened, now).events  # type: ignore[arg-type]
    return events[-1] if events else None


def test_the_run_ends_with_it_left_when_nothing_else_can_start() -> None:
    state = _begun([TaskGroup("ask", 2)], Rules(ALL_AT_ONCE))
    _last(state, Failed(0, 1, PUT_OFF))
    assert _last(state, Ticked()) is None, "another task still runs"
    _last(state, Finished(1, 1))
    assert not state.over
    stopping, over = step(state, Ticked(), 2.0).events
    assert isinstance(stopping, RunStopping)
    assert isinstance(over, RunFinished)
    assert (over.finished, over.failed, over.left) == (1, 0, 1)


def test_a_run_that_is_held_or_has_another_delay_goes_on() -> None:
    state = _begun([TaskGroup("ask", 3)], Rules(ALL_AT_ONCE))
    _last(state, Failed(0, 1, PUT_OFF))
    _last(state, Failed(1, 1, Fault("server")))
    _last(state, Finished(2, 1))
    assert _last(state, Ticked()) is None
    state = _begun([TaskGroup("ask")], Rules(ALL_AT_ONCE))
    _last(state, Failed(0, 1, PUT_OFF))
    _last(state, RunHeld(0.0, 100.0, "a window"))
    _last(state, Ticked())
    assert not state.over


RULES = Rules(Strategy("fixed", 2))


def graph() -> Graph:
    return Graph((TaskGroup("probe", 3), TaskGroup("verdict", 1, (Need(0),))))


def test_replay_gives_the_state_that_the_process_had() -> None:
    lived = begin(graph(), RULES)
    facts: list[Fact] = []
    for happened in (Began(), CallAdmitted(0, 1.0), Finished(0, 1), CallAdmitted(1, 1.0)):
        facts += step(lived, happened, 1.0).events
    facts += [MoneyReserved(1, 1, 1.0, 5), ReplyKept(1, 1, 1.0, b"digest")]
    again = replayed(graph(), RULES, facts)
    assert (again.active, again.waiting) == (lived.active, lived.waiting)
    assert (again.finished, again.is_begun) == (1, True)
    assert why(again, 3, 1.0) == why(lived, 3, 1.0)


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
