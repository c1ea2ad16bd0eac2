"""Calls of earlier runs as forecasts learn from them: each with the company that it had."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

from headway.core.foresight.sizes import Seen, usual_tokens


@dataclass(frozen=True, slots=True)
class Answered:
    """A task whose calls were all answered."""

    part: str
    """Of its plan."""
    from_s: float
    """When its last call was let go."""
    to_s: float
    input_tokens: float
    """Of all of its calls."""
    output_tokens: float
    calls: int = 1
    size_bytes: float = 0.0
    """Of its prompt, without results of other tasks; 0 if nobody knows."""
    microusd: float = 0.0
    """What was charged for all of its calls; 0 if nobody knows."""


def seen_of(answered: Sequence[Answered]) -> dict[str, list[Seen]]:
    """By part, the mean call of each task; its time only where it was one call."""
    company = _company([(one.from_s, one.to_s) for one in answered])
    seen: dict[str, list[Seen]] = {}
    for one in answered:
        calls = max(1, one.calls)
        took_s = one.to_s - one.from_s if one.calls == 1 else 0.0
        seen.setdefault(one.part, []).append(
            Seen(
                _input_tokens(one) / calls, one.output_tokens / calls, one.size_bytes,
                took_s, company.mean(one.from_s, one.to_s), calls, one.microusd / calls,
            )
        )  # fmt: skip
    return seen


def _input_tokens(one: Answered) -> float:
    """What the provider told; if it tells nothing, what so many bytes usually are."""
    if one.input_tokens or not one.size_bytes:
        return one.input_tokens
    return max(1, one.calls) * usual_tokens(one.size_bytes)


@dataclass(frozen=True, slots=True)
class _Company:
    """How many were in flight at once, over any interval: from one integral over time."""

    times: tuple[float, ...]
    counts: tuple[int, ...]
    """In flight from each time on."""
    integrals: tuple[float, ...]

    def mean(self, from_s: float, to_s: float) -> float:
        """On average, from one time to another; at least the one who asks."""
        if to_s <= from_s:
            return 1.0
        return max(1.0, (self._until(to_s) - self._until(from_s)) / (to_s - from_s))

    def _until(self, at_s: float) -> float:
        """The integral up to a time that is not before the first one."""
        place = bisect_right(self.times, at_s) - 1
        return self.integrals[place] + self.counts[place] * (at_s - self.times[place])


def _company(spans: Sequence[tuple[float, float]]) -> _Company:
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    counts = tuple(accumulate(change for _, change in changes))
    times = tuple(at_s for at_s, _ in changes)
    gaps = (to_s - from_s for from_s, to_s in pairwise(times))
    steps = map(mul, counts, gaps)
    return _Company(times, counts, tuple(accumulate(steps, initial=0.0)))
