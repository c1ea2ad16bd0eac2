"""How a limit counts, and its period where no header names it: learned from successive resets."""

from __future__ import annotations

from math import inf, sqrt
from typing import Final

from headway.base.values import Limit, LimitKind, LimitReading

CHANGED: Final = 0.005
"""A limit that is reported to differ by more than this share has been changed."""
READINGS_MEMORY: Final = 0.97
"""What earlier readings weigh at each new one: hypotheses about a period are compared on thirty."""
FINE_S: Final = 0.002
"""Resets are written in milliseconds or, where all of them are whole, in seconds."""
RARE: Final = 1.5
"""Deviations above the mean from which on a reset is an outlier."""
LONGEST_MEMORY: Final = 0.999
"""The longest reset is the period of a window; it is forgotten slowly: limits change."""
FILLED: Final = 1.05
"""A limit that is fuller than it ever was by this factor was in use at first: a new beginning."""


class PeriodEvidence:
    """Readings of a limit of which it is not known how it counts and, perhaps, its period.

    Three hypotheses about successive resets: proportional to what is missing (a bucket), falling
    with time until a boundary (a fixed window), the same for every call (a sliding window). While
    rounding leaves it open, what is certain of all is believed: in any period no more than was
    seen to be there. Then the best one is, until it does not explain the resets to within their
    rounding. Refusals, which take nothing of a limit, are not looked at.
    """

    def __init__(self, known: Limit | None = None) -> None:
        """`known` is what an earlier run found: it holds until resets contradict it."""
        self._most = 0.0 if known is None else known.capacity
        """The most that was ever there before a call."""
        self._limit = self._most
        self._count = self._r = self._rr = self._mm = self._mr = 0.0
        self._off = self._offs = 0.0
        self._ratio = inf
        """The least of reset over missing: a reset that is rounded up is at most too long."""
        self._kind: LimitKind = "sliding" if known is None else known.kind
        self.is_open = known is None
        """Whether more than one hypothesis explains the resets."""
        self._is_whole = True
        self._boundary_s = -inf
        self._jump_s = inf
        """The least time between two boundaries, if it is a fixed window."""
        self._longest_s = 0.0

    def observe(self, told: LimitReading, need: float, at_s: float) -> Limit | None:
        """The limit that explains the readings so far, if any; `need`: what the call took."""
        limit, left, reset_s = told.limit, told.remaining, told.reset_s
        if not limit or left is None or reset_s is None:
            return None
        if self._limit and abs(limit - self._limit) > CHANGED * self._limit:
            # Changed on the way: as full in proportion, once it has refilled.
            self._most *= limit / self._limit
            self._begin()
        elif left + need > FILLED * self._most:
            self._begin()
        self._limit = limit
        self._most = min(limit, max(self._most, left + need))
        self._is_whole = self._is_whole and reset_s == int(reset_s)
        step_s = 1.0 if self._is_whole else FINE_S
        missing, keep = max(0.0, self._most - left), READINGS_MEMORY
        self._count = keep * self._count + 1.0
        self._r = keep * self._r + reset_s
        self._rr = keep * self._rr + reset_s * reset_s
        self._mm = keep * self._mm + missing * missing
        self._mr = keep * self._mr + missing * reset_s
        self._follow_boundary(at_s, reset_s, step_s)
        self._longest_s = max(reset_s, LONGEST_MEMORY * self._longest_s)
        if missing > 0:
            self._ratio = min(reset_s / missing, self._ratio / LONGEST_MEMORY)
        if self._mr <= 0:
            return None
        # No boundary could move yet: that speaks neither for a fixed window nor against it.
        unseen = 0.0 if self._kind == "fixed" else inf
        squares: dict[LimitKind, float] = {
            "bucket": (self._rr - self._mr**2 / self._mm) / self._count,
            "sliding": (self._rr - self._r**2 / self._count) / self._count,
            "fixed": self._off / self._offs if self._offs else unseen,
        }
        if told.period_s is not None and self._r < self._count * told.period_s / 2.0:
            # A call stays in a sliding window for the whole of a period that is named.
            squares["sliding"] = inf
        errors = {kind: sqrt(max(0.0, square)) for kind, square in squares.items()}
        if self.is_open and max(errors["bucket"], errors["sliding"]) > step_s:
            self.is_open = False
        if not self.is_open and errors[self._kind] > step_s:
            self._kind = min(errors, key=errors.__getitem__)
        is_small = self._most < limit / FILLED
        burst = self._most if is_small and self._kind == "bucket" else None
        if told.period_s is not None:
            found = Limit(told.resource, limit, told.period_s, self._kind, burst, "header")
            return None if self.is_open else found
        # A reset that is rounded up is now and then a step too long.
        period_s = min(self._longest_s, self._r / self._count + RARE * errors["sliding"])
        if self.is_open:
            period_s = max(period_s, self._most * self._ratio)
            return Limit(told.resource, self._most, period_s, "sliding", None, "learned")
        if self._kind == "bucket":
            period_s = limit * self._mr / self._mm
        elif self._kind == "fixed":
            period_s = max(self._longest_s, 0.0 if self._jump_s == inf else self._jump_s)
        return Limit(told.resource, limit, period_s, self._kind, burst, "learned")

    def _begin(self) -> None:
        """Forget the sums over readings: of 1, reset, missing and their products; of how far
        boundaries moved that had not come, and of how often they could have."""
        self._count = self._r = self._rr = self._mm = self._mr = self._off = self._offs = 0.0
        self._ratio = inf

    def _follow_boundary(self, at_s: float, reset_s: float, step_s: float) -> None:
        """Note how far from where it was first seen the end of a fixed window would be."""
        ends_s, boundary_s = at_s + reset_s, self._boundary_s
        if at_s < boundary_s - step_s:
            self._off = READINGS_MEMORY * self._off + (ends_s - boundary_s) ** 2
            self._offs = READINGS_MEMORY * self._offs + 1.0
        elif ends_s > boundary_s + step_s:
            if boundary_s > -inf:
                self._jump_s = min(self._jump_s, ends_s - boundary_s)
            self._boundary_s = ends_s
