"""The catalogue on real runs: functions of a plan, in the event loop, in threads, in processes.

A run performs many interleavings, one after another: each has its own part of the state, and a
first task that puts there what the case begins with.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final, Literal, cast

from msgspec import Struct

import headway
from bench.coherence_conductor import Conductor, Ends, ask, doorway
from headway.api.plans import PlanHow, TaskHandle
from headway.engine.events import Event, TaskStarted
from tests.coherence import catalogue, catalogue_isolation
from tests.coherence.catalogue_plays import AbortedError, Case, Play
from tests.coherence.harness import Outcome, serial

Where = Literal["async", "threads", "processes"]
CASES: Final = {case.name: case for case in (*catalogue.CASES, *catalogue_isolation.CASES)}
GAVE_UP: Final = "by its own decision, having seen "
AT_ONCE: Final = 100
"""Interleavings of one run."""


class Part(Struct, frozen=True):
    """Which task of which case, in which round; where it asks for turns from another process."""

    case: str
    number: int
    round: int
    door: str = ""


class Ran(Struct, frozen=True):
    """What every interleaving led to, and how many attempts were in vain."""

    outcomes: tuple[Outcome, ...]
    reran: int


class Own:
    """A part of the state: the keys of one round."""

    def __init__(self, ctx: headway.Context, number: int) -> None:
        self._ctx = ctx
        self._folder = f"{number}/"

    def get(self, key: str) -> object:
        return self._ctx.get(self._folder + key)

    def scan(self, pattern: str) -> Mapping[str, object]:
        found = self._ctx.scan(self._folder + pattern)
        return {key.removeprefix(self._folder): value for key, value in found.items()}

    def put(self, key: str, value: object) -> None:
        self._ctx.put(self._folder + key, value)

    def add(self, key: str, value: object) -> None:
        self._ctx.add(self._folder + key, value)

    def remove(self, key: str) -> None:
        self._ctx.remove(self._folder + key)


class Stage:
    """The conductors of one run's rounds."""

    def __init__(self, case: Case, orders: Sequence[Sequence[int]]) -> None:
        self.size = len(case.tasks) + 1
        """Tasks of a round: its own, and the one before them."""
        self._conductors = [Conductor(order, first=len(case.tasks)) for order in orders]

    def __repr__(self) -> str:
        return f"<Stage of {len(self._conductors)} rounds>"

    def told(self, events: Sequence[Event]) -> None:
        """What has happened in the run, at one moment."""
        by_round: dict[int, list[tuple[int, TaskStarted | Ends]]] = {}
        for event in events:
            if isinstance(event, TaskStarted | Ends):
                number, task = divmod(event.task, self.size)
                if task:
                    by_round.setdefault(number, []).append((task - 1, event))
        for number, found in by_round.items():
            self._conductors[number].told(found)

    def turn(self, number: int, task: int, attempt: int) -> None:
        """Wait for the turn of a task of a round."""
        self._conductors[number].turn(task, attempt)


class Watched(headway.Run):
    """A run whose events reach the stage as they happen, all of one moment together."""

    stage: Stage | None = None

    def _watch(self, events: Sequence[Event]) -> None:
        assert self.stage is not None
        self.stage.told(events)
        headway.Run._watch(self, events)


def perform(
    case: Case, where: Where, orders: Sequence[Sequence[int]], is_declared: bool = False
) -> Ran:
    """Interleavings of a case, in as few runs as can be."""
    # What needs a task that fails is not performed.
    at_once = 1 if any(seen.endswith("failed") for seen in serial(case).observed) else AT_ONCE
    outcomes: list[Outcome] = []
    reran = 0
    for first in range(0, len(orders), at_once):
        ran = _run(case, where, orders[first : first + at_once], is_declared)
        outcomes += ran.outcomes
        reran += ran.reran
    return Ran(tuple(outcomes), reran)


def _run(case: Case, where: Where, orders: Sequence[Sequence[int]], is_declared: bool) -> Ran:
    stage = Stage(case, orders)
    plan = headway.Plan("case", state={f"*/{key}": kind for key, kind in case.channels.items()})
    with tempfile.TemporaryDirectory() as folder:
        door = Path(folder) / "door" if where == "processes" else None
        _declare(plan, case, _function(where, stage), [
            Part(case.name, 0, number, "" if door is None else str(door))
            for number in range(len(orders))
        ], is_declared)  # fmt: skip
        with nullcontext() if door is None else doorway(stage.turn, door):
            how = PlanHow(
                strategy="all-at-once", ceiling=len(case.tasks) + 1, return_exceptions=True,
                in_processes=door is not None,
            )  # fmt: skip
            running = Watched(plan, how, stage=stage)
            running.begin()
            running.wait()
    return Ran(tuple(_outcome(running, case, number) for number in range(len(orders))),
               running.reran)  # fmt: skip


def _declare(
    plan: headway.Plan, case: Case, function: Callable[..., object], parts: Sequence[Part],
    is_declared: bool,
) -> None:  # fmt: skip
    before: list[TaskHandle] = []
    for part in parts:
        own = f"{part.round}/"
        begun = plan.task(
            f"begin {part.round}", _begin, each=[part], needs=before,
            writes=[own + key for key in case.start],
        )  # fmt: skip
        before = []
        for number, task in enumerate(case.tasks):
            add = partial(plan.task, f"{task.name} {part.round}", function, needs=begun)
            mine = [Part(part.case, number, part.round, part.door)]
            reads, writes = ([own + key for key in keys] for keys in (task.reads, task.writes))
            before.append(
                add(each=mine, reads=reads, writes=writes) if is_declared else add(each=mine)
            )


def _outcome(running: headway.Run, case: Case, number: int) -> Outcome:
    own = f"{number}/"
    state = {
        key.removeprefix(own): value
        for key, value in running.state.items()
        if key.startswith(own)
    }  # fmt: skip
    errors = running.errors
    observed: list[str] = []
    aborts = 0
    for task in case.tasks:
        name = f"{task.name} {number}"
        said = str(errors.get(f"{name}[0]", ""))
        aborts += bool(said) and GAVE_UP not in said
        (result,) = cast("list[object]", running.results[name])
        observed.append(said.rpartition(GAVE_UP)[2] if said else str(result))
    return Outcome(state, tuple(observed), aborts)


def _begin(part: Part, *_before: object, ctx: headway.Context) -> None:
    """The first task of a round: what the state begins with."""
    view = Own(ctx, part.round)
    for key, value in CASES[part.case].start.items():
        view.put(key, value)


def _function(where: Where, stage: Stage) -> Callable[..., object]:
    """What performs a task there."""
    if where == "processes":
        return _in_process

    def in_thread(part: Part, _begun: object, ctx: headway.Context) -> str:
        play, view = Play(CASES[part.case].tasks[part.number]), Own(ctx, part.round)
        while True:
            stage.turn(part.round, part.number, ctx.attempt)
            if play.operation is None:
                return _ended(play)
            play.step(view)

    async def in_loop(part: Part, _begun: object, ctx: headway.Context) -> str:
        play, view = Play(CASES[part.case].tasks[part.number]), Own(ctx, part.round)
        while True:
            await asyncio.to_thread(stage.turn, part.round, part.number, ctx.attempt)
            if play.operation is None:
                return _ended(play)
            play.step(view)

    return in_loop if where == "async" else in_thread


def _in_process(part: Part, _begun: object, ctx: headway.Context) -> str:
    play, view = Play(CASES[part.case].tasks[part.number]), Own(ctx, part.round)
    while True:
        ask(part.door, part.round, part.number, ctx.attempt)
        if play.operation is None:
            return _ended(play)
        play.step(view)


def _ended(play: Play) -> str:
    if play.is_failed:
        raise AbortedError(GAVE_UP + play.observed)
    return play.observed
