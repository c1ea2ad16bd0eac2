"""How durations are spread, in a fixed number of counters: quantiles without keeping the values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

BOUNDS_S: Final = (
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 90.0, 180.0,
    300.0, 600.0, 1800.0, 3600.0, inf,
)  # fmt: skip
"""Each counter's upper end: from what the gateway itself takes to the longest that it holds."""


@dataclass(frozen=True, slots=True)
class HistogramStatistics:
    """A spread at an instant."""

    count: int
    sum_s: float
    longest_s: float
    p50_s: float
    p90_s: float
    p99_s: float


class Histogram:
    """Counts durations by their size."""

    __slots__ = ("_counts", "_longest_s", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(BOUNDS_S)
        self._sum_s = 0.0
        self._longest_s = 0.0

    def __repr__(self) -> str:
        return f"<Histogram of {sum(self._counts)}, median {self.quantile(0.5):g} s>"

    def add(self, time_s: float) -> None:
        """One more; a duration below 0 is one of 0."""
        time_s = max(0.0, time_s)
        self._counts[bisect_left(BOUNDS_S, time_s)] += 1
        self._sum_s += time_s
        self._longest_s = max(self._longest_s, time_s)

    def quantile(self, share: float) -> float:
        """Below this is so great a share of all; between two bounds, as if spread evenly."""
        wanted = share * sum(self._counts)
        below, low_s = 0, 0.0
        for bound_s, count in zip(BOUNDS_S, self._counts, strict=True):
            if count and below + count >= wanted:
                high_s = min(bound_s, self._longest_s)
                return low_s + (high_s - low_s) * (wanted - below) / count
            below, low_s = below + count, bound_s
        return 0.0

    def buckets(self) -> Iterator[tuple[float, int]]:
        """(upper end, how many are at most that long), the last one all of them."""
        return zip(BOUNDS_S, accumulate(self._counts), strict=True)

    def statistics(self) -> HistogramStatistics:
        return HistogramStatistics(
            sum(self._counts), self._sum_s, self._longest_s,
            self.quantile(0.5), self.quantile(0.9), self.quantile(0.99),
        )  # fmt: skip
