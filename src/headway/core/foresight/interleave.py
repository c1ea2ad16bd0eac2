"""Every order in which tasks can take their steps, or one of each kind.

Laws:
- Orders are tried depth first, the serial one first. What two of them have in common is executed
  once: the trial is copied where they part, or, if it cannot be, its steps are done again.
- With reduction, of orders that differ only in steps that do not touch each other's things one is
  tried: sleep sets (Godefroid, 1996), with what the steps really touched.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from headway.core.engine.access import Access
from headway.core.engine.channels import Channels
from headway.core.engine.coherence import Hints, Places
from headway.core.engine.engine import Rules
from headway.core.foresight.stage import Done, Touch, overlap
from headway.core.foresight.trial import Cast, Kept, Trial
from headway.core.plan.graph import Graph
from headway.core.plan.touches import Touches

Footprint = list[Touch]

COPIES_COLLECTED: Final = 500_000
"""Objects after which the collector looks once all the same."""
SPACING: Final = 2
"""Trials are copied at every second step: to take one again costs less than a further copy."""

_COPIERS: Final[dict[int, list[object]]] = {}
"""What copies share instead of copying it, of every copier that is in use."""


@dataclass(frozen=True, slots=True)
class CopierStatistics:
    """How many things are shared by all copies."""

    shared: int


class Copier:
    """Copies trials: what never changes is shared."""

    __slots__ = ("_ids", "_kept", "_table", "_token")

    def __init__(self, constants: tuple[type, ...] = ()) -> None:
        self._token = id(self)
        self._kept: list[object] = []
        self._ids: dict[int, int] = {}
        _COPIERS[self._token] = self._kept
        shared = (
            Cast, Graph, Rules, Channels, Touches, Places, Hints, MappingProxyType, Access, Done,
            Kept, *constants,
        )  # fmt: skip
        self._table = dict.fromkeys(shared, self._reference)

    def __repr__(self) -> str:
        return f"<Copier {self.statistics()}>"

    def statistics(self) -> CopierStatistics:
        return CopierStatistics(len(self._kept))

    def freeze(self, trial: Trial) -> bytes:
        """A trial as it is now."""
        data = io.BytesIO()
        pickler = pickle.Pickler(data, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = self._table
        pickler.dump(trial)
        return data.getvalue()

    @staticmethod
    def thaw(frozen: bytes) -> Trial:
        """A trial as it was then."""
        trial: Trial = pickle.loads(frozen)
        return trial

    def close(self) -> None:
        """No copies are made any more."""
        del _COPIERS[self._token]

    def _reference(self, shared: object) -> tuple[Callable[[int, int], object], tuple[int, int]]:
        number = self._ids.get(id(shared))
        if number is None:
            number = self._ids[id(shared)] = len(self._kept)
            self._kept.append(shared)
        return _shared, (self._token, number)


def _shared(token: int, number: int) -> object:
    return _COPIERS[token][number]


@dataclass(slots=True)
class _Fork:
    """A point where orders part."""

    depth: int
    frozen: bytes | None
    """The trial as it was here, or at the last fork before where it was copied."""
    copied_at: int
    """The depth of that."""
    rest: list[int]
    """Who is still to go first from here, the next one last."""
    slept: dict[int, Footprint]
    """Who need not: what he would do from here was done from here, or before."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that has ended, and the steps that were taken."""

    trial: Trial
    path: list[int]


def interleavings(cast: Cast, is_reduced: bool = False) -> Iterator[Tried]:
    """All orders of one plan; a trial is closed when the next one is asked for."""
    copier = Copier(cast.constants)
    # Copies are many and refer to nothing that refers to them: a collector looks at them in vain,
    # which is a fifth of the time.
    threshold = gc.get_threshold()
    gc.set_threshold(COPIES_COLLECTED if cast.is_copied else threshold[0], *threshold[1:])
    try:
        yield from _interleavings(cast, copier, is_reduced)
    finally:
        gc.set_threshold(*threshold)
        copier.close()


def _interleavings(cast: Cast, copier: Copier, is_reduced: bool) -> Iterator[Tried]:
    trial = _opened(cast, is_reduced)
    path: list[int] = []
    forks: list[_Fork] = []
    slept: dict[int, Footprint] = {}
    while True:
        while not trial.is_over:
            choices = [place for place in trial.ready if place not in slept]
            if not choices:
                break  # Everything that could follow was seen before in another order.
            if len(choices) > 1:
                frozen, copied_at = (forks[-1].frozen, forks[-1].copied_at) if forks else (None, 0)
                is_far = frozen is None or len(path) - copied_at >= SPACING
                if cast.is_copied and (is_far or len(choices) > SPACING):
                    frozen, copied_at = copier.freeze(trial), len(path)
                forks.append(_Fork(len(path), frozen, copied_at, choices[:0:-1], slept))
            slept = _step(trial, path, choices[0], slept, is_reduced)
        else:
            yield Tried(trial, path)
        trial.close()
        while forks and not forks[-1].rest:
            forks.pop()
        if not forks:
            return
        fork = forks[-1]
        del path[fork.depth :]
        trial = _returned(cast, fork, path, is_reduced)
        slept = _step(trial, path, fork.rest.pop(), fork.slept, is_reduced)


def _step(
    trial: Trial, path: list[int], place: int, slept: dict[int, Footprint], is_reduced: bool
) -> dict[int, Footprint]:
    """Take a step; who sleeps after it. Whoever took it sleeps where orders part."""
    path.append(place)
    if not is_reduced:
        trial.take(place)
        return slept
    trial.trace = []
    trial.take(place)
    footprint = [touch for _, touch in trial.trace]
    after = {other: theirs for other, theirs in slept.items() if not overlap(footprint, theirs)}
    slept[place] = footprint
    return after


def _opened(cast: Cast, is_reduced: bool) -> Trial:
    trial = Trial(cast)
    trial.trace = [] if is_reduced else None
    return trial.open()


def _returned(cast: Cast, fork: _Fork, path: list[int], is_reduced: bool) -> Trial:
    trial = _opened(cast, is_reduced) if fork.frozen is None else Copier.thaw(fork.frozen)
    for place in path[fork.copied_at :]:
        trial.take(place)
    return trial
