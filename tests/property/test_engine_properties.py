"""For any graph, rules and course of events: every task ends once, nobody jumps, replay agrees."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings

from headway.engine.engine import advance, apply, begin, decide, starts
from headway.engine.events import (
    Began,
    Event,
    Failed,
    Finished,
    GroupExpanded,
    LocalRoom,
    Reused,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    StartAttempt,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskReused,
    TaskSkipped,
    TaskStarted,
    WaveBegan,
)
from headway.engine.state import Rules
from headway.engine.strategy import LOOKAHEAD, Strategy
from headway.plans.graph import Graph
from tests.property.engine_runs import (
    MOMENTS,
    RULES,
    TROUBLE,
    Moment,
    Run,
    begun,
    blocks_in,
    driven,
    facts,
    graphs,
    needed,
)


def _size(strategy: Strategy) -> float:
    return strategy.size if strategy.size > 0 else inf


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=50)
def test_every_task_ends_exactly_once_and_the_run_after_the_last(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    run = driven(graph, rules, course)
    events = run.events
    done = [e.task for e in events if isinstance(e, TaskFinished | TaskReused)]
    failed = [e.task for e in events if isinstance(e, TaskFailed)]
    skipped = [e.task for e in events if isinstance(e, TaskSkipped)]
    ends = done + failed + skipped
    assert len(set(ends)) == len(ends)
    assert [e for e in events if isinstance(e, RunFinished)] == events[-1:]
    over = events[-1]
    assert isinstance(over, RunFinished)
    assert (over.finished, over.failed, over.skipped) == (len(done), len(failed), len(skipped))
    tasks = run.state.ready_set.numbers.total
    if any(isinstance(event, RunStopping) for event in events):
        assert over.left == tasks - len(ends) + run.state.ready_set.unknown
    else:
        assert over.left == 0
        assert sorted(ends) == list(range(tasks))


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=50)
def test_a_task_starts_after_its_needs_and_never_while_the_run_is_held_or_stopping(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    run = driven(graph, rules, course)
    done: set[int] = set()
    lost: set[int] = set()
    active: dict[int, int] = {}
    attempts: dict[int, int] = {}
    not_before: dict[int, float] = {}
    pause, window_s, is_stopping = False, -inf, False
    for event in run.events:
        if isinstance(event, TaskStarted):
            assert needed(run.state, event.task, is_lenient=False) <= done
            assert needed(run.state, event.task, is_lenient=True) <= done | lost
            assert event.task not in active
            assert event.attempt == attempts.get(event.task, 0) + 1
            assert event.at_s >= not_before.get(event.task, 0.0)
            assert not pause
            assert not is_stopping
            assert event.at_s >= window_s
            attempts[event.task] = active[event.task] = event.attempt
        elif isinstance(event, TaskFinished | TaskFailed | TaskDelayed):
            assert event.attempt == active.pop(event.task)
            if isinstance(event, TaskFinished):
                done.add(event.task)
            elif isinstance(event, TaskDelayed):
                not_before[event.task] = event.again_s
            else:
                lost.add(event.task)
        elif isinstance(event, TaskSkipped):
            lost.add(event.task)
        elif isinstance(event, TaskReused):
            del active[event.task]
            done.add(event.task)
        elif isinstance(event, RunHeld):
            pause = pause or event.until_s == inf
            window_s = window_s if event.until_s == inf else event.until_s
        elif isinstance(event, RunContinued):
            window_s = window_s if pause and window_s > event.at_s else -inf
            pause = False
        elif isinstance(event, RunStopping):
            is_stopping = True
            active = {} if event.is_now else active


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=50)
def test_only_what_needs_a_failed_task_is_skipped_and_it_never_started(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    run = driven(graph, rules, course)
    events, total = run.events, run.state.ready_set.numbers.total
    started = {event.task for event in events if isinstance(event, TaskStarted)}
    failed = {event.task for event in events if isinstance(event, TaskFailed)}
    skipped = {event.task: event.because for event in events if isinstance(event, TaskSkipped)}
    assert not started & skipped.keys()
    assert set(skipped.values()) <= failed
    lost = failed | skipped.keys()
    for task in range(total):
        if needed(run.state, task, is_lenient=False) & lost:
            assert task in skipped


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=50)
def test_retries_are_bounded(graph: Graph, rules: Rules, course: list[Moment]) -> None:
    tries: dict[int, int] = {}
    run = driven(graph, rules, course)
    for event in run.events:
        if isinstance(event, TaskDelayed) and event.fault.kind != "rate":
            tries[event.task] = tries.get(event.task, 0) + 1
    for task, count in tries.items():
        own = graph.groups[run.state.place(task)[0]].retries
        assert count <= (rules.retries if own is None else own)


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=50)
def test_no_more_are_active_than_strategy_ceiling_and_machine_allow(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    run = driven(graph, rules, course)
    active: dict[int, int] = {}
    places = inf
    for number, (_, happened, taken) in enumerate(run.steps):
        places = happened.places if isinstance(happened, LocalRoom) else places
        for event in taken.events:
            if isinstance(event, TaskStarted):
                active[event.task] = number
                assert len(active) <= min(_size(rules.strategy), rules.ceiling)
                here = [t for t in active if graph.groups[run.state.place(t)[0]].is_local]
                if event.task in here:
                    assert len(here) <= max(1.0, places)
                if rules.strategy.kind == "waves":
                    assert set(active.values()) == {number}
            elif isinstance(event, TaskFinished | TaskFailed | TaskDelayed | TaskReused):
                del active[event.task]
            elif isinstance(event, RunStopping) and event.is_now:
                active.clear()


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=50)
def test_a_queue_is_in_declared_order_and_one_at_a_time(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    run = driven(graph, rules, course)
    turns: dict[str, tuple[int, int]] = {}
    active: dict[str, int] = {}
    for event in run.events:
        if isinstance(event, TaskStarted):
            place = run.state.place(event.task)
            queue = graph.groups[place[0]].queue
            if queue:
                assert queue not in active
                assert turns.get(queue, (-1, 0)) <= place
                turns[queue], active[queue] = place, event.task
        elif isinstance(event, TaskFinished | TaskFailed | TaskDelayed | TaskReused):
            active.pop(graph.groups[run.state.place(event.task)[0]].queue, None)


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=50)
def test_waves_are_numbered_and_come_before_their_tasks(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    numbers: list[int] = []
    for _, _, taken in driven(graph, rules, course).steps:
        waves = [event for event in taken.events if isinstance(event, WaveBegan)]
        numbers += [wave.number for wave in waves]
        assert all(wave.of >= wave.number for wave in waves)
        is_started = any(isinstance(effect, StartAttempt) for effect in taken.effects)
        assert len(waves) == (is_started and rules.strategy.kind == "waves")
    assert numbers == list(range(1, len(numbers) + 1))


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=50)
def test_no_ready_task_waits_while_there_is_room(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    run = begun(graph, rules, course)
    state, active = run.state, len(run.state.active)
    state.ripen(run.now)
    here = state.line.local
    elsewhere = state.line.ready - here
    is_feedable = rules.strategy.kind != "adaptive" or len(state.waiting) < LOOKAHEAD
    could = (elsewhere and is_feedable) or (here and state.local + 1 <= max(1.0, state.places))
    room = rules.strategy.room(active) >= 1 and active + 1 <= rules.ceiling
    assert not (could and room and not state.is_stopping)
    assert starts(state, run.now) == []


@given(graphs(), RULES, TROUBLE, TROUBLE)
@settings(max_examples=50)
def test_replaying_the_events_gives_the_same_state_at_any_point(
    graph: Graph, rules: Rules, course: list[Moment], rest: list[Moment]
) -> None:
    run = begun(graph, rules, course)
    replayed = begin(graph, rules)
    for event in run.events:
        apply(replayed, event)
    replayed.places = run.state.places
    assert facts(replayed, run.now) == facts(run.state, run.now)
    # What was replayed goes on like what was not.
    other = Run(replayed, wakes=list(run.wakes), now=run.now)
    for moment in rest:
        assert other.happen(moment) == run.happen(moment)
    assert facts(other.state, run.now) == facts(run.state, run.now)


@given(graphs(), RULES, RULES, TROUBLE)
@settings(max_examples=50)
def test_events_recorded_under_other_rules_can_be_replayed(
    graph: Graph, rules: Rules, others: Rules, course: list[Moment]
) -> None:
    run = begun(graph, rules, course)
    replayed = begin(graph, others)
    for event in run.events:
        apply(replayed, event)
    for state in (run.state, replayed):
        state.ripen(run.now)
    there, here = run.state, replayed
    assert here.ready_set.states == there.ready_set.states
    assert here.active == there.active
    assert here.tried == there.tried
    assert here.delayed == there.delayed
    assert here.line.ready == there.line.ready
    assert (here.finished, here.failed, here.left) == (there.finished, there.failed, there.left)


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=50)
def test_the_same_inputs_give_the_same_steps(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    first = driven(graph, rules, course)
    second = driven(Graph(graph.groups), rules, course)
    assert first.steps == second.steps


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=50)
def test_ends_may_become_part_of_the_state_long_after_they_were_decided(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    """As a driver does it that makes them durable first: in batches, in the order they came."""
    run = Run(begin(graph, rules))
    events: list[Event] = list(run.feed(Began()).events)
    pending: dict[int, list[Event]] = {}

    def settle() -> None:
        for decided in pending.values():
            taken = advance(run.state, decided, run.now)
            run.wakes += [e.again_s for e in decided if isinstance(e, TaskDelayed)]
            events.extend((*decided, *taken.events))
        pending.clear()

    for moment in course:
        run.now += moment.after_s
        happened = run.meant(moment)
        if not isinstance(happened, Finished | Failed | Reused):
            events += run.feed(happened).events
        elif happened.task not in pending and (decided := decide(run.state, happened, run.now)):
            pending[happened.task] = decided
        if moment.pick % 4 == 0:
            settle()
    settle()
    seen = len(run.steps)
    run.finish()
    events += [event for _, _, taken in run.steps[seen:] for event in taken.events]
    kinds = TaskFinished | TaskReused | TaskFailed | TaskSkipped
    ends = [event.task for event in events if isinstance(event, kinds)]
    assert len(set(ends)) == len(ends)
    replayed = begin(graph, rules)
    for event in events:
        apply(replayed, event)
    replayed.places = run.state.places
    assert facts(replayed, run.now) == facts(run.state, run.now)


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=50)
def test_a_group_is_found_once(graph: Graph, rules: Rules, course: list[Moment]) -> None:
    found = [e for e in driven(graph, rules, course).events if isinstance(e, GroupExpanded)]
    assert len({event.group for event in found}) == len(found)
    sizes = {event.group: event.count for event in found}
    for group, count in sizes.items():
        for need in graph.blocks[group]:
            assert blocks_in(sizes[need.group], need.block) == count
