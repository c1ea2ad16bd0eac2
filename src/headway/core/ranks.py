"""Values by their rank: the middle one, and the one that a share of all do not exceed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values do not exceed (nearest rank)."""
    if not values:
        return inf
    return sorted(values)[ceil(share * len(values)) - 1]


def median(values: Sequence[float]) -> float:
    """The middle value, or the middle of the two middle ones."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
