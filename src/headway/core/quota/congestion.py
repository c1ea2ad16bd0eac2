"""How many calls at once are worth having, by how much slower each becomes in company.

Laws:
- Raw latency is never used: a long answer is not a slow one. Time per unit of work is.
- A peak is believed only where samples support it, and only beyond what noise can make.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

NEARLY_PEAK: Final = 0.98
"""The smallest width with this share of the peak throughput: the rest only adds latency."""

EXTRAPOLATION_MAX: Final = 1.3
"""How far beyond the widest sample a fitted curve is believed."""

CERTAIN: Final = 2.0
"""Standard errors by which slowness has to grow with company before it is believed to: times that
were measured on a busy machine have noise, and noise bends any curve."""

NOISE_MEMORY: Final = 0.05

SAMPLES_MIN: Final = 8
"""Fewer samples than this fit anything."""


@dataclass(frozen=True, slots=True)
class WidthStatistics:
    """How many calls may be in flight, and which law said so."""

    limit: float
    cap: float
    worth: float
    reason: str


class Congestion:
    """Fits time per unit of work against calls in flight and finds the width worth having.

    y(n) = c0 + c1 (n - 1) + c2 n (n - 1): linear in its coefficients, so a weighted least-squares
    fit over one mean per width is a 3 x 3 system. Means per width, not raw samples, so that a long
    stay at one width does not drown what was learned at the others.
    """

    __slots__ = ("_bins", "_fit", "_fresh", "_noise", "samples", "widest")
    MEMORY: Final = 0.1

    def __init__(self, curve: tuple[tuple[int, float, float], ...] = ()) -> None:
        self._bins = {width: (weight, seconds) for width, weight, seconds in curve}
        self._fit: _Fit | None = None
        self._noise = 0.0
        """Mean squared distance of a sample from the curve, as a share of the time alone."""
        self._fresh = 0
        self.samples = round(sum(weight for _, weight, _ in curve))
        self.widest = float(max(self._bins, default=1))
        self._refit()

    def __repr__(self) -> str:
        return f"<Congestion {self.samples} samples, worth {self.worth():.1f}>"

    def curve(self) -> tuple[tuple[int, float, float], ...]:
        """What was seen, for the profile: it counts half when the next run begins."""
        return tuple((n, weight / 2, y) for n, (weight, y) in sorted(self._bins.items()))

    def sample(self, in_flight: float, time_per_work_s: float) -> None:
        """One call's time per unit of work, and how many were in flight on average meanwhile."""
        width = max(1, round(in_flight))
        if self._fit is not None:
            off = (time_per_work_s - self._fit.at(in_flight)) / self._fit.alone
            self._noise += NOISE_MEMORY * (off * off - self._noise)
        weight, mean = self._bins.get(width, (0.0, time_per_work_s))
        share = max(self.MEMORY, 1.0 / (weight + 1.0))
        self._bins[width] = (min(weight + 1.0, 1.0 / self.MEMORY),
                             mean + share * (time_per_work_s - mean))  # fmt: skip
        self.samples += 1
        self.widest = max(self.widest, float(width))
        self._fresh += 1
        if self._fresh >= 4:
            self._refit()

    def _refit(self) -> None:
        self._fresh = 0
        if self._bins:
            self._fit = _least_squares(
                (float(n), y, weight) for n, (weight, y) in self._bins.items()
            )

    def worth(self) -> float:
        """The smallest width with nearly the peak throughput, as far as samples support it."""
        peak = self.peak()
        if peak == inf:
            return inf
        width, enough = peak, NEARLY_PEAK * self.throughput(peak)
        while width > 1 and self.throughput(width - 0.5) >= enough:
            width -= 0.5
        return width

    def peak(self) -> float:
        """The width with the highest throughput, if it is within what samples support."""
        fit = self._fit
        if fit is None or self.samples < SAMPLES_MIN or len(self._bins) < 2:
            return inf
        doubt = CERTAIN * fit.alone * sqrt(self._noise * fit.doubt)
        if fit.square <= doubt:
            return inf
        peak = max(1.0, sqrt(max(0.0, fit.alone - fit.linear) / fit.square))
        return peak if peak <= self.widest * EXTRAPOLATION_MAX else inf

    def throughput(self, width: float) -> float:
        """Work per second at a width, by the fitted curve."""
        return width / (self._fit or _FLAT).at(width)

    def statistics(self) -> WidthStatistics:
        return WidthStatistics(self.worth(), inf, self.worth(), f"{self.samples} samples")


@dataclass(frozen=True, slots=True)
class _Fit:
    """Time per unit of work: alone, and what company adds to it."""

    alone: float
    linear: float
    square: float
    doubt: float = 0.0
    """Variance of the quadratic part for samples with a variance of one."""

    def at(self, n: float) -> float:
        """Time per unit of work with n in flight."""
        return self.alone + self.linear * (n - 1.0) + self.square * n * (n - 1.0)


_FLAT: Final = _Fit(1.0, 0.0, 0.0)


def _least_squares(points: Iterable[tuple[float, float, float]]) -> _Fit:
    """Weighted fit of c0 + c1 (n-1) + c2 n(n-1), none negative; a ridge keeps c1 small.

    Without a ridge two widths cannot tell linear from quadratic growth. The quadratic term is the
    one that makes a peak, so doubt goes to it.
    """
    s11 = s12 = s13 = s22 = s23 = s33 = t1 = t2 = t3 = 0.0
    for n, y, w in points:
        a, b = n - 1.0, n * (n - 1.0)
        s11 += w
        s12 += w * a
        s13 += w * b
        s22 += w * a * a
        s23 += w * a * b
        s33 += w * b * b
        t1 += w * y
        t2 += w * a * y
        t3 += w * b * y
    s22 += 0.05 * s22 + 1e-9
    # What is left for the quadratic part once the others have taken what they can explain.
    rest = s33 - s13 * s13 / s11
    both = (s23 - s12 * s13 / s11) ** 2 / (s22 - s12 * s12 / s11)
    for use_linear, use_square in ((True, True), (False, True), (True, False)):
        fit = _solve(
            (s11, s12 * use_linear, s13 * use_square, t1),
            (s12 * use_linear, s22 if use_linear else 1.0, s23 * (use_linear and use_square),
             t2 * use_linear),
            (s13 * use_square, s23 * (use_linear and use_square),
             s33 + 1e-9 if use_square else 1.0, t3 * use_square),
        )  # fmt: skip
        if fit[0] > 0 and min(fit) >= 0:
            left = rest - both if use_linear else rest
            return _Fit(*fit, 1.0 / max(left, 1e-12))
    return _Fit(t1 / s11, 0.0, 0.0)


_Row = tuple[float, float, float, float]


def _solve(r1: _Row, r2: _Row, r3: _Row) -> tuple[float, float, float]:
    """Cramer's rule for a symmetric 3 x 3 system; a singular one gives a negative, rejected fit."""

    def det(i: int, j: int, k: int) -> float:
        return (
            r1[i] * (r2[j] * r3[k] - r2[k] * r3[j])
            - r1[j] * (r2[i] * r3[k] - r2[k] * r3[i])
            + r1[k] * (r2[i] * r3[j] - r2[j] * r3[i])
        )

    whole = det(0, 1, 2)
    if abs(whole) < 1e-12:
        return (-1.0, 0.0, 0.0)
    return (det(3, 1, 2) / whole, det(0, 3, 2) / whole, det(0, 1, 3) / whole)
