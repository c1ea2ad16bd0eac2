"""CPU time of small operations, beside what the same machine takes for the simplest things.

CPU time of this thread and not time on the wall: on a busy machine other processes would be
measured too. What the clock itself costs is taken off.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from time import thread_time_ns
from typing import Final

from msgspec import Struct

BATCH: Final = 200
"""Operations that are timed as one where a single one is shorter than reading the clock."""


class Spread(Struct, frozen=True):
    """Microseconds of one operation: the middle, and what one in a hundred exceeds."""

    p50_us: float
    p99_us: float
    mean_us: float


def spread(samples_ns: list[int], per_sample: int = 1, overhead_ns: float = 0.0) -> Spread:
    """What samples of `per_sample` operations each come to."""
    ordered = sorted(samples_ns)

    def us(nanoseconds: float) -> float:
        return max(0.0, nanoseconds - overhead_ns) / per_sample / 1000

    last = len(ordered) - 1
    return Spread(us(ordered[last // 2]), us(ordered[round(last * 0.99)]),
                  us(sum(ordered) / len(ordered)))  # fmt: skip


def each(operation: Callable[[], object], count: int) -> Spread:
    """Time every single operation."""
    samples = []
    for _ in range(count):
        began = thread_time_ns()
        operation()
        samples.append(thread_time_ns() - began)
    return spread(samples, overhead_ns=clock_ns())


def batches(operation: Callable[[], object], count: int) -> Spread:
    """Time operations in batches: for those that are as short as the clock."""
    samples = []
    for _ in range(count):
        began = thread_time_ns()
        for _ in range(BATCH):
            operation()
        samples.append(thread_time_ns() - began)
    return spread(samples, BATCH, clock_ns())


def clock_ns() -> float:
    """What reading the clock twice takes."""
    samples = []
    for _ in range(1000):
        began = thread_time_ns()
        samples.append(thread_time_ns() - began)
    return float(sorted(samples)[len(samples) // 2])


def baselines() -> dict[str, Spread]:
    """What this machine takes for a function call, a dict entry, a heap entry."""
    entries: dict[int, int] = {}
    heap: list[tuple[float, int]] = [(float(i), i) for i in range(1000)]
    place = 0

    def call() -> None:
        return None

    def set_and_pop() -> None:
        entries[7] = 7
        entries.pop(7)

    def push_and_pop() -> None:
        nonlocal place
        place += 1
        heapq.heappush(heap, (place * 0.37 % 1000, place))
        heapq.heappop(heap)

    return {
        "a function call": batches(call, 300),
        "dict: set and pop": batches(set_and_pop, 300),
        "heap of 1,000 tuples: push and pop": batches(push_and_pop, 300),
    }
