"""Runs a case on a store in every interleaving, and compares with declared order.

A step is one operation of a task, or its end. An interleaving says whose step is next. It is a
preference: a step of a task that has ended, or that waits, is left out; what remains when it is
used up, such as attempts that begin again, comes last, the last declared task first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import factorial, prod
from typing import Final, Protocol

from msgspec import Struct

from tests.coherence.catalogue_plays import Case, Play, View
from tests.coherence.catalogue_stores import LastWriter

STEPS_MAX: Final = 10_000
"""A run that takes more goes round in circles."""

Interleaving = Sequence[int]


class Store(Protocol):
    """Holds the state that tasks share, and says which of them go on."""

    aborts: int
    """Attempts that were refused so that whoever runs the task has to deal with it."""

    def views(self) -> Mapping[int, View]:
        """What each attempt sees that goes on; another view of a task is another attempt."""

    def finish(self, task: int, is_failed: bool) -> bool:
        """An attempt has ended; whether it was refused."""

    def state(self) -> dict[str, object]:
        """What is there at last."""


Begin = Callable[[Case], Store]


class Outcome(Struct, frozen=True):
    """What a run led to: the state, and what each task saw in the attempt that counts."""

    state: Mapping[str, object]
    observed: tuple[str, ...]
    aborts: int = 0


class Tally(Struct, frozen=True):
    """What all interleavings of a case led to."""

    runs: int
    deviations: int
    """Runs with a result other than that of declared order; an abort that is seen is one."""
    aborts: int
    results: int

    @property
    def depends_on_schedule(self) -> bool:
        return self.results > 1


class Counting:
    """Counts what runs of one case led to."""

    def __init__(self, right: Outcome) -> None:
        self._right = right
        self._runs = self._deviations = self._aborts = 0
        self._results: set[str] = set()

    def __repr__(self) -> str:
        return f"<Counting {self.tally()}>"

    def add(self, found: Outcome) -> None:
        self._runs += 1
        self._deviations += found != self._right
        self._aborts += found.aborts > 0
        self._results.add(json.dumps([found.state, found.observed], sort_keys=True))

    def tally(self) -> Tally:
        return Tally(self._runs, self._deviations, self._aborts, len(self._results))


def run(case: Case, store: Store, order: Interleaving) -> Outcome:
    plays: dict[int, tuple[View, Play]] = {}
    observed = [""] * len(case.tasks)

    def step(task: int, view: View) -> None:
        if task not in plays or plays[task][0] is not view:
            plays[task] = view, Play(case.tasks[task])
        play = plays[task][1]
        if play.operation is not None:
            play.step(view)
            return
        is_refused = store.finish(task, play.is_failed)
        observed[task] = "aborted" if is_refused else play.observed

    for task in order:
        view = store.views().get(task)
        if view is not None:
            step(task, view)
    for _ in range(STEPS_MAX):
        views = store.views()
        if not views:
            return Outcome(store.state(), tuple(observed), store.aborts)
        task = max(views)
        step(task, views[task])
    raise AssertionError(f"{case.name} does not end on {store}")


def serial(case: Case) -> Outcome:
    """The tasks one after another, in declared order: the right result."""
    return run(
        case, LastWriter(case), [task for task, n in enumerate(steps(case)) for _ in range(n)]
    )


def steps(case: Case) -> tuple[int, ...]:
    """How many steps each task has when they run one after another."""
    store, counts = LastWriter(case), []
    for task, declared in enumerate(case.tasks):
        play, count = Play(declared), 1
        while play.operation is not None:
            play.step(store.views()[task])
            count += 1
        store.finish(task, play.is_failed)
        counts.append(count)
    return tuple(counts)


def count(counts: Sequence[int]) -> int:
    return factorial(sum(counts)) // prod(map(factorial, counts))


def interleavings(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return iter(_interleavings(tuple(counts)))


def halves(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Interleavings in which each task goes half its way at once, and then the rest."""
    for order in interleavings([2] * len(counts)):
        steps_of = {task: [(count + 1) // 2, count // 2] for task, count in enumerate(counts)}
        yield tuple(task for task in order for _ in range(steps_of[task].pop(0)))


def chosen(counts: Sequence[int], sample: int, seed: int) -> list[tuple[int, ...]]:
    """All interleavings, or if there are more than that a sample of them; 0 is no sample."""
    every = list(interleavings(counts))
    return random.Random(seed).sample(every, sample) if 0 < sample < len(every) else every


def tally(case: Case, begin: Begin, orders: Iterable[Interleaving] | None = None) -> Tally:
    """All interleavings of a case, or some of them, on a store that is new for each."""
    counting = Counting(serial(case))
    for order in interleavings(steps(case)) if orders is None else orders:
        counting.add(run(case, begin(case), order))
    return counting.tally()


@lru_cache(maxsize=64)
def _interleavings(counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if not any(counts):
        return ((),)
    found = []
    for task, left in enumerate(counts):
        if left:
            fewer = (*counts[:task], left - 1, *counts[task + 1 :])
            found += [(task, *rest) for rest in _interleavings(fewer)]
    return tuple(found)
