"""What happens next in a run: inputs in, events and effects out.

    pending --needs done--> ready --room--> started --finished, reused--> finished
                              ^                |-----failed, more attempts--> delayed --time--+
                              |                |-----failed, no more--> failed                |
                              |                |-----run stopped now--> ready, and left       |
                              |                |-----finished, others before it may still     |
                              |                |     change what it read--> proposed          |
                              +--what it read is different now--<--------+--> finished        |
                              +---------------------------------------------------------------+
    a task that needs a failed one is skipped, and so is everything that needs it; one that needs
    no more than its end is ready

Laws:
- `decide` and `starts` hold all policy and change nothing; `apply` is total, holds none, and
  is all that replay needs.
- A task starts when its own needs are finished; there is no barrier between stages.
- While a run is held or stopping nothing starts. A run that began ends exactly once.
- A throttled task waits, it never fails: refusals do not reach the engine, or find it held.
- A task whose account refuses all calls is delayed for good, and the others go on: a run ends with
  it left when nothing else can start.
- Pending tasks are bytes in arrays, not objects. Nothing here looks at tasks one by one: an input
  costs what it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final

from msgspec import Struct

from headway.base.values import Fault, FaultKind
from headway.engine import events as ev
from headway.engine.record import (
    EffectDone,
    EffectIntended,
    Fact,
    LimitsSeen,
    MoneyReserved,
    ReplyKept,
)
from headway.engine.state import ReadyQueue, Rules, Sequencer, State
from headway.errors import InternalError
from headway.plans.graph import Graph, blocks_in
from headway.plans.ready import DONE, ReadySet
from headway.state.coherence import Breach, Coherence, Early
from headway.state.shared import Change, Shared

# What becomes of an attempt that has ended: a result, another attempt, a failure, or a wait.

RETRIED: Final[frozenset[FaultKind]] = frozenset(
    (
        "overload",
        "broken",
        "server",
        "timeout",
        "stuck",
        "connection",
        "rate",
        "concurrency",
        "disk",
    )
)
"""Faults that another attempt may not meet. Waiting does not mend a request, a cap or a bill."""

OWN: Final[frozenset[FaultKind]] = frozenset(("command", "function", "unfit"))
"""Faults of the work itself: tried again only where the plan says how often."""

ENDS: Final = (ev.Finished, ev.Failed, ev.Abandoned)
NOTICES: Final = (ev.CallAdmitted, ev.CallWaited, ev.AttemptStuck)
"""Of an attempt that goes on: they change nothing of where its task is."""
USUAL: Final = (ev.TaskFinished, *NOTICES)
"""Events of every task and every call: they ask for nothing."""

RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 30.0
DOUBLINGS_MAX: Final = 10
"""The delay doubles with each attempt; further doublings are beyond its maximum."""


def outcome(state: State, happened: ev.Finished | ev.Failed | ev.Abandoned, now: float) -> ev.Event:
    """What the end of a current attempt means, as a fact."""
    coherence = state.coherence
    is_shared = coherence is not None and coherence.has(happened.task)
    if isinstance(happened, ev.Finished):
        if is_shared:
            return judged(state, happened, None, now)
        return ev.TaskFinished(happened.task, happened.attempt, now, happened.ending)
    if isinstance(happened, ev.Abandoned):
        return _abandonment(state, happened, now)
    lost = _failure(state, happened, now)
    # What is tried again anyway sees the state anew; what ends here may be due to a stale one.
    if is_shared and (isinstance(lost, ev.TaskFailed) or happened.fault.kind not in RETRIED):
        return judged(state, happened, happened.fault, now)
    return lost


def judged(
    state: State, happened: ev.Finished | ev.Failed, fault: Fault | None, now: float
) -> ev.Event:
    """What becomes of an attempt that has touched the shared state."""
    coherence, task, attempt = state.coherence, happened.task, happened.attempt
    assert coherence is not None
    verdict = coherence.judge(task, coherence.access_of(task))
    if isinstance(verdict, Change):
        return ev.TaskStale(task, attempt, now, verdict.what, verdict.position, happened.ending)
    if isinstance(verdict, Early):
        return ev.TaskProposed(task, attempt, now, happened.ending, fault)
    if isinstance(verdict, Breach):
        fault = _breach(state, coherence, verdict)
    if fault is None:
        return ev.TaskFinished(task, attempt, now, happened.ending)
    return _failure(state, ev.Failed(task, attempt, fault, happened.ending), now)


def _breach(state: State, coherence: Coherence, found: Breach) -> Fault:
    name = state.graph.groups[coherence.places.who(found.position)[0]].name
    detail = (
        f"it touched `{found.what}` without declaring it, and `{name}`, which comes later and "
        f"did too, is committed; add `writes: {found.what}`"
    )
    return Fault("request", detail=detail)


def _abandonment(state: State, happened: ev.Abandoned, now: float) -> ev.Event:
    """An attempt was ended for what it had read; it may have become right again meanwhile."""
    task, coherence = happened.task, state.coherence
    assert coherence is not None
    verdict = coherence.judge(task, coherence.access_of(task))
    what, because = (verdict.what, verdict.position) if isinstance(verdict, Change) else ("", -1)
    return ev.TaskStale(task, happened.attempt, now, what, because, happened.ending)


def is_last(state: State, task: int, attempt: int) -> bool:
    """Whether the plan allows no attempt after this one for faults that may pass."""
    group = state.graph.groups[state.ready_set.numbers.group_of(task)]
    retries = state.rules.retries if group.retries is None else group.retries
    return attempt - state.earlier.get(task, 0) > retries


def _failure(state: State, happened: ev.Failed, now: float) -> ev.Event:
    task, attempt, fault = happened.task, happened.attempt, happened.fault
    if fault.retry_after_s == inf:
        # Nothing was sent, and nothing will be in this run: the task is neither done nor failed.
        return ev.TaskDelayed(task, attempt, now, inf, fault, happened.ending)
    group = state.graph.groups[state.ready_set.numbers.group_of(task)]
    tries = attempt - state.earlier.get(task, 0)
    is_curable = fault.kind in RETRIED or (fault.kind in OWN and group.retries is not None)
    is_retried = is_curable and not is_last(state, task, attempt)
    is_refused = state.rules.is_patient and fault.kind in ("rate", "concurrency")
    if is_refused or is_retried or state.is_put_back(fault, now):
        delay_s = min(RETRY_S_MAX, RETRY_S * 2.0 ** min(tries - 1, DOUBLINGS_MAX))
        delay_s = max(delay_s, fault.retry_after_s or 0.0)
        return ev.TaskDelayed(task, attempt, now, now + delay_s, fault, happened.ending)
    return ev.TaskFailed(task, attempt, now, fault, happened.ending)


# What an earlier process of a run has done, taken over at once before the run goes on.


def restore(state: State, finished: Iterable[int], attempts: Mapping[int, int]) -> None:
    """These tasks are finished; of others, so many attempts were made and are not counted again.

    Members that were found at run time must be known before (`GroupExpanded`), and nothing may
    have begun. Tasks that failed or were skipped are simply not finished: they are tried again.
    """
    if state.is_begun:
        raise InternalError("a run that has begun cannot be restored")
    ready_set = state.ready_set
    state.finished += ready_set.restore(finished)
    state.line.clear()
    state.offer(ready_set.open())
    for task, attempt in attempts.items():
        if ready_set.states[task] != DONE:
            state.tried[task] = state.earlier[task] = attempt


class Step(Struct, frozen=True):
    events: tuple[ev.Event, ...]
    effects: tuple[ev.Effect, ...]


def begin(graph: Graph, rules: Rules, coherence: Coherence | None = None) -> State:
    """The state before the first input."""
    # Only `adaptive` starts the critical path first; the others go in declared order.
    is_ranked = rules.strategy.kind == "adaptive"
    weights = [group.weight_s for group in graph.groups]
    ranks = graph.upward_rank(weights) if is_ranked else [0.0] * len(graph)
    ready_set = ReadySet(graph)
    line = ReadyQueue(graph, ready_set, ranks)
    state = State(graph, rules, ranks, ready_set, line, Sequencer(graph, ready_set))
    if coherence is None and any(group.touches is not None for group in graph.groups):
        coherence = Coherence(graph, Shared())
    state.coherence = coherence
    for group in range(len(graph)):
        if ready_set.numbers.is_known(group):
            state.grow(group)
    state.offer(ready_set.open())
    return state


def step(state: State, happened: ev.Input, now: float) -> Step:
    """Take one input: record what it means, then start what may start."""
    if isinstance(happened, ev.LocalRoom):
        state.places = happened.places
    events = decide(state, happened, now)
    further, effects = _take(state, events, now)
    return Step((*events, *further), tuple(effects))


def advance(state: State, events: Sequence[ev.Event], now: float) -> Step:
    """Make facts part of the state and go on from there: what follows from them.

    For drivers that make what was decided durable first, and several things at a time: so nothing
    that depends on what else has happened is decided before.
    """
    further, effects = _take(state, events, now)
    return Step(tuple(further), tuple(effects))


def decide(state: State, happened: ev.Input, now: float) -> list[ev.Event]:
    if isinstance(happened, ENDS):
        is_heard = state.active.get(happened.task) == happened.attempt
        return [outcome(state, happened, now)] if is_heard else []
    if isinstance(happened, NOTICES):
        return [happened] if happened.task in state.active else []
    if isinstance(happened, ev.Reused):
        current = state.active.get(happened.task) == happened.attempt
        return [ev.TaskReused(happened.task, now)] if current else []
    return [] if state.over else _about_the_run(state, happened, now)


def is_current(state: State, task: int, attempt: int) -> bool:
    """Whether a result of this attempt is the task's: nothing has taken it back meanwhile."""
    return state.active.get(task) == attempt


def starts(state: State, now: float) -> list[ev.Event]:
    """The tasks that start now, best first, and the wave that they are."""
    if not state.line.ready or not may_start(state, now):
        return []
    rules, line, active = state.rules, state.line, len(state.active)
    strategy = rules.strategy
    count = int(min(strategy.room(active), rules.ceiling - active, line.ready))
    if count <= 0:
        return []
    callers = int(min(rules.callers(len(state.waiting)), count))
    here = int(min(max(1.0, state.places) - state.local, count)) if line.local else 0
    tasks = line.first(count, callers, here)
    tried, reason = state.tried, strategy.reason
    events: list[ev.Event] = [ev.TaskStarted(t, tried.get(t, 0) + 1, now, reason) for t in tasks]
    if events and strategy.kind == "waves":
        size = max(1, min(strategy.size, rules.ceiling))
        wave = ev.WaveBegan(state.wave + 1, state.wave + ceil(state.left / size), now)
        events.insert(0, wave)
    return events


def may_start(state: State, now: float) -> bool:
    """Whether anything may start at all: the run has begun, is not held and not stopping."""
    return state.is_begun and not (state.is_held(now) or state.is_stopping or state.over)


def apply(state: State, event: ev.Event) -> None:
    if isinstance(event, ev.TaskFinished):
        state.end(event.task)
    elif isinstance(event, ev.TaskStarted):
        state.start(event)
    elif isinstance(event, ev.CallAdmitted):
        state.waiting.discard(event.task)
    elif isinstance(event, ev.CallWaited):
        state.waiting.add(event.task)
    elif isinstance(event, ev.AttemptStuck):
        pass  # It is for those who watch.
    elif isinstance(event, ev.TaskReused):
        state.end(event.task)
    elif isinstance(event, ev.TaskProposed):
        state.propose(event)
    elif isinstance(event, ev.TaskStale):
        state.outdate(event)
    elif isinstance(event, ev.TaskDelayed):
        state.delay(event)
    elif isinstance(event, ev.TaskFailed):
        state.fail(event.task)
    elif isinstance(event, ev.TaskSkipped):
        state.pass_over(event.task)
    else:
        _apply_to_the_run(state, event)


def _take(
    state: State, events: Sequence[ev.Event], now: float
) -> tuple[list[ev.Event], list[ev.Effect]]:
    """Apply facts: what follows from them, and what is to be done about all of it."""
    further: list[ev.Event] = []
    effects: list[ev.Effect] = []
    for event in events:
        if isinstance(event, USUAL):
            apply(state, event)
            continue
        if isinstance(event, ev.TaskFailed):
            further += _skips(state, event)
        apply(state, event)
        _ask(effects, event)
    for event in further:
        apply(state, event)
    if state.coherence is not None:
        _commit(state, state.coherence, now, further, effects)
    if state.is_begun and not state.over:
        for event in _by_itself(state, now):
            further.append(event)
            apply(state, event)
            _ask(effects, event)
        if state.wakes:
            state.ripen(now)
        for event in starts(state, now):
            further.append(event)
            if isinstance(event, ev.TaskStarted):
                state.start(event)
                effects.append(ev.StartAttempt(event.task, event.attempt))
            else:
                apply(state, event)
        if not state.active and (state.is_stopping or not state.left):
            over = ev.RunFinished(now, state.finished, state.failed, state.skipped, state.left)
            further.append(over)
            apply(state, over)
    return further, effects


def _commit(
    state: State, coherence: Coherence, now: float, further: list[ev.Event],
    effects: list[ev.Effect],
) -> None:  # fmt: skip
    """Commit proposed results that may be committed; tasks that have read too early run again."""
    while coherence.ripe:
        task = coherence.ripe.pop(0)
        if (held := state.proposed.get(task)) is None:
            continue
        happened = ev.Finished(task, held.attempt, held.ending)
        event = judged(state, happened, held.fault, now)
        if isinstance(event, ev.TaskProposed):
            continue  # It still waits for another task.
        doomed = _skips(state, event) if isinstance(event, ev.TaskFailed) else []
        for one in (event, *doomed):
            further.append(one)
            apply(state, one)
            _ask(effects, one)
    for task in dict.fromkeys(coherence.doomed):
        if (attempt := state.active.get(task)) is not None:
            effects.append(ev.Abandon(task, attempt))
    for task in coherence.opened:
        state.give_back(task)
    effects += (ev.Release(task, access.acts) for task, access in coherence.released)
    coherence.doomed.clear()
    coherence.opened.clear()
    coherence.released.clear()


def _by_itself(state: State, now: float) -> list[ev.Event]:
    """Events without an input: the run halts after failures, and goes on after a hold."""
    halt = state.rules.halt
    if halt is not None and state.failed >= halt.failures and not state.is_stopping:
        return [ev.RunStopping(now, f"{state.failed} failed", halt.is_now)]
    if -inf < state.held_until_s <= now and not state.is_paused:
        return [ev.RunContinued(now)]
    return []


def _skips(state: State, event: ev.TaskFailed) -> list[ev.Event]:
    doomed = state.ready_set.doomed(event.task)
    return [ev.TaskSkipped(task, event.at_s, event.task) for tasks in doomed for task in tasks]


def _about_the_run(state: State, happened: ev.Input, now: float) -> list[ev.Event]:
    if isinstance(happened, ev.Began):
        if state.is_begun:
            return []
        held = [ev.RunHeld(now, state.held_until_s, state.hold_reason)]
        begun = ev.RunBegan(now, state.rules.strategy.name)
        return [begun, *(held if now < state.held_until_s else ())]
    if isinstance(happened, ev.Expanded):
        return _expansion(state, happened, now)
    if isinstance(happened, ev.RunStopping):
        return [happened] if happened.is_now or not state.is_stopping else []
    if isinstance(happened, ev.RunHeld):
        is_news = now < max(happened.until_s, state.held_until_s) and not state.is_stopping
        return [happened] if is_news else []
    if isinstance(happened, ev.RunContinued):
        return _continuation(state, now)
    if isinstance(happened, ev.Ticked) and _is_put_off(state, now):
        return [ev.RunStopping(now, "no other task can start", is_now=False)]
    return []


def _is_put_off(state: State, now: float) -> bool:
    """Whether nothing runs or can start, and every delayed task is delayed for good."""
    is_idle = not state.active and not state.line.ready and may_start(state, now)
    return is_idle and bool(state.wakes) and state.wakes[0][0] == inf


def _expansion(state: State, happened: ev.Expanded, now: float) -> list[ev.Event]:
    """Groups that need blocks of a group are as large as there are blocks, unless they are lost."""
    graph, is_lost = state.graph, state.ready_set.is_lost
    if state.ready_set.numbers.is_known(happened.group) or is_lost[happened.group]:
        return []
    counts = {happened.group: happened.count}
    found = [happened.group]
    for group in found:
        for other, block, _ in graph.followers[group]:
            # A group that needs blocks of several groups comes after the last of them.
            is_next = all(need.group in counts for need in graph.blocks[other])
            if is_next and other not in counts and not is_lost[other]:
                counts[other] = blocks_in(counts[group], block)
                found.append(other)
    return [ev.GroupExpanded(group, counts[group], now) for group in found]


def _continuation(state: State, now: float) -> list[ev.Event]:
    """The end of a pause; the run stays held while a usage window is still empty."""
    if not state.is_paused:
        return [ev.RunContinued(now)] if now < state.held_until_s else []
    events: list[ev.Event] = [ev.RunContinued(now)]
    if now < state.held_until_s:
        events.append(ev.RunHeld(now, state.held_until_s, state.hold_reason))
    return events


def _apply_to_the_run(state: State, event: ev.Event) -> None:
    if isinstance(event, ev.WaveBegan):
        state.wave = event.number
    elif isinstance(event, ev.GroupExpanded):
        freed = state.ready_set.expand(event.group, event.count)
        state.grow(event.group)
        state.offer(freed)
        if queue := state.graph.groups[event.group].queue:
            state.give_turn(queue)
    elif isinstance(event, ev.RunHeld):
        if event.until_s == inf:
            state.is_paused, state.pause_reason = True, event.reason
        else:
            state.held_until_s, state.hold_reason = event.until_s, event.reason
    elif isinstance(event, ev.RunContinued):
        if not state.is_paused or state.held_until_s <= event.at_s:
            state.held_until_s = -inf
        state.is_paused = False
    elif isinstance(event, ev.RunStopping):
        state.is_stopping = True
        if event.is_now:
            state.take_back()
    elif isinstance(event, ev.RunBegan):
        state.is_begun = True
    else:
        state.over = True


def _ask(effects: list[ev.Effect], event: ev.Event) -> None:
    if isinstance(event, ev.TaskDelayed):
        effects.append(ev.WakeAt(event.again_s))
    elif isinstance(event, ev.RunHeld):
        effects += [ev.WakeAt(event.until_s)] if event.until_s < inf else []
    elif isinstance(event, ev.RunStopping):
        effects += [ev.CancelAll()] if event.is_now else []


# The engine's state, rebuilt from what a journal holds: facts in, state out, nothing decided.


def replayed(graph: Graph, rules: Rules, facts: Iterable[Fact]) -> State:
    """The state after these facts, which may be of several processes in turn."""
    finished: set[int] = set()
    attempts: dict[int, int] = {}
    grown: dict[int, ev.GroupExpanded] = {}
    last: list[Fact] = []
    for fact in facts:
        if isinstance(fact, ev.RunBegan):
            _take_fact(last, finished, attempts, grown)
            last = []
        last.append(fact)
    state = begin(graph, rules)
    for expansion in grown.values():
        apply(state, expansion)
    restore(state, finished, attempts)
    for fact in last:
        if isinstance(fact, MoneyReserved | ReplyKept | EffectIntended | EffectDone | LimitsSeen):
            continue
        if isinstance(fact, ev.GroupExpanded) and fact.group in grown:
            continue
        apply(state, fact)
    return state


def _take_fact(
    facts: list[Fact],
    finished: set[int],
    attempts: dict[int, int],
    grown: dict[int, ev.GroupExpanded],
) -> None:
    for fact in facts:
        if isinstance(fact, ev.TaskFinished | ev.TaskReused):
            finished.add(fact.task)
        elif isinstance(fact, ev.TaskStarted):
            attempts[fact.task] = fact.attempt
        elif isinstance(fact, ev.GroupExpanded):
            grown.setdefault(fact.group, fact)
