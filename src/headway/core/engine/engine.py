"""What happens next in a run: inputs in, events and effects out. The page to print.

    pending --needs done--> ready --room--> started --finished--> finished
                              ^                |-----failed, more attempts--> delayed --time--+
                              |                |-----failed, no more--> failed                |
                              +-------------------------------------------------------------- +
    a task that needs a failed one is skipped, and so is everything that needs it

Laws:
- `decide` and `starts` hold all policy and change nothing; `apply` is total, holds none, and
  is all that replay needs.
- A task starts when its own needs are finished; there is no barrier between stages.
- A throttled task waits, it never fails: refusals do not reach the engine.
- Pending tasks are numbers in arrays, not objects: what is not started costs bytes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

from headway.core.engine.events import (
    Admitted,
    Began,
    CallAdmitted,
    CallWaited,
    Effect,
    Event,
    Finished,
    Input,
    RunFinished,
    Start,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskSkipped,
    TaskStarted,
    Ticked,
    Waiting,
    WakeAt,
)
from headway.core.engine.strategy import Activity, Adaptive, Strategy
from headway.core.plan.graph import Graph, ReadySet
from headway.core.values import Fault, FaultKind

RETRIED: Final[frozenset[FaultKind]] = frozenset(
    ("overload", "broken", "server", "timeout", "connection", "rate", "concurrency")
)
"""Faults that another attempt may not meet. Waiting does not mend a request, a cap or a bill."""

RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 30.0
DOUBLINGS_MAX: Final = 10
"""The delay doubles with each attempt; further doublings are beyond its maximum."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run treats its tasks."""

    strategy: Strategy = Adaptive()
    retries: int = 3


@dataclass(slots=True)
class State:
    """Everything the engine knows. Changed by `apply` alone."""

    graph: Graph
    rules: Rules
    ranks: list[float]
    ready_set: ReadySet
    ready: list[tuple[float, int]] = field(default_factory=list)
    delayed: list[tuple[float, int]] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    active: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    finished: int = 0
    failed: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What one input led to."""

    events: tuple[Event, ...]
    effects: tuple[Effect, ...]


def begin(graph: Graph, rules: Rules) -> State:
    """The state before the first input."""
    weights = [task.weight_s for task in graph.tasks]
    ranks = graph.upward_rank(weights) if rules.strategy.ranked else [0.0] * len(weights)
    state = State(graph, rules, ranks, ReadySet(graph))
    state.ready = [(-ranks[task], task) for task in state.ready_set.ready()]
    heapq.heapify(state.ready)
    return state


def step(state: State, happened: Input, now: float) -> Step:
    """Take one input: record what it means, then start what may start."""
    events = decide(state, happened, now)
    for event in events:
        apply(state, event)
    for event in starts(state, now):
        events.append(event)
        apply(state, event)
    if not state.over and state.finished + state.failed == len(state.graph.tasks):
        done = RunFinished(now, state.finished, state.failed)
        events.append(done)
        apply(state, done)
    return Step(tuple(events), tuple(_effects(events)))


def decide(state: State, happened: Input, now: float) -> list[Event]:
    """What an input means, as facts."""
    if isinstance(happened, Began | Ticked):
        return []
    task = happened.task
    if task not in state.active:
        return []
    if isinstance(happened, Waiting):
        return [CallWaited(task, now)]
    if isinstance(happened, Admitted):
        return [CallAdmitted(task, now)]
    if isinstance(happened, Finished):
        return [TaskFinished(task, state.attempts[task], now)]
    return _failure(state, task, happened.fault, now)


def starts(state: State, now: float) -> list[TaskStarted]:
    """The tasks that start now, best first."""
    strategy = state.rules.strategy
    room = strategy.room(Activity(len(state.active), len(state.waiting)))
    count = int(min(room, len(state.ready) + len(state.delayed)))
    if count <= 0:
        return []
    due = [(-state.ranks[task], task) for at, task in state.delayed if at <= now]
    first = heapq.nsmallest(count, [*_front(state.ready, count), *due])
    return [
        TaskStarted(task, state.attempts.get(task, 0) + 1, now, strategy.reason)
        for _, task in first
    ]


def apply(state: State, event: Event) -> None:
    """Make a fact part of the state."""
    if isinstance(event, TaskStarted):
        _leave_ready(state, event.task)
        state.attempts[event.task] = event.attempt
        state.active.add(event.task)
        state.waiting.add(event.task)
    elif isinstance(event, CallWaited):
        state.waiting.add(event.task)
    elif isinstance(event, CallAdmitted):
        state.waiting.discard(event.task)
    elif isinstance(event, TaskFinished):
        _leave_active(state, event.task)
        state.finished += 1
        for task in state.ready_set.done(event.task):
            heapq.heappush(state.ready, (-state.ranks[task], task))
    elif isinstance(event, TaskDelayed):
        _leave_active(state, event.task)
        heapq.heappush(state.delayed, (event.again_s, event.task))
    elif isinstance(event, TaskFailed):
        _leave_active(state, event.task)
        state.failed += 1
        state.ready_set.fail(event.task)
    elif isinstance(event, TaskSkipped):
        state.failed += 1
    else:
        state.over = True


def _front(heap: list[tuple[float, int]], count: int) -> list[tuple[float, int]]:
    """The smallest entries of a heap, in order, without taking them out: O(count log count)."""
    front: list[tuple[float, int]] = []
    candidates = [(heap[0], 0)] if heap else []
    while candidates and len(front) < count:
        entry, index = heapq.heappop(candidates)
        front.append(entry)
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heapq.heappush(candidates, (heap[child], child))
    return front


def _failure(state: State, task: int, fault: Fault, now: float) -> list[Event]:
    attempt = state.attempts[task]
    if fault.kind in RETRIED and attempt <= state.rules.retries:
        delay_s = min(RETRY_S_MAX, RETRY_S * 2.0 ** min(attempt - 1, DOUBLINGS_MAX))
        return [TaskDelayed(task, attempt, now, now + delay_s, fault)]
    events: list[Event] = [TaskFailed(task, attempt, now, fault)]
    events += [TaskSkipped(other, now, task) for other in state.ready_set.doomed(task)]
    return events


def _leave_ready(state: State, task: int) -> None:
    """What `starts` chose is at the front of the ready heap, or was delayed.

    A journal may come from other rules, with another order: then the task is further behind.
    """
    if state.ready and state.ready[0][1] == task:
        heapq.heappop(state.ready)
        return
    heap = state.delayed if task in state.attempts else state.ready
    heap[:] = [entry for entry in heap if entry[1] != task]
    heapq.heapify(heap)


def _leave_active(state: State, task: int) -> None:
    state.active.discard(task)
    state.waiting.discard(task)


def _effects(events: list[Event]) -> list[Effect]:
    effects: list[Effect] = []
    for event in events:
        if isinstance(event, TaskStarted):
            effects.append(Start(event.task, event.attempt))
        elif isinstance(event, TaskDelayed):
            effects.append(WakeAt(event.again_s))
    return effects
