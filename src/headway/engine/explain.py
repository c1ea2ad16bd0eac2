"""Why a task has not started: what it needs, its turn, the state of the run; else want of room.

Law: while something that is named is left, the task does not start, whatever else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from headway.engine.state import State
from headway.plans.graph import Graph, Need
from headway.plans.ready import DONE, WORDS
from headway.plans.resources import ANYTHING, Prefixes, covers, shown_key
from headway.state.coherence import Awaited, awaited

SHOWN_MAX: Final = 3
"""Tasks that are named one by one; more are counted."""

ENDS: Final = {"done": "finished", "failed": "failed", "lost": "skipped"}


class StartReason(Struct, frozen=True):
    """Where a task is, and each thing that keeps it from starting."""

    words: str
    blockers: tuple[str, ...] = ()
    """Without any, a task that has not started starts at the next step."""
    needs: tuple[str, ...] = ()
    """Of these, the tasks that it needs."""


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
        return StartReason(f"attempt {state.active[task]} {doing}")
    if (here := state.ready_set.states[task]) >= DONE:
        return StartReason(f"it is {ENDS[WORDS[here]]}")
    if (held := state.proposed.get(task)) is not None:
        whom = _of_the_state(state, task, names)
        waits = whom[0] if whom else "is committed next"
        return StartReason(f"attempt {held.attempt} has ended and {waits}")
    needs = _of_needs(state, task, names)
    blockers = [*_of_the_run(state, now, names), *needs, *_of_its_turn(state, task, names)]
    blockers += _of_the_state(state, task, names)
    blockers = blockers or _of_room(state, task)
    words = ", and ".join(blockers) or "it starts at the next step"
    return StartReason(words, tuple(blockers), tuple(needs))


def _needs(graph: Graph, group: int) -> list[Need]:
    """What a group needs, of every other one in one way."""
    in_blocks = {need.group: need for need in graph.blocks[group]}
    return [in_blocks.get(other) or Need(other) for other in graph.needs[group]]


def _of_the_run(state: State, now: float, names: ReasonNames) -> list[str]:
    blockers: list[str] = []
    if state.over:
        blockers.append("the run is over")
    if not state.is_begun:
        blockers.append("the run has not begun")
    if state.is_stopping:
        blockers.append("the run is stopping")
    if state.is_paused:
        blockers.append(f"the run is held: {state.pause_reason}")
    if now < state.held_until_s:
        until = names.time(state.held_until_s)
        blockers.append(f"the run is held until {until}: {state.hold_reason}")
    return blockers


def _of_needs(state: State, task: int, names: ReasonNames) -> list[str]:
    group, member = state.place(task)
    ready_set = state.ready_set
    blockers: list[str] = []
    for need in _needs(state.graph, group):
        tasks = ready_set.numbers.needed(need, member)
        left = [other for other in tasks if ready_set.states[other] < DONE]
        if left or not (need.block or ready_set.is_done(need.group)):
            words = _need_words(state, need, left, names)
            if need.group in state.graph.lenient[group]:
                words = words.replace("are not finished", "have not ended")
            blockers.append(words)
    return blockers


def _of_its_turn(state: State, task: int, names: ReasonNames) -> list[str]:
    group, member = state.place(task)
    blockers: list[str] = []
    queue = state.graph.groups[group].queue
    turn = state.sequencer.turn(queue) if queue else None
    if turn is not None and turn != (group, member):
        blockers.append(f"queue `{queue}` is at {_at(state, *turn, names)}")
    if task in state.delayed:
        at = names.time(state.delayed[task])
        blockers.append(f"attempt {state.tried[task] + 1} is due at {at}")
    return blockers


def _whom(state: State, task: int) -> tuple[int, int, Awaited] | None:
    """The first of those before it that may still write what it reads: group and member, -1 if the
    group's members are not known yet."""
    if state.coherence is None or (found := awaited(state.coherence, task)) is None:
        return None
    return *state.coherence.places.who(found.position), found


def _of_the_state(state: State, task: int, names: ReasonNames) -> list[str]:
    if (whom := _whom(state, task)) is None:
        return []
    group, member, found = whom
    verb = "is known to write" if found.is_likely else "may still write"
    words = f"waits for {_at(state, group, member, names)}, which {verb} {_written(state, whom)}"
    return [words]


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


def _of_room(state: State, task: int) -> list[str]:
    active, waiting, rules = len(state.active), len(state.waiting), state.rules
    is_local = state.graph.groups[state.place(task)[0]].is_local
    blockers: list[str] = []
    if rules.strategy.room(active) < 1 or (not is_local and rules.callers(waiting) < 1):
        blockers.append(_no_place(state, active, waiting))
    if rules.ceiling - active < 1:
        blockers.append(f"no more than {rules.ceiling:g} may be active")
    if is_local and max(1.0, state.places) - state.local < 1:
        places = max(1, int(state.places))
        words = f"this machine is full: {state.local} of {places} places are taken"
        blockers.append(words)
    return blockers


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
