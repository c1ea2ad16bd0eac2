"""Every order in which tasks can take their steps, or one of each kind.

Laws:
- Orders are tried depth first, the serial one first. What two of them have in common is executed
  once: the trial is copied where they part, or, if it cannot be, its steps are done again.
- With reduction, of orders that differ only in steps that do not touch each other's things one is
  tried: sleep sets (Godefroid, 1996), with what the steps really touched.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headway.core.foresight.stage import Touch, overlap
from headway.core.foresight.trial import Cast, Trial, copied

Footprint = list[Touch]

COPIES_COLLECTED: Final = 500_000
"""Objects after which the collector looks once all the same."""


@dataclass(slots=True)
class _Fork:
    """A point where orders part."""

    depth: int
    frozen: Trial | None
    """The trial as it was here; None if it cannot be copied."""
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
    # Copies are many and refer to nothing that refers to them: a collector looks at them in vain,
    # which is a fifth of the time.
    threshold = gc.get_threshold()
    gc.set_threshold(COPIES_COLLECTED if cast.is_copied else threshold[0], *threshold[1:])
    try:
        yield from _interleavings(cast, is_reduced)
    finally:
        gc.set_threshold(*threshold)


def _interleavings(cast: Cast, is_reduced: bool) -> Iterator[Tried]:
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
                frozen = copied(trial) if cast.is_copied else None
                forks.append(_Fork(len(path), frozen, choices[:0:-1], slept))
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
        place = fork.rest.pop()
        trial = _returned(cast, fork, path, is_reduced)
        slept = _step(trial, path, place, fork.slept, is_reduced)


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
    """The trial as it was at a fork."""
    if fork.frozen is not None:
        return copied(fork.frozen) if fork.rest else fork.frozen  # Nobody comes back to the last.
    trial = _opened(cast, is_reduced)
    for place in path:
        trial.take(place)
    return trial
