"""Why a task has not started: every condition that is still open.

Laws:
- If everything that is named is gone, the task starts at the next step; while one of them is
  left, it does not, whatever else changes.
- What has to end before the task can start anyhow (what it needs, and what its queue lets go
  first, and so on) is not in its way for another reason too: it takes no place and is before no
  other task.
- Places are asked for one at a time: "all 4 places are taken" is gone when one is free. So is who
  may still write what the task reads: the first of them is named, and the next when that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final, Literal

from msgspec import Struct

from headway.engine.state import State
from headway.plans.graph import Graph, Need
from headway.plans.ready import DONE, WORDS
from headway.plans.resources import ANYTHING, Prefixes, covers, shown_key
from headway.state.coherence import Awaited, awaited

BlockerKind = Literal[
    "begin", "over", "stopping", "pause", "hold",  # the run
    "needs", "queue", "delay", "state",  # the task
    "strategy", "ceiling", "machine", "line",  # room
]  # fmt: skip

SHOWN_MAX: Final = 3
"""Tasks that are named one by one; more are counted."""

ENDS: Final = {"done": "finished", "failed": "failed", "lost": "skipped"}


class Blocker(Struct, frozen=True):
    """One thing that keeps a task from starting."""

    kind: BlockerKind
    words: str
    group: int = -1
    """The group that is needed, that has the queue's turn, or that may write what is read."""


class StartReason(Struct, frozen=True):
    """Where a task is, and each thing that keeps it from starting."""

    task: int
    status: Literal["blocked", "free", "started", "proposed", "ended"]
    """Free: it starts at the next step. Proposed: it has a result, and waits for others."""
    words: str
    blockers: tuple[Blocker, ...] = ()


class ReasonNames(Struct, frozen=True):
    """How tasks and times are written for people."""

    task: Callable[[int], str]
    time: Callable[[float], str] = "{:g} s".format


def why(state: State, task: int, now: float, names: ReasonNames | None = None) -> StartReason:
    """What keeps a task from starting, or where it is if nothing does."""
    state.ripen(now)
    names = names or ReasonNames(lambda other: _plain(state, other))
    if task in state.active:
        doing = "waits for a permit" if task in state.waiting else "is at work"
        return StartReason(task, "started", f"attempt {state.active[task]} {doing}")
    if (here := state.ready_set.states[task]) >= DONE:
        return StartReason(task, "ended", f"it is {ENDS[WORDS[here]]}")
    if (held := state.proposed.get(task)) is not None:
        whom = _of_the_state(state, task, names)
        waits = whom[0].words if whom else "is committed next"
        return StartReason(task, "proposed", f"attempt {held.attempt} has ended and {waits}")
    blockers = _of_the_run(state, now, names)
    blockers += _of_its_own(state, task, names)
    blockers += _of_the_state(state, task, names)
    blockers += _of_room(state, task)
    if not blockers:
        return StartReason(task, "free", "it starts at the next step")
    words = ", and ".join(blocker.words for blocker in blockers)
    return StartReason(task, "blocked", words, tuple(blockers))


def must_end(state: State, task: int) -> dict[int, set[int]]:
    """The tasks, by group, that must end before this one can start, and have not: what it needs,
    whose turn comes before, and what those wait for themselves."""
    graph, numbers, states = state.graph, state.ready_set.numbers, state.ready_set.states
    found: dict[int, set[int]] = {}
    passed: set[int] = set()
    reached: list[tuple[int, Iterable[int]]] = [(numbers.group_of(task), (task,))]
    if whom := _whom(state, task):
        group, member, _ = whom
        first = (numbers.task_of(group, member),) if member >= 0 else ()
        found[group] = set(first)
        reached.append((group, first))
    while reached:
        group, tasks = reached.pop()
        before: list[tuple[int, Iterable[int]]] = []
        for need in _needs(graph, group):
            other = need.group
            if not numbers.members(other) and other not in passed:
                passed.add(other)  # It has no task to wait for, but needs others itself.
                reached += [] if state.ready_set.is_done(other) else [(other, ())]
            before.append((other, numbers.members(other)))
            if need.block:
                own = [task - numbers.firsts[group] for task in tasks]
                before[-1] = other, [one for who in own for one in numbers.needed(need, who)]
        if tasks and (queue := graph.groups[group].queue):
            turns = graph.queues[queue]
            before += [(other, numbers.members(other)) for other in turns[: turns.index(group)]]
            before.append((group, range(numbers.firsts[group], max(tasks))))
        for other, candidates in before:
            known = found.setdefault(other, set())
            if new := {t for t in candidates if states[t] < DONE and t not in known}:
                known |= new
                reached.append((other, new))
    return found


def _needs(graph: Graph, group: int) -> list[Need]:
    """What a group needs, of every other one in one way."""
    in_blocks = {need.group: need for need in graph.blocks[group]}
    return [in_blocks.get(other) or Need(other) for other in graph.needs[group]]


def _of_the_run(state: State, now: float, names: ReasonNames) -> list[Blocker]:
    blockers: list[Blocker] = []
    if state.over:
        blockers.append(Blocker("over", "the run is over"))
    if not state.is_begun:
        blockers.append(Blocker("begin", "the run has not begun"))
    if state.is_stopping:
        blockers.append(Blocker("stopping", "the run is stopping"))
    if state.is_paused:
        blockers.append(Blocker("pause", f"the run is held: {state.pause_reason}"))
    if now < state.held_until_s:
        until = names.time(state.held_until_s)
        blockers.append(Blocker("hold", f"the run is held until {until}: {state.hold_reason}"))
    return blockers


def _of_its_own(state: State, task: int, names: ReasonNames) -> list[Blocker]:
    group, member = state.place(task)
    ready_set = state.ready_set
    blockers: list[Blocker] = []
    for need in _needs(state.graph, group):
        tasks = ready_set.numbers.needed(need, member)
        left = [other for other in tasks if ready_set.states[other] < DONE]
        if left or not (need.block or ready_set.is_done(need.group)):
            words = _need_words(state, need, left, names)
            if need.group in state.graph.lenient[group]:
                words = words.replace("are not finished", "have not ended")
            blockers.append(Blocker("needs", words, need.group))
    queue = state.graph.groups[group].queue
    turn = state.sequencer.turn(queue) if queue else None
    if turn is not None and turn != (group, member):
        words = f"queue `{queue}` is at {_at(state, *turn, names)}"
        blockers.append(Blocker("queue", words, turn[0]))
    if task in state.delayed:
        at = names.time(state.delayed[task])
        blockers.append(Blocker("delay", f"attempt {state.tried[task] + 1} is due at {at}"))
    return blockers


def _whom(state: State, task: int) -> tuple[int, int, Awaited] | None:
    """The first of those before it that may still write what it reads: group and member, -1 if the
    group's members are not known yet."""
    if state.coherence is None or (found := awaited(state.coherence, task)) is None:
        return None
    return *state.coherence.places.who(found.position), found


def _of_the_state(state: State, task: int, names: ReasonNames) -> list[Blocker]:
    if (whom := _whom(state, task)) is None:
        return []
    group, member, found = whom
    verb = "is known to write" if found.is_likely else "may still write"
    words = f"waits for {_at(state, group, member, names)}, which {verb} {_written(state, whom)}"
    return [Blocker("state", words, group)]


def _written(state: State, whom: tuple[int, int, Awaited]) -> str:
    """What of that which is read the other one may write, as far as it says so."""
    group, member, found = whom
    touches = state.graph.groups[group].touches or ANYTHING
    writes = touches.writes if member < 0 else touches.of(member).writes
    shown = found.reads or ()
    if writes is not None and not found.is_likely:
        shown = tuple(one for one in writes if _meets(found.reads, one))
    every = dict.fromkeys(f"`{shown_key(one)}`" for one in shown if one)
    return ", ".join(list(every)[:SHOWN_MAX]) or "anything"


def _meets(reads: Prefixes, written: str) -> bool:
    return covers(reads, written) or any(covers((written,), one) for one in reads or ())


def _of_room(state: State, task: int) -> list[Blocker]:
    groups, group_of = state.graph.groups, state.ready_set.numbers.group_of
    before = must_end(state, task)
    active = [other for other in state.active if other not in before.get(group_of(other), ())]
    waiting = sum(other in state.waiting for other in active)
    local = sum(groups[group_of(other)].is_local for other in active)
    group, rules = group_of(task), state.rules
    is_local = groups[group].is_local
    places = rules.strategy.room(len(active))
    callers = inf if is_local else rules.callers(waiting)
    below = rules.ceiling - len(active)
    here = max(1.0, state.places) - local
    blockers: list[Blocker] = []
    if min(places, callers) < 1:
        blockers.append(Blocker("strategy", _no_place(state, len(active), waiting)))
    if below < 1:
        blockers.append(Blocker("ceiling", f"no more than {rules.ceiling:g} may be active"))
    if is_local and here < 1:
        words = f"this machine is full: {local} of {max(1, int(state.places))} places are taken"
        blockers.append(Blocker("machine", words))
    room = int(min(max(1.0, places), max(1.0, below), state.line.ready + 1))
    callers = rules.callers(waiting)
    if line := _of_the_line(state, task, before, room, callers, here):
        blockers.append(line)
    return blockers


def _of_the_line(
    state: State, task: int, before: Mapping[int, set[int]], room: int, callers: float, here: float
) -> Blocker | None:
    """Whether those before it, as far as they can start, leave a place for it.

    There is room for so many in all, for `callers` that make calls, for `here` on this machine.
    """
    group, _ = state.place(task)
    is_local = state.graph.groups[group].is_local
    calling, local = state.line.ahead(group, task, before)
    callers = int(min(max(0.0 if is_local else 1.0, callers), calling + 1))
    here = int(min(max(1.0 if is_local else 0.0, here), local + 1))
    own, own_room = (local, here) if is_local else (calling, callers)
    if own < own_room and min(calling, callers) + min(local, here) < room:
        return None
    count = calling + local
    first = "1 task goes" if count == 1 else f"{count} tasks go"
    return Blocker("line", f"{first} first, and there is room for {min(room, own_room):g}")


def _no_place(state: State, active: int, waiting: int) -> str:
    strategy = state.rules.strategy
    if strategy.kind == "waves":
        return f"wave {state.wave} has {active} left"
    if strategy.kind == "fixed":
        return f"all {strategy.size} places are taken"
    return f"{waiting} started tasks wait for a permit"


def _need_of_one(state: State, task: int, names: ReasonNames) -> str:
    if task in state.active:
        where = "in flight"
    elif task in state.proposed:
        where = "held"
    elif task in state.delayed:
        where = "queued"
    else:
        word = WORDS[state.ready_set.states[task]]
        where = {"ready": "queued", "pending": "waiting for a task"}.get(word, word)
    return f"needs {names.task(task)}, which is {where}"


def _need_words(state: State, need: Need, left: list[int], names: ReasonNames) -> str:
    name = state.graph.groups[need.group].name
    if not state.ready_set.numbers.is_known(need.group):
        return f"needs {name}, whose tasks are not known yet"
    if not left:
        return f"needs {name}, which is empty but needs others"
    if len(left) == 1:
        return _need_of_one(state, left[0], names)
    if len(left) > SHOWN_MAX:
        share = f"{need.block} of" if need.block else "all of"
        return f"needs {share} {name}, of which {len(left)} are not finished"
    *most, last = map(names.task, left)
    return f"needs {', '.join(most)} and {last}, which are not finished"


def _at(state: State, group: int, member: int, names: ReasonNames) -> str:
    if state.ready_set.numbers.is_known(group):
        return names.task(state.task_of(group, member))
    return f"{state.graph.groups[group].name}, whose tasks are not known yet"


def _plain(state: State, task: int) -> str:
    group, member = state.place(task)
    name = state.graph.groups[group].name
    return name if len(state.ready_set.numbers.members(group)) == 1 else f"{name}[{member}]"
