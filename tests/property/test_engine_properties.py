"""For any graph, strategy and inputs, sensible or not: every task ends once, and replay agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.engine.engine import Rules, State, Step, apply, begin, step
from headway.core.engine.events import (
    Admitted,
    Began,
    Event,
    Failed,
    Finished,
    Input,
    RunFinished,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskSkipped,
    TaskStarted,
    Ticked,
    Waiting,
    WakeAt,
)
from headway.core.engine.strategy import LOOKAHEAD, Adaptive, AllAtOnce, Fixed, Strategy, Waves
from headway.core.plan.graph import Graph, Task
from headway.core.values import Fault

TASKS_MAX = 12
KINDS = ("server", "timeout", "broken", "request", "billing")

STRATEGIES: st.SearchStrategy[Strategy] = st.one_of(
    st.just(AllAtOnce()),
    st.builds(Waves, st.integers(1, 5), st.booleans()),
    st.builds(Fixed, st.integers(1, 5), st.booleans()),
    st.builds(Adaptive, st.one_of(st.just(inf), st.integers(1, 5)), st.booleans()),
)
RULES = st.builds(Rules, STRATEGIES, st.integers(0, 2))
INDICES = st.integers(-1, TASKS_MAX + 1)
INPUTS: st.SearchStrategy[Input] = st.one_of(
    st.builds(Finished, INDICES),
    st.builds(Failed, INDICES, st.builds(Fault, st.sampled_from(KINDS))),
    st.builds(Waiting, INDICES),
    st.builds(Admitted, INDICES),
    st.sampled_from([Began(), Ticked()]),
)
MOMENTS = st.lists(st.tuples(st.floats(0.0, 3.0), INPUTS), max_size=60)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A graph without cycles, declared in any order, with durations."""
    size = draw(st.integers(0, TASKS_MAX))
    tasks: dict[int, Task] = {}
    for task in range(size):
        needs = draw(st.lists(st.integers(0, task - 1), max_size=3)) if task else []
        weight_s = float(draw(st.integers(0, 3)))
        tasks[task] = Task(str(task), tuple(map(str, needs)), (), weight_s)
    return Graph(tasks[task] for task in draw(st.permutations(range(size))))


@dataclass(slots=True)
class Run:
    """A run as a driver sees it: its state, what happened by step, and what remains to be done."""

    state: State
    steps: list[tuple[float, Step]] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    now: float = 0.0

    def feed(self, happened: Input) -> Step:
        taken = step(self.state, happened, self.now)
        self.steps.append((self.now, taken))
        self.wakes += [effect.at_s for effect in taken.effects if isinstance(effect, WakeAt)]
        return taken

    def tick(self) -> None:
        """Report every time that was asked for and has come."""
        due = [at_s for at_s in self.wakes if at_s <= self.now]
        self.wakes = [at_s for at_s in self.wakes if at_s > self.now]
        for _ in due:
            self.feed(Ticked())

    @property
    def events(self) -> list[Event]:
        return [event for _, taken in self.steps for event in taken.events]


def _driven(graph: Graph, rules: Rules, moments: Sequence[tuple[float, Input]]) -> Run:
    """Feed the inputs as they come, then finish whatever is left."""
    run = Run(begin(graph, rules))
    run.feed(Began())
    for delay_s, happened in moments:
        run.now += delay_s
        run.tick()
        run.feed(happened)
    while run.state.active or run.wakes:
        if run.state.active:
            run.feed(Finished(min(run.state.active)))
        else:
            run.now = min(run.wakes)
            run.tick()
    return run


def _facts(state: State) -> tuple[object, ...]:
    """All of a state but its tables, in a form that can be compared."""
    heaps = (state.ready, state.delayed, state.ready_set.ready())
    tasks = (state.attempts, state.active, state.waiting)
    counts = (state.finished, state.failed, state.over, state.ready_set.statistics())
    return (*heaps, *tasks, *counts)


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=120)
def test_every_task_ends_exactly_once_and_the_run_after_the_last(
    graph: Graph, rules: Rules, moments: list[tuple[float, Input]]
) -> None:
    events = _driven(graph, rules, moments).events
    ends = [e.task for e in events if isinstance(e, TaskFinished | TaskFailed | TaskSkipped)]
    assert sorted(ends) == list(range(len(graph)))
    assert [e for e in events if isinstance(e, RunFinished)] == events[-1:]
    over = events[-1]
    assert isinstance(over, RunFinished)
    assert over.finished == sum(isinstance(e, TaskFinished) for e in events)
    assert over.finished + over.failed == len(graph)


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=120)
def test_a_task_starts_after_its_needs_and_attempts_are_counted_and_bounded(
    graph: Graph, rules: Rules, moments: list[tuple[float, Input]]
) -> None:
    finished: set[int] = set()
    active: set[int] = set()
    attempts = dict.fromkeys(range(len(graph)), 0)
    not_before = dict.fromkeys(range(len(graph)), 0.0)
    for event in _driven(graph, rules, moments).events:
        if isinstance(event, TaskStarted):
            assert set(graph.needs[event.task]) <= finished
            assert event.task not in active
            assert event.attempt == attempts[event.task] + 1 <= rules.retries + 1
            assert event.at_s >= not_before[event.task]
            attempts[event.task] = event.attempt
            active.add(event.task)
        elif isinstance(event, TaskFinished | TaskFailed | TaskDelayed):
            assert event.attempt == attempts[event.task]
            active.remove(event.task)
            if isinstance(event, TaskFinished):
                finished.add(event.task)
            elif isinstance(event, TaskDelayed):
                not_before[event.task] = event.again_s


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=120)
def test_only_what_needs_a_failed_task_is_skipped_and_it_never_started(
    graph: Graph, rules: Rules, moments: list[tuple[float, Input]]
) -> None:
    events = _driven(graph, rules, moments).events
    started = {event.task for event in events if isinstance(event, TaskStarted)}
    lost = {event.task for event in events if isinstance(event, TaskFailed)}
    for event in events:
        if isinstance(event, TaskSkipped):
            assert event.task not in started
            assert event.because in lost
            assert lost & set(graph.needs[event.task])
            lost.add(event.task)
    for task, needs in enumerate(graph.needs):
        assert task in lost or not lost & set(needs)


def _size(strategy: Strategy) -> float:
    if isinstance(strategy, Waves | Fixed):
        return strategy.size
    return strategy.ceiling if isinstance(strategy, Adaptive) else inf


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=120)
def test_no_more_are_active_than_the_strategy_allows_and_waves_never_overlap(
    graph: Graph, rules: Rules, moments: list[tuple[float, Input]]
) -> None:
    run = _driven(graph, rules, moments)
    wave_of: dict[int, int] = {}
    for wave, (_, taken) in enumerate(run.steps):
        for event in taken.events:
            if isinstance(event, TaskStarted):
                wave_of[event.task] = wave
                assert len(wave_of) <= _size(rules.strategy)
                if isinstance(rules.strategy, Waves):
                    assert set(wave_of.values()) == {wave}
            elif isinstance(event, TaskFinished | TaskFailed | TaskDelayed):
                del wave_of[event.task]


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=80)
def test_no_ready_task_waits_while_there_is_room(
    graph: Graph, rules: Rules, moments: list[tuple[float, Input]]
) -> None:
    run = Run(begin(graph, rules))
    run.feed(Began())
    for delay_s, happened in moments:
        run.now += delay_s
        run.feed(happened)
        state, active = run.state, len(run.state.active)
        due = state.ready or [entry for entry in state.delayed if entry[0] <= run.now]
        if isinstance(rules.strategy, Waves):
            assert active or not due
        else:
            assert not due or active >= _size(rules.strategy) or len(state.waiting) >= LOOKAHEAD


@given(graphs(), RULES, MOMENTS, st.integers(0, 100))
@settings(max_examples=120)
def test_replaying_the_events_gives_the_same_state_at_any_point(
    graph: Graph, rules: Rules, moments: list[tuple[float, Input]], cut: int
) -> None:
    run = Run(begin(graph, rules))
    run.feed(Began())
    for delay_s, happened in moments[:cut]:
        run.now += delay_s
        run.feed(happened)
    replayed = begin(graph, rules)
    for event in run.events:
        apply(replayed, event)
    assert _facts(replayed) == _facts(run.state)
    # What was replayed goes on like what was not.
    for delay_s, happened in moments[cut:]:
        run.now += delay_s
        assert step(replayed, happened, run.now) == run.feed(happened)
    assert _facts(replayed) == _facts(run.state)


@given(graphs(), RULES, RULES, MOMENTS)
@settings(max_examples=80)
def test_events_recorded_under_other_rules_can_be_replayed(
    graph: Graph, rules: Rules, others: Rules, moments: list[tuple[float, Input]]
) -> None:
    run = Run(begin(graph, rules))
    run.feed(Began())
    for delay_s, happened in moments:
        run.now += delay_s
        run.feed(happened)
    replayed = begin(graph, others)
    for event in run.events:
        apply(replayed, event)
    there, here = run.state, replayed
    assert here.active == there.active
    assert here.attempts == there.attempts
    assert sorted(here.delayed) == sorted(there.delayed)
    assert {task for _, task in here.ready} == {task for _, task in there.ready}
    assert (here.finished, here.failed, here.over) == (there.finished, there.failed, there.over)


@given(graphs(), RULES, MOMENTS)
@settings(max_examples=60)
def test_the_same_inputs_give_the_same_steps(
    graph: Graph, rules: Rules, moments: list[tuple[float, Input]]
) -> None:
    first = _driven(graph, rules, moments)
    second = _driven(Graph(graph.tasks), rules, moments)
    assert first.steps == second.steps
