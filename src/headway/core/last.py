"""When the last of many will have ended, told from how long others took.

Laws:
- The last has ended by even chance when ln 2 of them are expected to go on still: of many that do
  not know of each other, none is left with the chance exp(-expected).
- Whoever has taken longer than all others may take longer still: as a share of its age.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import log
from typing import Final

STILL: Final = log(2.0)

SAMPLE_MAX: Final = 64
"""Of those that go on, and of those to come, so many stand for all: a screen asks often."""

HALVINGS: Final = 24
"""The end is found to a ten-millionth of the longest that it could be."""

PATIENCE: Final = 8.0
"""As a multiple of the longest that anybody took or takes: by then all but a few have ended."""


def last_s(taken_s: Sequence[float], ages_s: Sequence[float], begins: int, until_s: float) -> float:
    """How long from now until the last has ended.

    `taken_s` are the times that others took, in ascending order and at least one; `ages_s` those
    for which some have been going on; `begins` more begin evenly from now until `until_s`.
    """
    ages = _thinned(sorted(ages_s))
    starts = [until_s * (number + 1) / begins for number in _thinned(range(begins))]
    age_weight = len(ages_s) / max(1, len(ages))
    start_weight = begins / max(1, len(starts))

    def going_on(at_s: float) -> float:
        old = sum(_goes_on(taken_s, age_s, at_s) for age_s in ages)
        new = sum(_beyond(taken_s, at_s - start_s) for start_s in starts)
        return age_weight * old + start_weight * new

    low_s, high_s = 0.0, until_s + PATIENCE * max(taken_s[-1], *ages, 0.0)
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2.0
        if going_on(middle_s) > STILL:
            low_s = middle_s
        else:
            high_s = middle_s
    return high_s


def _thinned(every: Sequence[float]) -> Sequence[float]:
    """At most so many of them, evenly, the last among them."""
    if len(every) <= SAMPLE_MAX:
        return every
    return [every[(number + 1) * len(every) // SAMPLE_MAX - 1] for number in range(SAMPLE_MAX)]


def _beyond(taken_s: Sequence[float], age_s: float) -> float:
    """The share of those that took longer than this."""
    return 1.0 - bisect_right(taken_s, age_s) / len(taken_s)


def _goes_on(taken_s: Sequence[float], age_s: float, for_s: float) -> float:
    """The chance that one of this age goes on for so much longer."""
    if (alive := _beyond(taken_s, age_s)) > 0.0:
        return _beyond(taken_s, age_s + for_s) / alive
    return float((age_s / (age_s + for_s)) ** 2) if for_s > 0.0 else 1.0
