"""For any state: what is named keeps a task from starting, all of it does, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from hypothesis import given, settings
from msgspec.structs import replace

from headway.engine.engine import advance, apply, begin
from headway.engine.events import TaskStarted
from headway.engine.explain import BlockerKind, StartReason, must_end, why
from headway.engine.state import Rules, State
from headway.engine.strategy import Strategy
from headway.plans.graph import Graph
from headway.plans.ready import DONE, READY
from tests.property.engine_runs import RULES, TROUBLE, Moment, Run, begun, graphs, is_in

Named = tuple[BlockerKind, int]
EVERYWHERE: tuple[Named, ...] = (
    ("begin", -1), ("over", -1), ("stopping", -1), ("pause", -1), ("hold", -1), ("delay", -1),
    ("queue", -1), ("strategy", -1), ("ceiling", -1), ("machine", -1), ("line", -1),
)  # fmt: skip
"""What can be in the way, besides needs."""


class Roomy(Strategy, frozen=True):
    """A strategy that always has a place."""

    def room(self, active: int) -> float:
        return max(1.0, Strategy.room(self, active))


class RoomyRules(Rules, frozen=True):
    """Rules by which one more may always make calls."""

    def callers(self, waiting: int) -> float:
        return max(1.0, Rules.callers(self, waiting))


def _copy(run: Run) -> State:
    state = begin(run.state.graph, run.state.rules)
    for event in run.events:
        apply(state, event)
    state.places = run.state.places
    state.ripen(run.now)
    return state


def _before(state: State, task: int) -> set[int]:
    """All that must end before a task can start and has not, found naively."""
    numbers, states = state.ready_set.numbers, state.ready_set.states
    found: set[int] = set()
    reached = [task]
    while reached:
        group, member = state.place(reached.pop())
        others: set[int] = set()
        for need in state.graph.groups[group].needs:
            members = enumerate(numbers.members(need.group))
            others |= {one for other, one in members if is_in(need, other, member)}
            others |= _behind_empty(state, need.group)
        if queue := state.graph.groups[group].queue:
            for other in state.graph.queues[queue]:
                others |= set(numbers.members(other)) if other < group else set()
            others |= set(numbers.members(group)[:member])
        new = {other for other in others if states[other] < DONE} - found
        reached += new
        found |= new
    return found


def _behind_empty(state: State, group: int) -> set[int]:
    """A group without tasks, as far as is known, passes on what it needs."""
    found: set[int] = set()
    reached = [group]
    while reached:
        group = reached.pop()
        if not state.ready_set.numbers.members(group) and not state.ready_set.is_done(group):
            reached += state.graph.needs[group]
            for need in state.graph.needs[group]:
                found |= set(state.ready_set.numbers.members(need))
    return found


def _remove(state: State, task: int, gone: Collection[Named]) -> None:
    """Take what is named out of the way of a task, and touch nothing else."""
    kinds = {kind for kind, _ in gone}
    group, _ = state.place(task)
    state.is_begun |= "begin" in kinds
    state.over &= "over" not in kinds
    if "stopping" in kinds:
        state.is_stopping, state.rules = False, replace(state.rules, halt=None)
    state.is_paused &= "pause" not in kinds
    state.held_until_s = -inf if "hold" in kinds else state.held_until_s
    is_ready = _is_ready(state, task, gone)
    if {"needs", "queue"} & kinds:
        for other in _before(state, task):
            _vanish(state, other)
    if is_ready and not state.line.has(group, task):
        state.delayed.pop(task, None)
        state.ready_set.states[task] = READY
        state.line.put(group, range(task, task + 1))
    if "line" in kinds and state.line.has(group, task):
        everyone = len(state.ready_set.states)
        line = state.line.first(everyone, everyone, everyone)
        for other in line[: line.index(task)]:
            _vanish(state, other)
    if "strategy" in kinds:
        rules, inner = state.rules, state.rules.strategy
        roomy = Roomy(inner.kind, inner.size)
        state.rules = RoomyRules(roomy, rules.retries, rules.halt, rules.ceiling, rules.is_patient)
    if "ceiling" in kinds:
        ceiling = max(state.rules.ceiling, len(state.active) + 1)
        state.rules = replace(state.rules, ceiling=ceiling)
    if "machine" in kinds:
        state.places = max(state.places, state.local + 1)


def _vanish(state: State, task: int) -> None:
    group, _ = state.place(task)
    if state.line.has(group, task):
        state.line.take(group, task)
    if state.active.pop(task, None) is not None:
        state.waiting.discard(task)
        state.local -= state.graph.groups[group].is_local
    state.delayed.pop(task, None)


def _is_ready(state: State, task: int, gone: Collection[Named]) -> bool:
    """Whether nothing of its own keeps a task, if that is gone."""
    group, member = state.place(task)
    queue = state.graph.groups[group].queue
    has_turn = not queue or state.sequencer.turn(queue) == (group, member)
    is_due = task not in state.delayed or ("delay", -1) in gone
    return _all_needs(state, task) <= set(gone) and is_due and (has_turn or ("queue", -1) in gone)


def _all_needs(state: State, task: int) -> set[Named]:
    """Every need of a task that is not done, found naively."""
    group, member = state.place(task)
    found: set[Named] = set()
    for need in state.graph.groups[group].needs:
        members = enumerate(state.ready_set.numbers.members(need.group))
        tasks = [one for other, one in members if is_in(need, other, member)]
        is_done = all(state.ready_set.states[one] >= DONE for one in tasks)
        if not (is_done if tasks else state.ready_set.is_done(need.group)):
            found.add(("needs", need.group))
    return found


def _starts(state: State, task: int, now: float) -> bool:
    events = advance(state, [], now).events
    return any(isinstance(event, TaskStarted) and event.task == task for event in events)


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=350)
def test_exactly_what_is_named_keeps_a_task_from_starting(
    graph: Graph, rules: Rules, course: list[Moment]
) -> None:
    run = begun(graph, rules, course)
    for task in range(run.state.ready_set.numbers.total):
        answer = why(run.state, task, run.now)
        assert (answer.status == "started") == (task in run.state.active)
        assert (answer.status == "ended") == (run.state.ready_set.states[task] >= DONE)
        if answer.status == "free":
            assert _starts(_copy(run), task, run.now)
        elif answer.status == "blocked":
            _check(run, task, answer)


def _check(run: Run, task: int, answer: StartReason) -> None:
    named: list[Named] = [
        (blocker.kind, blocker.group if blocker.kind == "needs" else -1)
        for blocker in answer.blockers
    ]
    assert len(set(named)) == len(named) > 0
    assert not _starts(_copy(run), task, run.now)
    state = _copy(run)
    _remove(state, task, named)
    assert _starts(state, task, run.now)
    every = {*EVERYWHERE, *_all_needs(run.state, task)}
    for kept in named:
        state = _copy(run)
        _remove(state, task, every - {kept})
        assert not _starts(state, task, run.now), kept


@given(graphs(), RULES, TROUBLE)
@settings(max_examples=100)
def test_what_must_end_first_is_found(graph: Graph, rules: Rules, course: list[Moment]) -> None:
    state = begun(graph, rules, course).state
    for task in range(state.ready_set.numbers.total):
        found = {other for tasks in must_end(state, task).values() for other in tasks}
        assert found == _before(state, task)
