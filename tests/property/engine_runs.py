"""Any run of any graph: what the property tests of the engine draw and drive."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal

from hypothesis import strategies as st
from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import Fault
from headway.engine.engine import Step, begin, step
from headway.engine.events import (
    Began,
    CallAdmitted,
    CallWaited,
    Event,
    Expanded,
    Failed,
    Finished,
    Input,
    LocalRoom,
    Reused,
    RunContinued,
    RunHeld,
    RunStopping,
    Ticked,
    WakeAt,
)
from headway.engine.state import Halt, Rules, State
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, Strategy
from headway.errors import QueueOrderError
from headway.plans.graph import Graph, Need, TaskGroup

GROUPS_MAX = 6
MEMBERS_MAX = 4
STEPS_MAX = 1000
BLOCKS = (1, 2, 3)
KINDS = ("server", "timeout", "request", "billing", "rate")

STRATEGIES: st.SearchStrategy[Strategy] = st.one_of(
    st.just(ALL_AT_ONCE),
    st.builds(Strategy, st.sampled_from(["waves", "fixed"]), st.integers(1, 5)),
    st.just(ADAPTIVE),
)
CEILINGS = st.one_of(st.just(inf), st.integers(1, 5).map(float))
HALTS = st.one_of(st.none(), st.builds(Halt, st.integers(1, 3), st.booleans()))
RULES = st.builds(Rules, STRATEGIES, st.integers(0, 2), HALTS, CEILINGS)

Verb = Literal[
    "finish", "reuse", "fail", "late", "wait", "admit", "tick", "hold", "pause", "continue",
    "stop", "expand", "places", "begin",
]  # fmt: skip
COMMON: tuple[Verb, ...] = ("finish", "finish", "finish", "reuse", "fail", "fail", "late", "wait",
                            "admit", "tick", "expand", "expand", "places", "begin")  # fmt: skip
RARE: tuple[Verb, ...] = ("hold", "pause", "continue", "continue", "stop")


class Moment(Struct, frozen=True):
    """Something that happens after a while; who it happens to is picked when it does."""

    after_s: float
    verb: Verb
    pick: int
    fault: Fault


def moments(verbs: Sequence[Verb], max_size: int = 50) -> st.SearchStrategy[list[Moment]]:
    """A course of events of these kinds."""
    faults = st.builds(Fault, st.sampled_from(KINDS))
    after_s, picks = st.sampled_from((0.0, 0.5, 2.0)), st.integers(0, 63)
    moment = st.builds(Moment, after_s, st.sampled_from(verbs), picks, faults)
    return st.lists(moment, max_size=max_size)


MOMENTS = moments(COMMON)
TROUBLE = moments((*COMMON, *RARE))


@st.composite
def reductions(draw: st.DrawFn) -> Graph:
    """A graph of blocks of blocks: each level behind one before it, and some who need all of it."""
    counts: list[int | None] = [draw(st.sampled_from((1, 4, 7, None))), 2]
    groups = [TaskGroup("first", counts[0]), TaskGroup("other", 2)]
    for number in range(2, draw(st.integers(3, 2 * GROUPS_MAX))):
        source = draw(st.integers(0, number - 1))
        block, forgives = draw(st.integers(0, 3)), st.sampled_from((False, True))
        count = (
            blocks_in(counts[source], block) if block else draw(st.sampled_from((0, 1, 2, None)))
        )
        needs = [Need(source, block, draw(forgives))]
        if (other := draw(st.integers(0, number - 1))) != source:
            needs.append(Need(other, 0, draw(forgives)))
        counts.append(count)
        groups.append(TaskGroup(f"g{number}", count, tuple(needs)))
    return Graph(groups)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A graph without cycles, declared in any order: groups of all sizes, queues, local tasks."""
    size = draw(st.integers(0, GROUPS_MAX))
    place = draw(st.permutations(range(size)))
    sizes = st.sampled_from((0, 1, 1, 2, 3, MEMBERS_MAX, 7, None, None))
    counts = draw(st.lists(sizes, min_size=size, max_size=size))
    groups: dict[int, TaskGroup] = {}
    for number in range(size):
        before = draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        needs: dict[int, Need] = {}
        for other in before:
            is_alone = counts[number] is not None or not any(n.block for n in needs.values())
            blocks = [
                block for block in BLOCKS if blocks_in(counts[other], block) == counts[number]
            ]
            block = draw(st.sampled_from((0, *blocks))) if is_alone else 0
            needs.setdefault(other, Need(place[other], block, draw(st.integers(0, 3)) == 0))
        groups[place[number]] = TaskGroup(
            f"g{number}", counts[number], tuple(needs.values()),
            weight_s=float(draw(st.integers(0, 3))), priority=float(draw(st.integers(0, 1))),
            queue=draw(st.sampled_from(("", "", "q", "p"))),
            retries=draw(st.sampled_from((None, None, 1))), is_local=draw(st.booleans()),
        )  # fmt: skip
    declared = [groups[number] for number in range(size)]
    try:
        return Graph(declared)
    except QueueOrderError:
        return Graph(replace(group, queue="") for group in declared)


def blocks_in(count: int | None, block: int) -> int | None:
    """How many blocks so many members are, found naively."""
    return None if count is None else len(range(0, count, block))


def needed(state: State, task: int, *, is_lenient: bool) -> set[int]:
    """The tasks that a task needs, leniently or not, found naively."""
    group, member = state.place(task)
    found: set[int] = set()
    for need in state.graph.groups[group].needs:
        if need.is_lenient == is_lenient:
            members = state.ready_set.numbers.members(need.group)
            found |= {task for i, task in enumerate(members) if is_in(need, i, member)}
    return found


def is_in(need: Need, other: int, member: int) -> bool:
    """Whether a member of another group is one of those that a member needs."""
    return not need.block or other // need.block == member


class Run(Struct):
    """A run as a driver sees it: its state, what happened by step, and what remains to be done."""

    state: State
    steps: list[tuple[float, Input, Step]] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    now: float = 0.0

    def feed(self, happened: Input) -> Step:
        taken = step(self.state, happened, self.now)
        self.steps.append((self.now, happened, taken))
        self.wakes += [effect.at_s for effect in taken.effects if isinstance(effect, WakeAt)]
        return taken

    def happen(self, moment: Moment) -> Step:
        """Time passes, what was to be woken is, and then the moment comes."""
        self.now += moment.after_s
        self.tick()
        return self.feed(self.meant(moment))

    def tick(self) -> None:
        """Report every time that was asked for and has come."""
        due = [at_s for at_s in self.wakes if at_s <= self.now]
        self.wakes = [at_s for at_s in self.wakes if at_s > self.now]
        for _ in due:
            self.feed(Ticked())

    def meant(self, moment: Moment) -> Input:
        """What a moment says, about whom it picks."""
        active = sorted(self.state.active)
        task = active[moment.pick % len(active)] if active else moment.pick - 1
        attempt = self.state.active.get(task, 1)
        unknown = self.unknown()
        inputs: dict[Verb, Input] = {
            "finish": Finished(task, attempt),
            "reuse": Reused(task, attempt),
            "fail": Failed(task, attempt, moment.fault),
            "late": Finished(task, attempt + 1),
            "wait": CallWaited(task, self.now),
            "admit": CallAdmitted(task, self.now),
            "tick": Ticked(),
            "hold": RunHeld(self.now, self.now + moment.pick - 5.0, "window"),
            "pause": RunHeld(self.now, inf, "paused"),
            "continue": RunContinued(self.now),
            "stop": RunStopping(self.now, "interrupted", moment.pick % 2 == 0),
            "expand": Expanded(unknown[moment.pick % len(unknown)], moment.pick % 4)
            if unknown
            else Ticked(),
            "places": LocalRoom(moment.pick / 8),
            "begin": Began(),
        }
        return inputs[moment.verb]

    def unknown(self) -> list[int]:
        """Groups whose members somebody has to find."""
        ready_set, graph = self.state.ready_set, self.state.graph
        return [
            group
            for group in range(len(graph))
            if not ready_set.numbers.is_known(group)
            and not ready_set.is_lost[group]
            and not any(need.block for need in graph.groups[group].needs)
        ]

    def finish(self) -> None:
        """Let the run go on and finish whatever is left."""
        self.feed(Began())
        self.feed(RunContinued(self.now))
        self.feed(RunContinued(self.now))
        for _ in range(STEPS_MAX):
            if self.state.over:
                return
            if active := self.state.active:
                task = min(active)
                self.feed(Finished(task, active[task]))
            elif unknown := self.unknown():
                self.feed(Expanded(unknown[0], 2))
            else:
                self.now = min(self.wakes)
                self.tick()
        raise AssertionError("the run does not end")

    @property
    def events(self) -> list[Event]:
        return [event for _, _, taken in self.steps for event in taken.events]


def driven(graph: Graph, rules: Rules, course: Sequence[Moment]) -> Run:
    """Let everything happen as it comes, then finish whatever is left."""
    run = begun(graph, rules, course)
    run.finish()
    return run


def begun(graph: Graph, rules: Rules, course: Sequence[Moment]) -> Run:
    """Let everything happen as it comes."""
    run = Run(begin(graph, rules))
    run.feed(Began())
    for moment in course:
        run.happen(moment)
    return run


def facts(state: State, now: float) -> tuple[object, ...]:
    """All of a state but its tables, in a form that can be compared."""
    state.ripen(now)
    everyone = len(state.ready_set.states)
    ready = (bytes(state.ready_set.states), state.line.first(everyone, everyone, everyone))
    turns = [state.sequencer.turn(queue) for queue in state.graph.queues]
    tasks = (state.delayed, state.active, state.tried, state.earlier, state.waiting, state.local)
    counts = (state.finished, state.failed, state.skipped, state.left, state.wave)
    holds = (state.is_paused, state.held_until_s, state.hold_reason, state.pause_reason)
    flags = (state.is_begun, state.is_stopping, state.over)
    return (*ready, turns, *tasks, *counts, *holds, *flags)
